//! The key-value log of a server on this node, in memory that this process may read.

use std::num::TryFromIntError;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use hydrant_core::client::{LogView, Offer};
use rustix::fs::{Mode, OFlags, SealFlags, Stat, fcntl_get_seals, fstat, open, stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The log, mapped, and the job's space in it.
pub(crate) struct Segment {
    start: NonNull<AtomicU32>,
    /// Of the mapping, in words.
    words: usize,
    /// How many of them are the index.
    index: usize,
    seed: u32,
    space: u32,
}

// SAFETY: whichever thread looks, the memory is only read, as atomic numbers, and stays until the value is dropped.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Why an offer is not taken: gets go to the server then, as they would without it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Declined {
    #[error("it is of another version, or none at all")]
    Version,
    #[error("it is for job {0}")]
    OtherJob(String),
    #[error("its lengths are wrong")]
    Lengths,
    #[error("its path leads to another file")]
    OtherFile,
    #[error("the file may be cut while it is read")]
    Unsealed,
    #[error("{0}")]
    System(#[from] Errno),
}

impl From<TryFromIntError> for Declined {
    fn from(_: TryFromIntError) -> Declined {
        Declined::Lengths
    }
}

const WORD: usize = size_of::<AtomicU32>();

impl Segment {
    /// Takes an offer to a process of that job.
    pub(crate) fn open(offer: &str, jobid: &str) -> Result<Segment, Declined> {
        let offer = Offer::parse(offer).ok_or(Declined::Version)?;
        // One that another launcher's job inherited from the job that started it.
        if offer.jobid != jobid {
            return Err(Declined::OtherJob(offer.jobid.to_owned()));
        }
        let index = usize::try_from(offer.index)?;
        let words = index.checked_add(usize::try_from(offer.log)? / WORD).ok_or(Declined::Lengths)?;
        let len = words.checked_mul(WORD).filter(|&len| len > 0).ok_or(Declined::Lengths)?;
        let is_offered = |stat: Stat| {
            let same = (stat.st_dev, stat.st_ino) == offer.file;
            let long = usize::try_from(stat.st_size).is_ok_and(|size| size >= len);
            if same && long { Ok(()) } else { Err(Declined::OtherFile) }
        };
        // Before it is opened: with some files that alone would have effects.
        is_offered(stat(offer.path)?)?;
        let file = open(offer.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        is_offered(fstat(&file)?)?;
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(Declined::Unsealed);
        }
        // SAFETY: a mapping of its own wherever the system finds room; it stays until `drop`.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Declined::Lengths)?;
        let segment = Segment { start, words, index, seed: offer.seed, space: offer.space };
        segment.view().ok_or(Declined::Lengths)?;
        Ok(segment)
    }

    fn view(&self) -> Option<LogView<'_>> {
        // SAFETY: the mapping, which starts at a page and cannot get shorter. Who writes to it is another process,
        // which is what atomic numbers are for.
        let words = unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) };
        let (index, log) = words.split_at_checked(self.index)?;
        LogView::new(log, index, self.seed)
    }

    /// The value of a key of the job's, at the front of `buf`. Nothing where the server has to be asked.
    pub(crate) fn get<'b>(&self, key: &[u8], buf: &'b mut [u8]) -> Option<&'b [u8]> {
        let len = self.view()?.get(self.space, key, buf)?;
        buf.get(..usize::try_from(len).ok()?)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody borrows any more. That it is there is why this cannot fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}
