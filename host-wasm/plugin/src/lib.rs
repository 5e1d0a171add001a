//! The protocol core as a WebAssembly module: `hydrant.wasm`, which serves PMI to whoever loads it.
//!
//! It imports nothing, so all that it can do is answer calls. `docs/wasm-abi.md` describes them. Records pass as
//! postcard through two buffers in this module's memory, whose addresses and sizes it tells; a call takes the length of
//! the record that the host wrote and returns the length of the one that it may read.
//!
//! One instance serves one server, and lives as long as that.
#![no_std]

mod memory;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::server::Consumed;
use hydrant_core::storage::Layout;
use hydrant_core::{Fault, Input, Limits, Output, Server, Time, snapshot};
use memory::{Buffer, Cell};
use serde::{Deserialize, Serialize};

/// The version of what this module and its host say to each other.
const ABI: u32 = 1;
/// What [`Input::Bytes`] begins with.
const BYTES: u8 = 17;
/// Room for the longest input: what the host may hold of a connection's bytes, and the record around them.
const INPUT_MAX: usize = 4 * MESSAGE_MAX as usize + 64;
/// Room for the longest output, and the record around it.
const OUTPUT_MAX: usize = MESSAGE_MAX as usize + 64;

static INPUT: Buffer<INPUT_MAX> = Buffer::new();
static OUTPUT: Buffer<OUTPUT_MAX> = Buffer::new();
/// Where the core writes what an output carries, before it becomes part of the record.
static TEXT: Buffer<{ MESSAGE_MAX as usize }> = Buffer::new();
/// The memory that a snapshot was written to, or is to be restored from.
static SNAPSHOT: Cell<&'static mut [u8]> = Cell::new(&mut []);
static SERVER: Cell<Option<Server<'static>>> = Cell::new(None);

/// Why a call was of no use. Nothing was changed.
#[derive(Clone, Copy, Debug, Serialize)]
enum Refused {
    /// The core's reason.
    Fault(Fault),
    /// The record is longer than its buffer, or is not of its kind.
    Record,
    /// The server was not reserved or restored yet, or has been already.
    Order,
    /// The module may not have as much memory: so many bytes were asked for.
    Memory(u64),
}

impl From<Fault> for Refused {
    fn from(why: Fault) -> Refused {
        Refused::Fault(why)
    }
}

/// What a server is made with.
#[derive(Deserialize)]
struct Reserve {
    limits: Limits,
    seed: u32,
}

/// What became of an input.
#[derive(Serialize)]
struct Handled {
    consumed: Consumed,
    wake: Option<Time>,
    /// Whether there may be an output.
    more: bool,
}

/// An output, and whether there may be another.
#[derive(Serialize)]
struct Said<'b> {
    output: Output<'b>,
    more: bool,
}

/// A piece of memory.
#[derive(Serialize)]
struct Span {
    address: u32,
    len: u32,
}

/// What a server says when it begins or is restored.
#[derive(Serialize)]
struct Begun {
    wake: Option<Time>,
    more: bool,
}

/// The version of the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_abi_version() -> u32 {
    ABI
}

/// Where the host writes records.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_input_address() -> u32 {
    INPUT.address()
}

/// How long they may be, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_input_size() -> u32 {
    INPUT_MAX as u32
}

/// Where the host reads records.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_output_address() -> u32 {
    OUTPUT.address()
}

/// How long they can become, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_output_size() -> u32 {
    OUTPUT_MAX as u32
}

/// Makes a server: takes a [`Reserve`], leaves `Result<Begun, Refused>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_reserve(len: u32) -> u32 {
    answer(reserve(len))
}

fn reserve(len: u32) -> Result<Begun, Refused> {
    let Reserve { limits, seed } = record(len)?;
    SERVER.with(|slot| {
        if slot.is_some() {
            return Err(Refused::Order);
        }
        let storage = storage(&limits)?;
        Ok(begun(slot.insert(Server::new(limits, storage, seed)?)))
    })
}

/// Tells the server something: takes `(Time, Input)`, leaves `Result<Handled, Refused>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_handle(len: u32) -> u32 {
    answer(handle(len))
}

fn handle(len: u32) -> Result<Handled, Refused> {
    INPUT.with(|input| {
        let record = input.get(..len as usize).ok_or(Refused::Record)?;
        let (now, input) = told(record).ok_or(Refused::Record)?;
        SERVER.with(|server| {
            let server = server.as_mut().ok_or(Refused::Order)?;
            let consumed = server.handle(now, input)?;
            Ok(Handled { consumed, wake: server.poll_at(), more: server.has_output() })
        })
    })
}

/// Reads a `Tell`. Almost all of them are about what a client says, which is read here and apart from the rest.
fn told(record: &[u8]) -> Option<(Time, Input<'_>)> {
    let (now, input) = postcard::take_from_bytes(record).ok()?;
    let input = match *input {
        [BYTES, ref bytes @ ..] => {
            let (conn, bytes, full) = postcard::from_bytes(bytes).ok()?;
            Input::Bytes { conn, bytes, full }
        }
        _ => Input::read(input)?,
    };
    Some((now, input))
}

/// Takes what the server has to say: leaves a [`Said`], or nothing.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_poll() -> u32 {
    SERVER.with(|server| {
        let Some(server) = server.as_mut() else { return 0 };
        TEXT.with(|text| {
            let Some(output) = server.poll(text) else { return 0 };
            leave(&Said { output, more: server.has_output() })
        })
    })
}

/// Saves the server: leaves `Result<Span, Refused>`, which says where the snapshot stands until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_snapshot() -> u32 {
    let result = SERVER.with(|server| {
        let server = server.as_ref().ok_or(Refused::Order)?;
        let len = server.snapshot_len();
        SNAPSHOT.with(|room| {
            let buf = grown(room, len)?;
            let address = buf.as_ptr() as u32;
            let len = server.snapshot(buf).map_err(Fault::from)?.len() as u32;
            Ok(Span { address, len })
        })
    });
    answer(result)
}

/// Makes room for a snapshot of so many bytes: leaves `Result<Span, Refused>`, which says where to write it.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_snapshot_room(len: u32) -> u32 {
    let span = |buf: &mut [u8]| Span { address: buf.as_ptr() as u32, len: buf.len() as u32 };
    answer(SNAPSHOT.with(|room| grown(room, len as usize).map(span)))
}

/// Makes a server of the snapshot of that length that the host wrote there: leaves `Result<Begun, Refused>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_restore(len: u32) -> u32 {
    answer(restore(len))
}

fn restore(len: u32) -> Result<Begun, Refused> {
    SNAPSHOT.with(|saved| {
        let saved = saved.get(..len as usize).ok_or(Refused::Record)?;
        SERVER.with(|slot| {
            if slot.is_some() {
                return Err(Refused::Order);
            }
            let storage = storage(&snapshot::limits(saved)?)?;
            Ok(begun(slot.insert(Server::restore(saved, storage)?)))
        })
    })
}

fn begun(server: &Server<'_>) -> Begun {
    Begun { wake: server.poll_at(), more: server.has_output() }
}

/// Memory for a server of these limits.
fn storage(limits: &Limits) -> Result<hydrant_core::Storage<'static>, Refused> {
    let unheard = || Refused::Memory(u64::from(u32::MAX));
    let lengths = Layout::checked(limits).ok_or_else(unheard)?;
    // Outputs pass through a buffer of fixed size.
    if limits.output_max() > MESSAGE_MAX as usize {
        return Err(Refused::Fault(Fault::Full(hydrant_core::Limit::SpawnBytes, MESSAGE_MAX)));
    }
    memory::storage(&lengths).ok_or(Refused::Memory(lengths.bytes() as u64))
}

/// `len` bytes of `room`, which is made longer where it has fewer.
fn grown<'a>(room: &'a mut &'static mut [u8], len: usize) -> Result<&'a mut [u8], Refused> {
    let grown = memory::lengthen(room, len);
    grown.and_then(|()| room.get_mut(..len)).ok_or(Refused::Memory(len as u64))
}

/// The record that the host wrote.
fn record<T: for<'de> Deserialize<'de>>(len: u32) -> Result<T, Refused> {
    INPUT.with(|input| {
        let record = input.get(..len as usize).ok_or(Refused::Record)?;
        postcard::from_bytes(record).map_err(|_| Refused::Record)
    })
}

fn answer<T: Serialize>(result: Result<T, Refused>) -> u32 {
    leave(&result)
}

/// Writes a record for the host; its length.
fn leave(record: &impl Serialize) -> u32 {
    OUTPUT.with(|output| postcard::to_slice(record, output).map_or(0, |record| record.len() as u32))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
