//! Random sequences of PMIx and PMI-2 requests of two jobs against a simple model. A refused request leaves the state's
//! snapshot as it was.
//!
//! `HYDRANT_MODEL_CASES` says how many sequences; a failure prints the shortest one that was found.

mod pmi2;
mod refused;

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::limits::{Limits, PENDING_MAX};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::snapshot::DIGEST;
use hydrant_core::wire::pmix::{
    self, HEADER_LEN, Integers, Reader, UNDEFINED, WILDCARD, Writer, kind, status,
};
use hydrant_core::{ConnId, JobId, Time};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, counted};
use hydrant_tests::pmix::hello;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Cases of an ordinary run.
const CASES: u32 = 200;
/// Ranks of the jobs. The connection of a rank has the number of its slot.
const SIZES: [u32; 2] = [4, 2];
/// Ranks of the first job that speak PMI-2. All others speak PMIx.
const PMI2_RANKS: u32 = 2;
const NAMES: u32 = 4;
/// Time-out of fences in seconds. Gets wait longer.
const LATE: u32 = 1;
const LIMITS: Limits = Limits {
    jobs: 2,
    ranks: 6,
    conns: 6,
    keys: 64,
    kvs_bytes: 1 << 14,
    names: NAMES,
    groups: 2,
    spawns: 1,
    spawn_bytes: 256,
    commit_bytes: 512,
    ..Limits::NONE
};

/// One request of a client. Keys and values are numbers.
#[derive(Clone, Debug)]
enum Ask {
    Put {
        key: u8,
        value: u8,
    },
    Remove {
        key: u8,
    },
    /// With a time-out of `LATE`, or without one.
    Fence {
        timed: bool,
    },
    /// The time-out of all fences passes. Only the first one counts.
    Late,
    Get {
        rank: u32,
        key: u8,
        immediate: bool,
    },
    Publish {
        keys: Vec<u8>,
        value: u8,
        once: bool,
    },
    Lookup {
        key: u8,
    },
    Unpublish {
        keys: Vec<u8>,
    },
    Refused {
        which: u8,
    },
    Abort,
    Finalize,
}

fn ask() -> impl Strategy<Value = Ask> {
    let key = || 0..5u8;
    prop_oneof![
        4 => (key(), any::<u8>()).prop_map(|(key, value)| Ask::Put { key, value }),
        1 => key().prop_map(|key| Ask::Remove { key }),
        4 => any::<bool>().prop_map(|timed| Ask::Fence { timed }),
        1 => Just(Ask::Late),
        4 => (prop_oneof![4 => 0..4u32, 1 => Just(UNDEFINED)], key(), any::<bool>())
            .prop_map(|(rank, key, immediate)| Ask::Get { rank, key, immediate }),
        3 => (prop::collection::vec(key(), 1..4), any::<u8>(), any::<bool>())
            .prop_map(|(keys, value, once)| Ask::Publish { keys, value, once }),
        3 => key().prop_map(|key| Ask::Lookup { key }),
        2 => prop::collection::vec(key(), 0..3).prop_map(|keys| Ask::Unpublish { keys }),
        3 => any::<u8>().prop_map(|which| Ask::Refused { which }),
        1 => Just(Ask::Abort),
        1 => Just(Ask::Finalize),
    ]
}

/// A reply that is expected.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    /// A status, and bytes that follow it.
    Status(i32, Vec<u8>),
    /// A PMI-2 message that contains this.
    Text(String),
}

/// What a client waits for.
#[derive(Clone, Debug, PartialEq)]
enum Wait {
    Fence {
        timed: bool,
    },
    /// For a while only, if its rank had committed other data before a fence.
    Get {
        rank: u32,
        key: u8,
        is_short: bool,
    },
}

/// A rank.
#[derive(Clone, Debug, Default)]
struct Client {
    finalized: bool,
    /// Pending requests with their tags.
    waits: Vec<(u32, Wait)>,
    /// Keys and values that it has committed. The last one has been put last.
    committed: Vec<(u8, Vec<u8>)>,
    /// Number of fences before the last commit that has changed them.
    committed_at: Option<u32>,
}

/// A publication.
#[derive(Clone, Debug)]
struct Name {
    value: Vec<u8>,
    once: bool,
    /// The client that published it.
    conn: usize,
}

/// Server and model.
struct World<'s> {
    host: Host<'s>,
    clients: Vec<Client>,
    ended: [bool; 2],
    /// Fences of each job that have completed.
    fences: [u32; 2],
    /// Publications by protocol and key.
    names: BTreeMap<(bool, u8), Name>,
    /// Pairs that PMI-2 ranks have put.
    pairs: BTreeMap<u8, Vec<u8>>,
    tag: u32,
}

fn job_of(conn: usize) -> usize {
    usize::from(conn as u32 >= SIZES[0])
}

fn speaks_pmi2(conn: usize) -> bool {
    (conn as u32) < PMI2_RANKS
}

fn name_of(job: usize) -> &'static str {
    ["job", "other"][job]
}

fn key_text(key: u8) -> String {
    format!("key-{key}")
}

fn value_text(value: u8) -> Vec<u8> {
    format!("<{value:03}>{}", "v".repeat(usize::from(value % 40))).into_bytes()
}

fn command(writer: &mut Writer<'_>, number: u8) {
    writer.single();
    writer.byte(number);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

impl<'s> World<'s> {
    fn new(memory: &'s mut MappedStorage) -> World<'s> {
        let mut host = Host::new(LIMITS, memory).expect("the memory suffices");
        let mut clients = Vec::new();
        for (job, &size) in SIZES.iter().enumerate() {
            let id = JobId(job as u32);
            host.tell(Input::RegisterJob(JobSpec::new(id, name_of(job), size))).expect("the job is valid");
            for rank in 0..size {
                let conn = clients.len() as u32;
                clients.push(Client::default());
                host.tell(Input::Opened { conn: ConnId(conn), job: id, rank: None }).expect("there is room");
                if speaks_pmi2(conn as usize) {
                    host.ask(conn, b"cmd=init pmi_version=2 pmi_subversion=0\n");
                    let joined = host.ask(conn, &counted(&format!("cmd=fullinit;pmirank={rank};")));
                    assert!(contains(&joined, b";rc=0;"), "{}", joined.escape_ascii());
                } else {
                    assert_eq!(host.ask(conn, &hello(name_of(job), rank))[..4], [0; 4]);
                }
            }
        }
        let (names, pairs) = (BTreeMap::new(), BTreeMap::new());
        World { host, clients, ended: [false; 2], fences: [0; 2], names, pairs, tag: 100 }
    }

    /// Returns the state without whose turn is next, which changes with each reply.
    fn snapshot(&self) -> Vec<u8> {
        let mut state = self.host.snapshot(1 << 18);
        state.truncate(state.len() - DIGEST);
        // Behind the turn are the time of the next timeout and two counters, of context ids and of events.
        let wake = self.host.server.poll_at();
        let wake = postcard::to_slice(&wake, &mut [0; 16]).expect("a time is short").len();
        let turn = state.len() - wake - 3;
        state[turn] = 0;
        state
    }

    /// Sends a PMIx request. Returns its tag.
    fn send(&mut self, conn: usize, write: impl Fn(&mut Writer<'_>)) -> u32 {
        let mut body = [0; 2048];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        write(&mut writer);
        let len = writer.finish().expect("it fits");
        self.tag += 1;
        let mut message = pmix::write_header(self.tag, len as u32).to_vec();
        message.extend(&body[..len]);
        self.host.arrive(conn as u32, &message).expect("the connection is open");
        self.tag
    }

    /// Expects exactly these replies, in any order of the connections.
    fn expect(&mut self, mut expected: Vec<(usize, u32, Expected)>) {
        for conn in 0..self.clients.len() {
            for reply in self.host.take(conn as u32) {
                let at = expected.iter().position(|(to, tag, expected)| {
                    *to == conn
                        && match expected {
                            Expected::Text(part) => contains(&reply, part.as_bytes()),
                            Expected::Status(code, part) => {
                                let mut reader = Reader::new(Integers::Flexible, &reply[HEADER_LEN..]);
                                reply[4..8] == tag.to_be_bytes()
                                    && reader.single().and_then(|()| reader.int32()) == Some(*code)
                                    && (part.is_empty() || contains(&reply, part))
                            }
                        }
                });
                let shown = reply.escape_ascii();
                let at = at.unwrap_or_else(|| panic!("{conn} gets {shown}, expected {expected:?}"));
                expected.remove(at);
            }
        }
        assert!(expected.is_empty(), "no reply: {expected:?} ({:?})", self.host.events);
    }

    fn step(&mut self, conn: usize, ask: &Ask) {
        let job = job_of(conn);
        let client = &self.clients[conn];
        let waits_for_it = |other: &Client| {
            let rank = conn as u32;
            job == 0
                && other
                    .waits
                    .iter()
                    .any(|(_, wait)| matches!(wait, Wait::Get { rank: of, .. } if *of == rank))
        };
        let in_fence = client.waits.iter().any(|(_, wait)| matches!(wait, Wait::Fence { .. }));
        if self.ended[job] || client.waits.len() == PENDING_MAX {
            return;
        }
        if client.finalized {
            return self.after_finalize(conn);
        }
        match ask {
            Ask::Late => self.late(),
            // A rank of PMI-2 waits for its own replies.
            _ if speaks_pmi2(conn) && in_fence => {}
            Ask::Fence { .. } if in_fence => {}
            Ask::Fence { timed } => self.fence(conn, *timed && !speaks_pmi2(conn)),
            Ask::Finalize if in_fence || self.clients.iter().any(waits_for_it) => {}
            Ask::Finalize => self.finalize(conn),
            // The first job goes on to the end.
            Ask::Abort if job == 0 => {}
            Ask::Abort => self.abort(conn),
            Ask::Refused { which } if speaks_pmi2(conn) => self.refused_pmi2(conn, *which),
            Ask::Refused { which } => self.refused(conn, *which),
            _ if speaks_pmi2(conn) => self.ask_pmi2(conn, ask),
            _ => self.ask_pmix(conn, ask),
        }
    }

    fn after_finalize(&mut self, conn: usize) {
        let before = self.snapshot();
        if speaks_pmi2(conn) {
            return;
        }
        let tag = self.send(conn, |writer| command(writer, 5));
        self.expect(vec![(conn, tag, Expected::Status(status::ERROR, Vec::new()))]);
        assert!(before == self.snapshot(), "a refusal changes nothing");
    }

    /// Whether a rank had committed data before the last fence of its job, and none since.
    fn is_settled(&self, job: usize, rank: u32) -> bool {
        let conn = if job == 0 { 0 } else { SIZES[0] } + rank;
        let client = self.clients.get(conn as usize).filter(|_| rank < SIZES[job]);
        client.and_then(|client| client.committed_at).is_some_and(|number| number < self.fences[job])
    }

    /// Fences with a time-out end, and gets that wait for a while only.
    fn late(&mut self) {
        if self.host.now != Time(0) {
            return;
        }
        self.host.now = Time(u64::from(LATE) * 1000);
        self.host.tell(Input::Timeout).expect("it is always valid");
        let mut expected = Vec::new();
        for job in 0..SIZES.len() {
            let ranks = || (0..SIZES.iter().sum::<u32>() as usize).filter(|&conn| job_of(conn) == job);
            let is_timed = |(_, wait): &(u32, Wait)| *wait == Wait::Fence { timed: true };
            if ranks().any(|conn| self.clients[conn].waits.iter().any(is_timed)) {
                ranks().for_each(|conn| self.leave_fence(conn, false, &mut expected));
            }
            for conn in ranks() {
                let waits = std::mem::take(&mut self.clients[conn].waits);
                for (tag, wait) in waits {
                    match wait {
                        Wait::Get { rank, is_short: true, .. } => {
                            let is_settled = rank != UNDEFINED && self.is_settled(job, rank);
                            let code = if is_settled { status::NOT_FOUND } else { status::TIMEOUT };
                            expected.push((conn, tag, Expected::Status(code, Vec::new())));
                        }
                        wait => self.clients[conn].waits.push((tag, wait)),
                    }
                }
            }
        }
        self.expect(expected);
    }

    /// Expects that a rank's fence ends, if it waits in one.
    fn leave_fence(&mut self, conn: usize, done: bool, expected: &mut Vec<(usize, u32, Expected)>) {
        let waits = &mut self.clients[conn].waits;
        let Some(at) = waits.iter().position(|(_, wait)| matches!(wait, Wait::Fence { .. })) else { return };
        let (tag, _) = waits.remove(at);
        let (rc, code) = if done { (0, status::SUCCESS) } else { (14, status::TIMEOUT) };
        let text = Expected::Text(format!("cmd=kvs-fence-response;rc={rc};"));
        let status = Expected::Status(code, Vec::new());
        expected.push((conn, tag, if speaks_pmi2(conn) { text } else { status }));
    }

    fn fence(&mut self, conn: usize, timed: bool) {
        let job = job_of(conn);
        let tag = if speaks_pmi2(conn) {
            self.host.arrive(conn as u32, &counted("cmd=kvs-fence;")).expect("the connection is open");
            0
        } else {
            self.send(conn, |writer| {
                command(writer, 3);
                writer.array(1);
                writer.proc(name_of(job).as_bytes(), WILDCARD);
                writer.array(u32::from(timed));
                if timed {
                    writer.info(b"pmix.timeout", kind::UINT32);
                    writer.uint32(LATE);
                }
            })
        };
        self.clients[conn].waits.push((tag, Wait::Fence { timed }));
        self.complete_fence(job, Vec::new());
    }

    /// Expects the replies to a fence if all ranks are there, and other ones.
    fn complete_fence(&mut self, job: usize, mut expected: Vec<(usize, u32, Expected)>) {
        let waits = |&conn: &usize| {
            self.clients[conn].waits.iter().any(|(_, wait)| matches!(wait, Wait::Fence { .. }))
        };
        let all = 0..self.clients.len();
        let ranks: Vec<usize> = all.filter(|&conn| job_of(conn) == job).collect();
        if ranks.iter().all(waits) {
            self.fences[job] += 1;
            ranks.into_iter().for_each(|conn| self.leave_fence(conn, true, &mut expected));
        }
        self.expect(expected);
    }

    fn finalize(&mut self, conn: usize) {
        self.clients[conn].finalized = true;
        if speaks_pmi2(conn) {
            let reply = self.host.ask(conn as u32, &counted("cmd=finalize;"));
            assert!(contains(&reply, b"cmd=finalize-response;rc=0;"), "{}", reply.escape_ascii());
        } else {
            let tag = self.send(conn, |writer| command(writer, 5));
            self.expect(vec![(conn, tag, Expected::Status(status::SUCCESS, Vec::new()))]);
        }
    }

    fn abort(&mut self, conn: usize) {
        self.send(conn, |writer| {
            command(writer, 1);
            writer.single();
            writer.int32(7);
            writer.single();
            writer.string(b"enough");
            writer.array(0);
        });
        self.ended[job_of(conn)] = true;
        // The rank waits until it is killed.
        self.expect(Vec::new());
        let events = std::mem::take(&mut self.host.events);
        let [event] = &events[..] else { panic!("{events:?}") };
        assert!(
            event.starts_with("AbortJob") && event.contains("Some(7)") && event.contains("enough"),
            "{event}"
        );
    }

    fn ask_pmix(&mut self, conn: usize, ask: &Ask) {
        let before = self.snapshot();
        match ask {
            Ask::Put { key, value } => self.commit(conn, *key, Some(value_text(*value))),
            Ask::Remove { key } => self.commit(conn, *key, None),
            Ask::Get { rank, key, immediate } => self.get(conn, *rank, *key, *immediate),
            Ask::Publish { keys, value, once } => {
                let value = value_text(*value);
                let set: BTreeSet<u8> = keys.iter().copied().collect();
                let taken = |key: &u8| self.names.contains_key(&(false, *key));
                let code = match () {
                    // Each key takes a place in turn, so the first problem counts.
                    () if set.len() == keys.len() && !keys.iter().any(taken) => {
                        let fits = self.names.len() + keys.len() <= NAMES as usize;
                        if fits { status::SUCCESS } else { status::OUT_OF_RESOURCE }
                    }
                    () => {
                        let free = NAMES as usize - self.names.len();
                        let mut seen = BTreeSet::new();
                        let fresh = keys.iter().take_while(|&key| !taken(key) && seen.insert(*key)).count();
                        if fresh > free { status::OUT_OF_RESOURCE } else { status::DUPLICATE_KEY }
                    }
                };
                let tag = self.send(conn, |writer| {
                    command(writer, 6);
                    writer.single();
                    writer.uint32(0);
                    writer.array(keys.len() as u32 + 1);
                    writer.info(b"pmix.persist", kind::PERSIST);
                    writer.byte(if *once { 1 } else { 3 });
                    for &key in keys {
                        writer.info(key_text(key).as_bytes(), kind::STRING);
                        writer.string(&value);
                    }
                });
                self.expect(vec![(conn, tag, Expected::Status(code, Vec::new()))]);
                if code == status::SUCCESS {
                    let name = Name { value, once: *once, conn };
                    self.names.extend(keys.iter().map(|&key| ((false, key), name.clone())));
                } else {
                    let _ = self.host.server.take_limit_hit();
                    assert!(before == self.snapshot(), "a refused publication changes nothing");
                }
            }
            Ask::Lookup { key } => {
                let tag = self.send(conn, |writer| keys(writer, 7, &[*key]));
                let found = self.names.get(&(false, *key)).cloned();
                let expected = match &found {
                    Some(name) => Expected::Status(status::SUCCESS, name.value.clone()),
                    None => Expected::Status(status::NOT_FOUND, Vec::new()),
                };
                self.expect(vec![(conn, tag, expected)]);
                match found {
                    Some(name) if name.once => drop(self.names.remove(&(false, *key))),
                    Some(_) => {}
                    None => assert!(before == self.snapshot(), "a refused look-up changes nothing"),
                }
            }
            Ask::Unpublish { keys: of } => {
                let tag = self.send(conn, |writer| keys(writer, 8, of));
                let held = self.names.len();
                // Without keys, all data of the process.
                self.names.retain(|(pmi, key), name| {
                    *pmi || if of.is_empty() { name.conn != conn } else { !of.contains(key) }
                });
                let removed = held - self.names.len();
                let done = removed > 0 || of.is_empty();
                let code = if done { status::SUCCESS } else { status::NOT_FOUND };
                self.expect(vec![(conn, tag, Expected::Status(code, Vec::new()))]);
                assert!(removed > 0 || before == self.snapshot(), "a refused withdrawal changes nothing");
            }
            _ => {}
        }
    }

    /// Puts a value for both scopes, or removes the key from both.
    fn commit(&mut self, conn: usize, key: u8, value: Option<Vec<u8>>) {
        let tag = self.send(conn, |writer| {
            command(writer, 2);
            let mut pack = [0; 256];
            let mut inner = Writer::new(Integers::Flexible, &mut pack);
            inner.key(key_text(key).as_bytes(), kind::STRING);
            inner.string(value.as_deref().unwrap_or_default());
            let len = inner.finish().expect("it fits");
            writer.single();
            writer.byte(if value.is_some() { 3 } else { 7 });
            writer.single();
            writer.byte(1);
            writer.size(len as u64);
            writer.raw(&pack[..len]);
        });
        let mut expected = vec![(conn, tag, Expected::Status(status::SUCCESS, Vec::new()))];
        let fences = self.fences[job_of(conn)];
        let Client { committed, committed_at, .. } = &mut self.clients[conn];
        let before = committed.clone();
        committed.retain(|(known, _)| *known != key);
        committed.extend(value.clone().map(|value| (key, value)));
        if *committed != before {
            *committed_at = Some(fences);
        }
        let Some(value) = value else { return self.expect(expected) };
        let job = job_of(conn);
        let rank = conn as u32 - if job == 0 { 0 } else { SIZES[0] };
        for other in (0..self.clients.len()).filter(|&other| job_of(other) == job) {
            let waits = std::mem::take(&mut self.clients[other].waits);
            for (tag, wait) in waits {
                if matches!(wait, Wait::Get { rank: of, key: wanted, .. } if wanted == key && [rank, UNDEFINED].contains(&of))
                {
                    expected.push((other, tag, Expected::Status(status::SUCCESS, value.clone())));
                } else {
                    self.clients[other].waits.push((tag, wait));
                }
            }
        }
        self.expect(expected);
    }

    fn get(&mut self, conn: usize, rank: u32, key: u8, immediate: bool) {
        let job = job_of(conn);
        let before = self.snapshot();
        let tag = self.send(conn, |writer| {
            command(writer, 4);
            writer.single();
            writer.string(name_of(job).as_bytes());
            writer.single();
            writer.uint32(rank);
            writer.array(u32::from(immediate));
            if immediate {
                writer.info(b"pmix.immediate", kind::BOOL);
                writer.byte(1);
            }
            writer.single();
            writer.string(key_text(key).as_bytes());
        });
        let first = if job == 0 { 0 } else { SIZES[0] };
        let ranks = match rank {
            UNDEFINED => 0..SIZES[job],
            rank if rank < SIZES[job] => rank..rank + 1,
            _ => 0..0,
        };
        let clients = || ranks.clone().map(|rank| &self.clients[(first + rank) as usize]);
        let found = clients()
            .flat_map(|of| &of.committed)
            .find_map(|(known, value)| (*known == key).then_some(value));
        let expected = match found {
            Some(value) => Some(Expected::Status(status::SUCCESS, value.clone())),
            None if immediate || clients().all(|of| of.finalized) => {
                Some(Expected::Status(status::NOT_FOUND, Vec::new()))
            }
            None => None,
        };
        match expected {
            Some(expected) => {
                let missing = expected == Expected::Status(status::NOT_FOUND, Vec::new());
                self.expect(vec![(conn, tag, expected)]);
                assert!(!missing || before == self.snapshot(), "a get without an answer changes nothing");
            }
            None => {
                let is_short = ranks.clone().all(|rank| self.is_settled(job, rank));
                self.clients[conn].waits.push((tag, Wait::Get { rank, key, is_short }));
                self.expect(Vec::new());
            }
        }
    }

    /// Deregisters the jobs. Nothing of them is left.
    fn end(mut self) {
        for job in 0..SIZES.len() {
            for conn in (0..self.clients.len()).filter(|&conn| job_of(conn) == job) {
                self.host.tell(Input::Closed { conn: ConnId(conn as u32) }).expect("it is open");
            }
            self.host.tell(Input::DeregisterJob { job: JobId(job as u32) }).expect("it is registered");
            self.names.retain(|_, name| job_of(name.conn) != job);
            assert_eq!(self.host.server.used(hydrant_core::Limit::Names) as usize, self.names.len());
        }
        assert!(self.host.server.restart(), "a server without jobs and connections is as a new one");
    }
}

/// Writes a request with keys: a look-up or a withdrawal.
fn keys(writer: &mut Writer<'_>, number: u8, keys: &[u8]) {
    command(writer, number);
    writer.single();
    writer.uint32(0);
    writer.single();
    writer.size(keys.len() as u64);
    for &key in keys {
        writer.single();
        writer.string(key_text(key).as_bytes());
    }
    writer.array(0);
}

// Fault: A PMIx publication of several keys is refused at one of them, or an event is too long
// Outcome: the refusal is sent
// Guarantee: A refused request changes nothing
// Fault: A request is refused while others have requests pending
// Outcome: the state's snapshot is as it was
// Guarantee: Random sequences compare the snapshots on one node and on several
#[test]
fn requests_of_mixed_jobs_agree_with_the_model() {
    let cases =
        std::env::var("HYDRANT_MODEL_CASES").ok().map(|cases| cases.parse().expect("a number of cases"));
    let config = Config { cases: cases.unwrap_or(CASES), failure_persistence: None, ..Config::default() };
    let steps = prop::collection::vec((0..6usize, ask()), 1..60);
    let result = TestRunner::new(config).run(&steps, |steps| {
        let mut memory = MappedStorage::new(&LIMITS);
        let mut world = World::new(&mut memory);
        for (conn, ask) in &steps {
            world.step(*conn, ask);
        }
        world.end();
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
