//! `hydrant run --profile`.

use hydrant_tests::{Folder, Job};
use serde_json::Value;

use crate::RAW;

/// The phases that a start-up consists of, in the order of a run on one host.
const PHASES: [&str; 9] = ["setup", "launch", "start", "init", "put", "fence", "get", "own", "other"];

fn profiled(options: &str, steps: &str) -> Job {
    Job::command("run --profile").words(options).arg(RAW).steps(steps)
}

/// The first word of each line of standard error behind `hydrant:`.
fn rows(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.strip_prefix("hydrant: ")?.split_whitespace().next()).collect()
}

#[test]
fn a_table_at_the_end_has_a_row_for_each_phase_and_fence() {
    let steps =
        "init1\nfence1\nsend cmd=put kvsname=%j key=k%r value=v\\n\nexpect cmd=put_result rc=0\nfence1\nend1";
    let outcome = profiled("-n 3", steps).run();
    outcome.code(0).warns(": 3 ranks on 1 host, PMI-1\n");
    let rows = rows(&outcome.stderr);
    let phases = ["setup", "launch", "start", "init", "put", "fence", "get", "own", "start-up", "finalize"];
    let at = rows.iter().position(|&row| row == "phase").expect("the table has a title") + 1;
    assert_eq!(rows[at..at + phases.len()], phases, "{outcome}");
    // The title of the second table, and two fences.
    let behind = &rows[at + phases.len()..];
    assert_eq!(behind.iter().filter(|&&row| row == "fence").count(), 3, "{outcome}");
    Job::hydrant("-n 1").arg(RAW).steps("init1\nend1").run().code(0).quiet();
}

#[test]
fn times_of_a_start_up_add_up_in_the_result() {
    let folder = Folder::new("profile");
    let file = folder.path("result.json");
    let steps = "init1\nfence1\nfence1\nend1";
    profiled("-n 2 --json", steps).run().code(0);
    profiled(&format!("-n 2 --json={file}"), steps).run().code(0);
    let result: Value = serde_json::from_str(&folder.read("result.json")).expect("the file is JSON");
    let profile = &result["jobs"][0]["profile"];
    assert_eq!((profile["ranks"].as_u64(), profile["hosts"].as_u64()), (Some(2), Some(1)));
    let phases = profile["phases"].as_array().expect("the phases are an array");
    let starting: Vec<&Value> = phases.iter().filter(|phase| phase["in_start_up"] == true).collect();
    assert_eq!(starting.iter().map(|phase| &phase["name"]).collect::<Vec<_>>(), PHASES);
    let sum: u64 = starting.iter().filter_map(|phase| phase["sum_ms"].as_u64()).sum();
    assert_eq!(Some(sum), profile["start_up"]["sum_ms"].as_u64(), "{profile}");
    let fences: Vec<_> = profile["fences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|fence| (&fence["name"], &fence["ranks"]))
        .collect();
    assert_eq!(
        fences,
        [(&Value::from("fence 1"), &Value::from(2)), (&Value::from("fence 2"), &Value::from(2))]
    );
    assert_eq!(profile["first_fence"]["ranks"].as_u64(), Some(2), "both processes were looked at: {profile}");
    Job::hydrant(&format!("-n 1 --json={file} true")).run().code(0);
    let result: Value = serde_json::from_str(&folder.read("result.json")).expect("the file is JSON");
    assert_eq!(result["jobs"][0]["profile"], Value::Null);
}

#[test]
fn jobs_that_fail_and_jobs_that_are_spawned_have_a_table_too() {
    profiled("-n 2", "init1\nexit 3")
        .run()
        .code(3)
        .warns("exited with code 3")
        .warns(": 2 ranks on 1 host, PMI-1\n");
    Job::command("run --profile -n 2 true").run().code(0).warns(": 2 ranks on 1 host\n");
    let spawn = "init1\nonly 0\nsend mcmd=spawn\\nnprocs=1\\nexecname=true\\ntotspawns=1\\nspawnssofar=1\\nendcmd\\n\nexpect cmd=spawn_result rc=0\nall\nend1";
    let outcome = profiled("-n 1", spawn).run();
    outcome.code(0);
    assert_eq!(rows(&outcome.stderr).iter().filter(|&&row| row == "job").count(), 2, "{outcome}");
    // Only the job of the command line waits for hydrant itself.
    assert_eq!(rows(&outcome.stderr).iter().filter(|&&row| row == "setup").count(), 1, "{outcome}");
}

#[test]
fn what_keeps_no_times_has_no_profile() {
    for (options, why) in [
        ("--profile --on default", "daemons that run already keep no times"),
        ("--profile -hosts a --offload b", "boards keep no times"),
    ] {
        Job::command("run").words(options).words("true").run().code(2).warns(why);
    }
}
