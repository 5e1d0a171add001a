//! Standard input and output, descriptors and environment.

use std::fs;

use hydrant_tests::Job;

use crate::{RAW, raw, shell};

const THREE_MB: usize = 3 * 1024 * 1024;

#[test]
fn three_megabytes_of_input_reach_rank_0_at_its_own_pace() {
    let steps = "init1\nfence1\nonly 0\ncount\nall\nfence1\nend1";
    let outcome = raw("-n 3", steps).input(vec![b'x'; THREE_MB]).run();
    outcome.code(0).says(&format!("{THREE_MB} bytes\n"), 1).quiet();
}

#[test]
fn input_that_nobody_reads_is_no_harm() {
    raw("-n 3", "init1\nfence1\nend1").input(vec![b'x'; THREE_MB]).run().code(0).quiet();
}

#[test]
fn input_is_rank_0s_alone() {
    let outcome = raw("-l -n 2", "count").input("four").run();
    assert_eq!(outcome.code(0).lines(), ["[0] 4 bytes", "[1] 0 bytes"]);
}

#[test]
fn lines_are_passed_on_whole_and_labelled() {
    let script =
        "i=0; while [ $i -lt 200 ]; do printf %s line; echo \" $PMI_RANK $i of many\"; i=$((i+1)); done";
    let outcome = shell("-l -n 4", script).run();
    for rank in 0..4 {
        let prefix = format!("[{rank}] line {rank} ");
        let numbers = outcome.stdout.lines().filter_map(|line| line.strip_prefix(&prefix));
        let expected: Vec<String> = (0..200).map(|number| format!("{number} of many")).collect();
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{outcome}");
    }
    assert_eq!(outcome.code(0).stdout.lines().count(), 800);
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
fn output_goes_to_files_by_pattern() {
    let dir = std::env::temp_dir().join(format!("hydrant-tests-out-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("the temporary folder can be written");
    let script = "echo out $PMI_RANK; echo err $PMI_RANK >&2";
    let job = shell("-outfile-pattern out.%r -errfile-pattern err.%r -n 2", script);
    let outcome = job.dir(&dir).run();
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_else(|e| format!("{name}: {e}"));
    let files = ["out.0", "out.1", "err.0", "err.1"].map(read);
    fs::remove_dir_all(&dir).expect("the folder is there");
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
        Some(numbers.filter(|fd| Some(*fd) != pmi).collect())
    };
    outcome.code(0).stdout.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{outcome}"))).collect()
}

#[test]
fn no_descriptor_leaks_into_a_rank() {
    assert_eq!(descriptors("-n 4"), vec![vec![0, 1, 2]; 4]);
    assert_eq!(descriptors("--pmi-port -n 4"), vec![vec![0, 1, 2]; 4]);
}

#[test]
fn no_foreign_launcher_leaks_into_a_rank() {
    let outcome = shell("-n 2", "env")
        .env("PMIX_RANK", "7")
        .env("PMI_ID", "9")
        .env("PMI_PORT", "127.0.0.1:9")
        .env("PMI2_FOREIGN", "x")
        .env("PRTE_LAUNCHED", "1")
        .env("PMI_DEBUG", "0")
        .env("HYDI_CONTROL_FD", "7")
        .run();
    outcome.code(0).says("PMI_RANK=", 2).says("PMI_SIZE=2\n", 2).says("PMI_DEBUG=0\n", 2);
    for foreign in ["PMIX_", "PMI_ID", "PMI_PORT", "PMI2_", "PRTE_", "HYDI_"] {
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
    // A late fence is told on standard error, which is how the test sees that everybody else has come.
    let steps = "init1\nonly 0\ncount\nall\nfence1\nend1";
    let mut job = raw(&format!("--fence-warning 0.1 -n {ranks}"), steps).hold_input().start();
    job.await_stderr(&format!("{} of {ranks} ranks", ranks - 1));
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
    let dir = std::env::temp_dir().join(format!("hydrant-tests-link-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("the temporary folder can be written");
    let link = dir.join("mpiexec");
    std::os::unix::fs::symlink(hydrant_tests::job::hydrant_bin(), &link).expect("the folder is new");
    let outcome =
        Job::new(&link).words("-n 3").arg(RAW).args(["init1", "fence1", "end1", "say", "done"]).run();
    fs::remove_dir_all(&dir).expect("the folder is there");
    outcome.code(0).says("done", 3).quiet();
}

#[test]
fn ranks_are_bound_to_the_processors_that_were_named() {
    let allowed = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_owned()).unwrap_or_default()
    };
    let mine = allowed(&fs::read_to_string("/proc/self/status").expect("Linux has /proc"));
    let last = mine.rsplit([',', '-']).next().unwrap_or_default();
    let outcome = Job::hydrant(&format!("-bind-to user:{last} -n 2 cat /proc/self/status")).run();
    outcome.code(0).says(&format!("Cpus_allowed_list:\t{last}\n"), 2);
    let outcome = Job::hydrant("-bind-to hwthread -n 1 cat /proc/self/status").run();
    assert!(allowed(&outcome.code(0).stdout).parse::<u32>().is_ok(), "one processor: {outcome}");
    let outcome = Job::hydrant("-n 1 cat /proc/self/status").run();
    assert_eq!(allowed(&outcome.code(0).stdout), mine);
    Job::hydrant("-bind-to user:99999 -n 1 true").run().code(1).warns("99999");
}

#[test]
fn a_job_is_read_from_a_file() {
    let file = std::env::temp_dir().join(format!("hydrant-tests-config-{}", std::process::id()));
    let text = "# two programs\n-n 1 -wdir / sh -c 'echo \"$PMI_RANK in $PWD\"'\n-n 2 sh -c 'echo \"$PMI_RANK of $PMI_SIZE\"'\n";
    fs::write(&file, text).expect("the temporary folder can be written");
    let outcome = Job::hydrant("-configfile").arg(&file).run();
    fs::remove_file(&file).expect("the file is there");
    assert_eq!(outcome.code(0).lines(), ["0 in /", "1 of 3", "2 of 3"]);
}
