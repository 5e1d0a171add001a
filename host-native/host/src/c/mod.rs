//! The exported functions, which `hydrant_host.h` documents: the [`Host`] for launchers in C. Feature `c`.
//!
//! | module | contents |
//! |---|---|
//! | `port` | port of the loopback interface for PMIx clients, for hosts with transports of their own |
//! | `pointer` | checked access to pointers from C callers |
//! | `environment` | variables of a rank in the form that `execve` takes |
//! | `types` | structures of the header |
//! | `error` | codes of errors, and the last one of each thread |

mod environment;
mod error;
#[cfg(test)]
mod header;
mod pointer;
mod port;
#[cfg(test)]
mod tests;
mod types;

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

pub use hydrant_abi::ABI_VERSION;
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::{ConnId, Exit, Input, JobId, JobSpec, Limit, Rank, UpcallId};
use serde::de::DeserializeOwned;

use self::environment::Environment;
use self::error::Error;
use self::pointer::{bytes, path, record, strings, text, write, write_bytes};
use self::port::Port;
use self::types::NONE;
pub use self::types::{HostJob, HostLimits, HostOutput, HostSettings};
use crate::{Event, Host, Plugin, Settings, Speaks, random_name};

/// Time of one call of a plugin unless the settings have another one.
const CALL: Duration = Plugin::CALL;

/// Server of a C program: `hydrant_host`.
#[derive(Debug)]
pub struct HydrantHost(Mutex<Open>);

/// An open server, and what its last calls have lent to the program.
#[derive(Debug)]
struct Open {
    host: Host,
    /// Holds the bytes of the last output.
    event: Option<Event>,
    /// That of the last rank.
    environment: Option<Environment>,
}

impl Open {
    /// Returns the next output, whose bytes are valid until the next call.
    fn next(&mut self) -> Result<Option<HostOutput>, Error> {
        while let Some(event) = self.host.next_event()? {
            let output = HostOutput::of_event(self.event.insert(event));
            if output.is_some() {
                return Ok(output);
            }
        }
        Ok(None)
    }
}

/// Port of a C program: `hydrant_port`.
#[derive(Debug)]
pub struct HydrantPort(Mutex<Port>);

/// Runs a function's body. Returns its result or the code of its error. Panics are caught and are errors too.
fn call(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let outcome = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Panicked));
    outcome.unwrap_or_else(|error| error::store(&error))
}

/// Returns a host for one call. It is an error if another thread is in one, or has panicked in one.
///
/// # Safety
/// `host` is NULL or open.
unsafe fn lock<'a>(host: *const HydrantHost) -> Result<MutexGuard<'a, Open>, Error> {
    // SAFETY: guaranteed by the caller.
    lock_mutex(&unsafe { record("the host", host)? }.0)
}

/// Returns a port for one call, as [`lock`].
///
/// # Safety
/// `port` is NULL or open.
unsafe fn lock_port<'a>(port: *const HydrantPort) -> Result<MutexGuard<'a, Port>, Error> {
    // SAFETY: guaranteed by the caller.
    lock_mutex(&unsafe { record("the port", port)? }.0)
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Error::Busy,
        TryLockError::Poisoned(_) => Error::Panicked,
    })
}

/// Returns the value with this number in the plugin's ABI. `fields` are those of the variant.
fn variant<T: DeserializeOwned>(what: &'static str, number: c_int, fields: &[u8]) -> Result<T, Error> {
    let unknown = Error::Number { what, number: number.into() };
    let Ok(first @ 0..=127) = u8::try_from(number) else { return Err(unknown) };
    postcard::from_bytes(&[&[first], fields].concat()).map_err(|_| unknown)
}

/// Returns an end of a process. Exit codes and signals are at most 255.
fn exit_of(exit: c_int, number: u32) -> Result<Exit, Error> {
    let invalid = |_| Error::Number { what: "an exit code or signal", number: number.into() };
    variant("an exit", exit, &[u8::try_from(number).map_err(invalid)?])
}

/// Writes the settings of a built-in server for one job.
///
/// # Safety
/// `settings` is NULL or a structure to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_settings_init(
    settings: *mut HostSettings,
    abi_version: u32,
    ranks: u32,
) -> c_int {
    call(|| {
        check_version(abi_version)?;
        let (plugin, cache) = (ptr::null(), ptr::null());
        let (call_ms, limits) = (CALL.as_millis() as u32, Settings::for_ranks(ranks).limits.into());
        let init = HostSettings { abi_version, call_ms, plugin, cache, limits };
        // SAFETY: guaranteed by the caller.
        unsafe { write("the settings", settings, init)? };
        Ok(0)
    })
}

/// Writes the description of a job with the defaults of [`JobSpec`].
///
/// # Safety
/// `job` is NULL or a structure to write to. `name` is a string that lives as long as the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_job_init(
    job: *mut HostJob,
    number: u32,
    name: *const c_char,
    size: u32,
) -> c_int {
    call(|| {
        let spec = JobSpec::new(JobId(number), "", size);
        let init = HostJob {
            job: number,
            size,
            name,
            spawner: ptr::null(),
            spawn: NONE,
            universe_size: 0,
            cleanup: spec.cleanup.into(),
            pmi1_subversion: spec.pmi1_subversion,
            lookup_wait: spec.lookup_wait,
            fence_warning: spec.fence_warning,
            remote_names: spec.remote_names.into(),
            fence: spec.fence as u32,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { write("the job", job, init)? };
        Ok(0)
    })
}

fn check_version(given: u32) -> Result<(), Error> {
    if given == ABI_VERSION { Ok(()) } else { Err(Error::Version { given, own: ABI_VERSION }) }
}

/// Creates a server.
///
/// # Safety
/// `settings` is NULL or initialized, and its paths are NULL or strings. `host` is NULL or a pointer to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_open(
    settings: *const HostSettings,
    host: *mut *mut HydrantHost,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as are the strings below.
        unsafe { write("the pointer to the host", host, ptr::null_mut())? };
        // SAFETY: as above.
        let settings = unsafe { record("the settings", settings)? };
        check_version(settings.abi_version)?;
        // SAFETY: as above.
        let (file, cache) =
            unsafe { (path("the plugin", settings.plugin)?, path("the cache", settings.cache)?) };
        let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        let call = match settings.call_ms {
            0 => CALL,
            millis => Duration::from_millis(millis.into()),
        };
        let plugin = file.map(|file| Plugin { cache: cache.map(path), call, ..Plugin::new(path(file)) });
        let created = Host::open(&Settings { limits: settings.limits.into(), plugin, node: None })?;
        let opened = HydrantHost(Mutex::new(Open { host: created, event: None, environment: None }));
        // SAFETY: as above.
        unsafe { write("the pointer to the host", host, Box::into_raw(Box::new(opened)))? };
        Ok(0)
    })
}

/// Frees a server.
///
/// # Safety
/// `host` is NULL or open, and no thread uses it from here on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_close(host: *mut HydrantHost) {
    call(|| {
        if !host.is_null() {
            // SAFETY: the pointer is that of `hydrant_host_open`, and the caller gives it up.
            drop(unsafe { Box::from_raw(host) });
        }
        Ok(0)
    });
}

/// Returns the descriptor that is readable while `hydrant_host_next` has work.
///
/// # Safety
/// `host` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_fd(host: *const HydrantHost) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(unsafe { lock(host)? }.host.as_raw_fd()))
}

/// Takes the next output. Returns 1, or 0 if there is none.
///
/// # Safety
/// `host` is NULL or open. `output` is NULL or a structure to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_next(host: *const HydrantHost, output: *mut HostOutput) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as is the write below.
        let mut host = unsafe { lock(host)? };
        // Before the server gives its output away.
        if output.is_null() {
            return Err(Error::Null("the output"));
        }
        let next = host.next()?;
        // SAFETY: as above.
        unsafe { write("the output", output, next.unwrap_or(HostOutput::NONE))? };
        Ok(next.is_some().into())
    })
}

/// Returns the number of bytes that the next `hydrant_host_bytes` of a connection takes, 0 if it is not open.
///
/// # Safety
/// `host` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_room(host: *const HydrantHost, conn: u32) -> usize {
    // SAFETY: guaranteed by the caller.
    let room = call(|| Ok(unsafe { lock(host)? }.host.room(ConnId(conn)).min(MESSAGE_MAX as usize) as c_int));
    usize::try_from(room).unwrap_or(0)
}

/// Passes bytes of a client to the server.
///
/// # Safety
/// `host` is NULL or open. `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_bytes(
    host: *const HydrantHost,
    conn: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (mut host, data) = unsafe { (lock(host)?, bytes("the data", data, len)?) };
        host.host.bytes(ConnId(conn), data)?;
        Ok(0)
    })
}

/// Registers a job.
///
/// # Safety
/// `host` is NULL or open. `job` is NULL or initialized, and its names are NULL or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_register_job(host: *const HydrantHost, job: *const HostJob) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as are the strings below.
        let (mut host, job) = unsafe { (lock(host)?, record("the job", job)?) };
        let random;
        let name = if job.name.is_null() {
            random = random_name()?;
            &random
        } else {
            // SAFETY: as above.
            unsafe { text("the name of the job", job.name)? }
        };
        // SAFETY: as above.
        let spawner = if job.spawner.is_null() { "" } else { unsafe { text("the spawner", job.spawner)? } };
        let spec = JobSpec {
            universe_size: Some(job.universe_size).filter(|&size| size > 0),
            cleanup: job.cleanup != 0,
            pmi1_subversion: job.pmi1_subversion,
            spawn: Some(UpcallId(job.spawn)).filter(|spawn| spawn.0 != NONE),
            spawner,
            lookup_wait: job.lookup_wait,
            remote_names: job.remote_names != 0,
            fence_warning: job.fence_warning,
            fence: variant("the fence mode", job.fence.try_into().unwrap_or(-1), &[])?,
            ..JobSpec::new(JobId(job.job), name, job.size)
        };
        host.host.input(Input::RegisterJob(spec))?;
        Ok(0)
    })
}

/// Makes the connection and the environment of a rank.
///
/// # Safety
/// `host` is NULL or open. `inherited` is NULL or an array of strings that ends in NULL. `fd` and `env` are NULL or pointers to
/// write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_setup_fork(
    host: *const HydrantHost,
    job: u32,
    rank: u32,
    inherited: *const *const c_char,
    fd: *mut c_int,
    env: *mut *mut *mut c_char,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as are the array and the writes below.
        let mut host = unsafe { lock(host)? };
        // Before the connection is made.
        // SAFETY: as above.
        unsafe { (write("the descriptor", fd, -1)?, write("the environment", env, ptr::null_mut())?) };
        // SAFETY: as above.
        let inherited = unsafe { strings(inherited) };
        let (job, rank) = (JobId(job), Rank(rank));
        let end = host.host.pass_socket(job, rank)?;
        let own = host.host.inherited_env(job, rank, end.as_raw_fd())?;
        let variables = host.environment.insert(Environment::new(&inherited, &own)).as_ptr();
        // SAFETY: as above.
        unsafe {
            (write("the descriptor", fd, end.into_raw_fd())?, write("the environment", env, variables)?)
        };
        Ok(0)
    })
}

/// Makes the environment of a rank that connects to the port of its job.
///
/// # Safety
/// `host` is NULL or open. `inherited` is NULL or an array of strings that ends in NULL. `env` is NULL or a pointer to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_setup_env(
    host: *const HydrantHost,
    job: u32,
    rank: u32,
    inherited: *const *const c_char,
    env: *mut *mut *mut c_char,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as are the array and the writes below.
        let mut host = unsafe { lock(host)? };
        // SAFETY: as above.
        unsafe { write("the environment", env, ptr::null_mut())? };
        // SAFETY: as above.
        let inherited = unsafe { strings(inherited) };
        let own = host.host.port_env(JobId(job), Rank(rank))?;
        let variables = host.environment.insert(Environment::new(&inherited, &own)).as_ptr();
        // SAFETY: as above.
        unsafe { write("the environment", env, variables)? };
        Ok(0)
    })
}

/// Listens at a port of the loopback interface, and accepts PMIx clients of a job.
///
/// # Safety
/// `host` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_host_listen(host: *const HydrantHost, job: u32, number: u16) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| {
        // SAFETY: guaranteed by the caller.
        let mut host = unsafe { lock(host)? };
        host.host.listen(JobId(job), (Ipv4Addr::LOCALHOST, number).into(), Speaks::Pmix)?;
        Ok(0)
    })
}

/// Listens at a port of the loopback interface.
///
/// # Safety
/// `port` is NULL or a pointer to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_port_open(number: u16, port: *mut *mut HydrantPort) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as is the second write.
        unsafe { write("the pointer to the port", port, ptr::null_mut())? };
        let opened = Box::new(HydrantPort(Mutex::new(Port::open(number)?)));
        // SAFETY: as above.
        unsafe { write("the pointer to the port", port, Box::into_raw(opened))? };
        Ok(0)
    })
}

/// Closes a port.
///
/// # Safety
/// `port` is NULL or open, and no thread uses it from here on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_port_close(port: *mut HydrantPort) {
    call(|| {
        if !port.is_null() {
            // SAFETY: the pointer is that of `hydrant_port_open`, and the caller gives it up.
            drop(unsafe { Box::from_raw(port) });
        }
        Ok(0)
    });
}

/// Returns the descriptor that is readable while a client waits.
///
/// # Safety
/// `port` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_port_fd(port: *const HydrantPort) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(unsafe { lock_port(port)? }.fd()))
}

/// Accepts a client. Returns 1, or 0 if none waits.
///
/// # Safety
/// `port` is NULL or open. `fd` is NULL or a number to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_port_accept(port: *const HydrantPort, fd: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller, as are the writes.
        let mut port = unsafe { lock_port(port)? };
        // Before a client is accepted.
        // SAFETY: as above.
        unsafe { write("the descriptor", fd, -1)? };
        let Some(client) = port.accept()? else { return Ok(0) };
        // SAFETY: as above.
        unsafe { write("the descriptor", fd, client.into_raw_fd())? };
        Ok(1)
    })
}

/// Writes the variables of a rank. Returns their length.
///
/// # Safety
/// `port` is NULL or open. `job` is NULL or a string. `variables` is NULL or points to `len` bytes to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_port_variables(
    port: *const HydrantPort,
    job: *const c_char,
    rank: u32,
    variables: *mut c_char,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (port, job) = unsafe { (lock_port(port)?, text("the name of the job", job)?) };
        let texts = port.variables(job, rank);
        // SAFETY: guaranteed by the caller.
        unsafe { write_bytes("the text of the variables", variables, len, &texts)? };
        // A name has at most 1,024 bytes.
        Ok(texts.len() as c_int)
    })
}

/// Returns the exit code of a launcher for the end of a rank.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_exit_code(exit: c_int, number: u32) -> c_int {
    call(|| Ok(exit_of(exit, number)?.exit_code().into()))
}

/// Returns the message of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_host_error() -> *const c_char {
    error::message()
}

/// Returns the number of the fault that was the last error of this thread, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_host_fault() -> c_int {
    error::fault().map_or(-1, |fault| fault as c_int)
}

/// Returns the number of the limit that the last error of this thread names, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_host_limit() -> c_int {
    error::limit().map_or(-1, |limit| limit as c_int)
}

/// Exports a function for each input, and lists their parameters for the comparison with the header.
macro_rules! inputs {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) => $input:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// `host` is NULL or open. Pointers are NULL or to strings, or to as many bytes as the length that follows.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(host: *const HydrantHost, $($arg: $type),*) -> c_int {
                call(|| {
                    // SAFETY: guaranteed by the caller.
                    let mut host = unsafe { lock(host)? };
                    // SAFETY: guaranteed by the caller.
                    #[allow(unused_unsafe, reason = "some inputs have no pointers")]
                    let input = unsafe { $input };
                    host.host.input(input)?;
                    Ok(0)
                })
            }
        )*

        /// Functions of inputs, with names and types of their parameters behind the host.
        #[cfg(test)]
        pub(crate) const INPUTS: &[(&str, &[(&str, &str)])] =
            &[$((stringify!($name), &[$((stringify!($arg), stringify!($type))),*])),*];
    };
}

inputs! {
    /// The server is one of several.
    fn hydrant_host_node(node: u32, nodes: u32, radix: u32) => Input::Node { node, nodes, radix };
    /// Maps ranks to a node.
    fn hydrant_host_map_ranks(job: u32, first: u32, count: u32, node: u32) =>
        Input::MapRanks { job: JobId(job), first: Rank(first), count, node };
    /// Stores a pair of a spawned job.
    fn hydrant_host_preput(
        job: u32, key: *const c_void, key_len: usize, value: *const c_void, value_len: usize
    ) => Input::Preput {
        job: JobId(job), key: bytes("the key", key, key_len)?, value: bytes("the value", value, value_len)?
    };
    /// Defines a process set of any ranks, and of all ranks of another job.
    fn hydrant_host_define(
        job: u32, name: *const c_char, members: *const c_void, len: usize, other: u32
    ) => Input::Define {
        job: JobId(job),
        name: text("the name", name)?,
        members: bytes("the members", members, len)?,
        other: (other != NONE).then_some(JobId(other))
    };
    /// Connects or disconnects two jobs.
    fn hydrant_host_connected(job: u32, other: u32, connected: c_int) =>
        Input::Connected { job: JobId(job), other: JobId(other), connected: connected != 0 };
    /// A fence is stalled on another node.
    fn hydrant_host_stalled_fence(job: u32) => Input::StalledFence { job: JobId(job) };
    /// Passes a message of a neighbour to the server.
    fn hydrant_host_peer(node: u32, data: *const c_void, len: usize) =>
        Input::Peer { node, bytes: bytes("the message", data, len)? };
    /// The link to a neighbour is full.
    fn hydrant_host_peer_blocked(node: u32) => Input::PeerBlocked { node };
    /// The link to a neighbour is writable again.
    fn hydrant_host_peer_writable(node: u32) => Input::PeerWritable { node };
    /// Sets the program number of ranks.
    fn hydrant_host_program(job: u32, first: u32, count: u32, appnum: u32) =>
        Input::Program { job: JobId(job), first: Rank(first), count, appnum };
    /// Sets an attribute of the job or of this node.
    fn hydrant_host_attr(
        job: u32, key: *const c_void, key_len: usize, value: *const c_void, value_len: usize
    ) => Input::Attr {
        job: JobId(job), key: bytes("the key", key, key_len)?, value: bytes("the value", value, value_len)?
    };
    /// Defines a process set of successive ranks.
    fn hydrant_host_pset(job: u32, name: *const c_char, first: u32, count: u32) =>
        Input::Pset { job: JobId(job), name: text("the name", name)?, first: Rank(first), count };
    /// Completes a spawn.
    fn hydrant_host_spawn_complete(
        spawn: u32, started: c_int, full: c_int, codes: *const c_void, len: usize
    ) => Input::SpawnComplete {
        spawn: UpcallId(spawn),
        started: started != 0,
        full: if full < 0 { None } else { Some(variant::<Limit>("a limit", full, &[])?) },
        codes: bytes("the codes", codes, len)?
    };
    /// Completes an upcall.
    fn hydrant_host_upcall_complete(upcall: u32, rc: i32, data: *const c_void, len: usize) =>
        Input::UpcallComplete { upcall: UpcallId(upcall), rc, text: bytes("the text", data, len)? };
    /// A client connected.
    fn hydrant_host_opened(conn: u32, job: u32, rank: u32) => Input::Opened {
        conn: ConnId(conn), job: JobId(job), rank: Some(Rank(rank)).filter(|rank| rank.0 != NONE)
    };
    /// A client that queries connected.
    fn hydrant_host_opened_query(conn: u32, job: u32) =>
        Input::OpenedQuery { conn: ConnId(conn), job: JobId(job) };
    /// The send buffer of a connection is full.
    fn hydrant_host_blocked(conn: u32) => Input::Blocked { conn: ConnId(conn) };
    /// A connection is writable again.
    fn hydrant_host_writable(conn: u32) => Input::Writable { conn: ConnId(conn) };
    /// A connection was closed.
    fn hydrant_host_closed(conn: u32) => Input::Closed { conn: ConnId(conn) };
    /// The process of a rank has ended.
    fn hydrant_host_exited(job: u32, rank: u32, exit: c_int, number: u32) => Input::Exited {
        job: JobId(job),
        rank: Rank(rank),
        exit: exit_of(exit, number)?
    };
    /// Deregisters a job.
    fn hydrant_host_deregister_job(job: u32) => Input::DeregisterJob { job: JobId(job) };
    /// The client of a connection runs as the user of its job.
    fn hydrant_host_verified(conn: u32) => Input::Verified { conn: ConnId(conn) };
    /// Applies a request about process sets.
    fn hydrant_host_pset_request(job: u32, rank: u32, data: *const c_void, len: usize) =>
        Input::PsetRequest { job: JobId(job), rank: Rank(rank), request: bytes("the request", data, len)? };
    /// A node is lost, and with it all nodes below it.
    fn hydrant_host_node_lost(epoch: u32, node: u32) => Input::NodeLost { epoch, node };
    /// A node has joined that the tree has had from the start.
    fn hydrant_host_node_joined(epoch: u32, node: u32) => Input::NodeJoined { epoch, node };
}
