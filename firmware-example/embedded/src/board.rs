//! Differences between boards: sizes, the clock, the secret.

use hydrant_core::limits::{Limits, MESSAGE_TEXT_MAX};
use hydrant_core::manage::{self, OpenNode};
use hydrant_core::server::call::{BYTES_MAX, Callee, call_max, return_max};
use hydrant_core::server::link::link_record_max;
use hydrant_core::server::remote::{NODE_PREFIX, request_max};
use hydrant_core::storage::Storage;

use crate::net::Net;
use crate::noise;

/// Most jobs at the same time.
pub(crate) const JOBS_MAX: usize = 8;
/// Longest frame of a management connection with a secret.
pub const LINK_RX_MAX: usize = manage::PREFIX + manage::RECORD_MAX + noise::OVERHEAD;
/// Bytes of a record of a node that are sent at once, in a frame if the board has a secret.
pub(crate) const CHUNK: usize = 256;
/// Seed of the server's hash table.
pub const SEED: u32 = 0x6879_6472;

/// A board. The sizes are constants, so that a board has no code for what it does not do.
pub trait Board: Sized + 'static {
    /// Its network.
    type Net: Net;
    /// Memory of the server's tables, for [`Sizes::TABLES`].
    type Tables: 'static;

    /// Its name, for people.
    const NAME: &'static str;
    /// Text of the secret that it shares with its hosts. Without one it accepts every host.
    const SECRET: Option<&'static [u8]> = None;
    /// Capacities of the server. At most 8 jobs.
    const LIMITS: Limits;
    /// Additional clients before their handshake, among [`Limits::conns`].
    const SPARE: u32 = 4;
    /// Bytes of a client's socket, each way. Most messages are shorter. Longer ones go through a buffer that all clients share.
    const CLIENT_BUFFER: usize = 384;
    /// Longest message of a client.
    const LONG: usize = 2304;
    /// It serves nodes of runs on several hosts, and has room for spawned jobs.
    const TREES: bool = false;
    /// Hosts may call the server of a node, and keep connections and the time.
    const CALLS: bool = false;
    /// Tables and buffers are as small as can be: no job can be spawned.
    const IS_SHORT: bool = false;
    /// Connections to the boards of parents: 1 of a board with links, or 0.
    const PARENTS: usize = 0;
    /// Boards of children that can link themselves to this one.
    const CHILDREN: usize = 0;

    /// Lends the tables.
    fn lend(tables: &mut Self::Tables) -> Storage<'_>;

    /// Milliseconds since the start.
    fn millis() -> u64;

    /// Most bytes of stack that have been in use, or 0 if that is unknown.
    fn stack_used() -> u32 {
        0
    }

    /// Returns an ephemeral key that this board has not returned before.
    fn ephemeral(secret: &[u8; 32]) -> [u8; 32];

    /// Mixes a number into the next ephemeral keys, if they do not come from a generator.
    fn mix(_number: u64) {}
}

/// Sizes that follow from those of a [`Board`].
pub trait Sizes: Board {
    /// Whether it has a secret.
    const HAS_SECRET: bool = Self::SECRET.is_some();
    /// Bytes in front of a record to send, in its buffer: room for the length of a frame.
    const FRONT: usize = if Self::HAS_SECRET { noise::LENGTH } else { 0 };
    /// Jobs at the same time.
    const JOBS: usize = Self::LIMITS.jobs as usize;
    /// Clients at the same time.
    const CLIENTS: usize = Self::LIMITS.conns as usize;
    /// Links of a node to the boards of other nodes.
    const BOARD_LINKS: usize = Self::PARENTS + Self::CHILDREN;
    /// Connections to the management port: one of a node, one that asks or is refused, and those of children's boards.
    const LINKS: usize = 2 + Self::CHILDREN;
    /// Longest record of a management connection, or with a secret the longest frame.
    const LINK_RX: usize =
        manage::PREFIX + manage::RECORD_MAX + if Self::HAS_SECRET { noise::OVERHEAD } else { 0 };
    /// Receive buffer of a management connection.
    const LINK_RX_BUFFER: usize =
        if (Self::CHILDREN > 0 || Self::CALLS) && !Self::IS_SHORT { 4096 } else { Self::LINK_RX };
    /// Transmit buffer of a management connection: a reply, and some reports or the longest message for another board.
    const LINK_TX: usize =
        if Self::CHILDREN > 0 { Self::LINK_RX + on_link::<Self>(&Self::LIMITS) } else { 2 * Self::LINK_RX };
    /// Transmit buffer of the connection to the parent's board.
    const PARENT_TX: usize = on_link::<Self>(&Self::LIMITS);
    /// Capacities of the server of the board's own job. The board starts no processes, so its upcalls have no room for spawns.
    const OWN_LIMITS: Limits = Limits { jobs: 1, spawn_bytes: MESSAGE_TEXT_MAX as u32, ..Self::LIMITS };
    /// Largest limits of a run whose node the board serves. The numbers of connections, names and upcalls are the board's own.
    const NODE_LIMITS: Limits = Limits { conns: u32::MAX, names: u32::MAX, spawns: u32::MAX, ..Self::LIMITS };
    /// Capacities of the tables. A node that is called has connections of its host: of each rank its own, one of PMIx and one for
    /// queries, and as many before their handshake as other hosts have. A small board has room for those of its clients.
    const TABLES: Limits = match Self::CALLS {
        true if Self::IS_SHORT => Limits { conns: 3 * Self::LIMITS.conns, ..Self::LIMITS },
        true => Limits { conns: 3 * Self::LIMITS.ranks + 64, names: 16, spawns: 16, ..Self::LIMITS },
        false => Self::LIMITS,
    };
    /// Maximum length of a client's bytes in a call: as much as other hosts read, or on a small board a message.
    const CALL_BYTES: usize = if Self::IS_SHORT { Self::LONG } else { BYTES_MAX };
    /// Longest frame behind an incomplete record.
    const FRAME_IN: usize = if Self::HAS_SECRET { Self::LINK_RX } else { 0 };
    /// Size of the buffer for the messages of another board, in bytes: one record, and a frame behind an incomplete one.
    const INBOX: usize = NODE_PREFIX + link_record_max(&Self::LIMITS) + Self::FRAME_IN;
    /// Size of the buffer for requests of a node's host, in bytes: the same.
    const REQUESTS: usize = match Self::CALLS {
        true => NODE_PREFIX + call_max(&Self::TABLES, Self::CALL_BYTES) + Self::FRAME_IN,
        false => NODE_PREFIX + request_max(&Self::LIMITS) + Self::FRAME_IN,
    };
    /// Size of the buffer for a return of a call, in bytes.
    const RETURNS: usize = match Self::CALLS {
        true if Self::IS_SHORT => Callee::buffer_min(&Self::TABLES),
        true => return_max(&Self::TABLES),
        false => 0,
    };
    /// Size of the buffer for one output, in bytes.
    const REPLY: usize = Self::LIMITS.output_room();
}

impl<B: Board> Sizes for B {}

/// Largest limits of the server of a node. One with a seed is called.
pub(crate) const fn most_of_node<B: Board>(open: &OpenNode) -> &'static Limits {
    if B::CALLS && open.seed.is_some() { &B::TABLES } else { &B::LIMITS }
}

/// Limits of the server of a node: of connections, names and upcalls at most its own.
pub(crate) fn limits_of_node<B: Board>(open: &OpenNode) -> Limits {
    let (run, most) = (&open.limits, most_of_node::<B>(open));
    Limits {
        conns: run.conns.min(most.conns),
        names: run.names.min(most.names),
        spawns: run.spawns.min(most.spawns),
        ..*run
    }
}

/// Most bytes that a message for another board takes in the buffer of its socket, in a run with these limits.
pub(crate) const fn on_link<B: Board>(run: &Limits) -> usize {
    let len = NODE_PREFIX + link_record_max(run);
    if B::SECRET.is_some() { len + len.div_ceil(CHUNK) * noise::OVERHEAD } else { len }
}

/// Name of a socket of a board.
pub(crate) type Handle<B> = <<B as Board>::Net as Net>::Handle;
