//! Trees of real daemons: how they come up, and that nothing of them is left however they end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use hydrant_tests::job::hydrant_bin;
use hydrant_tests::plain::{Job, Scratch, text};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Long enough for anything that comes about at all.
const PATIENCE: Duration = Duration::from_secs(60);

fn reach(options: &[&str], hosts: &[String]) -> Command {
    let mut command = Command::new(hydrant_bin());
    command.arg("reach").args(options).args(hosts).env_remove("HYDRANT_REMOTE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn hosts(count: u32) -> Vec<String> {
    (1..=count).map(|node| format!("host{node}")).collect()
}

fn output(options: &[&str], count: u32) -> Output {
    reach(options, &hosts(count)).stdin(Stdio::null()).output().expect("hydrant starts")
}

/// What went wrong, and that something did.
fn complaint(options: &[&str], count: u32) -> String {
    let output = output(options, count);
    assert_eq!(output.status.code(), Some(1));
    text(&output.stderr)
}

/// A tree that stands, with the process of each node from 1 on.
struct Tree {
    job: Job,
    daemons: Vec<Pid>,
}

impl Tree {
    fn start(options: &[&str], count: u32) -> Tree {
        let options = [&["--bootstrap", "local", "--hold"], options].concat();
        let mut job = Job::spawn(&mut reach(&options, &hosts(count)));
        assert!(job.line().starts_with("listening at 127.0.0.1:"));
        let mut daemons: Vec<(u32, Pid)> = (0..count).map(|_| answer(&job.line())).collect();
        assert_eq!(job.line(), format!("all {count} answer"));
        daemons.sort_by_key(|(node, _)| *node);
        assert!(daemons.iter().map(|(node, _)| *node).eq(1..=count), "each answers once");
        let daemons = daemons.into_iter().map(|(_, pid)| pid).collect();
        Tree { job, daemons }
    }

    fn signal(&self, node: usize, signal: Signal) {
        kill_process(self.daemons[node - 1], signal).expect("the daemon runs");
    }

    /// Waits for its end: nothing of it may be left then.
    fn end(self) -> (ExitStatus, String) {
        let (status, _, complaint) = self.job.end();
        self.daemons.iter().for_each(|&pid| gone(pid));
        (status, complaint)
    }
}

/// A line such as `node 3 is process 77 on host3`.
fn answer(line: &str) -> (u32, Pid) {
    let words: Vec<&str> = line.split(' ').collect();
    let ["node", node, "is", "process", pid, "on", host] = words[..] else { panic!("{line:?}") };
    assert_eq!(host, format!("host{node}"));
    let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a process has a number");
    (node.parse().expect("a node has a number"), pid)
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Waits until a process is gone; who would have collected it may be gone as well.
fn gone(pid: Pid) {
    until("a daemon is left", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    });
}

#[test]
fn trees_of_all_shapes_come_up_and_end() {
    for (count, radix) in [(1, "16"), (4, "2"), (4, "16"), (17, "2"), (17, "4"), (17, "16")] {
        let mut tree = Tree::start(&["--radix", radix], count);
        let head = tree.job.pid();
        let parents: Vec<u32> = tree.daemons.iter().map(|&daemon| parent(daemon)).collect();
        assert!(parents.contains(&(head.as_raw_nonzero().get() as u32)));
        for parent in &parents {
            let children = parents.iter().filter(|other| *other == parent).count();
            assert!(children <= radix.parse().unwrap(), "{count} daemons, radix {radix}");
        }
        drop(tree.job.child.stdin.take());
        let (status, complaint) = tree.end();
        assert_eq!((status.code(), complaint.as_str()), (Some(0), ""), "{count} daemons, radix {radix}");
    }
}

/// The process that started another.
fn parent(pid: Pid) -> u32 {
    let stat = proc(pid, "stat");
    let (_, rest) = stat.rsplit_once(") ").expect("the name of the program ends");
    rest.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("the parent comes after the state")
}

fn proc(pid: Pid, file: &str) -> String {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    std::fs::read_to_string(path).expect("the process runs, and its files are text")
}

#[test]
fn no_secret_is_for_others_to_see() {
    let tree = Tree::start(&["--radix", "2"], 3);
    let environment = proc(tree.job.pid(), "environ");
    for &daemon in &tree.daemons {
        assert!(proc(daemon, "cmdline").ends_with("/hydrant\0daemon\0"));
        assert_eq!(proc(daemon, "environ"), environment);
    }
    drop(tree);
}

#[test]
fn commands_of_the_users_start_daemons() {
    let output =
        output(&["--bootstrap", "exec:sh -c 'exec {args}' at-{host}", "--iface", "lo", "--radix", "2"], 5);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(text(&output.stdout).lines().filter(|line| line.contains(" is process ")).count(), 5);
}

#[test]
fn a_daemon_that_is_killed_is_named() {
    // With radix 2, node 3 is below node 2, which is below node 1.
    let tree = Tree::start(&["--radix", "2"], 7);
    tree.signal(3, Signal::KILL);
    let (status, complaint) = tree.end();
    assert_eq!(status.code(), Some(1));
    assert_eq!(
        complaint,
        "hydrant reach: host host3 (node 3): its daemon is lost: its connection was closed\n"
    );
}

#[test]
fn a_daemon_that_is_stopped_is_named() {
    let tree = Tree::start(&["--radix", "2", "--heartbeat", "4"], 4);
    tree.signal(2, Signal::STOP);
    let (status, complaint) = tree.end();
    assert_eq!(status.code(), Some(1));
    assert_eq!(complaint, "hydrant reach: host host2 (node 2): its daemon is lost: no message for 4 s\n");
}

#[test]
fn nothing_outlives_a_head_that_is_killed() {
    let tree = Tree::start(&["--radix", "2"], 7);
    tree.job.signal(Signal::KILL);
    let (status, _) = tree.end();
    assert_eq!(status.code(), None);
}

#[test]
fn a_signal_ends_the_head_and_all_below() {
    let tree = Tree::start(&["--radix", "4"], 6);
    tree.job.signal(Signal::TERM);
    let (status, complaint) = tree.end();
    assert_eq!((status.code(), complaint.as_str()), (Some(1), "hydrant reach: ended by SIGTERM\n"));
}

#[test]
fn a_host_that_cannot_be_started_is_named_with_the_last_words() {
    let fail = "exec:sh -c 'test {host} != host4 || { echo no route to {host} >&2; exit 255; }; exec {args}'";
    let complaint = complaint(&["--bootstrap", fail, "--iface", "lo", "--radix", "2"], 5);
    assert_eq!(
        complaint,
        "hydrant reach: host host4 (node 4): sh ended with exit code 255 before the daemon had joined\n    \
         no route to host4\n"
    );
    let nobody = complaint_of("exec:/nowhere/rsh {host} {args}", &[]);
    let expected = "hydrant reach: host host1 (node 1): its daemon cannot be started: cannot start /nowhere/rsh: not found\n";
    assert_eq!(nobody, expected);
    let missing = complaint_of("exec:sh -c {args} {host}", &["--remote-hydrant", "/nowhere/hydrant"]);
    assert!(
        missing.starts_with("hydrant reach: host host1 (node 1): sh ended with exit code 127 "),
        "{missing}"
    );
    assert!(missing.contains("\n    ") && missing.contains("/nowhere/hydrant"), "{missing}");
}

fn complaint_of(bootstrap: &str, options: &[&str]) -> String {
    complaint(&[&["--bootstrap", bootstrap, "--iface", "lo"], options].concat(), 1)
}

#[test]
fn a_host_that_keeps_silent_is_named() {
    let complaint = complaint_of(
        "exec:sh -c 'echo wait >&2; exec sleep 1000' {host} {args}",
        &["--bootstrap-timeout", "0.5"],
    );
    assert_eq!(
        complaint,
        "hydrant reach: host host1 (node 1): its daemon has not joined within 0.5 s (--bootstrap-timeout)\n    wait\n"
    );
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let other = r#"exec:sh -c 'printf "hydrant\n\0059.9.9" | {args}' {host}"#;
    let complaint = complaint_of(other, &[]);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        complaint.starts_with("hydrant reach: host host1 (node 1): sh ended with exit code 1 "),
        "{complaint}"
    );
    let both = format!("hydrant here is {version}, and the launcher's is 9.9.9");
    assert!(complaint.contains(&both), "{complaint}");
}

#[test]
fn what_is_wrong_with_the_command_line_is_said() {
    let refused = |options: &[&str]| {
        let output = output(options, 1);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused(&["--bootstrap", "rsh"]).contains("expected ssh, srun, qrsh, local or exec:"));
    assert!(refused(&["--bootstrap", "exec:rsh {host}"]).contains("a command that contains {args} once"));
    assert!(refused(&["--heartbeat", "0"]).contains("from 0.001 to 1000000"));
    let complaint = complaint(&["--bootstrap", "local", "--iface", "nothing0"], 1);
    assert!(complaint.contains("no network interface \"nothing0\"; there are "), "{complaint}");
}

#[test]
fn a_daemon_without_a_record_says_who_starts_it() {
    let daemon = |input: &[u8]| {
        let mut command = Command::new(hydrant_bin());
        command.arg("daemon").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("hydrant starts");
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    assert!(daemon(b"").contains("is started by hydrant itself"));
    assert!(daemon(b"hydrant\n").contains("is started by hydrant itself"));
}

/// Strangers at the head's door, while a child that is late is still waited for.
#[test]
fn strangers_cost_nothing_but_themselves() {
    let scratch = Scratch::new("strangers");
    let gate = scratch.path("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let late = format!("exec:sh -c 'test {{host}} != host2 || cat {gate}; exec {{args}}'");
    let mut job = Job::spawn(&mut reach(&["--bootstrap", &late, "--iface", "lo", "--radix", "2"], &hosts(2)));
    let line = job.line();
    let addr: SocketAddr = line.strip_prefix("listening at ").unwrap().parse().unwrap();
    let mut strangers: Vec<TcpStream> = Vec::new();
    for at in 0..200 {
        let mut stranger = TcpStream::connect(addr).unwrap();
        let bytes: &[u8] = match at % 4 {
            // Nothing, a request of another kind, half an opening, and a whole one that nobody could have made.
            0 => b"",
            1 => b"GET / HTTP/1.1\r\nHost: here\r\n\r\nand more, so that it is as long as an opening",
            2 => b"hydrant\x01\0\0\0\x02",
            _ => b"hydrant\x01\0\0\0\x02................................................",
        };
        stranger.write_all(bytes).unwrap();
        strangers.push(stranger);
    }
    std::fs::write(&gate, "").unwrap();
    let mut answers = [answer(&job.line()), answer(&job.line())];
    answers.sort_by_key(|(node, _)| *node);
    assert_eq!(answers.map(|(node, _)| node), [1, 2]);
    assert_eq!(job.line(), "all 2 answer");
    let (status, _, complaint) = job.end();
    assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
    for mut stranger in strangers {
        // Closed or reset, and told nothing.
        let mut told = Vec::new();
        let _ = stranger.read_to_end(&mut told);
        assert_eq!(told, b"");
    }
    assert!(TcpStream::connect(addr).is_err(), "nobody is waited for any more");
}
