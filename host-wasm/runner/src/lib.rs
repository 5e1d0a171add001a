//! Runs the protocol core as a plugin: `hydrant.wasm` in wasmtime.
//!
//! A [`Sandbox`] is a plugin's file, compiled; a [`Plugin`] is one instance of it, which serves one run and stands where a
//! [`Server`](hydrant_core::Server) would. A plugin can do nothing but answer calls, and what it answers is not believed:
//!
//! - its file is at most [`FILE_MAX`] long, may import nothing, and must speak version [`ABI`];
//! - its memory is capped by what its limits need, and each call by a [deadline](Settings::deadline);
//! - its outputs must be about jobs, connections and requests that the host knows, and no more of them than a server
//!   can owe ([`Known`]).
//!
//! Whatever it does wrong ends that instance with an [`Error`] that names the file. The ABI is described in
//! `docs/wasm-abi.md`.

mod abi;
mod cache;
mod error;
mod known;
mod plugin;
mod sandbox;
mod watch;

pub use abi::ABI;
pub use error::{Error, PluginError, Why};
pub use known::{Known, Nonsense};
pub use plugin::Plugin;
pub use sandbox::{FILE_MAX, Origin, Sandbox, Settings, read};
