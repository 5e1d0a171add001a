//! Buffered output that never blocks the event loop.
//!
//! Standard output and error are shared with other processes, which do not expect `O_NONBLOCK`. A pipe or terminal is
//! therefore opened once more, which gives a description that only this process has. A socket is written to with
//! `MSG_DONTWAIT`. A regular file never blocks. Where a second description is not to be had (a terminal of another user,
//! FreeBSD, macOS), a small piece is written at a time, after the system has reported room.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::termios::isatty;

use crate::{Interest, Key, NO_SIGPIPE, Poller, sys};

/// From this many pending bytes on a writer is full.
const HIGH_WATER: usize = 256 * 1024;
/// Bytes written at once to a blocking descriptor that has room: a pipe then takes at least a page, a terminal less.
const POLLED_CHUNK: usize = 256;

/// Buffered output to one descriptor.
#[derive(Debug)]
pub struct Writer {
    /// Missing while the writer is closed.
    target: Option<OwnedFd>,
    method: Method,
    terminal: bool,
    /// Pending from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// The poller reports room for more.
    watched: bool,
    state: WriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// `write`, which never blocks on this descriptor.
    Write,
    /// `send`, for a socket.
    Send,
    /// `write` after `poll`, for a blocking descriptor.
    Polled,
}

/// State of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// It does.
    Open,
    /// The reader has closed its end.
    Closed,
    /// Writing failed for another reason, and pending bytes are lost.
    Failed(Errno),
}

impl Writer {
    /// Wraps a descriptor that other processes may share. Its flags stay as they are.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn shared(fd: BorrowedFd<'_>) -> io::Result<Writer> {
        let terminal = isatty(fd);
        let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
        // Above standard error, and closed on exec.
        let copy = || rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let reopened_or_copy = || {
            sys::reopen(fd)
                .map_or_else(|_| Ok((copy()?, Method::Polled)), |own| Ok::<_, Errno>((own, Method::Write)))
        };
        let (target, method) = match kind {
            FileType::Socket => (copy()?, Method::Send),
            FileType::Fifo => reopened_or_copy()?,
            _ if terminal => reopened_or_copy()?,
            _ => (copy()?, Method::Write),
        };
        Ok(Writer { target: Some(target), method, terminal, ..Writer::closed() })
    }

    /// A writer without a descriptor.
    pub fn closed() -> Writer {
        Writer {
            target: None,
            method: Method::Write,
            terminal: false,
            buffer: Vec::new(),
            start: 0,
            watched: false,
            state: WriterState::Open,
        }
    }

    /// Writes to `fd` from now on, which must not block.
    pub fn open(&mut self, fd: OwnedFd) {
        self.target = Some(fd);
    }

    /// Closes the descriptor.
    pub fn close(&mut self) {
        self.target = None;
    }

    /// Returns whether the writer has a descriptor.
    pub fn is_open(&self) -> bool {
        self.target.is_some()
    }

    /// Returns whether the descriptor is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns whether no bytes are pending.
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    /// Number of pending bytes.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Returns whether 256 KiB or more are pending.
    pub fn is_full(&self) -> bool {
        self.pending() >= HIGH_WATER
    }

    /// Returns whether bytes are accepted.
    pub fn state(&self) -> WriterState {
        self.state
    }

    /// Adds bytes. A writer that is not open drops them. The capacity is the caller's to check, see
    /// [`is_full`](Writer::is_full).
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state == WriterState::Open {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Writes the bytes that the descriptor accepts. While bytes are pending, `poller` reports `key` when there is
    /// room.
    pub fn flush(&mut self, key: impl Into<Key>, poller: &Poller) {
        self.write();
        let pending = !self.is_empty();
        if pending == self.watched {
            return;
        }
        self.watched = pending;
        match &self.target {
            Some(target) if !pending => poller.remove(target),
            Some(target) => {
                if let Err(error) = poller.add(target, key, Interest::Write) {
                    self.fail(WriterState::Failed(error.into()));
                }
            }
            None => {}
        }
    }

    /// Blocks until all pending bytes are written or `timeout` has passed. Returns whether they are written.
    pub fn drain(&mut self, timeout: Duration) -> bool {
        let start = Instant::now();
        self.write();
        while let Some(target) = self.target.as_ref().filter(|_| !self.is_empty()) {
            if !has_room(target.as_fd(), timeout.saturating_sub(start.elapsed())) {
                return false;
            }
            self.write();
        }
        true
    }

    fn fail(&mut self, state: WriterState) {
        self.state = state;
        self.buffer = Vec::new();
        self.start = 0;
    }

    fn write(&mut self) {
        while let Some(target) = self.target.as_ref().filter(|_| self.start < self.buffer.len()) {
            let bytes = &self.buffer[self.start..];
            let written = match self.method {
                Method::Write => rustix::io::write(target, bytes),
                Method::Send => send(target, bytes, SendFlags::DONTWAIT | NO_SIGPIPE),
                Method::Polled if has_room(target.as_fd(), Duration::ZERO) => {
                    rustix::io::write(target, &bytes[..bytes.len().min(POLLED_CHUNK)])
                }
                Method::Polled => Err(Errno::AGAIN),
            };
            match written {
                Ok(len) => self.start += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE | Errno::CONNRESET) => return self.fail(WriterState::Closed),
                Err(errno) => return self.fail(WriterState::Failed(errno)),
            }
        }
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            // Memory of a burst is given back.
            self.buffer.shrink_to(HIGH_WATER);
        } else if self.start >= HIGH_WATER {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

/// Returns whether the descriptor has room within `timeout`. An error or hangup counts as room, because the next write
/// reports it.
pub fn has_room(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    Timespec::try_from(timeout)
        .is_ok_and(|timeout| poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use super::*;

    #[test]
    fn a_slow_reader_fills_the_writer_and_loses_nothing() {
        let mut poller = Poller::new().unwrap();
        let (mut read, write) = pipe().unwrap();
        let mut writer = Writer::shared(write.as_fd()).unwrap();
        let flags = rustix::fs::fcntl_getfl(&write).unwrap();
        let mut sent = 0;
        while !writer.is_full() {
            writer.push(&[b'x'; 4096]);
            sent += 4096;
            writer.flush(Key(3), &poller);
        }
        assert!(!writer.drain(Duration::ZERO));
        assert_eq!(rustix::fs::fcntl_getfl(&write).unwrap(), flags, "the shared description is unchanged");
        let (mut keys, mut received, mut buffer) = (Vec::new(), 0, vec![0; 65536]);
        while !writer.is_empty() {
            received += read.read(&mut buffer).unwrap();
            poller.wait(None, &mut keys).unwrap();
            assert_eq!(keys, [Key(3)]);
            writer.flush(Key(3), &poller);
        }
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty(), "nothing is pending, so nothing is watched");
        drop((writer, write));
        received += io::copy(&mut read, &mut io::sink()).unwrap() as usize;
        assert_eq!(received, sent);
    }

    #[test]
    fn a_reader_that_leaves_closes_the_writer() {
        let poller = Poller::new().unwrap();
        let (read, write) = pipe().unwrap();
        let mut writer = Writer::shared(write.as_fd()).unwrap();
        drop(read);
        writer.push(b"lost");
        writer.flush(Key(0), &poller);
        assert_eq!(writer.state(), WriterState::Closed);
        writer.push(b"dropped");
        assert!(writer.is_empty() && writer.drain(Duration::ZERO));
    }
}
