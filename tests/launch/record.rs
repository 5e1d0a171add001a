//! `hydrant run --record` and `hydrant replay`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use hydrant_core::Limits;
use hydrant_record::{Record, Writer};

use hydrant_tests::plain::{Job, Scratch, hydrant, hydrant_path, text};
use rustix::process::Signal;

/// A job of two probes that is recorded.
fn record(file: &str) -> Output {
    hydrant(&["--record", file, "-n", "2", hydrant_path(), "probe", "--pmi", "2"])
        .output()
        .expect("hydrant starts")
}

fn replay(args: &[&str]) -> Output {
    let mut command = Command::new(hydrant_path());
    command.arg("replay").args(args).stdin(Stdio::null()).output().expect("hydrant starts")
}

#[test]
fn a_job_is_recorded_shown_and_says_the_same_again() {
    let scratch = Scratch::new("record");
    let file = scratch.path("job.rec");
    // What is there is replaced, and its rights go with it.
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let job = record(&file);
    assert_eq!((job.status.code(), text(&job.stderr).as_str()), (Some(0), ""));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let shown = replay(&[&file]);
    let table = text(&shown.stdout);
    assert_eq!((shown.status.code(), text(&shown.stderr).as_str()), (Some(0), ""), "{table}");
    assert_eq!(table.matches("! joined").count(), 2, "{table}");
    let introductions = table.lines().filter(|line| line.contains(" > ") && line.contains("cmd=fullinit;"));
    assert_eq!(introductions.count(), 2, "{table}");
    assert!(table.lines().last().unwrap().ends_with(" outputs, all the same"), "{table}");

    let one = text(&replay(&["--rank", "1", &file]).stdout);
    assert_eq!(one.matches("! joined").count(), 1, "{one}");
    assert!(one.contains("+ job kvs_") && one.contains("all the same"), "{one}");

    let verdict = table.lines().last().unwrap();
    assert_eq!(text(&replay(&["-q", &file]).stdout), format!("{verdict}\n"));
    let unchecked = text(&replay(&["--no-check", &file]).stdout);
    assert_eq!(unchecked, table.replace("all the same", "not checked"));
}

/// Job's end by a failing rank and by a signal: the recording is whole all the same.
#[test]
fn jobs_that_fail_are_recorded_to_their_end() {
    let scratch = Scratch::new("record-failures");
    let file = scratch.path("job.rec");
    let failing = hydrant(&["--record", &file, "-n", "2", "sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(failing.status.code(), Some(3));
    let shown = replay(&[&file]);
    let table = text(&shown.stdout);
    assert_eq!((shown.status.code(), table.matches("+ exited with code 3").count()), (Some(0), 2), "{table}");

    let mut job = Job::start(&["--record", &file, "-n", "1"], "echo up; exec sleep 1000");
    assert_eq!(job.line(), "up");
    job.signal(Signal::TERM);
    assert_eq!(job.end().0.code(), Some(143));
    let shown = replay(&[&file]);
    let table = text(&shown.stdout);
    assert_eq!((shown.status.code(), table.matches("+ died by signal 15").count()), (Some(0), 1), "{table}");
}

/// A pset that cannot be is the launcher's mistake, and part of the record.
#[test]
fn what_the_core_refuses_is_recorded() {
    let scratch = Scratch::new("record-fault");
    let file = scratch.path("job.rec");
    let refused = hydrant(&["--record", &file, "--limit", "psets=0", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let shown = replay(&[&file]);
    let table = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{table}");
    assert!(table.contains("refused: the limit psets of 0 is used up"), "{table}");
}

/// Files that are no recordings, or no whole ones: the place is named, and what is good is shown.
#[test]
fn files_that_are_not_whole_are_refused_with_the_place() {
    let scratch = Scratch::new("record-damage");
    let file = scratch.path("job.rec");
    record(&file);
    let good = fs::read(&file).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let output = replay(&["-q", &file]);
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        (text(&output.stdout), error.strip_prefix(&format!("hydrant replay: {file}: ")).unwrap().to_owned())
    };
    let cut = good.len() - 5;
    let (verdict, why) = error(&good[..cut]);
    assert!(verdict.ends_with("all the same up to there\n"), "{verdict}");
    assert!(why.starts_with(&format!("truncated at offset {cut}, inside a record: ")), "{why}");
    let mut bent = good.clone();
    bent[good.len() / 2] ^= 1;
    let (verdict, why) = error(&bent);
    assert!(
        verdict.ends_with("all the same up to there\n") && why.starts_with("damaged at offset "),
        "{why}"
    );
    let mut other = good.clone();
    other[8] = 99;
    let (_, why) = error(&other);
    assert!(why.contains("version 99"), "{why}");
    let (_, why) = error(b"#!/bin/sh\necho 1\n");
    assert!(why.starts_with("not a recording"), "{why}");
    let (_, why) = error(b"");
    assert!(why.starts_with("truncated at offset 0"), "{why}");
    let missing = replay(&[&scratch.path("nowhere")]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("No such file"), "{}", text(&missing.stderr));
    assert_eq!(text(&missing.stdout), "", "nothing was played");
}

/// A recording may come from a stranger: one that asks for more memory than there is gets none.
#[test]
fn limits_that_do_not_fit_are_refused() {
    let scratch = Scratch::new("record-limits");
    let file = scratch.path("job.rec");
    let limits = Limits { ranks: u32::MAX, psets: u32::MAX, ..Limits::for_ranks(1) };
    let mut writer = Writer::new(fs::File::create(&file).unwrap()).unwrap();
    writer.write(&Record::Begin { program: "somebody", limits, seed: 0 }).unwrap();
    writer.finish().unwrap();
    let refused = replay(&[&file]);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""));
    assert!(
        text(&refused.stderr).contains("MiB of memory, and this machine has"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(replay(&["--no-check", &file]).status.code(), Some(0));
}

/// What was to be shown, and could not be, is no success.
#[test]
fn a_full_disk_is_no_place_to_show_a_recording() {
    let scratch = Scratch::new("record-shown");
    let file = scratch.path("job.rec");
    record(&file);
    for quiet in [&["-q"][..], &[]] {
        let mut command = Command::new(hydrant_path());
        let full = fs::File::create("/dev/full").unwrap();
        let output = command.arg("replay").args(quiet).arg(&file).stdout(full).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("hydrant replay: cannot write to standard output: No space"), "{error}");
    }
}

#[test]
fn what_cannot_be_recorded_is_told_before_the_job() {
    let nowhere = hydrant(&["--record", "/nonexistent/job.rec", "echo", "started"]).output().unwrap();
    assert_eq!((nowhere.status.code(), text(&nowhere.stdout).as_str()), (Some(1), ""));
    let error = text(&nowhere.stderr);
    assert!(error.starts_with("hydrant: cannot record to /nonexistent/job.rec: No such file"), "{error}");
}

/// A full disk ends the recording, not the job.
#[test]
fn a_full_disk_does_not_end_the_job() {
    let job = record("/dev/full");
    let error = text(&job.stderr);
    assert_eq!(job.status.code(), Some(0), "{error}");
    assert!(text(&job.stdout).contains("all right"), "{}", text(&job.stdout));
    assert!(error.starts_with("hydrant: cannot record to /dev/full: No space left on device"), "{error}");
    assert!(error.ends_with("; the recording ends early, the job goes on\n"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// What was said until the launcher was killed is there.
#[test]
fn a_killed_launcher_leaves_all_that_was_said() {
    let scratch = Scratch::new("record-killed");
    let file = scratch.path("job.rec");
    let script = "eval \"exec 9<&$PMI_FD 8>&$PMI_FD\"; \
                  echo 'cmd=init pmi_version=1 pmi_subversion=1' >&8; read -r answer <&9; echo \"$answer\"; \
                  exec sleep 1000";
    let mut job = Job::start(&["--record", &file, "-n", "1"], script);
    assert!(job.line().starts_with("cmd=response_to_init"));
    job.signal(Signal::KILL);
    job.end();
    let shown = replay(&[&file]);
    let (table, error) = (text(&shown.stdout), text(&shown.stderr));
    assert!(
        table.contains("< cmd=response_to_init") && table.ends_with("all the same up to there\n"),
        "{table}"
    );
    assert!(error.contains("without an end record"), "{error}");
}
