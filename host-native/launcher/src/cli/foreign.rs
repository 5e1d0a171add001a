//! Options of other launchers that hydrant does not have, with hydrant's equivalent.

/// Option names without dashes, and the hint for them.
const EQUIVALENTS: &[(&[&str], &str)] = &[
    (
        &["hosts-group", "order-nodes", "skip-launch-node", "nolocal"],
        "list the hosts in the desired order with -hosts",
    ),
    (
        &["rmk"],
        "hydrant detects Slurm, PBS, LSF and SGE itself; remove the option, or list the hosts with -hosts",
    ),
    (&["N"], "write -ppn N"),
    (&["bynode", "bycore", "byslot"], "write -map-by node or -map-by slot"),
    (
        &["localhost", "disable-hostname-propagation"],
        "hosts keep the names that -hosts or -f gives them; remove the option",
    ),
    (
        &["demux", "profile", "oversubscribe", "allow-run-as-root"],
        "hydrant does not need it; remove the option",
    ),
    (&["enable-x", "disable-x"], "configure X forwarding in ssh; remove the option"),
    (&["topolib", "membind", "cpu-bind"], "the closest option is -bind-to none|core|hwthread|user:0+2,1+3"),
    (&["bind-to-core"], "write -bind-to core"),
    (&["bind-to-none"], "write -bind-to none"),
    (&["prepend-pattern", "prepend-timestamp", "tag-output"], "the closest option is -prepend-rank (-l)"),
    (&["print-all-exitcodes", "print-rank-map"], "the closest option is -verbose (-v)"),
    (&["output-filename"], "the closest option is -outfile-pattern PATTERN"),
    (&["x"], "write -genv NAME VALUE; inherited variables are passed on by default"),
    (
        &["mca", "gmca", "prtemca"],
        "MCA parameters configure Open MPI, whose ranks need PMIx; hydrant serves PMI-1 and PMI-2",
    ),
    (&["wd"], "write -wdir DIR"),
    (&["c"], "write -n N"),
    (&["s"], "standard input goes to rank 0; remove the option"),
    (&["gpus-per-proc"], "set the variable that your GPU runtime reads, with -env NAME VALUE"),
    (&["gdb", "gdb-args", "gtool"], "start the tool as the program: -n 4 TOOL ./a.out"),
    (&["timeout"], "write: timeout SECONDS hydrant run ..."),
];

/// Hint for the foreign option of this name.
pub(super) fn equivalent(name: &str) -> Option<&'static str> {
    EQUIVALENTS.iter().find(|(names, _)| names.contains(&name)).map(|(_, hint)| *hint)
}
