//! Pipe to the standard input of a rank.

use std::os::fd::OwnedFd;

use hydrant_reactor::{Interest, Key, Poller, pipe};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::input::ready;

/// Our end of a pipe. The poller reports its hangup, and room after it was full.
#[derive(Debug)]
pub(super) struct Pipe {
    fd: OwnedFd,
    key: Key,
    is_full: bool,
}

/// The rank has closed its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left;

impl Pipe {
    /// Opens a pipe. Returns the rank's end, too.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub(super) fn open(key: Key, poller: &Poller) -> Result<(OwnedFd, Pipe), Errno> {
        let (read_end, fd) = pipe()?;
        fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        poller.add(&fd, key, Interest::Hangup)?;
        Ok((read_end, Pipe { fd, key, is_full: false }))
    }

    /// Writes as many bytes as there is room for. Returns their number.
    ///
    /// # Errors
    /// The rank has closed its end.
    pub(super) fn write(&mut self, bytes: &[u8], poller: &Poller) -> Result<usize, Left> {
        let mut written = 0;
        while written < bytes.len() {
            if self.is_full {
                return Ok(written);
            }
            match rustix::io::write(&self.fd, &bytes[written..]) {
                Ok(len) => written += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    self.watch(Interest::Write, poller);
                }
                Err(_) => return Err(Left),
            }
        }
        self.watch(Interest::Hangup, poller);
        Ok(written)
    }

    /// Handles an event of the poller's: there is room, or the rank has closed its end.
    ///
    /// # Errors
    /// The rank has closed its end.
    pub(super) fn ready(&mut self) -> Result<(), Left> {
        match ready(&self.fd, PollFlags::OUT) {
            Ok(events) if events.contains(PollFlags::ERR) => return Err(Left),
            Ok(_) => self.is_full = false,
            Err(_) => {}
        }
        Ok(())
    }

    fn watch(&self, interest: Interest, poller: &Poller) {
        // The pipe is registered while it is open.
        let _ = poller.modify(&self.fd, self.key, interest);
    }
}
