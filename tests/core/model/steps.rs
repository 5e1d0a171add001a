//! Execution of the steps of a test case.

use hydrant_core::server::JobSpec;
use hydrant_core::trace::{Closing, Exit};
use hydrant_core::{ConnId, Fault, Input, JobId, Malformed, Rank, UpcallId};

use super::commands::{Ask, JobPlan, Step, key, pset, text};
use super::encode;
use super::says::{Say, ranges};
use super::state::{Request, Stage, Wait};
use super::world::World;

/// The `which`th of some things, or none where there is none.
fn pick<T: Copy>(things: &[T], which: u8) -> Option<T> {
    things.get(usize::from(which) % things.len().max(1)).copied()
}

fn bit(bits: u8, at: u32) -> bool {
    bits & (1 << at) != 0
}

impl World<'_> {
    /// Does one step; a step that has nothing to act on does nothing.
    pub(crate) fn step(&mut self, step: &Step) {
        let job = |world: &World<'_>, job| pick(&world.model.jobs.keys().copied().collect::<Vec<_>>(), job);
        let conn =
            |world: &World<'_>, conn| pick(&world.model.conns.keys().copied().collect::<Vec<_>>(), conn);
        match *step {
            Step::Job(plan) => self.open_job(plan),
            Step::Forget { job: at } => job(self, at).into_iter().for_each(|job| self.forget(job)),
            Step::Exit { job: at, rank, how } => {
                job(self, at).into_iter().for_each(|job| self.exit(job, u32::from(rank), how));
            }
            Step::Leave { job: at, rank } => {
                let Some(job) = job(self, at) else { return };
                self.leave(job, u32::from(rank));
            }
            Step::Open { job: at, rank, port, v2, joins } => {
                let Some(job) = job(self, at) else { return };
                self.open(job, u32::from(rank), port, v2, joins);
            }
            Step::Close { conn: at } => {
                if let Some(conn) = conn(self, at) {
                    self.model.close(conn);
                    self.tell(Input::Closed { conn: ConnId(conn) }).expect("it is open");
                }
            }
            Step::Ask { conn: at, ref ask, cut } => {
                conn(self, at).into_iter().for_each(|conn| self.ask(conn, ask, cut));
            }
            Step::Burst { conn: at, ref asks } => {
                let Some(conn) = conn(self, at) else { return };
                self.burst(conn, asks);
            }
            Step::EachClient { job: at, but, ref ask } => {
                let Some(job) = job(self, at) else { return };
                for rank in 0..self.model.jobs[&job].size() {
                    let conn = self.model.jobs.get(&job).and_then(|job| job.ranks[rank as usize].conn);
                    if let Some(conn) = conn.filter(|_| rank != u32::from(but)) {
                        self.ask(conn, ask, u8::MAX);
                    }
                }
            }
            Step::Rubbish { conn: at, which } => {
                conn(self, at).into_iter().for_each(|conn| self.rubbish(conn, which));
            }
            Step::Overfull { conn: at, ref ask } => {
                let Some(conn) = conn(self, at) else { return };
                self.overfill(conn, ask);
            }
            Step::Blocked { conn: at } => {
                if let Some(conn) = conn(self, at) {
                    self.model.conn(conn).blocked = true;
                    self.tell(Input::Blocked { conn: ConnId(conn) }).expect("it is open");
                }
            }
            Step::Writable { conn: at } => conn(self, at).into_iter().for_each(|conn| self.writable(conn)),
            Step::Tick { millis } => self.tick(u64::from(millis)),
            Step::Launch { spawn, how } => self.launch(spawn, how),
            Step::Pset { job: at, name, first, count } => {
                let Some(job) = job(self, at) else { return };
                let (first, count, name) = (u32::from(first), u32::from(count), pset(name));
                let members = (first..first + count).map(|rank| (job, rank)).collect();
                let expected = self.model.define(name, members);
                let input = Input::Pset { job: JobId(job), name, first: Rank(first), count };
                assert_eq!(self.tell(input).is_ok(), expected.is_ok(), "{input:?}: {expected:?}");
            }
            Step::PsetOfTwo { jobs, name, ref members } => {
                let [Some(of), Some(other)] = jobs.map(|at| job(self, at)) else { return };
                let name = pset(name);
                let ranks = members.iter().map(|&rank| (of, u32::from(rank)));
                let others = (0..self.model.jobs[&other].size()).map(|rank| (other, rank));
                let expected = self.model.define(name, ranks.chain(others).collect());
                let list = ranges(members.iter().map(|&rank| u32::from(rank)));
                let (job, other) = (JobId(of), Some(JobId(other)));
                let input = Input::Define { job, name, members: list.as_bytes(), other };
                assert_eq!(self.tell(input).map(drop), expected.map_err(Fault::Refused), "{input:?}");
            }
            Step::Mistake { which, at } => self.mistake(which, u32::from(at)),
        }
        self.last = self.snapshot();
    }

    /// Several messages at once.
    fn burst(&mut self, conn: u32, asks: &[Ask]) {
        let moves = |ask: &Ask| matches!(ask, Ask::Init { .. } | Ask::Finalize);
        let asks = asks.iter().filter(|ask| !moves(ask)).filter_map(|ask| self.request(conn, ask));
        let requests: Vec<_> = asks.collect();
        if self.model.conn(conn).pending.len() < 4 {
            self.says(conn, requests);
        }
    }

    /// A message that fills the host's buffer and has no end.
    fn overfill(&mut self, conn: u32, ask: &Ask) {
        let Some(request) = self.request(conn, ask) else { return };
        let state = self.model.conn(conn);
        if state.pending.is_empty() && state.closing.is_none() {
            self.model.closing(conn, Closing::Malformed(Malformed::TooLong));
            self.feed(conn, &request.bytes[..request.bytes.len() - 1], true);
        }
    }

    fn leave(&mut self, job: u32, rank: u32) {
        let conn = self.model.jobs[&job].ranks.get(rank as usize).and_then(|process| process.conn);
        if let Some(conn) = conn {
            self.ask(conn, &Ask::Abort { code: Some(1), world: false, message: 0 }, u8::MAX);
            self.exit(job, rank, 2);
        }
    }

    fn free_job(&self) -> u32 {
        (0..).find(|id| !self.model.jobs.contains_key(id)).expect("numbers do not end")
    }

    pub(crate) fn open_job(&mut self, plan: JobPlan) {
        let id = self.free_job();
        let Ok(()) = self.add_job(id, plan, u32::from(plan.size), None) else { return };
        for at in 0..plan.attrs {
            let (k, value) = (key(9 - at % 3), text(at + plan.v2 % 4));
            let expected = self.model.set_attr(id, &k, &value);
            let told = self.tell(Input::Attr { job: JobId(id), key: &k, value: &value });
            assert_eq!(told.map(drop), expected);
        }
        let programs =
            Input::Program { job: JobId(id), first: Rank(1), count: u32::from(plan.size) - 1, appnum: 3 };
        self.tell(programs).expect("no client has connected yet");
        self.model.job(id).ranks.iter_mut().skip(1).for_each(|rank| rank.appnum = 3);
        for rank in 0..u32::from(plan.size) {
            self.open(id, rank, bit(plan.port, rank), bit(plan.v2, rank), true);
        }
    }

    /// Has a job opened, as a spawn's where there is one.
    fn add_job(
        &mut self,
        id: u32,
        plan: JobPlan,
        size: u32,
        spawn: Option<(u64, UpcallId)>,
    ) -> Result<(), Fault> {
        self.counter += 1;
        let name = format!("job-{}", self.counter);
        let spec = JobSpec {
            cleanup: plan.cleanup,
            lookup_wait: if plan.waits { 700 } else { 0 },
            fence_warning: if plan.warns { 500 } else { 0 },
            pmi1_subversion: 1 + u32::from(plan.v2 % 2),
            universe_size: plan.waits.then_some(9),
            spawn: spawn.map(|(_, id)| id),
            ..JobSpec::new(JobId(id), &name, size)
        };
        let expected = self.model.open_job(&spec, spawn.map(|(serial, _)| serial));
        assert_eq!(self.tell(Input::RegisterJob(spec)).map(drop), expected, "{spec:?}");
        expected
    }

    pub(crate) fn forget(&mut self, job: u32) {
        self.model.forget(job);
        self.tell(Input::DeregisterJob { job: JobId(job) }).expect("there is such a job");
    }

    pub(crate) fn exit(&mut self, job: u32, rank: u32, how: u8) {
        let exit = match how % 4 {
            0 => Exit::Code(0),
            1 => Exit::Code(3),
            2 => Exit::Signal(9),
            _ => Exit::Lost,
        };
        let expected = self.model.exit(job, rank, exit);
        let told = self.tell(Input::Exited { job: JobId(job), rank: Rank(rank), exit });
        assert_eq!(told.map(drop), expected, "rank {rank} of job {job}: {exit}");
    }

    fn open(&mut self, job: u32, rank: u32, port: bool, v2: bool, joins: bool) {
        let Some(conn) = (0..self.model.limits.conns).find(|id| !self.model.conns.contains_key(id)) else {
            return;
        };
        let known = (!port).then_some(rank);
        let expected = self.model.open(conn, job, known);
        let opened = Input::Opened { conn: ConnId(conn), job: JobId(job), rank: known.map(Rank) };
        assert_eq!(self.tell(opened).map(drop), expected, "{opened:?}");
        if expected.is_ok() && port && !conn.is_multiple_of(3) {
            self.model.conn(conn).verified = true;
            self.tell(Input::Verified { conn: ConnId(conn) }).expect("it is open");
        }
        if expected.is_err() || !joins {
            return;
        }
        let rank = rank as u8;
        let asks = match (v2, port) {
            (true, _) => vec![Ask::Init { version: 2 }, Ask::FullInit { rank: Some(rank), job: 0 }],
            (false, true) => vec![Ask::InitAck { rank }, Ask::Init { version: 1 }],
            (false, false) => vec![Ask::Init { version: 1 }],
        };
        for ask in asks {
            if self.model.conns.contains_key(&conn) {
                self.ask(conn, &ask, u8::MAX);
            }
        }
    }

    /// The message that a connection would say, in the language that it speaks by now.
    fn request(&mut self, conn: u32, ask: &Ask) -> Option<Request> {
        self.counter += 1;
        let names: Vec<_> = self.model.jobs.values().map(|job| job.name.clone()).collect();
        let state = self.model.conn(conn);
        let (job, counted) = (state.job, state.counted());
        let named = |at: u8| match at {
            0 => None,
            _ => Some(
                names.get(usize::from(at - 1) % (names.len() + 1)).map_or("unknown", |name| name).to_owned(),
            ),
        };
        let job = match *ask {
            Ask::Put { job, .. } | Ask::Get { job, .. } => named(job),
            Ask::Connect { job } | Ask::Disconnect { job } => named(job + 1),
            Ask::FullInit { job: 1, .. } => self.model.jobs.get(&job).map(|job| job.name.clone()),
            Ask::FullInit { job: 2, .. } => Some("unknown".to_owned()),
            _ => None,
        };
        let thrid = match self.counter % 16 {
            0 => Some("t".repeat(24)),
            n if n % 3 == 0 => None,
            _ => Some(format!("t{}", self.counter)),
        };
        encode::request(ask, job, counted, thrid)
    }

    pub(crate) fn ask(&mut self, conn: u32, ask: &Ask, cut: u8) {
        let state = self.model.conn(conn);
        let idle = state.pending.is_empty();
        // Clients wait for their replies before they begin anew.
        let moves = matches!(ask, Ask::Init { .. } | Ask::Finalize);
        if state.pending.len() > 3 || (moves && !(idle && state.owed.is_empty())) {
            return;
        }
        let Some(request) = self.request(conn, ask) else { return };
        let cut = usize::from(cut);
        let state = self.model.conn(conn);
        if idle && state.closing.is_none() && cut < request.bytes.len() {
            self.feed(conn, &request.bytes[..cut], false);
        }
        let before = self.snapshot();
        let state = self.model.conn(conn);
        let (quiet, owed) = (!state.blocked && state.closing.is_none() && idle, state.owed.len());
        let (said, compactions) = (self.said.len(), self.model.compactions);
        self.says(conn, vec![request]);
        if let [(to, why @ Say::Failed(..))] = &self.said[said..]
            && (quiet, owed, *to) == (true, 0, conn)
            && self.stays(conn)
            // What was replaced may have left the log, and was not enough.
            && self.model.compactions == compactions
        {
            assert!(self.snapshot() == before, "a refusal ({why:?}) changes nothing");
        }
    }

    /// Whether a connection is open and owed nothing.
    fn stays(&self, conn: u32) -> bool {
        self.model.conns.get(&conn).is_some_and(|conn| conn.owed.is_empty() && conn.closing.is_none())
    }

    fn rubbish(&mut self, conn: u32, which: u8) {
        let state = self.model.conn(conn);
        if !state.pending.is_empty() || state.closing.is_some() {
            return;
        }
        let (bytes, why): (&[u8], _) = match (state.counted(), which % 4) {
            (true, 0) => (b"abcdefgh", Malformed::Length),
            (true, 1) => (b"     3cmd", Malformed::NoCommand),
            (true, 2) => (b"999999cmd=", Malformed::TooLong),
            (true, _) => (b"    14GET / HTTP/1.1", Malformed::NoCommand),
            (false, 0) => (b"GET / HTTP/1.1\r\n\r\n", Malformed::NoCommand),
            (false, 1) => (b"mcmd=spawn\ntotspawns=0\nendcmd\n", Malformed::Structure),
            (false, 2) => (b"\0\0\0\0", Malformed::NoCommand),
            (false, _) => (b"mcmd=spawn\ntotspawns=2\nendcmd\ncmd=finalize\n", Malformed::Structure),
        };
        self.model.closing(conn, Closing::Malformed(why));
        self.feed(conn, bytes, false);
    }

    pub(crate) fn writable(&mut self, conn: u32) {
        self.model.conn(conn).blocked = false;
        self.tell(Input::Writable { conn: ConnId(conn) }).expect("it is open");
    }

    pub(crate) fn tick(&mut self, millis: u64) {
        self.model.now += millis;
        self.model.tick();
        self.tell(Input::Timeout).expect("time may always pass");
    }

    pub(crate) fn launch(&mut self, which: u8, how: u8) {
        let waiting = self.model.spawns.iter().filter(|spawn| spawn.result.is_none());
        let serials: Vec<_> = waiting.map(|spawn| spawn.serial).collect();
        let Some(serial) = pick(&serials, which) else { return };
        let (spawn, job) = (self.spawn_id(serial), self.free_job());
        let sizes = &self.model.spawns.iter().find(|it| it.serial == serial).expect("it was picked").sizes;
        let (size, programs) = (sizes.iter().sum(), sizes.len());
        let plan = JobPlan {
            size: 1,
            cleanup: how.is_multiple_of(2),
            waits: true,
            warns: false,
            v2: which,
            port: 0,
            attrs: 0,
        };
        let mut started =
            !how.is_multiple_of(4) && self.add_job(job, plan, size, Some((serial, spawn))).is_ok();
        if started && how % 4 == 3 {
            self.forget(job);
            started = false;
        }
        let codes = vec![if started { 0 } else { 2 }; programs];
        let name = started.then(|| self.model.jobs[&job].name.clone());
        let wrong = Input::SpawnComplete { spawn, started, full: None, codes: &[0; 7] };
        assert!(self.tell(wrong).is_err(), "a code for each program is wanted");
        self.model.launched(serial, name, &codes);
        self.tell(Input::SpawnComplete { spawn, started, full: None, codes: &codes })
            .expect("the host was told to");
        for rank in 0..if started { size } else { 0 } {
            self.open(job, rank, false, how % 4 == 1, true);
        }
    }

    /// The host breaks the contract: it is told, and nothing changes.
    fn mistake(&mut self, which: u8, at: u32) {
        let model = &self.model;
        let free = self.free_job();
        let (conn, job) = (ConnId(at), JobId(at));
        let no_conn = !model.conns.contains_key(&at);
        let no_job = !model.jobs.contains_key(&at);
        let name = model.jobs.values().next().map(|job| job.name.clone()).unwrap_or_default();
        let input = match which {
            0 if no_conn => Input::Bytes { conn, bytes: b"cmd=init\n", full: false },
            1 if no_conn => Input::Closed { conn },
            2 if no_conn => Input::Blocked { conn },
            3 if no_conn => Input::Writable { conn },
            4 if !no_conn => Input::Opened { conn, job: JobId(free), rank: None },
            5 => Input::Opened { conn: ConnId(model.limits.conns), job: JobId(0), rank: None },
            6 if no_job => Input::DeregisterJob { job },
            7 => Input::Exited { job, rank: Rank(99), exit: Exit::Lost },
            8 => Input::RegisterJob(JobSpec::new(JobId(free), &name, 1)),
            9 => Input::RegisterJob(JobSpec::new(JobId(free), "empty", 0)),
            10 => Input::RegisterJob(JobSpec {
                spawn: Some(UpcallId(99)),
                ..JobSpec::new(JobId(free), "child", 1)
            }),
            11 => Input::SpawnComplete { spawn: UpcallId(99), started: false, full: None, codes: &[] },
            _ => return,
        };
        assert!(self.tell(input).is_err(), "{input:?} is a mistake");
    }

    /// Lets everything come to its end: no reply may stay pending that no rank can complete.
    pub(crate) fn quiesce(&mut self) {
        for conn in self.model.conns.keys().copied().collect::<Vec<_>>() {
            if self.model.conns.contains_key(&conn) {
                self.writable(conn);
            }
        }
        while self.model.spawns.iter().any(|spawn| spawn.result.is_none()) {
            self.launch(0, 0);
        }
        self.tick(1_000_000);
        // Every set still has the place that it was given.
        for index in 0..6 {
            for conn in self.model.conns.keys().copied().collect::<Vec<_>>() {
                self.ask(conn, &Ask::PsetName { index }, u8::MAX);
            }
        }
        for job in self.model.jobs.keys().copied().collect::<Vec<_>>() {
            let alive = |world: &Self, rank: u32| world.model.jobs[&job].ranks[rank as usize].exit.is_none();
            let ranks = 0..self.model.jobs[&job].size();
            let last = ranks.clone().rev().find(|&rank| alive(self, rank));
            for rank in ranks {
                if alive(self, rank) && Some(rank) != last {
                    self.exit(job, rank, 0);
                }
            }
            let ending = self.model.jobs[&job].ending;
            let waits = |wait: &Wait| matches!(wait, Wait::Fence | Wait::Group(..) | Wait::Ring);
            for conn in self.model.conns.values().filter(|conn| conn.job == job && conn.rank == last) {
                let waiting = conn.stage == Stage::Ready && conn.owed.iter().any(|(_, wait)| waits(wait));
                assert!(ending || !waiting, "the last rank waits for the dead: {conn:?}");
            }
        }
        for job in self.model.jobs.keys().copied().collect::<Vec<_>>() {
            self.forget(job);
        }
        while self.model.spawns.iter().any(|spawn| spawn.result.is_none()) {
            self.launch(0, 0);
        }
        assert!(self.model.conns.is_empty() && self.model.spawns.is_empty() && self.model.names.is_empty());
        assert_eq!(self.server.poll(&mut vec![0; self.model.limits.output_max()]), Ok(None));
    }
}
