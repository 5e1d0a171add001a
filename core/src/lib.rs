//! The protocol core of hydrant: a process manager's PMI-1 and PMI-2 server, and the client that asks it,
//! as state machines without I/O.
//!
//! The crate knows no operating system. It has no clock, no randomness and no allocator: time is an argument,
//! memory is lent by the caller as [`Storage`] whose sizes follow from [`Limits`]. [`Server::handle`] is the only
//! way in, [`Server::poll`] the only way out.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "alloc"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(all(feature = "defmt", feature = "log"))]
compile_error!("the features defmt and log exclude each other: events are logged to one of them");

pub mod client;
pub mod fault;
mod ids;
pub mod info;
pub mod limits;
pub mod manage;
pub mod peer;
pub mod server;
pub mod snapshot;
mod state;
pub mod storage;
mod store;
mod tables;
mod time;
pub mod trace;
pub mod wire;

pub use fault::{Fault, Malformed, Refusal, ShortBuffer};
pub use ids::{ConnId, JobId, Rank, UpcallId};
pub use limits::{Limit, Limits};
pub use server::{Backend, Consumed, Inbox, Input, JobSpec, Output, Server};
pub use storage::Storage;
pub use time::Time;
