//! Options of other launchers, and what takes their place.
//!
//! The scripts of hydra, Open MPI and srun run unchanged where an option has an equivalent, or none is needed. An option
//! whose meaning cannot be kept is refused with a hint.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::environment::Environment;
use crate::value;

/// Meaning of an option of another launcher.
pub(super) enum Meaning {
    /// Other name of an option, with the same values.
    Renamed(&'static str),
    /// Other form of options without values.
    Fixed(&'static [&'static str]),
    /// Options that depend on this number of values. An error is the remedy.
    Converted(usize, fn(&[OsString], &Environment) -> Result<Vec<OsString>, &'static str>),
    /// No effect. The option has this number of values.
    Ignored(usize, &'static str),
    /// Refused with a hint.
    Refused(&'static str),
}

use Meaning::{Converted, Fixed, Ignored, Refused, Renamed};

const WHOLE_LINES: &str = "lines of ranks are always whole";
const DETECTED: &str = "hydrant detects Slurm, PBS, LSF and SGE itself";
const SERVED: &str = "PMI-1, PMI-2 and PMIx are all served";
const SHARING: &str = "ranks may share processors";
const OF_ALLOCATION: &str = "the allocation is made with salloc or sbatch; remove the option";

/// Names without dashes, and the meaning of each.
const OPTIONS: &[(&[&str], Meaning)] = &[
    // hydra and Intel MPI
    (
        &["hosts-group", "order-nodes", "skip-launch-node", "nolocal"],
        Refused("list the hosts in the desired order with -hosts"),
    ),
    (&["soft"], Refused("write -n with the number of ranks")),
    (&["arch"], Refused("write -host with hosts of that architecture")),
    (&["file"], Refused("write -configfile FILE")),
    (&["rmk"], Ignored(1, DETECTED)),
    (&["localhost"], Ignored(1, "hosts have the names that -hosts or -f gives them")),
    (&["disable-hostname-propagation"], Ignored(0, "hosts have the names that -hosts or -f gives them")),
    (&["hybrid-hosts"], Ignored(0, "programs are looked up on each host")),
    (&["demux"], Ignored(1, "hydrant uses epoll")),
    (&["topolib"], Ignored(1, "hydrant reads the topology from the kernel")),
    (&["disable-x"], Ignored(0, "hydrant forwards no X connections")),
    (&["enable-x"], Refused("configure X forwarding in ssh; remove the option")),
    (&["ordered-output"], Ignored(0, WHOLE_LINES)),
    (&["print-rank-map"], Refused("write --dry-run to see the mapping")),
    (&["gpus-per-proc"], Converted(1, gpus_per_proc)),
    (&["gpu-subdevs-per-proc"], Refused("set ZE_AFFINITY_MASK with -env")),
    (
        &["gdb", "gdb-args", "gtool", "debug", "tv", "xterm"],
        Refused("start the tool as the program: -n 4 TOOL ./a.out"),
    ),
    // Open MPI
    (&["x"], Converted(1, exported)),
    (&["wd"], Renamed("wdir")),
    (&["app"], Renamed("configfile")),
    (&["bynode"], Fixed(&["-map-by", "node"])),
    (&["byslot", "bycore"], Fixed(&["-map-by", "slot"])),
    (&["bind-to-core"], Fixed(&["-bind-to", "core"])),
    (&["bind-to-socket"], Fixed(&["-bind-to", "socket"])),
    (&["cpus-per-proc"], Renamed("cpus-per-rank")),
    (&["bind-to-none"], Fixed(&["-bind-to", "none"])),
    (&["tag-output"], Fixed(&["-prepend-rank"])),
    (&["timestamp-output"], Fixed(&["-prepend-timestamp"])),
    (&["output-filename"], Converted(1, output_folder)),
    (&["oversubscribe"], Ignored(0, SHARING)),
    (&["use-hwthread-cpus"], Ignored(0, SHARING)),
    (&["allow-run-as-root"], Ignored(0, "hydrant runs for any user")),
    (&["hetero-nodes"], Ignored(0, "programs are looked up on each host")),
    (&["personality"], Ignored(1, SERVED)),
    (&["with-ft"], Converted(1, fault_tolerance)),
    (&["enable-recovery", "continuous"], Fixed(&["-disable-auto-cleanup", "-exit-code", "survivors"])),
    (&["mca", "gmca"], Converted(2, mca)),
    (&["prtemca"], Ignored(2, "it configures prterun")),
    (&["report-state-on-timeout"], Ignored(0, "the report at a time limit always shows the states")),
    (&["stack-traces"], Fixed(&["-get-stack-traces"])),
    (&["display-map", "display-allocation", "do-not-launch"], Refused("write --dry-run to see the mapping")),
    (&["display"], Refused("write --dry-run to see the mapping")),
    (&["pernode"], Refused("write -ppn 1, and -n with the number of hosts")),
    (&["npersocket", "ntasks-per-socket"], Refused("write -ppn N and -map-by socket")),
    (&["prefix"], Refused("set PATH and LD_LIBRARY_PATH with -genv, for ranks on all hosts")),
    (&["stream-buffering"], Ignored(1, WHOLE_LINES)),
    (&["quiet", "q", "Q"], Ignored(0, "hydrant prints failures and warnings only")),
    (&["nooversubscribe"], Refused("write max_slots=N in a host file")),
    (&["rankfile", "rf"], Refused("write -rankmap with the position of each rank's host")),
    (&["N"], Refused("write -ppn N for ranks on each host, or --nodes N for the number of hosts")),
    (&["c"], Refused("write -n N for the number of ranks, or -cpus-per-rank N for the cores of each")),
    // srun
    (&["ntasks"], Renamed("np")),
    (&["ntasks-per-node"], Renamed("ppn")),
    (&["nodelist", "w"], Renamed("hosts")),
    (&["distribution", "m"], Converted(1, srun_distribution)),
    (&["threads-per-core", "hint"], Refused("write -bind-to core or -bind-to hwthread")),
    (&["label"], Fixed(&["-prepend-rank"])),
    (&["chdir", "D"], Renamed("wdir")),
    (&["export"], Converted(1, srun_export)),
    (&["mpi"], Ignored(1, SERVED)),
    (&["unbuffered", "u"], Ignored(0, WHOLE_LINES)),
    (&["exclusive", "overlap", "overcommit"], Ignored(0, SHARING)),
    (&["job-name", "J"], Ignored(1, "jobs of hydrant have no names")),
    (&["kill-on-bad-exit", "K"], Ignored(0, "a rank that fails ends the job")),
    (&["no-kill"], Fixed(&["-disable-auto-cleanup"])),
    (&["output"], Converted(1, output)),
    (&["o"], Converted(1, srun_output)),
    (&["error", "e"], Converted(1, srun_error)),
    (&["p", "A", "C"], Refused(OF_ALLOCATION)),
    (&["partition", "account", "qos", "mem", "gres", "constraint", "reservation"], Refused(OF_ALLOCATION)),
    (&["mem-per-cpu", "mem-per-gpu", "gpus-per-node", "exclude", "dependency"], Refused(OF_ALLOCATION)),
    (&["cpu-bind"], Converted(1, srun_cpu_bind)),
    (&["mem-bind"], Renamed("membind")),
    (&["gpus"], Refused("write -gpus-per-rank N")),
    (&["multi-prog"], Refused("write the programs in a file for -configfile")),
    (&["time", "t"], Converted(1, srun_time)),
    (&["input", "i"], Converted(1, srun_input)),
];

/// Returns the meaning of the foreign option of this name.
pub(super) fn meaning(name: &str) -> Option<&'static Meaning> {
    OPTIONS.iter().find(|(names, _)| names.contains(&name)).map(|(_, meaning)| meaning)
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

/// `NAME=VALUE`, of arguments that are no text as well.
fn assignment(name: &OsStr, value: &OsStr) -> [OsString; 2] {
    ["-env".into(), OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())]
}

/// Open MPI's `-x NAME=VALUE`, or `-x NAME` for the value in the launcher's environment.
fn exported(values: &[OsString], environment: &Environment) -> Result<Vec<OsString>, &'static str> {
    let text = &values[0];
    if text.is_empty() {
        return Err("the name is empty; expected NAME or NAME=VALUE");
    }
    if text.as_bytes().contains(&b'=') {
        return Ok(vec!["-env".into(), text.clone()]);
    }
    let known = environment.iter().find(|(name, _)| name == text);
    // Open MPI passes no variable on that is not set.
    Ok(known.map_or_else(Vec::new, |(name, value)| assignment(name, value).to_vec()))
}

/// Open MPI's `--mca NAME VALUE`, which its library reads from a variable.
fn mca(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    let name = OsString::from_vec([b"OMPI_MCA_", values[0].as_bytes()].concat());
    Ok(assignment(&name, &values[1]).to_vec())
}

/// Open MPI's `--with-ft MODEL`.
fn fault_tolerance(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    match values[0].as_bytes() {
        b"no" | b"false" | b"0" => Ok(Vec::new()),
        b"ulfm" | b"mpi" | b"yes" | b"true" | b"1" => {
            let ft = "OMPI_MCA_mpi_ft_enable=true";
            Ok(words(["-disable-auto-cleanup", "-exit-code", "survivors", "-genv", ft]))
        }
        _ => Err("the value is ulfm or no"),
    }
}

/// Open MPI 4's `--output-filename FOLDER[:nocopy,nojobid]`.
fn output_folder(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    let (folder, qualifiers) = qualified(values[0].to_str().ok_or(NOT_UTF8)?);
    let (mut of_job, mut copied) = ("%g/", true);
    for qualifier in qualifiers {
        match qualifier {
            "nojobid" => of_job = "",
            "nocopy" => copied = false,
            _ => return Err("expected FOLDER, FOLDER:nocopy, FOLDER:nojobid or FOLDER:nojobid,nocopy"),
        }
    }
    Ok(output_files(
        &format!("{folder}/{of_job}rank.%r/stdout"),
        &format!("{folder}/{of_job}rank.%r/stderr"),
        copied,
    ))
}

/// `--output` of Open MPI 5, which is a list of words, or of srun, which is the name of a file.
fn output(values: &[OsString], environment: &Environment) -> Result<Vec<OsString>, &'static str> {
    const WORDS: [&str; 7] =
        ["tag", "tag-detailed", "tag-fullname", "timestamp", "xml", "merge-stderr-to-stdout", "merge"];
    let list = values[0].to_str().ok_or(NOT_UTF8)?;
    let is_word = |word: &str| WORDS.contains(&word) || word.starts_with("dir=") || word.starts_with("file=");
    if !list.split(',').all(is_word) {
        return srun_output(values, environment);
    }
    let mut options = Vec::new();
    let mut files = None;
    for word in list.split(',') {
        match word.split_once('=') {
            Some((kind, name)) => files = Some((kind, qualified(name))),
            None if word.starts_with("tag") => options.extend(words(["-prepend-rank"])),
            None if word == "timestamp" => options.extend(words(["-prepend-timestamp"])),
            None if word == "xml" => return Err("for lines with ranks write tag"),
            None => options.extend(words(["-merge-stderr-to-stdout"])),
        }
    }
    let Some((kind, (name, qualifiers))) = files else { return Ok(options) };
    if qualifiers.iter().any(|qualifier| !["copy", "nocopy", "raw"].contains(qualifier)) {
        return Err("expected copy or nocopy behind the name");
    }
    let [out, err] = match kind {
        "dir" => ["stdout", "stderr"].map(|stream| format!("{name}/%g/rank.%r/{stream}")),
        _ => ["out", "err"].map(|stream| format!("{name}.%g.%r.{stream}")),
    };
    // Open MPI 5.0 writes files alone, with and without `nocopy`.
    options.extend(output_files(&out, &err, qualifiers.contains(&"copy")));
    Ok(options)
}

/// A name with its percent signs doubled, and the qualifiers behind a colon.
fn qualified(text: &str) -> (String, Vec<&str>) {
    let (name, qualifiers) = text.split_once(':').unwrap_or((text, ""));
    (name.replace('%', "%%"), qualifiers.split(',').filter(|qualifier| !qualifier.is_empty()).collect())
}

/// The options for files of both streams.
fn output_files(out: &str, err: &str, copied: bool) -> Vec<OsString> {
    let mut options = words(["-outfile-pattern", out, "-errfile-pattern", err]);
    options.extend(copied.then(|| "-copy-output".into()));
    options
}

const NOT_UTF8: &str = "the name is not UTF-8";

/// srun's `--export`: ALL, NONE, or a list of names and assignments, which may hold ALL.
fn srun_export(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    let list = values[0].to_str().ok_or("the list is not UTF-8")?;
    let mut options = Vec::new();
    let (mut names, mut all) = (Vec::new(), false);
    for item in list.split(',').filter(|item| !item.is_empty()) {
        match item {
            "ALL" => all = true,
            "NONE" | "NIL" => {}
            _ if item.contains('=') => options.extend(words(["-env", item])),
            _ => names.push(item),
        }
    }
    options.extend(match (all, names.is_empty()) {
        (true, _) => words(["-envall"]),
        (false, true) => words(["-envnone"]),
        (false, false) => words(["-envlist", &names.join(",")]),
    });
    Ok(options)
}

/// hydra's `-gpus-per-proc N|AUTO`.
fn gpus_per_proc(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    match values[0].to_str() {
        Some(text) if text.eq_ignore_ascii_case("auto") => Ok(Vec::new()),
        Some(text) if text.parse().is_ok_and(|gpus: u32| (1..=1024).contains(&gpus)) => {
            Ok(words(["-gpus-per-rank", text]))
        }
        _ => Err("expected a number from 1 to 1024, or AUTO"),
    }
}

/// srun's `--cpu-bind`.
fn srun_cpu_bind(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    let text = values[0].to_str().unwrap_or_default();
    let (mut verbose, mut how) = (false, text);
    while let Some((word, rest)) =
        how.split_once(',').filter(|(word, _)| ["q", "quiet", "v", "verbose"].contains(word))
    {
        verbose |= word.starts_with('v');
        how = rest;
    }
    let is_list = |cpus: &&str| cpus.split(',').all(|cpu| cpu.parse::<u32>().is_ok());
    let map = how.strip_prefix("map_cpu:").filter(is_list).map(|cpus| format!("user:{cpus}"));
    let bind = match how {
        "none" | "no" => "none",
        "cores" => "core",
        "threads" => "hwthread",
        "sockets" => "socket",
        "ldoms" => "numa",
        _ => map
            .as_deref()
            .ok_or("expected none, cores, threads, sockets, ldoms or map_cpu:LIST, as in map_cpu:0,2")?,
    };
    let mut options = words(["-bind-to", bind]);
    options.extend(verbose.then(|| "-report-bindings".into()));
    Ok(options)
}

/// srun's `--distribution` of ranks to hosts. Processors of a host are bound by other options.
fn srun_distribution(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    match values[0].to_str() {
        Some("block") => Ok(words(["-map-by", "block"])),
        Some("cyclic") => Ok(words(["-map-by", "node"])),
        _ => Err("expected block or cyclic; for processors write -map-by and -bind-to with an object"),
    }
}

/// srun's `--time`: minutes, `[HOURS:]MINUTES:SECONDS` or `DAYS-HOURS[:MINUTES[:SECONDS]]`.
fn srun_time(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    const EXPECTED: &str =
        "expected MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]";
    let text = values[0].to_str().ok_or(EXPECTED)?;
    let (days, rest) = text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number < 1_000_000).ok_or(EXPECTED);
    let fields: Vec<u64> = rest.split(':').map(number).collect::<Result<_, _>>()?;
    let [hours, minutes, seconds] = match (days.is_some(), &fields[..]) {
        (true, &[hours]) => [hours, 0, 0],
        (true, &[hours, minutes]) => [hours, minutes, 0],
        (false, &[minutes]) => [0, minutes, 0],
        (false, &[minutes, seconds]) => [0, minutes, seconds],
        (_, &[hours, minutes, seconds]) => [hours, minutes, seconds],
        _ => return Err(EXPECTED),
    };
    let hours = days.map(number).transpose()?.unwrap_or(0) * 24 + hours;
    match (hours * 60 + minutes) * 60 + seconds {
        // No limit, as for srun.
        0 => Ok(Vec::new()),
        limit => Ok(words(["-timeout", &limit.to_string()])),
    }
}

/// srun's `--input`, and Intel MPI's forms of the same.
fn srun_input(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    match values[0].to_str() {
        Some(target) if value::stdin_target(target).is_ok() => Ok(words(["-stdin", target])),
        _ => Err("expected all, none or a rank; for a file write < FILE behind the command"),
    }
}

fn srun_output(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    Ok(vec!["-outfile-pattern".into(), srun_pattern(&values[0])?])
}

fn srun_error(values: &[OsString], _: &Environment) -> Result<Vec<OsString>, &'static str> {
    Ok(vec!["-errfile-pattern".into(), srun_pattern(&values[0])?])
}

/// Converts the letters of a file name of srun: `%t` is the rank, `%N` the host.
fn srun_pattern(name: &OsStr) -> Result<OsString, &'static str> {
    let mut pattern = String::new();
    let mut rest = name.to_str().ok_or("the name is not UTF-8")?.chars();
    while let Some(c) = rest.next() {
        pattern.push(c);
        if c == '%' {
            pattern.push(match rest.next() {
                Some('t') => 'r',
                Some('N') => 'h',
                Some('%') => '%',
                _ => return Err("in a file name, %t is the rank, %N the host and %% a percent sign"),
            });
        }
    }
    Ok(pattern.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(name: &str, values: &[&str]) -> Result<Vec<String>, &'static str> {
        let environment: Environment = vec![("SHELL".into(), "/bin/sh".into())];
        let Some(Converted(count, convert)) = meaning(name) else { panic!("{name} is not converted") };
        assert_eq!(*count, values.len());
        let values: Vec<OsString> = values.iter().map(OsString::from).collect();
        let converted = convert(&values, &environment)?;
        Ok(converted.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn names_are_unique_and_foreign() {
        let names: Vec<&str> = OPTIONS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} is listed twice");
        }
    }

    #[test]
    fn variables_are_exported() {
        assert_eq!(convert("x", &["A=1"]).unwrap(), ["-env", "A=1"]);
        assert_eq!(convert("x", &["SHELL"]).unwrap(), ["-env", "SHELL=/bin/sh"]);
        assert!(convert("x", &["MISSING"]).unwrap().is_empty());
        assert!(convert("x", &[""]).is_err());
        assert_eq!(convert("mca", &["btl", "tcp,self"]).unwrap(), ["-env", "OMPI_MCA_btl=tcp,self"]);
        assert_eq!(convert("export", &["ALL"]).unwrap(), ["-envall"]);
        assert_eq!(convert("export", &["NONE"]).unwrap(), ["-envnone"]);
        assert_eq!(convert("export", &["ALL,A=1"]).unwrap(), ["-env", "A=1", "-envall"]);
        assert_eq!(convert("export", &["A,B=2,C"]).unwrap(), ["-env", "B=2", "-envlist", "A,C"]);
    }

    #[test]
    fn file_names_are_converted() {
        let of_folder = |folder| convert("output-filename", &[folder]);
        let [out, err] = ["-outfile-pattern", "-errfile-pattern"];
        let files = [out, "a%%b/%g/rank.%r/stdout", err, "a%%b/%g/rank.%r/stderr"];
        assert_eq!(of_folder("a%b").unwrap(), [&files[..], &["-copy-output"]].concat());
        assert_eq!(of_folder("a%b:nocopy").unwrap(), files);
        let files = [out, "a/rank.%r/stdout", err, "a/rank.%r/stderr"];
        assert_eq!(of_folder("a:nojobid,nocopy").unwrap(), files);
        assert!(of_folder("a:noocopy").is_err());
        assert_eq!(convert("output", &["o.%t.%N%%"]).unwrap(), ["-outfile-pattern", "o.%r.%h%%"]);
        assert_eq!(convert("o", &["tag"]).unwrap(), ["-outfile-pattern", "tag"]);
        assert_eq!(convert("e", &["e%t"]).unwrap(), ["-errfile-pattern", "e%r"]);
        assert!(convert("error", &["e.%j"]).is_err());
        assert!(convert("with-ft", &["cr"]).is_err());
        assert_eq!(
            convert("with-ft", &["ulfm"]).unwrap()[..3],
            ["-disable-auto-cleanup", "-exit-code", "survivors"]
        );
    }

    #[test]
    fn words_of_open_mpi_are_no_file_names() {
        let output = |list| convert("output", &[list]);
        assert_eq!(output("tag,timestamp").unwrap(), ["-prepend-rank", "-prepend-timestamp"]);
        assert_eq!(output("tag-detailed").unwrap(), ["-prepend-rank"]);
        let files = ["-outfile-pattern", "d/%g/rank.%r/stdout", "-errfile-pattern", "d/%g/rank.%r/stderr"];
        assert_eq!(output("dir=d").unwrap(), files);
        assert_eq!(output("dir=d:nocopy").unwrap(), files);
        assert_eq!(output("dir=d:copy").unwrap(), [&files[..], &["-copy-output"]].concat());
        let files = ["-outfile-pattern", "f.%g.%r.out", "-errfile-pattern", "f.%g.%r.err"];
        assert_eq!(output("tag,file=f").unwrap(), [&["-prepend-rank"], &files[..]].concat());
        assert_eq!(output("merge").unwrap(), ["-merge-stderr-to-stdout"]);
        assert_eq!(output("tags").unwrap(), ["-outfile-pattern", "tags"]);
        for refused in ["xml", "file=f:nojobid"] {
            assert!(output(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn distributions_are_mappings() {
        assert_eq!(convert("distribution", &["block"]).unwrap(), ["-map-by", "block"]);
        assert_eq!(convert("m", &["cyclic"]).unwrap(), ["-map-by", "node"]);
        assert!(convert("m", &["plane=4"]).is_err());
    }
}
