//! Host of a server that feeds it fuzz input and checks the contract of the core after each step.

use hydrant_core::server::{Consumed, Input, JobSpec, Output};
use hydrant_core::storage::OwnedStorage;
use hydrant_core::trace::Exit;
use hydrant_core::wire::{decode_spawn, decode_upcall};
use hydrant_core::{ConnId, JobId, Limits, Rank, Server, Time, UpcallId};

use crate::FuzzInput;
use crate::validator::Validator;

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
    buffer: Vec<u8>,
    /// Compares the states before and after a fault. It costs more than the rest, so only some inputs ask for it.
    compare: bool,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl<'s> Host<'s> {
    /// Creates a server with two jobs, of four ranks and of two.
    ///
    /// # Panics
    /// If the server refuses valid inputs.
    pub fn new(storage: &'s mut OwnedStorage, nodes: u32, options: u8) -> Host<'s> {
        let server = Server::new(LIMITS, storage.lend(), 1).expect("the storage was made for the limits");
        let mut host = Host::of(server);
        host.compare = options & 32 != 0;
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

    /// Wraps a server in any state.
    pub fn of(server: Server<'s>) -> Host<'s> {
        Host {
            server,
            validator: None,
            now: 0,
            held: vec![Vec::new(); CONNS.into()],
            upcalls: Vec::new(),
            closing: Vec::new(),
            buffer: vec![0; LIMITS.output_room()],
            compare: true,
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    fn valid(&mut self, input: Input<'_>) {
        self.server.handle(Time(self.now), input).expect("a valid input");
        self.validate(&input, Consumed::default());
    }

    /// Applies an input and takes all outputs.
    ///
    /// # Panics
    /// If a fault changes the state, or if the outputs do not end.
    pub fn apply(&mut self, input: Input<'_>) -> usize {
        if self.compare {
            save(&self.server, &mut self.before);
        }
        let consumed = match self.server.handle(Time(self.now), input) {
            Ok(consumed) => {
                self.validate(&input, consumed);
                consumed.bytes as usize
            }
            Err(fault) => {
                if self.compare {
                    save(&self.server, &mut self.after);
                }
                assert!(self.before == self.after, "{input:?} failed with {fault:?} and changed the state");
                0
            }
        };
        self.take();
        consumed
    }

    fn validate(&mut self, input: &Input<'_>, consumed: Consumed) {
        if let Some(validator) = &mut self.validator {
            let checked = validator.check_input(Time(self.now), input, consumed, self.server.poll_at());
            checked.expect("a server violates no rule for plugins");
        }
    }

    fn take(&mut self) {
        for count in 0.. {
            assert!(count < OUTPUTS_MAX, "the outputs do not end");
            let output = self.server.poll(&mut self.buffer).expect("the buffer has room for every output");
            if let Some(validator) = &mut self.validator {
                let checked = match &output {
                    Some(output) => validator.check_output(output),
                    None => validator.check_silence(),
                };
                checked.expect("a server violates no rule for plugins");
            }
            let Some(output) = output else { break };
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
        assert!(!self.server.has_output() || self.server.poll(&mut self.buffer).is_ok_and(|it| it.is_none()));
        for conn in std::mem::take(&mut self.closing) {
            self.close(conn);
        }
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
            let consumed = self.apply(Input::Bytes { conn, bytes: &held, full });
            assert!(consumed <= held.len(), "more bytes consumed than there are");
            held.drain(..consumed);
            if consumed == 0 || held.is_empty() {
                break;
            }
        }
        self.held[conn.index()] = held;
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
                self.held[conn.index()].clear();
                self.apply(Input::Opened { conn, job, rank });
            }
            10 => {
                self.held[conn.index()].clear();
                self.apply(Input::OpenedQuery { conn, job });
            }
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
                self.now += u64::from(input.byte());
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
        match input.byte() % 8 {
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
            _ => drop(self.apply(Input::StalledFence { job })),
        }
    }

    /// Saves the server, restores it, and checks that the copy is equal.
    ///
    /// # Panics
    /// If the state cannot be restored or differs.
    pub fn check_snapshot(&mut self) {
        save(&self.server, &mut self.before);
        let mut storage = OwnedStorage::new(&LIMITS);
        match Server::restore(&self.before, storage.lend()) {
            Ok(restored) => {
                save(&restored, &mut self.after);
                assert!(self.before == self.after, "the restored state differs");
            }
            Err(fault) => panic!("cannot restore a state: {fault:?}"),
        }
    }
}

fn save(server: &Server<'_>, to: &mut Vec<u8>) {
    to.resize(server.snapshot_len(), 0);
    let len = server.snapshot(to).expect("the buffer is as long as the snapshot").len();
    to.truncate(len);
}
