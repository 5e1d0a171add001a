//! Host of a server that feeds it fuzz input and checks the contract of the core after each step.
//!
//! A fault and a refusal leave the state's snapshot as it was.

use std::cell::RefCell;

use hydrant_core::server::{Consumed, Input, JobSpec, Output};
use hydrant_core::snapshot::DIGEST;
use hydrant_core::storage::OwnedStorage;
use hydrant_core::trace::Exit;
use hydrant_core::wire::pmix::{self, Integers, WILDCARD, Writer};
use hydrant_core::wire::{Framing, decode_spawn, decode_upcall, next_frame};
use hydrant_core::{ConnId, JobId, Limits, Rank, Server, ShortBuffer, Time, UpcallId};
use hydrant_validator::Validator;

use crate::FuzzInput;

/// Limits that a short input can reach.
pub const LIMITS: Limits = Limits {
    jobs: 3,
    ranks: 12,
    conns: 10,
    keys: 24,
    kvs_bytes: 2048,
    groups: 3,
    names: 4,
    spawns: 3,
    spawn_bytes: 1024,
    psets: 4,
    links: 3,
    commit_bytes: 128,
};
/// Connections that the fuzzer uses.
const CONNS: u8 = 10;
/// Outputs that one input may cause: each rank's reply, each connection's end, and some events.
const OUTPUTS_MAX: u32 = 1000;
/// Bytes that a connection may hold, as a host's buffer.
const BUFFER: usize = 4096;

/// Memory of a server and of the checks, which all inputs of a process use in turn.
#[derive(Debug)]
pub struct Memory {
    /// Storage of a server with [`LIMITS`].
    pub storage: OwnedStorage,
    /// Room for every output.
    pub buffer: Vec<u8>,
    states: States,
}

/// Room for two saved states, and storage of a copy.
#[derive(Debug)]
struct States {
    before: Vec<u8>,
    after: Vec<u8>,
    copy: OwnedStorage,
}

/// Lends the memory of this thread.
pub fn with_memory(run: impl FnOnce(&mut Memory)) {
    thread_local! {
        static MEMORY: RefCell<Memory> = RefCell::new(Memory {
            storage: OwnedStorage::new(&LIMITS),
            buffer: vec![0; LIMITS.output_room()],
            states: States { before: Vec::new(), after: Vec::new(), copy: OwnedStorage::new(&LIMITS) },
        });
    }
    MEMORY.with_borrow_mut(run);
}

/// A server, the bytes that it has not consumed, and what it requested.
#[derive(Debug)]
pub struct Host<'s> {
    server: Server<'s>,
    /// The checks of a plugin's runner, which a server never violates. None for a server in an unknown state.
    validator: Option<Validator>,
    now: u64,
    held: Vec<Vec<u8>>,
    upcalls: Vec<(UpcallId, bool)>,
    closing: Vec<ConnId>,
    buffer: &'s mut [u8],
    compare: bool,
    states: &'s mut States,
    /// Replies that each connection is owed, as far as they can be counted. None if they cannot.
    owed: [Option<u32>; CONNS as usize],
}

impl<'s> Host<'s> {
    /// Creates a server with two jobs, of four ranks and of two.
    ///
    /// # Panics
    /// If the server refuses valid inputs.
    pub fn new(memory: &'s mut Memory, nodes: u32, options: u8) -> Host<'s> {
        let Memory { storage, buffer, states } = memory;
        let server = Server::new(LIMITS, storage.lend(), 1).expect("the storage was made for the limits");
        let mut host = Host::with(server, buffer, states);
        host.validator = Some(Validator::new(LIMITS));
        if nodes > 1 {
            host.valid(Input::Node { node: 0, nodes, radix: 2 });
        }
        for (job, name, size) in [(0, "job", 4), (1, "other", 2)] {
            let job = JobId(job);
            host.valid(Input::RegisterJob(JobSpec {
                cleanup: options & 1 == 0,
                pmi1_subversion: if options & 2 == 0 { 2 } else { 1 },
                remote_names: options & 4 != 0,
                lookup_wait: if options & 8 != 0 { 50 } else { 0 },
                fence_warning: if options & 16 != 0 { 30 } else { 0 },
                ..JobSpec::new(job, name, size)
            }));
            if nodes > 1 {
                host.valid(Input::MapRanks { job, first: Rank(size / 2), count: size / 2, node: 1 });
            }
            host.valid(Input::Attr { job, key: b"PMI_process_mapping", value: b"(vector,(0,1,4))" });
            host.valid(Input::Pset { job, name: "app", first: Rank(0), count: 1 });
        }
        host
    }

    /// Restores a server. Returns none if the state is refused.
    pub fn restore(memory: &'s mut Memory, state: &[u8]) -> Option<Host<'s>> {
        let Memory { storage, buffer, states } = memory;
        let server = Server::restore(state, storage.lend()).ok()?;
        Some(Host::with(server, buffer, states))
    }

    fn with(server: Server<'s>, buffer: &'s mut [u8], states: &'s mut States) -> Host<'s> {
        Host {
            server,
            validator: None,
            now: 0,
            held: vec![Vec::new(); CONNS.into()],
            upcalls: Vec::new(),
            closing: Vec::new(),
            buffer,
            compare: false,
            states,
            // A restored server may owe replies.
            owed: [None; CONNS as usize],
        }
    }

    /// Compares the states before and after each fault and refusal from now on. This takes ten times as long as all else.
    pub fn compare_states(&mut self) {
        self.compare = true;
    }

    fn valid(&mut self, input: Input<'_>) {
        self.server.handle(Time(self.now), input).expect("a valid input");
        self.validate(&input, Consumed::default());
    }

    /// Applies an input and takes all outputs. Returns the consumed bytes, or none for a fault.
    ///
    /// # Panics
    /// If a fault or a refusal changes the state, or if the outputs do not end.
    pub fn apply(&mut self, input: Input<'_>) -> Option<usize> {
        if self.compare {
            save(&self.server, &mut self.states.before);
        }
        let wake = self.server.poll_at();
        let (done, consumed) = match self.server.handle(Time(self.now), input) {
            Ok(consumed) => {
                self.validate(&input, consumed);
                (true, consumed.bytes as usize)
            }
            Err(fault) => {
                if self.compare {
                    save(&self.server, &mut self.states.after);
                    let States { before, after, .. } = &self.states;
                    assert!(before == after, "{input:?} failed with {fault:?} and changed the state");
                }
                (false, 0)
            }
        };
        let said = self.take();
        let (asker, is_alone) = match input {
            Input::Bytes { conn, bytes, .. } if consumed > 0 => {
                (Some(conn), is_one_message(&bytes[..consumed.min(bytes.len())]))
            }
            _ => (None, false),
        };
        let was_idle = asker.is_some_and(|asker| self.owed[asker.index()] == Some(0));
        if self.compare && is_alone && was_idle && said.refuses(asker) {
            save(&self.server, &mut self.states.after);
            let States { before, after, .. } = &self.states;
            let same = wake == self.server.poll_at() && differ_by_turn(before, after);
            assert!(same, "{input:?} was refused and changed the state");
        }
        self.count(asker, &said);
        match input {
            Input::Opened { conn, .. } | Input::OpenedQuery { conn, .. } if done => {
                self.owed[conn.index()] = Some(0);
            }
            Input::Closed { conn } if done => self.owed[conn.index()] = None,
            _ => {}
        }
        while let Some(conn) = self.closing.pop() {
            self.close(conn);
        }
        done.then_some(consumed)
    }

    /// Counts what connections are owed. A request without a reply leaves its connection owed for ever.
    fn count(&mut self, asker: Option<ConnId>, said: &Said) {
        for (conn, (owed, &replies)) in (0..).zip(self.owed.iter_mut().zip(&said.replies)) {
            let asked = if asker == Some(ConnId(conn)) { replies.max(1) } else { 0 };
            *owed = owed.and_then(|owed| (owed + asked).checked_sub(replies));
        }
    }

    fn validate(&mut self, input: &Input<'_>, consumed: Consumed) {
        if let Some(validator) = &mut self.validator {
            let checked = validator.check_input(Time(self.now), input, consumed, self.server.poll_at());
            checked.expect("a server violates no rule for plugins");
        }
    }

    /// Takes all outputs.
    fn take(&mut self) -> Said {
        let mut said = Said::default();
        for count in 0.. {
            assert!(count < OUTPUTS_MAX, "the outputs do not end");
            let output = self.server.poll(self.buffer).expect("the buffer has room for every output");
            if let Some(validator) = &mut self.validator {
                let checked = match &output {
                    Some(output) => validator.check_output(output),
                    None => validator.check_silence(),
                };
                checked.expect("a server violates no rule for plugins");
            }
            let Some(output) = output else { break };
            said.add(&output);
            match output {
                Output::Close { conn, .. } => self.closing.push(conn),
                Output::Spawn { spawn, protocol, request, .. } => {
                    let request = decode_spawn(protocol, request).expect("the server decoded it before");
                    for program in request.programs() {
                        let _ = (program.command().len(), program.maxprocs());
                        program.args().chain(program.info().flat_map(|(k, v)| [k, v])).for_each(|text| {
                            let _ = text.parts().count();
                        });
                    }
                    assert!(!request.preput().any(|(key, _)| key.is_empty()), "an empty key");
                    self.upcalls.push((spawn, true));
                }
                Output::Upcall { upcall, protocol, request, .. } => {
                    decode_upcall(protocol, request).expect("the server decoded it before");
                    self.upcalls.push((upcall, false));
                }
                Output::Bytes { bytes, .. } => assert!(!bytes.is_empty(), "an empty reply"),
                _ => {}
            }
        }
        assert!(!self.server.has_output() || self.server.poll(self.buffer).is_ok_and(|it| it.is_none()));
        said
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(held) = self.held.get_mut(conn.index()) {
            held.clear();
        }
        self.apply(Input::Closed { conn });
    }

    /// Appends bytes to a connection's buffer and hands it to the server until the server makes no progress.
    fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.held[conn.index()]);
        held.extend_from_slice(bytes);
        held.truncate(BUFFER);
        loop {
            let full = held.len() == BUFFER;
            let Some(consumed) = self.apply(Input::Bytes { conn, bytes: &held, full }) else {
                // There is no such connection.
                held.clear();
                break;
            };
            assert!(consumed <= held.len(), "more bytes consumed than there are");
            held.drain(..consumed);
            if consumed == 0 || held.is_empty() {
                break;
            }
        }
        self.held[conn.index()] = held;
    }

    /// Carries out all steps of an input, whose first bytes are options. One input of 64 compares the states at each fault and
    /// refusal, and those whose lot is in `snapshots` check a snapshot at the end.
    pub fn run(memory: &'s mut Memory, nodes: u32, data: &[u8], snapshots: impl Fn(u32) -> bool) {
        let mut input = FuzzInput(data);
        let lot = input.lot(64);
        let options = input.byte();
        let mut host = Host::new(memory, nodes, options);
        if lot == 0 {
            host.compare_states();
        }
        while !input.is_empty() {
            host.step(&mut input);
        }
        if snapshots(lot) {
            host.check_snapshot();
        }
    }

    /// Carries out one step of the fuzzer.
    pub fn step(&mut self, input: &mut FuzzInput<'_>) {
        let op = input.byte();
        let conn = ConnId(u32::from(op >> 4) % u32::from(CONNS));
        let job = JobId(u32::from(input.byte() % 4));
        match op & 15 {
            // Most steps are messages: a line, a counted message, one of PMIx, or raw bytes.
            0..=2 => self.receive(conn, &[input.string(), b"\n"].concat()),
            4..=7 => {
                let body = input.string();
                self.receive(conn, &[format!("{:6}", body.len()).as_bytes(), body].concat());
            }
            3 => {
                let body = input.string();
                let (tag, len) = (100_u32.to_be_bytes(), (body.len() as u32).to_be_bytes());
                self.receive(conn, &[&[0; 4], &tag[..], &len, &[0; 4], body].concat());
            }
            8 => self.receive(conn, input.string()),
            9 => {
                let rank = input.byte() % 8;
                let rank = (rank < 6).then_some(Rank(rank.into()));
                self.apply(Input::Opened { conn, job, rank });
            }
            10 => drop(self.apply(Input::OpenedQuery { conn, job })),
            11 => match input.byte() % 3 {
                0 => self.close(conn),
                1 => drop(self.apply(Input::Blocked { conn })),
                _ => drop(self.apply(Input::Writable { conn })),
            },
            12 => {
                let exit = match input.byte() % 3 {
                    0 => Exit::Code(op >> 4),
                    1 => Exit::Signal(9),
                    _ => Exit::Lost,
                };
                self.apply(Input::Exited { job, rank: Rank(u32::from(op >> 4) % 5), exit });
            }
            13 => {
                // PMIx counts in seconds.
                let unit = if op & 0x80 == 0 { 1 } else { 20 };
                self.now += u64::from(input.byte()) * unit;
                self.apply(Input::Timeout);
            }
            14 => self.complete(input, job),
            _ => self.host_event(input, job, u32::from(op >> 4)),
        }
    }

    fn complete(&mut self, input: &mut FuzzInput<'_>, job: JobId) {
        let Some((upcall, is_spawn)) = self.upcalls.pop() else { return };
        let (code, text) = (input.byte(), input.string());
        if !is_spawn {
            self.apply(Input::UpcallComplete { upcall, rc: i32::from(code) - 1, text });
            return;
        }
        let started = code & 1 == 0;
        if started {
            let name = if code & 2 == 0 { "spawned" } else { "job" };
            let spec = JobSpec { spawn: Some(upcall), ..JobSpec::new(job, name, u32::from(code >> 4)) };
            self.apply(Input::RegisterJob(spec));
        }
        self.apply(Input::SpawnComplete { spawn: upcall, started, full: None, codes: text });
    }

    fn host_event(&mut self, input: &mut FuzzInput<'_>, job: JobId, number: u32) {
        let node = number % 4;
        match input.byte() % 9 {
            0 => drop(self.apply(Input::Peer { node, bytes: input.string() })),
            1 => drop(self.apply(Input::PeerBlocked { node })),
            2 => drop(self.apply(Input::PeerWritable { node })),
            3 => drop(self.apply(Input::DeregisterJob { job })),
            4 => drop(self.apply(Input::Connected { job, other: JobId(node), connected: number & 4 == 0 })),
            5 => {
                let other = (number & 4 == 0).then_some(JobId(node));
                let _ = self.apply(Input::Define { job, name: "defined", members: input.string(), other });
            }
            6 => drop(self.apply(Input::Attr { job, key: input.string(), value: input.string() })),
            7 if number & 16 == 0 => drop(self.apply(Input::NodeLost { epoch: number / 4 % 4, node })),
            7 => drop(self.apply(Input::NodeJoined { epoch: number / 4 % 4, node })),
            _ if number & 8 == 0 => drop(self.apply(Input::StalledFence { job })),
            _ => self.gather(input, job),
        }
    }

    /// A rank joins by PMIx, or comes to a fence, a connection, or the construction or end of a group, of some ranks, which may
    /// have a time-out and survive the death of members.
    fn gather(&mut self, input: &mut FuzzInput<'_>, job: JobId) {
        let (what, who) = (input.byte(), input.byte());
        let conn = ConnId(u32::from(who) % u32::from(CONNS));
        let number = match what % 6 {
            0 => {
                self.apply(Input::Opened { conn, job, rank: None });
                let name = ["job", "other"][job.index() & 1];
                return self.receive(conn, &hello(name, u32::from(who >> 4)));
            }
            1 => 3,
            2 => 10,
            3 => 11,
            4 => 24,
            _ => 28,
        };
        let (members, terms) = (input.byte(), input.byte());
        let mut body = [0; 512];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        writer.single();
        writer.byte(number);
        if number > 20 {
            writer.single();
            writer.string(b"group");
        }
        let ranks = [("job", 0), ("job", 1), ("job", 2), ("job", 3), ("other", 0), ("other", 1)];
        let ranks = ranks.into_iter().chain([("job", WILDCARD), ("other", WILDCARD)]);
        let named = (0..).zip(ranks).filter(|(at, _)| members >> at & 1 == 1);
        writer.array(members.count_ones());
        named.for_each(|(_, (job, rank))| writer.proc(job.as_bytes(), rank));
        let flags = [&b"pmix.grp.ftcoll"[..], b"pmix.grp.notterm", b"pmix.collect", b"pmix.grp.actxid"];
        writer.array(1 + (terms >> 4).count_ones());
        writer.info(b"pmix.timeout", pmix::kind::INT);
        writer.int(i32::from(terms % 16));
        for (_, flag) in (4..).zip(flags).filter(|(at, _)| terms >> at & 1 == 1) {
            writer.info(flag, pmix::kind::BOOL);
            writer.byte(1);
        }
        let len = writer.finish().expect("a request of eight ranks is short");
        self.receive(conn, &[&pmix::write_header(100, len as u32)[..], &body[..len]].concat());
    }

    /// Returns the state of the server.
    pub fn save(&self) -> Vec<u8> {
        let mut state = Vec::new();
        save(&self.server, &mut state);
        state
    }

    /// Saves the server, restores it, and checks that the copy is equal.
    ///
    /// # Panics
    /// If the state cannot be restored or differs.
    pub fn check_snapshot(&mut self) {
        let States { before, after, copy } = &mut *self.states;
        save(&self.server, before);
        match Server::restore(before, copy.lend()) {
            Ok(restored) => {
                save(&restored, after);
                assert!(before == after, "the restored state differs");
            }
            Err(fault) => panic!("cannot restore a state: {fault:?}"),
        }
    }
}

/// Returns the first message of a rank with libpmix 5.
fn hello(namespace: &str, rank: u32) -> Vec<u8> {
    let mut body = b"native\0\0\0\0\x08\0\0\0\0\0\0\0\0\0".to_vec();
    body.extend(namespace.bytes().chain([0]));
    body.extend(rank.to_be_bytes());
    body.extend(b"5.0.11\0v41\0\x01hash\0");
    [&[0xff; 8][..], &(body.len() as u32).to_le_bytes(), &[0; 4], &body].concat()
}

/// Outputs that followed an input.
#[derive(Debug, Default)]
struct Said {
    /// Number of replies to each connection.
    replies: [u32; CONNS as usize],
    refusals: u32,
    others: u32,
}

impl Said {
    fn add(&mut self, output: &Output<'_>) {
        match *output {
            Output::Bytes { conn, bytes } => {
                self.replies[conn.index()] += 1;
                self.refusals += u32::from(is_refusal(bytes));
            }
            _ => self.others += 1,
        }
    }

    /// Returns whether a refusal to this connection is all.
    fn refuses(&self, conn: Option<ConnId>) -> bool {
        let replies: u32 = self.replies.iter().sum();
        let is_its = conn.is_some_and(|conn| self.replies[conn.index()] == 1);
        (replies, self.refusals, self.others) == (1, 1, 0) && is_its
    }
}

/// Returns whether these bytes are one message of PMI-1 or PMI-2.
fn is_one_message(bytes: &[u8]) -> bool {
    let is_counted = bytes.first().is_some_and(|first| *first == b' ' || first.is_ascii_digit());
    let framing = if is_counted { Framing::Counted } else { Framing::Line };
    next_frame(bytes, framing).is_ok_and(|frame| frame.is_some_and(|frame| frame.len as usize == bytes.len()))
}

/// Returns whether a reply of PMI-1 or PMI-2 has a result code other than 0.
fn is_refusal(reply: &[u8]) -> bool {
    let mut fields = reply.split(|byte| matches!(byte, b' ' | b';' | b'\n'));
    fields.any(|field| field.strip_prefix(b"rc=").is_some_and(|code| code != b"0"))
}

/// Returns whether two states differ in nothing but whose turn is next, one of the last numbers before the digest.
fn differ_by_turn(before: &[u8], after: &[u8]) -> bool {
    let last = before.len().saturating_sub(DIGEST);
    let differs = |at: &usize| before[*at] != after[*at];
    before.len() == after.len()
        && (0..last).filter(differs).count() <= 1
        && (0..last).find(differs).is_none_or(|at| at + 24 > last && before[at].max(after[at]) < CONNS)
}

fn save(server: &Server<'_>, to: &mut Vec<u8>) {
    to.resize(to.capacity(), 0);
    let len = loop {
        match server.snapshot(to) {
            Ok(state) => break state.len(),
            Err(ShortBuffer { needed, .. }) => to.resize(2 * needed, 0),
        }
    };
    to.truncate(len);
}
