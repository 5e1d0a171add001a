//! Commands that look at running jobs: `ps`, `status`, `kill`, `attach`, `debug`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use hydrant_tests::terminal::Terminal;
use hydrant_tests::{Folder, Job, Running, hydrant_path};
use rustix::process::Signal;

use crate::{RAW, shell};

/// Rank 2 does not come to the fence. The PMI server is not in a sandbox, which does not tell what ranks wait for.
fn stuck(options: &str) -> Running {
    let steps = "only 0,1\ninit1\nfence1\nonly 2\nsay up\nforever";
    let job = Job::command(&format!("run -n 3 {options}")).arg(RAW).steps(steps).start();
    job.await_stdout("up\n", 1);
    job
}

fn pid(job: &Running) -> String {
    job.pid().to_string()
}

/// `hydrant COMMAND OPTIONS PID`.
fn ask(command: &str, job: &Running) -> Job {
    Job::command(command).arg(pid(job))
}

#[test]
fn the_rank_that_others_wait_for_is_named() {
    let job = stuck("");
    let watch = ask("status --watch=0.1", &job).start();
    watch.await_stdout("2 ranks in fence 1 for ", 1);
    let shown = watch.stdout();
    assert!(shown.contains(", missing: rank 2\n"), "{shown}");
    let listed = Job::command("ps").run();
    let line = format!("{}  ", pid(&job));
    let line = listed.code(0).lines().into_iter().find(|text| text.trim_start().starts_with(&line));
    let words: Vec<&str> = line.expect("the job is listed").split_whitespace().collect();
    assert_eq!(words[words.len() - 4..], ["1", "3", "1", RAW]);
    let json = ask("status --json", &job).run();
    json.code(0).says("\"form\": \"status\"", 1).says("\"fence\": {", 2).says("\"started\"", 1);
    ask("kill", &job).run().code(0).quiet();
    job.wait().code(143).stderr_is("hydrant: the job was ended by SIGTERM\n");
    // The job under watch is over.
    watch.wait().code(0);
}

#[test]
fn a_job_that_was_killed_is_not_listed() {
    let job = stuck("");
    job.signal(Signal::KILL);
    let pid = pid(&job);
    job.wait().signaled(Signal::KILL);
    let error = format!("hydrant: no running job {pid}\nhydrant: hint: 'hydrant ps' lists running jobs\n");
    let outcome = Job::command("status").arg(&pid).run();
    outcome.code(1).stderr_starts(&error.replace("hydrant: hint", "hint"));
    Job::command("kill").arg(&pid).run().code(1);
    Job::command("attach").arg(&pid).run().code(1);
}

#[test]
fn signals_reach_the_ranks_of_a_job() {
    let job = shell("-n 2", "trap 'echo got; exit 3' USR1; echo up; while :; do :; done").start();
    job.await_stdout("up\n", 2);
    let refused = "a job takes HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and KILL only\n";
    ask("kill -s STOP", &job).run().code(2);
    ask("kill -s 19", &job).run().code(1).warns(refused);
    ask("kill -s USR1", &job).run().code(0).quiet();
    job.wait().code(3).stdout_is("up\nup\ngot\ngot\n");
}

#[test]
fn output_is_followed_from_now_on() {
    let script = "echo before; while read line; do echo got $line; echo err $line >&2; done; exit 3";
    let mut job = shell("-n 1", script).hold_input().start();
    job.await_stdout("before\n", 1);
    let attached = ask("attach", &job).start();
    attached.await_stderr("following the output of job");
    job.send(b"one\ntwo\n").expect("the job reads");
    attached.await_stdout("[0] got one\n[0] got two\n", 1).await_stderr("[0] err two\n");
    // A second one comes and goes without harm.
    let second = ask("attach", &job).start();
    second.await_stderr("following the output of job");
    second.signal(Signal::INT);
    second.wait().signaled(Signal::INT);
    job.send(b"three\n").expect("the job reads");
    attached.await_stdout("[0] got three\n", 1);
    job.end_input();
    attached.wait().code(3).says("before", 0).says("[0] got three\n", 1);
    job.wait().code(3).stdout_is("before\ngot one\ngot two\ngot three\n");
}

#[test]
fn a_command_runs_with_the_process_id_of_a_rank() {
    let script = "echo $PMI_RANK=$$; exec sleep 600";
    let job = Job::command("run -n 2 sh -c").arg(script).start();
    job.await_stdout("=", 2);
    let debug = |rank: &str, command: &[&str]| {
        ask(&format!("debug --rank {rank}"), &job).arg("--").args(command).run()
    };
    let outcome = debug("1", &["echo", "1={}"]);
    assert!(job.stdout().contains(&outcome.code(0).stdout), "{} {}", job.stdout(), outcome.stdout);
    debug("2", &["true"]).code(1).warns(" has no rank 2\n");
    debug("0", &["/nowhere/gdb"]).code(1).stderr_starts("hydrant: cannot run /nowhere/gdb: ");
    ask("kill -s KILL", &job).run().code(0);
    job.wait().signaled(Signal::KILL);
}

#[test]
fn a_watched_job_is_painted_in_place() {
    let job = stuck("");
    let mut terminal = Terminal::open();
    terminal.resize(6, 80);
    terminal.type_in(&format!("{} status --watch=0.1 {}\n", hydrant_path(), pid(&job)));
    terminal.expect("\x1b[H");
    // Six rows: five lines, and one for the cursor.
    terminal.expect("more lines\x1b[K\r\n\x1b[J\x1b[H");
    ask("kill", &job).run().code(0);
    terminal.expect("ready> ");
    job.wait().code(143);
}

#[test]
fn names_that_are_not_utf_8_are_bytes_in_json() {
    let folder = Folder::new("observe-bytes");
    let program = Path::new(&folder.path("")).join(OsStr::from_bytes(b"odd\xff"));
    symlink("/bin/sh", &program).expect("the folder is new");
    let job = Job::command("run -n 1").arg(&program).args(["-c", "echo up; exec sleep 600"]).start();
    job.await_stdout("up\n", 1);
    let numbers = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let json = ask("status --json", &job).run().code(0).stdout.split_whitespace().collect::<String>();
    let bytes = format!("{{\"bytes\":[{}]}}", numbers(program.as_os_str().as_bytes()));
    assert_eq!(json.matches(&bytes).count(), 2, "{json}");
    ask("kill", &job).run().code(0);
    job.wait().code(143);
}
