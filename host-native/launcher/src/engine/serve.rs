//! Between the PMI connections and the core.

use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Input, JobId, Output, Rank, Time};
use rustix::fd::OwnedFd;

use super::Engine;
use super::conns::{Received, Sent};
use super::poller::{Interest, Token};
use crate::error::RunError;
use crate::launch::Asked;
use crate::universe::Request;

/// How long a client may take to say who it is, in milliseconds.
pub(super) const INTRODUCTION_TIME: u64 = 10_000;
/// How long the port rests when the system has no room for connections, in milliseconds.
const PORT_REST: u64 = 100;

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
        self.poller.add(conn.fd(), Token::Conn(id), Interest::Read).map_err(RunError::system("epoll"))?;
        let opened = Input::Opened { conn: ConnId(id), job, rank: rank.map(Rank) };
        self.server.handle(Time(now), opened)?;
        Ok(Some(id))
    }

    /// A connection can be read or written to.
    pub(super) fn conn_ready(&mut self, id: u32) -> Result<(), RunError> {
        match self.conns.get(id) {
            None => Ok(()),
            Some(conn) if conn.is_blocked() => self.flush_conn(id),
            Some(_) => self.read_conn(id).map(|_| ()),
        }
    }

    /// Reads once and answers at once; whether there may be more.
    fn read_conn(&mut self, id: u32) -> Result<bool, RunError> {
        let now = Time(self.now());
        let Some(conn) = self.conns.get(id).filter(|conn| !conn.is_blocked()) else { return Ok(false) };
        match conn.receive(&mut self.buffer) {
            Received::Bytes(len) => {
                conn.hand_in(&mut self.server, now, id, &self.buffer[..len])?;
                self.outputs()?;
                Ok(true)
            }
            Received::Nothing => Ok(false),
            Received::End => self.close_conn(id).map(|()| false),
        }
    }

    /// Hands in again what the core left until its replies were taken.
    fn hand_in_again(&mut self, id: u32) -> Result<(), RunError> {
        let now = Time(self.now());
        let Some(conn) = self.conns.get(id) else { return Ok(()) };
        let Some(bytes) = conn.take_again() else { return Ok(()) };
        Ok(conn.hand_in(&mut self.server, now, id, &bytes)?)
    }

    fn flush_conn(&mut self, id: u32) -> Result<(), RunError> {
        let now = Time(self.now());
        let Some(conn) = self.conns.get(id) else { return Ok(()) };
        if conn.flush() == Sent::All {
            self.poller
                .modify(conn.fd(), Token::Conn(id), Interest::Read)
                .map_err(RunError::system("epoll"))?;
            self.server.handle(now, Input::Writable { conn: ConnId(id) })?;
            self.again.push(id);
            self.outputs()?;
        }
        Ok(())
    }

    /// Does what the core says until it says nothing more.
    pub(super) fn outputs(&mut self) -> Result<(), RunError> {
        loop {
            match self.server.poll(&mut self.reply[..]) {
                Some(Output::Bytes { conn, bytes }) => {
                    let Some(to) = self.conns.get(conn.0) else { continue };
                    if to.send(bytes) == Sent::All {
                        if to.has_more() {
                            self.again.push(conn.0);
                        }
                        continue;
                    }
                    self.poller
                        .modify(to.fd(), Token::Conn(conn.0), Interest::Write)
                        .map_err(RunError::system("epoll"))?;
                    let now = Time(self.start.elapsed().as_millis() as u64);
                    self.server.handle(now, Input::Blocked { conn })?;
                }
                Some(Output::Close { conn, why }) => self.turn_away(conn.0, why)?,
                Some(Output::Joined { conn, job, rank }) => {
                    let Some(job) = self.jobs.get(job) else { continue };
                    self.conns.name(conn.0, job.first + rank.0);
                    if self.plan.options.verbose {
                        let line = format!("{} has joined", job.rank_name(rank.0));
                        self.sinks.say(&line);
                    }
                }
                Some(Output::Spawn { spawn, job, rank, protocol, request }) => {
                    let asked = Asked::read(protocol, request);
                    self.spawn(spawn, (job, rank), &asked)?;
                }
                Some(Output::Names { errand, job, rank, protocol, request }) => {
                    let body = request.to_vec();
                    let wait = self.plan.options.lookup_wait.as_millis().try_into().unwrap_or(u32::MAX);
                    self.ask_universe(Request { errand, job, rank, protocol, body, wait });
                }
                Some(Output::Kill { job, rank, code, message }) => {
                    let message = message.to_owned();
                    self.end_one(job, rank.0, code, &message);
                }
                Some(Output::End { job, cause, message }) => {
                    let message = message.to_owned();
                    self.end(job, cause, message);
                }
                Some(Output::Late { job, arrived, size, missing }) => {
                    let seconds = self.plan.options.fence_warning.as_secs_f64();
                    let of_job = match self.jobs.get(job).map_or(0, |job| job.ordinal) {
                        0 => String::new(),
                        ordinal => format!(" of spawned job {ordinal}"),
                    };
                    self.sinks.say(&format!(
                        "a fence{of_job} has been waiting for {seconds} s: {arrived} of {size} ranks have come, \
                         it waits for {missing}"
                    ));
                }
                None => match self.again.pop() {
                    Some(id) => self.hand_in_again(id)?,
                    None if self.pass_name()? => {}
                    None => return Ok(()),
                },
            }
        }
    }

    /// The core cannot go on with a connection.
    fn turn_away(&mut self, id: u32, why: Closing) -> Result<(), RunError> {
        let process = self.conns.get(id).and_then(|conn| conn.process());
        let rank = process.and_then(|process| self.jobs.of(process)).map(|(job, rank)| job.rank_name(rank));
        match rank {
            Some(rank) if why != Closing::JobOver => {
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
        self.server.handle(now, Input::Closed { conn: ConnId(id) })?;
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
            self.flush_conn(id)?;
        }
        while self.read_conn(id)? {}
        Ok(())
    }

    /// Somebody connects to the port of a job.
    pub(super) fn accept(&mut self, id: JobId) -> Result<(), RunError> {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let Some(port) = &job.port else { return Ok(()) };
        let mut admitted = Vec::new();
        if let Err(error) = port.accept(&mut admitted) {
            self.sinks.say(&format!("cannot take in connections for a while: {error}"));
            self.poller.remove(port);
            job.port_pause = Some(now + PORT_REST);
        }
        for stream in admitted {
            self.open_conn(stream.into(), id, None)?;
        }
        Ok(())
    }

    /// Listens on the ports again that have rested.
    pub(super) fn resume_ports(&mut self, now: u64) -> Result<(), RunError> {
        for job in self.jobs.iter_mut().filter(|job| job.port_pause.is_some_and(|at| at <= now)) {
            job.port_pause = None;
            let Some(port) = &job.port else { continue };
            let token = Token::Listener(job.id.0);
            self.poller.add(port, token, Interest::Read).map_err(RunError::system("epoll"))?;
        }
        Ok(())
    }

    /// Closes connections that did not say in time who they are.
    pub(super) fn drop_strangers(&mut self, now: u64) -> Result<(), RunError> {
        while let Some((id, opened)) = self.conns.oldest_unnamed()
            && opened + INTRODUCTION_TIME <= now
        {
            self.close_conn(id)?;
        }
        Ok(())
    }
}
