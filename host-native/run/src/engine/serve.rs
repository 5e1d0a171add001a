//! Between the PMI connections and the engine.

use std::fmt::Display;
use std::io;
use std::path::Path;

use hydrant_board::NodeEvent;
use hydrant_core::trace::{Closing, Stream};
use hydrant_core::{ConnId, JobId, OwnedOutput, Rank};
use hydrant_driver::{CloseReason, Event, OVERRUN, is_out_of_files, refused_line};
use rustix::fd::OwnedFd;

use super::board::is_shared_memory;
use super::{Engine, host_call};
use crate::error::RunError;

/// Why a PMIx client is refused.
const UNSERVED: &str = "it is of another job, or its rank has another connection or has ended\nhint: programs that a rank \
                        starts must not have PMIX_NAMESPACE in their environment";

impl Engine<'_> {
    /// Adds the socket of a rank. Returns its number, or none at the limit.
    pub(super) fn open_conn(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        rank: u32,
    ) -> Result<Option<ConnId>, RunError> {
        let now = self.now();
        let Some(driver) = self.core.driver() else { return Ok(None) };
        driver.make_room(now)?;
        Ok(driver.open(fd, job, Rank(rank), now, &self.poller)?)
    }

    /// Handles what the PMI server has done, up to the next output that the head or the daemon must know. `now` is the time.
    pub(super) fn next_output(&mut self, mut now: u64) -> Result<Option<OwnedOutput>, RunError> {
        while let Some(event) = self.core.poll(now, &self.poller)? {
            self.has_acted = true;
            match event {
                NodeEvent::Server(Event::Output(output)) => {
                    if let Some(output) = self.take_output(output)? {
                        return Ok(Some(output));
                    }
                }
                NodeEvent::Server(Event::Closed { job, .. }) if self.is_tool(job) => self.tool_left(job),
                NodeEvent::Server(Event::Closed { job, rank, why, .. }) => self.closed(job, rank, why),
                NodeEvent::BadPeer { node, why } => return Err(RunError::Peer { node, why }),
                NodeEvent::Linked(_) => self.report_link(Ok(())),
                NodeEvent::Unlinked { node, why } => self.link_lost(node, why)?,
                NodeEvent::Ranks { query, ranks } => self.report_rank_states(query, &ranks),
            }
            now = self.now();
        }
        Ok(None)
    }

    /// Does what an output of the PMI server asks of its host. Returns outputs that head or daemon must know.
    fn take_output(&mut self, output: OwnedOutput) -> Result<Option<OwnedOutput>, RunError> {
        match output {
            OwnedOutput::Peer { node, bytes } => self.pass_on(node, &bytes)?,
            OwnedOutput::RemoveFiles { job, rank, paths } => {
                let allows = if self.core.is_board() { is_shared_memory } else { |_: &Path| true };
                if let Some(job) = self.jobs.get_mut(job) {
                    job.run.add_leftovers(rank.0, &paths, allows);
                }
            }
            OwnedOutput::Upcall { upcall, job, rank, request, .. } if host_call::is_local(&request) => {
                self.take_host_call(upcall, (job, rank), &request)?;
            }
            OwnedOutput::Log { job, rank, stream, text } if !self.is_tool(job) => {
                self.log_for(job, rank, stream, &text);
            }
            OwnedOutput::Joined { job, rank, .. } => {
                self.joined(job, rank);
                return Ok(Some(output));
            }
            output => return Ok(Some(output)),
        }
        Ok(None)
    }

    /// Prints text as output of a rank, with its label and to its file.
    pub(super) fn log_for(&mut self, job: JobId, Rank(rank): Rank, stream: Stream, text: &[u8]) {
        let now = self.now();
        let Some(job) = self.jobs.get(job) else { return };
        let id = 2 * job.slot(rank) + u32::from(stream == Stream::Stderr);
        self.streams.inject(id, now, text, &mut self.sinks);
    }

    /// Handles a client that has become a rank.
    fn joined(&mut self, id: JobId, rank: Rank) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.run.joined = true;
        let line = format!("{} has joined", job.rank_name(rank.0));
        if self.settings(id).verbose {
            self.print_about(id, &line);
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
            self.print_about(id, &line);
        }
    }

    /// Reports a connection that was closed because of its client's input.
    fn print_closed(&mut self, job: JobId, rank: Option<Rank>, why: impl Display) {
        let rank = self.jobs.get(job).zip(rank).map(|(job, rank)| job.rank_name(rank.0));
        match rank {
            Some(rank) => self.print_about(job, &format!("closed the PMI connection of {rank}: {why}")),
            None if self.settings(job).verbose => {
                self.print_about(job, &format!("closed a connection that was no rank's: {why}"));
            }
            None => {}
        }
    }

    /// Has the last requests of a rank read whose process has ended, before its next output.
    pub(super) fn read_last_requests(&mut self, job: JobId, rank: Rank) -> Result<(), RunError> {
        if let Some(board) = self.core.node() {
            return Ok(board.read_last(job, rank)?);
        }
        // Its connection may not have been accepted yet.
        self.accept(job)?;
        if let Some(driver) = self.core.driver() {
            driver.read_last(job, rank);
        }
        Ok(())
    }

    /// Accepts connections at the port of a job.
    pub(super) fn accept(&mut self, id: JobId) -> Result<(), RunError> {
        let (now, takes_tools) = (self.now(), self.takes_tools());
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let mut admitted = Vec::new();
        let mut failed = None;
        for (at, port) in job.run.ports_mut().enumerate().filter(|(_, port)| port.deadline().is_none()) {
            if let Err(error) = port.socket().accept(&mut admitted) {
                failed = Some((at, error));
            }
        }
        for client in admitted {
            if let Some(driver) = self.core.driver() {
                let may_be_tool = takes_tools && client.is_own();
                driver.make_room(now)?;
                let opened = driver.open_client(client, id, now, &self.poller)?;
                if let (true, Some(conn), Some(job)) = (may_be_tool, opened, self.jobs.get(id)) {
                    driver.hand_over_tool(conn, &job.name);
                }
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
        match self.core.driver() {
            Some(driver) if is_out_of_files(error) => Ok(driver.displace(now)?),
            _ => Ok(false),
        }
    }

    /// Ends the pauses of listening sockets whose time has passed.
    pub(super) fn resume_ports(&mut self, now: u64) -> Result<(), RunError> {
        for job in self.jobs.iter_mut() {
            for port in job.run.ports_mut() {
                port.resume(&self.poller, now)?;
            }
            if let Some(queries) = &mut job.run.queries {
                queries.resume(&self.poller, now)?;
            }
        }
        Ok(())
    }
}
