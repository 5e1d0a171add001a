//! Begin and end of jobs, connections and processes.

use std::collections::{HashMap, VecDeque};

use hydrant_core::limits::{CUT_OFF_DELAY, Limit};
use hydrant_core::server::JobSpec;
use hydrant_core::trace::{Cause, Closing, Exit};
use hydrant_core::wire::Op;
use hydrant_core::{Fault, Rank, Refusal};

use super::says::Say;
use super::state::{Amount, Conn, Job, Kind, Model, Phase, Process, Stage, Wait, record};

impl Model {
    /// Where as many ranks are free in a row.
    fn place(&self, size: u32) -> Option<u32> {
        let taken: Vec<_> = self.jobs.values().map(|job| job.first..job.first + job.size()).collect();
        let fits = |start: u32| {
            start + size <= self.limits.ranks
                && taken.iter().all(|other| start >= other.end || start + size <= other.start)
        };
        (0..self.limits.ranks).find(|&start| fits(start))
    }

    /// Opens a job; `spawn` is the serial of the spawn that it comes from.
    pub(crate) fn open_job(&mut self, spec: &JobSpec<'_>, spawn: Option<u64>) -> Result<(), Fault> {
        let full = |limit, size| Fault::Full(limit, size);
        if spec.job.0 >= self.limits.jobs {
            return Err(full(Limit::Jobs, self.limits.jobs));
        }
        let first = self.place(spec.size).ok_or(full(Limit::Ranks, self.limits.ranks))?;
        let spawn = spawn.and_then(|serial| self.spawns.iter().find(|spawn| spawn.serial == serial)).cloned();
        let preput = spawn.as_ref().map(|spawn| spawn.preput.clone()).unwrap_or_default();
        let cost = preput.iter().fold(Amount::default(), |cost, (key, value)| {
            cost.plus(Amount { bytes: record(key.len(), value.len()), keys: 1 })
        });
        if preput.iter().any(|(key, value)| key.is_empty() || key.len() > 64 || value.len() > 1024) {
            return Err(Fault::BadAttribute);
        }
        self.make_room_for_job(spec.size, cost)?;
        let share = self.share(spec.size);
        let process = Process {
            conn: None,
            phase: Phase::New,
            exit: None,
            dead: false,
            buried: false,
            aborted: false,
            in_fence: false,
            ring: None,
            appnum: 0,
            used: Amount::default(),
        };
        let job = Job {
            serial: self.next_serial(),
            name: spec.name.to_owned(),
            first,
            ranks: vec![process; spec.size as usize],
            universe: spec.universe_size.unwrap_or(0),
            cleanup: spec.cleanup,
            subversion: spec.pmi1_subversion,
            spawner: spawn.map(|spawn| spawn.parent_name),
            lookup_wait: spec.lookup_wait,
            fence_warning: spec.fence_warning,
            share,
            begun: false,
            ending: false,
            init: None,
            cut_off: None,
            fence: None,
            groups: Vec::new(),
            kvs: HashMap::new(),
            node: HashMap::new(),
            attrs: HashMap::new(),
        };
        self.jobs.insert(spec.job.0, job);
        for (key, value) in preput {
            self.take(spec.job.0, None, Kind::Kvs, &[(&key, value.len())]);
            self.job(spec.job.0).kvs.insert(key, value);
        }
        Ok(())
    }

    pub(crate) fn set_attr(&mut self, job: u32, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let is_late = self.jobs[&job].begun && !key.starts_with(b"text:");
        if is_late || key.is_empty() || key.len() > 64 || value.len() > 1024 {
            return Err(Fault::BadAttribute);
        }
        let pairs = [(key, value.len())];
        self.make_room_for_host(self.cost(job, Kind::Job, &pairs)).map_err(|why| match why {
            Refusal::Full(limit, size) => Fault::Full(limit, size),
            Refusal::Quota(limit, _) => Fault::Full(limit, self.limits.of(limit)),
            _ => Fault::BadAttribute,
        })?;
        self.take(job, None, Kind::Job, &pairs);
        self.job(job).attrs.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// Drops a job and all that is its own.
    pub(crate) fn forget(&mut self, id: u32) {
        self.end_psets(id);
        let Some(job) = self.jobs.remove(&id) else { return };
        let mut dropped = Vec::new();
        for conn in self.conns.values_mut().filter(|conn| conn.job == id) {
            dropped.append(&mut conn.owed);
            conn.pending.clear();
            conn.joined_unsaid = false;
            conn.closing_unsaid |= conn.closing.is_none();
            conn.closing.get_or_insert(Closing::JobOver);
        }
        self.unwanted(&dropped);
        self.names.retain(|name| name.owner != job.serial);
        self.links.retain(|&(a, b)| a != job.serial && b != job.serial);
        self.reclaim();
    }

    pub(crate) fn open(&mut self, id: u32, job: u32, rank: Option<u32>) -> Result<(), Fault> {
        let state = self.job(job);
        if let Some(rank) = rank {
            let process = state.ranks.get_mut(rank as usize).ok_or(Fault::NoSuchRank)?;
            if !process.may_connect() {
                return Err(Fault::RankTaken);
            }
            process.conn = Some(id);
        }
        state.begun = true;
        let conn = Conn {
            job,
            rank,
            verified: false,
            stage: Stage::Opened,
            v2: false,
            blocked: false,
            joined: false,
            joined_unsaid: false,
            closing: None,
            closing_unsaid: false,
            owed: Vec::new(),
            pending: VecDeque::new(),
        };
        self.conns.insert(id, conn);
        Ok(())
    }

    pub(crate) fn close(&mut self, id: u32) {
        let conn = self.conns.remove(&id).expect("the host closes what is open");
        self.unwanted(&conn.owed);
        if let Some(job) = self.jobs.get_mut(&conn.job) {
            for rank in job.ranks.iter_mut().filter(|rank| rank.conn == Some(id)) {
                rank.conn = None;
                if rank.is_cut_off() {
                    job.cut_off = Some(self.now + CUT_OFF_DELAY);
                }
            }
        }
    }

    /// Drops these pending replies: their clients have disconnected.
    fn unwanted(&mut self, owed: &[(Option<String>, Wait)]) {
        for (_, wait) in owed {
            if let Wait::Spawn(serial) | Wait::Say(Say::Launched(serial)) = *wait {
                self.spawns.iter_mut().filter(|it| it.serial == serial).for_each(|it| it.wanted = false);
            }
        }
        self.spawns.retain(|spawn| spawn.wanted || spawn.result.is_none());
    }

    pub(crate) fn closing(&mut self, conn: u32, why: Closing) {
        let conn = self.conn(conn);
        conn.closing = Some(why);
        conn.closing_unsaid = true;
        conn.pending.clear();
    }

    pub(crate) fn exit(&mut self, job: u32, rank: u32, exit: Exit) -> Result<(), Fault> {
        let (cleanup, spawned) = (self.jobs[&job].cleanup, self.jobs[&job].spawner.is_some());
        let process = self.job(job).ranks.get_mut(rank as usize).ok_or(Fault::NoSuchRank)?;
        if process.exit.is_some() {
            return Err(Fault::RankTaken);
        }
        process.exit = Some(exit);
        let died = spawned && exit != Exit::Code(0) || matches!(exit, Exit::Signal(_) | Exit::Lost);
        let (aborted, rank_) = (process.aborted, Rank(rank));
        let failed = match process.phase {
            Phase::Initialized => Some(Cause::NoFinalize { rank: rank_, exit }),
            Phase::New if died || !cleanup && exit != Exit::Code(0) => {
                Some(Cause::Died { rank: rank_, exit })
            }
            Phase::New | Phase::Finalized => None,
        };
        match failed {
            Some(cause) if cleanup && !aborted => self.end(job, cause, ""),
            None if cleanup && !aborted => self.check_absent(job),
            _ => {
                self.job(job).ranks[rank as usize].dead = failed.is_some() || aborted;
                self.bury(job, rank);
            }
        }
        Ok(())
    }

    pub(crate) fn tick(&mut self) {
        let now = self.now;
        for (_, wait) in self.conns.values_mut().flat_map(|conn| &mut conn.owed) {
            if matches!(wait, Wait::Lookup(_, until) if *until <= now) {
                *wait = Wait::Say(Say::Refused(Op::Lookup, Refusal::NoName));
            }
        }
        self.cut_off();
        self.late();
    }

    /// The host is done with a spawn.
    pub(crate) fn launched(&mut self, serial: u64, job: Option<String>, codes: &[u8]) {
        let spawn = self.spawns.iter_mut().find(|spawn| spawn.serial == serial);
        let spawn = spawn.expect("the step chose one");
        // PMI-1 has a code a process.
        let times = |size: u32| if spawn.request.starts_with(b"mcmd=") { size as usize } else { 1 };
        let each = codes.iter().zip(&spawn.sizes);
        let codes =
            each.flat_map(|(&code, &size)| std::iter::repeat_n(i32::from(code), times(size))).collect();
        let say = match job {
            Some(job) => Say::Spawned { job, codes },
            None => Say::NotSpawned { codes },
        };
        spawn.result = Some(say);
        for (_, wait) in self.conns.values_mut().flat_map(|conn| &mut conn.owed) {
            if *wait == Wait::Spawn(serial) {
                *wait = Wait::Say(Say::Launched(serial));
            }
        }
        self.unwanted(&[]);
    }
}
