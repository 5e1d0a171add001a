//! Descriptor that is readable when a deadline has passed.

use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::error::Error;

/// When the descriptor becomes readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Not.
    Never,
    /// At this time of the host's clock, in milliseconds.
    At(u64),
    /// At once.
    Now,
}

/// Timer of the system. Nothing reads from it: setting it again makes it unreadable.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    due: Due,
}

impl Timer {
    pub(crate) fn new() -> Result<Timer, Error> {
        // SAFETY: the call has no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(Error::system("timerfd_create"));
        }
        // SAFETY: the system has just returned this descriptor, and nothing else owns it.
        Ok(Timer { fd: unsafe { OwnedFd::from_raw_fd(fd) }, due: Due::Never })
    }

    /// Sets the timer. `now` is the time of the host's clock.
    pub(crate) fn set(&mut self, due: Due, now: u64) -> Result<(), Error> {
        if due == self.due {
            return Ok(());
        }
        let millis = match due {
            Due::Never => None,
            Due::At(at) => Some(at.saturating_sub(now)),
            Due::Now => Some(0),
        };
        // SAFETY: zero is a valid value of each field.
        let mut spec: libc::itimerspec = unsafe { zeroed() };
        if let Some(millis) = millis {
            spec.it_value.tv_sec = libc::time_t::try_from(millis / 1000).unwrap_or(libc::time_t::MAX);
            // Zero stops the timer.
            spec.it_value.tv_nsec = ((millis % 1000) * 1_000_000).max(1) as libc::c_long;
        }
        // SAFETY: the new value is a structure of this function, and the old one is not requested.
        if unsafe { libc::timerfd_settime(self.fd.as_raw_fd(), 0, &spec, ptr::null_mut()) } < 0 {
            return Err(Error::system("timerfd_settime"));
        }
        self.due = due;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
