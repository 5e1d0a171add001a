//! `hydrant.wasm`: hydrant's PMI server as a WebAssembly module without imports.
//!
//! The module can only answer calls. `docs/wasm-abi.md` describes them, and the crate `hydrant-abi` has their records.
//! Inputs and outputs pass through two buffers in the module's memory: bytes of clients and replies behind heads of a fixed
//! length, all others as postcard. A call takes the length of what the host wrote and returns the length of what it may read.
//!
//! One instance of the module holds one server.
#![no_std]

mod memory;
mod output;

use core::mem;

use hydrant_abi::turn::{FULL, INPUTS_MAX, InputResult, Part, RECORD, TurnHead};
use hydrant_abi::{ABI_VERSION, CallError, MemorySpan, ReserveCall, StartResult};
use hydrant_core::limits::{MESSAGE_MAX, TEXT_MAX, TEXT_REST};
use hydrant_core::storage::Layout;
use hydrant_core::{ConnId, Fault, Input, Limits, Server, Time, snapshot};
use memory::{Buffer, Cell};
use output::Turn;
use serde::{Deserialize, Serialize};

/// Size of the input buffer in bytes: the most that a host holds of a connection's bytes, and the record around them.
const INPUT_MAX: usize = 4 * MESSAGE_MAX as usize + 64;
/// Maximum length of an output in bytes: a text, and the reply around it.
const LONGEST: usize = TEXT_MAX + TEXT_REST;
/// Size of the output buffer in bytes: the results of all inputs, replies, and room for the longest output behind them.
const OUTPUT_MAX: usize =
    MESSAGE_MAX as usize + LONGEST + TurnHead::LEN + INPUTS_MAX as usize * InputResult::LEN + 64;

static INPUT: Buffer<INPUT_MAX> = Buffer::new();
static OUTPUT: Buffer<OUTPUT_MAX> = Buffer::new();
/// Buffer for the text of an output, before it is encoded.
static TEXT: Buffer<LONGEST> = Buffer::new();
/// Number of replies that the last return has offered.
static OFFERED: Cell<u32> = Cell::new(0);
/// Memory of the snapshot that was saved or is to be restored.
static SNAPSHOT: Cell<&'static mut [u8]> = Cell::new(&mut []);
static SERVER: Cell<Option<Server<'static>>> = Cell::new(None);

/// Returns the version of the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_abi_version() -> u32 {
    ABI_VERSION
}

/// Returns the address of the input buffer.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_input_address() -> u32 {
    INPUT.address()
}

/// Returns the size of the input buffer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_input_size() -> u32 {
    INPUT_MAX as u32
}

/// Returns the address of the output buffer.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_output_address() -> u32 {
    OUTPUT.address()
}

/// Returns the size of the output buffer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_output_size() -> u32 {
    OUTPUT_MAX as u32
}

/// Creates the server: decodes a [`ReserveCall`], encodes `Result<StartResult, CallError>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_reserve(len: u32) -> u32 {
    encode(&reserve(len))
}

fn reserve(len: u32) -> Result<StartResult, CallError> {
    let ReserveCall { limits, seed } = decode(len)?;
    SERVER.with(|slot| {
        if slot.is_some() {
            return Err(CallError::WrongState);
        }
        let storage = allocate_storage(&limits)?;
        Ok(start_result(slot.insert(Server::new(limits, storage, seed)?)))
    })
}

/// Takes the first `taken` replies of the last return, applies the inputs in the first `len` bytes of the input buffer at
/// the time `now`, and returns the next replies.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_handle(len: u32, taken: u32, now: u64) -> u32 {
    turn(taken, |server, output| {
        INPUT.with(|input| {
            let inputs = input.get(..len as usize).ok_or(CallError::InvalidRecord)?;
            apply(server, Time(now), inputs, output)
        })?;
        Ok(output.offer(server))
    })
}

/// Takes the first `taken` replies of the last return, and returns the next outputs.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_poll(taken: u32) -> u32 {
    turn(taken, |server, output| {
        let offered = output.offer(server);
        if output.has_others_only() {
            output.poll(server);
        }
        Ok(offered)
    })
}

/// Takes replies, and calls `act`, which writes a return and returns the number of replies that it offers. Returns the
/// length of the return.
fn turn(taken: u32, act: impl FnOnce(&mut Server<'_>, &mut Turn<'_>) -> Result<u32, CallError>) -> u32 {
    OUTPUT.with(|buf| {
        let mut output = Turn::new(buf);
        SERVER.with(|server| {
            let Some(server) = server else {
                output.fail(&CallError::WrongState);
                return output.finish(None);
            };
            match take(server, taken).and_then(|()| act(server, &mut output)) {
                Ok(offered) => OFFERED.with(|last| *last = offered),
                Err(error) => {
                    output.set_more(server.has_output());
                    output.fail(&error);
                }
            }
            output.finish(server.poll_at())
        })
    })
}

/// Takes replies of the last return. The others are withdrawn.
fn take(server: &mut Server<'_>, taken: u32) -> Result<(), CallError> {
    let offered = OFFERED.with(mem::take);
    let valid = taken <= offered && (0..taken).all(|_| server.take_reply());
    if valid { Ok(()) } else { Err(CallError::InvalidRecord) }
}

/// Applies inputs until one is refused, and writes the results of the others.
fn apply(
    server: &mut Server<'_>,
    now: Time,
    mut inputs: &[u8],
    output: &mut Turn<'_>,
) -> Result<(), CallError> {
    while !inputs.is_empty() {
        let (part, rest) = Part::read(inputs).ok_or(CallError::InvalidRecord)?;
        let (bytes, rest) =
            rest.split_at_checked((part.len & !FULL) as usize).ok_or(CallError::InvalidRecord)?;
        let input = match part.conn {
            RECORD => Input::read(bytes).ok_or(CallError::InvalidRecord)?,
            conn => Input::Bytes { conn: ConnId(conn), bytes, full: part.len & FULL != 0 },
        };
        if !output.has_place() {
            return Err(CallError::InvalidRecord);
        }
        output.accepted(server.handle(now, input)?);
        inputs = rest;
    }
    Ok(())
}

/// Takes the first `taken` replies of the last return and saves the server: encodes `Result<MemorySpan, CallError>`. The
/// snapshot is valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_snapshot(taken: u32) -> u32 {
    let result = SERVER.with(|server| {
        let server = server.as_mut().ok_or(CallError::WrongState)?;
        take(server, taken)?;
        let len = server.snapshot_len();
        SNAPSHOT.with(|memory| {
            let buf = grow_to(memory, len)?;
            let address = buf.as_ptr() as u32;
            let len = server.snapshot(buf).map_err(Fault::from)?.len() as u32;
            Ok::<_, CallError>(MemorySpan { address, len })
        })
    });
    encode(&result)
}

/// Allocates memory for a snapshot of `len` bytes: encodes `Result<MemorySpan, CallError>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_snapshot_room(len: u32) -> u32 {
    let span = |buf: &mut [u8]| MemorySpan { address: buf.as_ptr() as u32, len: buf.len() as u32 };
    encode(&SNAPSHOT.with(|memory| grow_to(memory, len as usize).map(span)))
}

/// Creates the server from the snapshot of `len` bytes that the host wrote: encodes `Result<StartResult, CallError>`.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_restore(len: u32) -> u32 {
    encode(&restore(len))
}

fn restore(len: u32) -> Result<StartResult, CallError> {
    SNAPSHOT.with(|memory| {
        let snapshot = memory.get(..len as usize).ok_or(CallError::InvalidRecord)?;
        SERVER.with(|slot| {
            if slot.is_some() {
                return Err(CallError::WrongState);
            }
            let storage = allocate_storage(&snapshot::limits(snapshot)?)?;
            Ok(start_result(slot.insert(Server::restore(snapshot, storage)?)))
        })
    })
}

fn start_result(server: &Server<'_>) -> StartResult {
    StartResult { poll_at: server.poll_at(), has_output: server.has_output() }
}

/// Allocates storage for a server with these limits.
fn allocate_storage(limits: &Limits) -> Result<hydrant_core::Storage<'static>, CallError> {
    let layout = Layout::checked(limits).ok_or(CallError::OutOfMemory(u64::from(u32::MAX)))?;
    // Outputs pass through a buffer of fixed size.
    if limits.spawn_bytes > MESSAGE_MAX || limits.output_max() > LONGEST {
        return Err(CallError::Fault(Fault::Full(hydrant_core::Limit::SpawnBytes, MESSAGE_MAX)));
    }
    memory::storage(&layout).ok_or(CallError::OutOfMemory(layout.bytes() as u64))
}

/// Returns the first `len` bytes of `memory`, which is extended if it is shorter.
fn grow_to<'a>(memory: &'a mut &'static mut [u8], len: usize) -> Result<&'a mut [u8], CallError> {
    let grown = memory::extend(memory, len);
    grown.and_then(|()| memory.get_mut(..len)).ok_or(CallError::OutOfMemory(len as u64))
}

/// Decodes the record in the input buffer.
fn decode<T: for<'de> Deserialize<'de>>(len: u32) -> Result<T, CallError> {
    INPUT.with(|input| {
        let record = input.get(..len as usize).ok_or(CallError::InvalidRecord)?;
        postcard::from_bytes(record).map_err(|_| CallError::InvalidRecord)
    })
}

/// Encodes a record into the output buffer. Returns its length.
fn encode(record: &impl Serialize) -> u32 {
    OUTPUT.with(|output| postcard::to_slice(record, output).map_or(0, |record| record.len() as u32))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
