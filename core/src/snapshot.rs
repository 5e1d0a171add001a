//! The whole state as bytes (postcard): equal states, equal bytes.

use serde::Serialize;

use crate::fault::Fault;
use crate::limits::Limits;
use crate::slabs::{Conn, Job, RankSlot};
use crate::tables::errands::Errand;
use crate::tables::fence::Group;
use crate::tables::kvs::Amount;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::time::Time;

/// Everything that decides what a server says next. The index of the log and the set of ready connections follow
/// from the rest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct State<'a> {
    /// What the slabs are sized by.
    pub limits: Limits,
    /// All job slots.
    pub jobs: &'a [Job],
    /// All rank slots.
    pub ranks: &'a [RankSlot],
    /// All connection slots.
    pub conns: &'a [Conn],
    /// The key-value log, what is set aside in it, and the number of the newest spaces.
    pub kvs: (&'a [u8], Amount, u32),
    /// All group slots.
    pub groups: &'a [Group],
    /// Their sets.
    pub sets: &'a [u32],
    /// All name slots.
    pub names: &'a [Name],
    /// All slots of requests that the host carries out, and their texts.
    pub errands: (&'a [Errand], &'a [u8]),
    /// All process sets, their members, and the last one's number.
    pub psets: (&'a [Pset], &'a [u32], u32),
    /// Which jobs are connected.
    pub connections: &'a [u32],
    /// Which connection's turn it is.
    pub turn: u32,
    /// When the next tick matters.
    pub wake: Option<Time>,
}

/// Writes a state to the front of `buf`.
///
/// # Errors
/// [`Fault::ShortSlab`] when `buf` is too short.
pub fn write<'b>(state: &State<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], Fault> {
    postcard::to_slice(state, buf).map(|bytes| &*bytes).map_err(|_| Fault::ShortSlab)
}
