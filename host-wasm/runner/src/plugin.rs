//! Instance of a plugin, with one server.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use hydrant_abi::turn::{Part, RECORD};
use hydrant_abi::{ABI_VERSION, CallError, MemorySpan, ReserveCall, StartResult, exports};
use hydrant_core::server::Consumed;
use hydrant_core::storage::Layout;
use hydrant_core::{Backend, BackendError, ConnId, Fault, Input, Limits, Output, Server, Time, snapshot};
use hydrant_validator::{Validator, Violation};
use serde::Deserialize;
use wasmtime::{Instance, Memory, Store, StoreLimits, StoreLimitsBuilder, Trap, TypedFunc, WasmParams};

use crate::error::{PluginError, PluginErrorKind};
use crate::pages;
use crate::sandbox::{Sandbox, Shared, one_line};
use crate::turn::{ClientBytes, Returned, consumed, malformed, write_bytes, write_inputs, write_record};

/// Memory in bytes that a plugin may have in addition to its tables: its statics, its stack and a small snapshot.
const MEMORY_BASE: usize = 8 << 20;

type Call<P> = TypedFunc<P, u32>;

/// A server in an instance of a plugin: a [`Backend`] like [`Server`](hydrant_core::Server).
///
/// A [`Validator`] checks its results and outputs. After a [`PluginError`] every call fails.
pub struct Plugin {
    sandbox: Sandbox,
    store: Store<StoreLimits>,
    calls: Calls,
    validator: Validator,
    memory_max: usize,
    /// Room that the host gives outputs, at least.
    room: usize,
    poll_at: Option<Time>,
    /// Outputs of the last call.
    outputs: Outputs,
    failed: bool,
}

/// Outputs in the plugin's output buffer, and whether there may be others.
#[derive(Clone, Copy, Debug, Default)]
struct Outputs {
    /// Addresses of those that the host has not taken.
    at: usize,
    end: usize,
    /// Number of those that the host has not taken, and of replies among those that it has.
    left: u32,
    taken: u32,
    more: bool,
}

impl Outputs {
    fn are_any(&self) -> bool {
        self.left > 0 || self.more
    }
}

impl Returned {
    /// Returns the outputs of a return at this address.
    #[inline]
    fn outputs(&self, address: usize) -> Outputs {
        let Returned { start, end, outputs, more, .. } = *self;
        Outputs { at: address + start, end: address + end, left: outputs, taken: 0, more }
    }
}

struct Calls {
    memory: Memory,
    input: Buffer,
    output: Buffer,
    reserve: Call<u32>,
    handle: Call<(u32, u32, u64)>,
    poll: Call<u32>,
    snapshot: Call<u32>,
    snapshot_room: Call<u32>,
    restore: Call<u32>,
}

/// Input or output buffer in the plugin's memory, by its addresses.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    start: usize,
    end: usize,
}

impl Sandbox {
    /// Creates a server in a new instance. `seed` is the seed of a hash table. Any number is valid.
    ///
    /// # Errors
    /// [`BackendError`] if the plugin fails or refuses the limits.
    pub fn server(&self, limits: Limits, seed: u32) -> Result<Plugin, BackendError> {
        Plugin::reserve(self, limits, seed)
    }

    /// Restores a server from a [snapshot](hydrant_core::Server::snapshot) in a new instance. `validator` must be the one of
    /// the server that the snapshot was taken of, at that time.
    ///
    /// # Errors
    /// [`BackendError`] if the plugin fails, or if the snapshot is damaged or has other limits than `validator`.
    pub fn restore(&self, snapshot: &[u8], validator: Validator) -> Result<Plugin, BackendError> {
        Plugin::restore(self, snapshot, validator)
    }
}

impl Plugin {
    fn reserve(sandbox: &Sandbox, limits: Limits, seed: u32) -> Result<Plugin, BackendError> {
        let mut plugin = Plugin::new(sandbox, Validator::new(limits))?;
        let len = plugin.write(&ReserveCall { limits, seed })?;
        plugin.start(|calls| &calls.reserve, len)
    }

    fn restore(sandbox: &Sandbox, snapshot: &[u8], validator: Validator) -> Result<Plugin, BackendError> {
        // Checked before memory is allocated for the snapshot.
        if snapshot::limits(snapshot)? != *validator.limits() {
            return Err(Fault::Snapshot(hydrant_core::fault::Damage::Limits).into());
        }
        let mut plugin = Plugin::new(sandbox, validator)?;
        let (needed, max) = (snapshot.len() as u64, plugin.memory_max as u64);
        let too_long = PluginErrorKind::OutOfMemory { needed, max };
        let len = u32::try_from(needed).map_err(|_| plugin.fail(too_long))?;
        let room: MemorySpan =
            plugin.call(|calls| &calls.snapshot_room, len).and_then(|len| plugin.result(len))?;
        let Some(range) = plugin.range(room).filter(|_| room.len == len) else {
            return Err(plugin.fail(PluginErrorKind::InvalidRecord("no memory for a snapshot")));
        };
        plugin.calls.memory.data_mut(&mut plugin.store)[range].copy_from_slice(snapshot);
        plugin.start(|calls| &calls.restore, len)
    }

    /// Returns a snapshot of the server, like [`Server::snapshot`](hydrant_core::Server::snapshot).
    ///
    /// # Errors
    /// [`BackendError`] if the call fails.
    pub fn snapshot(&mut self) -> Result<Vec<u8>, BackendError> {
        let taken = self.taken();
        let saved: MemorySpan = self.call(|calls| &calls.snapshot, taken).and_then(|len| self.result(len))?;
        match self.range(saved) {
            Some(range) => Ok(self.calls.memory.data(&self.store)[range].to_vec()),
            None => Err(self.fail(PluginErrorKind::InvalidRecord("a snapshot beyond the memory"))),
        }
    }

    /// Moves the server into a new instance of `sandbox`, which may be another plugin.
    ///
    /// # Errors
    /// [`BackendError`] if saving or restoring fails.
    pub fn move_to(mut self, sandbox: &Sandbox) -> Result<Plugin, BackendError> {
        let saved = self.snapshot()?;
        sandbox.restore(&saved, self.validator)
    }

    /// Applies the bytes of several connections in their order, as one call of [`handle`](Backend::handle) for each does, in as
    /// few calls of the plugin as its buffer allows. The host then polls once for all of them. A connection may occur once.
    ///
    /// # Errors
    /// Those of [`handle`](Backend::handle). The plugin may have applied the bytes before those that failed.
    pub fn handle_bytes(
        &mut self,
        now: Time,
        mut received: &mut [ClientBytes<'_>],
    ) -> Result<(), BackendError> {
        while !received.is_empty() {
            let (inputs, len) = write_inputs(received, self.input_buffer());
            if inputs == 0 {
                return Err(self.no_room());
            }
            let (these, rest) = received.split_at_mut(inputs);
            self.handle_written(now, these, len)?;
            received = rest;
        }
        Ok(())
    }

    /// Returns whether [`poll`](Backend::poll) may return an output, like
    /// [`Server::has_output`](hydrant_core::Server::has_output).
    pub fn has_output(&self) -> bool {
        self.outputs.are_any()
    }

    /// Returns the plugin's file.
    pub fn file(&self) -> &Path {
        self.sandbox.file()
    }

    /// Returns the validator of this server.
    pub fn validator(&self) -> &Validator {
        &self.validator
    }

    /// Creates an instance without a server.
    fn new(sandbox: &Sandbox, validator: Validator) -> Result<Plugin, BackendError> {
        let shared = &*sandbox.shared;
        let bytes = Layout::checked(validator.limits()).map_or(usize::MAX, |layout| layout.bytes());
        // A snapshot contains the tables and may be a quarter longer.
        let memory_max = bytes.saturating_mul(3).saturating_add(MEMORY_BASE);
        let limits = StoreLimitsBuilder::new().memory_size(memory_max).instances(1).tables(1).memories(1);
        let limits = limits.table_elements(10_000).build();
        let mut store = Store::new(shared.module.engine(), limits);
        store.limiter(|limits| limits);
        store.set_epoch_deadline(shared.ticks);
        shared.ticker.begin_call();
        let instance = Instance::new(&mut store, &shared.module, &[])
            .map_err(|error| shared.error(trap_kind(&error, shared.deadline)))?;
        let calls = Calls::look_up(sandbox, &mut store, instance)?;
        let room = validator.limits().output_room();
        let sandbox = sandbox.clone();
        Ok(Plugin {
            sandbox,
            store,
            calls,
            validator,
            memory_max,
            room,
            poll_at: None,
            outputs: Outputs::default(),
            failed: false,
        })
    }

    /// Calls an export that creates the server.
    fn start(mut self, call: fn(&Calls) -> &Call<u32>, len: u32) -> Result<Plugin, BackendError> {
        // A plugin allocates its tables at the end of its memory, the log first. Nothing depends on it.
        let log = self.calls.memory.data_size(&self.store);
        let StartResult { poll_at, has_output } = self.call(call, len).and_then(|len| self.result(len))?;
        let log_len = Layout::checked(self.validator.limits()).map_or(0, |layout| layout.log);
        pages::prefer_large(self.calls.memory.data_mut(&mut self.store), log..log.saturating_add(log_len));
        self.poll_at = poll_at;
        self.outputs.more = has_output;
        Ok(self)
    }

    /// Encodes a record into the plugin's input buffer. Returns its length.
    fn write(&mut self, record: &impl serde::Serialize) -> Result<u32, BackendError> {
        let written = postcard::to_slice(record, self.input_buffer()).ok().map(|record| record.len() as u32);
        // Every input fits unless the plugin's buffer is shorter than the ABI demands.
        written.ok_or_else(|| self.fail(PluginErrorKind::InvalidRecord("input buffer too short")))
    }

    /// Returns the plugin's input buffer, or nothing if it is not in the memory.
    #[inline]
    fn input_buffer(&mut self) -> &mut [u8] {
        let Buffer { start, end } = self.calls.input;
        self.calls.memory.data_mut(&mut self.store).get_mut(start..end).unwrap_or_default()
    }

    /// Has the plugin apply the inputs in the first `len` bytes of its input buffer. Returns the length of the return, which
    /// replaces the outputs.
    #[inline(always)]
    fn turn(&mut self, now: Time, len: u32) -> Result<u32, BackendError> {
        let taken = self.outputs.taken;
        self.call(|calls| &calls.handle, (len, taken, now.0))
    }

    /// Has the plugin apply the bytes of clients that are written to its input buffer, and checks what it has consumed.
    fn handle_written(
        &mut self,
        now: Time,
        these: &mut [ClientBytes<'_>],
        len: u32,
    ) -> Result<(), BackendError> {
        let inputs = these.len() as u32;
        let len = self.turn(now, len)?;
        let Plugin { calls, store, validator, .. } = self;
        let bytes = calls.output(store, len).unwrap_or_default();
        let Some(returned) = Returned::read(bytes, inputs) else {
            return Err(self.not_accepted(len, inputs));
        };
        let results = returned.results(bytes);
        let checked = these.iter_mut().zip(consumed(results)).try_for_each(|(input, consumed)| {
            input.consumed = consumed;
            validator.check_bytes(input.conn, input.bytes, consumed)
        });
        checked.map_err(|violation| self.fail(violation))?;
        if returned.error != 0 {
            return Err(self.not_accepted(len, inputs));
        }
        self.keep(&returned).map_err(|violation| self.fail(violation))
    }

    /// Has the plugin apply the input that was written with this length, unless there was no room.
    #[inline(always)]
    fn apply(&mut self, now: Time, len: Option<u32>) -> Result<(Returned, Consumed), BackendError> {
        let Some(len) = len else { return Err(self.no_room()) };
        let len = self.turn(now, len)?;
        match self.calls.output(&self.store, len).and_then(Returned::read_one) {
            Some(accepted) => Ok(accepted),
            None => Err(self.not_accepted(len, 1)),
        }
    }

    /// Has the plugin apply bytes of a client.
    fn handle_client(
        &mut self,
        now: Time,
        conn: ConnId,
        bytes: &[u8],
        full: bool,
    ) -> Result<Consumed, BackendError> {
        let len = write_bytes(conn, bytes, full, self.input_buffer());
        let (returned, consumed) = self.apply(now, len)?;
        let checked = self.validator.check_bytes(conn, bytes, consumed);
        checked.and_then(|()| self.keep(&returned)).map_err(|violation| self.fail(violation))?;
        Ok(consumed)
    }

    /// Has the plugin apply an input that is no client's bytes.
    #[cold]
    fn handle_event(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let len = write_record(&input, self.input_buffer());
        let (returned, consumed) = self.apply(now, len)?;
        let checked = self.validator.check_input(now, &input, consumed, returned.poll_at);
        checked.and_then(|()| self.keep(&returned)).map_err(|violation| self.fail(violation))?;
        Ok(consumed)
    }

    /// An input does not fit: the plugin's buffer is shorter than the ABI demands.
    #[cold]
    fn no_room(&mut self) -> BackendError {
        self.fail(PluginErrorKind::InvalidRecord("input buffer too short"))
    }

    /// Returns the next of the outputs, of which there may be some.
    fn next_output<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        if self.outputs.left == 0 && !self.poll_plugin()? {
            return Ok(None);
        }
        let Plugin { calls, store, validator, outputs, .. } = self;
        let Some((part, bytes)) = calls.next_part(store, outputs) else { return Err(self.fail(malformed())) };
        outputs.at += Part::LEN + bytes.len();
        outputs.left -= 1;
        if part.conn == RECORD || buf.len() < bytes.len() {
            let output = record(validator, (part, bytes), outputs.are_any(), buf);
            return output.map(Some).map_err(|kind| self.fail(kind));
        }
        outputs.taken += 1;
        let conn = ConnId(part.conn);
        let (copy, _) = buf.split_at_mut(bytes.len());
        copy.copy_from_slice(bytes);
        let checked = validator.check_reply(conn, bytes);
        let checked =
            if outputs.are_any() { checked } else { checked.and_then(|()| validator.check_silence()) };
        match checked {
            Ok(()) => Ok(Some(Output::Bytes { conn, bytes: copy })),
            Err(violation) => Err(self.fail(violation)),
        }
    }

    /// Keeps the outputs of a return.
    #[inline]
    fn keep(&mut self, returned: &Returned) -> Result<(), Violation> {
        (self.poll_at, self.outputs) = (returned.poll_at, returned.outputs(self.calls.output.start));
        if self.outputs.are_any() { Ok(()) } else { self.validator.check_silence() }
    }

    /// Returns how many replies the host has taken, for a call which withdraws the others.
    #[inline]
    fn taken(&mut self) -> u32 {
        let Outputs { left, taken, more, .. } = self.outputs;
        self.outputs = Outputs { more: more || left > 0, ..Outputs::default() };
        taken
    }

    /// Converts a return of a call with so many inputs that is malformed or has an error.
    #[cold]
    fn not_accepted(&mut self, len: u32, inputs: u32) -> BackendError {
        let bytes = match self.calls.returned(&self.store, len) {
            Ok(bytes) => bytes,
            Err(kind) => return self.fail(kind),
        };
        let returned = Returned::read(bytes, inputs).ok_or_else(malformed);
        match returned.and_then(|returned| Ok((returned, returned.error(bytes)?))) {
            Ok((returned, error)) => {
                self.poll_at = returned.poll_at;
                self.outputs = Outputs { more: returned.more, ..Outputs::default() };
                self.refused(error)
            }
            Err(kind) => self.fail(kind),
        }
    }

    /// Calls the plugin. The call ends with an error at the deadline.
    #[inline(always)]
    fn call<P: WasmParams>(
        &mut self,
        call: impl FnOnce(&Calls) -> &Call<P>,
        parameters: P,
    ) -> Result<u32, BackendError> {
        let Plugin { sandbox, store, calls, failed, .. } = self;
        let shared = &*sandbox.shared;
        if *failed {
            return Err(shared.error(PluginErrorKind::Failed).into());
        }
        store.set_epoch_deadline(shared.ticks);
        shared.ticker.begin_call();
        call(calls)
            .call(store, parameters)
            .map_err(|error| self.fail(trap_kind(&error, self.sandbox.shared.deadline)))
    }

    /// Decodes the result of a call that may fail.
    fn result<T: for<'a> Deserialize<'a>>(&mut self, len: u32) -> Result<T, BackendError> {
        let record = self.calls.returned(&self.store, len).and_then(decode::<Result<T, CallError>>);
        record.map_err(|kind| self.fail(kind))?.map_err(|error| self.refused(error))
    }

    /// Converts the error of a call.
    #[cold]
    fn refused(&mut self, error: CallError) -> BackendError {
        match error {
            CallError::Fault(fault) => fault.into(),
            CallError::OutOfMemory(needed) => {
                self.fail(PluginErrorKind::OutOfMemory { needed, max: self.memory_max as u64 })
            }
            CallError::InvalidRecord | CallError::WrongState => {
                self.fail(PluginErrorKind::UnexpectedError(error))
            }
        }
    }

    /// Has the plugin return its next outputs. Returns whether there are any.
    #[cold]
    fn poll_plugin(&mut self) -> Result<bool, BackendError> {
        let taken = self.outputs.taken;
        let len = self.call(|calls| &calls.poll, taken)?;
        let returned = self.calls.output(&self.store, len).and_then(|bytes| Returned::read(bytes, 0));
        let Some(returned) = returned.filter(|returned| returned.error == 0) else {
            return Err(self.not_accepted(len, 0));
        };
        self.poll_at = returned.poll_at;
        self.outputs = returned.outputs(self.calls.output.start);
        if self.outputs.left > 0 {
            return Ok(true);
        }
        self.outputs.more = false;
        self.validator.check_silence().map_err(|violation| self.fail(violation))?;
        Ok(false)
    }

    /// Returns the range of memory of a span, or `None` if it lies beyond the memory.
    fn range(&self, span: MemorySpan) -> Option<Range<usize>> {
        let start = span.address as usize;
        let end = start.checked_add(span.len as usize)?;
        (end <= self.calls.memory.data_size(&self.store)).then_some(start..end)
    }

    /// Marks the plugin as failed.
    #[cold]
    fn fail(&mut self, kind: impl Into<PluginErrorKind>) -> BackendError {
        self.failed = true;
        self.outputs = Outputs::default();
        self.sandbox.shared.error(kind).into()
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("file", &self.sandbox.file()).finish_non_exhaustive()
    }
}

impl Backend for Plugin {
    #[inline]
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        match input {
            Input::Bytes { conn, bytes, full } => self.handle_client(now, conn, bytes, full),
            _ => self.handle_event(now, input),
        }
    }

    #[inline]
    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        // Like a server, it keeps its output if `buf` may be too short.
        if !self.outputs.are_any() || buf.len() < self.room { Ok(None) } else { self.next_output(buf) }
    }

    fn poll_at(&self) -> Option<Time> {
        self.poll_at
    }

    fn limits(&self) -> &Limits {
        self.validator.limits()
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        None
    }
}

impl Calls {
    /// Looks up all exports. The version is checked first.
    fn look_up(
        sandbox: &Sandbox,
        store: &mut Store<StoreLimits>,
        instance: Instance,
    ) -> Result<Calls, PluginError> {
        let shared = &*sandbox.shared;
        let number = |store: &mut Store<StoreLimits>, name| {
            let call = instance.get_typed_func::<(), u32>(&mut *store, name);
            let call = call.map_err(|_| shared.error(PluginErrorKind::MissingExport(name)))?;
            shared.ticker.begin_call();
            call.call(store, ()).map_err(|error| shared.error(trap_kind(&error, shared.deadline)))
        };
        match number(store, exports::ABI_VERSION)? {
            ABI_VERSION => {}
            other => return Err(shared.error(PluginErrorKind::Version(other))),
        }
        let memory = instance.get_memory(&mut *store, exports::MEMORY);
        let memory = memory.ok_or_else(|| shared.error(PluginErrorKind::MissingExport(exports::MEMORY)))?;
        let mut buffer = |start, len| {
            let (start, len) = (number(store, start)? as usize, number(store, len)? as usize);
            let end = start.checked_add(len).filter(|&end| end <= memory.data_size(&*store));
            let beyond = PluginErrorKind::InvalidRecord("a buffer beyond the memory");
            end.map(|end| Buffer { start, end }).ok_or_else(|| shared.error(beyond))
        };
        let input = buffer(exports::INPUT_ADDRESS, exports::INPUT_SIZE)?;
        let output = buffer(exports::OUTPUT_ADDRESS, exports::OUTPUT_SIZE)?;
        let mut function = |name| typed(shared, store, instance, name);
        let [reserve, poll, snapshot, snapshot_room, restore] =
            [exports::RESERVE, exports::POLL, exports::SNAPSHOT, exports::SNAPSHOT_ROOM, exports::RESTORE]
                .map(&mut function);
        Ok(Calls {
            memory,
            input,
            output,
            reserve: reserve?,
            handle: typed(shared, store, instance, exports::HANDLE)?,
            poll: poll?,
            snapshot: snapshot?,
            snapshot_room: snapshot_room?,
            restore: restore?,
        })
    }

    /// Returns what a call has left in the plugin's output buffer, or `None` if it would be longer than the buffer.
    #[inline]
    fn output<'a>(&self, store: &'a Store<StoreLimits>, len: u32) -> Option<&'a [u8]> {
        let Buffer { start, end } = self.output;
        self.memory.data(store).get(start..end)?.get(..len as usize)
    }

    /// Returns the same, or the error.
    fn returned<'a>(&self, store: &'a Store<StoreLimits>, len: u32) -> Result<&'a [u8], PluginErrorKind> {
        self.output(store, len).ok_or(PluginErrorKind::InvalidRecord("longer than its buffer"))
    }

    /// Returns the next output in the plugin's memory, or `None` if it is malformed.
    #[inline]
    fn next_part<'a>(&self, store: &'a Store<StoreLimits>, outputs: &Outputs) -> Option<(Part, &'a [u8])> {
        let rest = self.memory.data(store).get(outputs.at..outputs.end)?;
        let (part, rest) = Part::read(rest)?;
        Some((part, rest.get(..part.len as usize)?))
    }
}

#[cold]
fn decode<'a, T: Deserialize<'a>>(record: &'a [u8]) -> Result<T, PluginErrorKind> {
    postcard::from_bytes(record).map_err(|_| malformed())
}

/// Checks an output that the plugin has returned as a record, and copies its bytes to `buf`. Refuses a reply, which is too long.
#[cold]
fn record<'b>(
    validator: &mut Validator,
    (part, bytes): (Part, &[u8]),
    are_any: bool,
    buf: &'b mut [u8],
) -> Result<Output<'b>, PluginErrorKind> {
    let output = if part.conn == RECORD {
        let output = decode(bytes)?;
        validator.check_output(&output)?;
        output.copy_to(buf)
    } else {
        validator.check_reply(ConnId(part.conn), bytes)?;
        None
    };
    if !are_any {
        validator.check_silence()?;
    }
    output.ok_or(PluginErrorKind::InvalidRecord("output too long"))
}

fn typed<P: WasmParams>(
    shared: &Shared,
    store: &mut Store<StoreLimits>,
    instance: Instance,
    name: &'static str,
) -> Result<Call<P>, PluginError> {
    instance.get_typed_func(store, name).map_err(|_| shared.error(PluginErrorKind::MissingExport(name)))
}

/// Converts the error of a call.
fn trap_kind(error: &wasmtime::Error, deadline: Duration) -> PluginErrorKind {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => PluginErrorKind::Timeout(deadline),
        Some(trap) => PluginErrorKind::Trap(trap.to_string()),
        None => PluginErrorKind::Trap(one_line(error)),
    }
}
