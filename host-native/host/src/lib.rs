//! `libhydrant_host.so.0`: hydrant's PMI server for launchers in C.
//!
//! A host (a batch system's starter, a launcher of one's own) starts and ends processes. The library has the server and the
//! sockets of its clients; a host may also carry the bytes of clients itself. The server is the one that is built in, or
//! `hydrant.wasm` in a sandbox (feature `sandbox`). `include/hydrant_host.h` documents each function, and
//! `host-wasm/examples/launch.c` is a launcher.
//!
//! ```
//! use std::mem::MaybeUninit;
//! use std::ptr;
//!
//! use hydrant_host::{
//!     ABI_VERSION, hydrant_host_blocked, hydrant_host_close, hydrant_host_open, hydrant_settings_init,
//! };
//!
//! let mut settings = MaybeUninit::uninit();
//! // SAFETY: a structure to write to.
//! assert_eq!(unsafe { hydrant_settings_init(settings.as_mut_ptr(), ABI_VERSION, 8) }, 0);
//! let mut host = ptr::null_mut();
//! // SAFETY: the call has written the settings, and the host is a pointer to write to.
//! assert_eq!(unsafe { hydrant_host_open(settings.as_ptr(), &mut host) }, 0);
//! // A fault: connection 3 is not open. SAFETY: the host is open.
//! assert_eq!(unsafe { hydrant_host_blocked(host, 3) }, -2);
//! // SAFETY: the host is open.
//! unsafe { hydrant_host_close(host) };
//! ```
//!
//! The library is for Linux. Elsewhere the crate is empty. Modules import only from rows below their own:
//!
//! | module | contents |
//! |---|---|
//! | `exports` | the exported functions |
//! | `port` | port of the loopback interface for PMIx clients |
//! | `pointer` | checked access to pointers from C callers |
//! | `host` | server, clock, timer and connections |
//! | `job` | name of a job, its port for PMIx clients, and the variables of its ranks |
//! | `environment` | variables of a rank in the form that `execve` takes |
//! | `backend` | the built-in server, or a plugin |
//! | `types` | structures of the header |
//! | `timer` | descriptor that is readable when a deadline has passed |
//! | `error` | errors, their codes, and the last one of each thread |
#![cfg(target_os = "linux")]

mod backend;
mod environment;
mod error;
mod exports;
#[cfg(test)]
mod header;
mod host;
mod job;
mod pointer;
mod port;
#[cfg(test)]
mod tests;
mod timer;
mod types;

pub use exports::*;
pub use hydrant_abi::ABI_VERSION;
pub use types::{HostJob, HostLimits, HostOutput, HostSettings};
