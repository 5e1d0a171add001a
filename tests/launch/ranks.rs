//! Processes of ranks: how they start, what they inherit, and how they end.

use std::fs;

use hydrant_tests::{Folder, Job, hydrant_path};
use rustix::process::{Signal, WaitOptions, waitpid};

use crate::{RAW, shell};

#[test]
fn the_first_failure_is_the_exit_code() {
    shell("-n 4", "exit 0").run().code(0);
    let outcome = shell("-n 3", "test $PMI_RANK != 1 || exit 7").run();
    outcome.code(7).stderr_starts("hydrant: rank 1 on ").stderr_ends("program sh exited with code 7");
    shell("-n 3", "exit 2").run().code(2).warns("and 2 more ranks failed");
}

#[test]
fn a_rank_killed_by_a_signal_ends_the_job() {
    let outcome = shell("-n 3", "test $PMI_RANK = 2 && kill -SEGV $$; sleep 1000").run();
    outcome.code(128 + 11);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "hydrant: rank 2 died by SIGSEGV"), "{outcome}");
    assert!(lines[1].contains("rank 2 on ") && lines[1].contains(", pid "), "{outcome}");
    assert!(lines[1].ends_with("program sh"), "{outcome}");
    assert!(lines[2].ends_with("2 other ranks were ended"), "{outcome}");
}

/// [`hydrant_tests::Running::wait`] fails when a process of the job is left.
#[test]
fn ranks_that_ignore_their_end_are_killed_with_all_they_started() {
    // Rank 1 dies once the others ignore TERM.
    let folder = Folder::new("ignored");
    let ready = folder.path("ready");
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $!; : >{ready}-$PMI_RANK; test $PMI_RANK = 1 || wait; \
         until test -e {ready}-0 && test -e {ready}-2; do :; done; kill -9 $$"
    );
    let outcome = shell("-n 3", &script).run();
    assert_eq!(outcome.code(128 + 9).lines().len(), 3, "{outcome}");
}

#[test]
fn a_program_that_cannot_be_started_starts_nothing() {
    let folder = Folder::new("nothing");
    let mark = folder.path("started");
    let script = folder.executable("script", "#!/nowhere/sh\n");
    let outcome = Job::hydrant("").arg(&script).run();
    outcome
        .code(126)
        .warns(&format!("({script}): its interpreter (first line) or dynamic loader was not found"))
        .warns("hint: correct the first line: there is no \"/nowhere/sh\"");
    let outcome = Job::hydrant("-wdir /nowhere -n 1 true").run();
    outcome
        .code(126)
        .warns("cannot use the working directory /nowhere: ")
        .warns("hint: the ranks of each host");
    Job::hydrant("4").run().code(127).warns("hint: '4' is taken for the program");
    for (command, code, words) in [
        ("./nowhere", 127, "cannot start ./nowhere: not found"),
        ("nowhere", 127, "cannot start nowhere: not found in the ranks' PATH"),
        ("/etc/passwd", 126, "cannot start /etc/passwd: Permission denied"),
    ] {
        let outcome = Job::hydrant("-n 2 touch").arg(&mark).words(": -n 2").arg(command).run();
        outcome.code(code).stderr_starts(&format!("hydrant: {words}"));
    }
    Job::hydrant("-n 1 -wdir /nowhere touch").arg(&mark).run().code(126);
    Job::hydrant("-n 0 touch").arg(&mark).run().code(2);
    assert!(!folder.0.join("started").exists());
}

#[test]
fn a_program_is_looked_up_where_its_rank_starts() {
    let folder = Folder::new("wdir");
    // No #! line: a shell runs it.
    folder.executable("prog", "pwd; echo $0 $1\n");
    let dir = folder.0.to_str().expect("the folder's path is text");
    let outcome = Job::hydrant("-n 1 -wdir").args([dir, "./prog", "x y"]).run();
    outcome.code(0).stdout_is(&format!("{dir}\n./prog x y\n"));
    for path in [".:/bin:/usr/bin", "/bin:/usr/bin"] {
        let job = Job::hydrant("-n 1 -wdir").arg(dir).args(["-env", "PATH", path, "prog"]);
        job.run().code(0).stdout_is(&format!("{dir}\n./prog\n"));
    }
}

#[test]
fn descriptors_variables_and_signal_masks_do_not_leak_into_ranks() {
    // Descriptors 8 and 9 are open in the launcher, and not close-on-exec: the user passes them on.
    let rank = "ls /proc/$$/fd; env | grep -c =foreign; grep -E 'SigIgn|SigBlk' /proc/self/status";
    let script = format!("exec 8</dev/null 9</dev/null; exec {} run -n 2 sh -c \"$1\"", hydrant_path());
    let launcher = Job::new("sh").args(["-c", &script, "sh", rank]);
    let outcome = launcher
        .env("PMIX_RANK", "foreign")
        .env("PMIX_MCA_psquash", "foreign")
        .env("PMI_FD", "foreign")
        .run();
    // Signals 32 and 33 belong to the C library, which ignores one or both of them in programs that it starts.
    let lines = outcome.lines().into_iter().map(|line| match line.split_once(":\t") {
        Some((name, set)) => {
            let set = u64::from_str_radix(set, 16).expect("a set of signals is a hexadecimal number");
            format!("{name}:\t{:016x}", set & !0x1_8000_0000)
        }
        None => line.to_owned(),
    });
    let zero = |name: &str| format!("{name}:\t0000000000000000");
    // The user has passed 8 and 9, and perhaps others to this test. 200 is the socket of PMI.
    let mut numbers = super::io::passed_on();
    numbers.extend([8, 9, 200]);
    // Of the zeros, two are counts of foreign variables.
    let mut expected: Vec<String> =
        [numbers.as_slice(), &numbers, &[0, 0]].concat().iter().map(u32::to_string).collect();
    expected.sort_unstable();
    expected.extend([zero("SigBlk"), zero("SigBlk"), zero("SigIgn"), zero("SigIgn")]);
    assert_eq!(lines.collect::<Vec<_>>(), expected, "{outcome}");
}

/// A test whose caller ignores signals, as `nohup` and a shell without job control do.
// Fault: The suite is started by `nohup tests/run &`
// Outcome: it passes
// Guarantee: Programs under test start with default actions of signals
#[test]
fn the_caller_s_ignored_signals_do_not_reach_programs_under_test() {
    let own = std::env::current_exe().expect("a running program has a path");
    let script = "trap '' HUP INT QUIT; exec \"$0\" --exact \"$1\"";
    let test = "ranks::descriptors_variables_and_signal_masks_do_not_leak_into_ranks";
    Job::new("sh").args(["-c", script]).arg(own).arg(test).run().code(0).says("1 passed", 1);
}

#[test]
fn each_rank_knows_who_it_is() {
    let script =
        "echo $PMI_RANK/$PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS $PMI_FD ${PMI_ID-none} ${PMI_SPAWNED-no}";
    let outcome = shell("-n 3", script).run();
    let expected = ["0/3 0/3 200 none no", "1/3 1/3 200 none no", "2/3 2/3 200 none no"];
    assert_eq!(outcome.code(0).lines(), expected, "{outcome}");
    let script = "echo $PMI_RANK $PMI_ID ${PMI_FD-none} ${PMI_PORT%:*}";
    let outcome = shell("--pmi-port -n 2", script).run();
    assert_eq!(outcome.code(0).lines(), ["0 0 none 127.0.0.1", "1 1 none 127.0.0.1"], "{outcome}");
}

#[test]
fn open_files_suffice_or_the_job_is_refused() {
    let limited = |limit: &str, ranks: &str| {
        let script = format!("ulimit {limit} 64; exec {} run {ranks}", hydrant_path());
        Job::new("sh").args(["-c", &script]).run()
    };
    let outcome = limited("-n", "-n 40 echo no");
    outcome.code(1).stdout_is("").warns("201 open files are needed, but the hard limit is 64");
    // The launcher raises its own soft limit. The ranks get the user's.
    let outcome = limited("-Sn", "-n 40 sh -c 'ulimit -Sn'");
    assert_eq!(outcome.code(0).lines(), ["64"; 40], "{outcome}");
    limited("-Sn", &format!("-n 64 {RAW} init1 fence1 end1 say done")).code(0).says("done", 64);
}

#[test]
fn a_hangup_that_nohup_ignores_stays_ignored() {
    let script = format!(
        "trap '' HUP; exec {} run -n 1 sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'",
        hydrant_path()
    );
    Job::new("sh").args(["-c", &script]).run().code(0).stdout_is("alive\n");
}

/// Also in a session of its own, where a stop by SIGTSTP has no effect.
#[test]
fn ranks_may_catch_their_stop() {
    let ranks = std::thread::available_parallelism().expect("Linux counts them").get() + 1;
    let folder = Folder::new("caught-stop");
    let caught = folder.path("caught");
    let script =
        format!("trap ': >{caught}-$PMI_RANK' TSTP; trap 'exit 0' USR1; echo up; while :; do :; done");
    let job = shell(&format!("-n {ranks}"), &script).start();
    job.await_stdout("up\n", ranks);
    job.signal(Signal::TSTP);
    waitpid(Some(job.pid()), WaitOptions::UNTRACED).expect("the launcher is a child");
    // A SIGCONT discards a SIGTSTP that the rank has not handled.
    while (0..ranks).any(|rank| !fs::exists(format!("{caught}-{rank}")).expect("the folder is there")) {
        std::thread::yield_now();
    }
    job.signal(Signal::CONT);
    job.signal(Signal::USR1);
    job.wait().code(0);
}

#[test]
fn a_stopped_job_is_stopped_and_goes_on() {
    // So many that one sent to all a second time does not find the first still pending everywhere.
    const RANKS: usize = 16;
    let script = "trap 'echo on' CONT; trap 'exit 0' USR1; echo $$; while :; do :; done";
    let mut job = shell(&format!("-n {RANKS}"), script).start();
    let ranks: [String; RANKS] = job.lines();
    job.signal(Signal::TSTP);
    let (_, status) = waitpid(Some(job.pid()), WaitOptions::UNTRACED)
        .expect("the launcher is a child")
        .expect("it waits for a change");
    assert_eq!(status.stopping_signal(), Some(Signal::TSTP.as_raw()));
    for rank in &ranks {
        let stat = || fs::read_to_string(format!("/proc/{rank}/stat")).expect("the rank is there");
        while !stat().contains(" T ") {
            std::thread::yield_now();
        }
    }
    job.signal(Signal::CONT);
    assert_eq!(job.lines::<RANKS>(), [(); RANKS].map(|()| "on".to_owned()));
    job.signal(Signal::USR1);
    let outcome = job.wait();
    // Each is continued once.
    outcome.code(0).says("on\n", RANKS);
}

// Fault: A child of a rank ignores SIGTERM when the job fails
// Outcome: it is killed when the ranks have ended
// Guarantee: No process in a rank's process group outlives its job
#[test]
fn children_that_ignore_sigterm_are_killed_with_the_job() {
    // Rank 1 dies once both children ignore the signal. The ranks themselves do not ignore it.
    let folder = Folder::new("children");
    let ready = folder.path("ready");
    let script = format!(
        "sh -c 'trap \"\" TERM; : >{ready}-$PMI_RANK; exec sleep 1000' & \
         until test -e {ready}-0 && test -e {ready}-1; do :; done; test $PMI_RANK = 1 || wait; kill -9 $$"
    );
    shell("-n 2", &script).run().code(128 + 9);
}

/// [`hydrant_tests::Running::wait`] fails when a process of the job is left.
// Fault: A rank of a job that succeeds leaves a background child
// Outcome: it is ended after `--drain` seconds, in whatever session
// Guarantee: The same with and without daemons
// Also: nodes `failures::background_children_end_with_the_job`
#[test]
fn background_children_end_with_the_job_in_whatever_session() {
    let folder = Folder::new("background");
    let ready = folder.path("ready");
    let script = format!(
        "sleep 1000 & setsid sh -c ': >{ready}; exec sleep 1000' & until test -e {ready}; do :; done; \
         printf 'last words'"
    );
    shell("-n 1 --drain 0", &script).run().code(0).stdout_is("last words");
}

#[test]
fn a_member_of_a_rank_s_group_below_another_session_ends_with_the_job() {
    // Rank 0 leaves a process in its group whose parent has a session of its own, so that the launcher does not adopt it.
    // Rank 1 dies once rank 0 has been collected, and rank 2 is ended.
    let folder = Folder::new("group");
    let (ready, first) = (folder.path("ready"), folder.path("first"));
    let leave = format!("sleep 1000 & exec setsid sh -c ': >{ready}; exec sleep 1000'");
    let script = format!(
        "if test $PMI_RANK = 0; then sh -c \"$1\" & until test -e {ready}; do :; done; \
         echo $$ >{first}-new; mv {first}-new {first}; exit 0; fi; \
         test $PMI_RANK = 2 && exec sleep 1000; until test -e {first}; do :; done; \
         while test -e /proc/$(cat {first}); do :; done; kill -9 $$"
    );
    shell("-n 3", &script).args(["sh", &leave]).run().code(128 + 9);
}

/// Ranks that do not look at their connection. [`hydrant_tests::Running::wait`] fails when a process of the job is left.
#[test]
fn a_killed_launcher_leaves_no_rank_behind() {
    let job = shell("-n 2", "echo up; exec sleep 1000").start();
    job.await_stdout("up\n", 2).signal(Signal::KILL);
    job.wait().signaled(Signal::KILL);
}

#[test]
fn a_killed_launcher_leaves_no_child_of_a_rank_behind() {
    let job = shell("-n 2", "sleep 1000 & echo up; wait").start();
    job.await_stdout("up\n", 2).signal(Signal::KILL);
    job.wait().signaled(Signal::KILL);
}
