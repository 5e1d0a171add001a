//! Reader of snapshots.

use serde::Deserialize;

use super::{DIGEST, HEADER, digest};
use crate::fault::{Damage, Fault};
use crate::limits::Limits;
use crate::storage::Layout;

const MISREAD: Fault = Fault::Snapshot(Damage::Encoding);

/// What has not been read of a snapshot yet.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts to read a snapshot that is whole.
    ///
    /// # Errors
    /// [`Fault::Snapshot`]
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Fault> {
        let (whole, end) = bytes.split_last_chunk::<DIGEST>().ok_or(Fault::Snapshot(Damage::Header))?;
        let rest = whole.strip_prefix(&HEADER).ok_or(Fault::Snapshot(Damage::Header))?;
        if digest(whole) != *end {
            return Err(Fault::Snapshot(Damage::Digest));
        }
        Ok(Reader { rest })
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Fault::Snapshot`]
    pub(crate) fn take<T: Deserialize<'a>>(&mut self) -> Result<T, Fault> {
        let (value, rest) = postcard::take_from_bytes(self.rest).map_err(|_| MISREAD)?;
        self.rest = rest;
        Ok(value)
    }

    /// Reads as many values as `slab` has room for.
    ///
    /// # Errors
    /// [`Fault::Snapshot`]
    pub(crate) fn fill<T: Deserialize<'a>>(&mut self, slab: &mut [T]) -> Result<(), Fault> {
        if usize::try_from(self.take::<u32>()?) != Ok(slab.len()) {
            return Err(MISREAD);
        }
        slab.iter_mut().try_for_each(|slot| self.take().map(|value| *slot = value))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] when something follows.
    pub(crate) fn end(self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(MISREAD) }
    }
}

/// The limits of the server that a snapshot is of, so that a host can make room for it: it is for the host to say
/// whether they are what it wants.
///
/// # Errors
/// [`Fault::Snapshot`] for what is no snapshot, and for limits that no memory can hold.
pub fn limits(snapshot: &[u8]) -> Result<Limits, Fault> {
    let limits = Reader::new(snapshot)?.take()?;
    Layout::checked(&limits).map(|_| limits).ok_or(Fault::Snapshot(Damage::Limits))
}
