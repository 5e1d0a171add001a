//! Ranks, daemons and launchers that fail: the job ends, the host is named, and nothing is left running anywhere.

use hydrant_tests::{Folder, Job, children, nodes};
use rustix::process::{Signal, kill_process};

use crate::{raw, shell};

#[test]
fn a_rank_that_dies_is_named_with_its_host() {
    let outcome = raw("-n 8", "init1\nfence1\nonly 5\nkill 9\nall\nforever").run();
    outcome
        .code(137)
        .warns("rank 5 died by SIGKILL\n")
        .warns("rank 5 on n3, pid ")
        .warns("7 other ranks were ended\n");
    let outcome = raw("-n 8", "init1\nfence1\nonly 6\nexit 4\nall\nfence1").run();
    outcome.code(4).warns("rank 6 exited with code 4 without finalizing\n").warns("rank 6 on n4, pid ");
    let outcome = raw("-n 8", "only 7\nexit 0\nall\ninit1\nfence1").run();
    outcome.code(1).warns("rank 7 exited with code 0 while others wait for it");
}

#[test]
fn the_exit_code_is_the_first_failures() {
    shell("-n 8", "exit $((PMI_RANK == 6 ? 9 : 0))").run().code(9).warns("rank 6 on n4, pid ");
    shell("-n 8", "exit 0").run().code(0).quiet();
}

#[test]
fn what_several_hosts_cannot_have_is_refused_by_name() {
    shell("--pmi-port=127.0.0.2:0 -n 8", "exit 9")
        .run()
        .code(2)
        .warns("--pmi-port=127.0.0.2:0 is for jobs on this host");
}

#[test]
fn abort_ends_all_ranks() {
    let steps = "init1\nfence1\nonly 2\nsend cmd=abort exitcode=7 message=enough\\n\nall\nforever";
    let outcome = raw("-n 8", steps).run();
    outcome.code(7).warns("rank 2 aborted the job with code 7: enough\n").warns("rank 2 on n2, pid ");
    outcome.warns("7 other ranks were ended\n");
}

#[test]
fn aborting_oneself_leaves_the_others() {
    let steps = "init2\nonly 5\nframe cmd=abort;isworld=FALSE;msg=alone;exitcode=3;\nforever\nall\nfence2\nend2\nsay done";
    raw("-n 8", steps).run().code(3).says("done", 7).warns("rank 5 aborted itself with code 3: alone\n");
}

#[test]
fn survivors_go_on_without_the_dead() {
    let steps = "init2\nonly 3,4\nkill 9\nall\nfence2\nend2\nsay done";
    let outcome = raw("-disable-auto-cleanup -n 8", steps).run();
    outcome.code(137).says("done", 6).warns(" died by SIGKILL; the other ranks go on\n");
}

#[test]
fn a_program_that_is_not_there_is_not_started_anywhere() {
    let outcome = Job::hydrant(&nodes(4, 2, 2)).words("-n 8 /no/such/program").run();
    outcome.code(127).warns("cannot start /no/such/program: not found").warns("host n");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    let outcome = Job::hydrant(&nodes(4, 2, 2)).words("-wdir /no/such/dir -n 8 true").run();
    outcome.code(126).warns("cannot use the working directory /no/such/dir").warns("host n");
}

#[test]
fn a_daemon_that_is_killed_ends_the_job() {
    let job = raw("-n 8", "init1\nfence1\nsay up\nforever").start();
    job.await_stdout("up\n", 8);
    // Of four hosts in a binary tree the head starts n1, with n2 and n3 below, and n4.
    kill_process(job.children()[0], Signal::KILL).expect("the daemon runs");
    let outcome = job.wait();
    outcome.code(1).warns("host n1 (node 1): its daemon is lost: its connection was closed\n");
    outcome.warns("6 ranks were running there and on the 2 hosts below it, 2 other ranks were ended\n");
}

#[test]
fn leaving_without_init_ends_the_job_of_ranks_on_other_hosts() {
    // Rank 0 leaves when its input ends, and that is when all others run.
    let mut job = raw("-n 8", "only 0\ncat\nexit 3\nall\ninit1\nsay up\nforever").hold_input().start();
    job.await_stdout("up\n", 7);
    job.end_input();
    let outcome = job.wait();
    outcome.code(3).stderr_starts("hydrant: rank 0 exited with code 3 while others wait for it\n");
    outcome.stderr_ends("7 other ranks were ended");
}

#[test]
fn a_rank_that_is_cut_off_from_pmi_is_lost_to_other_hosts() {
    let outcome = raw("-n 4", "init1\nonly 1\nhangup\nforever\nall\nfence1\nsay never").run();
    outcome.code(1).says("never", 0);
    outcome.warns("rank 1 closed its PMI connection without finalizing while others wait for it\n");
}

#[test]
fn a_daemon_that_stands_still_ends_the_job() {
    let job = raw("--heartbeat 4 -n 8", "init1\nfence1\nsay up\nforever").start();
    job.await_stdout("up\n", 8);
    kill_process(job.children()[0], Signal::STOP).expect("the daemon runs");
    let outcome = job.wait();
    outcome.code(1).warns("host n1 (node 1): its daemon is lost: no message for 4 s\n");
}

#[test]
fn a_daemon_in_the_middle_takes_only_those_below_it_along() {
    // Of seven hosts in a binary tree the head starts n1, n1 starts n2 and n4, and n2 starts n3.
    let job = Job::hydrant(&nodes(7, 1, 2)).words("-n 7").arg(crate::RAW);
    let job = job.steps("init1\nfence1\nsay up\nforever").start();
    job.await_stdout("up\n", 7);
    // The first child of a daemon is its guardian.
    kill_process(children(job.children()[0])[1], Signal::KILL).expect("the daemon runs");
    let outcome = job.wait();
    outcome.code(1).warns("host n2 (node 2): its daemon is lost: its connection was closed\n");
    outcome.warns("2 ranks were running there and on the host below it, 5 other ranks were ended\n");
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    // Daemons that are forked, and daemons that connect over an interface.
    for (hosts, radix, links) in [(1, 2, ""), (4, 2, ""), (16, 3, ""), (4, 2, "--iface lo")] {
        let options = format!("{} {links} -n {}", nodes(hosts, 2, radix), 2 * hosts);
        // What ranks have started is to go, too.
        let script = "sleep 1000 & echo up; wait";
        let job = Job::hydrant(&options).args(["sh", "-c"]).arg(script).start();
        job.await_stdout("up\n", 2 * hosts as usize);
        job.signal(Signal::KILL);
        // Waiting also sees that nothing is left.
        job.wait().signaled(Signal::KILL);
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_named_and_nothing_starts() {
    let command = "exec:sh -c 'test {host} != n3 || { echo no route >&2; exit 255; }; exec {args}'";
    let job = Job::hydrant("-hosts n[1-4] --iface lo --radix 2 --bootstrap").arg(command);
    let outcome = job.words("-n 4 echo started").run();
    outcome.code(1).says("started", 0).warns("the job was not started: host n3 (node 3): ").warns("no route");
}

/// An ssh to which that happens at its first `failures` starts for each host. Each start adds a line with the host to its log.
fn late_ssh(folder: &Folder, says: &str, failures: u32) -> String {
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\necho \"$2\" >>{log}\n\
         if [ $(grep -cx \"$2\" {log}) -le {failures} ]; then echo '{says}' >&2; exit 255; fi\n\
         shift 2\nexec sh -c \"$*\"\n",
        log = folder.path("starts"),
    );
    folder.executable("ssh", &script)
}

/// How often ssh was started for a host.
fn starts(folder: &Folder, host: &str) -> usize {
    folder.read("starts").lines().filter(|line| *line == host).count()
}

const UNKNOWN_NAME: &str = "ssh: Could not resolve hostname pod: Name or service not known";

#[test]
fn an_ssh_that_fails_at_first_is_started_again() {
    let folder = Folder::new("ssh-late");
    let ssh = late_ssh(&folder, UNKNOWN_NAME, 2);
    // With radix 2, n3 and n4 are started by daemons.
    let options = format!("-hosts n1,n2,n3,n4 -radix 2 --bootstrap-exec {ssh} --iface lo -n 4 sh -c");
    let outcome = Job::hydrant(&options).arg("echo $PMI_HOSTNAME").run();
    outcome.code(0);
    let mut lines = outcome.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["n1", "n2", "n3", "n4"]);
    assert_eq!(["n1", "n2", "n3", "n4"].map(|host| starts(&folder, host)), [3; 4]);
}

#[test]
fn an_ssh_that_fails_for_long_is_reported_and_given_up() {
    let folder = Folder::new("ssh-refused");
    let ssh = late_ssh(&folder, "ssh: connect to host n2 port 22: Connection refused", 1_000);
    let options = format!("-hosts n1 --bootstrap-timeout 2.5 --bootstrap-exec {ssh} --iface lo -n 1 true");
    let outcome = Job::hydrant(&options).run();
    let starts = starts(&folder, "n1");
    outcome.code(1).warns(&format!(
        "hydrant: host n1 (node 1): {ssh} ended with exit code 255, and is started again until 2.5 s have passed \
         (--bootstrap-timeout)\nhydrant:     ssh: connect to host n2 port 22: Connection refused\n"
    ));
    outcome.warns(&format!("the job was not started: host n1 (node 1): {ssh} failed "));
    outcome.warns(" times within 2.5 s (--bootstrap-timeout) before the daemon had joined\n");
    assert!(starts > 2, "{starts}");
}

#[test]
fn an_ssh_that_is_denied_is_started_once() {
    let folder = Folder::new("ssh-denied");
    let ssh = late_ssh(&folder, "Host key verification failed.", 1);
    let outcome = Job::hydrant(&format!("-hosts n1 --bootstrap-exec {ssh} --iface lo -n 1 true")).run();
    outcome.code(1).warns("ended with exit code 255 before the daemon had joined");
    assert_eq!(starts(&folder, "n1"), 1);
}

#[test]
fn a_host_that_ssh_does_not_reach_is_named_with_a_command_to_try() {
    let folder = Folder::new("ssh-unreachable");
    let ssh = folder.executable("ssh", "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n");
    let options = format!("-hosts n1 --bootstrap ssh --bootstrap-exec {ssh} --iface lo -n 1 echo started");
    let outcome = Job::hydrant(&options).run();
    outcome.code(1).says("started", 0).warns("    Permission denied (publickey).\n").warns(
        "hint: try: ssh -o BatchMode=yes n1 true. If that works, install hydrant at the same path there, or name its path \
         with --remote-hydrant\n",
    );
}

#[test]
fn a_host_that_keeps_silent_is_named_with_the_option_that_waits_longer() {
    let command = "exec:sh -c 'exec sleep 1000' {host} {args}";
    let job = Job::hydrant("-hosts n[1-2] --iface lo --bootstrap-timeout 0.5 --bootstrap").arg(command);
    let outcome = job.words("-n 2 echo started").run();
    outcome.code(1).says("started", 0).warns(
        "the job was not started: host n1 (node 1): its daemon has not joined within 0.5 s (--bootstrap-timeout)\n",
    );
}

// Fault: `--limit ranks=N` is below the ranks of a job on several hosts, or too high for a message
// Outcome: nothing is started, and the message names the limit
// Guarantee: Tables are checked before anything starts
// Also: hydrant-run `members_of_a_group_fit_into_a_message`, `there_is_a_process_set_for_each_node_of_each_job`
#[test]
fn a_limit_of_ranks_that_is_too_low_or_too_high_is_named_and_nothing_starts() {
    let run = |limit: &str| {
        let outcome =
            Job::hydrant(&nodes(2, 2, 2)).words(&format!("-n 4 --limit ranks={limit} echo started")).run();
        outcome.code(1).says("started", 0);
        outcome
    };
    run("3").warns("limit ranks (3) is used up\n").warns("raise it with --limit ranks=N");
    let high = run("4294967295");
    high.warns("the limit ranks of 4294967295 is too large for several hosts")
        .warns("lower it with --limit ranks=N");
}

#[test]
fn a_late_fence_names_who_is_missing() {
    // The first fence ends when all ranks run.
    let steps = "init1\nfence1\nonly 0\ncount\nall\nfence1\nend1\nsay done";
    let mut job = raw("--fence-warning 1 -n 8", steps).hold_input().start();
    job.await_stderr("ranks have been waiting for 1 s: missing: rank 0 (pid ").await_stderr(" on n1)\n");
    job.end_input();
    job.wait().code(0).says("done", 8);
}

/// [`hydrant_tests::Running::wait`] fails when a process of the job is left.
#[test]
fn background_children_end_with_the_job() {
    let outcome = shell("-n 8 --drain 0", "sleep 1000 & echo up").run();
    outcome.code(0).says("up\n", 8);
}

#[test]
fn a_killed_daemon_leaves_no_child_of_a_rank_behind() {
    let job = shell("-n 8", "sleep 1000 & echo up; wait").start();
    job.await_stdout("up\n", 8);
    kill_process(job.children()[0], Signal::KILL).expect("the daemon runs");
    job.wait().code(1);
}

#[test]
fn a_killed_daemon_leaves_no_group_or_session_of_a_rank_behind() {
    let script = "setsid sh -c 'sleep 1000 & sleep 1000' & echo up; timeout 1000 sleep 1000; echo no";
    let job = shell("-n 8", script).start();
    job.await_stdout("up\n", 8);
    kill_process(job.children()[0], Signal::KILL).expect("the daemon runs");
    job.wait().code(1);
}

/// The helper of each rank begins to copy once the rank has been collected.
#[test]
fn what_helpers_were_given_arrives_from_all_hosts() {
    let script = "exec > >({ while kill -0 $$ 2>/dev/null; do :; done; exec cat; }); echo given; exit $((PMI_RANK == 6))";
    let outcome = Job::hydrant(&nodes(4, 2, 2)).words("-n 8").args(["bash", "-c"]).arg(script).run();
    outcome.code(1).says("given\n", 8);
}
