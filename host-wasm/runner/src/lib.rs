//! Runs hydrant's PMI server as a WebAssembly plugin: `hydrant.wasm` in wasmtime.
//!
//! A [`Sandbox`] is a compiled plugin file. A [`Plugin`] is one instance of it. It holds one server and implements
//! [`Backend`](hydrant_core::Backend), like [`Server`](hydrant_core::Server). Plugin output is untrusted and validated:
//!
//! - A plugin file is at most [`FILE_MAX`] bytes long, has no imports, and has ABI version
//!   [`ABI_VERSION`](hydrant_abi::ABI_VERSION).
//! - Memory is bounded by what the server's limits need. Each call has a [deadline](Settings::deadline).
//! - Outputs must refer to jobs, connections and upcalls that the host has opened, and their number is bounded
//!   ([`Validator`]).
//! - Complete messages of clients must be consumed, and requests that depend on no other rank must be answered at once.
//!
//! A violation ends the instance with a [`PluginError`] that names the file. `docs/wasm-abi.md` describes the ABI, and the crate
//! `hydrant-abi` has its records.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use hydrant_core::server::JobSpec;
//! use hydrant_core::{Backend, Input, JobId, Limits, Time};
//! use hydrant_wasm::{Sandbox, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = Sandbox::load(Path::new("target/hydrant.wasm"), &Settings::default())?;
//! let limits = Limits { jobs: 1, ranks: 2, conns: 2, keys: 64, kvs_bytes: 8192, ..Limits::NONE };
//! let mut server = sandbox.server(limits, 7)?;
//! server.handle(Time(0), Input::RegisterJob(JobSpec::new(JobId(0), "kvs_0", 2)))?;
//! let mut buf = vec![0; limits.output_max()];
//! while let Some(output) = server.poll(&mut buf)? {
//!     println!("{output:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod cache;
mod error;
mod pages;
mod plugin;
mod sandbox;
mod ticker;
mod turn;

pub use error::{PluginError, PluginErrorKind};
pub use hydrant_validator::{Validator, Violation};
pub use plugin::Plugin;
pub use sandbox::{FILE_MAX, Origin, Sandbox, Settings, read};
pub use turn::ClientBytes;
