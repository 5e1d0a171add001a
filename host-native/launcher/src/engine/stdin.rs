//! Standard input, which is rank 0's.
//!
//! A file, pipe or socket is simply rank 0's own: it reads at its own pace, and whoever writes notices when it leaves.
//! A terminal cannot be handed on, because rank 0 is no part of the terminal's foreground group and would be
//! stopped. So the launcher reads the terminal and writes to a pipe, whenever it is in the foreground itself.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpgrp;
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::{isatty, tcgetpgrp};

use super::poller::{Interest, Poller, Token};

/// Read from the terminal at once, in bytes; rank 0 has to take them before more is read.
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
}

/// From a terminal to rank 0.
#[derive(Debug)]
pub(crate) struct Pump {
    pipe: Option<OwnedFd>,
    /// Rank 0's end until it is started.
    read_end: Option<OwnedFd>,
    /// Read from the terminal and not yet written.
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// There is input, and the launcher is in the background: when to look again, in milliseconds.
    look_again: Option<u64>,
}

impl Stdin {
    pub(crate) fn new(poller: &Poller) -> Result<Stdin, Errno> {
        if !isatty(stdin()) {
            return Ok(Stdin::Inherited);
        }
        let (read_end, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        poller.add(&pipe, Token::Stdin, Interest::Hangup)?;
        // In the background the terminal's input is somebody else's and would be reported for ever: only what is new
        // is worth a look.
        poller.add(stdin(), Token::Terminal, Interest::ReadEdge)?;
        Ok(Stdin::Pumped(Pump {
            pipe: Some(pipe),
            read_end: Some(read_end),
            buffer: Vec::new(),
            start: 0,
            ended: false,
            look_again: None,
        }))
    }

    /// What rank 0 gets as its standard input; nothing where it keeps the launcher's own.
    pub(crate) fn for_rank_0(&mut self) -> Option<OwnedFd> {
        match self {
            Stdin::Inherited => None,
            Stdin::Pumped(pump) => pump.read_end.take(),
        }
    }

    /// Rank 0 has been started: an input that is its own is let go, so that whoever writes to it notices when rank 0
    /// reads no more.
    pub(crate) fn started(&self) -> Result<(), Errno> {
        match self {
            Stdin::Inherited => {
                dup2_stdin(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
            Stdin::Pumped(_) => Ok(()),
        }
    }

    /// Whether there is input that will be the launcher's once it comes to the foreground: when to look again.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self {
            Stdin::Inherited => None,
            Stdin::Pumped(pump) => pump.look_again,
        }
    }

    /// The terminal may have input, the launcher may have come to the foreground, or rank 0 may have read or left.
    pub(crate) fn pump(&mut self, now: u64, poller: &Poller) {
        if let Stdin::Pumped(pump) = self {
            pump.run(now, poller);
        }
    }
}

impl Pump {
    fn run(&mut self, now: u64, poller: &Poller) {
        self.look_again = None;
        loop {
            if self.pipe.is_none() {
                return;
            }
            if self.start < self.buffer.len() {
                match self.write() {
                    Ok(()) => continue,
                    Err(Errno::AGAIN) => return self.watch(poller, Interest::Write),
                    // Rank 0 has closed its input, and the rest is nobody's.
                    Err(_) => return self.stop(poller),
                }
            }
            if self.ended {
                return self.stop(poller);
            }
            match read_terminal(&mut self.buffer) {
                Ok(0) => self.ended = true,
                Ok(_) => self.start = 0,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(Errno::IO) if !foreground() => {
                    self.look_again = Some(now + LOOK_AGAIN);
                    break;
                }
                Err(_) => return self.stop(poller),
            }
        }
        self.watch(poller, Interest::Hangup);
        if self.reader_left() {
            self.stop(poller);
        }
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
        let mut fds = [PollFd::new(pipe, PollFlags::empty())];
        let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        self.read_end.is_none() && ready.is_ok_and(|ready| ready > 0)
    }

    fn stop(&mut self, poller: &Poller) {
        self.pipe = None;
        poller.remove(stdin());
    }
}

/// Reads what the terminal has into `buffer`, without waiting and without being stopped.
fn read_terminal(buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    let terminal = stdin();
    let mut fds = [PollFd::new(&terminal, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if ready == 0 {
        return Err(Errno::AGAIN);
    }
    if !foreground() {
        return Err(Errno::IO);
    }
    buffer.resize(CHUNK, 0);
    let len = rustix::io::read(terminal, &mut *buffer).inspect_err(|_| buffer.clear())?;
    buffer.truncate(len);
    Ok(len)
}

/// Whether the launcher may read its terminal. One that is not its controlling terminal has no foreground.
fn foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}
