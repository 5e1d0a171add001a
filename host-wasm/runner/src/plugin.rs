//! One server in a plugin.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use hydrant_core::server::Consumed;
use hydrant_core::storage::Layout;
use hydrant_core::{Backend, Fault, Input, Limits, Output, Time, snapshot};
use serde::Deserialize;
use wasmtime::{Instance, Memory, Store, StoreLimits, StoreLimitsBuilder, Trap, TypedFunc, WasmParams};

use crate::abi::{ABI, Begun, Handled, Refused, Reserve, Said, Span, Tell};
use crate::error::{Error, PluginError, Why};
use crate::known::Known;
use crate::sandbox::{Sandbox, Shared, message};

/// Memory that a plugin may have beside its tables: its own, and what a snapshot needs at least.
const MEMORY_BASE: usize = 8 << 20;

type Call<P> = TypedFunc<P, u32>;

/// One server in a plugin, which stands where a [`Server`](hydrant_core::Server) would.
///
/// What it says is held against what the host [knows](Known). After a [`PluginError`] it is of no use any more.
pub struct Plugin {
    sandbox: Sandbox,
    store: Store<StoreLimits>,
    calls: Calls,
    known: Known,
    cap: usize,
    wake: Option<Time>,
    more: bool,
    over: bool,
}

struct Calls {
    memory: Memory,
    input: Window,
    output: Window,
    reserve: Call<u32>,
    handle: Call<u32>,
    poll: Call<()>,
    snapshot: Call<()>,
    snapshot_room: Call<u32>,
    restore: Call<u32>,
}

/// A buffer in the plugin's memory.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: usize,
    len: usize,
}

impl Plugin {
    pub(crate) fn reserve(sandbox: &Sandbox, limits: Limits, seed: u32) -> Result<Plugin, Error> {
        let mut plugin = Plugin::new(sandbox, Known::new(limits))?;
        let len = plugin.write(&Reserve { limits, seed })?;
        plugin.begin(|calls| &calls.reserve, len)
    }

    pub(crate) fn restore(sandbox: &Sandbox, snapshot: &[u8], known: Known) -> Result<Plugin, Error> {
        // What the plugin would say of it anyway, said before memory is given for it.
        if snapshot::limits(snapshot)? != *known.limits() {
            return Err(Fault::Snapshot(hydrant_core::fault::Damage::Limits).into());
        }
        let mut plugin = Plugin::new(sandbox, known)?;
        let (wanted, cap) = (snapshot.len() as u64, plugin.cap as u64);
        let len = u32::try_from(wanted).map_err(|_| plugin.fail(Why::Memory { wanted, cap }))?;
        let room: Span = plugin.call(|calls| &calls.snapshot_room, len).and_then(|len| plugin.result(len))?;
        let Some(place) = plugin.span(room).filter(|_| room.len == len) else {
            return Err(plugin.fail(Why::Record("no room for a snapshot")));
        };
        plugin.calls.memory.data_mut(&mut plugin.store)[place].copy_from_slice(snapshot);
        plugin.begin(|calls| &calls.restore, len)
    }

    /// Saves the server, as [`Server::snapshot`](hydrant_core::Server::snapshot) does.
    ///
    /// # Errors
    /// [`Error`]
    pub fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        let saved: Span = self.call(|calls| &calls.snapshot, ()).and_then(|len| self.result(len))?;
        match self.span(saved) {
            Some(place) => Ok(self.calls.memory.data(&self.store)[place].to_vec()),
            None => Err(self.fail(Why::Record("a snapshot beyond the memory"))),
        }
    }

    /// The same server in another plugin, which goes on where this one stands.
    ///
    /// # Errors
    /// [`Error`], of either.
    pub fn move_to(mut self, sandbox: &Sandbox) -> Result<Plugin, Error> {
        let saved = self.snapshot()?;
        sandbox.restore(&saved, self.known)
    }

    /// What the host knows of the server.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// An instance that has no server yet.
    fn new(sandbox: &Sandbox, known: Known) -> Result<Plugin, Error> {
        let shared = &*sandbox.shared;
        let bytes = Layout::checked(known.limits()).map_or(usize::MAX, |layout| layout.bytes());
        // A snapshot holds what the tables do, and may take a quarter more.
        let cap = bytes.saturating_mul(3).saturating_add(MEMORY_BASE);
        let limits = StoreLimitsBuilder::new().memory_size(cap).instances(1).tables(1).memories(1);
        let limits = limits.table_elements(10_000).build();
        let mut store = Store::new(shared.module.engine(), limits);
        store.limiter(|limits| limits);
        store.set_epoch_deadline(shared.ticks);
        shared.watch.begin();
        let instance = Instance::new(&mut store, &shared.module, &[])
            .map_err(|error| shared.error(why(&error, shared.deadline)))?;
        let calls = Calls::find(sandbox, &mut store, instance)?;
        let sandbox = sandbox.clone();
        Ok(Plugin { sandbox, store, calls, known, cap, wake: None, more: false, over: false })
    }

    /// Has the plugin make its server.
    fn begin(mut self, call: fn(&Calls) -> &Call<u32>, len: u32) -> Result<Plugin, Error> {
        let Begun { wake, more } = self.call(call, len).and_then(|len| self.result(len))?;
        (self.wake, self.more) = (wake, more);
        Ok(self)
    }

    /// Writes a record into the plugin's buffer; its length.
    fn write(&mut self, record: &impl serde::Serialize) -> Result<u32, Error> {
        let Window { start, len } = self.calls.input;
        let written = self.calls.memory.data_mut(&mut self.store).get_mut(start..start + len);
        let written =
            written.and_then(|room| postcard::to_slice(record, room).ok()).map(|record| record.len());
        // What fits a connection's buffer fits a record, unless a plugin offers less room than it must.
        let record = "its buffer is too short for an input";
        written.map(|len| len as u32).ok_or_else(|| self.fail(Why::Record(record)))
    }

    /// Calls the plugin, for at most as long as a call may take.
    fn call<P: WasmParams>(
        &mut self,
        call: impl FnOnce(&Calls) -> &Call<P>,
        parameters: P,
    ) -> Result<u32, Error> {
        let Plugin { sandbox, store, calls, over, .. } = self;
        let shared = &*sandbox.shared;
        if *over {
            return Err(shared.error(Why::Over).into());
        }
        store.set_epoch_deadline(shared.ticks);
        shared.watch.begin();
        call(calls)
            .call(store, parameters)
            .map_err(|error| self.fail(why(&error, self.sandbox.shared.deadline)))
    }

    /// What the plugin left of a call that it may refuse.
    fn result<T: for<'a> Deserialize<'a>>(&mut self, len: u32) -> Result<T, Error> {
        let left = self.calls.record::<Result<T, Refused>>(&self.store, len).map_err(|why| self.fail(why))?;
        left.map_err(|refused| match refused {
            Refused::Fault(why) => why.into(),
            Refused::Memory(wanted) => self.fail(Why::Memory { wanted, cap: self.cap as u64 }),
            Refused::Record | Refused::Order => self.fail(Why::Refused),
        })
    }

    /// Where in memory something stands that the plugin names.
    fn span(&self, span: Span) -> Option<Range<usize>> {
        let start = span.address as usize;
        let end = start.checked_add(span.len as usize)?;
        (end <= self.calls.memory.data_size(&self.store)).then_some(start..end)
    }

    /// The plugin is over.
    fn fail(&mut self, why: impl Into<Why>) -> Error {
        self.over = true;
        self.more = false;
        self.sandbox.shared.error(why).into()
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("file", &self.sandbox.file()).finish_non_exhaustive()
    }
}

impl Backend for Plugin {
    type Error = Error;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Error> {
        let len = self.write(&Tell { now, input })?;
        let len = self.call(|calls| &calls.handle, len)?;
        let Handled { consumed, wake, more } = self.result(len)?;
        self.known.told(now, &input, consumed, wake).map_err(|why| self.fail(why))?;
        (self.wake, self.more) = (wake, more);
        Ok(consumed)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Error> {
        // As a server does, it keeps what might not fit.
        if !self.more || buf.len() < self.known.limits().output_room() {
            return Ok(None);
        }
        let len = self.call(|calls| &calls.poll, ())?;
        if len == 0 {
            self.more = false;
            return Ok(None);
        }
        let Plugin { calls, store, known, .. } = self;
        let said = calls.record(store, len).and_then(|Said { output, more }| {
            known.said(&output)?;
            Ok((moved(output, buf).ok_or(Why::Record("an output longer than any"))?, more))
        });
        match said {
            Ok((output, more)) => {
                self.more = more;
                Ok(Some(output))
            }
            Err(why) => Err(self.fail(why)),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        self.wake
    }

    fn limits(&self) -> &Limits {
        self.known.limits()
    }
}

impl Calls {
    /// Finds everything that a plugin exports, and asks it for its version first.
    fn find(
        sandbox: &Sandbox,
        store: &mut Store<StoreLimits>,
        instance: Instance,
    ) -> Result<Calls, PluginError> {
        let shared = &*sandbox.shared;
        let ask = |store: &mut Store<StoreLimits>, name| {
            let call = instance.get_typed_func::<(), u32>(&mut *store, name);
            let call = call.map_err(|_| shared.error(Why::Export(name)))?;
            shared.watch.begin();
            call.call(store, ()).map_err(|error| shared.error(why(&error, shared.deadline)))
        };
        match ask(store, "hydrant_abi_version")? {
            ABI => {}
            other => return Err(shared.error(Why::Version(other))),
        }
        let memory = instance.get_memory(&mut *store, "memory");
        let memory = memory.ok_or_else(|| shared.error(Why::Export("memory")))?;
        let mut window = |start, len| {
            let (start, len) = (ask(store, start)? as usize, ask(store, len)? as usize);
            let whole = start.checked_add(len).is_some_and(|end| end <= memory.data_size(&*store));
            let window = Window { start, len };
            if whole { Ok(window) } else { Err(shared.error(Why::Record("a buffer beyond the memory"))) }
        };
        let input = window("hydrant_input_address", "hydrant_input_size")?;
        let output = window("hydrant_output_address", "hydrant_output_size")?;
        let mut find = |name| typed(shared, store, instance, name);
        let [reserve, handle, snapshot_room, restore] =
            ["hydrant_reserve", "hydrant_handle", "hydrant_snapshot_room", "hydrant_restore"].map(&mut find);
        Ok(Calls {
            memory,
            input,
            output,
            reserve: reserve?,
            handle: handle?,
            snapshot_room: snapshot_room?,
            restore: restore?,
            poll: typed(shared, store, instance, "hydrant_poll")?,
            snapshot: typed(shared, store, instance, "hydrant_snapshot")?,
        })
    }

    /// The record that the plugin left.
    fn record<'a, T: Deserialize<'a>>(&self, store: &'a Store<StoreLimits>, len: u32) -> Result<T, Why> {
        let Window { start, len: room } = self.output;
        let len = len as usize;
        let record = self.memory.data(store).get(start..start + len.min(room));
        let record = record.filter(|_| len <= room).ok_or(Why::Record("a record longer than its buffer"))?;
        postcard::from_bytes(record).map_err(|_| Why::Record("a record of another kind"))
    }
}

fn typed<P: WasmParams>(
    shared: &Shared,
    store: &mut Store<StoreLimits>,
    instance: Instance,
    name: &'static str,
) -> Result<Call<P>, PluginError> {
    instance.get_typed_func(store, name).map_err(|_| shared.error(Why::Export(name)))
}

/// Why wasmtime broke a call off.
fn why(error: &wasmtime::Error, deadline: Duration) -> Why {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Why::Deadline(deadline),
        Some(trap) => Why::Trap(trap.to_string()),
        None => Why::Trap(message(error)),
    }
}

/// The same output, with what it carries in `buf`; nothing when it does not fit.
fn moved<'b>(output: Output<'_>, buf: &'b mut [u8]) -> Option<Output<'b>> {
    fn bytes<'b>(bytes: &[u8], buf: &'b mut [u8]) -> Option<&'b [u8]> {
        let place = buf.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        Some(place)
    }
    let text = |text: &str, buf: &'b mut [u8]| std::str::from_utf8(bytes(text.as_bytes(), buf)?).ok();
    Some(match output {
        Output::Bytes { conn, bytes: reply } => Output::Bytes { conn, bytes: bytes(reply, buf)? },
        Output::Close { conn, why } => Output::Close { conn, why },
        Output::Joined { conn, job, rank } => Output::Joined { conn, job, rank },
        Output::Spawn { spawn, job, rank, protocol, request } => {
            Output::Spawn { spawn, job, rank, protocol, request: bytes(request, buf)? }
        }
        Output::Upcall { upcall, job, rank, protocol, request } => {
            Output::Upcall { upcall, job, rank, protocol, request: bytes(request, buf)? }
        }
        Output::KillRank { job, rank, code, message } => {
            Output::KillRank { job, rank, code, message: text(message, buf)? }
        }
        Output::AbortJob { job, cause, message } => {
            Output::AbortJob { job, cause, message: text(message, buf)? }
        }
        Output::Peer { node, bytes: message } => Output::Peer { node, bytes: bytes(message, buf)? },
        Output::StalledFence { job, arrived, size, missing } => {
            Output::StalledFence { job, arrived, size, missing: text(missing, buf)? }
        }
    })
}
