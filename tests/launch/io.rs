//! Standard input and output, descriptors and environment.

use std::fs;
use std::io::{BufRead, BufReader, Read, pipe};

use hydrant_tests::terminal::Terminal;
use hydrant_tests::{Folder, Job, hydrant_bin};
use rustix::process::Signal;

use crate::{RAW, raw, shell};

const THREE_MB: usize = 3 * 1024 * 1024;

#[test]
fn three_megabytes_of_input_reach_rank_0_at_its_own_pace() {
    let steps = "init1\nfence1\nonly 0\ncount\nall\nfence1\nend1";
    let outcome = raw("-n 3", steps).input(vec![b'x'; THREE_MB]).run();
    outcome.code(0).says(&format!("{THREE_MB} bytes\n"), 1).quiet();
}

#[test]
fn unread_input_is_no_harm() {
    raw("-n 3", "init1\nfence1\nend1").input(vec![b'x'; THREE_MB]).run().code(0).quiet();
}

#[test]
fn input_is_rank_0s_alone() {
    let script = "test $PMI_RANK = 0 || exec wc -c; read first; echo $first; exec wc -c";
    let mut job = shell("-n 3", script).hold_input().start();
    job.send(b"go\n").expect("rank 0 reads");
    assert_eq!(job.lines::<3>(), ["0", "0", "go"]);
    // Rank 0 reads now, and as slowly as it likes.
    job.send(&vec![b'x'; THREE_MB]).expect("rank 0 reads");
    job.end_input();
    job.wait().code(0).says(&format!("{THREE_MB}\n"), 1);
}

#[test]
fn the_writer_of_input_notices_that_rank_0_reads_no_more() {
    let script = "test $PMI_RANK = 0 && exit 0; trap 'exit 0' USR1; while :; do :; done";
    let mut job = shell("-n 2", script).hold_input().start();
    let error = loop {
        if let Err(error) = job.send(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    job.signal(Signal::USR1);
    let outcome = job.wait();
    // The signal may have come before rank 1 had its trap.
    assert!(matches!(outcome.status.code(), Some(0 | 138)), "{outcome}");
}

#[test]
fn input_goes_to_the_ranks_that_the_user_names() {
    let count = |options: &str| raw(options, "count").input(vec![b'x'; THREE_MB]).run();
    count("-s all -n 4").code(0).says(&format!("{THREE_MB} bytes\n"), 4).quiet();
    count("--stdin 2 -n 3").code(0).says(&format!("{THREE_MB} bytes\n"), 1).says("0 bytes\n", 2);
    // The launcher does not touch it.
    let job = Job::new("sh").arg("-c").arg("\"$0\" \"$@\"; cat").arg(hydrant_bin());
    job.words("run -s none -n 2 cat").input("rest\n").run().code(0).says("rest\n", 1).quiet();
    raw("-s 3 -n 3", "count").run().code(1).warns("--stdin=3: the job has ranks 0 to 2 only");
}

#[test]
fn input_for_all_does_not_wait_for_a_rank_that_left() {
    let script = "test $PMI_RANK = 1 && exit 0; test $PMI_RANK = 2 && exec <&- ; exec wc -c";
    let outcome = shell("-s all -n 4", script).input(vec![b'x'; THREE_MB]).run();
    outcome.says(&format!("{THREE_MB}\n"), 2);
    // The writer notices that all readers are gone.
    let script = "test $PMI_RANK = 0 && exit 0; read line";
    let mut job = shell("-s all -n 2", script).hold_input().start();
    job.send(b"line\n").expect("rank 1 reads");
    while job.send(&[0; 4096]).is_ok() {}
    job.end_input();
    job.wait().code(0).quiet();
}

#[test]
fn a_rank_that_all_input_waits_for_is_named() {
    let script = "test $PMI_RANK = 1 || { trap '' USR1; exec \"$RAW\" say up count; }
                  trap 'exec wc -c' USR1; echo up; while :; do :; done";
    let job = shell("-s all --fence-warning 1 -n 3", script).env("RAW", RAW);
    let job = job.input(vec![b'x'; THREE_MB]).start();
    job.await_stdout("up\n", 3);
    job.await_stderr("standard input waits for ranks that have not read for 1 s: 1\n");
    job.signal(Signal::USR1);
    job.wait().code(0).says(&format!("{THREE_MB} bytes\n"), 2).says(&format!("{THREE_MB}\n"), 1);
}

#[test]
fn a_terminal_is_the_input_of_all_ranks() {
    let mut terminal = Terminal::open();
    let hydrant = hydrant_bin().display();
    terminal.type_in(&format!("{hydrant} run -s all -l -n 2 {RAW} cat; echo code=$?.\n"));
    terminal.type_in("a line\n\x04");
    terminal.expect("] a line");
    terminal.expect("] a line");
    terminal.expect("code=0.");
}

#[test]
fn lines_of_different_ranks_do_not_mix() {
    let script = "i=0; while [ $i -lt 500 ]; do printf 'line '; echo $i; i=$((i+1)); done";
    let outcome = shell("-l -n 4", script).run();
    let mut next = [0; 4];
    for line in outcome.code(0).stdout.lines() {
        let (label, rest) = line.split_once("] ").expect("each line has a label");
        let rank: usize = label[1..].parse().expect("the label is a rank");
        assert_eq!(rest, format!("line {}", next[rank]), "{outcome}");
        next[rank] += 1;
    }
    assert_eq!(next, [500; 4], "{outcome}");
}

#[test]
fn lines_have_the_prefix_that_was_asked_for() {
    let outcome = shell("-n 2 -prepend-pattern %g/%r%%:", "echo out; echo err >&2").run();
    assert_eq!(outcome.code(0).lines(), ["0/0%:out", "0/1%:out"], "{outcome}");
    outcome.warns("0/1%:err\n");
    let outcome = shell("-n 1 --timestamp-output --tag-output", "echo out").run();
    let line = outcome.code(0).lines().concat();
    let (time, rest) = line.split_once(' ').expect("the time is in front");
    assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{outcome}");
    assert_eq!(rest, "[0] out");
    let outcome = shell("-n 1", "echo out; echo err >&2").env("MPIEXEC_PREFIX_DEFAULT", "1").run();
    outcome.code(0).says("0> out\n", 1).warns("0(err)> err\n");
}

#[test]
fn output_files_get_their_directories() {
    let folder = Folder::new("outputs");
    let job = Job::hydrant("-n 2 --output-filename").arg(folder.path("new:nocopy"));
    let outcome = job.args(["sh", "-c", "echo $PMI_RANK; echo err >&2"]).run();
    outcome.code(0).quiet().stdout_is("");
    for rank in 0..2 {
        let read = |stream: &str| folder.read(&format!("new/0/rank.{rank}/{stream}"));
        assert_eq!(read("stdout"), format!("{rank}\n"));
        assert_eq!(read("stderr"), "err\n");
    }
}

/// Each line once in its file and once in the output, with its label, in the order of its rank.
#[test]
fn output_of_files_is_copied() {
    let folder = Folder::new("copies");
    let script = "for i in 1 2 3; do echo $PMI_RANK.$i; done; echo err >&2";
    for hosts in ["", "-hosts a,b -bootstrap local"] {
        let job = Job::hydrant(hosts).words("-n 2 -l --output-filename").arg(folder.path("out:nojobid"));
        let outcome = job.words("sh -c").arg(script).run();
        for rank in 0..2 {
            let lines = [1, 2, 3].map(|i| format!("[{rank}] {rank}.{i}\n")).concat();
            let err = format!("[{rank}] err\n");
            assert_eq!(folder.read(&format!("out/rank.{rank}/stdout")), lines);
            assert_eq!(folder.read(&format!("out/rank.{rank}/stderr")), err);
            let prefix = format!("[{rank}]");
            let of_rank = outcome.lines().into_iter().filter(|line| line.starts_with(&prefix));
            assert_eq!(of_rank.map(|line| format!("{line}\n")).collect::<String>(), lines);
            outcome.code(0).warns(&err);
        }
    }
}

/// Both streams of a rank are one pipe, so they keep their order.
#[test]
fn standard_error_may_be_standard_output() {
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let wanted = [1, 2, 3].map(|i| format!("[1] out {i}\n[1] err {i}\n")).concat();
    for hosts in ["", "-hosts a,b -bootstrap local"] {
        let job = Job::hydrant(hosts).words("-n 2 -l -merge-stderr-to-stdout sh -c").arg(script);
        let outcome = job.run();
        let of_rank = outcome.stdout.lines().filter(|line| line.starts_with("[1]"));
        assert_eq!(of_rank.map(|line| format!("{line}\n")).collect::<String>(), wanted);
        outcome.code(0).quiet();
    }
}

/// Output in files is whole when the reader of the copy has ended.
#[test]
fn a_closed_copy_leaves_the_file_whole() {
    let folder = Folder::new("closed-copy");
    let file = folder.path("out");
    let command = format!("\"$0\" run -copy-output -outfile-pattern {file} -n 1 seq 200000 | head -n 1");
    let outcome = Job::new("sh").arg("-c").arg(command).arg(hydrant_bin()).run();
    outcome.quiet().stdout_is("1\n");
    assert_eq!(folder.read("out").lines().count(), 200_000);
}

#[test]
fn standard_error_is_kept_apart() {
    let outcome = shell("-l -n 2", "echo out; echo err >&2").run();
    assert_eq!(outcome.lines(), ["[0] out", "[1] out"], "{outcome}");
    let mut errors: Vec<&str> = outcome.stderr.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] err", "[1] err"], "{outcome}");
}

#[test]
fn bytes_pass_unchanged_and_none_is_lost() {
    let outcome = shell("-n 1", r"printf 'a\000b\377\r\n\nend'; head -c 1000000 /dev/zero").run();
    let mut expected = b"a\0b\xff\r\n\nend".to_vec();
    expected.resize(expected.len() + 1_000_000, 0);
    assert!(outcome.bytes == expected, "other bytes: {}", outcome.status);
    let script = "head -c 200000 /dev/zero | tr '\\0' x; test $PMI_RANK = 0 || exit 1";
    let outcome = shell("-n 3", script).run();
    assert!(outcome.bytes == [b'x'; 600_000], "{} bytes: {}", outcome.bytes.len(), outcome.status);
}

#[test]
fn ranks_notice_that_their_output_has_no_reader() {
    let (reader, writer) = pipe().expect("the system has pipes");
    let job = shell("-n 2", "exec yes").stdout(writer).start();
    let mut line = String::new();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut line).expect("the output is text");
    assert_eq!(line, "y\n");
    drop(reader);
    job.wait().code(128 + 13).quiet();
}

#[test]
fn a_reader_that_does_not_read_stops_the_writers_and_not_the_service() {
    // Rank 0 fills every buffer. Rank 1 meanwhile sends PMI requests and prints the replies on standard error.
    let script = r#"test $PMI_RANK = 0 && exec head -c 3000000 /dev/zero
        printf 'cmd=init pmi_version=1 pmi_subversion=1\n' >&$PMI_FD; read reply <&$PMI_FD; echo "$reply" >&2
        printf 'cmd=finalize\n' >&$PMI_FD; read reply <&$PMI_FD; echo "$reply" >&2"#;
    let (mut reader, writer) = pipe().expect("the system has pipes");
    let job = shell("-n 2", script).stdout(writer).start();
    job.await_stderr("cmd=response_to_init rc=0").await_stderr("cmd=finalize_ack");
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the pipe is open");
    job.wait().code(0);
    assert_eq!(bytes.len(), 3_000_000);
}

#[test]
fn output_goes_to_the_files_that_patterns_name() {
    let folder = Folder::new("patterns");
    let script = "echo $PMI_RANK; echo $$ >&2";
    let job = Job::hydrant("-outfile-pattern").arg(folder.path("out.%r.%a"));
    let job = job.arg("-errfile-pattern").arg(folder.path("err.%p")).words("-n 1 sh -c").arg(script);
    job.words(": -n 1 sh -c").arg(script).run().quiet().stdout_is("");
    let mut files: Vec<_> = fs::read_dir(&folder.0)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .map(|name| (folder.read(&name).trim().to_owned(), name))
        .map(|(text, name)| (name, text))
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    for (name, text) in &files[..2] {
        assert_eq!(name, &format!("err.{text}"));
    }
    assert_eq!(files[2..], [("out.0.0", "0"), ("out.1.1", "1")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let outcome = Job::hydrant("-outfile-pattern /dev/null/%r -n 1 echo").run();
    outcome.code(1).warns("cannot open /dev/null/0 for the output of rank 0");
}

#[test]
fn lost_output_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has /dev/full");
    let outcome = Job::hydrant("-n 1 echo x").stdout(full).run();
    outcome.code(1).warns("output was lost, cannot write standard output: ");
}

#[test]
fn a_last_line_without_end_is_not_lost() {
    let outcome = shell("-n 2", "printf 'no end'").run();
    outcome.code(0).says("no end", 2);
    let outcome = shell("-l -n 1", "printf out; printf err >&2").run();
    assert_eq!((outcome.stdout.trim_end(), outcome.stderr.trim_end()), ("[0] out", "[0] err"));
}

#[test]
fn three_megabytes_of_output_are_passed_on() {
    let outcome = shell("-n 2", "head -c 3145728 /dev/zero | tr '\\0' x").run();
    assert_eq!(outcome.code(0).stdout.matches('x').count(), 2 * THREE_MB);
}

#[test]
fn patterns_are_relative_to_the_working_directory() {
    let folder = Folder::new("out");
    let script = "echo out $PMI_RANK; echo err $PMI_RANK >&2";
    let job = shell("-outfile-pattern out.%r -errfile-pattern err.%r -n 2", script);
    let outcome = job.dir(&folder.0).run();
    let files = ["out.0", "out.1", "err.0", "err.1"].map(|name| folder.read(name));
    assert_eq!(files, ["out 0\n", "out 1\n", "err 0\n", "err 1\n"]);
    assert_eq!((outcome.code(0).stdout.as_str(), outcome.stderr.as_str()), ("", ""));
}

/// The descriptors that a rank finds itself with.
fn descriptors(options: &str) -> Vec<Vec<u32>> {
    // Looking into the folder opens one more, which is gone when its turn comes.
    let script = r#"cd /proc/$$/fd; for fd in *; do [ -e $fd ] && all="$all $fd"; done; echo fds$all pmi ${PMI_FD-no}"#;
    let outcome = shell(options, script).run();
    let parse = |line: &str| {
        let (fds, pmi) = line.strip_prefix("fds ")?.split_once(" pmi ")?;
        let pmi = pmi.parse::<u32>().ok();
        let numbers = fds.split(' ').filter_map(|fd| fd.parse().ok());
        let mut numbers: Vec<u32> = numbers.filter(|fd| Some(*fd) != pmi).collect();
        numbers.sort_unstable();
        Some(numbers)
    };
    outcome.code(0).stdout.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{outcome}"))).collect()
}

/// The descriptors that this process passes to those that it starts.
pub(super) fn passed_on() -> Vec<u32> {
    let numbers = fs::read_dir("/proc/self/fd").expect("Linux has this folder");
    let numbers = numbers.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // SAFETY: the call reads a flag, and fails on a number that is not open.
    let mut passed: Vec<u32> =
        numbers.filter(|&fd| unsafe { libc::fcntl(fd as i32, libc::F_GETFD) } == 0).collect();
    passed.sort_unstable();
    passed
}

/// Beside those that the user passes on, a rank has its streams and PMI.
#[test]
fn no_descriptor_leaks_into_a_rank() {
    assert_eq!(descriptors("-n 4"), vec![passed_on(); 4]);
    assert_eq!(descriptors("--pmi-port -n 4"), vec![passed_on(); 4]);
    // The daemons of other hosts are not the user's.
    assert_eq!(descriptors("--bootstrap local -hosts a:2,b:2 -n 4"), vec![vec![0, 1, 2]; 4]);
}

/// As hydra does: a file, and the pipe of make's jobserver. A spawned rank is a rank, too.
#[test]
fn descriptors_of_the_user_reach_the_ranks() {
    let folder = Folder::new("passed");
    let (given, own) = (folder.file("given", "content\n"), hydrant_bin());
    let user = |options: &str, rank: &str| {
        let script = format!("exec 3<{given}; exec \"$0\" run {options} bash -c '{rank}'");
        Job::new("bash").args(["-c", &script]).arg(own).run()
    };
    user("-n 1", "cat <&3").code(0).stdout_is("content\n").quiet();
    user("--pty always -n 1", "cat <&3").code(0).says("content", 1);
    user("--pmi-port -n 1", "cat <&3").code(0).stdout_is("content\n");
    user("-n 2", "test $PMI_FD -gt 9 && test $PMI_FD -lt 1024 && echo high").code(0).says("high", 2);
    // Of another host the user is not.
    user("--bootstrap local -hosts a:1 -n 1", "cat <&3 || echo none").code(0).stdout_is("none\n");
    // A rank of an outer job does not pass on its connection.
    let inner = r#""$0" run -n 1 bash -c 'ls -l /proc/$$/fd' | grep -c socket:"#;
    shell("-n 1", inner).arg(own).run().code(0).stdout_is("1\n");
}

#[test]
fn the_working_directory_of_a_rank_is_its_pwd() {
    let folder = Folder::new("pwd");
    fs::create_dir(folder.path("sub")).expect("the folder is new");
    let (sub, here) = (folder.path("sub"), folder.0.display().to_string());
    let job = Job::hydrant("-wdir /usr -n 1 printenv PWD : -wdir sub -n 1 printenv PWD : -n 1 printenv PWD");
    let outcome = job.dir(&folder.0).env("PWD", &folder.0).run();
    let sorted = |mut lines: Vec<&str>| {
        lines.sort_unstable();
        lines.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut expected = vec!["/usr".to_owned(), sub, here];
    expected.sort_unstable();
    assert_eq!(sorted(outcome.code(0).lines()), expected);
    let job = Job::hydrant("--bootstrap local -hosts a:1,b:1 -wdir /usr/../usr/. -n 2 printenv PWD");
    job.dir(&folder.0).env("PWD", "/").run().code(0).stdout_is("/usr\n/usr\n");
}

#[test]
fn no_foreign_launcher_leaks_into_a_rank() {
    let outcome = shell("-n 2", "env")
        .env("PMIX_MCA_psquash", "native")
        .env("OMPI_PARENT_PORT", "7")
        .env("PMI_ID", "9")
        .env("PMI_PORT", "127.0.0.1:9")
        .env("PMI2_FOREIGN", "x")
        .env("PRTE_LAUNCHED", "1")
        .env("PMI_DEBUG", "0")
        .env("HYDI_CONTROL_FD", "7")
        .run();
    outcome.code(0).says("PMI_RANK=", 2).says("PMI_SIZE=2\n", 2).says("PMI_DEBUG=0\n", 2);
    for foreign in ["PMIX_MCA_", "OMPI_", "PMI_ID", "PMI_PORT", "PMI2_", "PRTE_", "HYDI_"] {
        outcome.says(&format!("\n{foreign}"), 0);
    }
    let outcome = shell("--pmi-port -n 2", "env").env("PMI_FD", "3").run();
    outcome.code(0).says("PMI_FD=", 0).says("PMI_PORT=127.0.0.1:", 2).says("PMI_ID=", 2);
}

#[test]
fn variables_are_passed_as_asked() {
    let options = "-genv A everywhere -n 1 -env B first sh -c";
    let job = Job::hydrant(options).arg("echo A=$A B=$B C=$C").env("C", "inherited");
    let outcome = job.words(": -n 1 -envnone /bin/sh -c").arg("echo A=$A B=$B C=$C").run();
    assert_eq!(outcome.code(0).lines(), ["A=everywhere B= C=", "A=everywhere B=first C=inherited"]);
}

/// What serving costs: the connection, and at most one more. Pipes and files are for the output.
#[test]
fn a_rank_costs_at_most_two_descriptors_beside_its_output() {
    let (few, many) = (descriptors_of_server(4), descriptors_of_server(20));
    assert!(many - few <= 2 * 16, "{few} descriptors for 4 ranks, {many} for 20");
}

fn descriptors_of_server(ranks: usize) -> usize {
    // All ranks are connected, and rank 0 keeps them in the fence until its input ends.
    let steps = "init1\nsay up\nonly 0\ncount\nall\nfence1\nend1";
    let mut job = raw(&format!("-n {ranks}"), steps).hold_input().start();
    job.await_stdout("up\n", ranks);
    let fds = fs::read_dir(format!("/proc/{}/fd", job.pid().as_raw_nonzero())).expect("it runs");
    let links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let kinds = links.map(|link| link.to_string_lossy().into_owned());
    let count = kinds.filter(|kind| kind.starts_with("socket:") || kind.starts_with("anon_inode:")).count();
    job.end_input();
    job.wait().code(0);
    count
}

#[test]
fn called_mpiexec_it_is_hydrant_run() {
    let folder = Folder::new("link");
    let link = folder.0.join("mpiexec");
    std::os::unix::fs::symlink(hydrant_bin(), &link).expect("the folder is new");
    let outcome =
        Job::new(&link).words("-n 3").arg(RAW).args(["init1", "fence1", "end1", "say", "done"]).run();
    outcome.code(0).says("done", 3).quiet();
}

#[test]
fn a_job_is_read_from_a_file() {
    let folder = Folder::new("config");
    let text = "# two programs\n-n 1 -wdir / sh -c 'echo \"$PMI_RANK in $PWD\"'\n-n 2 sh -c 'echo \"$PMI_RANK of $PMI_SIZE\"'\n";
    let outcome = Job::hydrant("-configfile").arg(folder.file("job", text)).run();
    assert_eq!(outcome.code(0).lines(), ["0 in /", "1 of 3", "2 of 3"]);
}
