//! Name service: a server whose every connection is a job of one rank, so that its names go with the connection.

use std::os::fd::OwnedFd;

use hydrant_core::server::JobSpec;
use hydrant_core::trace::Closing;
use hydrant_core::{Input, JobId, Limits, Rank};
use hydrant_driver::{AnyBackend, CloseReason, Driver, Error, Event, OVERRUN};
use hydrant_reactor::{Key, KeyRange, Poller};

use super::LIMITS;

/// The name service.
pub(crate) struct Keeper<'s> {
    /// A connection, its job and the job's only rank have the same number.
    driver: Driver<AnyBackend<'s>>,
    /// Connections so far.
    count: u64,
    /// Lines for the log, the latest first.
    news: Vec<String>,
}

impl<'s> Keeper<'s> {
    /// For a single run.
    pub(crate) const LIMITS_OF_RUN: Limits = Keeper::limits(LIMITS);

    /// Each connection is a job of one rank.
    pub(super) const fn limits(limits: Limits) -> Limits {
        Limits { jobs: limits.conns, ranks: limits.conns, ..limits }
    }

    /// Creates a name service on a backend with [`Keeper::limits`]. Its connections have keys of the range `keys`.
    pub(crate) fn new(backend: Box<AnyBackend<'s>>, keys: KeyRange) -> Keeper<'s> {
        Keeper { driver: Driver::new(backend, keys), count: 0, news: Vec::new() }
    }

    /// When [`keep_time`](Keeper::keep_time) has something to do.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.driver.poll_at()
    }

    /// Does what is due.
    pub(crate) fn keep_time(&mut self, poller: &Poller, now: u64) -> Result<(), Error> {
        match self.driver.handle_timeout(now)? {
            true => self.poll_driver(poller, now),
            false => Ok(()),
        }
    }

    /// Adds a connection.
    pub(crate) fn open(&mut self, fd: OwnedFd, poller: &Poller, now: u64) -> Result<(), Error> {
        // The job has the number of the connection, which the driver chooses.
        let Some(conn) = self.driver.next_conn() else {
            self.log(
                "turned away a connection: limit conns is used up, raise it with --limit conns=N".to_owned(),
            );
            return Ok(());
        };
        self.count += 1;
        let (job, name) = (JobId(conn.0), format!("run-{}", self.count));
        self.driver.handle(now, Input::RegisterJob(JobSpec::new(job, &name, 1)))?;
        self.driver.open_incoming(fd, job, Rank(0), now, poller)?;
        Ok(())
    }

    /// A descriptor with a key of the name service's range is ready.
    pub(crate) fn ready(&mut self, key: Key, poller: &Poller, now: u64) -> Result<(), Error> {
        self.driver.ready(key, now, poller)?;
        self.poll_driver(poller, now)
    }

    /// The next line for the log.
    pub(crate) fn news(&mut self) -> Option<String> {
        self.news.pop()
    }

    fn log(&mut self, line: String) {
        self.news.insert(0, line);
    }

    /// Sends replies, and ends the jobs of closed connections.
    fn poll_driver(&mut self, poller: &Poller, now: u64) -> Result<(), Error> {
        while let Some(event) = self.driver.poll(now, poller)? {
            match event {
                Event::Closed { job, why, .. } => {
                    match why {
                        CloseReason::Overrun => self.log(format!("closed a connection: {OVERRUN}")),
                        CloseReason::Backend(Closing::Malformed(malformed)) => {
                            self.log(format!("closed a connection: {malformed}"));
                        }
                        CloseReason::Backend(_) | CloseReason::Ended | CloseReason::NotIntroduced => {}
                    }
                    self.driver.handle(now, Input::DeregisterJob { job })?;
                }
                // The job's only rank aborts itself.
                Event::AbortJob { job, .. } | Event::KillRank { job, .. } => {
                    self.driver.deregister_job(job, now)?;
                }
                // The limits leave no room for spawns, names are this server's own, no fence waits, and there are no other
                // nodes.
                Event::Joined { .. }
                | Event::Spawn { .. }
                | Event::Upcall { .. }
                | Event::StalledFence { .. }
                | Event::Peer { .. } => {}
            }
        }
        Ok(())
    }
}
