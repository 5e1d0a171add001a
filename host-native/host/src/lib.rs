//! `libhydrant_host.so.0`: hydrant's PMI server for launchers in C.
//!
//! A host (slurmstepd, a launcher of one's own) starts processes and owns their sockets. The library has the server: the
//! one that is built in, or `hydrant.wasm` in a sandbox (feature `sandbox`). `include/hydrant_host.h` documents each
//! function, and `host-wasm/examples/launch.c` is a launcher.
//!
//! ```
//! use std::ffi::CStr;
//! use std::mem::MaybeUninit;
//! use std::ptr;
//!
//! use hydrant_host::{
//!     HostSettings, hydrant_host_close, hydrant_host_error, hydrant_host_open, hydrant_settings_init,
//! };
//!
//! let mut settings = MaybeUninit::<HostSettings>::uninit();
//! // SAFETY: a structure to write to.
//! assert_eq!(unsafe { hydrant_settings_init(settings.as_mut_ptr(), 4, 8) }, 0);
//! // SAFETY: the call has succeeded.
//! let mut settings = unsafe { settings.assume_init() };
//! settings.limits.conns = u32::MAX;
//! let mut host = ptr::null_mut();
//! // SAFETY: the settings name no files, and the host is a pointer to write to.
//! let code = unsafe { hydrant_host_open(&settings, &mut host) };
//! // SAFETY: a text, until the next call of this thread fails.
//! println!("{code}: {:?}", unsafe { CStr::from_ptr(hydrant_host_error()) });
//! // SAFETY: an open host, or NULL.
//! unsafe { hydrant_host_close(host) };
//! ```
//!
//! The library is for Linux. Elsewhere the crate is empty. Modules import only from rows below their own:
//!
//! | module | contents |
//! |---|---|
//! | `exports` | the exported functions |
//! | `pointer` | checked access to pointers from C callers |
//! | `host` | server, clock, timer, and the bytes that the server has not consumed |
//! | `backend` | the built-in server, or a plugin |
//! | `types` | structures of the header |
//! | `timer` | descriptor that is readable when a deadline has passed |
//! | `error` | errors, their codes, and the last one of each thread |
#![cfg(target_os = "linux")]

mod backend;
mod error;
mod exports;
#[cfg(test)]
mod header;
mod host;
mod pointer;
#[cfg(test)]
mod tests;
mod timer;
mod types;

pub use exports::*;
pub use types::{HostJob, HostLimits, HostOutput, HostSettings};
