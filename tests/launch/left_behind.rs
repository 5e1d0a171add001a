//! Processes that ranks leave behind: their output arrives, and they end with the job.
//!
//! [`hydrant_tests::Running::wait`] fails when a process of the job is left.

use std::process::Command;

use hydrant_tests::{Folder, Job, Running, hydrant_path, nodes};
use rustix::process::{Signal, kill_process};

/// A shell script for bash as a job's only program.
fn bash(options: &str, script: &str) -> Job {
    Job::hydrant(options).args(["bash", "-c"]).arg(script)
}

/// Options for a job on one host, in several forms, and on two.
fn all_hosts() -> Vec<String> {
    let mut all: Vec<String> = ["", "-l", "-pty always"].map(str::to_owned).into();
    all.push(nodes(2, 2, 2));
    all.push(format!("-l -pty always {}", nodes(2, 2, 2)));
    all
}

/// A helper that begins to copy once its rank has been collected.
const LATE: &str = "{ while kill -0 $$ 2>/dev/null; do :; done; exec cat; }";

// Fault: A rank ends before a `tee` or `gzip` has copied its output
// Outcome: the output arrives, also when the job fails
// Guarantee: Output is read to its end; what reads a pipe is spared by signals and waited for
// Also: launch `left_behind::what_a_helper_was_given_arrives_when_the_job_fails`, nodes
// `failures::what_helpers_were_given_arrives_from_all_hosts`
#[test]
fn what_a_helper_was_given_arrives() {
    let script = format!("exec > >({LATE}) 2>&1; echo given to $PMI_RANK");
    for options in all_hosts() {
        bash(&format!("-n 2 {options}"), &script).run().code(0).says("given to ", 2);
    }
}

#[test]
fn a_helper_that_writes_to_a_file_ends_what_it_writes() {
    let folder = Folder::new("gzip");
    for (at, options) in all_hosts().into_iter().enumerate() {
        let path = folder.path(&format!("numbers-{at}"));
        let script = format!(
            "seq 5000 > >({{ while kill -0 $$ 2>/dev/null; do :; done; exec gzip >{path}-$PMI_RANK.gz; }})"
        );
        bash(&format!("-n 2 {options}"), &script).run().code(0).quiet();
        for rank in 0..2 {
            let output = Command::new("gzip").args(["-dc", &format!("{path}-{rank}.gz")]).output().unwrap();
            assert!(output.status.success() && output.stdout.ends_with(b"\n5000\n"), "{options}: {output:?}");
        }
    }
}

/// A script whose helper is at work and has been given a line. `ready` is a path that no other job uses.
fn given(ready: &str) -> String {
    format!(
        "exec > >(: >{ready}-helper-$PMI_RANK; {LATE}); echo given to $PMI_RANK; \
         until test -e {ready}-helper-$PMI_RANK; do :; done; "
    )
}

#[test]
fn what_a_helper_was_given_arrives_when_the_job_fails() {
    let folder = Folder::new("failed");
    for (at, options) in all_hosts().into_iter().enumerate() {
        let ready = folder.path(&format!("ready-{at}"));
        let both =
            format!(": >{ready}-$PMI_RANK; until test -e {ready}-0 && test -e {ready}-1; do :; done; ");
        let fails = format!("{}{both}test $PMI_RANK = 1 && kill -9 $$; sleep 1000", given(&ready));
        bash(&format!("-n 2 {options}"), &fails).run().code(128 + 9).says("given to ", 2);
        let late = format!("{}sleep 1000", given(&folder.path(&format!("late-{at}"))));
        bash(&format!("-n 2 --timeout 1.5 {options}"), &late).run().code(124).says("given to ", 2);
    }
}

#[test]
fn a_helper_of_a_job_that_a_signal_ends_gets_its_input() {
    let folder = Folder::new("signal");
    for (at, options) in all_hosts().into_iter().enumerate() {
        let script = format!("{}echo up >&2; sleep 1000", given(&folder.path(&format!("ready-{at}"))));
        let job = bash(&format!("-n 1 {options}"), &script).start();
        job.await_stderr_or_stdout("up").signal(Signal::TERM);
        job.wait().code(128 + 15).says("given to 0", 1);
    }
}

/// A job's line on either stream: on a pseudo-terminal there is one.
trait AwaitEither {
    fn await_stderr_or_stdout(&self, text: &str) -> &Running;
}

impl AwaitEither for Running {
    fn await_stderr_or_stdout(&self, text: &str) -> &Running {
        while !self.stderr().contains(text) && !self.stdout().contains(text) {
            std::thread::yield_now();
        }
        self
    }
}

// Fault: A rank leaves processes behind, or moves to another process group
// Outcome: they are named after `--drain` seconds, and end with the job
// Guarantee: Descendants are found in any group or session
// Also: launch `left_behind::a_rank_that_leaves_its_group_ends_with_the_job`
#[test]
fn what_does_not_end_is_named_and_ended() {
    let script = "sleep 1000 & setsid sh -c 'exec sleep 1000' & (trap '' TERM; exec sleep 1000) & echo up";
    for options in ["-n 1".to_owned(), format!("-n 2 {}", nodes(2, 1, 2))] {
        for script in [script.to_owned(), format!("{script}; exit 3")] {
            let outcome = bash(&format!("--drain 0.2 --kill-grace 0.1 {options}"), &script).run();
            let code = if script.ends_with('3') { 3 } else { 0 };
            outcome.code(code).warns("ending 3 processes that ranks left behind on ").warns("sleep (pid ");
        }
    }
}

/// The head has started the first host's daemon when it forks the second one.
#[test]
fn what_has_no_environment_is_found_on_all_hosts() {
    let options = format!("-n 2 --drain 0.2 --kill-grace 0.1 {}", nodes(2, 1, 2));
    let outcome = bash(&options, "setsid env -i sleep 1000 &").run();
    outcome.code(0);
    for host in ["n1", "n2"] {
        outcome.warns(&format!("ending 1 process that ranks left behind on {host}: sleep (pid "));
    }
}

#[test]
fn a_signal_hastens_the_end_and_a_second_one_kills() {
    let script = "{ trap '' TERM INT; while kill -0 $$ 2>/dev/null; do :; done; echo waits >&2; \
                  while :; do sleep 1; done; } &";
    let job = bash("-n 1 --drain 1000 --kill-grace 1000", script).start();
    job.await_stderr("waits\n").signal(Signal::INT);
    // The shell, and mostly its `sleep`.
    job.await_stderr(" that ranks left behind on ").signal(Signal::INT);
    job.wait().code(128 + 2);
}

/// Scripts that put a process into a group or session of its own, and wait for it.
const APART: [&str; 4] = [
    "echo up; timeout 1000 sleep 1000; echo no",
    "set -m; sleep 1000 & echo up; wait",
    "echo up; setsid -w sleep 1000; echo no",
    "(setsid sh -c 'setsid sleep 1000 & sleep 1000' &); echo up; sleep 1000",
];

#[test]
fn groups_and_sessions_of_their_own_end_with_the_job() {
    for options in [String::new(), nodes(2, 2, 2)] {
        for script in APART {
            let start = || {
                let job = bash(&format!("-n 2 {options}"), script).start();
                job.await_stdout("up\n", 2);
                job
            };
            for signal in [Signal::TERM, Signal::KILL] {
                let job = start();
                job.signal(signal);
                let outcome = job.wait();
                assert!(!outcome.stdout.contains("no"), "{outcome}");
                if signal == Signal::TERM {
                    outcome.code(128 + 15);
                }
            }
            bash(&format!("-n 2 --timeout 1 {options}"), script).run().code(124);
            let fails = format!("test $PMI_RANK = 0 || {{ sleep 0; kill -9 $$; }}; {script}");
            bash(&format!("-n 2 {options}"), &fails).run().code(128 + 9);
        }
    }
}

#[test]
fn a_rank_that_leaves_its_group_ends_with_the_job() {
    // Without its child the group would be gone.
    let script = "import os, signal, subprocess, time\n\
                  child = subprocess.Popen(['sleep', '1000'], preexec_fn=lambda: os.setpgid(0, 0))\n\
                  os.setpgid(0, child.pid)\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  time.sleep(1000)";
    for options in [String::new(), nodes(2, 2, 2)] {
        let job = Job::hydrant(&format!("-n 1 --timeout 1 {options}")).args(["python3", "-c"]).arg(script);
        job.run().code(124);
    }
}

// Fault: A launcher or a daemon gets SIGKILL, also while it starts ranks
// Outcome: all processes of the job are killed
// Guarantee: A guardian kills the ranks' groups and marked orphans when its pipe closes
// Also: launch `left_behind::groups_and_sessions_of_their_own_end_with_the_job`, nodes
// `failures::a_killed_daemon_leaves_no_group_or_session_of_a_rank_behind`
#[test]
fn a_launcher_that_is_killed_while_it_starts_ranks_leaves_nothing() {
    for _ in 0..20 {
        let job = bash("-n 32", "sleep 1000 & echo up; wait").start();
        job.await_stdout("up\n", 1).signal(Signal::KILL);
        job.wait().signaled(Signal::KILL);
    }
}

// Fault: A guardian is stopped
// Outcome: the run ends
// Guarantee: The launcher kills its guardian in place of asking it
#[test]
fn a_stopped_guardian_holds_up_nothing() {
    let mut job = bash("-n 1", "echo up; read line").hold_input().start();
    job.await_stdout("up\n", 1);
    let guardian = *job.children().first().expect("it starts before the ranks");
    kill_process(guardian, Signal::STOP).expect("it runs");
    job.end_input();
    job.wait().code(1);
}

// Fault: Ranks ignore the user's SIGTERM
// Outcome: they are named after 3 s; a second SIGTERM or `--kill-grace` kills them
// Guarantee: Escalation by count and time
#[test]
fn ranks_that_ignore_a_signal_are_named_and_a_second_one_kills_them() {
    for options in ["-n 2".to_owned(), format!("-n 2 {}", nodes(2, 1, 2))] {
        let script = "trap '' TERM; echo up; while :; do sleep 1; done";
        let job = bash(&options, script).start();
        job.await_stdout("up\n", 2).signal(Signal::TERM);
        job.await_stderr("still running 3 s after SIGTERM: rank 0 (pid ").await_stderr(", rank 1 (pid ");
        job.await_stderr("a second SIGTERM kills them\n").signal(Signal::TERM);
        job.wait().code(128 + 15).warns("ended by SIGTERM");
        let job = bash(&format!("--kill-grace 0.3 {options}"), script).start();
        job.await_stdout("up\n", 2).signal(Signal::TERM);
        job.wait().code(128 + 15);
    }
}

#[test]
fn timeout_s_two_signals_are_one() {
    // timeout(1) signals its child, and then its process group.
    let launcher = [hydrant_path(), "run", "-n", "1", "bash", "-c"];
    let script = "trap 'sleep 0.2; echo saved; exit 0' TERM; while :; do sleep 0.1; done";
    let job = Job::new("timeout").arg("1").args(launcher).arg(script);
    job.run().code(124).says("saved\n", 1);
}
