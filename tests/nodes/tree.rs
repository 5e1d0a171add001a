//! Trees of daemons without a job (`hydrant reach`): how they start and end, and that no process is left.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use hydrant_tests::{Folder, Job, Outcome, PATIENCE, Running};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// `hydrant reach OPTIONS` with that many hosts, of daemons on this machine.
fn reach(options: &[&str], count: u32) -> Job {
    let hosts = (1..=count).map(|node| format!("host{node}"));
    Job::command("reach").env_remove("HYDRANT_REMOTE").args(options).args(hosts)
}

/// A tree that must fail.
#[track_caller]
fn failure(options: &[&str], count: u32) -> Outcome {
    let outcome = reach(options, count).run();
    outcome.code(1);
    outcome
}

/// A tree of one daemon, started by that command, that must fail.
#[track_caller]
fn failure_of(bootstrap: &str, options: &[&str]) -> Outcome {
    failure(&[&["--bootstrap", bootstrap, "--iface", "lo"], options].concat(), 1)
}

/// A tree that is complete, with the process of each node from 1 on.
struct Tree {
    running: Running,
    daemons: Vec<Pid>,
}

/// Options of daemons that connect over an interface, with encryption, as on several hosts. Without them daemons of this
/// machine are forked and inherit their links.
const NETWORK: [&str; 2] = ["--iface", "lo"];

impl Tree {
    fn start(options: &[&str], count: u32) -> Tree {
        let is_network = options.starts_with(&NETWORK);
        let options = [&["--bootstrap", "local", "--hold"], options].concat();
        let mut running = reach(&options, count).hold_input().start();
        if is_network {
            assert!(running.line().starts_with("listening at 127.0.0.1:"));
        }
        let mut daemons: Vec<(u32, Pid)> = (0..count).map(|_| answer(&running.line())).collect();
        assert_eq!(running.line(), format!("all {count} answer"));
        daemons.sort_by_key(|(node, _)| *node);
        assert!(daemons.iter().map(|(node, _)| *node).eq(1..=count), "each answers once");
        let daemons = daemons.into_iter().map(|(_, pid)| pid).collect();
        Tree { running, daemons }
    }

    fn signal(&self, node: usize, signal: Signal) {
        kill_process(self.daemons[node - 1], signal).expect("the daemon runs");
    }

    /// Waits for its end. No daemon may be left then.
    fn end(self) -> Outcome {
        self.running.await_end();
        self.daemons.iter().for_each(|&pid| await_end(pid));
        self.running.wait()
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

/// Waits until a process has ended. Its parent, which would have collected it, may have ended as well.
fn await_end(pid: Pid) {
    let deadline = Instant::now() + PATIENCE;
    let ended = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    while !ended() {
        assert!(Instant::now() < deadline, "a daemon is left");
        std::thread::yield_now();
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
    fs::read_to_string(path).expect("the process runs, and its files are text")
}

#[test]
fn trees_of_all_shapes_start_and_end() {
    let shapes = [(1, "16"), (4, "2"), (4, "16"), (17, "2"), (17, "4"), (17, "16")];
    let all = shapes.iter().flat_map(|shape| [(shape, &NETWORK[..]), (shape, &[])]);
    for (&(count, radix), links) in all {
        let mut tree = Tree::start(&[links, &["--radix", radix]].concat(), count);
        let head = tree.running.pid();
        let parents: Vec<u32> = tree.daemons.iter().map(|&daemon| parent(daemon)).collect();
        assert!(parents.contains(&(head.as_raw_nonzero().get() as u32)));
        for parent in &parents {
            let children = parents.iter().filter(|other| *other == parent).count();
            assert!(children <= radix.parse().expect("a number"), "{count} daemons, radix {radix}");
        }
        tree.running.end_input();
        tree.end().code(0).quiet();
    }
}

#[test]
fn secrets_are_in_no_command_line_and_no_environment() {
    for links in [&NETWORK[..], &[]] {
        let tree = Tree::start(&[links, &["--radix", "2"]].concat(), 3);
        let environment = proc(tree.running.pid(), "environ");
        for &daemon in &tree.daemons {
            // The arguments of a forked daemon take the place of longer ones.
            assert!(proc(daemon, "cmdline").trim_end_matches('\0').ends_with("/hydrant\0daemon"));
            assert_eq!(proc(daemon, "comm"), "hydrant\n");
            assert_eq!(proc(daemon, "environ"), environment);
        }
    }
}

/// The other ends of its links are the sockets of its neighbours, and nothing of its parent's is left open.
#[test]
fn a_forked_daemon_has_its_own_descriptors_only() {
    let tree = Tree::start(&["--radix", "2"], 3);
    for &daemon in &tree.daemons {
        let folder = format!("/proc/{}/fd", daemon.as_raw_nonzero());
        let links = fs::read_dir(folder).expect("the daemon runs").map(|entry| {
            let entry = entry.expect("the folder can be read");
            let link = fs::read_link(entry.path()).expect("it is open");
            (entry.file_name().into_string().expect("a number"), link.to_string_lossy().into_owned())
        });
        let mut files: Vec<(u32, String)> =
            links.map(|(number, link)| (number.parse().expect("a number"), link)).collect();
        files.sort();
        let kind =
            |(_, link): &(u32, String)| link.split_once(':').map_or(link.clone(), |(kind, _)| kind.into());
        let kinds: Vec<String> = files.iter().map(kind).collect();
        let children = children_of(&tree, daemon);
        let own = ["/dev/null", "pipe", "pipe", "socket", "anon_inode", "anon_inode"].map(String::from);
        assert_eq!(kinds[..own.len()], own, "{files:?}");
        // The lifeline of the guardian, and a link and the output of each child.
        assert_eq!(kinds.len(), own.len() + 1 + 2 * children, "{files:?}");
    }
}

/// The number of daemons that a daemon has started.
fn children_of(tree: &Tree, daemon: Pid) -> usize {
    let number = daemon.as_raw_nonzero().get() as u32;
    tree.daemons.iter().filter(|&&other| parent(other) == number).count()
}

#[test]
fn the_users_own_commands_start_daemons() {
    let bootstrap = "exec:sh -c 'exec {args}' at-{host}";
    let outcome = reach(&["--bootstrap", bootstrap, "--iface", "lo", "--radix", "2"], 5).run();
    outcome.code(0).quiet().says(" is process ", 5);
}

#[test]
fn a_daemon_that_is_killed_is_named() {
    // With radix 2, node 3 is below node 2, which is below node 1.
    for links in [&NETWORK[..], &[]] {
        let tree = Tree::start(&[links, &["--radix", "2"]].concat(), 7);
        tree.signal(3, Signal::KILL);
        let expected = "hydrant reach: host host3 (node 3): its daemon is lost: its connection was closed\n";
        tree.end().code(1).stderr_is(expected);
    }
}

#[test]
fn a_daemon_that_is_stopped_is_named() {
    let tree = Tree::start(&["--radix", "2", "--heartbeat", "4"], 4);
    tree.signal(2, Signal::STOP);
    let expected = "hydrant reach: host host2 (node 2): its daemon is lost: no message for 4 s\n";
    tree.end().code(1).stderr_is(expected);
}

#[test]
fn no_daemon_outlives_a_head_that_is_killed() {
    for links in [&NETWORK[..], &[]] {
        let tree = Tree::start(&[links, &["--radix", "2"]].concat(), 7);
        tree.running.signal(Signal::KILL);
        tree.end().signaled(Signal::KILL);
    }
}

#[test]
fn a_signal_ends_the_head_and_all_daemons() {
    let tree = Tree::start(&["--radix", "4"], 6);
    tree.running.signal(Signal::TERM);
    tree.end().code(1).stderr_is("hydrant reach: ended by SIGTERM\n");
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_the_output_of_its_command() {
    let fail = "exec:sh -c 'test {host} != host4 || { echo no route to {host} >&2; exit 255; }; exec {args}'";
    failure(&["--bootstrap", fail, "--iface", "lo", "--radix", "2"], 5).stderr_is(
        "hydrant reach: host host4 (node 4): sh ended with exit code 255 before the daemon had joined\n    \
         no route to host4\n",
    );
    failure_of("exec:/nowhere/rsh {host} {args}", &[]).stderr_is(
        "hydrant reach: host host1 (node 1): its daemon cannot be started: cannot start /nowhere/rsh: not found\n",
    );
    let missing = failure_of("exec:sh -c {args} {host}", &["--remote-hydrant", "/nowhere/hydrant"]);
    missing.stderr_starts("hydrant reach: host host1 (node 1): sh ended with exit code 127 ");
    missing.warns("\n    ").warns("/nowhere/hydrant");
}

#[test]
fn a_host_that_stays_silent_is_named() {
    let bootstrap = "exec:sh -c 'echo wait >&2; exec sleep 1000' {host} {args}";
    // Time enough for the shell to write its line.
    failure_of(bootstrap, &["--bootstrap-timeout", "4"]).stderr_is(
        "hydrant reach: host host1 (node 1): its daemon has not joined within 4 s (--bootstrap-timeout)\n    wait\n",
    );
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let outcome = failure_of(r#"exec:sh -c 'printf "hydrant\n\0059.9.9" | {args}' {host}"#, &[]);
    outcome.stderr_starts("hydrant reach: host host1 (node 1): sh ended with exit code 1 ");
    let version = env!("CARGO_PKG_VERSION");
    outcome.warns(&format!("hydrant here is {version}, and the launcher's is 9.9.9"));
}

#[test]
fn options_that_cannot_be_are_refused() {
    let refused = |options: &[&str], message: &str| {
        reach(options, 1).run().code(2).warns(message);
    };
    refused(&["--bootstrap", "telnet"], "expected ssh, srun, qrsh, local, join or exec:");
    refused(&["--bootstrap", "rsh"], "write exec:'rsh {host} {args}'");
    refused(&["--bootstrap", "exec:rsh {host}"], "a command that contains {args} once");
    refused(&["--heartbeat", "0"], "from 0.001 to 1000000");
    let outcome = failure(&["--bootstrap", "local", "--iface", "nothing0"], 1);
    outcome.warns("no network interface \"nothing0\"; there are ");
}

#[test]
fn a_daemon_that_a_user_starts_explains_itself() {
    for input in [&b""[..], b"hydrant\n"] {
        Job::command("daemon").input(input).run().code(1).warns("is started by hydrant itself");
    }
}

/// Unauthenticated connections to the head, while a daemon that starts late is awaited.
#[test]
fn unauthenticated_connections_are_closed_and_delay_no_daemon() {
    let folder = Folder::new("strangers");
    let gate = folder.fifo("gate");
    let late = format!("exec:sh -c 'test {{host}} != host2 || cat {gate}; exec {{args}}'");
    let mut head = reach(&["--bootstrap", &late, "--iface", "lo", "--radix", "2"], 2).hold_input().start();
    let line = head.line();
    let addr = line.strip_prefix("listening at ").expect("the head prints its address");
    let addr: SocketAddr = addr.parse().expect("the head prints its address");
    let mut strangers: Vec<TcpStream> = Vec::new();
    for at in 0..200 {
        let mut stranger = TcpStream::connect(addr).expect("the head listens");
        let bytes: &[u8] = match at % 4 {
            // Nothing, a request of another kind, half an opening, and a whole one with a wrong key.
            0 => b"",
            1 => b"GET / HTTP/1.1\r\nHost: here\r\n\r\nand more, so that it is as long as an opening",
            2 => b"hydrant\x01\0\0\0\x02",
            _ => b"hydrant\x01\0\0\0\x02................................................",
        };
        stranger.write_all(bytes).expect("the head has closed none yet");
        strangers.push(stranger);
    }
    fs::write(&gate, "").expect("the late daemon reads");
    let mut answers = [answer(&head.line()), answer(&head.line())];
    answers.sort_by_key(|(node, _)| *node);
    assert_eq!(answers.map(|(node, _)| node), [1, 2]);
    assert_eq!(head.line(), "all 2 answer");
    head.wait().code(0).quiet();
    for mut stranger in strangers {
        // Closed or reset, without a byte.
        let mut told = Vec::new();
        let _ = stranger.read_to_end(&mut told);
        assert_eq!(told, b"");
    }
    assert!(TcpStream::connect(addr).is_err(), "the head has stopped listening");
}
