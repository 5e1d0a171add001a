//! Files that the user names: which are read and written, and how; and names in messages.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use hydrant_tests::{Folder, Job, hydrant_bin};
use rustix::process::geteuid;

use crate::shell;

/// Options that name a file to read, and variables that do.
const READ: [&str; 4] = ["-f", "-configfile", "--offload-file", "--topology"];
const READ_VARIABLES: [&str; 3] = ["PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE"];
/// Options that name a file to write.
const WRITTEN: [&str; 4] = ["--record", "--json", "-outfile-pattern", "-errfile-pattern"];

fn reads(option: &str, file: &str) -> Job {
    let value = if option == "--topology" { format!("file:{file}") } else { file.to_owned() };
    let job = Job::new(hydrant_bin()).arg("run").arg(format!("{option}={value}"));
    if option == "-configfile" { job } else { job.words("-n 1 true") }
}

// Fault: A file that the user names is a device without end, a directory, a pipe without a reader, or another user's
// file in `/tmp`
// Outcome: it is refused by name
// Guarantee: Regular files, pipes, terminals and `/dev/null` are read, at most 16 MiB of text. No file or link of
// another user is written. A pipe that nobody reads is given up after 10 s
// Also: launch `files::text_without_end_is_refused`, `files::a_pipe_without_a_reader_does_not_stop_the_launcher`,
// `files::files_of_another_user_are_not_written`
#[test]
fn devices_without_end_and_directories_are_not_read() {
    for (file, kind) in [("/dev/zero", "it is a device"), ("/dev", "it is a directory")] {
        for option in READ {
            let outcome = reads(option, file).run();
            assert_ne!(outcome.status.code(), Some(0), "{outcome}");
            outcome.warns(file).warns(kind);
        }
        for variable in READ_VARIABLES {
            let outcome = Job::new(hydrant_bin()).words("run -n 1 true").env(variable, file).run();
            outcome.code(2).warns(file).warns(kind);
        }
    }
    Job::new(hydrant_bin()).words("replay /dev/zero").run().code(1).warns("it is a device");
}

#[test]
fn text_without_end_is_refused() {
    let script = r#""$0" run -f <(yes host) -n 1 true; "$0" run -configfile=<(yes host)"#;
    let outcome = Job::new("bash").args(["-c", script]).arg(hydrant_bin()).run();
    assert_eq!(outcome.stderr.matches("longer than 16777216 bytes").count(), 2, "{outcome}");
}

#[test]
fn pipes_are_read_to_their_end() {
    let script = r#"echo 'here:3' | "$0" run -f /dev/stdin --dry-run -n 3 true
        "$0" run -f <(echo here:3) --dry-run -n 3 true
        "$0" run -configfile <(echo --dry-run -np 3 true)"#;
    Job::new("bash").args(["-c", script]).arg(hydrant_bin()).run().code(0).says("3 ranks in all", 3);
}

#[test]
fn a_pipe_without_a_reader_does_not_stop_the_launcher() {
    let folder = Folder::new("unread");
    let fifo = folder.fifo("fifo");
    for option in WRITTEN {
        let outcome =
            Job::new(hydrant_bin()).arg("run").arg(format!("{option}={fifo}")).words("-n 1 true").run();
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        outcome.warns(&fifo).warns("no process has the pipe open for reading");
    }
}

#[test]
fn files_of_another_user_are_not_written() {
    if !geteuid().is_root() {
        return;
    }
    let folder = Folder::new("theirs");
    let theirs = folder.file("theirs", "theirs");
    chown(&theirs, Some(12345), None).expect("root may give files away");
    let recording = folder.path("job.rec");
    Job::new(hydrant_bin()).words("run --record").arg(&recording).words("-n 1 true").run().code(0);
    let refused = |job: Job| {
        let outcome = job.run();
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        outcome.warns(&theirs).warns("belongs to user 12345");
        assert_eq!(fs::read(&theirs).expect("it is there"), b"theirs");
    };
    for option in WRITTEN {
        refused(Job::new(hydrant_bin()).arg("run").arg(format!("{option}={theirs}")).words("-n 1 true"));
    }
    for option in ["--trace", "--html"] {
        refused(Job::new(hydrant_bin()).arg("replay").arg(&recording).arg(option).arg(&theirs));
    }
    // A folder as /tmp is, and in it a link of the other user to a file of this one.
    let own = folder.file("own", "own");
    let shared = folder.path("shared");
    fs::create_dir(&shared).expect("it is new");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let link = format!("{shared}/link");
    symlink(&own, &link).expect("it is new");
    lchown(&link, Some(12345), None).expect("root may give links away");
    let outcome = Job::new(hydrant_bin()).words("run -n 1").arg(format!("--json={link}")).arg("true").run();
    outcome.code(1).warns("a link that user 12345 made");
    assert_eq!(folder.read("own"), "own");
}

#[test]
fn what_ranks_exchange_is_for_this_user_only() {
    let folder = Folder::new("private");
    let mode = |path: &str| fs::metadata(path).expect("it was written").mode() & 0o777;
    let open = |name: &str| {
        let path = folder.file(name, "before");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
        path
    };
    let (record, trace, html) = (open("record"), open("trace"), open("html"));
    Job::new(hydrant_bin()).words("run --record").arg(&record).words("-n 1 true").run().code(0);
    let replay = Job::new(hydrant_bin()).arg("replay").arg(&record);
    replay.arg("--trace").arg(&trace).arg("--html").arg(&html).run().code(0);
    assert_eq!([&record, &trace, &html].map(|path| mode(path)), [0o600; 3]);
}

// Fault: A file reaches the limit of file sizes (`ulimit -f`)
// Outcome: as on a full disk: a recording ends, lost output is reported
// Guarantee: SIGXFSZ is ignored in hydrant, not in ranks
#[test]
fn a_limit_of_file_sizes_is_a_full_disk() {
    let folder = Folder::new("limited");
    let limited = |options: &str, rank: &str| {
        let script = format!("ulimit -f 1; exec \"$0\" run {options} -n 1 {rank}");
        Job::new("sh").args(["-c", &script]).arg(hydrant_bin()).dir(&folder.0).run()
    };
    let probe = format!("{} probe", hydrant_bin().display());
    let outcome = limited(
        "--limit commit-bytes=0 --record job.rec",
        &format!("sh -c 'for i in 1 2 3 4 5 6 7 8 9; do {probe}; done'"),
    );
    outcome.code(0).warns("cannot record to job.rec: File too large").warns("the job goes on");
    let outcome = limited("-outfile-pattern out", "head -c 100000 /dev/zero");
    outcome.warns("output was lost, cannot write out: File too large");
    limited("--json=result", "sh -c 'exit 0'").code(0);
    // SIGXFSZ is the ranks' own affair.
    limited("", "sh -c 'head -c 100000 /dev/zero >own'").code(128 + 25);
}

// Fault: A name of a program, file or host has control characters or such for the direction of text
// Outcome: messages show them escaped
// Guarantee: Every message passes through one function
#[test]
fn names_in_messages_do_not_reach_the_terminal_raw() {
    let folder = Folder::new("escapes");
    let name = "a\u{1b}[2Jb\u{9b}c\u{202e}d";
    let shown = "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d";
    let fails = folder.executable(name, "#!/bin/sh\nexit 3\n");
    let raw =
        |text: &str| text.chars().any(|c| c != '\n' && c != '\t' && (c.is_control() || c == '\u{202e}'));
    let is_shown = |outcome: &hydrant_tests::Outcome| {
        outcome.warns(shown);
        assert!(!raw(&outcome.stderr), "{outcome}");
    };
    is_shown(Job::hydrant("-v -n 2").arg(&fails).run().code(3));
    is_shown(Job::hydrant("-v --bootstrap local -hosts a:1,b:1 -n 2").arg(&fails).run().code(3));
    let missing = format!("./{name}-missing");
    is_shown(Job::hydrant("-n 1").arg(&missing).run().code(127));
    is_shown(&Job::hydrant("-f").arg(&missing).arg("true").run());
    is_shown(&Job::hydrant("--record").arg(format!("{missing}/record")).arg("true").run());
    is_shown(&Job::new(hydrant_bin()).arg("replay").arg(&missing).run());
    is_shown(&Job::hydrant("-wdir").arg(&missing).arg("true").run());
    let planned = Job::new(hydrant_bin()).words("run --dry-run -n 1").arg(&fails).run();
    assert!(!raw(&planned.code(0).stdout) && planned.stdout.contains(shown), "{planned}");
    let planned = Job::new(hydrant_bin()).words("run --dry-run --json -n 1").arg(&fails).run();
    assert!(!raw(&planned.code(0).stdout), "{planned}");
    // The ranks' own output stays as it is.
    shell("-n 1", r"printf '\033[1mbold\n'").run().code(0).stdout_is("\u{1b}[1mbold\n");
}

#[test]
fn values_that_are_not_utf8_are_accepted_or_named() {
    let folder = Folder::new("bytes");
    let odd = |text: &[u8]| OsStr::from_bytes(text).to_owned();
    let job = Job::hydrant("-outfile-pattern").arg(odd(b"o\xff.%r")).words("-n 1 echo out").dir(&folder.0);
    job.run().code(0);
    assert_eq!(fs::read(folder.0.join(odd(b"o\xff.0"))).expect("the rank has written"), b"out\n");
    for option in ["-hosts", "-pset", "-prepend-pattern", "-bind-to", "-ppn"] {
        let job = Job::hydrant("-outfile-pattern").arg(odd(b"o\xff.%r")).arg(option).arg(odd(b"a\xff"));
        let outcome = job.words("-n 1 -wdir / true").run();
        outcome.code(2).warns(&format!("invalid value 'a\u{fffd}' for {option}"));
    }
    let outcome = Job::new(hydrant_bin()).arg("status").arg(odd(b"a\xff")).run();
    outcome.code(2).warns("argument 2: 'a\u{fffd}' is not UTF-8");
}

#[test]
fn a_result_on_standard_output_is_alone_there() {
    for options in ["--json -n 2", "--json=/dev/stdout -n 2", "--json --bootstrap local -hosts a:1,b:1 -n 2"]
    {
        let outcome = shell(options, "echo out; echo err >&2").run();
        let (out, err) = (&outcome.code(0).stdout, &outcome.stderr);
        assert!(out.starts_with('{') && out.ends_with("}\n") && !out.contains("out\n"), "{outcome}");
        assert_eq!((err.matches("out\n").count(), err.matches("err\n").count()), (2, 2), "{outcome}");
    }
}

#[test]
fn a_result_file_never_tells_of_an_older_run() {
    let folder = Folder::new("result");
    let file = folder.path("result");
    let option = format!("--json={file}");
    for (words, why) in
        [("-no-such-option -n 1 true", "unknown option"), ("-n many true", "invalid value 'many'")]
    {
        folder.file("result", "of another run");
        Job::hydrant(&option).words(words).run().code(2).warns(why);
        assert!(folder.read("result").contains(why), "{}", folder.read("result"));
    }
    // An argument of the program is no option.
    folder.file("result", "of the program");
    Job::hydrant("-no-such-option prog").arg(&option).run().code(2);
    assert_eq!(folder.read("result"), "of the program");
    // A file that cannot be written is found before the job.
    let below = format!("--json={file}/below");
    let outcome = Job::hydrant(&below).words("-n 1 echo started").run();
    outcome.code(1).stdout_is("").warns("cannot write");
}

#[test]
fn each_status_under_watch_is_one_line() {
    let job = shell("-n 2", "echo up; read line").hold_input().start();
    job.await_stdout("up", 2);
    let watch = Job::new(hydrant_bin())
        .words("status --json --watch=0.1")
        .arg(job.pid().as_raw_nonzero().to_string());
    let watch = watch.start();
    watch.await_stdout("\"form\":\"status\"", 2);
    let mut job = job;
    job.end_input();
    job.wait();
    let outcome = watch.wait();
    assert!(outcome.stdout.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{outcome}");
}
