//! Between the PMI connections and the core.

use std::fmt::Display;

use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Input, JobId, Output, Rank, Time};
use hydrant_reactor::Interest;
use rustix::fd::OwnedFd;

use super::Engine;
use super::conns::{HANDSHAKE_TIMEOUT, OVERRUN, Received};
use super::open::ALONE;
use super::report::{Blame, Why};
use super::token::Token;
use crate::control::Report;
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Takes in a socket whose other end is, or may become, a rank's; its number, where there is room.
    pub(super) fn open_conn(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        rank: Option<u32>,
    ) -> Result<Option<u32>, RunError> {
        let now = self.now();
        if !self.conns.has_room()
            && let Some((oldest, _)) = self.conns.oldest_unnamed()
        {
            self.close_conn(oldest)?;
        }
        let process = rank.map(|rank| self.jobs[job].first + rank);
        let Some(id) = self.conns.open(fd, job, process, now) else { return Ok(None) };
        let conn = self.conns.get(id).expect("it was opened just now");
        self.poller.add(conn.fd(), Token::Conn(id), Interest::Read)?;
        let opened = Input::Opened { conn: ConnId(id), job, rank: rank.map(Rank) };
        self.core.handle(Time(now), opened)?;
        Ok(Some(id))
    }

    /// A connection can be read or written to.
    pub(super) fn conn_ready(&mut self, id: u32) -> Result<(), RunError> {
        let at = (&self.poller, Time(self.now()));
        let received = self.conns.ready(id, &mut *self.core, at, &mut self.buffer)?;
        self.received(id, received).map(|_| ())
    }

    /// Reads once and answers at once; whether there may be more.
    fn read_conn(&mut self, id: u32) -> Result<bool, RunError> {
        let now = Time(self.now());
        let received = self.conns.read(id, &mut *self.core, now, &mut self.buffer)?;
        self.received(id, received)
    }

    fn received(&mut self, id: u32, received: Received) -> Result<bool, RunError> {
        match received {
            Received::End => self.close_conn(id)?,
            Received::Overrun => self.turn_away(id, OVERRUN)?,
            Received::Bytes(_) | Received::Nothing => self.outputs()?,
        }
        Ok(matches!(received, Received::Bytes(_)))
    }

    /// Does what the core says until it says nothing more.
    pub(super) fn outputs(&mut self) -> Result<(), RunError> {
        loop {
            let now = Time(self.clock.now());
            match self.core.poll(&mut self.reply[..])? {
                Some(Output::Bytes { conn, bytes }) => {
                    self.conns.deliver(conn, bytes, &mut *self.core, (&self.poller, now))?;
                }
                Some(Output::Close { conn, why: Closing::JobOver }) => self.close_conn(conn.0)?,
                Some(Output::Close { conn, why }) => self.turn_away(conn.0, why)?,
                Some(Output::Joined { conn, job, rank }) => {
                    let Some(job) = self.jobs.get(job) else { continue };
                    // A board's connections are its own.
                    if self.conns.get(conn.0).is_some() {
                        self.conns.name(conn.0, job.first + rank.0);
                    }
                    if self.plan.options.verbose {
                        let line = format!("{} has joined", job.rank_name(rank.0));
                        self.sinks.say(&line);
                    }
                }
                Some(Output::Spawn { spawn, job, rank, protocol, request }) => {
                    let request = request.to_vec();
                    if self.is_daemon() {
                        self.report_of(job, &Report::Spawn { upcall: spawn, job, rank, protocol, request });
                    } else {
                        self.spawn((ALONE, spawn), (job, rank), (protocol, &request))?;
                    }
                }
                Some(Output::Upcall { upcall, job, rank, protocol, request }) => {
                    let request = request.to_vec();
                    if self.is_daemon() {
                        self.report_of(job, &Report::Names { upcall, job, rank, protocol, request });
                    } else {
                        self.ask_universe(upcall, (job, rank), (protocol, request));
                    }
                }
                Some(Output::KillRank { job, rank, code, message }) => {
                    let message = message.to_owned();
                    self.end_one(job, rank.0, code, &message);
                }
                Some(Output::AbortJob { job, cause, message }) => {
                    let message = message.to_owned();
                    if self.is_daemon() {
                        self.report_of(job, &Report::End { job, cause, message });
                    } else {
                        self.end(job, Why::Rank(Blame { cause, message }));
                    }
                }
                Some(Output::StalledFence { job, missing, .. }) if self.nodes.is_some() => {
                    let missing = missing.to_owned();
                    self.report_of(job, &Report::Late { job, missing });
                }
                Some(Output::StalledFence { job, arrived, size, missing }) => {
                    let text = format!("{arrived} of {size} ranks have come, it waits for {missing}");
                    self.say_late(job, &text);
                }
                Some(Output::Peer { node, bytes }) => {
                    let Some(nodes) = &mut self.nodes else { continue };
                    nodes.pass_on(node, bytes, &mut *self.core, now)?;
                }
                None => {
                    let more = self.conns.hand_in_again(&mut *self.core, now)? || self.pass_name()?;
                    if !more && !self.show_board() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A fence waits for longer than the user wants.
    pub(super) fn say_late(&mut self, job: JobId, what: &str) {
        let seconds = self.plan.options.fence_warning.as_secs_f64();
        let of_job = match self.jobs.get(job).map_or(0, |job| job.ordinal) {
            0 => String::new(),
            ordinal => format!(" of spawned job {ordinal}"),
        };
        self.sinks.say(&format!("a fence{of_job} has been waiting for {seconds} s: {what}"));
    }

    /// A connection cannot go on, for what its client said.
    fn turn_away(&mut self, id: u32, why: impl Display) -> Result<(), RunError> {
        let process = self.conns.get(id).and_then(|conn| conn.process());
        let rank = process.and_then(|process| self.jobs.of(process)).map(|(job, rank)| job.rank_name(rank));
        match rank {
            Some(rank) => {
                self.sinks.say(&format!("closed the PMI connection of {rank}: {why}"));
            }
            None if self.plan.options.verbose => {
                self.sinks.say(&format!("closed a connection that was no rank's: {why}"));
            }
            _ => {}
        }
        self.close_conn(id)
    }

    pub(super) fn close_conn(&mut self, id: u32) -> Result<(), RunError> {
        self.conns.close(id);
        let now = Time(self.now());
        self.core.handle(now, Input::Closed { conn: ConnId(id) })?;
        self.outputs()
    }

    /// Hears out a rank whose process has ended: its last words may be on their way.
    pub(super) fn hear_out(&mut self, job: JobId, process: u32) -> Result<(), RunError> {
        if self.jobs[job].port.is_some() {
            // It may not even have been let in.
            self.accept(job)?;
            for id in self.conns.unnamed(job) {
                while self.read_conn(id)? {}
            }
        }
        let Some(id) = self.conns.of_process(process) else { return Ok(()) };
        // Nobody takes a reply that is waiting, and that will be noticed now.
        if self.conns.get(id).is_some_and(|conn| conn.is_blocked()) {
            let at = (&self.poller, Time(self.now()));
            self.conns.write_on(id, &mut *self.core, at)?;
            self.outputs()?;
        }
        while self.read_conn(id)? {}
        Ok(())
    }

    /// Somebody connects to the port of a job.
    pub(super) fn accept(&mut self, id: JobId) -> Result<(), RunError> {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let Some(port) = &mut job.port else { return Ok(()) };
        let mut admitted = Vec::new();
        if let Err(error) = port.socket().accept(&mut admitted) {
            self.sinks.say(&format!("cannot take in connections for a while: {error}"));
            port.pause(&self.poller, now);
        }
        for stream in admitted {
            self.open_conn(stream.into(), id, None)?;
        }
        Ok(())
    }

    /// Listens on the ports again that have rested.
    pub(super) fn resume_ports(&mut self, now: u64) -> Result<(), RunError> {
        let mut ports = self.jobs.iter_mut().filter_map(|job| job.port.as_mut());
        Ok(ports.try_for_each(|port| port.resume(&self.poller, now))?)
    }

    /// Closes connections that did not say in time who they are.
    pub(super) fn drop_strangers(&mut self, now: u64) -> Result<(), RunError> {
        while let Some((id, opened)) = self.conns.oldest_unnamed()
            && opened + HANDSHAKE_TIMEOUT <= now
        {
            self.close_conn(id)?;
        }
        Ok(())
    }
}
