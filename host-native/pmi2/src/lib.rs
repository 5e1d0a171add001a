//! `libpmi2.so.0`: the 22 functions of pmi2.h over PMI-2's wire protocol.
//!
//! The C side is documented in `include/pmi2.h`. A process finds its server by `PMI_FD`, or by `PMI_PORT` and `PMI_ID`;
//! without either it is a job of its own, served by a [`hydrant_core::Server`] inside the process. Threads share
//! the one connection: whoever waits for a reply while nobody reads, reads for all. Values of the process's own job that
//! lie in memory shared with the server are read there; everything else is asked for.
//!
//! | module | knows |
//! |---|---|
//! | `api` | C's pointers, and which mistake has which code |
//! | `process` | whether this process is initialised, and as whom |
//! | `connection` | requests of several threads under way at once |
//! | `transport` | bytes, to a socket or to the server within |
//! | `segment` | the server's key-value log, where hydrant shares it with its ranks |
//! | `environment` | the variables that tell where the server is |

mod api;
mod connection;
mod environment;
mod error;
mod mapping;
mod process;
mod segment;
mod transport;

pub use api::*;
pub use error::Code;
