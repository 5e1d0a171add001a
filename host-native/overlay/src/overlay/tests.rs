//! Tests of several nodes in one process, with real sockets and a clock that can be advanced.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;

/// All nodes of an overlay in this process. The bootstrap command stores the specification in a file, and the test runs the
/// daemon.
struct Nodes {
    dir: PathBuf,
    /// The clock of the nodes in milliseconds. A turn takes at most one, so that no timeout passes while a loaded machine does not
    /// run this process.
    now: u64,
    last_turn: Instant,
    files: OpenFiles,
    nodes: Vec<Option<Node>>,
}

struct Node {
    overlay: Overlay,
    poller: Poller,
    events: Vec<Event>,
}

impl Nodes {
    fn new(name: &str, daemons: u32, radix: u32) -> Nodes {
        let dir = Nodes::dir(name);
        let keep = format!("cat > '{}/{{host}}'; exec sleep 1000", dir.display());
        let bootstrap = Bootstrap::Exec(vec!["sh".into(), "-c".into(), keep.into(), "{args}".into()]);
        Nodes::start(dir, bootstrap, None, daemons, radix)
    }

    /// As with srun: one command, which is this script, gets the specification for all daemons.
    fn of_step(name: &str, script: &str, daemons: u32, radix: u32) -> Nodes {
        let dir = Nodes::dir(name);
        let (srun, text) = (dir.join("srun"), script.replace("{dir}", &dir.display().to_string()));
        std::fs::write(&srun, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o700)).unwrap();
        Nodes::start(dir, Bootstrap::Srun, Some(srun.into()), daemons, radix)
    }

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("hydrant-overlay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn start(
        dir: PathBuf,
        bootstrap: Bootstrap,
        bootstrap_exec: Option<OsString>,
        daemons: u32,
        radix: u32,
    ) -> Nodes {
        let settings = DaemonSettings {
            bootstrap,
            bootstrap_exec,
            bootstrap_args: Vec::new(),
            program: "hydrant".into(),
            iface: Some("127.0.0.1".into()),
            heartbeat_timeout: 30_000,
            join_timeout: 60_000,
        };
        let hosts = (1..=daemons).map(|node| Host::new(&format!("host{node}"))).collect();
        let layout = TreeSpec { head: "host0".into(), hosts, radix, late: 0 };
        let files = OpenFiles::reserve(64).unwrap();
        let poller = Poller::new().unwrap();
        let overlay = Overlay::head(layout, settings, None, 0, KeyRange(1), &files, &poller).unwrap();
        let mut nodes = vec![Some(Node { overlay, poller, events: Vec::new() })];
        nodes.resize_with(daemons as usize + 1, || None);
        Nodes { dir, now: 0, last_turn: Instant::now(), files, nodes }
    }

    /// Starts all nodes and waits until they have joined.
    fn complete(name: &str, daemons: u32, radix: u32) -> Nodes {
        Nodes::new(name, daemons, radix).completed()
    }

    fn completed(mut self) -> Nodes {
        let nodes = &mut self;
        nodes.until(|nodes| {
            nodes.nodes.iter().all(|node| {
                node.as_ref()
                    .is_some_and(|node| node.events.iter().any(|event| matches!(event, Event::Complete)))
            })
        });
        for node in nodes.nodes.iter_mut().flatten() {
            node.events.clear();
        }
        self
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn node(&mut self, node: u32) -> &mut Node {
        self.nodes[node as usize].as_mut().unwrap()
    }

    fn overlay(&mut self, node: u32) -> &mut Overlay {
        &mut self.node(node).overlay
    }

    fn events(&mut self, node: u32) -> Vec<Event> {
        std::mem::take(&mut self.node(node).events)
    }

    /// Starts nodes whose specification has arrived, and runs one turn of each node's event loop.
    fn turn(&mut self) {
        if self.last_turn.elapsed() >= Duration::from_millis(1) {
            self.last_turn = Instant::now();
            self.now += 1;
        }
        let now = self.now();
        let mut tokens = Vec::new();
        for at in 1..self.nodes.len() {
            let path = self.dir.join(format!("host{at}"));
            if self.nodes[at].is_none()
                && let Ok(bytes) = std::fs::read(&path)
                && let Ok(spec) = DaemonSpec::from_bytes(&bytes, &format!("host{at}"))
            {
                std::fs::remove_file(&path).unwrap();
                let poller = Poller::new().unwrap();
                let overlay = Overlay::daemon(spec, None, now, KeyRange(1), &self.files, &poller).unwrap();
                self.nodes[at] = Some(Node { overlay, poller, events: Vec::new() });
            }
        }
        for Node { overlay, poller, events } in self.nodes.iter_mut().flatten() {
            poller.wait(Some(Duration::ZERO), &mut tokens).unwrap();
            for &token in &tokens {
                overlay.handle_ready(token, now, poller).unwrap();
            }
            overlay.handle_timeouts(now, &self.files, poller).unwrap();
            overlay.flush(now, poller);
            events.extend(std::iter::from_fn(|| overlay.next_event()));
        }
    }

    fn until(&mut self, mut done: impl FnMut(&mut Nodes) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    /// Repeats turns until no more events occur.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            let count =
                |nodes: &Nodes| nodes.nodes.iter().flatten().map(|node| node.events.len()).sum::<usize>();
            let before = count(self);
            self.turn();
            quiet = if count(self) == before { quiet + 1 } else { 0 };
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn bodies(events: Vec<Event>) -> Vec<(u32, Channel, Vec<u8>)> {
    let message = |event| match event {
        Event::Message { from, channel, body, .. } => (from, channel, body),
        other => panic!("{other:?}"),
    };
    events.into_iter().map(message).collect()
}

#[test]
fn messages_between_all_nodes_arrive_in_order() {
    let mut nodes = Nodes::complete("routes", 6, 2);
    for from in 0..7 {
        for to in 0..7_u32 {
            let (first, second) = (format!("{from}-{to}"), format!("{from}+{to}"));
            let third = format!("{from}/{to}");
            let now = nodes.now();
            let overlay = nodes.overlay(from);
            overlay.route(now, Destination::Node(to), Channel::Control, first.as_bytes()).unwrap();
            overlay.route(now, Destination::Node(to), Channel::Stream, second.as_bytes()).unwrap();
            overlay.route(now, Destination::Node(to), Channel::Routed, third.as_bytes()).unwrap();
        }
    }
    nodes.until(|nodes| nodes.nodes.iter().flatten().all(|node| node.events.len() >= 21));
    for to in 0..7 {
        let all = bodies(nodes.events(to));
        for from in 0..7 {
            let of_node: Vec<_> = all.iter().filter(|(node, ..)| *node == from).collect();
            let expected = [
                (Channel::Control, format!("{from}-{to}")),
                (Channel::Stream, format!("{from}+{to}")),
                (Channel::Routed, format!("{from}/{to}")),
            ];
            assert_eq!(of_node.len(), 3);
            for ((_, channel, body), (which, text)) in of_node.into_iter().zip(expected) {
                assert!(*channel == which && *body == text.as_bytes(), "{text}");
            }
        }
    }
}

#[test]
fn a_broadcast_reaches_all_below_and_peers_reach_their_neighbours() {
    let mut nodes = Nodes::complete("below", 6, 2);
    // 0: 1..4 and 4..7.
    nodes.overlay(0).route(0, Destination::Descendants, Channel::Control, b"all").unwrap();
    nodes.overlay(4).route(0, Destination::Descendants, Channel::Control, b"some").unwrap();
    nodes.overlay(4).send(0, 5, Channel::Peer, b"down").unwrap();
    nodes.overlay(4).send(0, 0, Channel::Peer, b"up").unwrap();
    nodes.overlay(4).send(0, 3, Channel::Peer, b"nowhere").unwrap();
    nodes.settle();
    let events: Vec<Vec<Event>> = (0..7).map(|node| nodes.events(node)).collect();
    let last_received: Vec<_> = events.into_iter().map(bodies).collect();
    let all = (0, Channel::Control, b"all".to_vec());
    let some = (4, Channel::Control, b"some".to_vec());
    assert_eq!(last_received[0], [(4, Channel::Peer, b"up".to_vec())]);
    assert!(last_received[1..5].iter().all(|last_received| *last_received == [all.clone()]));
    assert_eq!(last_received[6].len(), 2);
    assert!(last_received[5].contains(&all) && last_received[5].contains(&some));
    assert!(last_received[5].contains(&(4, Channel::Peer, b"down".to_vec())));
}

#[test]
fn early_messages_wait_for_the_link() {
    let mut nodes = Nodes::new("early", 2, 2);
    nodes.overlay(0).route(0, Destination::Node(2), Channel::Control, b"early").unwrap();
    assert!(!nodes.overlay(0).has_credit(2), "there is no credit before the link");
    nodes.until(|nodes| {
        let node = nodes.nodes[2].as_ref();
        node.is_some_and(|node| {
            node.events.iter().any(|event| matches!(event, Event::Message { from: 0, .. }))
        })
    });
    assert!(nodes.overlay(0).has_credit(2));
}

#[test]
fn a_slow_head_blocks_streams_only() {
    // A chain: 2 is a child of 1.
    let mut nodes = Nodes::complete("slow", 4, 2);
    assert_eq!(nodes.overlay(0).tree().parent(2), Some(1));
    let piece = vec![7; 60_000];
    let (mut sent, mut taken) = (0, Vec::new());
    // The head consumes nothing.
    let mut idle = 0;
    while idle < 50 || taken.len() < sent {
        let before = sent;
        while nodes.overlay(2).has_credit(0) {
            nodes.overlay(2).route(0, Destination::Node(0), Channel::Stream, &piece).unwrap();
            sent += 1;
        }
        nodes.turn();
        taken.extend(nodes.events(0));
        idle = if sent == before { idle + 1 } else { 0 };
    }
    let window = neighbour::WINDOW as usize;
    let way = 2 * (window + piece.len() + 16);
    assert!((window..way).contains(&(sent * piece.len())), "{sent} pieces are on their way");
    assert_eq!(taken.len(), sent, "what was sent has arrived");
    // Commands arrive although streams are blocked.
    nodes.overlay(2).route(0, Destination::Node(0), Channel::Control, b"through").unwrap();
    nodes.until(|nodes| {
        taken.extend(nodes.events(0));
        matches!(taken.last(), Some(Event::Message { channel: Channel::Control, .. }))
    });
    // The head consumes the bytes, and the stream continues.
    let mut bytes = 0;
    let mut room = false;
    nodes.until(|nodes| {
        for event in taken.drain(..).chain(nodes.events(0)) {
            if let Event::Message { via, channel: Channel::Stream, body, .. } = event {
                bytes += body.len();
                nodes.overlay(0).consumed(via, body.len() as u32);
            }
        }
        room |= nodes.events(2).iter().any(|event| matches!(event, Event::CreditAvailable { neighbour: 1 }));
        while nodes.overlay(2).has_credit(0) {
            nodes.overlay(2).route(0, Destination::Node(0), Channel::Stream, &piece).unwrap();
        }
        bytes > 8 * window
    });
    assert!(room);
}

// Fault: A daemon sends output for which it has no credit
// Outcome: its link and the run end; the host is named
// Guarantee: A node stores at most 2 MiB of output for a node behind a link
// Also: hydrant-iof `output_for_the_head_is_bounded_and_goes_on_when_it_is_sent`
#[test]
fn a_node_that_sends_streams_without_credit_is_named() {
    // 1 and 3 are children of 0, and 2 is a child of 1.
    for liar in [2, 3] {
        let mut nodes = Nodes::complete(&format!("credit{liar}"), 4, 2);
        let piece = vec![7; 60_000];
        let mut stored = 0;
        let mut failure = None;
        // The head takes nothing.
        nodes.until(|nodes| {
            nodes.overlay(liar).route(0, Destination::Node(0), Channel::Stream, &piece).unwrap();
            for event in nodes.events(0) {
                match event {
                    Event::Message { body, .. } => stored += body.len(),
                    Event::Failed(failed) => failure = Some(failed),
                    other => panic!("{other:?}"),
                }
            }
            failure.is_some()
        });
        let expected = format!(
            "host host{liar} (node {liar}): its daemon is lost: it sent more output than it has credit for"
        );
        assert_eq!(failure.unwrap().to_string(), expected);
        // Two nodes are behind either link.
        let most = 2 * (neighbour::WINDOW + BEYOND_CREDIT_MAX) as usize + RECEIVE_BUFFER_MIN;
        assert!(stored <= most, "{stored} bytes are stored");
        nodes.until(|nodes| matches!(nodes.events(liar)[..], [.., Event::LifelineLost(_)]));
    }
}

#[test]
fn forged_senders_and_destinations_are_rejected() {
    let forged = [
        // A node that is not below the child.
        route::Envelope { to: Destination::Node(0), from: 4, body: b"" },
        route::Envelope { to: Destination::Node(0), from: 0, body: b"" },
        // Back to the sender's side of the link.
        route::Envelope { to: Destination::Node(1), from: 1, body: b"" },
        // A node that does not exist.
        route::Envelope { to: Destination::Node(99), from: 1, body: b"" },
        // All descendants, from a child.
        route::Envelope { to: Destination::Descendants, from: 1, body: b"" },
    ];
    let mut wrong: Vec<(Channel, Vec<u8>)> =
        forged.iter().map(|forged| (Channel::Control, postcard::to_stdvec(forged).unwrap())).collect();
    let failure =
        DaemonFailure { node: 4, host: "host4".into(), cause: FailureCause::NotStarted(String::new()) };
    for note in [LinkMessage::Shutdown, LinkMessage::Failed(failure)] {
        wrong.push((Channel::Link, postcard::to_stdvec(&note).unwrap()));
    }
    wrong.push((Channel::Stream, b"\xff".to_vec()));
    for (at, (channel, bytes)) in wrong.into_iter().enumerate() {
        let mut nodes = Nodes::complete(&format!("forged{at}"), 4, 2);
        nodes.overlay(1).send(0, 0, channel, &bytes).unwrap();
        nodes.until(|nodes| nodes.node(0).events.iter().any(|event| matches!(event, Event::Failed(_))));
        let [Event::Failed(failure)] = &nodes.events(0)[..] else { panic!("one thing is wrong") };
        assert!(
            failure.to_string().starts_with("host host1 (node 1): its daemon is lost: it sent"),
            "{failure}"
        );
        // The head closes the link, and the node loses its lifeline.
        nodes.until(|nodes| nodes.node(1).events.iter().any(|event| matches!(event, Event::LifelineLost(_))));
    }
}

#[test]
fn a_lost_node_is_reported_to_the_head_and_to_its_children() {
    let mut nodes = Nodes::complete("lost", 6, 2);
    // 4 is a child of 0; 5 and 6 are children of 4.
    let lost = nodes.nodes[5].take().unwrap();
    drop(lost);
    nodes.until(|nodes| !nodes.node(0).events.is_empty());
    let [Event::Failed(failure)] = &nodes.events(0)[..] else { panic!("one node is lost") };
    assert_eq!(failure.to_string(), "host host5 (node 5): its daemon is lost: its connection was closed");
    drop(nodes.nodes[4].take().unwrap());
    nodes.until(|nodes| !nodes.node(6).events.is_empty());
    let [Event::LifelineLost(lost)] = &nodes.events(6)[..] else { panic!("its parent is gone") };
    let expected = "host host4 (node 4), the parent of this daemon, is lost: its connection was closed";
    assert_eq!(lost.to_string(), expected);
}

#[test]
fn an_unannounced_pause_ends_the_link() {
    let mut nodes = Nodes::complete("silence", 2, 2);
    let now = nodes.now();
    let Node { overlay, poller, .. } = nodes.node(2);
    overlay.announce_pause(now, poller);
    // Node 2 sends nothing and has announced it. Then node 1 sends nothing without an announcement.
    let hushed = nodes.nodes[2].take();
    nodes.settle();
    let silent = nodes.nodes[1].take();
    nodes.now += 30_000;
    nodes.until(|nodes| !nodes.node(0).events.is_empty());
    let [Event::Failed(failure)] = &nodes.events(0)[..] else { panic!("one is silent") };
    let expected = "host host1 (node 1): its daemon is lost: no message for 30 s";
    assert_eq!(failure.to_string(), expected);
    drop((hushed, silent));
}

#[test]
fn heartbeats_keep_idle_links() {
    let mut nodes = Nodes::complete("idle", 3, 2);
    // Four times the heartbeat timeout.
    for _ in 0..120 {
        nodes.now += 1_000;
        nodes.settle();
    }
    for node in 0..4 {
        assert!(nodes.events(node).is_empty(), "an idle link is not a dead one");
    }
}

/// Gives each daemon a copy of the record, in the order of the numbers in `order`.
fn copies(order: &str) -> String {
    format!(
        "cat > '{{dir}}/all'; for n in {order}; do cp '{{dir}}/all' '{{dir}}/new'; mv '{{dir}}/new' '{{dir}}/host'$n; done; \
         exec sleep 1000"
    )
}

#[test]
fn one_command_starts_a_tree() {
    // Children ask before their parents listen.
    for (name, order) in [("down", "1 2 3 4 5 6 7"), ("up", "7 6 5 4 3 2 1")] {
        let mut nodes = Nodes::of_step(name, &copies(order), 7, 2).completed();
        nodes.settle();
        assert!((0..=7).all(|node| nodes.overlay(node).addrs().next().is_none()), "all listeners are closed");
        nodes.overlay(0).route(0, Destination::Descendants, Channel::Control, b"all").unwrap();
        nodes.overlay(7).route(0, Destination::Node(0), Channel::Control, b"here").unwrap();
        nodes.settle();
        for node in 1..=7 {
            assert_eq!(bodies(nodes.events(node)), [(0, Channel::Control, b"all".to_vec())], "node {node}");
        }
        assert_eq!(bodies(nodes.events(0)), [(7, Channel::Control, b"here".to_vec())]);
    }
}

/// The failure that the head reports.
fn failure_of(nodes: &mut Nodes) -> String {
    let failure = |event: &Event| match event {
        Event::Failed(failure) => Some(failure.to_string()),
        _ => None,
    };
    nodes.until(|nodes| nodes.node(0).events.iter().any(|event| failure(event).is_some()));
    nodes.events(0).iter().find_map(failure).unwrap()
}

#[test]
fn a_host_without_daemon_is_named_while_the_command_goes_on() {
    let says =
        "cat > /dev/null; echo 'srun: error: host3: task 2: Exited with exit code 1' >&2; exec sleep 1000";
    let mut nodes = Nodes::of_step("says", says, 4, 2);
    let failure = failure_of(&mut nodes);
    let expected = "host host3 (node 3): ";
    assert!(
        failure.starts_with(expected) && failure.ends_with("task 2: Exited with exit code 1"),
        "{failure}"
    );
}

#[test]
fn a_command_for_all_that_ends_early_is_a_failure() {
    let mut nodes = Nodes::of_step("ends", "echo 'srun: error: Unable to create step'; exit 3", 4, 2);
    nodes.until(|nodes| {
        let Ok(Some((pid, status))) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) else {
            return false;
        };
        nodes.overlay(0).handle_child_exit(0, pid, status)
    });
    let failure = failure_of(&mut nodes);
    assert!(failure.contains("srun ended with exit code 3 before the daemon had joined\n"), "{failure}");
    assert!(failure.ends_with("Unable to create step"), "{failure}");
}
