//! Ranks that fail, each in another way: the job ends, no rank hangs, and one short block names the cause.

use hydrant_tests::{Folder, Job, Outcome, nodes, this_machine};
use rustix::process::Signal;

use crate::{ASK, raw, shell};

/// The block names the rank with its host, its process and its program.
#[track_caller]
fn names(outcome: &Outcome, rank: u32, what: &str) {
    outcome.warns(&format!("rank {rank}")).warns(what).warns(&this_machine()).warns("pid ");
}

#[test]
fn a_time_limit_names_the_ranks_that_run() {
    for options in ["-n 3".to_owned(), format!("-n 3 {}", nodes(2, 2, 2))] {
        let script = "test $PMI_RANK = 1 && exit 0; while :; do :; done";
        let outcome = shell(&format!("--exit-report --timeout 1.5 {options}"), script).run();
        outcome.code(124).warns("the time limit of 1.5 s is reached; these ranks were running:\n");
        outcome
            .warns("  rank 0 on ")
            .warns("  rank 2 on ")
            .warns("2 ranks were ended, 1 rank had ended before\n");
        outcome.warns("exit codes: SIGTERM of ranks 0,2; 0 of rank 1\n");
    }
    let outcome = shell("-n 1", "while :; do :; done").env("MPIEXEC_TIMEOUT", "1").run();
    outcome.code(124).warns("the time limit of 1 s is reached");
    shell("-n 1 --timeout 60 -print-all-exitcodes", "exit 3")
        .run()
        .code(3)
        .warns("exit codes: 3 of rank 0\n");
}

/// Runs a job with longer and longer time limits, until its report holds all `parts`: a busy machine may need long to get
/// there.
fn await_report(job: impl Fn(u32) -> Job, parts: &[&str]) {
    for limit in [2, 8, 32] {
        let outcome = job(limit).run();
        outcome.code(124);
        if limit == 32 || parts.iter().all(|part| outcome.stderr.contains(part)) {
            for part in parts {
                outcome.warns(part);
            }
            return;
        }
    }
}

#[test]
fn a_time_limit_shows_the_states_of_the_ranks() {
    let steps = "init1\nonly 1\nforever\nall\nfence1\nend1";
    for options in ["-n 3".to_owned(), format!("-n 3 {}", nodes(2, 2, 2))] {
        let job = |limit| raw(&format!("--timeout {limit} {options}"), steps);
        await_report(job, &["raw, in fence 1 for ", "raw, initialized\n", "3 ranks were ended\n"]);
    }
    // More ranks than are listed.
    let job = |limit| shell(&format!("--timeout {limit} -n 18"), "exec sleep 1000");
    await_report(job, &["program sh, started\n", "  and 2 more\n", "  18 ranks started: 0-17\n"]);
}

#[test]
fn a_time_limit_prints_stack_traces() {
    let folder = Folder::new("stack-traces");
    folder.executable("gdb", "#!/bin/sh\necho noise\nprintf '\\nThread 1 of %s\\n#0 main\\n' \"$*\"\n");
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    for options in ["-n 3".to_owned(), format!("-n 3 {}", nodes(2, 2, 2))] {
        let options = format!("{options} --get-stack-traces");
        let job = |limit| {
            shell(&format!("--timeout {limit} {options}"), "exec sleep 1000").env("PATH", path.as_str())
        };
        let trace = ":\nhydrant:   Thread 1 of -nx -batch -iex set debuginfod enabled off -p ";
        let parts = ["stack trace of rank 0 on ", "stack trace of rank 2 on ", trace, "3 ranks were ended\n"];
        await_report(job, &parts);
    }
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
fn abort_ends_all_ranks() {
    let outcome =
        raw("-n 3", "init1\nonly 2\nsend cmd=abort exitcode=7 message=enough\\n\nall\nforever").run();
    names(outcome.code(7), 2, "enough");
    let outcome =
        raw("-n 3", "init2\nonly 1\nframe cmd=abort;isworld=TRUE;msg=no; more of;; this;\nall\nforever")
            .run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    names(&outcome, 1, "abort");
}

/// All of a message is printed, in the lines and letters that the rank has sent. What would act on a terminal is escaped.
#[test]
fn an_abort_message_is_printed_whole() {
    let long = "m".repeat(1020) + "END!";
    for (said, printed) in [
        (&*long, &*long),
        (r"café: one\ntwo", "café: one\nhydrant:     two"),
        ("a\u{1b}]0;;t\u{7}b", r"a\x1b]0;t\x07b"),
    ] {
        for options in ["-n 1", "--bootstrap local -hosts a,b -n 2", "--pmi-port -n 1"] {
            let steps =
                format!("init2\nonly 0\nframe cmd=abort;exitcode=3;isworld=TRUE;msg={said};\nall\nforever");
            raw(options, &steps)
                .run()
                .code(3)
                .warns(&format!("rank 0 aborted the job with code 3: {printed}\n"));
        }
        let steps = format!("init2\nframe cmd=abort;exitcode=3;isworld=FALSE;msg={said};\nforever");
        raw("-n 1", &steps).run().code(3).warns(&format!("rank 0 aborted itself with code 3: {printed}\n"));
    }
    let steps = format!("init1\nsend cmd=abort exitcode=7 message={long}\\n\nforever");
    raw("-n 1", &steps).run().code(7).warns(&format!("aborted the job with code 7: {long}\n"));
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let script = format!(
        "{ASK} init; test $PMI_RANK = 1 || exec sleep 1000
        printf 'cmd=abort exitcode=77 message=no_more_water\\n' >&$PMI_FD; exit 0"
    );
    let outcome = shell("-n 3", &script).run();
    outcome.code(77).stderr_starts("hydrant: rank 1 aborted the job with code 77: no_more_water\n");
    outcome.stderr_ends("2 other ranks were ended");
    // OpenSHMEM's shmem_global_exit(0), after which a rank of Sandia OpenSHMEM calls abort().
    let success = script.replace("77", "0").replace("exit 0", "kill -ABRT $$");
    shell("-n 3", &success).run().code(0).stderr_starts("hydrant: rank 1 aborted the job with code 0: ");
}

#[test]
fn requests_of_a_process_that_has_ended_are_served() {
    // The rank reads no reply: all three requests are under way when the process ends.
    let script =
        r#"printf 'cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=finalize\n' >&$PMI_FD"#;
    for _ in 0..20 {
        shell("-n 2", script).run().code(0).quiet();
    }
}

#[test]
fn leaving_without_init_while_others_wait_ends_the_job() {
    for fence in ["init1\nfence1", "init2\nfence2"] {
        let outcome = raw("-n 4", &format!("only 2\nexit 0\nall\n{fence}\nsay never")).run();
        outcome.code(1).says("never", 0);
        outcome.stderr_starts("hydrant: rank 2 exited with code 0 while others wait for it");
        names(&outcome, 2, "exited with code 0");
    }
}

/// Ranks that have initialized may wait for each other without PMI, as MPICH's do in shared memory.
#[test]
fn leaving_without_init_ends_the_job_of_ranks_that_have_initialized() {
    let outcome = raw("-n 3", "only 0\nexit 0\nall\ninit1\nforever").run();
    outcome.code(1).stderr_starts("hydrant: rank 0 exited with code 0 while others wait for it\n");
    names(&outcome, 0, "2 other ranks were ended");
    raw("-n 3", "exit 0").run().code(0).quiet();
}

// Fault: A rank is late to `MPI_Init`, and the others wait for it in shared memory
// Outcome: a line names the rank, its pid and its host after `--fence-warning`
// Guarantee: Such ranks are reported once
#[test]
fn a_rank_that_is_late_to_initialize_is_named() {
    let steps = "only 0\ncat\nexit 6\nall\ninit1\nforever";
    let mut job = raw("--fence-warning 0.1 -n 2", steps).hold_input().start();
    job.await_stderr("ranks have been waiting for 0.1 s: 1 of 2 have come, missing: rank 0 (pid ");
    job.end_input();
    names(job.wait().code(6), 0, "exited with code 6 while others wait for it");
}

// Fault: A rank closes its PMI connection without finalize or sends rubbish, and lives
// Outcome: the job ends and names the rank; without cleanup it continues without it
// Guarantee: A rank that is cut off for 500 ms is lost once another one waits for it
// Also: nodes `failures::a_rank_that_is_cut_off_from_pmi_is_lost_to_other_hosts`
#[test]
fn a_rank_that_is_cut_off_from_pmi_ends_the_job_once_others_wait_for_it() {
    // The first closes the connection itself, the second one's is closed.
    for cut in ["hangup", "send GET / HTTP/1.1\\n"] {
        let outcome = raw("-n 3", &format!("init1\nonly 1\n{cut}\nforever\nall\nfence1\nsay never")).run();
        outcome.code(1).says("never", 0);
        names(&outcome, 1, "closed its PMI connection without finalizing while others wait for it");
        outcome.stderr_ends("2 other ranks were ended");
    }
    // No rank waits for it.
    let outcome = raw("-n 3", "init1\nonly 1\nhangup\nkill 9\nall\nforever").run();
    names(outcome.code(137), 1, "died by SIGKILL");
}

#[test]
fn survivors_of_a_rank_that_is_cut_off_go_on_without_cleanup() {
    let steps = "init1\nonly 1\nhangup\nall\nonly 0,2\nfence1\nend1\nsay done";
    raw("-disable-auto-cleanup -n 3", steps).run().says("done", 2);
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
    for init in ["init1", "init2"] {
        let outcome = raw("-n 3", &format!("{init}\nonly 0\nexit 0\nall\nforever")).run();
        outcome.code(1).stderr_starts("hydrant: rank 0 exited with code 0 without finalizing\n");
        outcome.warns("\nhydrant:   it left between MPI_Init and MPI_Finalize, or by _exit() behind the MPI_Finalize of ");
        names(&outcome, 0, "without finalizing");
    }
}

#[test]
fn without_cleanup_the_others_go_on() {
    let steps = "only 1\nkill 9\nall\ninit1\nfence1\nfence1\nend1\nsay done";
    let outcome = raw("-disable-auto-cleanup -n 4", steps).run();
    outcome.code(137).says("done", 3).warns(", program ").warns(" died by SIGKILL; the other ranks go on\n");
}

#[test]
fn survivors_of_a_rank_that_had_joined_go_on_without_cleanup() {
    let script = format!(
        "{ASK} init; test $PMI_RANK = 1 && exit 4
        ask cmd=barrier_in; echo \"$reply\"; ask cmd=finalize"
    );
    let outcome = shell("-disable-auto-cleanup -n 3", &script).run();
    outcome.code(4).stdout_is(&"cmd=barrier_out rc=0\n".repeat(2));
}

#[test]
fn ranks_see_that_their_launcher_is_gone() {
    let job = raw("-n 3", "init1\nsay up\neof").start();
    job.await_stdout("up", 3).signal(Signal::KILL);
    // Waiting also sees that nothing is left running.
    job.wait().signaled(Signal::KILL);
}

#[test]
fn deaths_that_a_job_survives_may_not_count() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        for (options, script, code) in [
            ("", "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0", 137),
            ("-exit-code survivors", "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0", 0),
            ("--enable-recovery", "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0", 0),
            ("--enable-recovery -exit-code first", "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0", 137),
            ("-exit-code survivors", "kill -9 $$", 137),
            (
                "-exit-code survivors",
                "[ $PMI_RANK = 1 ] && kill -9 $$; [ $PMI_RANK = 2 ] && exit 3; exit 0",
                3,
            ),
        ] {
            shell(&format!("-disable-auto-cleanup {options} {hosts} -n 3"), script).run().code(code);
        }
    }
}
