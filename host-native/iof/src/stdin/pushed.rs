//! Standard input that tools push to ranks: a pipe to each rank, and the bytes that wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hydrant_reactor::{KeyRange, Poller};
use rustix::io::Errno;

use super::pipe::{Left, Pipe};
use crate::Descriptor;

/// Pipes to ranks whose input tools push.
///
/// The caller bounds the bytes that wait: a tool pushes more when its push is [over](PushedInput::take_over).
#[derive(Debug)]
pub struct PushedInput {
    keys: KeyRange,
    /// Ranks that may read, by number of their process.
    readers: BTreeMap<u32, Reader>,
    /// Pushes under way.
    pending: BTreeMap<u64, Pending>,
    over: Vec<(u64, bool)>,
}

#[derive(Debug)]
struct Reader {
    pipe: Pipe,
    queue: VecDeque<Piece>,
}

/// Bytes for a rank. None are the end of its input.
#[derive(Debug)]
struct Piece {
    push: u64,
    bytes: Rc<[u8]>,
    /// Number of bytes that have been written.
    at: usize,
}

/// A push that ranks have not taken.
#[derive(Debug)]
struct Pending {
    /// Number of these ranks.
    ranks: usize,
    /// A rank has taken it.
    is_taken: bool,
}

impl PushedInput {
    /// The input of no ranks.
    pub fn new(keys: KeyRange) -> PushedInput {
        PushedInput { keys, readers: BTreeMap::new(), pending: BTreeMap::new(), over: Vec::new() }
    }

    /// Opens the pipe of a rank with this number of its process. Returns the rank's end.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub fn open(&mut self, process: u32, poller: &Poller) -> Result<OwnedFd, Errno> {
        let (read_end, pipe) = Pipe::open(Descriptor::Pushed(process).key(self.keys), poller)?;
        self.readers.insert(process, Reader { pipe, queue: VecDeque::new() });
        Ok(read_end)
    }

    /// Queues bytes for ranks, behind those of earlier pushes. No bytes end their input. `push` is a number that no other push
    /// under way has.
    pub fn push(&mut self, push: u64, ranks: impl Iterator<Item = u32>, bytes: &[u8], poller: &Poller) {
        let bytes: Rc<[u8]> = bytes.into();
        let mut reading = Vec::new();
        for process in ranks {
            if let Some(reader) = self.readers.get_mut(&process) {
                reader.queue.push_back(Piece { push, bytes: bytes.clone(), at: 0 });
                reading.push(process);
            }
        }
        if reading.is_empty() {
            self.over.push((push, false));
            return;
        }
        self.pending.insert(push, Pending { ranks: reading.len(), is_taken: false });
        reading.into_iter().for_each(|process| self.write(process, poller));
    }

    /// Handles an event of a pipe: there is room, or its rank has closed it.
    pub fn ready(&mut self, process: u32, poller: &Poller) {
        let Some(reader) = self.readers.get_mut(&process) else { return };
        match reader.pipe.ready() {
            Ok(()) => self.write(process, poller),
            Err(Left) => self.close(process..process + 1),
        }
    }

    /// Closes the input of ranks that have ended.
    pub fn close(&mut self, processes: Range<u32>) {
        let ended: Vec<u32> = self.readers.range(processes).map(|(&process, _)| process).collect();
        for reader in ended.iter().filter_map(|process| self.readers.remove(process)).collect::<Vec<_>>() {
            reader.queue.iter().for_each(|piece| self.settle(piece.push, false));
        }
    }

    /// Takes the pushes that are over: all bytes of each have been written to its ranks' pipes, but for ranks that have closed
    /// their input or ended. True if a rank has got all of them.
    pub fn take_over(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.over)
    }

    /// Writes what waits for a rank, as far as there is room.
    fn write(&mut self, process: u32, poller: &Poller) {
        while let Some(reader) = self.readers.get_mut(&process)
            && let Some(piece) = reader.queue.front_mut()
        {
            if piece.bytes.is_empty() {
                let push = piece.push;
                reader.queue.pop_front();
                self.settle(push, true);
                self.close(process..process + 1);
                return;
            }
            match reader.pipe.write(&piece.bytes[piece.at..], poller) {
                Ok(len) => piece.at += len,
                Err(Left) => return self.close(process..process + 1),
            }
            if piece.at < piece.bytes.len() {
                return;
            }
            let push = piece.push;
            reader.queue.pop_front();
            self.settle(push, true);
        }
    }

    /// Notes that a rank has taken a push, or never will.
    fn settle(&mut self, push: u64, is_taken: bool) {
        let Some(pending) = self.pending.get_mut(&push) else { return };
        pending.ranks -= 1;
        pending.is_taken |= is_taken;
        if pending.ranks == 0 {
            self.over.push((push, pending.is_taken));
            self.pending.remove(&push);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &OwnedFd) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 20];
        let len = rustix::io::read(reader, &mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    #[test]
    fn a_push_is_over_when_all_ranks_have_taken_it() {
        let poller = Poller::new().unwrap();
        let mut input = PushedInput::new(KeyRange(0));
        let [quick, slow] = [3, 4].map(|process| input.open(process, &poller).unwrap());
        input.push(1, [3].into_iter(), b"one ", &poller);
        assert_eq!(input.take_over(), [(1, true)]);
        // More than a pipe holds.
        let many = vec![b'x'; 1 << 20];
        input.push(2, [3, 4].into_iter(), &many, &poller);
        input.push(3, [4].into_iter(), b"", &poller);
        let mut all = 0;
        while all < 4 + many.len() {
            all += read(&quick).len();
            input.ready(3, &poller);
        }
        assert_eq!(input.take_over(), [], "a rank has not read it");
        let mut all = 0;
        while all < many.len() {
            all += read(&slow).len();
            input.ready(4, &poller);
        }
        assert_eq!(input.take_over(), [(2, true), (3, true)]);
        assert!(read(&slow).is_empty(), "its input has ended");
        input.push(4, [4].into_iter(), b"late", &poller);
        assert_eq!(input.take_over(), [(4, false)]);
        input.push(5, [3].into_iter(), b"more", &poller);
        assert_eq!((input.take_over(), read(&quick)), (vec![(5, true)], b"more".to_vec()));
    }

    #[test]
    fn ranks_that_end_are_not_waited_for() {
        let poller = Poller::new().unwrap();
        let mut input = PushedInput::new(KeyRange(0));
        let [stays, leaves] = [0, 1].map(|process| input.open(process, &poller).unwrap());
        let many = vec![b'x'; 1 << 20];
        input.push(1, 0..2, &many, &poller);
        input.push(2, 1..2, b"never", &poller);
        drop(leaves);
        input.ready(1, &poller);
        assert_eq!(input.take_over(), [(2, false)]);
        input.close(0..5);
        assert_eq!(input.take_over(), [(1, false)]);
        drop(stays);
        input.push(3, 0..2, b"x", &poller);
        assert_eq!(input.take_over(), [(3, false)], "nobody is left");
    }
}
