//! Key-value log of a server on the same node, in shared memory.

use std::num::TryFromIntError;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use hydrant_wire::client::{LogView, Offer};
use rustix::fs::{Mode, OFlags, Stat, fstat, open, stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::sys;

/// A read-only mapping of a server's key-value log, limited to the space of one job.
///
/// [`Segment::get`] finds values without a request to the server.
#[derive(Debug)]
pub struct Segment {
    start: NonNull<AtomicU32>,
    /// Length of the mapping in words.
    words: usize,
    /// Length of the index, at the start of the mapping, in words.
    index: usize,
    seed: u32,
    space: u32,
}

// SAFETY: the memory is only read, as atomic numbers, by any thread, and stays mapped until the value is dropped.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Why an offer of shared memory cannot be used. Values are requested from the server then.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The offer has another version or is malformed.
    #[error("unknown version or malformed offer")]
    Version,
    /// The offer was inherited from another job: the one that started this job's launcher.
    #[error("the offer is for job {0}")]
    OtherJob(String),
    /// The lengths are zero, exceed the address space or do not fit together.
    #[error("invalid lengths")]
    Lengths,
    /// The path leads to another file than the server's, for example in another mount namespace.
    #[error("the path leads to another file")]
    OtherFile,
    /// The file can shrink, so that reading it could end this process by SIGBUS.
    #[error("the file is not sealed against shrinking")]
    Unsealed,
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Errno),
}

impl From<TryFromIntError> for SegmentError {
    fn from(_: TryFromIntError) -> SegmentError {
        SegmentError::Lengths
    }
}

const WORD: usize = size_of::<AtomicU32>();

impl Segment {
    /// Maps the segment of an offer (`HYDRANT_KVS`) for a process of job `jobid`.
    ///
    /// # Errors
    /// [`SegmentError`]; the caller then requests values from the server.
    pub fn open(offer: &str, jobid: &str) -> Result<Segment, SegmentError> {
        let offer = Offer::parse(offer).ok_or(SegmentError::Version)?;
        if offer.jobid != jobid {
            return Err(SegmentError::OtherJob(offer.jobid.to_owned()));
        }
        let index = usize::try_from(offer.index)?;
        let words = index.checked_add(usize::try_from(offer.log)? / WORD).ok_or(SegmentError::Lengths)?;
        let len = words.checked_mul(WORD).filter(|&len| len > 0).ok_or(SegmentError::Lengths)?;
        let check = |stat: Stat| {
            let same = sys::identity(&stat) == offer.file;
            let long = usize::try_from(stat.st_size).is_ok_and(|size| size >= len);
            if same && long { Ok(()) } else { Err(SegmentError::OtherFile) }
        };
        // Checked before opening too, because opening some files (devices, FIFOs) has effects.
        check(stat(offer.path)?)?;
        let file = open(offer.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        check(fstat(&file)?)?;
        if !sys::cannot_shrink(&file)? {
            return Err(SegmentError::Unsealed);
        }
        // SAFETY: a new mapping at an address of the system's choice; it stays until `drop`.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(SegmentError::Lengths)?;
        let segment = Segment { start, words, index, seed: offer.seed, space: offer.space };
        segment.view().ok_or(SegmentError::Lengths)?;
        Ok(segment)
    }

    #[inline]
    fn view(&self) -> Option<LogView<'_>> {
        // SAFETY: the mapping begins at a page and cannot shrink. The server, another process, writes to it; all
        // accesses are atomic.
        let words = unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) };
        let (index, log) = words.split_at_checked(self.index)?;
        LogView::new(log, index, self.seed)
    }

    /// Copies the value of one of the job's keys to the front of `buf` and returns it. Returns `None` if the segment
    /// does not contain the key or `buf` is too short; only the server knows whether the key exists.
    #[inline]
    pub fn get<'b>(&self, key: &[u8], buf: &'b mut [u8]) -> Option<&'b [u8]> {
        let len = self.view()?.get(self.space, key, buf)?;
        buf.get(..usize::try_from(len).ok()?)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing borrows. It exists, so that this cannot fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}
