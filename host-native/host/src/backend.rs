//! Server of a host: the built-in one, or a plugin.

use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use hydrant_core::server::Consumed;
use hydrant_core::{Fault, Input, Limits, Output, Server, Time};
use hydrant_driver::MappedStorage;

use crate::error::Error;

/// Plugin of a host.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "sandbox"),
    allow(dead_code, reason = "a library without the sandbox refuses plugins")
)]
pub(crate) struct PluginFile<'a> {
    pub(crate) file: &'a Path,
    pub(crate) cache: Option<&'a Path>,
    /// Maximum time of one call.
    pub(crate) call: Duration,
}

/// Server of a host.
#[derive(Debug)]
pub(crate) enum Backend {
    BuiltIn(Box<BuiltIn>),
    #[cfg(feature = "sandbox")]
    Sandbox(Box<hydrant_wasm::Plugin>),
}

/// Server in this process.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    /// Borrows from the storage. Fields are dropped in their order.
    server: Server<'static>,
    _storage: LentStorage,
}

/// Storage that is lent to a server, and freed with this value.
#[derive(Debug)]
struct LentStorage(NonNull<MappedStorage>);

// SAFETY: this value owns the storage, which is `Send`. The server's references to it move to another thread with it, in
// `BuiltIn`.
unsafe impl Send for LentStorage {}

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<MappedStorage>();
};

impl Drop for LentStorage {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a leaked box, and the server, which borrows from it, has been dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl BuiltIn {
    fn new(limits: Limits, seed: u32) -> Result<BuiltIn, Error> {
        let storage = MappedStorage::try_new(&limits)?;
        let mut storage = LentStorage(NonNull::from(Box::leak(Box::new(storage))));
        // SAFETY: nothing else accesses the storage. It stays at its address until `LentStorage` is dropped, which is after
        // the server: at an error here, and as the later field of `BuiltIn`.
        let lent = unsafe { storage.0.as_mut() }.lend();
        Ok(BuiltIn { server: Server::new(limits, lent, seed)?, _storage: storage })
    }
}

impl Backend {
    /// Creates a server, in a plugin if there is one.
    pub(crate) fn new(limits: Limits, seed: u32, plugin: Option<PluginFile<'_>>) -> Result<Backend, Error> {
        match plugin {
            None => Ok(Backend::BuiltIn(Box::new(BuiltIn::new(limits, seed)?))),
            #[cfg(feature = "sandbox")]
            Some(PluginFile { file, cache, call }) => {
                let settings = hydrant_wasm::Settings {
                    deadline: call,
                    cache: cache.map(Path::to_owned),
                    ..Default::default()
                };
                let sandbox = hydrant_reactor::signals::with_all_blocked(|| {
                    hydrant_wasm::Sandbox::load(file, &settings)
                })?;
                Ok(Backend::Sandbox(Box::new(sandbox.server(limits, seed)?)))
            }
            #[cfg(not(feature = "sandbox"))]
            Some(plugin) => Err(Error::NoSandbox(plugin.file.to_owned())),
        }
    }

    /// Returns whether `poll` may return an output.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Backend::BuiltIn(built_in) => built_in.server.has_output(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.has_output(),
        }
    }
}

impl hydrant_core::Backend for Backend {
    type Error = Error;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Error> {
        match self {
            Backend::BuiltIn(built_in) => Ok(built_in.server.handle(now, input)?),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => Ok(plugin.handle(now, input)?),
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Error> {
        match self {
            Backend::BuiltIn(built_in) => Ok(built_in.server.poll(buf).map_err(Fault::from)?),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => Ok(plugin.poll(buf)?),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        match self {
            Backend::BuiltIn(built_in) => built_in.server.poll_at(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.poll_at(),
        }
    }

    fn limits(&self) -> &Limits {
        match self {
            Backend::BuiltIn(built_in) => built_in.server.limits(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.limits(),
        }
    }
}
