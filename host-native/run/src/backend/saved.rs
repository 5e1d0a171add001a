//! State of a server, which another server goes on with.

use hydrant_core::Server;

/// State of a server.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) state: Vec<u8>,
    /// A plugin has had it.
    #[cfg(feature = "sandbox")]
    pub(crate) is_plugins: bool,
    #[cfg(feature = "sandbox")]
    pub(crate) validator: hydrant_wasm::Validator,
}

impl Saved {
    /// The state of a server in this process.
    pub(crate) fn of(server: &Server<'_>) -> Saved {
        let mut state = vec![0; server.snapshot_len()];
        let len = server.snapshot(&mut state).map_or(0, <[u8]>::len);
        state.truncate(len);
        Saved {
            state,
            #[cfg(feature = "sandbox")]
            is_plugins: false,
            #[cfg(feature = "sandbox")]
            validator: hydrant_wasm::Validator::of(server),
        }
    }
}
