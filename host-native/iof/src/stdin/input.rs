//! The launcher's standard input, read without blocking.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::{isatty, tcgetpgrp};
use std::os::fd::AsFd;

use hydrant_reactor::file::empty_input;
use hydrant_reactor::process::own_group;
use hydrant_reactor::{Interest, KeyRange, Poller};

use crate::Descriptor;

/// Bytes to read at once from a terminal, and from anything else.
const LINE: usize = 4096;
const PIECE: usize = 32 * 1024;

/// Interval at which the launcher checks for the foreground while input is pending, in milliseconds. A shell sends no
/// signal to a job that was not stopped.
const LOOK_AGAIN: u64 = 200;

/// The launcher's standard input.
#[derive(Debug)]
pub(super) struct Input {
    keys: KeyRange,
    kind: Kind,
    /// The poller reports more input.
    watched: bool,
    ended: bool,
    look_again: Option<u64>,
}

/// Kind of input, which determines how more input is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Terminal,
    Stream,
    /// A regular file, always readable.
    File,
}

impl Input {
    /// The input of this process. The poller watches it when it is [wanted](Input::watch).
    pub(super) fn new(keys: KeyRange) -> Input {
        let kind = if isatty(stdin()) { Kind::Terminal } else { Kind::Stream };
        Input { keys, kind, watched: false, ended: false, look_again: None }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.kind == Kind::Terminal
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads at most `most` bytes. Returns `None` if there are none yet, and an empty piece at the end.
    pub(super) fn read(&mut self, most: usize, now: u64) -> Option<Vec<u8>> {
        self.look_again = None;
        if self.ended {
            return None;
        }
        let mut piece = Vec::new();
        let most = most.min(if self.is_terminal() { LINE } else { PIECE });
        match read_input(&mut piece, most) {
            Ok(len) => self.ended = len == 0,
            Err(NoInput::Yet) => return None,
            Err(NoInput::Background) => {
                self.look_again = Some(now + LOOK_AGAIN);
                return None;
            }
            Err(NoInput::Lost) => self.ended = true,
        }
        Some(piece)
    }

    /// Watches for more input, or does not.
    pub(super) fn watch(&mut self, wanted: bool, poller: &Poller) {
        let wanted = wanted && !self.ended;
        if wanted == self.watched || self.kind == Kind::File {
            return;
        }
        self.watched = wanted;
        // In the background the terminal's input belongs to another job and would be reported without end. Edge
        // triggering reports new input only.
        let interest = if self.is_terminal() { Interest::ReadEdge } else { Interest::Read };
        match wanted {
            false => poller.remove(stdin()),
            true if poller.add(stdin(), Descriptor::Stdin.key(self.keys), interest).is_err() => {
                self.kind = Kind::File
            }
            true => {}
        }
    }

    /// Returns the time of the next read that the poller does not report, if input is `wanted`.
    pub(super) fn deadline(&self, wanted: bool) -> Option<u64> {
        match self.kind {
            Kind::File if wanted && !self.ended => Some(0),
            _ => self.look_again,
        }
    }

    /// Closes the input, whose readers have all closed theirs. A writer notices.
    pub(super) fn close(&mut self, poller: &Poller) -> Result<(), Errno> {
        self.watch(false, poller);
        if std::mem::replace(&mut self.ended, true) || self.is_terminal() {
            return Ok(());
        }
        close_stdin()
    }
}

/// Replaces standard input by an empty one.
pub(super) fn close_stdin() -> Result<(), Errno> {
    dup2_stdin(empty_input().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?)
}

/// Reason why no input was read.
#[derive(Debug)]
pub(super) enum NoInput {
    /// None is available.
    Yet,
    /// The input belongs to the terminal's foreground group.
    Background,
    /// The input is lost.
    Lost,
}

/// Replaces `buffer` by at most `most` bytes of input. Does not block, and does not stop the process.
fn read_input(buffer: &mut Vec<u8>, most: usize) -> Result<usize, NoInput> {
    if ready(stdin(), PollFlags::IN)?.is_empty() {
        return Err(NoInput::Yet);
    }
    if !foreground() {
        return Err(NoInput::Background);
    }
    buffer.resize(most, 0);
    let read = rustix::io::read(stdin(), &mut *buffer);
    buffer.truncate(read.unwrap_or(0));
    match read {
        Ok(len) => Ok(len),
        Err(Errno::AGAIN | Errno::INTR) => Err(NoInput::Yet),
        // The system returns EIO in the background. The launcher may have changed to the background after the check,
        // and may be back already. POLLHUP marks a terminal that has hung up.
        Err(Errno::IO)
            if tcgetpgrp(stdin()).is_ok()
                && !ready(stdin(), PollFlags::empty())?.contains(PollFlags::HUP) =>
        {
            Err(NoInput::Background)
        }
        Err(_) => Err(NoInput::Lost),
    }
}

/// Returns the ready events. Fails if the input is lost.
pub(super) fn ready(fd: impl AsFd, events: PollFlags) -> Result<PollFlags, NoInput> {
    let mut fds = [PollFd::new(&fd, events)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Err(NoInput::Yet),
        Err(_) => Err(NoInput::Lost),
    }
}

/// Returns whether the launcher may read its terminal. A terminal that is not the controlling terminal has no
/// foreground.
fn foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group.as_raw_nonzero().get() == own_group())
}
