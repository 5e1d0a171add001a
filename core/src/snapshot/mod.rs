//! Snapshots: the whole state as bytes. Equal states give equal bytes.
//!
//! A snapshot is [`HEADER`], a `State` in postcard, and a digest of both (little-endian), which finds damage. Whoever
//! made it up knows the digest too, so that nothing that is read is believed before the server has checked it.

mod read;

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use crate::limits::Limits;
use crate::peer::links::Link;
use crate::peer::tree::Tree;
use crate::state::{Conn, Job, RankSlot};
use crate::store::bytes::in_one_piece;
use crate::store::log::hash;
use crate::tables::fence::Group;
use crate::tables::kvs::Usage;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;
use crate::time::Time;

pub(crate) use read::Reader;
pub use read::limits;

/// What a snapshot begins with: a name, and the version of what follows.
pub const HEADER: [u8; 8] = *b"hydrant\x01";
/// Bytes of the digest at the end.
pub const DIGEST: usize = 4;

/// Everything that decides what a server says next. The index of the log and the set of ready connections follow
/// from the rest.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct State<'a> {
    /// What the slabs are sized by.
    pub(crate) limits: Limits,
    /// What spreads the index of the log.
    pub(crate) seed: u32,
    /// All job slots.
    pub(crate) jobs: &'a [Job],
    /// All rank slots.
    pub(crate) ranks: &'a [RankSlot],
    /// All connection slots.
    pub(crate) conns: &'a [Conn],
    /// The key-value log.
    #[serde(serialize_with = "in_one_piece")]
    pub(crate) log: &'a [u8],
    /// What is set aside and spared in it, and the number of the newest spaces.
    pub(crate) kvs: (Usage, Usage, u32),
    /// All group slots.
    pub(crate) groups: &'a [Group],
    /// Their sets.
    pub(crate) sets: &'a [u32],
    /// All name slots.
    pub(crate) names: &'a [Name],
    /// All slots of requests that the host carries out.
    pub(crate) upcalls: &'a [Upcall],
    /// Their texts.
    #[serde(serialize_with = "in_one_piece")]
    pub(crate) requests: &'a [u8],
    /// All process sets, their members, and the last one's number.
    pub(crate) psets: (&'a [Pset], &'a [u32], u32),
    /// Which jobs are connected.
    pub(crate) connections: &'a [u32],
    /// The links in use, which node this is, and the tree.
    pub(crate) links: (&'a [Link], u32, Tree),
    /// How many processes have ended.
    pub(crate) ends: u32,
    /// Which connection's turn it is.
    pub(crate) turn: u32,
    /// When the next tick matters.
    pub(crate) wake: Option<Time>,
}

/// Writes a state to the front of `buf`. Returns `None` when `buf` is too short.
pub(crate) fn write<'b>(state: &State<'_>, buf: &'b mut [u8]) -> Option<&'b [u8]> {
    let (header, rest) = buf.split_first_chunk_mut::<{ HEADER.len() }>()?;
    *header = HEADER;
    let room = rest.len();
    let body = Some(put(state, rest)).filter(|&len| len <= room)?;
    let end = HEADER.len() + body;
    let digest = digest(&buf[..end]);
    let place = buf[end..].first_chunk_mut::<DIGEST>()?;
    *place = digest;
    Some(&buf[..end + DIGEST])
}

/// The length of what [`write()`] writes, in bytes.
pub(crate) fn len(state: &State<'_>) -> usize {
    HEADER.len() + put(state, &mut []) + DIGEST
}

/// Writes a state's postcard as far as it fits; its whole length.
fn put(state: &State<'_>, buf: &mut [u8]) -> usize {
    // Nothing in a state refuses to be serialized.
    postcard::serialize_with_flavor(state, Room { buf, len: 0 }).unwrap_or(0)
}

/// Takes as much as it has room for, and counts everything: so the same code measures a snapshot and writes it.
struct Room<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl Flavor for Room<'_> {
    type Output = usize;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        let room = self.buf.get_mut(self.len..).and_then(|room| room.get_mut(..bytes.len()));
        if let Some(room) = room {
            room.copy_from_slice(bytes);
        }
        self.len += bytes.len();
        Ok(())
    }

    fn finalize(self) -> postcard::Result<usize> {
        Ok(self.len)
    }
}

fn digest(bytes: &[u8]) -> [u8; DIGEST] {
    hash(0, bytes).to_le_bytes()
}
