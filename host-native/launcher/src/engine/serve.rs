//! Between the PMI connections and the core.

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::trace::Closing;
use hydrant_core::wire::decode_spawn;
use hydrant_core::{ConnId, Input, Output, Rank, Time};
use rustix::fd::OwnedFd;

use super::conns::{Received, Sent};
use super::poller::{Interest, Token};
use super::{Engine, JOB};
use crate::error::RunError;

/// How long a client may take to say who it is, in milliseconds.
pub(super) const INTRODUCTION_TIME: u64 = 10_000;
/// How long the port rests when the system has no room for connections, in milliseconds.
const PORT_REST: u64 = 100;

impl Engine<'_, '_> {
    /// Takes in a socket whose other end is, or may become, a rank's.
    pub(super) fn open_conn(&mut self, fd: OwnedFd, rank: Option<u32>) -> Result<(), RunError> {
        let now = self.now();
        if !self.conns.has_room()
            && let Some((oldest, _)) = self.conns.oldest_unnamed()
        {
            self.close_conn(oldest)?;
        }
        let Some(id) = self.conns.open(fd, rank, now) else { return Ok(()) };
        let conn = self.conns.get(id).expect("it was opened just now");
        self.poller.add(conn.fd(), Token::Conn(id), Interest::Read).map_err(RunError::system("epoll"))?;
        let opened = Input::Opened { conn: ConnId(id), job: JOB, rank: rank.map(Rank) };
        self.server.handle(Time(now), opened)?;
        Ok(())
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
                let bytes = &self.buffer[..len];
                let full = len >= MESSAGE_MAX as usize;
                let consumed = self.server.handle(now, Input::Bytes { conn: ConnId(id), bytes, full })?;
                conn.keep(&bytes[consumed.bytes as usize..], consumed.again);
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
        let full = bytes.len() >= MESSAGE_MAX as usize;
        let consumed = self.server.handle(now, Input::Bytes { conn: ConnId(id), bytes: &bytes, full })?;
        conn.keep(&bytes[consumed.bytes as usize..], consumed.again);
        Ok(())
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
                Some(Output::Joined { conn, rank, .. }) => {
                    self.conns.name(conn.0, rank.0);
                    if self.plan.options.verbose {
                        self.sinks.say(&format!("rank {rank} has joined"));
                    }
                }
                Some(Output::Spawn { spawn, protocol, request, .. }) => {
                    let programs = decode_spawn(protocol, request).map_or(0, |spawn| spawn.count());
                    let codes = vec![libc::ENOSYS as u8; programs as usize];
                    let now = Time(self.start.elapsed().as_millis() as u64);
                    self.server.handle(now, Input::Launched { spawn, started: false, codes: &codes })?;
                }
                Some(Output::Names { errand, .. }) => {
                    let now = Time(self.start.elapsed().as_millis() as u64);
                    self.server.handle(now, Input::Named { errand, rc: 14, text: b"no name service" })?;
                }
                Some(Output::Kill { rank, .. }) => self.procs.end_one(rank.0),
                Some(Output::End { cause, message, .. }) => {
                    let message = message.to_owned();
                    self.end(cause, message);
                }
                Some(Output::Late { arrived, size, missing, .. }) => {
                    let seconds = self.plan.options.fence_warning.as_secs_f64();
                    self.sinks.say(&format!(
                        "a fence has been waiting for {seconds} s: {arrived} of {size} ranks have come, \
                         it waits for {missing}"
                    ));
                }
                None => match self.again.pop() {
                    Some(id) => self.hand_in_again(id)?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// The core cannot go on with a connection.
    fn turn_away(&mut self, id: u32, why: Closing) -> Result<(), RunError> {
        let rank = self.conns.get(id).and_then(|conn| conn.rank());
        let reason = match why {
            Closing::Malformed(malformed) => malformed.to_string(),
            Closing::TurnedDown => "its introduction was turned down".to_owned(),
            Closing::JobOver => "the job is over".to_owned(),
        };
        match rank {
            Some(rank) if why != Closing::JobOver => {
                self.sinks.say(&format!("closed the PMI connection of rank {rank}: {reason}"));
            }
            None if self.plan.options.verbose => {
                self.sinks.say(&format!("closed a connection that was no rank's: {reason}"));
            }
            _ => {}
        }
        self.close_conn(id)
    }

    fn close_conn(&mut self, id: u32) -> Result<(), RunError> {
        self.conns.close(id);
        let now = Time(self.now());
        self.server.handle(now, Input::Closed { conn: ConnId(id) })?;
        self.outputs()
    }

    /// Hears out a rank whose process has ended: its last words may be on their way.
    pub(super) fn hear_out(&mut self, rank: u32) -> Result<(), RunError> {
        if self.port.is_some() {
            // It may not even have been let in.
            self.accept()?;
            for id in self.conns.unnamed() {
                while self.read_conn(id)? {}
            }
        }
        let Some(id) = self.conns.of_rank(rank) else { return Ok(()) };
        // Nobody takes a reply that is waiting, and that will be noticed now.
        if self.conns.get(id).is_some_and(|conn| conn.is_blocked()) {
            self.flush_conn(id)?;
        }
        while self.read_conn(id)? {}
        Ok(())
    }

    /// Somebody connects to the port.
    pub(super) fn accept(&mut self) -> Result<(), RunError> {
        let Some(port) = &self.port else { return Ok(()) };
        let mut admitted = Vec::new();
        if let Err(error) = port.accept(&mut admitted) {
            self.sinks.say(&format!("cannot take in connections for a while: {error}"));
            self.poller.remove(port);
            self.port_pause = Some(self.now() + PORT_REST);
        }
        for stream in admitted {
            self.open_conn(stream.into(), None)?;
        }
        Ok(())
    }

    pub(super) fn resume_port(&mut self) -> Result<(), RunError> {
        self.port_pause = None;
        let Some(port) = &self.port else { return Ok(()) };
        self.poller.add(port, Token::Listener, Interest::Read).map_err(RunError::system("epoll"))
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
