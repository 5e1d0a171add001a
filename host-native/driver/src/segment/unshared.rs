//! No shared memory segment: FreeBSD and macOS have no memory that only one process can write to and others can open. Ranks
//! ask the server for values.

use std::sync::atomic::AtomicU32;

use hydrant_core::storage::Layout;

use super::Sharing;

/// Mapped memory that ranks may read. There is none.
#[derive(Debug)]
pub(crate) enum Segment {}

impl Segment {
    /// Returns none.
    pub(crate) fn new(_: &Layout) -> Option<Segment> {
        None
    }

    /// Lends out the log and the index.
    pub(crate) fn lend(&mut self) -> (&mut [u8], &[AtomicU32]) {
        match *self {}
    }

    /// Returns the location for ranks.
    pub(crate) fn sharing(&self, _: u32) -> Option<Sharing> {
        match *self {}
    }
}
