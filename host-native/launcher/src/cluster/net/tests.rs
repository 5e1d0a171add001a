use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;

/// All nodes of a job in this process. What starts a daemon keeps its record in a file instead, so that the test can be
/// the daemon.
struct World {
    dir: PathBuf,
    start: Instant,
    /// Milliseconds by which the nodes' clock is ahead of the true one.
    ahead: u64,
    files: OpenFiles,
    nodes: Vec<Option<Node>>,
}

struct Node {
    links: Links,
    poller: Poller,
    events: Vec<Event>,
}

impl World {
    fn new(name: &str, daemons: u32, radix: u32) -> World {
        let dir = std::env::temp_dir().join(format!("hydrant-links-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let keep = format!("cat > '{}/{{host}}'; exec sleep 1000", dir.display());
        let settings = Settings {
            bootstrap: Bootstrap::Exec(vec!["sh".into(), "-c".into(), keep.into(), "{args}".into()]),
            bootstrap_exec: None,
            program: "hydrant".into(),
            iface: Some("127.0.0.1".into()),
            timeout: 30_000,
            start_time: 60_000,
        };
        let hosts = (1..=daemons).map(|node| Host::new(&format!("host{node}"))).collect();
        let layout = Start { head: "host0".into(), hosts, radix };
        let files = OpenFiles::reserve(64).unwrap();
        let poller = Poller::new().unwrap();
        let links = Links::head(layout, settings, 0, KeyRange(1), &files, &poller).unwrap();
        let mut nodes = vec![Some(Node { links, poller, events: Vec::new() })];
        nodes.resize_with(daemons as usize + 1, || None);
        World { dir, start: Instant::now(), ahead: 0, files, nodes }
    }

    /// With all nodes linked.
    fn complete(name: &str, daemons: u32, radix: u32) -> World {
        let mut world = World::new(name, daemons, radix);
        world.until(|world| {
            world.nodes.iter().all(|node| {
                node.as_ref()
                    .is_some_and(|node| node.events.iter().any(|event| matches!(event, Event::Complete)))
            })
        });
        for node in world.nodes.iter_mut().flatten() {
            node.events.clear();
        }
        world
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + self.ahead
    }

    fn node(&mut self, node: u32) -> &mut Node {
        self.nodes[node as usize].as_mut().unwrap()
    }

    fn links(&mut self, node: u32) -> &mut Links {
        &mut self.node(node).links
    }

    fn events(&mut self, node: u32) -> Vec<Event> {
        std::mem::take(&mut self.node(node).events)
    }

    /// Each node does what there is to do.
    fn turn(&mut self) {
        let now = self.now();
        let mut tokens = Vec::new();
        for at in 1..self.nodes.len() {
            let path = self.dir.join(format!("host{at}"));
            if self.nodes[at].is_none()
                && let Ok(bytes) = std::fs::read(&path)
                && let Ok(record) = Record::of(&bytes)
            {
                std::fs::remove_file(&path).unwrap();
                let poller = Poller::new().unwrap();
                let links = Links::daemon(record, now, KeyRange(1), &self.files, &poller).unwrap();
                self.nodes[at] = Some(Node { links, poller, events: Vec::new() });
            }
        }
        for Node { links, poller, events } in self.nodes.iter_mut().flatten() {
            poller.wait(Some(Duration::ZERO), &mut tokens).unwrap();
            for &token in &tokens {
                links.ready(token, now, poller).unwrap();
            }
            links.keep_time(now, poller).unwrap();
            links.flush(now, poller);
            events.extend(std::iter::from_fn(|| links.event()));
        }
    }

    fn until(&mut self, mut done: impl FnMut(&mut World) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done(self) {
            assert!(Instant::now() < deadline, "it does not come about");
            self.turn();
        }
    }

    /// Until nobody has anything to say.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            let count =
                |world: &World| world.nodes.iter().flatten().map(|node| node.events.len()).sum::<usize>();
            let before = count(self);
            self.turn();
            quiet = if count(self) == before { quiet + 1 } else { 0 };
        }
    }
}

impl Drop for World {
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
fn every_node_reaches_every_other_and_order_is_kept() {
    let mut world = World::complete("routes", 6, 2);
    for from in 0..7 {
        for to in 0..7_u32 {
            let (first, second) = (format!("{from}-{to}"), format!("{from}+{to}"));
            let now = world.now();
            let links = world.links(from);
            links.route(now, To::Node(to), Channel::Control, first.as_bytes()).unwrap();
            links.route(now, To::Node(to), Channel::Stream, second.as_bytes()).unwrap();
        }
    }
    world.until(|world| world.nodes.iter().flatten().all(|node| node.events.len() >= 14));
    for to in 0..7 {
        let all = bodies(world.events(to));
        for from in 0..7 {
            let of_node: Vec<_> = all.iter().filter(|(node, ..)| *node == from).collect();
            let expected =
                [(Channel::Control, format!("{from}-{to}")), (Channel::Stream, format!("{from}+{to}"))];
            assert_eq!(of_node.len(), 2);
            for ((_, channel, body), (which, text)) in of_node.into_iter().zip(expected) {
                assert!(*channel == which && *body == text.as_bytes(), "{text}");
            }
        }
    }
}

#[test]
fn a_broadcast_reaches_all_below_and_peers_reach_their_neighbours() {
    let mut world = World::complete("below", 6, 2);
    // 0: 1..4 and 4..7.
    world.links(0).route(0, To::Below, Channel::Control, b"all").unwrap();
    world.links(4).route(0, To::Below, Channel::Control, b"some").unwrap();
    world.links(4).send(0, 5, Channel::Peer, b"down").unwrap();
    world.links(4).send(0, 0, Channel::Peer, b"up").unwrap();
    world.links(4).send(0, 3, Channel::Peer, b"nowhere").unwrap();
    world.settle();
    let heard: Vec<_> = (0..7).map(|node| bodies(world.events(node))).collect();
    let all = (0, Channel::Control, b"all".to_vec());
    let some = (4, Channel::Control, b"some".to_vec());
    assert_eq!(heard[0], [(4, Channel::Peer, b"up".to_vec())]);
    assert!(heard[1..5].iter().all(|heard| *heard == [all.clone()]));
    assert_eq!(heard[6].len(), 2);
    assert!(heard[5].contains(&all) && heard[5].contains(&some));
    assert!(heard[5].contains(&(4, Channel::Peer, b"down".to_vec())));
}

#[test]
fn what_is_sent_early_waits_for_the_link() {
    let mut world = World::new("early", 2, 2);
    world.links(0).route(0, To::Node(2), Channel::Control, b"early").unwrap();
    assert!(!world.links(0).has_room(2), "streams are not begun before there is a link");
    world.until(|world| {
        let node = world.nodes[2].as_ref();
        node.is_some_and(|node| {
            node.events.iter().any(|event| matches!(event, Event::Message { from: 0, .. }))
        })
    });
    assert!(world.links(0).has_room(2));
}

#[test]
fn a_slow_head_holds_up_streams_and_nothing_else() {
    // A chain of two: 2 hangs on 1.
    let mut world = World::complete("slow", 4, 2);
    assert_eq!(world.links(0).tree().parent(2), Some(1));
    let piece = vec![7; 60_000];
    let (mut sent, mut taken) = (0, Vec::new());
    // Nobody takes anything at the head.
    let mut idle = 0;
    while idle < 50 {
        let before = sent;
        while world.links(2).has_room(0) {
            world.links(2).route(0, To::Node(0), Channel::Stream, &piece).unwrap();
            sent += 1;
        }
        world.turn();
        taken.extend(world.events(0));
        idle = if sent == before { idle + 1 } else { 0 };
    }
    let window = line::WINDOW as usize;
    let way = 2 * (window + piece.len() + 16);
    assert!((window..way).contains(&(sent * piece.len())), "{sent} pieces are on their way");
    assert_eq!(taken.len(), sent, "what was sent has arrived");
    // Commands get through meanwhile.
    world.links(2).route(0, To::Node(0), Channel::Control, b"through").unwrap();
    world.until(|world| {
        taken.extend(world.events(0));
        matches!(taken.last(), Some(Event::Message { channel: Channel::Control, .. }))
    });
    // The head takes what it has, and the stream goes on to any length.
    let mut bytes = 0;
    let mut room = false;
    world.until(|world| {
        for event in taken.drain(..).chain(world.events(0)) {
            if let Event::Message { via, channel: Channel::Stream, body, .. } = event {
                bytes += body.len();
                world.links(0).consumed(via, body.len() as u32);
            }
        }
        room |= world.events(2).iter().any(|event| matches!(event, Event::Room { neighbour: 1 }));
        while world.links(2).has_room(0) {
            world.links(2).route(0, To::Node(0), Channel::Stream, &piece).unwrap();
        }
        bytes > 8 * window
    });
    assert!(room);
}

#[test]
fn nobody_speaks_for_others() {
    let forged = [
        // A node that is not below the child.
        route::Envelope { to: To::Node(0), from: 3, body: b"" },
        route::Envelope { to: To::Node(0), from: 0, body: b"" },
        // Back to where it came from.
        route::Envelope { to: To::Node(1), from: 1, body: b"" },
        // Nowhere.
        route::Envelope { to: To::Node(99), from: 1, body: b"" },
        // To all.
        route::Envelope { to: To::Below, from: 1, body: b"" },
    ];
    let mut wrong: Vec<(Channel, Vec<u8>)> =
        forged.iter().map(|forged| (Channel::Control, postcard::to_stdvec(forged).unwrap())).collect();
    let failure = Failure { node: 3, host: "host3".into(), why: Why::NotStarted(String::new()) };
    for note in [Note::End, Note::Failed(failure)] {
        wrong.push((Channel::Link, postcard::to_stdvec(&note).unwrap()));
    }
    wrong.push((Channel::Stream, b"\xff".to_vec()));
    for (at, (channel, bytes)) in wrong.into_iter().enumerate() {
        let mut world = World::complete(&format!("forged{at}"), 4, 2);
        world.links(1).send(0, 0, channel, &bytes).unwrap();
        world.until(|world| world.node(0).events.iter().any(|event| matches!(event, Event::Failed(_))));
        let [Event::Failed(failure)] = &world.events(0)[..] else { panic!("one thing is wrong") };
        assert!(
            failure.to_string().starts_with("host host1 (node 1): its daemon is lost: it sent"),
            "{failure}"
        );
        // It is turned out, and so is what hangs on it.
        world.until(|world| world.node(1).events.iter().any(|event| matches!(event, Event::Orphaned(_))));
    }
}

#[test]
fn a_lost_node_is_named_at_the_head_and_orphans_know() {
    let mut world = World::complete("lost", 6, 2);
    // 4 hangs on 0; 5 and 6 hang on 4.
    let lost = world.nodes[5].take().unwrap();
    drop(lost);
    world.until(|world| !world.node(0).events.is_empty());
    let [Event::Failed(failure)] = &world.events(0)[..] else { panic!("one node is lost") };
    assert_eq!(failure.to_string(), "host host5 (node 5): its daemon is lost: its connection was closed");
    drop(world.nodes[4].take().unwrap());
    world.until(|world| !world.node(6).events.is_empty());
    let [Event::Orphaned(orphaned)] = &world.events(6)[..] else { panic!("its parent is gone") };
    let expected = "host host4 (node 4), which has started this daemon, is lost: its connection was closed";
    assert_eq!(orphaned.to_string(), expected);
}

#[test]
fn silence_is_found_out_unless_it_was_announced() {
    let mut world = World::complete("silence", 2, 2);
    let now = world.now();
    let Node { links, poller, .. } = world.node(2);
    links.hush(now, poller);
    // From here on two says nothing, but said so; then one does neither.
    let hushed = world.nodes[2].take();
    world.settle();
    let silent = world.nodes[1].take();
    world.ahead = 30_000;
    world.until(|world| !world.node(0).events.is_empty());
    let [Event::Failed(failure)] = &world.events(0)[..] else { panic!("one is silent") };
    let expected = "host host1 (node 1): its daemon is lost: nothing was heard of it for 30 s";
    assert_eq!(failure.to_string(), expected);
    drop((hushed, silent));
}

#[test]
fn signs_of_life_keep_idle_links() {
    let mut world = World::complete("idle", 3, 2);
    // Several times as long as a silent link would live.
    for _ in 0..120 {
        world.ahead += 1_000;
        world.settle();
    }
    for node in 0..4 {
        assert!(world.events(node).is_empty(), "an idle link is not a dead one");
    }
}
