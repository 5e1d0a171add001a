//! What keeps the names, whatever event loop it is in: a server of hydrant-core's whose every connection is a job of
//! one rank.

use std::os::fd::OwnedFd;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::server::JobSpec;
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Time};
use hydrant_reactor::{Interest, Key, KeyRange, Poller};

use super::LIMITS;
use crate::border::{AnyBackend, Maker};
use crate::engine::conns::{Conns, HANDSHAKE_TIMEOUT, OVERRUN, Received};
use crate::error::RunError;
use crate::storage::OwnedStorage;

/// The keeper of names. Its connections have a range of keys for themselves.
pub(crate) struct Keeper<'s> {
    core: Box<AnyBackend<'s>>,
    keys: KeyRange,
    /// By the same number each is a connection, a job and the job's only rank.
    conns: Conns,
    /// How many there have been.
    count: u64,
    buffer: Vec<u8>,
    reply: Box<[u8]>,
    /// What the log should hold.
    news: Vec<String>,
}

impl<'s> Keeper<'s> {
    /// For a single run.
    pub(crate) const LIMITS_OF_RUN: Limits = Keeper::limits(LIMITS);

    /// Each connection is a job of one rank.
    pub(super) const fn limits(limits: Limits) -> Limits {
        Limits { jobs: limits.conns, ranks: limits.conns, ..limits }
    }

    /// With a core of that maker's, in slabs of its.
    pub(crate) fn new(
        maker: &Maker,
        limits: Limits,
        slabs: &'s mut OwnedStorage,
        keys: KeyRange,
    ) -> Result<Keeper<'s>, RunError> {
        let mut conns = Conns::new(limits.conns, keys);
        conns.make_room(limits.conns);
        Ok(Keeper {
            core: maker.core(limits, 0, slabs)?,
            keys,
            conns,
            count: 0,
            buffer: vec![0; 2 * MESSAGE_MAX as usize],
            reply: vec![0; limits.output_max()].into(),
            news: Vec::new(),
        })
    }

    /// When [`keep_time`](Keeper::keep_time) has something to do.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let stranger = self.conns.oldest_unnamed().map(|(_, opened)| opened + HANDSHAKE_TIMEOUT);
        let wake = self.core.poll_at().map(|Time(at)| at);
        [stranger, wake].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn keep_time(&mut self, poller: &Poller, now: u64) -> Result<(), RunError> {
        if self.core.poll_at().is_some_and(|Time(at)| at <= now) {
            self.core.handle(Time(now), Input::Timeout)?;
            self.outputs(poller, now)?;
        }
        while let Some((id, opened)) = self.conns.oldest_unnamed()
            && opened + HANDSHAKE_TIMEOUT <= now
        {
            self.close(id, poller, now)?;
        }
        Ok(())
    }

    /// Takes in a connection.
    pub(crate) fn open(&mut self, fd: OwnedFd, poller: &Poller, now: u64) -> Result<(), RunError> {
        let Some(id) = self.conns.open(fd, JobId::default(), None, now) else {
            self.say(
                "turned away a connection: limit conns is used up, raise it with --limit conns=N".to_owned(),
            );
            return Ok(());
        };
        let conn = self.conns.get(id).expect("it was opened just now");
        poller.add(conn.fd(), self.keys.key(0, id), Interest::Read)?;
        self.count += 1;
        let job = JobId(id);
        let name = format!("run-{}", self.count);
        self.core.handle(Time(now), Input::RegisterJob(JobSpec::new(job, &name, 1)))?;
        self.core.handle(Time(now), Input::Opened { conn: ConnId(id), job, rank: Some(Rank(0)) })?;
        Ok(())
    }

    /// A connection is ready.
    pub(crate) fn ready(&mut self, key: Key, poller: &Poller, now: u64) -> Result<(), RunError> {
        let Some((_, id)) = self.keys.decode(key) else { return Ok(()) };
        match self.conns.ready(id, &mut *self.core, (poller, Time(now)), &mut self.buffer)? {
            Received::End => self.close(id, poller, now),
            Received::Overrun => {
                self.say(format!("closed a connection: {OVERRUN}"));
                self.close(id, poller, now)
            }
            Received::Bytes(_) | Received::Nothing => self.outputs(poller, now),
        }
    }

    /// A line for the log.
    pub(crate) fn news(&mut self) -> Option<String> {
        self.news.pop()
    }

    fn say(&mut self, line: String) {
        self.news.insert(0, line);
    }

    fn close(&mut self, id: u32, poller: &Poller, now: u64) -> Result<(), RunError> {
        if self.conns.get(id).is_none() {
            return Ok(());
        }
        self.conns.close(id);
        self.core.handle(Time(now), Input::Closed { conn: ConnId(id) })?;
        self.core.handle(Time(now), Input::DeregisterJob { job: JobId(id) })?;
        self.outputs(poller, now)
    }

    /// Does what the core says until it says nothing more.
    fn outputs(&mut self, poller: &Poller, now: u64) -> Result<(), RunError> {
        loop {
            match self.core.poll(&mut self.reply[..])? {
                Some(Output::Bytes { conn, bytes }) => {
                    self.conns.deliver(conn, bytes, &mut *self.core, (poller, Time(now)))?;
                }
                Some(Output::Joined { conn, .. }) => self.conns.name(conn.0, conn.0),
                Some(Output::Close { conn, why }) => {
                    if let Closing::Malformed(malformed) = why {
                        self.say(format!("closed a connection: {malformed}"));
                    }
                    self.close(conn.0, poller, now)?;
                }
                // Who aborts is its own only rank.
                Some(Output::AbortJob { job, .. } | Output::KillRank { job, .. }) => {
                    self.close(job.0, poller, now)?
                }
                // There is no room for spawns, names are this server's own, no fence is waited for, and there are no
                // other nodes.
                Some(
                    Output::Spawn { .. }
                    | Output::Upcall { .. }
                    | Output::StalledFence { .. }
                    | Output::Peer { .. },
                ) => {}
                None if self.conns.hand_in_again(&mut *self.core, Time(now))? => {}
                None => return Ok(()),
            }
        }
    }
}
