//! Ranks that fail, each in another way: the job ends, nobody hangs, and one short block says what happened.

use hydrant_tests::{Job, Outcome};
use rustix::process::Signal;

use crate::{RAW, raw, shell};

/// The block names the rank with its host, its process and its program.
#[track_caller]
fn names(outcome: &Outcome, rank: u32, what: &str) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    outcome.warns(&format!("rank {rank}")).warns(what).warns(&host).warns("pid ");
}

#[test]
fn success_is_silent() {
    raw("-n 3", "init1\nfence1\nend1").run().code(0).quiet();
    shell("-n 3", "exit 0").run().code(0).quiet();
}

#[test]
fn the_exit_code_is_one_ranks_and_no_mixture() {
    let outcome = shell("-n 3", "exit $((1 << PMI_RANK))").run();
    let code = outcome.status.code().unwrap_or(-1);
    assert!([1, 2, 4].contains(&code), "{outcome}");
    names(&outcome, code.ilog2(), &format!("exited with code {code}"));
}

#[test]
fn the_first_failure_counts() {
    // Rank 0 outlives the others' failure, and then fails as well.
    let script = r#"[ "$PMI_RANK" = 1 ] && exit 5; [ "$PMI_RANK" = 0 ] && { echo up; cat >/dev/null; exit 6; }; exit 0"#;
    let mut job = shell("-v -n 3", script).hold_input().start();
    job.await_stdout("up", 1).await_stderr("code 5");
    job.end_input();
    names(job.wait().code(5), 1, "exited with code 5");
}

#[test]
fn a_signal_is_128_and_its_number() {
    let outcome = raw("-n 2", "only 1\nkill 9\nall\nexit 0").run();
    names(outcome.code(137), 1, "SIGKILL");
    let outcome = raw("-n 2", "only 0\nkill 8").run();
    names(outcome.code(136), 0, "SIGFPE");
}

#[test]
fn abort_ends_everybody() {
    let outcome =
        raw("-n 3", "init1\nonly 2\nsend cmd=abort exitcode=7 message=enough\\n\nall\nforever").run();
    names(outcome.code(7), 2, "enough");
    let outcome =
        raw("-n 3", "init2\nonly 1\nframe cmd=abort;isworld=TRUE;msg=no; more of;; this;\nall\nforever")
            .run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    names(&outcome, 1, "abort");
}

#[test]
fn leaving_without_init_while_others_wait_ends_the_job() {
    for fence in ["init1\nfence1", "init2\nfence2"] {
        let outcome = raw("-n 4", &format!("only 2\nexit 0\nall\n{fence}\nsay never")).run();
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        outcome.says("never", 0);
        names(&outcome, 2, "exited with code 0");
    }
}

#[test]
fn failing_without_init_while_others_wait_ends_the_job() {
    let outcome = raw("-n 4", "only 3\nexit 9\nall\ninit1\nfence1\nsay never").run();
    outcome.code(9).says("never", 0);
    names(&outcome, 3, "exited with code 9");
}

#[test]
fn dying_inside_a_fence_ends_the_job() {
    // The one that dies has asked for the fence, the others wait in it.
    let outcome = raw(
        "-n 4",
        "init1\nonly 1\nsend cmd=barrier_in\\n\nkill 6\nall\nonly 0,2\nfence1\nonly 3\nforever\nall\nsay never",
    )
    .run();
    outcome.code(134).says("never", 0);
    names(&outcome, 1, "SIGABRT");
}

#[test]
fn leaving_without_finalize_ends_the_job() {
    let outcome = raw("-n 3", "init2\nonly 0\nexit 0\nall\nforever").run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    names(&outcome, 0, "without finalizing");
}

#[test]
fn without_cleanup_the_others_go_on() {
    let steps = "only 1\nkill 9\nall\ninit1\nfence1\nfence1\nend1\nsay done";
    let outcome = raw("-disable-auto-cleanup -n 4", steps).run();
    outcome.code(137).says("done", 3);
}

#[test]
fn a_program_that_is_not_there_starts_nothing() {
    let dir = std::env::temp_dir();
    let witness = dir.join(format!("hydrant-tests-started-{}", std::process::id()));
    let touch = format!("touch {}", witness.display());
    let outcome = shell("-n 2", &touch).words(": -n 2 ./no-such-program").run();
    outcome.code(127).warns("no-such-program");
    let started = std::fs::remove_file(&witness).is_ok();
    assert!(!started, "a rank was started: {outcome}");
    Job::hydrant("-n 1 /etc/passwd").run().code(126).warns("/etc/passwd");
    Job::hydrant("-n 0 true").run().code(2);
}

#[test]
fn too_few_descriptors_are_refused_before_anything_starts() {
    let hydrant = hydrant_tests::job::hydrant_bin().display().to_string();
    let script = format!("ulimit -n 64 && exec {hydrant} run -n 200 sh -c 'echo started'");
    let outcome = Job::new("sh").args(["-c", &script]).run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    outcome.says("started", 0).warns("open files").warns("64");
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let hydrant = hydrant_tests::job::hydrant_bin().display().to_string();
    let script = format!("ulimit -Sn 64 && exec {hydrant} run -n 64 {RAW} init1 fence1 end1 say done");
    Job::new("sh").args(["-c", &script]).run().code(0).says("done", 64);
}

#[test]
fn ranks_see_that_their_launcher_is_gone() {
    let job = raw("-n 3", "init1\nsay up\neof").start();
    job.await_stdout("up", 3).signal(Signal::KILL);
    // Waiting also sees that nothing is left running.
    job.wait().signaled(Signal::KILL);
}
