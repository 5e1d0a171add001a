//! The command as a user starts it: what it prints, and its exit codes.

use std::fs::File;
use std::io::pipe;

use hydrant_tests::{Folder, Job};

/// `hydrant` with these arguments, not inside another job.
fn hydrant(args: &[&str]) -> Job {
    let job = Job::command("").args(args);
    ["PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE"].into_iter().fold(job, Job::env_remove)
}

#[test]
fn a_wrong_command_line_is_2_and_is_explained_on_standard_error() {
    let wrong =
        [&["run", "-n", "x", "a"][..], &["run"], &["run", ""], &["probe", "--keys", "0"], &["walk"], &[]];
    for args in wrong {
        let outcome = hydrant(args).run();
        outcome.code(2).stdout_is("");
        assert!(!outcome.stderr.is_empty(), "{outcome}");
    }
}

#[test]
fn options_that_contradict_each_other_are_explained_by_their_own_command() {
    for (args, words) in [
        ("--size 4 --map 2,3", "--map has 5 ranks, but --size is 4"),
        ("--manage --jobs 2", "--jobs requires --size; "),
        (
            "--manage=0.0.0.0:0",
            "--manage=0.0.0.0:0: other machines can reach this address; set --secret-file FILE",
        ),
        ("--limit keys=9", "--limit keys=9: a name server has the limits names=N and conns=N"),
    ] {
        let outcome = Job::command("serve").words(args).run();
        outcome.code(2).stdout_is("").stderr_starts(&format!("hydrant: {words}"));
        outcome.warns("Usage: hydrant serve [OPTIONS]");
    }
}

/// Nothing is started, and the error does not name the place of the failed allocation.
#[test]
fn limits_beyond_all_memory_are_refused_before_anything_begins() {
    for args in [
        "run --limit names=4294967295 true",
        "run --pmi-port --limit jobs=4294967295 true",
        "serve --size 2 --limit groups=4294967295",
        "serve --manage=127.0.0.1:0 --limit psets=4294967295",
        "serve --limit names=4294967295",
    ] {
        let outcome = Job::command(args).run();
        outcome.code(1).stdout_is("");
        outcome.warns("which is not there: make them smaller (--limit NAME=N)");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    }
}

#[test]
fn a_full_disk_below_standard_output_is_an_error() {
    for args in ["run --help", "--version", "run --dry-run true"] {
        let full = File::create("/dev/full").expect("Linux has /dev/full");
        let outcome = Job::command(args).stdout(full).run();
        outcome.code(1).stderr_starts("hydrant: cannot write to standard output: No space");
    }
}

#[test]
fn help_is_0_and_is_on_standard_output() {
    for args in ["--help", "run -h", "help probe", "--version"] {
        let outcome = Job::command(args).run();
        outcome.code(0).quiet();
        assert!(!outcome.stdout.is_empty(), "{outcome}");
    }
}

#[test]
fn help_without_a_reader_is_no_error() {
    let (reader, writer) = pipe().expect("the system has pipes");
    drop(reader);
    Job::command("run --help").stdout(writer).run().code(0);
}

#[test]
fn a_probe_alone_prints_how_to_start_more() {
    hydrant(&["probe"]).run().code(0).says("hydrant run -n 4 hydrant probe", 1);
}

#[test]
fn a_probe_that_cannot_join_names_the_cause() {
    let job = hydrant(&["probe"]).env("PMI_FD", "1000000").env("PMI_RANK", "0").env("PMI_SIZE", "1");
    job.run().code(1).warns("PMI_FD").warns("1000000");
}

#[test]
fn a_dry_run_prints_the_plan_and_starts_nothing() {
    let folder = Folder::new("dry");
    let file = folder.path("started");
    for hosts in ["-hosts localhost", "-hosts nowhere-a:2,nowhere-b --radix 2"] {
        let outcome = Job::command("run --dry-run").words(hosts).words("-n 3 touch").arg(&file).run();
        outcome.code(0).quiet().says("mapping: (vector,(0,1,", 1).says("Nothing was started", 1);
    }
    assert!(!folder.0.join("started").exists());
}

#[test]
fn hosts_that_cannot_be_used_are_2_and_name_their_file() {
    let folder = Folder::new("hosts");
    let file = folder.file("hosts", "a slots=2 max_slots=2\nb slots=many\n");
    let wrong = Job::command("run -f").arg(&file).arg("true").run();
    wrong.code(2).stdout_is("").warns(&format!("{file} line 2: invalid number of slots 'many'"));
    folder.file("hosts", "localhost max_slots=2\n");
    let full = Job::command("run -f").arg(&file).words("-n 3 true").run();
    full.code(2).warns("3 ranks, but max_slots of the hosts allow 2");
    Job::command("run -f").arg(&file).words("-n 2 true").run().code(0).quiet();
}

#[test]
fn the_hosts_of_a_batch_system_are_read_from_its_environment() {
    let outcome = Job::command("run --dry-run -n 7 true")
        .env("SLURM_JOB_NODELIST", "n[01-03],m5")
        .env("SLURM_TASKS_PER_NODE", "2(x3),1")
        .run();
    outcome.says("node 4: m5, 1 slot: rank 6\n", 1).says("mapping: (vector,(0,3,2),(3,1,1))\n", 1);
}

#[test]
fn the_doctor_looks_at_this_machine() {
    let outcome = hydrant(&["doctor", "-hosts", "localhost", "sh"]).run();
    outcome.quiet();
    for topic in ["open files", "/dev/shm", "loopback", "launchers", "hosts", "program"] {
        assert!(outcome.stdout.contains(&format!("  {topic}")), "{topic}: {outcome}");
    }
    let has_problem = outcome.stdout.lines().any(|line| line.starts_with("problem "));
    outcome.code(i32::from(has_problem));
    hydrant(&["doctor", "./missing"]).run().code(1).says("cannot execute ./missing: No such file", 1);
}
