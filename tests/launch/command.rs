//! The command as a user starts it: what it prints, and its exit codes.

use std::process::{Command, Output, Stdio};

use hydrant_tests::job::hydrant_bin;

fn hydrant(args: &[&str]) -> Command {
    let mut command = Command::new(hydrant_bin());
    command.args(args).stdin(Stdio::null());
    for foreign in ["PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(foreign);
    }
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = hydrant(args).output().expect("hydrant starts");
    let text = |bytes| String::from_utf8(bytes).expect("hydrant writes UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_wrong_command_line_is_2_and_speaks_on_standard_error() {
    let wrong =
        [&["run", "-n", "x", "a"][..], &["run"], &["run", ""], &["probe", "--keys", "0"], &["walk"], &[]];
    for args in wrong {
        let (code, out, error) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(!error.is_empty(), "{args:?}");
    }
}

#[test]
fn options_that_contradict_each_other_are_explained_by_their_own_command() {
    for (args, words) in [
        (&["--size", "4", "--map", "2,3"][..], "--map has 5 ranks, but --size is 4"),
        (&["--manage", "--jobs", "2"], "--jobs requires --size; "),
        (&["--limit", "keys=9"], "--limit keys=9: a name server has the limits names=N and conns=N"),
    ] {
        let (code, out, error) = run(&[&["serve"], args].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(error.starts_with(&format!("hydrant: {words}")), "{error}");
        assert!(error.contains("Usage: hydrant serve [OPTIONS]"), "{error}");
    }
}

/// Nothing is started, and nothing is said of what memory was asked for in vain where.
#[test]
fn limits_beyond_all_memory_are_told_before_anything_begins() {
    for args in [
        &["run", "--limit", "names=4294967295", "true"][..],
        &["run", "--pmi-port", "--limit", "jobs=4294967295", "true"],
        &["serve", "--size", "2", "--limit", "groups=4294967295"],
        &["serve", "--manage=127.0.0.1:0", "--limit", "psets=4294967295"],
        &["serve", "--limit", "names=4294967295"],
    ] {
        let (code, out, error) = run(args);
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(1), "", 1), "{args:?}: {error}");
        assert!(error.contains("which is not there: make them smaller (--limit NAME=N)"), "{error}");
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    for args in [&["run", "--help"][..], &["--version"], &["run", "--dry-run", "true"]] {
        let full = std::fs::File::create("/dev/full").expect("there is such a device");
        let output = hydrant(args).stdout(full).output().expect("hydrant starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("hydrant: cannot write to standard output: No space"), "{error}");
    }
}

#[test]
fn help_is_0_and_speaks_on_standard_output() {
    for args in [&["--help"][..], &["run", "-h"], &["help", "probe"], &["--version"]] {
        let (code, out, error) = run(args);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{args:?}");
        assert!(!out.is_empty(), "{args:?}");
    }
}

#[test]
fn nobody_reading_help_is_no_error() {
    let mut child = hydrant(&["run", "--help"]).stdout(Stdio::piped()).spawn().expect("hydrant starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("hydrant ends").success());
}

#[test]
fn a_probe_alone_says_how_to_start_more() {
    let (code, out, _) = run(&["probe"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("hydrant run -n 4 hydrant probe"), "{out}");
}

#[test]
fn a_probe_that_cannot_join_says_what_is_wrong() {
    let output = hydrant(&["probe"])
        .envs([("PMI_FD", "1000000"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")])
        .output()
        .expect("hydrant starts");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("PMI_FD") && error.contains("1000000"), "{error}");
}

#[test]
fn a_dry_run_tells_the_plan_and_starts_nothing() {
    let marker = std::env::temp_dir().join(format!("hydrant-dry-{}", std::process::id()));
    let file = marker.to_str().expect("a path of ASCII");
    for hosts in [&["-hosts", "localhost"][..], &["-hosts", "nowhere-a:2,nowhere-b", "--radix", "2"]] {
        let args = [&["run", "--dry-run"], hosts, &["-n", "3", "touch", file]].concat();
        let (code, out, error) = run(&args);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{args:?}");
        assert!(out.contains("mapping: (vector,(0,1,") && out.contains("Nothing was started"), "{out}");
    }
    assert!(!marker.exists());
}

#[test]
fn hosts_that_cannot_be_used_are_2_and_name_their_file() {
    let file = std::env::temp_dir().join(format!("hydrant-hosts-{}", std::process::id()));
    std::fs::write(&file, "a slots=2 max_slots=2\nb slots=many\n").expect("a temporary file");
    let name = file.to_str().expect("a path of ASCII");
    let wrong = run(&["run", "-f", name, "true"]);
    std::fs::write(&file, "localhost max_slots=2\n").expect("a temporary file");
    let full = run(&["run", "-f", name, "-n", "3", "true"]);
    let fits = run(&["run", "-f", name, "-n", "2", "true"]);
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!((wrong.0, wrong.1.as_str()), (Some(2), ""));
    assert!(wrong.2.contains(&format!("{name} line 2: invalid number of slots 'many'")), "{}", wrong.2);
    assert_eq!(full.0, Some(2), "{}", full.2);
    assert!(full.2.contains("3 ranks, but max_slots of the hosts allow 2"), "{}", full.2);
    assert_eq!((fits.0, fits.2.as_str()), (Some(0), ""));
}

#[test]
fn a_batch_systems_hosts_are_found_by_themselves() {
    let output = hydrant(&["run", "--dry-run", "-n", "7", "true"])
        .envs([("SLURM_JOB_NODELIST", "n[01-03],m5"), ("SLURM_TASKS_PER_NODE", "2(x3),1")])
        .output()
        .expect("hydrant starts");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("node 4: m5, 1 slot: rank 6\n"), "{out}");
    assert!(out.contains("mapping: (vector,(0,3,2),(3,1,1))\n"), "{out}");
}
