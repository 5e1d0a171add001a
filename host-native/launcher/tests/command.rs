//! The command as a user starts it: what it prints, and its exit codes.

use std::process::{Command, Output, Stdio};

fn hydrant(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
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
    for args in [&["run", "-n", "x", "a"][..], &["run"], &["probe", "--keys", "0"], &["walk"], &[]] {
        let (code, out, error) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(!error.is_empty(), "{args:?}");
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
