//! A server and the model side by side: both get the same inputs, and their outputs are compared.

use hydrant_core::server::Consumed;
use hydrant_core::snapshot::DIGEST;
use hydrant_core::wire::decode_spawn;
use hydrant_core::{ConnId, Fault, Input, Limits, Output, Server, Time, UpcallId};
use hydrant_driver::MappedStorage;

use super::SEED;
use super::replay::Tape;
use super::says::{Records, Say, hear};
use super::state::{Model, Request, Wait};

pub(crate) struct World<'s> {
    pub(crate) server: Server<'s>,
    pub(crate) model: Model,
    pub(crate) tape: Tape,
    /// The state after the last step, whose turn it is left out.
    pub(crate) last: Vec<u8>,
    /// Connections whose bytes the server wants again after their next reply.
    again: Vec<u32>,
    buf: Vec<u8>,
    room: usize,
    /// All that clients were told.
    pub(crate) said: Vec<(u32, Say)>,
    /// Numbers jobs and threads.
    pub(crate) counter: u32,
}

impl<'s> World<'s> {
    pub(crate) fn new(limits: Limits, memory: &'s mut MappedStorage) -> World<'s> {
        let server =
            Server::new(limits, memory.lend(), SEED).expect("the memory is as large as the limits say");
        let mut world = World {
            server,
            model: Model::new(limits),
            tape: Tape::default(),
            last: Vec::new(),
            again: Vec::new(),
            buf: vec![0; limits.output_max()],
            room: limits.kvs_bytes as usize + (limits.spawns * limits.spawn_bytes) as usize + (1 << 16),
            said: Vec::new(),
            counter: 0,
        };
        world.last = world.snapshot();
        world
    }

    /// The state as bytes, without whose turn is next: that changes with each reply.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut state = self.full_snapshot();
        state.truncate(state.len() - DIGEST);
        let wake = postcard::to_slice(&self.server.poll_at(), &mut [0; 16]).expect("a time is short").len();
        // Behind the turn are the time of the next timeout, and two counters of PMIx, which are 0.
        let turn = state.len() - wake - 3;
        assert!(u32::from(state[turn]) < self.model.limits.conns.max(1), "the turn is a byte before the end");
        state[turn] = 0;
        state
    }

    pub(crate) fn full_snapshot(&self) -> Vec<u8> {
        let mut buf = vec![0; self.room];
        self.server.snapshot(&mut buf).expect("there is room for all").to_vec()
    }

    /// Tells the server something, and checks all that it has to say. The model knows already.
    pub(crate) fn tell(&mut self, input: Input<'_>) -> Result<Consumed, Fault> {
        let before = self.full_snapshot();
        let now = Time(self.model.now);
        let result = self.server.handle(now, input);
        self.tape.input(now, &input, result);
        if result.is_err() {
            assert!(before == self.full_snapshot(), "{input:?} is a fault and changes nothing");
        }
        self.drain();
        result
    }

    /// Takes what the server says until it is silent, and does as it says.
    fn drain(&mut self) {
        let mut closed = Vec::new();
        let mut again = Vec::new();
        let mut buf = std::mem::take(&mut self.buf);
        while let Some(output) = self.server.poll(&mut buf).expect("the buffer is long enough") {
            self.tape.output(&output);
            match output {
                Output::Bytes { conn, bytes } => {
                    self.reply(conn.0, bytes);
                    again.push(conn.0);
                }
                Output::Close { conn, why } => {
                    let state = self.model.conn(conn.0);
                    assert!(state.closing_unsaid && !state.blocked, "{conn} is closed without need");
                    assert_eq!(state.closing, Some(why));
                    state.closing_unsaid = false;
                    closed.push(conn.0);
                }
                // The model knows which jobs are connected by what their ranks may read.
                Output::Connected { .. } => {}
                Output::Upcall { .. } => panic!("these jobs' names are the server's own"),
                Output::Peer { .. } => panic!("this node is alone"),
                Output::Joined { conn, job, rank } => {
                    let state = self.model.conn(conn.0);
                    assert!(state.joined_unsaid && !state.blocked, "{conn} has not joined");
                    assert_eq!((state.job, state.rank), (job.0, Some(rank.0)));
                    state.joined_unsaid = false;
                }
                Output::Spawn { spawn, job, rank, protocol, request } => {
                    let programs = decode_spawn(protocol, request).expect("it was decoded before");
                    let known =
                        self.model.spawns.iter_mut().find(|it| {
                            it.id.is_none() && it.parent == (job.0, rank.0) && it.request == request
                        });
                    let known = known.expect("a rank requested it");
                    assert!(programs.programs().map(|it| it.maxprocs()).eq(known.sizes.iter().copied()));
                    known.id = Some(spawn.0);
                }
                Output::KillRank { .. }
                | Output::AbortJob { .. }
                | Output::StalledFence { .. }
                | Output::RemoveFiles { .. }
                | Output::Log { .. } => self.event(&output),
            }
        }
        self.buf = buf;
        self.check_silence();
        for conn in closed {
            self.model.close(conn);
            self.again.retain(|&it| it != conn);
            let _ = self.tell(Input::Closed { conn: ConnId(conn) });
        }
        for conn in again {
            if self.again.contains(&conn) && self.model.conns.contains_key(&conn) {
                self.again.retain(|&it| it != conn);
                self.feed(conn, b"", false);
            }
        }
    }

    fn event(&mut self, output: &Output<'_>) {
        let shown = format!("{output:?}");
        let at = self.model.events.iter().position(|event| *event == shown);
        let at = at.unwrap_or_else(|| panic!("{shown} was not expected, but {:?}", self.model.events));
        self.model.events.remove(at);
    }

    /// A reply: the oldest that can be said, and what the model says.
    fn reply(&mut self, conn: u32, bytes: &[u8]) {
        let (thrid, heard) = hear(bytes);
        let state = self.model.conn(conn);
        assert!(!state.blocked, "{conn} is blocked");
        let at = state.owed.iter().position(|(_, wait)| matches!(wait, Wait::Say(_)));
        let at = at.unwrap_or_else(|| panic!("{conn} is owed nothing, but gets {heard:?}"));
        let (job, v2, counted) = (state.job, state.v2, bytes.first() != Some(&b'c'));
        let (expected_thrid, wait) = state.owed.remove(at);
        let Wait::Say(say) = wait else { unreachable!("it was looked for") };
        let expected = self.resolve(job, say).heard(v2);
        assert_eq!(heard, expected, "on connection {conn}");
        self.said.push((conn, heard.clone()));
        if counted {
            assert_eq!(thrid, expected_thrid, "on connection {conn}: {heard:?}");
        }
    }

    /// What is known only when it is said.
    fn resolve(&mut self, job: u32, say: Say) -> Say {
        use hydrant_core::Refusal::NoName;
        use hydrant_core::wire::Op;
        match say {
            Say::Dead(op) => {
                let ranks = (0u32..).zip(&self.model.jobs[&job].ranks);
                let dead = ranks.filter(|(_, rank)| rank.dead).map(|(rank, _)| rank);
                Say::Text(op, super::says::ranges(dead).into_bytes(), Records::default())
            }
            Say::Port(serial) => match self.model.names.iter().find(|name| name.serial == serial) {
                Some(name) => Say::Text(Op::Lookup, name.port.clone(), Records::default()),
                None => Say::Refused(Op::Lookup, NoName),
            },
            Say::Launched(serial) => {
                let at = self.model.spawns.iter().position(|spawn| spawn.serial == serial);
                let spawn = self.model.spawns.remove(at.expect("it is kept until it is said"));
                spawn.result.expect("it is done")
            }
            other => other,
        }
    }

    /// Checks that no output is pending.
    fn check_silence(&self) {
        let model = &self.model;
        assert!(model.events.is_empty(), "the host was not told of {:?}", model.events);
        for (id, conn) in &model.conns {
            let owes = !conn.blocked && conn.has_say();
            assert!(!owes, "connection {id} did not get what it is owed: {conn:?}");
            assert!(conn.owed.len() <= hydrant_core::limits::PENDING_MAX);
        }
        assert!(model.spawns.iter().all(|spawn| spawn.id.is_some()), "the host was not told of a spawn");
        if let Some(due) = model.due() {
            assert!(self.server.poll_at().is_some_and(|wake| wake.0 <= due), "no tick is asked for at {due}");
        }
    }

    /// Hands in the bytes of a connection: what was left, and `more` behind it that is no whole message.
    pub(crate) fn feed(&mut self, conn: u32, more: &[u8], full: bool) {
        let state = self.model.conn(conn);
        let pending = state.pending.iter().map(|request| &request.bytes[..]).collect::<Vec<_>>();
        let bytes = [pending.concat(), more.to_vec()].concat();
        let mut done = self.model.serve(conn);
        let state = self.model.conn(conn);
        let again = !state.pending.is_empty() && state.closing.is_none();
        if state.closing.is_some() {
            done = bytes.len();
        }
        if again {
            self.again.push(conn);
        }
        let input = Input::Bytes { conn: ConnId(conn), bytes: &bytes, full };
        // Replies lead on to other steps, so what is expected is compared before they are taken.
        let consumed = self.hand_in(input);
        assert_eq!(consumed, Ok(Consumed { bytes: done as u32, again }), "connection {conn}");
        self.drain();
    }

    fn hand_in(&mut self, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(self.model.now);
        let result = self.server.handle(now, input);
        self.tape.input(now, &input, result);
        result
    }

    /// A client says something.
    pub(crate) fn says(&mut self, conn: u32, requests: Vec<Request>) {
        self.model.conn(conn).pending.extend(requests);
        self.feed(conn, b"", false);
        self.last = self.snapshot();
    }

    pub(crate) fn spawn_id(&self, serial: u64) -> UpcallId {
        let spawn = self.model.spawns.iter().find(|spawn| spawn.serial == serial);
        UpcallId(spawn.and_then(|spawn| spawn.id).expect("the host was told of it"))
    }
}
