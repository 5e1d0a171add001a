//! All memory: tables and buffers of the firmware with their sizes and places. The stack is the only other memory.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use hydrant_core::fixed_storage;
use hydrant_core::limits::{Limits, MESSAGE_TEXT_MAX};
use hydrant_core::manage::server::HostSlot;
use hydrant_core::storage::{FixedStorage, Storage};
use hydrant_embedded::{Board, Sizes};
#[cfg(not(feature = "embassy"))]
use hydrant_embedded::{Links, Slot};
#[cfg(not(feature = "embassy"))]
use smoltcp::iface::SocketHandle;
use smoltcp::iface::SocketStorage;
use static_cell::{ConstStaticCell, StaticCell};

use crate::board::FRAME;
#[cfg(not(feature = "embassy"))]
use crate::net::Net;
use crate::{board, secret, stack, time};
#[cfg(feature = "embassy")]
use hydrant_embassy::Net;

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
const SPARE: u32 = 4;
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
const CHILDREN: usize = if cfg!(feature = "links") && !cfg!(feature = "lm3s6965evb") { 8 } else { 0 };
/// Whether the board serves nodes of runs on several hosts, and has room for spawned jobs.
const TREES: bool = cfg!(feature = "nodes");
/// Links and spares leave the small board so little RAM that the tables are smaller: no job can be spawned.
const IS_SHORT: bool = cfg!(any(feature = "links", feature = "spares")) && cfg!(feature = "lm3s6965evb");
const _: () =
    assert!(!IS_SHORT || !secret::IS_SET, "lm3s6965evb has no room for links or spares with a secret");
/// Bytes of an upcall: files that PMIx clients leave, names, and programs to spawn. The longest message of a client has room for
/// no more than that of the large board.
const UPCALL: u32 = match () {
    () if !TREES => MESSAGE_TEXT_MAX as u32,
    () if IS_SHORT => 512,
    () if cfg!(feature = "lm3s6965evb") => 1024,
    () => ThisBoard::LONG as u32,
};
/// Jobs at the same time: one, and those that its ranks spawn. Each has a port.
const JOBS: u32 = match () {
    () if !TREES || IS_SHORT => 1,
    () if cfg!(feature = "lm3s6965evb") => 3,
    () => 8,
};

/// The board of this build.
pub(crate) struct ThisBoard;

impl Board for ThisBoard {
    type Net = Net;
    type Tables = Tables;

    const NAME: &'static str = board::NAME;
    const SECRET: Option<&'static [u8]> = secret::TEXT;
    const TREES: bool = TREES;
    const CALLS: bool = cfg!(feature = "spares");
    const IS_SHORT: bool = IS_SHORT;
    const PARENTS: usize = if cfg!(feature = "links") { 1 } else { 0 };
    const CHILDREN: usize = CHILDREN;
    const SPARE: u32 = SPARE;
    const LIMITS: Limits = Limits {
        jobs: JOBS,
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
            () if cfg!(feature = "links") => 9,
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

    fn lend(tables: &mut Tables) -> Storage<'_> {
        tables.lend()
    }

    fn millis() -> u64 {
        time::millis()
    }

    fn stack_used() -> u32 {
        stack::used()
    }

    fn ephemeral(secret: &[u8; 32]) -> [u8; 32] {
        secret::ephemeral(secret)
    }

    fn mix(number: u64) {
        secret::mix(number);
    }
}

/// Transmit buffer of a management connection. The handshake needs most of the small board's stack.
const LINK_TX: usize = match () {
    () if CHILDREN == 0 && secret::IS_SET && cfg!(feature = "lm3s6965evb") => ThisBoard::LINK_RX,
    () => ThisBoard::LINK_TX,
};
const _: () =
    assert!(FRAME == 1514 || ThisBoard::PARENTS == 0 || FRAME_HEADERS + ThisBoard::LINK_RX_BUFFER <= FRAME);
/// Shortest headers of a frame with TCP.
const FRAME_HEADERS: usize = 54;

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
pub(crate) type Tables = fixed_storage!(<ThisBoard as Sizes>::TABLES);

/// The core's tables. Called once.
pub(crate) fn tables() -> &'static mut Tables {
    static STORAGE: ConstStaticCell<Tables> = ConstStaticCell::new(FixedStorage::new());
    STORAGE.take()
}

/// Room for the requests of a node's host. Called once.
pub(crate) fn requests() -> &'static mut [u8] {
    place!(REQUEST_BUFFER: [u8; ThisBoard::REQUESTS] = |_| 0)
}

/// Room for a return of a call. Called once.
pub(crate) fn returns() -> &'static mut [u8] {
    place!(RETURN_BUFFER: [u8; ThisBoard::RETURNS] = |_| 0)
}

/// Room for the messages of each board that a node is linked to. Called once.
fn inboxes() -> impl Iterator<Item = &'static mut [u8]> {
    let inboxes =
        place!(INBOXES: [[u8; ThisBoard::INBOX]; ThisBoard::BOARD_LINKS] = |_| [0; ThisBoard::INBOX]);
    inboxes.iter_mut().map(|inbox| &mut inbox[..])
}

#[cfg(not(feature = "embassy"))]
/// Returns the links to other boards, with the socket for the connection to the parent's. Called once.
pub(crate) fn links(parent: SocketHandle) -> &'static mut Links<ThisBoard> {
    static LINKS: StaticCell<Links<ThisBoard>> = StaticCell::new();
    let mut inboxes = inboxes();
    let slot = |_| Slot::new(inboxes.next().unwrap_or_default());
    LINKS.init(Links::new(parent, place!(SLOTS: [Slot<ThisBoard>; ThisBoard::BOARD_LINKS] = slot)))
}

/// Returns the socket storage of smoltcp, without the buffers. Called once.
pub(crate) fn sockets() -> &'static mut [SocketStorage<'static>] {
    place!(SOCKETS: [SocketStorage<'static>; CLIENTS + ThisBoard::LINKS + ThisBoard::PARENTS] = |_| SocketStorage::EMPTY)
}

/// Receive and transmit buffers of all clients. Called once.
pub(crate) fn client_buffers() -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    pairs(
        place!(CLIENT_BUFFERS: [[[u8; ThisBoard::CLIENT_BUFFER]; 2]; CLIENTS] = |_| [[0; ThisBoard::CLIENT_BUFFER]; 2]),
    )
}

fn pairs<const N: usize>(all: &'static mut [[[u8; N]; 2]]) -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    all.iter_mut().map(|pair| pair.each_mut().map(|buffer| &mut buffer[..]))
}

/// Receive and transmit buffers of the management connections. Called once.
pub(crate) fn link_buffers() -> impl Iterator<Item = [&'static mut [u8]; 2]> {
    let receive = place!(LINK_RX_BUFFERS: [[u8; ThisBoard::LINK_RX_BUFFER]; ThisBoard::LINKS] = |_| [0; ThisBoard::LINK_RX_BUFFER]);
    let transmit = place!(LINK_TX_BUFFERS: [[u8; LINK_TX]; ThisBoard::LINKS] = |_| [0; LINK_TX]);
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
    let receive = place!(PARENT_RX_BUFFER: [[u8; ThisBoard::LINK_RX_BUFFER]; ThisBoard::PARENTS] = |_| [0; ThisBoard::LINK_RX_BUFFER]);
    let transmit = place!(PARENT_TX_BUFFER: [[u8; ThisBoard::PARENT_TX]; ThisBoard::PARENTS] = |_| [0; ThisBoard::PARENT_TX]);
    zipped(receive, transmit)
}

/// Slots of the management server. Called once.
pub(crate) fn host_slots() -> &'static mut [HostSlot] {
    place!(HOST_SLOTS: [HostSlot; ThisBoard::LINKS] = |_| HostSlot::EMPTY)
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
pub(crate) fn scratch() -> [&'static mut [u8]; 2] {
    [place!(REPLY_BUFFER: [u8; ThisBoard::REPLY] = |_| 0), place!(LONG_BUFFER: [u8; ThisBoard::LONG] = |_| 0)]
}
