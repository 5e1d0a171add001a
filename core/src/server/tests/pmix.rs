//! Tests of PMIx clients on several nodes, whose messages arrive in any order that keeps each link's.

mod gather;
// What only a host can tell.
#[cfg(feature = "cluster")]
mod monitor;
#[cfg(feature = "cluster")]
mod queries;
#[cfg(feature = "cluster")]
mod tools;

use std::collections::BTreeMap;

use super::*;
use crate::limits::{COMMIT_BYTES_MAX, OVERSUBSCRIBED_ATTR};
use crate::wire::Integers;
use crate::wire::pmix::{self, HEADER_LEN, Reader, UNDEFINED, WILDCARD, Writer, status};

pub(super) const LIMITS: Limits = Limits {
    jobs: 4,
    ranks: 16,
    conns: 16,
    keys: 256,
    kvs_bytes: 1 << 16,
    groups: 8,
    names: 32,
    spawns: 4,
    spawn_bytes: 2048,
    psets: 4,
    links: 4,
    commit_bytes: 512,
};

/// Servers of several nodes. Node 0 is the head, and rank `r` of each job is on node `1 + r % (nodes - 1)`. Only the host of
/// node 2 has a known name. The connection of a rank has the number of its slot.
pub(super) struct Cluster {
    pub(super) servers: Vec<Server<'static>>,
    /// Messages in flight, by sender and receiver.
    wires: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// Job sizes.
    sizes: Vec<u32>,
    seed: u64,
    now: Time,
    /// Replies that have not been taken, by connection.
    replies: BTreeMap<u32, VecDeque<Vec<u8>>>,
    pub(super) events: Vec<String>,
    /// Requests of upcalls.
    requests: Vec<Vec<u8>>,
    /// Version of the clients' library.
    version: &'static str,
}

impl Cluster {
    pub(super) fn new(nodes: u32, radix: u32, sizes: &[u32], cleanup: bool, seed: u64) -> Cluster {
        Cluster::with_limits(LIMITS, (nodes, radix), sizes, cleanup, seed)
    }

    pub(super) fn with_limits(
        limits: Limits,
        (nodes, radix): (u32, u32),
        sizes: &[u32],
        cleanup: bool,
        seed: u64,
    ) -> Cluster {
        let mut all = Cluster {
            servers: (0..nodes).map(|_| Server::new(limits, storage(&limits), SEED).unwrap()).collect(),
            wires: BTreeMap::new(),
            sizes: sizes.to_vec(),
            seed,
            now: Time(0),
            replies: BTreeMap::new(),
            events: Vec::new(),
            requests: Vec::new(),
            version: "5.0.11",
        };
        for node in 0..nodes {
            all.tell(node, Input::Node { node, nodes, radix });
            for (id, &size) in (0..).zip(sizes) {
                let (job, name) = (JobId(id), format!("job.{id}"));
                let spec = JobSpec { cleanup, remote_names: true, ..JobSpec::new(job, &name, size) };
                all.tell(node, Input::RegisterJob(spec));
                all.tell(node, Input::Attr { job, key: b"pmix.hname.0", value: b"," });
                all.tell(node, Input::Attr { job, key: b"pmix.hname.0.1", value: b"south" });
                for rank in 0..size {
                    let node_of = 1 + rank % (nodes - 1);
                    let input = Input::MapRanks { job, first: Rank(rank), count: 1, node: node_of };
                    all.tell(node, input);
                }
            }
        }
        for (job, &size) in (0..).zip(sizes) {
            (0..size).for_each(|rank| all.join(job, rank));
        }
        all
    }

    fn node(&self, rank: u32) -> u32 {
        1 + rank % (self.servers.len() as u32 - 1)
    }

    fn conn(&self, job: u32, rank: u32) -> u32 {
        self.sizes[..job as usize].iter().sum::<u32>() + rank
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    pub(super) fn tell(&mut self, node: u32, input: Input<'_>) {
        let server = &mut self.servers[node as usize];
        server.handle(self.now, input).unwrap();
        let mut buf = vec![0; server.limits().output_max()];
        while let Some(output) = server.poll(&mut buf).unwrap() {
            match output {
                Output::Bytes { conn, bytes } => {
                    self.replies.entry(conn.0).or_default().push_back(bytes.to_vec())
                }
                Output::Joined { .. } => {}
                Output::Peer { node: to, bytes } => {
                    self.wires.entry((node, to)).or_default().push_back(bytes.to_vec());
                }
                Output::Upcall { request, .. } => self.requests.push(request.to_vec()),
                other => self.events.push(format!("{node}: {other:?}")),
            }
        }
    }

    /// Delivers one message. Returns false if none is in flight.
    fn deliver(&mut self) -> bool {
        let full: Vec<(u32, u32)> =
            self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(&ends, _)| ends).collect();
        if full.is_empty() {
            return false;
        }
        let (from, to) = full[self.random(full.len())];
        let message = self.wires.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        self.tell(to, Input::Peer { node: from, bytes: &message });
        true
    }

    pub(super) fn settle(&mut self) {
        while self.deliver() {}
    }

    fn send(&mut self, job: u32, rank: u32, bytes: &[u8]) {
        let (node, conn) = (self.node(rank), ConnId(self.conn(job, rank)));
        self.tell(node, Input::Bytes { conn, bytes, full: false });
    }

    fn join(&mut self, job: u32, rank: u32) {
        let (node, conn) = (self.node(rank), ConnId(self.conn(job, rank)));
        self.tell(node, Input::Opened { conn, job: JobId(job), rank: None });
        let mut body = b"native\0\0\0\0\0\0".to_vec();
        body.extend(format!("job.{job}\0").as_bytes());
        body.extend(rank.to_be_bytes());
        body.extend(self.version.as_bytes());
        body.extend(b"\0v41\0\x01hash\0");
        let mut hello = vec![0xff; 8];
        hello.extend((body.len() as u32).to_le_bytes());
        hello.extend([0; 4]);
        hello.extend(body);
        self.send(job, rank, &hello);
        let reply = self.replies.get_mut(&conn.0).and_then(VecDeque::pop_front).expect("it is answered");
        assert_eq!(reply[..4], [0; 4], "the handshake of rank {rank} of job {job} is accepted");
    }

    /// Replaces a rank's connection by one of another version of the library.
    fn rejoin(&mut self, job: u32, rank: u32, version: &'static str) {
        self.asks(job, rank, 9, |writer| command(writer, 5));
        self.gets(job, rank, 9, status::SUCCESS);
        let conn = ConnId(self.conn(job, rank));
        self.tell(self.node(rank), Input::Closed { conn });
        self.version = version;
        self.join(job, rank);
    }

    /// Sends a request.
    pub(super) fn asks(&mut self, job: u32, rank: u32, tag: u32, write: impl Fn(&mut Writer<'_>)) {
        let mut body = vec![0; pmix::MESSAGE_MAX as usize];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        write(&mut writer);
        let len = writer.finish().expect("it fits");
        let mut message = pmix::write_header(tag, len as u32).to_vec();
        message.extend(&body[..len]);
        self.send(job, rank, &message);
    }

    /// Takes the next reply of a rank: its tag, its status, and the rest.
    pub(super) fn reply(&mut self, job: u32, rank: u32) -> Option<(u32, i32, Vec<u8>)> {
        let conn = self.conn(job, rank);
        let reply = self.replies.get_mut(&conn)?.pop_front()?;
        let tag = u32::from_be_bytes(*reply[4..].first_chunk().unwrap());
        let mut reader = Reader::new(Integers::Flexible, &reply[HEADER_LEN..]);
        reader.single().unwrap();
        let status = reader.int32().unwrap();
        Some((tag, status, reader.rest().to_vec()))
    }

    /// Expects a reply.
    fn gets(&mut self, job: u32, rank: u32, tag: u32, status: i32) -> Vec<u8> {
        let (got, code, rest) = self.reply(job, rank).expect("it is answered");
        assert_eq!((got, code), (tag, status), "of rank {rank} of job {job}");
        rest
    }

    fn commit(&mut self, job: u32, rank: u32, key: &str, value: &str) {
        assert_eq!(self.commit_scopes((job, rank), &[1, 2], key, value), status::SUCCESS);
    }

    /// Commits a key with a value that ends with the scope. Scopes from 5 on remove the key. Returns the status.
    fn commit_scopes(&mut self, (job, rank): (u32, u32), scopes: &[u8], key: &str, value: &str) -> i32 {
        self.asks(job, rank, 1, |writer| {
            command(writer, 2);
            for &scope in scopes {
                let mut pack = [0; 512];
                let mut inner = Writer::new(Integers::Flexible, &mut pack);
                inner.key(key.as_bytes(), pmix::kind::STRING);
                inner.string(format!("{value}{scope}").as_bytes());
                let len = inner.finish().unwrap();
                writer.single();
                writer.byte(scope);
                writer.single();
                writer.byte(1);
                writer.size(len as u64);
                writer.raw(&pack[..len]);
            }
        });
        let (_, status, _) = self.reply(job, rank).expect("it is answered");
        status
    }

    /// Takes the next message of a rank, that a key is removed: the process that had put it, the scope, and the key.
    #[cfg(feature = "cluster")]
    fn removal(&mut self, job: u32, rank: u32) -> Option<(String, u32, u8, String)> {
        let conn = self.conn(job, rank);
        let message = self.replies.get_mut(&conn)?.pop_front()?;
        assert_eq!(message[4..8], pmix::REMOVED_TAG.to_be_bytes(), "of rank {rank} of job {job}");
        let mut reader = Reader::new(Integers::Flexible, &message[HEADER_LEN..]);
        let mut read = || {
            reader.single()?;
            let proc = reader.proc()?;
            reader.single()?;
            let scope = reader.byte()?;
            reader.single()?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            let key = text(reader.string()??)?;
            Some((text(proc.namespace)?, proc.rank, scope, key)).filter(|_| reader.is_at_end())
        };
        Some(read().expect("it is decoded"))
    }

    fn fence(&mut self, job: u32, rank: u32, collects: bool) {
        let name = format!("job.{job}");
        self.asks(job, rank, 2, |writer| {
            command(writer, 3);
            procs(writer, &[(&name, WILDCARD)]);
            writer.array(1);
            writer.info(b"pmix.collect", pmix::kind::BOOL);
            writer.byte(u8::from(collects));
        });
    }

    fn get(&mut self, from: (u32, u32), of: (u32, u32), key: &str) {
        self.asks(from.0, from.1, 3, |writer| {
            command(writer, 4);
            writer.single();
            writer.string(format!("job.{}", of.0).as_bytes());
            writer.single();
            writer.uint32(of.1);
            writer.array(0);
            writer.single();
            writer.string(key.as_bytes());
        });
    }

    /// A rank gets the newest data of a rank of its job.
    fn get_newest(&mut self, from: (u32, u32), of: u32, key: &str) {
        self.asks(from.0, from.1, 3, |writer| {
            command(writer, 4);
            writer.single();
            writer.string(format!("job.{}", from.0).as_bytes());
            writer.single();
            writer.uint32(of);
            writer.array(1);
            writer.info(b"pmix.get.refresh", pmix::kind::BOOL);
            writer.byte(1);
            writer.single();
            writer.string(key.as_bytes());
        });
    }

    /// A rank renews its copy of the data of a rank of its job.
    fn refresh(&mut self, from: (u32, u32), of: u32) {
        self.asks(from.0, from.1, 3, |writer| {
            command(writer, 33);
            writer.single();
            writer.string(format!("job.{}", from.0).as_bytes());
            writer.single();
            writer.uint32(of);
        });
    }

    /// A rank gets data of its job, or of a host of the job.
    fn get_of_job(&mut self, from: (u32, u32), key: &str, host: Option<&str>) {
        self.asks(from.0, from.1, 3, |writer| {
            command(writer, 4);
            writer.single();
            writer.string(format!("job.{}", from.0).as_bytes());
            writer.single();
            writer.uint32(WILDCARD);
            writer.array(u32::from(host.is_some()));
            if let Some(host) = host {
                writer.info(b"pmix.hname", pmix::kind::STRING);
                writer.string(host.as_bytes());
            }
            writer.single();
            writer.string(key.as_bytes());
        });
    }

    /// A rank registers for events.
    fn listen(&mut self, (job, rank): (u32, u32), codes: &[i32]) {
        self.asks(job, rank, 9, |writer| {
            command(writer, 13);
            writer.array(codes.len() as u32);
            codes.iter().for_each(|&code| writer.int32(code));
            writer.array(0);
        });
        self.gets(job, rank, 9, status::SUCCESS);
    }

    /// A rank dies by a signal.
    fn kill(&mut self, (job, rank): (u32, u32)) {
        let exit = Exit::Signal(9);
        self.tell(self.node(rank), Input::Exited { job: JobId(job), rank: Rank(rank), exit });
    }

    /// Takes the events that a group has lost members: the name of the group, and the rank.
    fn lost_members(&mut self, (job, rank): (u32, u32)) -> Vec<(String, u32)> {
        let conn = self.conn(job, rank);
        let events = self.replies.get_mut(&conn).map(core::mem::take).unwrap_or_default();
        let loss = |event: Vec<u8>| {
            let mut reader = Reader::new(Integers::Flexible, &event[HEADER_LEN..]);
            reader.single().unwrap();
            assert_eq!(reader.byte(), Some(pmix::event::COMMAND));
            reader.single().unwrap();
            assert_eq!(reader.int32(), Some(pmix::event::MEMBER_FAILED));
            reader.single().unwrap();
            reader.proc().unwrap();
            let infos = reader.infos().unwrap();
            let name = infos.find(b"pmix.grp.id").unwrap().as_string().unwrap().to_vec();
            (String::from_utf8(name).unwrap(), infos.find(b"pmix.evproc").unwrap().as_proc().unwrap().rank)
        };
        events.into_iter().map(loss).collect()
    }

    /// Number of messages in flight.
    fn in_flight(&self) -> usize {
        self.wires.values().map(VecDeque::len).sum()
    }

    /// Replaces a server by one that is restored from its snapshot.
    fn replace(&mut self, node: usize) {
        let server = &self.servers[node];
        let mut buf = vec![0; server.snapshot_len()];
        let snapshot = server.snapshot(&mut buf).unwrap();
        let server = Server::restore(snapshot, storage(server.limits())).unwrap();
        assert_eq!(server.snapshot(&mut vec![0; snapshot.len()]).unwrap(), snapshot);
        self.servers[node] = server;
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(millis);
        (0..self.servers.len() as u32).for_each(|node| self.tell(node, Input::Timeout));
    }
}

/// Writes the number of a command.
fn command(writer: &mut Writer<'_>, number: u8) {
    writer.single();
    writer.byte(number);
}

fn procs(writer: &mut Writer<'_>, procs: &[(&str, u32)]) {
    writer.array(procs.len() as u32);
    procs.iter().for_each(|&(name, rank)| writer.proc(name.as_bytes(), rank));
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn data_travel_with_a_fence_that_collects() {
    for seed in 0..20 {
        let mut all = Cluster::new(6, 2, &[7], true, seed);
        for rank in 0..7 {
            all.commit(0, rank, "card", &format!("of {rank}, scope "));
            all.fence(0, rank, true);
        }
        all.settle();
        for rank in 0..7 {
            all.gets(0, rank, 2, status::SUCCESS);
        }
        for (from, of) in (0..7).flat_map(|from| (0..7).map(move |of| (from, of))) {
            all.get((0, from), (0, of), "card");
            let data = all.gets(0, from, 3, status::SUCCESS);
            let scope = if from % 5 == of % 5 { 1 } else { 2 };
            assert!(contains(&data, &format!("of {of}, scope {scope}")), "rank {from} gets those of {of}");
        }
        assert_eq!(all.in_flight(), 0, "no node was asked");
    }
}

#[test]
fn data_that_follow_a_collecting_fence_are_fetched() {
    for seed in 0..20 {
        let mut all = Cluster::new(6, 2, &[7], true, seed);
        for rank in 0..7 {
            all.commit(0, rank, "card", "first, scope ");
            all.fence(0, rank, true);
        }
        all.settle();
        for rank in 0..7 {
            all.gets(0, rank, 2, status::SUCCESS);
            all.commit(0, rank, "second", &format!("of {rank}, scope "));
        }
        for of in 0..7 {
            (0..7).for_each(|from| all.get((0, from), (0, of), "second"));
            all.settle();
            for from in 0..7 {
                let data = all.gets(0, from, 3, status::SUCCESS);
                assert!(contains(&data, &format!("of {of}, scope ")), "rank {from} gets those of {of}");
            }
        }
    }
}

// Fault: A thread calls `PMIx_Abort` while four others wait in requests that never complete
// Outcome: the job ends, or the rank alone if it names only itself
// Guarantee: What needs no reply waits for none
#[test]
fn an_abort_does_not_wait_for_replies() {
    for (alone, ends) in [(false, "AbortJob"), (true, "KillRank")] {
        let mut all = Cluster::new(2, 2, &[2], true, 1);
        all.listen((0, 0), &[5]);
        (0..4).for_each(|_| all.get((0, 0), (0, 1), "never"));
        all.asks(0, 0, 9, |writer| {
            command(writer, 14);
            writer.array(1);
            writer.int32(5);
        });
        let events = &all.servers[1].conns[all.conn(0, 0) as usize].events;
        assert!(events.codes.is_empty(), "the registration ends");
        for _ in 0..2 {
            all.asks(0, 0, 9, |writer| {
                command(writer, 1);
                writer.single();
                writer.int32(3);
                writer.single();
                writer.string(b"out of patience");
                procs(writer, if alone { &[("job.0", 0)] } else { &[] });
            });
            assert!(all.events.len() == 1 && all.events[0].contains(ends), "{:?}", all.events);
            assert!(all.events[0].contains("Some(3)"), "{:?}", all.events);
        }
        assert!(all.reply(0, 0).is_none());
    }
}

/// Limits with room for a commit of thousands of values.
const LARGE: Limits = Limits { kvs_bytes: 1 << 22, commit_bytes: COMMIT_BYTES_MAX, ..LIMITS };

/// Key of a tiny value.
fn tiny_key(letter: u8, number: u32) -> [u8; 3] {
    [letter, number as u8 | 128, (number >> 7) as u8 | 128]
}

/// Writes tiny values as packs.
fn tiny_packs(letter: u8, count: u32) -> Vec<u8> {
    let mut room = vec![0; 1 << 16];
    let mut writer = Writer::new(Integers::Flexible, &mut room);
    for number in 0..count {
        writer.key(&tiny_key(letter, number), pmix::kind::BOOL);
        writer.byte(1);
    }
    let len = writer.finish().unwrap();
    room.truncate(len);
    room
}

/// The first rank commits packs in a scope. Returns the status.
fn commit_packs(all: &mut Cluster, scope: u8, data: &[u8]) -> i32 {
    all.asks(0, 0, 1, |writer| {
        command(writer, 2);
        writer.single();
        writer.byte(scope);
        writer.single();
        writer.byte(1);
        writer.size(data.len() as u64);
        writer.raw(data);
    });
    all.reply(0, 0).expect("it is answered").1
}

// Fault: A rank commits thousands of tiny values, and removes thousands of keys that are not among them, again and again
// Outcome: the job ends
// Guarantee: The work for a commit is bounded
#[test]
fn a_commit_that_takes_too_many_comparisons_is_refused() {
    let mut all = Cluster::with_limits(LARGE, (2, 2), &[1], true, 1);
    assert_eq!(commit_packs(&mut all, 3, &tiny_packs(b'a', 5000)), status::SUCCESS);
    assert_eq!(commit_packs(&mut all, 3, &tiny_packs(b'a', 5000)), status::SUCCESS, "the same again");
    assert_eq!(commit_packs(&mut all, 7, &tiny_packs(b'a', 1)), status::SUCCESS);
    assert_eq!(commit_packs(&mut all, 7, &tiny_packs(b'b', 5000)), status::OUT_OF_RESOURCE);
    assert!(all.events[0].contains("AbortJob"), "{:?}", all.events);
}

// Fault: A client has not taken what it asked about a connected job, which ends, and another job begins
// Outcome: the client is told that there is no such job
// Guarantee: No client gets data of one job in place of those of another
#[cfg(feature = "cluster")]
#[test]
fn an_answer_about_a_job_that_ends_is_not_about_the_next_one() {
    let mut all = Cluster::new(2, 2, &[1, 2], false, 1);
    for node in 0..2 {
        all.tell(node, Input::Connected { job: JobId(0), other: JobId(1), connected: true });
    }
    let conn = ConnId(all.conn(0, 0));
    all.tell(1, Input::Blocked { conn });
    all.asks(0, 0, 3, |writer| {
        command(writer, 4);
        writer.single();
        writer.string(b"job.1");
        writer.single();
        writer.uint32(WILDCARD);
        writer.array(0);
        writer.single();
        writer.string(b"pmix.job.size");
    });
    for node in 0..2 {
        all.tell(node, Input::DeregisterJob { job: JobId(1) });
        all.tell(node, Input::RegisterJob(JobSpec::new(JobId(1), "next", 3)));
    }
    all.tell(1, Input::Writable { conn });
    let rest = all.gets(0, 0, 3, status::NOT_FOUND);
    assert!(rest.is_empty(), "{rest:?}");
}

/// Other nodes hold data of a rank that a fence has brought, and the rank has replaced them since.
// Serves: Requests | refresh (33), get with `PMIX_GET_REFRESH_CACHE` | served: the newest data that the rank has committed,
// from its host
#[test]
fn a_refresh_brings_the_newest_data() {
    for seed in 0..40 {
        let mut all = Cluster::new(6, 2, &[7], true, seed);
        for rank in 0..7 {
            all.commit(0, rank, "card", "first, scope ");
            all.fence(0, rank, true);
        }
        all.settle();
        for rank in 0..7 {
            all.gets(0, rank, 2, status::SUCCESS);
        }
        for round in 0..3 {
            for rank in 0..7 {
                all.commit(0, rank, "card", &format!("round {round} of {rank}, scope "));
            }
            for of in 0..7 {
                for from in 0..7 {
                    if from % 2 == 0 {
                        all.refresh((0, from), of)
                    } else {
                        all.get_newest((0, from), of, "card")
                    }
                }
                all.settle();
                for from in 0..7 {
                    let data = all.gets(0, from, 3, status::SUCCESS);
                    let newest = format!("round {round} of {of}, scope ");
                    assert!(contains(&data, &newest), "rank {from} gets those of {of}");
                }
            }
        }
    }
}

/// The rank has put no such key before the fence, so no second is spent waiting for it.
#[test]
fn a_key_that_a_fence_has_not_brought_is_missing() {
    for (seed, collects) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut all = Cluster::new(6, 2, &[7], true, seed);
        // Rank 6 puts nothing, and rank 5 after the fence.
        (0..5).for_each(|rank| all.commit(0, rank, "card", "scope "));
        (0..7).for_each(|rank| all.fence(0, rank, collects));
        all.settle();
        (0..7).for_each(|rank| drop(all.gets(0, rank, 2, status::SUCCESS)));
        all.commit(0, 5, "card", "scope ");
        for of in 0..7 {
            (0..5).for_each(|from| all.get((0, from), (0, of), "none"));
            all.settle();
            let mut answer = status::NOT_FOUND;
            // A rank of the same node may be about to put the key.
            all.pass(100);
            if of >= 5 {
                let waits = (0..5).all(|from| all.reply(0, from).is_none());
                assert!(waits, "rank {of} may still put the key");
                all.pass(2000);
                answer = status::TIMEOUT;
            }
            (0..5).for_each(|from| drop(all.gets(0, from, 3, answer)));
        }
    }
}

// Serves: Requests | get (4) | served: committed data of a rank of any job of the run, until that job is over, and
// [attributes](#attributes). See [Missing keys](#missing-keys) Also: hydrant-core
// `a_get_ends_with_its_deadline_or_with_the_rank`
#[test]
fn data_are_fetched_from_the_node_of_their_rank() {
    for seed in 0..20 {
        let mut all = Cluster::new(6, 2, &[7], true, seed);
        for rank in 0..6 {
            all.commit(0, rank, "card", &format!("of {rank}, scope "));
            all.fence(0, rank, false);
        }
        all.fence(0, 6, false);
        all.settle();
        for rank in 0..7 {
            all.gets(0, rank, 2, status::SUCCESS);
        }
        // The last rank has not put its card.
        (0..6).for_each(|from| all.get((0, from), (0, 6), "card"));
        for of in 0..6 {
            (0..7).for_each(|from| all.get((0, from), (0, of), "card"));
            all.settle();
            for from in 0..7 {
                let data = all.gets(0, from, 3, status::SUCCESS);
                assert!(contains(&data, &format!("of {of}, scope ")), "rank {from} gets those of {of}");
            }
        }
        all.commit(0, 6, "card", "of 6, scope ");
        all.settle();
        for from in 0..6 {
            let data = all.gets(0, from, 3, status::SUCCESS);
            assert!(contains(&data, "of 6, scope "), "rank {from}");
        }
        // A later fence brings them again.
        (0..7).for_each(|rank| all.fence(0, rank, true));
        all.settle();
        (0..7).for_each(|rank| drop(all.gets(0, rank, 2, status::SUCCESS)));
    }
}

/// Returns the value of a key in the reply to a get.
fn value<'a>(reply: &'a [u8], key: &[u8]) -> pmix::Info<'a> {
    let mut reader = Reader::new(Integers::Flexible, reply);
    reader.single().unwrap();
    let mut data = Reader::new(Integers::Flexible, reader.blob().unwrap());
    data.single().unwrap();
    data.proc().unwrap();
    core::iter::from_fn(|| data.key_value()).find(|info| info.key == key).unwrap()
}

// Serves: Attributes | `PMIX_PARENT_ID` | served
#[test]
fn ranks_of_a_spawned_job_know_who_spawned_it() {
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    let job = JobId(1);
    for node in 0..3 {
        let spec = JobSpec { spawner: "job.0", ..JobSpec::new(job, "job.1", 2) };
        all.tell(node, Input::RegisterJob(spec));
        all.tell(node, Input::Attr { job, key: b"pmix.parent", value: b"1" });
    }
    all.get((0, 0), (1, 1), "pmix.parent");
    let data = all.gets(0, 0, 3, status::SUCCESS);
    let parent = value(&data, b"pmix.parent");
    assert_eq!([0, 1].map(|rank| parent.contains(b"job.0", rank)), [false, true]);
}

// Serves: Attributes | `PMIX_NODE_LIST`, `PMIX_LOCAL_PEERS`, `PMIX_LOCAL_PROCS` | served: with `PMIX_HOSTNAME` those of a host:
// `PMIx_Resolve_nodes` and `PMIx_Resolve_peers`. Hosts without known names, such as those of `hydrant serve --size`, are
// `node0` and so on. `-env PMIX_HOSTNAME NAME` names the host of a job on one host Also: libraries
// `interop::libpmix::hosts_and_their_ranks_are_known`
#[test]
fn hosts_have_names_and_ranks() {
    let mut all = Cluster::new(3, 2, &[5], true, 1);
    // Ranks 0, 2 and 4 are on node 1, whose host is the first.
    all.get_of_job((0, 1), "pmix.nlist", None);
    assert!(contains(&all.gets(0, 1, 3, status::SUCCESS), "node0,south\0"));
    all.get_of_job((0, 1), "pmix.lpeers", Some("node0"));
    let data = all.gets(0, 1, 3, status::SUCCESS);
    assert!(contains(&data, "node0\0") && contains(&data, "0,2,4\0"), "{}", data.escape_ascii());
    all.get_of_job((0, 0), "pmix.lpeers", Some("south"));
    let data = all.gets(0, 0, 3, status::SUCCESS);
    assert!(contains(&data, "south\0") && contains(&data, "1,3\0"), "{}", data.escape_ascii());
    all.get_of_job((0, 0), "pmix.lprocs", None);
    let data = all.gets(0, 0, 3, status::SUCCESS);
    let here = value(&data, b"pmix.lprocs");
    assert_eq!([0, 1, 2, 3, 4].map(|rank| here.contains(b"job.0", rank)), [true, false, true, false, true]);
    for unknown in ["node1", "node", "nor", ""] {
        all.get_of_job((0, 0), "pmix.lpeers", Some(unknown));
        all.gets(0, 0, 3, status::NOT_FOUND);
    }
}

// Serves: Attributes | `PMIX_NODE_OVERSUBSCRIBED` | served: if the ranks of all jobs on this host exceed the processors that
// binding, affinity and control groups allow. Open MPI 5 then yields while it waits, and 4 by `OMPI_MCA_mpi_oversubscribe`
// Also: libraries `interop::libpmix::ranks_know_that_they_exceed_their_processors`
#[test]
fn the_presence_of_a_key_says_that_a_node_is_oversubscribed() {
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    all.sizes.push(2);
    let job = JobId(1);
    for node in 0..3 {
        all.tell(node, Input::RegisterJob(JobSpec::new(job, "job.1", 2)));
        for rank in 0..2 {
            all.tell(node, Input::MapRanks { job, first: Rank(rank), count: 1, node: rank + 1 });
        }
    }
    all.tell(1, Input::Attr { job, key: OVERSUBSCRIBED_ATTR.as_bytes(), value: b"TRUE" });
    let told = [0, 1].map(|rank| {
        all.join(1, rank);
        all.get_of_job((1, rank), "pmix.ndosub", None);
        contains(&all.gets(1, rank, 3, status::SUCCESS), "pmix.ndosub")
    });
    assert_eq!(told, [true, false]);
}

#[test]
fn a_get_ends_with_its_deadline_or_with_the_rank() {
    let mut all = Cluster::new(4, 2, &[4], false, 1);
    all.get((0, 0), (0, 1), "card");
    all.get((0, 0), (0, 2), "card");
    all.settle();
    all.tell(3, Input::Exited { job: JOB, rank: Rank(2), exit: Exit::Signal(9) });
    all.settle();
    all.gets(0, 0, 3, status::NOT_FOUND);
    all.pass(2000);
    all.gets(0, 0, 3, status::TIMEOUT);
    all.get((0, 0), (0, 2), "card");
    all.gets(0, 0, 3, status::NOT_FOUND);
    // Data with another key do not end it.
    all.get((0, 0), (0, 1), "late");
    all.commit(0, 1, "card", "of 1");
    all.settle();
    assert!(all.reply(0, 0).is_none(), "the key is not there");
    all.commit(0, 1, "late", "of 1");
    all.settle();
    all.gets(0, 0, 3, status::SUCCESS);
}

/// libpmix 7 commits what has changed.
// Serves: Requests | commit (2) | served: merged by key into two byte strings per rank, one for ranks of this host and one for
// others. libpmix up to 6 commits all data each time, libpmix 7 those that have changed
#[test]
fn commits_are_merged_by_key_and_scope() {
    for collects in [false, true] {
        let mut all = Cluster::new(3, 2, &[4], true, 1);
        let data = |all: &mut Cluster, from, key| {
            all.get((0, from), (0, 0), key);
            all.settle();
            all.reply(0, from)
        };
        all.commit(0, 0, "a", "first, scope ");
        all.commit(0, 0, "b", "second, scope ");
        assert_eq!(all.commit_scopes((0, 0), &[1], "c", "for this node, scope "), status::SUCCESS);
        (0..4).for_each(|rank| all.fence(0, rank, collects));
        all.settle();
        (0..4).for_each(|rank| drop(all.gets(0, rank, 2, status::SUCCESS)));
        for (from, scope) in [(2, 1), (1, 2)] {
            let (_, code, all_data) = data(&mut all, from, "a").expect("it is there");
            assert_eq!(code, status::SUCCESS);
            for part in ["first", "second"] {
                assert!(contains(&all_data, &format!("{part}, scope {scope}")), "{from}: {part}");
            }
            assert_eq!(contains(&all_data, "for this node, scope 1"), scope == 1);
        }
        assert_eq!(all.commit_scopes((0, 0), &[7], "a", ""), status::SUCCESS);
        all.commit(0, 0, "b", "third, scope ");
        for (from, scope) in [(2, 1), (1, 2)] {
            if scope == 2 {
                (0..4).for_each(|rank| all.fence(0, rank, collects));
                all.settle();
                (0..4).for_each(|rank| drop(all.gets(0, rank, 2, status::SUCCESS)));
            }
            let (_, _, all_data) = data(&mut all, from, "b").expect("it is there");
            assert!(!contains(&all_data, "first") && !contains(&all_data, "second"), "{from}");
            assert!(contains(&all_data, &format!("third, scope {scope}")), "{from}");
        }
    }
}

#[cfg(feature = "cluster")]
#[test]
fn commits_without_end_take_bounded_room() {
    for (seed, collects) in (0..6).map(|seed| (seed, seed % 2 == 0)) {
        let mut all = Cluster::new(3, 2, &[4], true, seed);
        let (mut fell, mut written) = (0, 0);
        for round in 0..200 {
            for rank in 0..4 {
                all.commit(0, rank, "key", &format!("{round} of {rank} {}", "x".repeat(200)));
                all.fence(0, rank, collects);
                for _ in 0..all.random(4) {
                    all.deliver();
                }
            }
            all.settle();
            (0..4).for_each(|rank| drop(all.gets(0, rank, 2, status::SUCCESS)));
            for (from, of) in (0..4).flat_map(|from| (0..4).map(move |of| (from, of))) {
                all.get_newest((0, from), of, "key");
                all.settle();
                let data = all.gets(0, from, 3, status::SUCCESS);
                assert!(contains(&data, &format!("{round} of {of} ")), "seed {seed}, round {round}");
            }
            let now = all.servers[1].kvs.written();
            fell += u32::from(now < written);
            written = now;
        }
        assert!(fell > 2, "seed {seed}: compacted {fell} times");
    }
}

/// libpmix keeps what it has got of other processes.
// Serves: Requests | commit that removes keys (2, of libpmix 7) | served: clients of libpmix 7 are told, on all hosts, in the jobs
// that events reach. They are told as of events: the oldest are lost if there are too many
#[cfg(feature = "cluster")]
#[test]
fn clients_of_libpmix_7_learn_that_a_key_is_removed() {
    let mut all = Cluster::new(3, 2, &[4, 2], false, 1);
    for rank in [0, 1, 3] {
        all.rejoin(0, rank, "7.0.0a1");
    }
    all.rejoin(1, 0, "7.0.0a1");
    let long = "long".repeat(50);
    for key in ["a", &long] {
        all.commit(0, 0, key, "");
        let told: [(&[u8], &[u8]); 4] = [(&[7], &[7]), (&[5], &[]), (&[3, 5, 6], &[5, 6]), (&[3, 5], &[5])];
        for (value, (scopes, told)) in ["1", "2", "3", "4"].into_iter().zip(told) {
            assert_eq!(all.commit_scopes((0, 0), scopes, key, value), status::SUCCESS);
            all.settle();
            for (job, rank) in [(0, 0), (0, 2), (1, 0), (1, 1)] {
                assert_eq!(all.removal(job, rank), None, "rank {rank} of job {job}");
            }
            for rank in [1, 3] {
                for &scope in told {
                    assert_eq!(all.removal(0, rank), Some(("job.0".into(), 0, scope, key.into())), "{rank}");
                }
                assert_eq!(all.removal(0, rank), None, "{rank}");
            }
        }
    }
}

#[test]
fn the_limit_of_commits_counts_all_data_of_a_scope() {
    let mut all = Cluster::new(2, 2, &[2], false, 1);
    let long = "x".repeat(400);
    all.commit(0, 1, "a", &long);
    assert_eq!(all.commit_scopes((0, 1), &[5, 6], "a", ""), status::SUCCESS);
    all.commit(0, 1, "b", &long);
    all.get((0, 0), (0, 1), "b");
    assert!(contains(&all.gets(0, 0, 3, status::SUCCESS), &long));
    assert_ne!(all.commit_scopes((0, 1), &[2], "a", &long), status::SUCCESS);
}

#[test]
fn a_commit_without_data_changes_nothing() {
    let mut all = Cluster::new(2, 2, &[2], false, 1);
    all.commit(0, 1, "card", "of 1");
    all.asks(0, 1, 5, |writer| command(writer, 2));
    all.gets(0, 1, 5, status::SUCCESS);
    all.get((0, 0), (0, 1), "card");
    assert!(contains(&all.gets(0, 0, 3, status::SUCCESS), "of 11"));
}

// Serves: Requests | get of `PMIX_RANK_UNDEF` (4) | served: any rank that has put the key
#[test]
fn a_get_of_any_rank_is_answered_by_the_one_that_has_the_key() {
    let mut all = Cluster::new(4, 2, &[4], false, 1);
    all.commit(0, 3, "card", "of 3, ");
    all.commit(0, 1, "port", "of 1, ");
    for (rank, key, value) in [(0, "card", "of 3, 1"), (0, "port", "of 1, 2"), (1, "card", "of 3, 2")] {
        all.get((0, rank), (0, UNDEFINED), key);
        all.settle();
        let data = all.gets(0, rank, 3, status::SUCCESS);
        assert!(contains(&data, value), "{}", data.escape_ascii());
    }
    all.get((0, 0), (0, UNDEFINED), "late");
    all.settle();
    all.commit(0, 2, "other", "");
    all.settle();
    assert!(all.reply(0, 0).is_none(), "no rank has the key");
    all.commit(0, 2, "late", "of 2");
    all.settle();
    all.gets(0, 0, 3, status::SUCCESS);
    all.get((0, 0), (0, UNDEFINED), "never");
    all.settle();
    all.pass(2000);
    all.gets(0, 0, 3, status::TIMEOUT);
    // The server has that for one rank.
    all.get((0, 0), (0, UNDEFINED), "pmix.lrank");
    all.gets(0, 0, 3, status::NOT_FOUND);
}

#[test]
fn the_host_keeps_published_data() {
    use crate::ids::UpcallId;
    use crate::wire::{Command, Persistence, Protocol, decode_upcall};

    let mut all = Cluster::new(3, 2, &[2], true, 1);
    all.asks(0, 0, 5, |writer| {
        command(writer, 6);
        writer.single();
        writer.uint32(0);
        writer.array(2);
        writer.info(b"pmix.persist", pmix::kind::PERSIST);
        writer.byte(1);
        writer.info(b"key", pmix::kind::STRING);
        writer.string(b"value");
    });
    let lookup = |writer: &mut Writer<'_>| {
        command(writer, 7);
        writer.single();
        writer.uint32(0);
        writer.single();
        writer.size(1);
        writer.single();
        writer.string(b"key");
        writer.array(0);
    };
    all.asks(0, 1, 6, lookup);
    let upcall = UpcallId(0);
    let mut requests: Vec<Vec<u8>> = core::mem::take(&mut all.requests);
    let publish = requests.remove(0);
    let Some(Command::Publish { name, port, persistence: Persistence::FirstRead }) =
        decode_upcall(Protocol::V2, &publish)
    else {
        panic!("{}", publish.escape_ascii())
    };
    let Some(Command::Lookup { name: wanted, wait: Some(0), party: Some(party) }) =
        decode_upcall(Protocol::V2, &requests[0])
    else {
        panic!("{}", requests[0].escape_ascii())
    };
    assert_eq!(wanted, name);
    let (party, range) = pmix::Party::read(party.as_plain().unwrap()).unwrap();
    assert_eq!((party.namespace, party.rank, range), (&b"job.0"[..], 1, 4));
    let port: Vec<u8> = port.parts().flatten().copied().collect();
    all.tell(1, Input::UpcallComplete { upcall, rc: 0, text: b"" });
    all.gets(0, 0, 5, status::SUCCESS);
    all.tell(2, Input::UpcallComplete { upcall, rc: 0, text: &port });
    let found = all.gets(0, 1, 6, status::SUCCESS);
    assert!(["job.0", "key", "value"].iter().all(|part| contains(&found, part)), "{found:?}");
    // An answer about several keys, which boards do not ask for, is longer than a port.
    let several = std::vec![port; 40].join(&pmix::DATA_SEPARATOR);
    assert!(several.len() > crate::limits::PORT_MAX);
    if crate::limits::HOST_FACTS {
        all.asks(0, 1, 6, lookup);
        all.tell(2, Input::UpcallComplete { upcall, rc: 0, text: &several });
        let found = all.gets(0, 1, 6, status::SUCCESS);
        assert_eq!(found.windows(5).filter(|part| part == b"value").count(), 40);
    }
    // The name is not there, or a PMI client has published something else.
    for (rc, text) in [(14, &b"no such name"[..]), (0, b"port")] {
        all.asks(0, 1, 6, lookup);
        all.tell(2, Input::UpcallComplete { upcall, rc, text });
        all.gets(0, 1, 6, status::NOT_FOUND);
    }
}

#[test]
fn nodes_reject_impossible_requests_for_data() {
    use crate::peer::message::{Head, JobRef, Writer};

    let mut all = Cluster::new(3, 2, &[2], true, 1);
    let job = JobRef { job: JOB, name: crate::store::log::hash(0, b"job.0") };
    let mut ask = |job, rank| {
        let mut buf = [0; 64];
        let message = Writer::new(&mut buf, Head::Get { job, rank: Rank(rank) }).unwrap().finish().to_vec();
        all.servers[1].handle(Time(0), Input::Peer { node: 0, bytes: &message }).map(drop)
    };
    assert_eq!(ask(job, 0), Ok(()));
    assert_eq!(ask(job, 1), Err(Fault::BadPeer), "the neighbour is nearer to that rank");
    assert_eq!(ask(job, 2), Err(Fault::BadPeer), "there is no such rank");
    assert_eq!(ask(JobRef { name: 1, ..job }, 1), Ok(()), "the job is over");
}
