//! Name service: a server in which each connection is a job of one rank. The names of a connection end with it.

use std::os::fd::OwnedFd;

use hydrant_core::server::JobSpec;
use hydrant_core::trace::Closing;
use hydrant_core::{Backend, Fault, Input, JobId, OwnedOutput, Rank};
use hydrant_driver::{BackendError, CloseReason, Driver, Event, OVERRUN};
use hydrant_reactor::{Key, KeyRange, Poller};

use crate::error::NameServiceError;

/// A name service on a backend of the caller's, inside an event loop of the caller's.
#[derive(Debug)]
pub(crate) struct NameService<B: ?Sized> {
    /// A connection, its job and the job's only rank have the same number.
    driver: Driver<B>,
    /// Connections so far.
    count: u64,
    /// Lines for the log, the latest first.
    lines: Vec<String>,
}

impl<B> NameService<B>
where
    B: Backend + ?Sized,
{
    /// Creates a name service whose connections have keys of the range `keys`. The limits of the backend are those of
    /// [`Options::limits`](crate::Options::limits).
    pub(crate) fn new(backend: Box<B>, keys: KeyRange) -> NameService<B> {
        NameService { driver: Driver::new(backend, keys), count: 0, lines: Vec::new() }
    }

    /// Time in milliseconds at which the owner calls [`handle_timeout`](NameService::handle_timeout).
    pub(crate) fn poll_at(&mut self) -> Option<u64> {
        self.driver.poll_at()
    }

    /// Applies deadlines that have passed.
    ///
    /// # Errors
    /// The backend or the poller failed.
    pub(crate) fn handle_timeout(&mut self, poller: &Poller, now: u64) -> Result<(), NameServiceError> {
        match self.driver.handle_timeout(now)? {
            true => self.poll_driver(poller, now),
            false => Ok(()),
        }
    }

    /// Adds the connection of a run. Other runs connect to its job by the alias, if there is one and no other connection
    /// has it. A connection beyond the limit is closed, with a line for the log.
    ///
    /// # Errors
    /// The backend or the poller failed.
    pub(crate) fn open(
        &mut self,
        (fd, alias): (OwnedFd, Option<String>),
        poller: &Poller,
        now: u64,
    ) -> Result<(), NameServiceError> {
        // The job has the number of the connection, which the driver chooses.
        let Some(conn) = self.driver.next_conn() else {
            self.log(
                "refused a connection: limit conns is used up; raise it with --limit conns=N".to_owned(),
            );
            return Ok(());
        };
        self.count += 1;
        let (job, name) = (JobId(conn.0), format!("run-{}", self.count));
        let named =
            alias.map(|alias| self.driver.handle(now, Input::RegisterJob(JobSpec::new(job, &alias, 1))));
        match named {
            Some(Ok(())) => {}
            None | Some(Err(BackendError::Fault(Fault::BadJobId))) => {
                self.driver.handle(now, Input::RegisterJob(JobSpec::new(job, &name, 1)))?;
            }
            Some(Err(error)) => return Err(error.into()),
        }
        self.driver.open_incoming(fd, job, Rank(0), now, poller)?;
        Ok(())
    }

    /// Handles a ready descriptor whose key is in the service's range.
    ///
    /// # Errors
    /// The backend or the poller failed.
    pub(crate) fn ready(&mut self, key: Key, poller: &Poller, now: u64) -> Result<(), NameServiceError> {
        self.driver.ready(key, now, poller)?;
        self.poll_driver(poller, now)
    }

    /// The next line for the log.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        self.lines.pop()
    }

    fn log(&mut self, line: String) {
        self.lines.insert(0, line);
    }

    /// Sends replies, and ends the jobs of closed connections.
    fn poll_driver(&mut self, poller: &Poller, now: u64) -> Result<(), NameServiceError> {
        while let Some(event) = self.driver.poll(now, poller)? {
            match event {
                Event::Closed { job, why, .. } => {
                    match why {
                        CloseReason::Overrun => self.log(format!("closed a connection: {OVERRUN}")),
                        CloseReason::Backend(Closing::Malformed(malformed)) => {
                            self.log(format!("closed a connection: {malformed}"));
                        }
                        CloseReason::Backend(_)
                        | CloseReason::TooLong(_)
                        | CloseReason::Ended
                        | CloseReason::NoHandshake
                        | CloseReason::OtherProtocol(_) => {}
                    }
                    self.driver.handle(now, Input::DeregisterJob { job })?;
                }
                // The job's only rank aborts itself.
                Event::Output(OwnedOutput::AbortJob { job, .. } | OwnedOutput::KillRank { job, .. }) => {
                    self.driver.deregister_job(job, now)?;
                }
                // The limits leave no room for spawns, names are this server's own, no fence waits, and there are no other
                // nodes.
                Event::Output(_) => {}
            }
        }
        Ok(())
    }
}
