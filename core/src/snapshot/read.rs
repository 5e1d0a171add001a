//! Reader of snapshots.

use serde::Deserialize;

use super::{DIGEST, HEADER, digest};
use crate::fault::{Damage, Fault};
use crate::limits::Limits;
use crate::storage::Layout;

const MISREAD: Fault = Fault::Snapshot(Damage::Encoding);

/// Rest of a snapshot that has not been read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts to read a snapshot, after checking its header and digest.
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
        if self.fill_front(slab)? == slab.len() { Ok(()) } else { Err(MISREAD) }
    }

    /// Reads values to the front of `slab`. Returns their number.
    ///
    /// # Errors
    /// [`Fault::Snapshot`]
    pub(crate) fn fill_front<T: Deserialize<'a>>(&mut self, slab: &mut [T]) -> Result<usize, Fault> {
        let count = usize::try_from(self.take::<u32>()?).map_err(|_| MISREAD)?;
        let front = slab.get_mut(..count).ok_or(MISREAD)?;
        front.iter_mut().try_for_each(|slot| self.take().map(|value| *slot = value))?;
        Ok(count)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] if bytes are left.
    pub(crate) fn end(self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(MISREAD) }
    }
}

/// Returns the limits of a snapshot's server, so that a host can provide storage. The host decides whether it accepts
/// them.
///
/// # Errors
/// [`Fault::Snapshot`] for bytes that are not a snapshot, and for limits that exceed the address space.
pub fn limits(snapshot: &[u8]) -> Result<Limits, Fault> {
    let limits = Reader::new(snapshot)?.take()?;
    Layout::checked(&limits).map(|_| limits).ok_or(Fault::Snapshot(Damage::Limits))
}
