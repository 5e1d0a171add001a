//! Readiness of descriptors, level-triggered: by epoll on Linux, by kqueue on FreeBSD and macOS.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(not(target_os = "linux"))]
mod kqueue;

use std::time::Duration;

#[cfg(target_os = "linux")]
pub use epoll::Poller;
#[cfg(not(target_os = "linux"))]
pub use kqueue::Poller;
use rustix::event::Timespec;

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

/// Events fetched by one system call.
const BATCH: usize = 256;

/// Longest wait in milliseconds. Callers with a later deadline are woken early and wait again.
const WAIT_MAX_MS: u128 = 60 * 60 * 1000;

/// Converts a timeout into whole milliseconds, which are all that older kernels know. Rounded up, so that the deadline has
/// passed on return.
fn timespec(timeout: Duration) -> Timespec {
    let millis = timeout.as_nanos().div_ceil(1_000_000).min(WAIT_MAX_MS) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000 * 1_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write, pipe};

    use rustix::io::Errno;

    use super::*;
    use crate::Key;

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
        let mut outer = Poller::new().unwrap();
        outer.add(&poller, Key(2), Interest::Read).unwrap();
        outer.wait(None, &mut keys).unwrap();
        assert_eq!(keys, [Key(2)], "the poller itself is readable");
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
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let error = poller.add(&file, Key(0), Interest::Read).unwrap_err();
        assert_eq!(Errno::from(error), Errno::PERM);
    }
}
