//! Shared memory segment with the key-value log and its index.
//!
//! A memfd holds the index, and the log behind it. Only the mapping made here can write to it. Seals prevent other writers,
//! the ranks included, and changes of the file's length.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use hydrant_core::storage::Layout;
use hydrant_reactor::memfd;
use rustix::fs::{SealFlags, fcntl_add_seals, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Resource, getrlimit};

use super::{Memory, Sharing};

/// Mapped memory that ranks may read.
#[derive(Debug)]
pub(crate) struct Segment {
    fd: OwnedFd,
    memory: Memory,
}

impl Segment {
    /// Creates a segment for an index and a log of these lengths. None if the system cannot create one that is
    /// read-only for ranks.
    pub(crate) fn new(lengths: &Layout) -> Option<Segment> {
        let (index, log) = (lengths.index, lengths.log);
        let len = Memory::len(index, log).filter(|_| index > 0)?;
        // A file longer than that would be answered with a signal.
        let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let file_len = u64::try_from(len).ok().filter(|&len| len <= longest)?;
        let fd = memfd(c"hydrant-kvs").ok()?;
        ftruncate(&fd, file_len).ok()?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the mapping is new and at an address that the system selects. It stays until `drop`.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, flags, &fd, 0) }.ok()?;
        let segment = Segment { fd, memory: Memory { start: NonNull::new(start.cast())?, index, log } };
        // Mappings that are there already go on being written to.
        let seals = SealFlags::FUTURE_WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&segment.fd, seals).ok()?;
        Some(segment)
    }

    /// Lends out the log and the index.
    pub(crate) fn lend(&mut self) -> (&mut [u8], &[AtomicU32]) {
        self.memory.lend()
    }

    /// Returns the location for ranks. None if the file cannot be identified.
    pub(crate) fn sharing(&self, seed: u32) -> Option<Sharing> {
        let stat = fstat(&self.fd).ok()?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd());
        let (index, log) = (self.memory.index.try_into().ok()?, self.memory.log.try_into().ok()?);
        Some(Sharing { path, file: (stat.st_dev, stat.st_ino), index, log, seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::client::Offer;
    use hydrant_core::{JobId, Limits, Server};
    use rustix::io::Errno;

    /// Gigabytes for a hundred thousand ranks use memory only for the pages that are written.
    #[test]
    fn unused_memory_is_not_allocated() {
        let limits = Limits::for_ranks(100_000);
        let mut slabs = crate::MappedStorage::try_shared(&limits).expect("there is memory for a small job");
        let sharing = slabs.sharing(3).expect("this system has memory to share");
        let lengths = Layout::of(&limits);
        assert_eq!((sharing.index as usize, sharing.log as usize), (lengths.index, lengths.log));
        let blocks = || rustix::fs::stat(&sharing.path).expect("the path leads to the file").st_blocks;
        let server =
            Server::new_zeroed(limits, slabs.lend(), 3).expect("the slabs are as long as the limits say");
        assert_eq!(server.kvs_space(JobId(0)), None);
        assert_eq!(blocks(), 0);
        let (log, index) = slabs.lend_kvs();
        *log.last_mut().expect("the log is long") = 7;
        index[0].store(8, std::sync::atomic::Ordering::Relaxed);
        // Blocks of 512 bytes: a page or a few for each of the two writes.
        assert!((1..=64).contains(&blocks()), "{} blocks", blocks());
    }

    #[test]
    fn no_other_process_can_write_to_it_or_truncate_it() {
        let segment =
            Segment::new(&Layout::of(&Limits::for_ranks(1))).expect("this system has memory to share");
        assert_eq!(rustix::io::pwrite(&segment.fd, b"x", 0), Err(Errno::PERM));
        assert_eq!(ftruncate(&segment.fd, 0), Err(Errno::PERM));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, if there were one.
        let mapped = unsafe { mmap(ptr::null_mut(), 4096, protection, MapFlags::SHARED, &segment.fd, 0) };
        assert_eq!(mapped, Err(Errno::PERM));
    }

    #[test]
    fn what_is_offered_is_what_clients_read() {
        let segment =
            Segment::new(&Layout::of(&Limits::for_ranks(1))).expect("this system has memory to share");
        let sharing = segment.sharing(9).expect("the file has a number");
        let variable = sharing.variable(5, "kvs_a").expect("there is no NUL in it");
        let text = variable.to_str().expect("the text is ASCII");
        let offer =
            Offer::parse(text.strip_prefix("HYDRANT_KVS=").expect("that is its name")).expect("an offer");
        assert_eq!((offer.seed, offer.space, offer.jobid), (9, 5, "kvs_a"));
        let stat = rustix::fs::stat(offer.path).expect("the path leads to the file");
        assert_eq!(offer.file, (stat.st_dev, stat.st_ino));
    }
}
