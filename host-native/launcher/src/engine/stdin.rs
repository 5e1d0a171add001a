//! Standard input, which belongs to rank 0.
//!
//! Rank 0 inherits a file, pipe or socket. It reads at its own pace, and a writer notices when rank 0 exits. Rank 0
//! cannot inherit a terminal: it is not in the terminal's foreground group and would be stopped. The launcher therefore
//! reads the terminal while it is in the foreground, and writes to a pipe.
//!
//! If rank 0 is on another node, the head reads its own input and sends it there ([`Source`]). The daemon writes it to
//! a pipe ([`Feed`]). Bytes in flight are bounded: the head stops reading until the daemon acknowledges them.

use std::os::fd::{AsFd, OwnedFd};

use hydrant_reactor::{Interest, Poller};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpgrp;
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::{isatty, tcgetpgrp};

use super::token::Token;

/// Bytes to read at once. Rank 0 has to consume those of a terminal before more is read.
const CHUNK: usize = 4096;

/// Interval at which the launcher checks for the foreground while input is pending, in milliseconds. A shell sends no
/// signal to a job that was not stopped.
const LOOK_AGAIN: u64 = 200;

/// Source of rank 0's input.
#[derive(Debug)]
pub(crate) enum Stdin {
    /// The launcher's own.
    Inherited,
    /// A pipe that the launcher fills from a terminal.
    Pumped(Pump),
    /// Rank 0 is on another node.
    Sent(Source),
    /// A pipe that is filled from another node's input.
    Fed(Feed),
}

/// Input that the head reads for a rank on another node.
#[derive(Debug)]
pub(crate) struct Source {
    /// Bytes that may be sent.
    credit: u32,
    /// Pieces that have been read and not sent. An empty piece marks the end.
    pieces: Vec<Vec<u8>>,
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

/// Bytes of standard input that may be under way to another node.
const CREDIT: u32 = 256 * 1024;

/// From another node's input to rank 0.
#[derive(Debug)]
pub(crate) struct Feed {
    way: Way,
    /// Consumed bytes that the head has no report of yet.
    taken: u32,
    /// Rank 0 has closed its input, and the head has no report of that yet.
    closed: bool,
}

/// A pipe to rank 0.
#[derive(Debug)]
struct Way {
    pipe: Option<OwnedFd>,
    /// Rank 0's end until it is started.
    read_end: Option<OwnedFd>,
    /// Not written yet, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// No more input follows.
    ended: bool,
}

/// From a terminal to rank 0.
#[derive(Debug)]
pub(crate) struct Pump {
    way: Way,
    /// Time of the next check while input is pending in the background, in milliseconds.
    look_again: Option<u64>,
}

impl Stdin {
    pub(crate) fn new(poller: &Poller) -> Result<Stdin, Errno> {
        if !isatty(stdin()) {
            return Ok(Stdin::Inherited);
        }
        let way = Way::new(poller)?;
        // In the background the terminal's input belongs to another job and would be reported without end. Edge
        // triggering reports new input only.
        poller.add(stdin(), Token::Terminal, Interest::ReadEdge)?;
        Ok(Stdin::Pumped(Pump { way, look_again: None }))
    }

    /// Creates the input of a head, with rank 0 on another node. Reading starts after [`Stdin::allow`].
    pub(crate) fn sent() -> Stdin {
        let kind = if isatty(stdin()) { Kind::Terminal } else { Kind::Stream };
        let (pieces, look_again) = (Vec::new(), None);
        Stdin::Sent(Source { credit: 0, pieces, kind, watched: false, ended: false, look_again })
    }

    /// Creates the input of rank 0 on its daemon.
    pub(crate) fn fed(poller: &Poller) -> Result<Stdin, Errno> {
        Ok(Stdin::Fed(Feed { way: Way::new(poller)?, taken: 0, closed: false }))
    }

    /// Adds credit: all of it when rank 0 has started, otherwise the `bytes` that it has consumed.
    pub(crate) fn allow(&mut self, bytes: Option<u32>) {
        if let Stdin::Sent(source) = self {
            source.credit = source.credit.saturating_add(bytes.unwrap_or(CREDIT)).min(CREDIT);
        }
    }

    /// Takes the pieces to send to rank 0's node.
    pub(crate) fn take_pieces(&mut self) -> Vec<Vec<u8>> {
        match self {
            Stdin::Sent(source) => std::mem::take(&mut source.pieces),
            _ => Vec::new(),
        }
    }

    /// Closes the input after rank 0 has closed its own. A writer notices.
    pub(crate) fn close(&mut self, poller: &Poller) -> Result<(), Errno> {
        let Stdin::Sent(source) = self else { return Ok(()) };
        source.ended = true;
        source.watch(poller);
        dup2_stdin(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Handles input for rank 0 from the head. An empty slice marks the end.
    pub(crate) fn feed(&mut self, bytes: &[u8], poller: &Poller) {
        let Stdin::Fed(feed) = self else { return };
        feed.way.ended |= bytes.is_empty();
        feed.way.push(bytes);
        feed.run(poller);
    }

    /// Takes the report for the head: the number of consumed bytes, and whether rank 0 has closed its input.
    pub(crate) fn take_news(&mut self) -> (u32, bool) {
        match self {
            Stdin::Fed(feed) => (std::mem::take(&mut feed.taken), std::mem::take(&mut feed.closed)),
            _ => (0, false),
        }
    }

    /// Takes rank 0's standard input. None if it inherits the launcher's.
    pub(crate) fn for_rank_0(&mut self) -> Option<OwnedFd> {
        match self {
            Stdin::Inherited => None,
            Stdin::Pumped(Pump { way, .. }) | Stdin::Fed(Feed { way, .. }) => way.read_end.take(),
            Stdin::Sent(_) => None,
        }
    }

    /// Closes an inherited input after rank 0 has been started, so that a writer notices when rank 0 stops reading.
    pub(crate) fn started(&self) -> Result<(), Errno> {
        match self {
            Stdin::Inherited => {
                dup2_stdin(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
            Stdin::Pumped(_) | Stdin::Sent(_) | Stdin::Fed(_) => Ok(()),
        }
    }

    /// Returns the time of the next check, if input is pending in the background.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self {
            Stdin::Inherited | Stdin::Fed(_) => None,
            Stdin::Pumped(pump) => pump.look_again,
            Stdin::Sent(source) if source.kind == Kind::File && source.wants_more() => Some(0),
            Stdin::Sent(source) => source.look_again,
        }
    }

    /// Handles terminal input, a change to the foreground, and a change of rank 0's pipe.
    pub(crate) fn pump(&mut self, now: u64, poller: &Poller) {
        match self {
            Stdin::Inherited => {}
            Stdin::Pumped(pump) => pump.run(now, poller),
            Stdin::Sent(source) => source.run(now, poller),
            Stdin::Fed(feed) => feed.run(poller),
        }
    }
}

impl Source {
    fn wants_more(&self) -> bool {
        self.credit > 0 && !self.ended
    }

    fn run(&mut self, now: u64, poller: &Poller) {
        self.look_again = None;
        while self.wants_more() {
            let mut piece = Vec::new();
            match read_input(&mut piece, CHUNK.min(self.credit as usize)) {
                Ok(len) => {
                    self.credit -= len as u32;
                    self.ended = len == 0;
                    self.pieces.push(piece);
                }
                Err(NoInput::Yet) => break,
                Err(NoInput::Background) => {
                    self.look_again = Some(now + LOOK_AGAIN);
                    break;
                }
                Err(NoInput::Lost) => {
                    self.ended = true;
                    self.pieces.push(Vec::new());
                }
            }
        }
        self.watch(poller);
    }

    /// Watches for more input, if more is possible.
    fn watch(&mut self, poller: &Poller) {
        let wanted = self.wants_more();
        if wanted == self.watched || self.kind == Kind::File {
            return;
        }
        self.watched = wanted;
        let interest = if self.kind == Kind::Terminal { Interest::ReadEdge } else { Interest::Read };
        match wanted {
            false => poller.remove(stdin()),
            true if poller.add(stdin(), Token::Terminal, interest).is_err() => self.kind = Kind::File,
            true => {}
        }
    }
}

impl Feed {
    fn run(&mut self, poller: &Poller) {
        let before = self.way.buffer.len() - self.way.start;
        let open = self.way.pipe.is_some();
        let flushed = self.way.flush(poller);
        if flushed && (self.way.ended || self.way.reader_left()) {
            self.way.pipe = None;
        }
        self.closed |= open && self.way.pipe.is_none() && !self.way.ended;
        if self.way.pipe.is_none() {
            self.way.buffer.clear();
            self.way.start = 0;
        }
        self.taken += (before - (self.way.buffer.len() - self.way.start)) as u32;
    }
}

impl Way {
    fn new(poller: &Poller) -> Result<Way, Errno> {
        let (read_end, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        poller.add(&pipe, Token::Stdin, Interest::Hangup)?;
        let (pipe, read_end) = (Some(pipe), Some(read_end));
        Ok(Way { pipe, read_end, buffer: Vec::new(), start: 0, ended: false })
    }

    /// Appends bytes to write. Written bytes are removed once they exceed the credit. A reader that never empties the
    /// buffer would otherwise keep all of the input in memory.
    fn push(&mut self, bytes: &[u8]) {
        if self.start >= CREDIT as usize {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes pending bytes. Returns whether all are written. If rank 0 has closed its input, the rest is dropped.
    fn flush(&mut self, poller: &Poller) -> bool {
        while self.start < self.buffer.len() && self.pipe.is_some() {
            match self.write() {
                Ok(()) => {}
                Err(Errno::AGAIN) => {
                    self.watch(poller, Interest::Write);
                    return false;
                }
                Err(_) => self.pipe = None,
            }
        }
        self.buffer.clear();
        self.start = 0;
        self.watch(poller, Interest::Hangup);
        true
    }

    fn write(&mut self) -> Result<(), Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::PIPE)?;
        match rustix::io::write(pipe, &self.buffer[self.start..]) {
            Ok(len) => self.start += len,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn watch(&self, poller: &Poller, interest: Interest) {
        if let Some(pipe) = &self.pipe {
            // The pipe is registered while it is open.
            let _ = poller.modify(pipe, Token::Stdin, interest);
        }
    }

    fn reader_left(&self) -> bool {
        let Some(pipe) = &self.pipe else { return true };
        self.read_end.is_none() && ready(pipe, PollFlags::empty()).is_ok_and(|events| !events.is_empty())
    }
}

impl Pump {
    fn run(&mut self, now: u64, poller: &Poller) {
        self.look_again = None;
        let way = &mut self.way;
        if way.pipe.is_none() {
            return;
        }
        loop {
            if !way.flush(poller) {
                return;
            }
            if way.pipe.is_none() || way.ended {
                return self.stop(poller);
            }
            match read_input(&mut way.buffer, CHUNK) {
                Ok(0) => way.ended = true,
                Ok(_) => {}
                Err(NoInput::Yet) => break,
                Err(NoInput::Background) => {
                    self.look_again = Some(now + LOOK_AGAIN);
                    break;
                }
                Err(NoInput::Lost) => return self.stop(poller),
            }
        }
        if self.way.reader_left() {
            self.stop(poller);
        }
    }

    fn stop(&mut self, poller: &Poller) {
        self.way.pipe = None;
        poller.remove(stdin());
    }
}

/// Reason why no input was read.
#[derive(Debug)]
enum NoInput {
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
fn ready(fd: impl AsFd, events: PollFlags) -> Result<PollFlags, NoInput> {
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
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that never empties its input costs at most the memory of the credit.
    #[test]
    fn input_that_was_passed_on_is_not_kept() {
        let poller = Poller::new().unwrap();
        let mut stdin = Stdin::fed(&poller).unwrap();
        let reader = stdin.for_rank_0().unwrap();
        let pattern =
            |from: u32, len: u32| (from..from + len).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        stdin.feed(&pattern(0, CREDIT), &poller);
        let (mut sent, mut read) = (CREDIT, 0);
        let mut buffer = vec![0; CHUNK];
        while sent < 16 * CREDIT {
            let len = rustix::io::read(&reader, &mut buffer).unwrap();
            assert_eq!(buffer[..len], pattern(read, len as u32));
            read += len as u32;
            stdin.pump(0, &poller);
            let (more, closed) = stdin.take_news();
            assert!(!closed);
            if more > 0 {
                stdin.feed(&pattern(sent, more), &poller);
            }
            sent += more;
            let Stdin::Fed(feed) = &stdin else { unreachable!("that is what it is") };
            assert!(feed.way.start < feed.way.buffer.len(), "some of it waits at any time");
            assert!(feed.way.buffer.len() <= 3 * CREDIT as usize, "{} bytes", feed.way.buffer.len());
        }
    }
}
