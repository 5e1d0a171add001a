//! A link with what two neighbours owe each other on it: signs of life, and room for streams.

use rustix::io::Errno;

use crate::cluster::link::{Channel, Link, LinkError};
use hydrant_reactor::{Error, Interest, Key, Poller, Sent};

/// Bytes of streams that a node may have sent to a neighbour without hearing that they have gone on from there.
pub(super) const WINDOW: u32 = 1 << 20;
/// As many bytes of room are told of at once.
const GRANT: u32 = WINDOW / 4;

/// A link that is in use.
#[derive(Debug)]
pub(super) struct Line {
    link: Link,
    key: Key,
    /// Bytes of streams that the other end has room for; below zero for what was sent nevertheless.
    credit: i64,
    /// Bytes of streams of the other end that have gone on from here, and that it has not been told of.
    owed: u32,
    /// What other neighbours are told of when this one has room again: who, and how many bytes.
    waiting: Vec<(u32, u32)>,
    /// The other end has said that it will be silent for a while.
    hushed: bool,
    /// Room to write is waited for.
    writing: bool,
}

impl Line {
    pub(super) fn new(link: Link, key: Key) -> Line {
        let credit = i64::from(WINDOW);
        Line { link, key, credit, owed: 0, waiting: Vec::new(), hushed: false, writing: false }
    }

    /// Bytes that wait for the socket.
    pub(super) fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Whether the other end has room for more of streams.
    pub(super) fn has_room(&self) -> bool {
        self.credit > 0
    }

    pub(super) fn send(&mut self, now: u64, channel: Channel, message: &[u8]) -> Result<(), LinkError> {
        if channel == Channel::Stream {
            self.credit -= message.len() as i64;
        }
        self.link.send(now, channel, message).map(drop)
    }

    /// Reads once; whether anything was there.
    pub(super) fn receive(
        &mut self,
        now: u64,
        buffer: &mut [u8],
        messages: &mut Vec<(Channel, Vec<u8>)>,
    ) -> Result<bool, LinkError> {
        let any = self.link.receive(now, buffer, |channel, message| messages.push((channel, message)))?;
        self.hushed &= !any;
        Ok(any)
    }

    /// The other end will be silent until it says something.
    pub(super) fn hush(&mut self) {
        self.hushed = true;
    }

    /// `bytes` of the other end's streams have gone on from here.
    pub(super) fn owe(&mut self, bytes: u32) {
        self.owed = self.owed.saturating_add(bytes);
    }

    /// How many bytes the other end is to be told of.
    pub(super) fn take_grant(&mut self) -> Option<u32> {
        (self.owed >= GRANT).then(|| std::mem::take(&mut self.owed))
    }

    /// `from` is told of `bytes` when this line has room again.
    pub(super) fn wait(&mut self, from: u32, bytes: u32) {
        self.waiting.push((from, bytes));
    }

    /// The other end has room for `bytes` more; whom to tell where it had none before.
    pub(super) fn grant(&mut self, bytes: u32) -> Option<Vec<(u32, u32)>> {
        let had_room = self.has_room();
        self.credit = (self.credit + i64::from(bytes)).min(i64::from(WINDOW));
        (!had_room && self.has_room()).then(|| std::mem::take(&mut self.waiting))
    }

    /// Writes what the socket takes, and waits for room where that is not all.
    pub(super) fn flush(&mut self, poller: &Poller) -> Result<(), LinkError> {
        let writing = self.link.flush()? == Sent::Blocked;
        if writing != self.writing {
            let interest = if writing { Interest::ReadWrite } else { Interest::Read };
            poller.modify(self.link.fd(), self.key, interest).map_err(Errno::from)?;
            self.writing = writing;
        }
        Ok(())
    }

    /// Shows a sign of life where one is due.
    pub(super) fn beat(&mut self, now: u64, timeout: u64) -> Result<(), LinkError> {
        if self.next_beat(timeout) <= now {
            self.send(now, Channel::Link, &[])?;
        }
        Ok(())
    }

    /// Whether the other end should have shown a sign of life.
    pub(super) fn is_overdue(&self, now: u64, timeout: u64) -> bool {
        !self.hushed && self.link.heard() + timeout <= now
    }

    pub(super) fn deadline(&self, timeout: u64) -> u64 {
        let overdue = if self.hushed { u64::MAX } else { self.link.heard() + timeout };
        self.next_beat(timeout).min(overdue)
    }

    /// Three may be lost to a busy machine before the fourth is missed.
    fn next_beat(&self, timeout: u64) -> u64 {
        self.link.said() + (timeout / 4).max(1)
    }

    /// Waits for what comes on it.
    pub(super) fn register(&self, poller: &Poller) -> Result<(), Error> {
        poller.modify(self.link.fd(), self.key, Interest::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::link::tests::pair;

    #[test]
    fn room_is_told_of_in_pieces_and_passed_on_when_there_is_some() {
        let mut line = Line::new(pair().0, Key(0));
        line.owe(GRANT - 1);
        assert_eq!(line.take_grant(), None);
        line.owe(1);
        assert_eq!((line.take_grant(), line.take_grant()), (Some(GRANT), None));
        line.send(0, Channel::Control, &[0; 4096]).unwrap();
        line.send(0, Channel::Stream, &vec![0; WINDOW as usize - 1]).unwrap();
        assert!(line.has_room());
        line.send(0, Channel::Stream, &[0; 11]).unwrap();
        assert!(!line.has_room());
        line.wait(7, 11);
        assert_eq!(line.grant(10), None);
        assert_eq!((line.grant(10), line.has_room()), (Some(vec![(7, 11)]), true));
        assert_eq!(line.grant(u32::MAX), None);
        assert_eq!(line.credit, i64::from(WINDOW));
    }

    #[test]
    fn silence_is_noticed_unless_it_was_announced() {
        let (a, mut other) = pair();
        let mut line = Line::new(a, Key(0));
        assert_eq!((line.deadline(1000), line.is_overdue(999, 1000)), (250, false));
        assert!(line.is_overdue(1000, 1000));
        line.hush();
        assert!(!line.is_overdue(5000, 1000));
        other.send(0, Channel::Link, &[]).unwrap();
        other.flush().unwrap();
        let mut buffer = vec![0; crate::cluster::link::BUFFER];
        assert!(line.receive(6000, &mut buffer, &mut Vec::new()).unwrap());
        assert!(!line.is_overdue(6999, 1000) && line.is_overdue(7000, 1000));
        line.beat(7000, 1000).unwrap();
        assert!(line.queued() > 0);
    }
}
