//! Snapshots: the whole state as bytes. Equal states give equal bytes.
//!
//! A snapshot is [`HEADER`], a `State` in postcard, and a digest of both (little-endian), which detects damage. The
//! digest does not authenticate: a snapshot is untrusted until the server has validated it.

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

/// Start of a snapshot: a name, and the version of the format.
pub const HEADER: [u8; 8] = *b"hydrant\x01";
/// Length of the digest in bytes.
pub const DIGEST: usize = 4;

/// State that determines all further output of a server. The index of the log and the set of ready connections are
/// derived from it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct State<'a> {
    /// Limits, from which the lengths of the slabs follow.
    pub(crate) limits: Limits,
    /// Hash seed of the log.
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
    /// Reserved usage, rest of the common half, what the last compaction had to keep, and number of the newest spaces.
    pub(crate) kvs: (Usage, Usage, u32, u32),
    /// All group slots.
    pub(crate) groups: &'a [Group],
    /// Sets of the groups.
    pub(crate) sets: &'a [u32],
    /// All name slots.
    pub(crate) names: &'a [Name],
    /// All upcall slots.
    pub(crate) upcalls: &'a [Upcall],
    /// Texts of the upcalls.
    #[serde(serialize_with = "in_one_piece")]
    pub(crate) requests: &'a [u8],
    /// Messages of aborts.
    #[serde(serialize_with = "in_one_piece")]
    pub(crate) messages: &'a [u8],
    /// Process sets, their members, and the last serial number.
    pub(crate) psets: (&'a [Pset], &'a [u32], u32),
    /// Relation of connected jobs.
    pub(crate) connections: &'a [u32],
    /// Links in use, number of this node, the tree, and the epoch of membership.
    pub(crate) links: (&'a [Link], u32, Tree, u32),
    /// Requests for data of ranks on other nodes.
    pub(crate) modex: &'a [u32],
    /// Number of processes that have exited.
    pub(crate) ends: u32,
    /// Lower bound of the next connection in turn.
    pub(crate) turn: u32,
    /// Time at which the next timeout is due.
    pub(crate) wake: Option<Time>,
    /// Last context id of a PMIx group.
    pub(crate) contexts: u32,
    /// Number of the last event that a PMIx client has sent.
    pub(crate) notices: u32,
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

/// Returns the length of the output of [`write()`] in bytes.
pub(crate) fn len(state: &State<'_>) -> usize {
    HEADER.len() + put(state, &mut []) + DIGEST
}

/// Writes a state in postcard as far as it fits. Returns the full length.
fn put(state: &State<'_>, buf: &mut [u8]) -> usize {
    // Serialization of a state does not fail.
    postcard::serialize_with_flavor(state, Room { buf, len: 0 }).unwrap_or(0)
}

/// Buffer that stores as much as fits, and counts everything. The same code measures and writes a snapshot.
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
