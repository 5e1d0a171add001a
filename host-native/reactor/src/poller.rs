//! Readiness of descriptors: level-triggered epoll.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::{Error, Key};

/// Readiness that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data to read, or the other end closed.
    Read,
    /// Room to write, or the other end closed.
    Write,
    /// Data to read, room to write, or the other end closed.
    ReadWrite,
    /// The other end closed.
    Hangup,
    /// Data to read, reported once each time new data arrives.
    ReadEdge,
}

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
    events: Vec<epoll::Event>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// Events fetched by one system call.
const BATCH: usize = 256;

/// Longest wait in milliseconds. Callers with a later deadline are woken early and wait again.
const WAIT_MAX_MS: u128 = 60 * 60 * 1000;

impl Poller {
    /// Creates a poller without descriptors.
    ///
    /// # Errors
    /// The process or the system has no descriptor left.
    pub fn new() -> Result<Poller, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::during("epoll_create"))?;
        Ok(Poller { epoll, events: Vec::with_capacity(BATCH) })
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
        self.events.clear();
        // Older kernels know whole milliseconds only. Rounded up, so that the deadline has passed on return.
        let timeout = timeout.map(|timeout| {
            let millis = timeout.as_nanos().div_ceil(1_000_000).min(WAIT_MAX_MS) as i64;
            Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::during("epoll_wait")(errno)),
        }
        keys.extend(self.events.iter().map(|event| Key(event.data.u64())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn ready_descriptors_are_reported_by_key() {
        let mut poller = Poller::new().unwrap();
        let (mut read, mut write) = pipe().unwrap();
        let key = Key(u64::MAX - 1);
        poller.add(&read, key, Interest::Read).unwrap();
        let mut keys = vec![Key(1)];
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty());
        write.write_all(b"x").unwrap();
        for _ in 0..2 {
            poller.wait(None, &mut keys).unwrap();
            assert_eq!(keys, [key], "level-triggered");
        }
        poller.modify(&read, key, Interest::Hangup).unwrap();
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty());
        read.read_exact(&mut [0]).unwrap();
        drop(write);
        poller.wait(None, &mut keys).unwrap();
        assert_eq!(keys, [key]);
        poller.remove(&read);
        poller.remove(&read);
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty());
    }

    #[test]
    fn regular_files_cannot_be_watched() {
        let poller = Poller::new().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let error = poller.add(&file, Key(0), Interest::Read).unwrap_err();
        assert_eq!(Errno::from(error), Errno::PERM);
    }
}
