//! Options that other launchers have and this one has not, with what to do instead.

/// Names of options, without dashes, and advice.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &["hosts-group", "order-nodes", "skip-launch-node", "nolocal"],
        "name the hosts in the order you want, with -hosts",
    ),
    (&["rmk"], "a batch system's hosts are found by themselves; name others with -hosts"),
    (&["N"], "write -ppn N"),
    (&["bynode", "bycore", "byslot"], "write -map-by node or -map-by slot"),
    (
        &["localhost", "disable-hostname-propagation"],
        "each host goes by the name that you give it; leave it out",
    ),
    (&["demux", "profile", "oversubscribe", "allow-run-as-root"], "it is not needed here; leave it out"),
    (&["enable-x", "disable-x"], "X forwarding is ssh's; leave it out"),
    (&["topolib", "membind", "cpu-bind"], "the nearest is -bind-to none|core|hwthread|user:0+2,1+3"),
    (&["bind-to-core"], "write -bind-to core"),
    (&["bind-to-none"], "write -bind-to none"),
    (&["prepend-pattern", "prepend-timestamp", "tag-output"], "the nearest is -prepend-rank (-l)"),
    (&["print-all-exitcodes", "print-rank-map"], "the nearest is -verbose (-v)"),
    (&["output-filename"], "the nearest is -outfile-pattern PATTERN"),
    (&["nameserver"], "published names are served by the launcher itself; leave it out"),
    (&["x"], "write -genv NAME VALUE; the whole environment is passed on anyway"),
    (&["mca", "gmca", "prtemca"], "MCA parameters are Open MPI's, whose ranks join by PMIx, not PMI"),
    (&["wd"], "write -wdir DIR"),
    (&["c"], "write -n N"),
    (&["s"], "standard input goes to rank 0"),
    (&["gpus-per-proc"], "set the variable that your GPU's runtime reads, with -env NAME VALUE"),
    (&["gdb", "gdb-args", "gtool"], "start the tool as the program: -n 4 TOOL ./a.out"),
    (&["timeout"], "write: timeout SECONDS hydrant run ..."),
];

/// What to do instead of the option with this name.
pub(super) fn advice(name: &str) -> Option<&'static str> {
    ADVICE.iter().find(|(names, _)| names.contains(&name)).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_of_ours_is_turned_away() {
        let command = super::super::args::run("run", "hydrant run");
        for arg in command.get_arguments() {
            let short = arg.get_short().map(String::from);
            for name in short.iter().map(String::as_str).chain(arg.get_long()) {
                assert_eq!(advice(name), None, "{name}");
            }
        }
    }
}
