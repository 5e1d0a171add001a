//! Commands that look at running jobs: `ps`, `status`, `kill`, `attach`, `debug`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

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
    let spawned = ask("debug --rank 0 --spawned 3", &job).args(["--", "true"]).run();
    spawned.code(1).warns(" has no spawned job 3, or it has ended\n");
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

#[test]
fn a_debugger_of_a_server_without_jobs_is_told_why() {
    let mut server = Job::command("serve --manage=127.0.0.1:0").start();
    server.line();
    let debug = ask("debug --rank 0", &server).args(["--", "true"]).run();
    debug.code(1).warns("is not known: another launcher starts its ranks\n");
    ask("kill", &server).run().code(0);
    server.wait().code(0);
}

#[test]
fn a_server_shows_who_is_connected_and_what_they_wait_for() {
    let mut server = Job::command("serve --size 2").start();
    let line = server.line();
    let address = line.strip_prefix("PMI_PORT=").expect("the server prints its address").to_owned();
    let mut rank = BufReader::new(TcpStream::connect(&address).expect("the port is open"));
    let requests = "cmd=initack pmiid=1\ncmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n";
    rank.get_mut().write_all(requests.as_bytes()).expect("the server reads");
    let watch = ask("status --watch=0.1", &server).start();
    watch.await_stdout("1 rank in fence 1 for ", 1);
    let shown = watch.stdout();
    assert!(shown.contains(&format!(", serving at {address} for ")), "{shown}");
    assert!(shown.contains(", 1 of 2 ranks connected from 1 host\n"), "{shown}");
    assert!(shown.contains(", missing: rank 0\n"), "{shown}");
    let listed = Job::command("ps").run();
    let line = format!("hydrant serve --size at {address}\n");
    listed.code(0).says(&line, 1);
    let json = ask("status --json", &server).run();
    json.code(0).says("\"not_connected\"", 1).says("\"host\": \"127.0.0.1\"", 1).says("\"fence\": {", 1);
    ask("attach", &server).run().code(1).warns("another launcher starts its ranks, and has their output\n");
    let debug = ask("debug --rank 1", &server).args(["--", "true"]).run();
    debug.code(1).warns("the process id of rank 1 of job ");
    // The server still serves: rank 0 completes the fence.
    let mut other = TcpStream::connect(&address).expect("the port is open");
    other.write_all(requests.replace("pmiid=1", "pmiid=0").as_bytes()).expect("the server reads");
    let released =
        (&mut rank).lines().any(|line| line.expect("the server answers") == "cmd=barrier_out rc=0");
    assert!(released, "the fence completes");
    ask("kill", &server).run().code(0).quiet();
    server.wait().code(143).warns("ended by SIGTERM: 2 of 2 ranks had joined the job");
    watch.wait().code(0);
}

#[test]
fn a_management_server_shows_the_exits_that_hosts_report() {
    let mut server = Job::command("serve --manage=127.0.0.1:0 --pmi-port 127.0.0.1:0").start();
    let address = server.managed_address();
    let empty = ask("status", &server).run();
    empty
        .code(0)
        .says(&format!(", serving at {address} for "), 1)
        .says("0 of 0 ranks connected from 0 hosts\n", 1);
    let script = "test ${PMI_RANK:-$PMI_ID} = 0 && exit 0; echo up; exec sleep 600";
    let host = Job::command("offload --target").arg(address).words("-n 2 sh -c").arg(script).start();
    host.await_stdout("up\n", 1);
    let watch = ask("status --watch=0.1", &server).start();
    watch.await_stdout("exited 0", 1).await_stdout("not connected", 1);
    ask("kill", &host).run().code(0);
    host.wait().code(143);
    ask("kill", &server).run().code(0);
    server.wait().code(0);
    watch.wait().code(0);
}

/// Memory of a running `hydrant`, by the names of its symbols, as a debugger reads it.
struct Memory {
    file: File,
    /// Address at which the program is loaded.
    base: u64,
    symbols: String,
}

impl Memory {
    fn of(job: &Running) -> Memory {
        let nm = Command::new("nm").arg(hydrant_path()).output().expect("binutils have nm");
        let symbols = String::from_utf8(nm.stdout).expect("symbols are ASCII");
        let maps = fs::read_to_string(format!("/proc/{}/maps", pid(job))).expect("the job runs");
        let name = fs::canonicalize(hydrant_path()).expect("the program is there");
        let mut lines =
            maps.lines().filter(|line| line.ends_with(name.to_str().expect("a path of the build")));
        let first = lines.next().expect("the program is mapped");
        let base = u64::from_str_radix(first.split('-').next().unwrap_or_default(), 16).expect("an address");
        let file = File::open(format!("/proc/{}/mem", pid(job))).expect("the job is this test's child");
        Memory { file, base, symbols }
    }

    fn symbol(&self, name: &str) -> u64 {
        let named = |line: &&str| line.rsplit(' ').next() == Some(name);
        let line = self.symbols.lines().find(named).unwrap_or_else(|| panic!("no symbol {name}"));
        let address = line.split(' ').next().unwrap_or_default();
        self.base + u64::from_str_radix(address, 16).expect("an address")
    }

    fn bytes<const LEN: usize>(&self, at: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.file.read_exact_at(&mut bytes, at).expect("mapped memory");
        bytes
    }

    fn int(&self, at: u64) -> i32 {
        i32::from_ne_bytes(self.bytes(at))
    }

    fn text(&self, at: u64) -> String {
        let at = u64::from_ne_bytes(self.bytes(at));
        (at..).map(|at| self.bytes::<1>(at)[0]).take_while(|&byte| byte != 0).map(char::from).collect()
    }
}

#[test]
fn debuggers_find_the_processes_of_the_ranks() {
    let job = Job::command("run -n 2 /bin/sh -c").arg("echo $PMI_RANK=$$; exec sleep 600").start();
    job.await_stdout("=", 2);
    let memory = Memory::of(&job);
    for name in ["MPIR_i_am_starter", "MPIR_partial_attach_ok", "MPIR_Breakpoint", "MPIR_debug_abort_string"]
    {
        memory.symbol(name);
    }
    assert_eq!(memory.int(memory.symbol("MPIR_being_debugged")), 0);
    assert_eq!(memory.int(memory.symbol("MPIR_debug_state")), 1);
    assert_eq!(memory.int(memory.symbol("MPIR_proctable_size")), 2);
    let table = u64::from_ne_bytes(memory.bytes(memory.symbol("MPIR_proctable")));
    for rank in 0..2 {
        let entry = table + 24 * rank;
        assert_eq!(memory.text(entry + 8), "/bin/sh");
        assert!(!memory.text(entry).is_empty(), "a host");
        let line = format!("{rank}={}\n", memory.int(entry + 16));
        assert!(job.stdout().contains(&line), "{line} in {}", job.stdout());
    }
    ask("kill", &job).run().code(0);
    job.wait().code(143);
}

/// A script that reads the result must not take an old one for it.
#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let folder = Folder::new("no-result");
    let options = format!("--json={} -n 1 sh -c", folder.0.display());
    // A file that cannot be opened is found before the job starts, and a full disk behind it.
    let outcome =
        Job::new(hydrant_tests::hydrant_bin()).arg("run").words(&options).arg("echo started; exit 3").run();
    outcome.code(1).stdout_is("").warns("cannot write ");
    for (script, code) in [("exit 0", 1), ("exit 3", 3)] {
        Job::hydrant("--json=/dev/full -n 1 sh -c")
            .arg(script)
            .run()
            .code(code)
            .warns("cannot write /dev/full");
    }
}

#[test]
fn the_result_of_a_run_is_json() {
    let folder = Folder::new("observe-result");
    let file = folder.path("result");
    let result = |options: &str| {
        fs::remove_file(&file).ok();
        let outcome = Job::command(&format!("run --json={file} {options}")).run();
        let text = folder.read("result").split_whitespace().collect::<Vec<_>>().join(" ");
        (outcome, text)
    };
    let script = folder.executable("program", "#!/bin/sh\ntest $PMI_RANK = 1 && exit 3\nexit 0\n");
    let (outcome, text) = result(&format!("-n 3 {script}"));
    outcome.code(3);
    let exits = "\"exits\": [ { \"ranks\": \"0,2\", \"exit_code\": 0, \"signal\": null }, \
        { \"ranks\": \"1\", \"exit_code\": 3, \"signal\": null } ]";
    assert!(text.contains(exits) && text.contains("exited with code 3\""), "{text}");
    let (outcome, text) = result("-n 1 /nowhere/program");
    outcome.code(127);
    assert!(text.contains("\"exit_code\": 127, \"error\": \"") && text.ends_with("\"jobs\": [] }"), "{text}");
    let printed = Job::command("run --json -n 1 true").run();
    printed.code(0).says("\"form\": \"result\"", 1).says("\"message\": null", 1);
}
