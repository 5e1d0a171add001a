//! `hydrant run --record` and `hydrant replay`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hydrant_core::Limits;
use hydrant_record::{Record, Writer};
use hydrant_tests::{Folder, Job, Outcome, hydrant_bin};
use rustix::process::Signal;

/// A job that is recorded to that file, and not by the harness.
fn recorded(file: &str, args: &str) -> Job {
    Job::command("run --record").arg(file).words(args)
}

/// A recorded job of two probes.
fn record(file: &str) -> Outcome {
    recorded(file, "-n 2").arg(hydrant_bin()).words("probe --pmi 2").run()
}

fn replay(options: &str, file: &str) -> Outcome {
    Job::command("replay").words(options).arg(file).run()
}

#[test]
fn a_recorded_job_is_shown_and_replayed() {
    let folder = Folder::new("record");
    let file = folder.path("job.rec");
    // An old file is replaced, and so is its mode.
    fs::write(&file, vec![b'x'; 1 << 20]).expect("the folder can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("the file is this user's");
    record(&file).code(0).quiet();
    let mode = fs::metadata(&file).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let shown = replay("", &file);
    shown.code(0).quiet().says("! joined", 2);
    let table = &shown.stdout;
    let handshakes = table.lines().filter(|line| line.contains(" > ") && line.contains("cmd=fullinit;"));
    assert_eq!(handshakes.count(), 2, "{shown}");
    let verdict = table.lines().last().unwrap_or_default();
    assert!(verdict.ends_with(" outputs, all the same"), "{shown}");

    let one = replay("--rank 1", &file);
    one.says("! joined", 1);
    assert!(one.stdout.contains("+ job kvs_") && one.stdout.contains("all the same"), "{one}");

    replay("-q", &file).stdout_is(&format!("{verdict}\n"));
    replay("--no-check", &file).stdout_is(&table.replace("all the same", "not checked"));
}

/// Jobs that end by a failing rank and by a signal: the recording is whole.
#[test]
fn jobs_that_fail_are_recorded_to_their_end() {
    let folder = Folder::new("failures");
    let file = folder.path("job.rec");
    recorded(&file, "-n 2 sh -c").arg("exit 3").run().code(3);
    replay("", &file).code(0).says("+ exited with code 3", 2);

    let job = recorded(&file, "-n 1 bash -c").arg("echo up; exec sleep 1000").start();
    job.await_stdout("up\n", 1).signal(Signal::TERM);
    job.wait().code(143);
    replay("", &file).code(0).says("+ died by SIGTERM", 1);
}

/// A process set that cannot exist is the launcher's mistake, and part of the recording.
#[test]
fn what_the_core_refuses_is_recorded() {
    let folder = Folder::new("fault");
    let file = folder.path("job.rec");
    recorded(&file, "--limit psets=0 true").run().code(1);
    let shown = replay("", &file);
    shown.code(0).says("refused: limit psets (0) is used up", 1);
}

/// Files that are no recordings, or no whole ones: the error names the place, and everything before it is shown.
#[test]
fn files_that_are_not_whole_are_refused_with_the_place() {
    let folder = Folder::new("damage");
    let file = folder.path("job.rec");
    record(&file);
    let good = fs::read(&file).expect("the recording is there");
    let error = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("the folder can be written");
        let outcome = replay("-q", &file);
        outcome.code(1);
        let error = outcome.stderr.strip_prefix(&format!("hydrant replay: {file}: ")).map(str::to_owned);
        (outcome.stdout.clone(), error.unwrap_or_else(|| panic!("{outcome}")))
    };
    let cut = good.len() - 5;
    let (verdict, why) = error(&good[..cut]);
    assert!(verdict.ends_with("all the same up to there\n"), "{verdict}");
    assert!(why.starts_with(&format!("truncated at offset {cut}, inside a record: ")), "{why}");
    let mut bent = good.clone();
    bent[good.len() / 2] ^= 1;
    let (verdict, why) = error(&bent);
    assert!(verdict.ends_with("all the same up to there\n"), "{verdict}");
    assert!(why.starts_with("damaged at offset "), "{why}");
    let mut other = good.clone();
    other[8] = 99;
    let (_, why) = error(&other);
    assert!(why.contains("version 99"), "{why}");
    let (_, why) = error(b"#!/bin/sh\necho 1\n");
    assert!(why.starts_with("not a recording"), "{why}");
    let (_, why) = error(b"");
    assert!(why.starts_with("truncated at offset 0"), "{why}");
    replay("", &folder.path("nowhere")).code(1).stdout_is("").warns("No such file");
}

/// Recordings are untrusted. One whose limits need more memory than there is gets none.
#[test]
fn limits_that_do_not_fit_are_refused() {
    let folder = Folder::new("limits");
    let file = folder.path("job.rec");
    let limits = Limits { ranks: u32::MAX, psets: u32::MAX, ..Limits::for_ranks(1) };
    let mut writer =
        Writer::new(fs::File::create(&file).expect("the folder can be written")).expect("the disk has room");
    writer.write(&Record::Begin { program: "another", limits, seed: 0 }).expect("the disk has room");
    writer.finish().expect("the disk has room");
    replay("", &file).code(1).stdout_is("").warns("MiB of memory, and this machine has");
    replay("--no-check", &file).code(0);
}

#[test]
fn a_recording_that_cannot_be_printed_is_an_error() {
    let folder = Folder::new("shown");
    let file = folder.path("job.rec");
    record(&file);
    for options in ["-q", ""] {
        let full = fs::File::create("/dev/full").expect("Linux has /dev/full");
        let outcome = Job::command("replay").words(options).arg(&file).stdout(full).run();
        outcome.code(1).stderr_starts("hydrant replay: cannot write to standard output: No space");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_job() {
    let outcome = recorded("/dev/null/job.rec", "echo started").run();
    outcome.code(1).stdout_is("");
    outcome.stderr_starts("hydrant: cannot record to /dev/null/job.rec: Not a directory");
}

/// A full disk ends the recording, not the job.
#[test]
fn a_full_disk_does_not_end_the_job() {
    let outcome = record("/dev/full");
    outcome.code(0).says("all right", 1);
    outcome.stderr_starts("hydrant: cannot record to /dev/full: No space left on device");
    outcome.stderr_ends("; the recording ends early, the job goes on");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
}

/// The recording holds every output up to the moment when the launcher was killed.
#[test]
fn the_recording_of_a_killed_launcher_is_shown_to_its_end() {
    let folder = Folder::new("killed");
    let file = folder.path("job.rec");
    let script = "eval \"exec 9<&$PMI_FD 8>&$PMI_FD\"; \
                  echo 'cmd=init pmi_version=1 pmi_subversion=1' >&8; read -r answer <&9; echo \"$answer\"; \
                  exec sleep 1000";
    let job = recorded(&file, "-n 1 bash -c").arg(script).start();
    job.await_stdout("cmd=response_to_init", 1).signal(Signal::KILL);
    job.wait().signaled(Signal::KILL);
    let shown = replay("", &file);
    assert!(shown.stdout.contains("< cmd=response_to_init"), "{shown}");
    assert!(shown.stdout.ends_with("all the same up to there\n"), "{shown}");
    shown.warns("without an end record");
}
