//! Poller of Linux: epoll.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;

use super::{BATCH, Interest, timespec};
use crate::{Error, Key};

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

/// Watches descriptors and reports the keys of those that are ready. Closing a descriptor ends its watch.
pub struct Poller {
    epoll: OwnedFd,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// The descriptor is readable while one of those watched is ready.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Poller {
    /// Creates a poller without descriptors.
    ///
    /// # Errors
    /// The process or the system has no descriptor left.
    pub fn new() -> Result<Poller, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::during("epoll_create"))?;
        Ok(Poller { epoll })
    }

    /// Starts to watch `fd`. Its events carry `key`.
    ///
    /// # Errors
    /// `EPERM` for regular files and directories, which are always ready.
    pub fn add(&self, fd: impl AsFd, key: impl Into<Key>, interest: Interest) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(key.into().0);
        epoll::add(&self.epoll, fd, data, interest.flags()).map_err(Error::during("epoll"))
    }

    /// Changes the events that `fd` is watched for.
    ///
    /// # Errors
    /// `fd` is not watched.
    pub fn modify(&self, fd: impl AsFd, key: impl Into<Key>, interest: Interest) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(key.into().0);
        epoll::modify(&self.epoll, fd, data, interest.flags()).map_err(Error::during("epoll"))
    }

    /// Stops to watch `fd`. Does nothing for a descriptor that is not watched.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until a descriptor is ready or `timeout` has passed, and replaces `keys` by the keys of all ready
    /// descriptors. Without a timeout there is no limit. A signal handler may end the wait early.
    ///
    /// # Errors
    /// The system call failed.
    pub fn wait(&mut self, timeout: Option<Duration>, keys: &mut Vec<Key>) -> Result<(), Error> {
        keys.clear();
        let timeout = timeout.map(timespec);
        // No field: it holds pointers, with which a poller would not be `Send`.
        let mut events = [const { MaybeUninit::uninit() }; BATCH];
        match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok((ready, _)) => keys.extend(ready.iter().map(|event| Key(event.data.u64()))),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::during("epoll_wait")(errno)),
        }
        Ok(())
    }
}
