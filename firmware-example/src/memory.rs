//! All memory: tables and buffers of the firmware with their sizes and places. The stack is the only other memory.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use hydrant_core::limits::{Limits, MESSAGE_TEXT_MAX};
use hydrant_core::manage::OpenNode;
use hydrant_core::manage::server::HostSlot;
use hydrant_core::server::call::{BYTES_MAX, Callee, call_max, return_max};
use hydrant_core::server::link::link_record_max;
use hydrant_core::server::remote::{NODE_PREFIX, request_max};
use hydrant_core::storage::FixedStorage;
use hydrant_core::{fixed_storage, manage};
use smoltcp::iface::SocketStorage;
use static_cell::{ConstStaticCell, StaticCell};

use crate::{noise, secret};

#[cfg(all(feature = "links", feature = "pmix", feature = "lm3s6965evb"))]
compile_error!("lm3s6965evb has no room for the features links and pmix together");
#[cfg(all(feature = "spares", feature = "pmix", feature = "lm3s6965evb"))]
compile_error!("lm3s6965evb has no room for the features spares and pmix together");
#[cfg(all(feature = "spares", feature = "links", feature = "lm3s6965evb"))]
compile_error!("lm3s6965evb has no room for the features spares and links together");

/// Number of ranks: `HYDRANT_RANKS` of the build, or the default of the board.
pub(crate) const RANKS: u32 = match option_env!("HYDRANT_RANKS") {
    Some(text) => number(text),
    None if cfg!(feature = "lm3s6965evb") => 16,
    None => 128,
};
/// Additional clients before their handshake.
pub(crate) const SPARE: u32 = 4;
/// Bytes of key-value log for each rank. MPICH puts little on one node, and the addresses of all ranks on several.
const RANK_BYTES: u32 = match () {
    () if !TREES => 512,
    () if cfg!(feature = "lm3s6965evb") => 1024,
    () => 4096,
};
/// Clients that can connect at the same time: `HYDRANT_CLIENTS` of the build, or all ranks. A node of a run has few of
/// the run's ranks.
pub(crate) const CLIENTS: usize = match option_env!("HYDRANT_CLIENTS") {
    Some(text) => number(text) as usize,
    None => (RANKS + SPARE) as usize,
};
/// Boards of children that can link themselves to this one. Trees of runs have eight children for each node. The small board
/// has no room for their messages.
pub(crate) const CHILDREN: usize =
    if cfg!(feature = "links") && !cfg!(feature = "lm3s6965evb") { 8 } else { 0 };
/// Connections to the boards of parents: one, of a board with links.
pub(crate) const PARENTS: usize = if cfg!(feature = "links") { 1 } else { 0 };
/// Links of a node to the boards of other nodes.
pub(crate) const BOARD_LINKS: usize = PARENTS + CHILDREN;
/// Connections to the management port: one of a node, one that asks or is refused, and those of children's boards.
pub(crate) const LINKS: usize = 2 + CHILDREN;

/// Receive and transmit buffer of a client. Most messages are shorter; longer ones go through [`LONG`].
pub(crate) const CLIENT_BUFFER: usize = 384;
/// Whether the board serves nodes of runs on several hosts, and has room for spawned jobs.
pub(crate) const TREES: bool = cfg!(feature = "nodes");
/// Whether hosts may call the server of a node, and keep connections and the time.
pub(crate) const CALLS: bool = cfg!(feature = "spares");
/// Receive buffer of a management connection.
const LINK_RX_BUFFER: usize = match () {
    () if (CHILDREN > 0 || CALLS) && !IS_SHORT => 4096,
    () => LINK_RX,
};
/// Longest record of a management connection, or with a [secret](crate::secret) the longest frame.
pub(crate) const LINK_RX: usize =
    manage::PREFIX + manage::RECORD_MAX + if secret::IS_SET { noise::OVERHEAD } else { 0 };
/// Longest frame behind an incomplete record, of a board with a [secret](crate::secret).
const FRAME_IN: usize = if secret::IS_SET { LINK_RX } else { 0 };
/// Transmit buffer of a management connection: a reply, and some reports or the longest message for another board.
const LINK_TX: usize = match () {
    () if CHILDREN > 0 => LINK_RX + on_link(&LIMITS),
    // The handshake needs most of the small board's stack.
    () if secret::IS_SET && cfg!(feature = "lm3s6965evb") => LINK_RX,
    () => 2 * LINK_RX,
};
/// Transmit buffer of the connection to the parent's board.
const PARENT_TX: usize = on_link(&LIMITS);
/// Longest message of a client: a put of the longest value, each byte escaped, fits.
pub(crate) const LONG: usize = 2304;
/// Longest frame, its header included. The board tells its peers, but QEMU's network ignores that on connections that the board
/// has made. On these the receive buffer limits the frames, too.
pub(crate) const FRAME: usize = if CHILDREN > 0 { 1514 } else { 640 };
const _: () = assert!(FRAME == 1514 || PARENTS == 0 || FRAME_HEADERS + LINK_RX_BUFFER <= FRAME);
/// Shortest headers of a frame with TCP.
const FRAME_HEADERS: usize = 54;

/// Links and spares leave the small board so little RAM that the tables are smaller: no job can be spawned.
const IS_SHORT: bool = (BOARD_LINKS > 0 || CALLS) && cfg!(feature = "lm3s6965evb");
const _: () =
    assert!(!IS_SHORT || !secret::IS_SET, "lm3s6965evb has no room for links or spares with a secret");

/// Jobs at the same time: one, and those that its ranks spawn. Each has a port.
pub(crate) const JOBS: usize = match () {
    () if !TREES || IS_SHORT => 1,
    () if cfg!(feature = "lm3s6965evb") => 3,
    () => 8,
};
/// Bytes of an upcall: files that PMIx clients leave, names, and programs to spawn. The longest message of a client has room for
/// no more than that of the large board.
const UPCALL: u32 = match () {
    () if !TREES => MESSAGE_TEXT_MAX as u32,
    () if IS_SHORT => 512,
    () if cfg!(feature = "lm3s6965evb") => 1024,
    () => LONG as u32,
};

/// Capacities of the server.
pub(crate) const LIMITS: Limits = Limits {
    jobs: JOBS as u32,
    ranks: RANKS,
    conns: CLIENTS as u32,
    keys: 8 * RANKS,
    kvs_bytes: RANK_BYTES * RANKS,
    groups: 4,
    // A node's are kept by its host.
    names: if IS_SHORT { 0 } else { 2 },
    // A set for each node that a job of a run has ranks on, and up to four for each job.
    psets: match () {
        () if !TREES => 4,
        () if IS_SHORT => 8,
        () if cfg!(feature = "lm3s6965evb") => 16,
        () => 64,
    },
    links: match () {
        () if !TREES => 0,
        // The head is one more child of the root.
        () if BOARD_LINKS > 0 => 9,
        () => 8,
    },
    spawns: match () {
        () if JOBS > 4 => 4,
        () if UPCALL > 0 => 2,
        () => 0,
    },
    spawn_bytes: UPCALL,
    commit_bytes: if cfg!(feature = "pmix") { 1024 } else { 0 },
    ..Limits::NONE
};
/// Capacities of the server of the [configured](crate::config) job. The board starts no processes, so its upcalls have no room
/// for spawns.
pub(crate) const OWN_LIMITS: Limits = Limits { jobs: 1, spawn_bytes: MESSAGE_TEXT_MAX as u32, ..LIMITS };
/// Largest limits of a run whose node the board serves. The numbers of connections, names and upcalls are the board's own.
pub(crate) const NODE_LIMITS: Limits =
    Limits { conns: u32::MAX, names: u32::MAX, spawns: u32::MAX, ..LIMITS };

/// Capacities of the tables. A node that is called has connections of its host: of each rank its own, one of PMIx and one for
/// queries, and as many before their handshake as other hosts have. The small board has room for those of its clients.
const TABLES: Limits = match CALLS {
    true if IS_SHORT => Limits { conns: 3 * CLIENTS as u32, ..LIMITS },
    true => Limits { conns: 3 * RANKS + 64, names: 16, spawns: 16, ..LIMITS },
    false => LIMITS,
};
/// Maximum length of a client's bytes in a call: as much as other hosts read, or on the small board a message.
pub(crate) const CALL_BYTES: usize = if IS_SHORT { LONG } else { BYTES_MAX };

/// Largest limits of the server of a node. One with a seed is called.
pub(crate) const fn most_of_node(open: &OpenNode) -> &'static Limits {
    if CALLS && open.seed.is_some() { &TABLES } else { &LIMITS }
}

/// Limits of the server of a node: of connections, names and upcalls at most its own.
pub(crate) fn limits_of_node(open: &OpenNode) -> Limits {
    let (run, most) = (&open.limits, most_of_node(open));
    Limits {
        conns: run.conns.min(most.conns),
        names: run.names.min(most.names),
        spawns: run.spawns.min(most.spawns),
        ..*run
    }
}
/// Bytes of a record of a node that are sent at once, in a frame if the board has a secret.
pub(crate) const CHUNK: usize = 256;
/// Most bytes that a message for another board takes in the buffer of its socket, in a run with these limits.
pub(crate) const fn on_link(run: &Limits) -> usize {
    let len = NODE_PREFIX + link_record_max(run);
    if secret::IS_SET { len + len.div_ceil(CHUNK) * noise::OVERHEAD } else { len }
}
/// Size of the buffer for the messages of another board, in bytes: one record, and a frame behind an incomplete one.
const INBOX: usize = NODE_PREFIX + link_record_max(&LIMITS) + FRAME_IN;
/// Size of the buffer for requests of a node's host, in bytes: the same.
const REQUESTS: usize = match CALLS {
    true => NODE_PREFIX + call_max(&TABLES, CALL_BYTES) + FRAME_IN,
    false => NODE_PREFIX + request_max(&LIMITS) + FRAME_IN,
};
/// Size of the buffer for a return of a call, in bytes.
const RETURNS: usize = match CALLS {
    true if IS_SHORT => Callee::buffer_min(&TABLES),
    true => return_max(&TABLES),
    false => 0,
};
/// Size of the buffer for one output, in bytes.
pub(crate) const REPLY: usize = LIMITS.output_room();

/// Seed of the server's hash table.
pub(crate) const SEED: u32 = 0x6879_6472;

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("HYDRANT_RANKS or HYDRANT_CLIENTS is not a number"),
    }
}

/// Fills a static array at run time, in place: it costs no flash and no stack.
fn fill<T, const N: usize>(
    cell: &'static StaticCell<[MaybeUninit<T>; N]>,
    mut item: impl FnMut(usize) -> T,
) -> &'static mut [T] {
    let items = cell.init_with(|| [const { MaybeUninit::uninit() }; N]);
    for (at, slot) in items.iter_mut().enumerate() {
        slot.write(item(at));
    }
    // SAFETY: each of the N items has just been written.
    unsafe { &mut *(core::ptr::from_mut(items) as *mut [T; N]) }
}

macro_rules! place {
    ($name:ident: [$item:ty; $len:expr] = $new:expr) => {{
        static $name: StaticCell<[MaybeUninit<$item>; $len]> = StaticCell::new();
        fill(&$name, $new)
    }};
}

/// The core's tables.
pub(crate) type Tables = fixed_storage!(TABLES);

/// The core's tables. Called once.
pub(crate) fn tables() -> &'static mut Tables {
    static STORAGE: ConstStaticCell<Tables> = ConstStaticCell::new(FixedStorage::new());
    STORAGE.take()
}

/// Room for the requests of a node's host. Called once.
pub(crate) fn requests() -> &'static mut [u8] {
    place!(REQUEST_BUFFER: [u8; REQUESTS] = |_| 0)
}

/// Room for a return of a call. Called once.
pub(crate) fn returns() -> &'static mut [u8] {
    place!(RETURN_BUFFER: [u8; RETURNS] = |_| 0)
}

/// Room for the messages of each board that a node is linked to. Called once.
pub(crate) fn inboxes() -> impl Iterator<Item = &'static mut [u8]> {
    place!(INBOXES: [[u8; INBOX]; BOARD_LINKS] = |_| [0; INBOX]).iter_mut().map(|inbox| &mut inbox[..])
}

/// Returns the socket storage of smoltcp, without the buffers. Called once.
pub(crate) fn sockets() -> &'static mut [SocketStorage<'static>] {
    place!(SOCKETS: [SocketStorage<'static>; CLIENTS + LINKS + PARENTS] = |_| SocketStorage::EMPTY)
}

/// Receive and transmit buffers of all clients. Called once.
pub(crate) fn client_buffers() -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    pairs(place!(CLIENT_BUFFERS: [[[u8; CLIENT_BUFFER]; 2]; CLIENTS] = |_| [[0; CLIENT_BUFFER]; 2]))
}

fn pairs<const N: usize>(all: &'static mut [[[u8; N]; 2]]) -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    all.iter_mut().map(|pair| pair.each_mut().map(|buffer| &mut buffer[..]))
}

/// Receive and transmit buffers of the management connections. Called once.
pub(crate) fn link_buffers() -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    let receive = place!(LINK_RX_BUFFERS: [[u8; LINK_RX_BUFFER]; LINKS] = |_| [0; LINK_RX_BUFFER]);
    let transmit = place!(LINK_TX_BUFFERS: [[u8; LINK_TX]; LINKS] = |_| [0; LINK_TX]);
    zipped(receive, transmit)
}

fn zipped<const R: usize, const T: usize>(
    receive: &'static mut [[u8; R]],
    transmit: &'static mut [[u8; T]],
) -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    receive.iter_mut().zip(transmit).map(|(receive, transmit)| [&mut receive[..], &mut transmit[..]])
}

/// Receive and transmit buffer of the connection to the parent's board, if the board has links. Called once.
pub(crate) fn parent_buffers() -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    let receive = place!(PARENT_RX_BUFFER: [[u8; LINK_RX_BUFFER]; PARENTS] = |_| [0; LINK_RX_BUFFER]);
    let transmit = place!(PARENT_TX_BUFFER: [[u8; PARENT_TX]; PARENTS] = |_| [0; PARENT_TX]);
    zipped(receive, transmit)
}

/// Slots of the management server. Called once.
pub(crate) fn host_slots() -> &'static mut [HostSlot] {
    place!(HOST_SLOTS: [HostSlot; LINKS] = |_| HostSlot::EMPTY)
}

/// Room for a frame each way. Called once.
pub(crate) fn frames() -> [&'static mut [u8; FRAME]; 2] {
    static FRAMES: StaticCell<[[u8; FRAME]; 2]> = StaticCell::new();
    FRAMES.init_with(|| [[0; FRAME]; 2]).each_mut()
}

/// Returns a number that differs at each start, so that connections get other numbers than before. It counts up from
/// the contents of RAM at power-on.
pub(crate) fn count_start() -> u32 {
    #[unsafe(link_section = ".uninit.STARTS")]
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let at = STARTS.as_ptr();
    // SAFETY: this function is the only user, and any bits are a valid number. The accesses are volatile, because the
    // value survives from the previous start and is read by the next one.
    unsafe {
        at.write_volatile(at.read_volatile().wrapping_add(1));
        at.read_volatile()
    }
}

/// Room for a reply, and for a message that its connection's buffer is too short for. Called once.
pub(crate) fn scratch() -> (&'static mut [u8], &'static mut [u8]) {
    (place!(REPLY_BUFFER: [u8; REPLY] = |_| 0), place!(LONG_BUFFER: [u8; LONG] = |_| 0))
}
