//! How ranks start and end, and what `hydrant run` makes of it.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use hydrant_tests::plain::{Job, Scratch, hydrant, hydrant_path, run, sorted, text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

#[test]
fn the_first_failure_is_the_exit_code() {
    assert_eq!(run(&["-n", "4"], "exit 0").status.code(), Some(0));
    let output = run(&["-n", "3"], "test $PMI_RANK != 1 || exit 7");
    assert_eq!(output.status.code(), Some(7));
    let report = text(&output.stderr);
    assert!(report.starts_with("hydrant: rank 1 on "), "{report}");
    assert!(report.trim_end().ends_with("program sh exited with code 7"), "{report}");
    let output = run(&["-n", "3"], "exit 2");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("and 2 more ranks failed"));
}

#[test]
fn a_rank_killed_by_a_signal_ends_the_job() {
    let output = run(&["-n", "3"], "test $PMI_RANK = 2 && kill -SEGV $$; sleep 1000");
    assert_eq!(output.status.code(), Some(128 + 11));
    let report = text(&output.stderr);
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines[0], "hydrant: rank 2 died by SIGSEGV");
    assert!(
        lines[1].contains("rank 2 on ") && lines[1].contains(", pid ") && lines[1].ends_with("program sh")
    );
    assert!(lines[2].ends_with("2 other ranks were ended"), "{report}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn ranks_that_ignore_their_end_are_killed_with_all_they_started() {
    let script = "trap '' TERM; sleep 1000 & echo $!; test $PMI_RANK = 1 && kill -9 $$; wait";
    let output = run(&["-n", "3"], script);
    assert_eq!(output.status.code(), Some(128 + 9));
    for pid in sorted(&output.stdout) {
        // Gone, or dead and not yet collected by whoever inherited it.
        loop {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(stat.contains("(sleep)") || stat.contains("(sh)"), "{stat}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn nothing_is_started_that_cannot_be() {
    let scratch = Scratch::new("nothing");
    let mark = scratch.path("started");
    let script = scratch.path("script");
    fs::write(&script, "#!/nowhere/sh\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let output = hydrant(&[&script]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(126), "{error}");
    assert!(
        error.contains(&format!("({script}): its interpreter (first line) or dynamic loader was not found")),
        "{error}"
    );
    for (command, code, words) in [
        ("./nowhere", 127, "cannot start ./nowhere: not found"),
        ("nowhere", 127, "cannot start nowhere: not found in the ranks' PATH"),
        ("/etc/passwd", 126, "cannot start /etc/passwd: Permission denied"),
    ] {
        let output = hydrant(&["-n", "1", "touch", &mark, ":", "-n", "1", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("hydrant: {words}")), "{error}");
    }
    let output = hydrant(&["-n", "1", "-wdir", "/nowhere", "touch", &mark]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(!std::path::Path::new(&mark).exists());
}

#[test]
fn a_program_is_looked_up_where_its_rank_starts() {
    let scratch = Scratch::new("wdir");
    // No #! line: a shell runs it.
    fs::write(scratch.path("prog"), "pwd; echo $0 $1\n").unwrap();
    Command::new("chmod").args(["+x", &scratch.path("prog")]).status().unwrap();
    let dir = scratch.0.to_str().unwrap();
    let output = hydrant(&["-n", "1", "-wdir", dir, "./prog", "x y"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{dir}\n./prog x y\n"), "{}", text(&output.stderr));
    let output =
        hydrant(&["-n", "1", "-wdir", dir, "-env", "PATH", ".:/bin:/usr/bin", "prog"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{dir}\n./prog\n"));
}

#[test]
fn nothing_leaks_into_the_ranks() {
    let hydrant = hydrant_path();
    // Descriptors 8 and 9 are open in the launcher, and not close-on-exec.
    let rank = "ls /proc/$$/fd; env | grep -c ^PMIX; grep -E 'SigIgn|SigBlk' /proc/self/status";
    let script = format!("exec 8</dev/null 9</dev/null; exec {hydrant} run -n 2 sh -c \"$1\"");
    let mut launcher = Command::new("sh");
    launcher.args(["-c", &script, "sh", rank]).env("PMIX_RANK", "5").env("PMI_FD", "77").stdin(Stdio::null());
    let output = launcher.output().unwrap();
    // Two signals that the C library keeps for itself are ignored in whatever it starts.
    let lines: Vec<_> =
        sorted(&output.stdout).iter().map(|line| line.replace("0180000000", "0000000000")).collect();
    let zero = |name: &str| format!("{name}:\t0000000000000000");
    let mut expected: Vec<String> =
        ["0", "0", "0", "0", "1", "1", "2", "2", "3", "3"].map(str::to_owned).to_vec();
    expected.extend([zero("SigBlk"), zero("SigBlk"), zero("SigIgn"), zero("SigIgn")]);
    // Of the four zeros, two are counts of foreign variables.
    assert_eq!(lines, expected, "{}", text(&output.stderr));
}

#[test]
fn each_rank_knows_who_it_is() {
    let script =
        "echo $PMI_RANK/$PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS $PMI_FD ${PMI_ID-none} ${PMI_SPAWNED-no}";
    let output = run(&["-n", "2"], script);
    assert_eq!(sorted(&output.stdout), ["0/2 0/2 3 none no", "1/2 1/2 3 none no"]);
    let output = run(&["--pmi-port", "-n", "2"], "echo $PMI_RANK $PMI_ID ${PMI_FD-none} ${PMI_PORT%:*}");
    assert_eq!(sorted(&output.stdout), ["0 0 none 127.0.0.1", "1 1 none 127.0.0.1"]);
}

#[test]
fn ranks_are_bound_to_the_processors_named() {
    let output = run(&["-n", "2", "-bind-to", "user:0"], "grep Cpus_allowed_list /proc/self/status");
    let error = text(&output.stderr);
    if error.contains("this process may use") {
        assert_eq!(output.status.code(), Some(1), "processor 0 is not this test's");
        return;
    }
    assert_eq!(sorted(&output.stdout), ["Cpus_allowed_list:\t0", "Cpus_allowed_list:\t0"], "{error}");
    let output = run(&["-n", "1", "-bind-to", "user:1023"], "true");
    assert!(text(&output.stderr).contains("cannot bind to processor 1023"));
}

#[test]
fn open_files_suffice_or_the_job_is_refused() {
    let hydrant = hydrant_path();
    let sh = |script: String| Command::new("sh").args(["-c", &script]).output().unwrap();
    let output = sh(format!("ulimit -n 64; {hydrant} run -n 40 echo no"));
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    let error = text(&output.stderr);
    assert!(error.contains("40 ranks needs 152 open files, but the hard limit is 64"), "{error}");
    // The ranks get what the user gave.
    let output = sh(format!("ulimit -Sn 64; {hydrant} run -n 40 sh -c 'ulimit -Sn'"));
    assert_eq!(sorted(&output.stdout), vec!["64"; 40], "{}", text(&output.stderr));
}

#[test]
fn signals_reach_every_rank() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        // Nothing is started meanwhile: dash may lose a signal that comes while it does so.
        let mut job = Job::start(&["-n", "2"], "echo up; while :; do :; done");
        assert_eq!((job.line(), job.line()), ("up".to_owned(), "up".to_owned()));
        job.signal(signal);
        let (status, _, report) = job.end();
        assert_eq!(status.code(), Some(code));
        assert!(report.starts_with("hydrant: the job was ended by SIG"), "{report}");
    }
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::INT, "INT")] {
        let script = format!("trap 'echo got; exit 3' {name}; echo up; while :; do :; done");
        let mut job = Job::start(&["-n", "2"], &script);
        assert_eq!((job.line(), job.line()), ("up".to_owned(), "up".to_owned()));
        job.signal(signal);
        let (status, out, _) = job.end();
        assert_eq!((status.code(), out.as_str()), (Some(3), "got\ngot\n"));
    }
}

#[test]
fn a_second_interrupt_kills() {
    let mut job = Job::start(&["-n", "2"], "trap 'echo no' INT; trap '' TERM; echo up; while :; do :; done");
    assert_eq!((job.line(), job.line()), ("up".to_owned(), "up".to_owned()));
    job.signal(Signal::INT);
    assert_eq!((job.line(), job.line()), ("no".to_owned(), "no".to_owned()));
    job.signal(Signal::INT);
    assert_eq!(job.end().0.code(), Some(130));
}

#[test]
fn a_hangup_that_nohup_ignores_stays_ignored() {
    let script = format!(
        "trap '' HUP; exec {} run -n 1 sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'",
        hydrant_path()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "alive\n"));
}

#[test]
fn a_stopped_job_is_stopped_and_goes_on() {
    // So many that one sent to all a second time does not find the first still pending everywhere.
    const RANKS: usize = 16;
    let script = "trap 'echo on' CONT; trap 'exit 0' USR1; echo $$; while :; do :; done";
    let mut command = hydrant(&["-n", &RANKS.to_string(), "sh", "-c", script]);
    // The kernel stops nobody whose group has no parent in the session, as that of a test run may be.
    let mut job = Job::spawn(command.process_group(0));
    let ranks = [(); RANKS].map(|()| job.line());
    job.signal(Signal::TSTP);
    let (_, status) = waitpid(Some(job.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
    assert_eq!(status.stopping_signal(), Some(Signal::TSTP.as_raw()));
    for rank in &ranks {
        let stopped = || fs::read_to_string(format!("/proc/{rank}/stat")).unwrap().contains(" T ");
        while !stopped() {
            std::thread::yield_now();
        }
    }
    job.signal(Signal::CONT);
    assert_eq!([(); RANKS].map(|()| job.line()), [(); RANKS].map(|()| "on".to_owned()));
    job.signal(Signal::USR1);
    let (status, out, _) = job.end();
    assert_eq!((status.code(), out.as_str()), (Some(0), ""), "each is continued once");
}

#[test]
fn a_process_left_behind_keeps_nobody_waiting() {
    let mut job = Job::start(&["-n", "1"], "sleep 1000 & echo $!; printf 'last words'");
    let left: i32 = job.line().parse().unwrap();
    let mut rest = String::new();
    job.stdout.read_to_string(&mut rest).unwrap();
    let (status, _, _) = job.end();
    rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    assert_eq!((status.code(), rest.as_str()), (Some(0), "last words"));
}

#[test]
fn a_killed_launcher_leaves_no_rank_behind() {
    let mut job = Job::start(&["-n", "2"], "echo $$; exec sleep 1000");
    let ranks = [job.line(), job.line()].map(|pid| {
        let pid = Pid::from_raw(pid.parse().expect("a rank says its pid")).expect("above zero");
        pidfd_open(pid, PidfdFlags::empty()).expect("the rank runs")
    });
    job.signal(Signal::KILL);
    for rank in &ranks {
        let mut exits = [PollFd::new(rank, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut exits, Some(&timeout)), Ok(1), "the rank outlives the launcher");
    }
}
