//! Which descriptors are ready: epoll, level-triggered.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::RunError;

/// What a descriptor is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Signals have come.
    Signals,
    /// Somebody connects to the PMI port of the job of this number.
    Listener(u32),
    /// Somebody connects to the query socket of the job of this number.
    Queries(u32),
    /// The PMI connection of this number.
    Conn(u32),
    /// The output stream of this number.
    Stream(u32),
    /// The sink of this number takes bytes again.
    Sink(u32),
    /// The terminal has input.
    Terminal,
    /// The connection of this number to the daemon that keeps names.
    Universe(u32),
    /// The board has said something.
    Board,
    /// A host connects to the management port.
    Manage,
    /// The management connection of this number.
    Host(u32),
    /// Rank 0's standard input takes bytes again, or is closed.
    Stdin,
    /// Somebody connects to the port of this number at which the node's children are waited for.
    ClusterPort(u32),
    /// The connection of this number, of which it is not known yet whether it is a child's.
    Stranger(u32),
    /// The link to the node of this number.
    Link(u32),
    /// What starts the daemon of this node takes input, or is closed.
    BootstrapInput(u32),
    /// What starts the daemon of this node has said something.
    BootstrapOutput(u32),
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            Token::Signals => (0, 0),
            Token::Listener(number) => (1, number),
            Token::Conn(number) => (2, number),
            Token::Stream(number) => (3, number),
            Token::Sink(number) => (4, number),
            Token::Terminal => (5, 0),
            Token::Stdin => (6, 0),
            Token::Universe(number) => (7, number),
            Token::Queries(number) => (8, number),
            Token::Board => (9, 0),
            Token::Manage => (10, 0),
            Token::Host(number) => (11, number),
            Token::ClusterPort(number) => (12, number),
            Token::Stranger(number) => (13, number),
            Token::Link(number) => (14, number),
            Token::BootstrapInput(number) => (15, number),
            Token::BootstrapOutput(number) => (16, number),
        };
        kind << 32 | u64::from(number)
    }

    fn decode(data: u64) -> Token {
        let number = data as u32;
        match data >> 32 {
            0 => Token::Signals,
            1 => Token::Listener(number),
            2 => Token::Conn(number),
            3 => Token::Stream(number),
            4 => Token::Sink(number),
            5 => Token::Terminal,
            6 => Token::Stdin,
            7 => Token::Universe(number),
            8 => Token::Queries(number),
            9 => Token::Board,
            10 => Token::Manage,
            11 => Token::Host(number),
            12 => Token::ClusterPort(number),
            13 => Token::Stranger(number),
            14 => Token::Link(number),
            15 => Token::BootstrapInput(number),
            _ => Token::BootstrapOutput(number),
        }
    }
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the other side closed.
    Read,
    /// Room to write, or the other side closed.
    Write,
    /// Something to read, or room to write, or the other side closed.
    ReadWrite,
    /// The other side closed.
    Hangup,
    /// Something new to read; not again for what was there before.
    ReadEdge,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Interest::Hangup => epoll::EventFlags::empty(),
            Interest::ReadEdge => epoll::EventFlags::IN | epoll::EventFlags::ET,
        }
    }
}

/// Descriptors waited for. A closed descriptor leaves by itself.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// Events taken from the system at once.
const BATCH: usize = 256;

impl Poller {
    pub(crate) fn new() -> Result<Poller, RunError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(RunError::system("epoll_create"))?;
        Ok(Poller { epoll, events: Vec::with_capacity(BATCH) })
    }

    /// Waits for `fd` from now on. Fails for kinds of files that are always ready (EPERM).
    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token.encode()), interest.flags())
    }

    /// Waits for something else than before.
    pub(crate) fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token.encode()), interest.flags())
    }

    /// Waits for `fd` no more.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Where it was not waited for, there is nothing to do.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Replaces `tokens` by what is ready, after at most `timeout`; without one, waits for as long as it takes.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        tokens: &mut Vec<Token>,
    ) -> Result<(), RunError> {
        tokens.clear();
        self.events.clear();
        // In whole milliseconds, rounded up so that a deadline has passed on return: all that older kernels know.
        let timeout = timeout.map(|timeout| {
            let millis = timeout.as_nanos().div_ceil(1_000_000).min(60 * 60 * 1000) as i64;
            Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(RunError::system("epoll_wait")(errno)),
        }
        tokens.extend(self.events.iter().map(|event| Token::decode(event.data.u64())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::Signals,
            Token::Listener(3),
            Token::Queries(4),
            Token::Conn(0),
            Token::Conn(u32::MAX),
            Token::Stream(7),
            Token::Sink(1),
            Token::Terminal,
            Token::Stdin,
            Token::Universe(2),
            Token::Board,
            Token::Manage,
            Token::Host(5),
            Token::ClusterPort(1),
            Token::Stranger(63),
            Token::Link(4),
            Token::BootstrapInput(5),
            Token::BootstrapOutput(6),
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
