//! `hydrant replay --summary`, `--trace` and `--html`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hydrant_tests::{Folder, Job};

use crate::RAW;

fn record(file: &str, args: &str, steps: &str) {
    Job::command("run --record").arg(file).words(args).arg(RAW).steps(steps).run().code(0);
}

#[test]
fn a_recording_is_shown_in_three_forms() {
    let folder = Folder::new("timeline");
    let [file, trace, page] = ["job.rec", "job.json", "job.html"].map(|name| folder.path(name));
    record(
        &file,
        "-n 3",
        "init1\nfence1\nonly 2\nsend cmd=put kvsname=%j key=k value=v\\n\nexpect cmd=put_result rc=0\nall\nfence1\nend1",
    );
    let job = || Job::command("replay --summary --trace").arg(&trace).arg("--html").arg(&page).arg(&file);
    let outcome = job().run();
    outcome.code(0).quiet().says(": 3 ranks on 1 host, PMI-1\n", 1).says("start-up ", 1);
    let rows = |name: &str| outcome.stdout.lines().filter(|line| line.starts_with(name)).count();
    let names = ["launch ", "start ", "init ", "put ", "fence 1 ", "fence 2 ", "get ", "own ", "finalize "];
    assert!(names.iter().all(|name| rows(name) == 1), "{outcome}");
    let json = folder.read("job.json");
    assert!(json.starts_with("{\"traceEvents\":[") && json.ends_with("}\n"), "{json}");
    assert_eq!(json.matches("\"thread_name\"").count(), 3);
    // Two ranks are released by the third one in each fence.
    assert_eq!((json.matches("\"ph\":\"s\"").count(), json.matches("\"ph\":\"f\"").count()), (4, 4));
    assert!(folder.read("job.html").starts_with("<!doctype html>"));
    let mode = fs::metadata(&page).expect("the page is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_truncated_recording_is_shown_up_to_there() {
    let folder = Folder::new("part");
    let file = folder.path("job.rec");
    record(&file, "-n 2", "init1\nfence1\nend1");
    let bytes = fs::read(&file).expect("the recording is there");
    fs::write(&file, &bytes[..bytes.len() - 20]).expect("the folder can be written");
    let outcome = Job::command("replay --summary").arg(&file).run();
    outcome.code(1).says("fence 1 ", 1).says("note: job.rec is truncated at offset", 1);
    outcome.stderr_ends("the timeline shows the records up to there");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let folder = Folder::new("options");
    let [file, other] = ["job.rec", "other.rec"].map(|name| folder.path(name));
    record(&file, "-n 1", "init1\nend1");
    let refused = |options: &str, code: i32, warning: &str| {
        let outcome = Job::command("replay").words(options).arg(&file).arg(&other).run();
        outcome.code(code).stdout_is("").warns(warning);
    };
    // Two recordings are no message list.
    refused("", 2, "--summary|--trace <JSON>|--html <HTML>");
    refused("--summary --rank 1", 2, "cannot be used with");
    refused("--summary", 1, "other.rec: No such file or directory");
    fs::copy(&file, &other).expect("the folder can be written");
    refused("--summary", 1, "job.rec and other.rec are both recordings of node 0");
    refused(&format!("--html {file}"), 1, "job.rec is a recording that is read: it cannot be written");
    let full = Job::command("replay --trace /dev/full").arg(&file).run();
    full.code(1).stdout_is("").warns("/dev/full: cannot write: No space left on device");
}
