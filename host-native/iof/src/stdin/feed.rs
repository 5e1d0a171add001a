//! Pipes to the ranks that read standard input.

use std::os::fd::OwnedFd;

use hydrant_reactor::{KeyRange, Poller};
use rustix::io::Errno;

use super::pipe::{Left, Pipe};
use crate::Descriptor;

/// Bytes that a rank may be behind the input, beside those in its pipe.
pub(super) const BEHIND_MAX: usize = 256 * 1024;

/// From one input to the ranks that read it. Each of them gets every byte.
#[derive(Debug)]
pub(super) struct Feed {
    keys: KeyRange,
    readers: Vec<Reader>,
    /// The input from position `base` on.
    buffer: Vec<u8>,
    base: u64,
    /// Position that all readers have reached.
    reached: u64,
    /// No more input follows.
    ended: bool,
    /// A reader was closed by its rank.
    left: bool,
}

#[derive(Debug)]
struct Reader {
    rank: u32,
    state: State,
    /// Position of the next byte to write.
    at: u64,
}

#[derive(Debug)]
enum State {
    /// The rank has not been started.
    Expected,
    /// The rank may read.
    Open(Pipe),
    /// The rank has closed its input, or has all of it.
    Closed,
}

impl Feed {
    /// The feed of ranks that will be started.
    pub(super) fn new(ranks: impl Iterator<Item = u32>, keys: KeyRange) -> Feed {
        let readers = ranks.map(|rank| Reader { rank, state: State::Expected, at: 0 }).collect();
        Feed { keys, readers, buffer: Vec::new(), base: 0, reached: 0, ended: false, left: false }
    }

    /// Opens the pipe of a rank. Returns the rank's end, `None` for ranks that do not read.
    pub(super) fn open(&mut self, rank: u32, poller: &Poller) -> Result<Option<OwnedFd>, Errno> {
        let Some(index) = self.readers.iter().position(|reader| reader.rank == rank) else { return Ok(None) };
        let (read_end, pipe) = Pipe::open(Descriptor::Reader(index as u32).key(self.keys), poller)?;
        self.readers[index].state = State::Open(pipe);
        self.write(index, poller);
        self.settle();
        Ok(Some(read_end))
    }

    /// Appends bytes. An empty slice marks the end.
    pub(super) fn push(&mut self, bytes: &[u8], poller: &Poller) {
        self.ended |= bytes.is_empty();
        self.buffer.extend_from_slice(bytes);
        for index in 0..self.readers.len() {
            self.write(index, poller);
        }
        self.settle();
    }

    /// Handles an event of a pipe: room, or its rank has closed it.
    pub(super) fn ready(&mut self, index: usize, poller: &Poller) {
        let Some(reader) = self.readers.get_mut(index) else { return };
        let State::Open(pipe) = &mut reader.state else { return };
        if pipe.ready() == Err(Left) {
            reader.state = State::Closed;
            self.left = true;
        }
        self.write(index, poller);
        self.settle();
    }

    /// Number of bytes that some rank has not taken.
    pub(super) fn pending(&self) -> usize {
        (self.end() - self.reached) as usize
    }

    /// Position that all readers have reached.
    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    /// Whether every rank has closed its input or has all of it.
    pub(super) fn is_closed(&self) -> bool {
        self.readers.iter().all(|reader| matches!(reader.state, State::Closed))
    }

    /// Whether it is closed, and ranks closed their input before they had all of it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.left && self.is_closed()
    }

    /// Ranks that are furthest behind.
    pub(super) fn slowest(&self) -> impl Iterator<Item = u32> {
        let is_open = |reader: &&Reader| !matches!(reader.state, State::Closed);
        self.readers
            .iter()
            .filter(is_open)
            .filter(|reader| reader.at == self.reached)
            .map(|reader| reader.rank)
    }

    fn end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Writes to a pipe with room.
    fn write(&mut self, index: usize, poller: &Poller) {
        let end = self.end();
        let reader = &mut self.readers[index];
        let State::Open(pipe) = &mut reader.state else { return };
        match pipe.write(&self.buffer[(reader.at - self.base) as usize..], poller) {
            Ok(len) => reader.at += len as u64,
            Err(Left) => {
                reader.state = State::Closed;
                self.left = true;
                return;
            }
        }
        if self.ended && reader.at == end {
            reader.state = State::Closed;
        }
    }

    /// Drops bytes that all ranks have taken. The rest is moved only when much has been taken.
    fn settle(&mut self) {
        let open = self.readers.iter().filter(|reader| !matches!(reader.state, State::Closed));
        self.reached = open.map(|reader| reader.at).min().unwrap_or(self.end());
        let taken = (self.reached - self.base) as usize;
        if taken == self.buffer.len() || taken >= BEHIND_MAX {
            self.buffer.drain(..taken);
            self.base = self.reached;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(from: u64, len: usize) -> Vec<u8> {
        (from..from + len as u64).map(|at| (at % 251) as u8).collect()
    }

    fn read(reader: &OwnedFd, most: usize) -> Vec<u8> {
        let mut buffer = vec![0; most];
        let len = rustix::io::read(reader, &mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    #[test]
    fn each_rank_gets_every_byte_and_the_end() {
        let poller = Poller::new().unwrap();
        let mut feed = Feed::new([1, 2].into_iter(), KeyRange(0));
        assert!(feed.open(0, &poller).unwrap().is_none());
        let early = feed.open(1, &poller).unwrap().unwrap();
        feed.push(b"one ", &poller);
        assert_eq!(feed.pending(), 4, "rank 2 has not been started");
        let late = feed.open(2, &poller).unwrap().unwrap();
        assert_eq!(feed.pending(), 0);
        feed.push(b"two", &poller);
        feed.push(b"", &poller);
        for reader in [early, late] {
            assert_eq!(read(&reader, 64), b"one two");
            assert!(read(&reader, 64).is_empty());
        }
        assert!(feed.is_closed() && !feed.is_abandoned());
    }

    #[test]
    fn a_rank_that_closes_its_input_is_not_waited_for() {
        let poller = Poller::new().unwrap();
        let mut feed = Feed::new(0..2, KeyRange(0));
        let [stays, leaves] = [0, 1].map(|rank| feed.open(rank, &poller).unwrap().unwrap());
        feed.push(&pattern(0, BEHIND_MAX), &poller);
        while feed.slowest().eq([0, 1]) {
            read(&stays, 4096);
            feed.ready(0, &poller);
        }
        assert!(feed.slowest().eq([1]) && feed.pending() > 0);
        let before = feed.reached();
        drop(leaves);
        feed.ready(1, &poller);
        assert!(feed.reached() > before && !feed.is_closed());
        drop(stays);
        feed.ready(0, &poller);
        assert!(feed.is_abandoned());
        assert_eq!(feed.pending(), 0);
    }

    /// A rank that never empties its input costs at most the memory of what it may be behind.
    #[test]
    fn input_that_was_passed_on_is_not_kept() {
        let poller = Poller::new().unwrap();
        let mut feed = Feed::new([0].into_iter(), KeyRange(0));
        let reader = feed.open(0, &poller).unwrap().unwrap();
        let (mut sent, mut taken) = (0, 0);
        while sent < 16 * BEHIND_MAX as u64 {
            let room = BEHIND_MAX - feed.pending();
            feed.push(&pattern(sent, room), &poller);
            sent += room as u64;
            assert!(feed.buffer.len() <= 3 * BEHIND_MAX, "{} bytes", feed.buffer.len());
            let bytes = read(&reader, 4096);
            assert_eq!(bytes, pattern(taken, bytes.len()));
            taken += bytes.len() as u64;
            feed.ready(0, &poller);
            assert!(feed.pending() > 0, "some of it waits at any time");
        }
    }
}
