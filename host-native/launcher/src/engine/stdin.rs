//! Standard input, which is rank 0's.
//!
//! A file, pipe or socket is simply rank 0's own: it reads at its own pace, and whoever writes notices when it leaves.
//! A terminal cannot be handed on, because rank 0 is no part of the terminal's foreground group and would be
//! stopped. So the launcher reads the terminal and writes to a pipe, whenever it is in the foreground itself.
//!
//! Where rank 0 is on another node, the head reads whatever its input is and sends it there ([`Source`]), and the
//! daemon writes it to a pipe ([`Feed`]). What is under way is bounded: the head stops reading until it hears that it has
//! been taken.

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

/// Read at once, in bytes; of a terminal's, rank 0 has to take them before more is read.
const CHUNK: usize = 4096;

/// How often the launcher looks whether it has come to the foreground while there is input, in milliseconds. A shell
/// need not tell a job that was not stopped.
const LOOK_AGAIN: u64 = 200;

/// What rank 0 reads.
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

/// What the head reads for a rank on another node.
#[derive(Debug)]
pub(crate) struct Source {
    /// Bytes that may be sent.
    credit: u32,
    /// Read and not sent yet; an empty piece at the end.
    pieces: Vec<Vec<u8>>,
    kind: Kind,
    /// The poller says when there is more.
    watched: bool,
    ended: bool,
    look_again: Option<u64>,
}

/// How one hears of more input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Terminal,
    Stream,
    /// There is always some, or its end.
    File,
}

/// Bytes of standard input that may be under way to another node.
const CREDIT: u32 = 256 * 1024;

/// From another node's input to rank 0.
#[derive(Debug)]
pub(crate) struct Feed {
    way: Way,
    /// Bytes that are not under way any more, and of which the head has not been told.
    taken: u32,
    /// Rank 0 has closed its input, and the head has not been told.
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
    /// Nothing comes behind that.
    ended: bool,
}

/// From a terminal to rank 0.
#[derive(Debug)]
pub(crate) struct Pump {
    way: Way,
    /// There is input, and the launcher is in the background: when to look again, in milliseconds.
    look_again: Option<u64>,
}

impl Stdin {
    pub(crate) fn new(poller: &Poller) -> Result<Stdin, Errno> {
        if !isatty(stdin()) {
            return Ok(Stdin::Inherited);
        }
        let way = Way::new(poller)?;
        // In the background the terminal's input is somebody else's and would be reported for ever: only what is new
        // is worth a look.
        poller.add(stdin(), Token::Terminal, Interest::ReadEdge)?;
        Ok(Stdin::Pumped(Pump { way, look_again: None }))
    }

    /// The input of a head, whose rank 0 is elsewhere. Nothing is read before [`Stdin::allow`].
    pub(crate) fn sent() -> Stdin {
        let kind = if isatty(stdin()) { Kind::Terminal } else { Kind::Stream };
        let (pieces, look_again) = (Vec::new(), None);
        Stdin::Sent(Source { credit: 0, pieces, kind, watched: false, ended: false, look_again })
    }

    /// The input of a daemon's rank 0, if it has that rank.
    pub(crate) fn fed(poller: &Poller) -> Result<Stdin, Errno> {
        Ok(Stdin::Fed(Feed { way: Way::new(poller)?, taken: 0, closed: false }))
    }

    /// Rank 0 is there, or has taken `bytes` of what was sent to it.
    pub(crate) fn allow(&mut self, bytes: Option<u32>) {
        if let Stdin::Sent(source) = self {
            source.credit = source.credit.saturating_add(bytes.unwrap_or(CREDIT)).min(CREDIT);
        }
    }

    /// What is to be sent to rank 0's node.
    pub(crate) fn take_pieces(&mut self) -> Vec<Vec<u8>> {
        match self {
            Stdin::Sent(source) => std::mem::take(&mut source.pieces),
            _ => Vec::new(),
        }
    }

    /// Rank 0 reads no more: whoever writes to the input notices.
    pub(crate) fn close(&mut self, poller: &Poller) -> Result<(), Errno> {
        let Stdin::Sent(source) = self else { return Ok(()) };
        source.ended = true;
        source.watch(poller);
        dup2_stdin(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Input has come for rank 0; nothing at its end.
    pub(crate) fn feed(&mut self, bytes: &[u8], poller: &Poller) {
        let Stdin::Fed(feed) = self else { return };
        feed.way.ended |= bytes.is_empty();
        feed.way.push(bytes);
        feed.run(poller);
    }

    /// What the head is to be told: how much is under way no more, and whether rank 0 has closed its input.
    pub(crate) fn take_news(&mut self) -> (u32, bool) {
        match self {
            Stdin::Fed(feed) => (std::mem::take(&mut feed.taken), std::mem::take(&mut feed.closed)),
            _ => (0, false),
        }
    }

    /// What rank 0 gets as its standard input; nothing where it keeps the launcher's own.
    pub(crate) fn for_rank_0(&mut self) -> Option<OwnedFd> {
        match self {
            Stdin::Inherited => None,
            Stdin::Pumped(Pump { way, .. }) | Stdin::Fed(Feed { way, .. }) => way.read_end.take(),
            Stdin::Sent(_) => None,
        }
    }

    /// Rank 0 has been started: an input that is its own is let go, so that whoever writes to it notices when rank 0
    /// reads no more.
    pub(crate) fn started(&self) -> Result<(), Errno> {
        match self {
            Stdin::Inherited => {
                dup2_stdin(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
            Stdin::Pumped(_) | Stdin::Sent(_) | Stdin::Fed(_) => Ok(()),
        }
    }

    /// Whether there is input that will be the launcher's once it comes to the foreground: when to look again.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self {
            Stdin::Inherited | Stdin::Fed(_) => None,
            Stdin::Pumped(pump) => pump.look_again,
            Stdin::Sent(source) if source.kind == Kind::File && source.wants_more() => Some(0),
            Stdin::Sent(source) => source.look_again,
        }
    }

    /// The terminal may have input, the launcher may have come to the foreground, or rank 0 may have read or left.
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

    /// Waits for more where there may be more.
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

    /// Takes more to write. What has been written goes first, once it is as much as may be under way: a reader that
    /// is never quite done would otherwise have the whole input kept.
    fn push(&mut self, bytes: &[u8]) {
        if self.start >= CREDIT as usize {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes what there is; whether that is done. Where rank 0 has closed its input, the rest is nobody's.
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
            // It is registered for as long as it is open.
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

/// Why nothing was read.
#[derive(Debug)]
enum NoInput {
    /// There is nothing yet.
    Yet,
    /// What there is belongs to whoever is in the terminal's foreground.
    Background,
    /// There will be nothing any more.
    Lost,
}

/// Replaces `buffer` by what the input has, `most` bytes at most, without waiting and without being stopped.
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
        // So the system answers in the background, too, to which the launcher may have gone meanwhile; it may even be
        // back by now. A terminal that has hung up says so.
        Err(Errno::IO)
            if tcgetpgrp(stdin()).is_ok()
                && !ready(stdin(), PollFlags::empty())?.contains(PollFlags::HUP) =>
        {
            Err(NoInput::Background)
        }
        Err(_) => Err(NoInput::Lost),
    }
}

/// Which of these events there are, or that the other end is gone.
fn ready(fd: impl AsFd, events: PollFlags) -> Result<PollFlags, NoInput> {
    let mut fds = [PollFd::new(&fd, events)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Err(NoInput::Yet),
        Err(_) => Err(NoInput::Lost),
    }
}

/// Whether the launcher may read its terminal. One that is not its controlling terminal has no foreground.
fn foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that always leaves some of its input waiting costs no more memory than what may be under way.
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
