//! Poller of FreeBSD and macOS: kqueue.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, kevent_timespec};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;

use super::{BATCH, Interest, timespec};
use crate::{Error, Key, sys};

impl Interest {
    fn reads(self) -> bool {
        matches!(self, Interest::Read | Interest::ReadWrite | Interest::ReadEdge)
    }

    fn writes(self) -> bool {
        matches!(self, Interest::Write | Interest::ReadWrite)
    }
}

/// Watches descriptors and reports the keys of those that are ready. Closing a descriptor ends its watch.
pub struct Poller {
    kqueue: OwnedFd,
    events: Vec<Event>,
    /// Descriptors watched for the end of the other side only. kqueue has no such filter: it reports data as well, once.
    hangups: RefCell<BTreeSet<RawFd>>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("kqueue", &self.kqueue).finish_non_exhaustive()
    }
}

/// The descriptor is readable while one of those watched is ready.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kqueue.as_fd()
    }
}

impl Poller {
    /// Creates a poller without descriptors.
    ///
    /// # Errors
    /// The process or the system has no descriptor left.
    pub fn new() -> Result<Poller, Error> {
        let kqueue = sys::new_kqueue().map_err(Error::during("kqueue"))?;
        Ok(Poller { kqueue, events: Vec::with_capacity(BATCH), hangups: RefCell::default() })
    }

    /// Starts to watch `fd`. Its events carry `key`.
    ///
    /// # Errors
    /// `EPERM` for regular files and directories, which are always ready.
    pub fn add(&self, fd: impl AsFd, key: impl Into<Key>, interest: Interest) -> Result<(), Error> {
        self.watch(fd.as_fd(), key.into(), interest).map_err(Error::during("kevent"))
    }

    /// Changes the events that `fd` is watched for.
    ///
    /// # Errors
    /// The system cannot watch `fd`.
    pub fn modify(&self, fd: impl AsFd, key: impl Into<Key>, interest: Interest) -> Result<(), Error> {
        self.remove(&fd);
        self.add(fd, key, interest)
    }

    /// Stops to watch `fd`. Does nothing for a descriptor that is not watched.
    pub fn remove(&self, fd: impl AsFd) {
        let fd = fd.as_fd().as_raw_fd();
        self.hangups.borrow_mut().remove(&fd);
        for filter in [EventFilter::Read(fd), EventFilter::Write(fd)] {
            let _ = self.change(filter, EventFlags::DELETE, Key(0));
        }
    }

    /// Waits until a descriptor is ready or `timeout` has passed, and replaces `keys` by the keys of all ready
    /// descriptors. Without a timeout there is no limit. A signal handler may end the wait early.
    ///
    /// # Errors
    /// The system call failed.
    pub fn wait(&mut self, timeout: Option<Duration>, keys: &mut Vec<Key>) -> Result<(), Error> {
        keys.clear();
        self.events.clear();
        let timeout = timeout.map(timespec);
        // SAFETY: no change is passed, so no descriptor is added.
        match unsafe {
            kevent_timespec(&self.kqueue, &[], spare_capacity(&mut self.events), timeout.as_ref())
        } {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::during("kevent")(errno)),
        }
        let hangups = self.hangups.borrow();
        for event in &self.events {
            let is_data = match event.filter() {
                EventFilter::Read(fd) | EventFilter::Write(fd) => hangups.contains(&fd),
                _ => false,
            } && !event.flags().contains(EventFlags::EOF);
            let key = Key(event.udata() as u64);
            // A descriptor that can be read and written has two events.
            if !is_data && !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(())
    }

    fn watch(&self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> Result<(), Errno> {
        let raw = fd.as_raw_fd();
        let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::PERM);
        }
        self.hangups.borrow_mut().remove(&raw);
        if interest == Interest::Hangup {
            self.hangups.borrow_mut().insert(raw);
            let is_write_only = fcntl_getfl(fd)? & OFlags::ACCMODE == OFlags::WRONLY;
            let filter = if is_write_only { EventFilter::Write(raw) } else { EventFilter::Read(raw) };
            return self.change(filter, EventFlags::ADD | EventFlags::CLEAR, key);
        }
        if interest.reads() {
            let edge = if interest == Interest::ReadEdge { EventFlags::CLEAR } else { EventFlags::empty() };
            self.change(EventFilter::Read(raw), EventFlags::ADD | edge, key)?;
        }
        if interest.writes() {
            self.change(EventFilter::Write(raw), EventFlags::ADD, key)?;
        }
        Ok(())
    }

    fn change(&self, filter: EventFilter, flags: EventFlags, key: Key) -> Result<(), Errno> {
        let change = Event::new(filter, flags, key.0 as *mut c_void);
        match sys::change_kqueue(&self.kqueue, change) {
            // The devices that cannot be watched are always ready, such as /dev/null.
            Err(Errno::INVAL | Errno::NODEV | Errno::OPNOTSUPP) => Err(Errno::PERM),
            done => done,
        }
    }
}
