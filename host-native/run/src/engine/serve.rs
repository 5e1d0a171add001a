//! Between the PMI connections and the engine.

use std::fmt::Display;
use std::io;
use std::path::Path;

use hydrant_control::{DaemonEvent, Event as HeadEvent};
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::{ConnId, JobId, OwnedOutput, Rank};
use hydrant_driver::{CloseReason, Event, OVERRUN, is_out_of_files, refused_line};
use hydrant_reactor::Key;
use rustix::fd::OwnedFd;

use super::Engine;
use super::board::is_shared_memory;
use super::server::PmiServer;
use crate::error::RunError;

/// Why a PMIx client is refused.
const UNSERVED: &str = "it is of another job, or its rank has another connection or has ended\nhint: programs that a rank \
                        starts must not have PMIX_NAMESPACE in their environment";

impl Engine<'_, '_> {
    /// Adds the socket of a rank. Returns its number, or none at the limit.
    pub(super) fn open_conn(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        rank: u32,
    ) -> Result<Option<ConnId>, RunError> {
        self.make_room_for_client()?;
        let now = self.now();
        let Some(driver) = self.core.driver() else { return Ok(None) };
        Ok(driver.open(fd, job, Rank(rank), now, &self.poller)?)
    }

    /// Closes the oldest connection whose client has not introduced itself, if the limit of connections is reached.
    fn make_room_for_client(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let Some(driver) = self.core.driver() else { return Ok(()) };
        if driver.make_room(now)? { self.outputs() } else { Ok(()) }
    }

    /// Handles a ready connection.
    ///
    /// It is answered before the next one is read. A client whose reply is there before it waits is not woken, and others
    /// work meanwhile on other processors.
    pub(super) fn conn_ready(&mut self, key: Key, now: u64) -> Result<(), RunError> {
        let Some(driver) = self.core.driver() else { return Ok(()) };
        driver.ready(key, now, &self.poller)?;
        self.outputs_at(now)
    }

    /// Handles all events of the server.
    pub(super) fn outputs(&mut self) -> Result<(), RunError> {
        self.outputs_at(self.now())
    }

    /// As [`outputs`](Engine::outputs), at a time that has just been read from the clock.
    fn outputs_at(&mut self, mut now: u64) -> Result<(), RunError> {
        loop {
            let more = match &mut self.core {
                PmiServer::Local(driver) => match driver.poll(now, &self.poller)? {
                    Some(event) => {
                        self.take_server_event(event)?;
                        true
                    }
                    None => self.pass_name()?,
                },
                PmiServer::Node(board) => match board.event()? {
                    Some(event) => {
                        self.take_node_event(event)?;
                        true
                    }
                    None => self.pass_name()?,
                },
            };
            if !more && !self.show_board() {
                self.note_unserved();
                return Ok(());
            }
            self.has_acted = true;
            now = self.now();
        }
    }

    pub(super) fn take_server_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Closed { job, rank, why, .. } => self.closed(job, rank, why),
            Event::Output(OwnedOutput::Upcall { upcall, .. }) if self.daemon.is_none() => {
                self.refuse_upcall(upcall)?;
            }
            Event::Output(OwnedOutput::Peer { node, bytes }) => self.pass_on(node, &bytes)?,
            Event::Output(OwnedOutput::RemoveFiles { job, rank, paths }) => {
                let allows = if self.core.is_board() { is_shared_memory } else { |_: &Path| true };
                if let Some(job) = self.jobs.get_mut(job) {
                    job.run.add_leftovers(rank.0, &paths, allows);
                }
            }
            Event::Output(OwnedOutput::Log { job, rank, stream, text }) => {
                self.log_for(job, rank, stream, &text);
            }
            Event::Output(output) => {
                match output {
                    OwnedOutput::Joined { job, rank, .. } => self.joined(job, rank),
                    // A rank aborts when its connection to a rank of another job breaks. That one has failed first.
                    OwnedOutput::AbortJob { cause: Cause::Abort { .. }, .. } if self.jobs.len() > 1 => {
                        self.take_exits()?;
                    }
                    _ => {}
                }
                self.pass_output(output)?;
            }
        }
        Ok(())
    }

    /// Passes an output of the PMI server to the node that the server serves.
    pub(super) fn pass_output(&mut self, output: OwnedOutput) -> Result<(), RunError> {
        match self.daemon {
            Some(_) => self.handle_at_daemon(DaemonEvent::Output(output)),
            None => self.handle_at_head(HeadEvent::Output(output)),
        }
    }

    /// Prints text as output of a rank, with its label and to its file.
    fn log_for(&mut self, job: JobId, Rank(rank): Rank, stream: Stream, text: &[u8]) {
        let now = self.now();
        let Some(job) = self.jobs.get(job) else { return };
        let id = 2 * job.slot(rank) + u32::from(stream == Stream::Stderr);
        self.streams.inject(id, now, text, &mut self.sinks);
    }

    /// Handles a client that has become a rank.
    fn joined(&mut self, job: JobId, rank: Rank) {
        let Some(job) = self.jobs.get_mut(job) else { return };
        job.run.joined = true;
        let is_first = job.ordinal == 0;
        if self.plan.settings.verbose {
            let line = format!("{} has joined", job.rank_name(rank.0));
            self.sinks.print(&line);
        }
        if is_first {
            self.count_joined(1);
        }
    }

    /// Handles a closed connection of a client.
    fn closed(&mut self, job: JobId, rank: Option<Rank>, why: CloseReason) {
        match why {
            CloseReason::Ended
            | CloseReason::NoHandshake
            | CloseReason::Backend(Closing::JobOver | Closing::Replaced) => {}
            CloseReason::Backend(Closing::Unserved) => self.unserved(job),
            CloseReason::Overrun => self.print_closed(job, rank, OVERRUN),
            why @ (CloseReason::Backend(_) | CloseReason::TooLong(_) | CloseReason::OtherProtocol(_)) => {
                self.print_closed(job, rank, why)
            }
        }
    }

    /// Reports a PMIx client that was refused: the first of a job, and their number whenever it has grown tenfold.
    fn unserved(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.run.unserved += 1;
        if let Some(line) = refused_line(job.run.unserved, UNSERVED) {
            self.sinks.print(&line);
        }
    }

    /// Reports a connection that was closed because of its client's input.
    fn print_closed(&mut self, job: JobId, rank: Option<Rank>, why: impl Display) {
        let rank = self.jobs.get(job).zip(rank).map(|(job, rank)| job.rank_name(rank.0));
        match rank {
            Some(rank) => self.sinks.print(&format!("closed the PMI connection of {rank}: {why}")),
            None if self.plan.settings.verbose => {
                self.sinks.print(&format!("closed a connection that was no rank's: {why}"));
            }
            None => {}
        }
    }

    /// Reads the last requests of a rank whose process has ended.
    pub(super) fn read_last_requests(&mut self, job: JobId, rank: u32) -> Result<(), RunError> {
        if let Some(board) = self.core.node() {
            // A rank may have ended because its board is lost, which is the reason to report.
            let read = board.read_last(job, Rank(rank)).map_err(RunError::from);
            return read.and_then(|()| self.outputs()).or_else(|error| self.break_off(error));
        }
        // Its connection may not have been accepted yet.
        self.accept(job)?;
        let Some(driver) = self.core.driver() else { return Ok(()) };
        driver.read_last(job, Rank(rank));
        self.outputs()
    }

    /// Accepts connections at the port of a job.
    pub(super) fn accept(&mut self, id: JobId) -> Result<(), RunError> {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let mut admitted = Vec::new();
        let mut failed = None;
        for (at, port) in job.run.ports_mut().enumerate().filter(|(_, port)| port.deadline().is_none()) {
            if let Err(error) = port.socket().accept(&mut admitted) {
                failed = Some((at, error));
            }
        }
        for client in admitted {
            self.make_room_for_client()?;
            let now = self.now();
            if let Some(driver) = self.core.driver() {
                driver.open_client(client, id, now, &self.poller)?;
            }
        }
        match failed {
            Some((at, error)) if !self.displace(&error)? => {
                self.sinks.print(&format!("warning: paused accepting connections: {error}"));
                if let Some(port) = self.jobs.get_mut(id).and_then(|job| job.run.ports_mut().nth(at)) {
                    port.pause(&self.poller, now);
                }
                Ok(())
            }
            // The port stays readable, so the next turn accepts in place of the client that was displaced.
            _ => Ok(()),
        }
    }

    /// Closes the oldest connection whose client has not introduced itself, if `error` is a lack of descriptors. Returns
    /// whether a connection was closed.
    pub(super) fn displace(&mut self, error: &io::Error) -> Result<bool, RunError> {
        let now = self.now();
        let displaced = match self.core.driver() {
            Some(driver) if is_out_of_files(error) => driver.displace(now)?,
            _ => false,
        };
        self.outputs()?;
        Ok(displaced)
    }

    /// Ends the pauses of listening sockets whose time has passed.
    pub(super) fn resume_ports(&mut self, now: u64) -> Result<(), RunError> {
        for job in self.jobs.iter_mut() {
            for port in job.run.ports_mut() {
                port.resume(&self.poller, now)?;
            }
        }
        for query in self.queries.values_mut() {
            query.resume(&self.poller, now)?;
        }
        Ok(())
    }
}
