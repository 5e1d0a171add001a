//! The protocol core of hydrant: a process manager's PMI-1 and PMI-2 server, and the client that asks it,
//! as state machines without I/O.
//!
//! The crate knows no operating system. It has no clock, no randomness and no allocator: time is an argument,
//! memory is lent by the caller as [`Storage`] whose sizes follow from [`Limits`]. [`Server::handle`] is the only
//! way in, [`Server::poll`] the only way out.
//!
//! Modules are stacked in floors and import only from floors below their own:
//!
//! | floor | modules | know |
//! |---|---|---|
//! | 0 | [`ids`], [`limits`], [`time`], [`fault`], [`trace`] | words that everyone uses |
//! | 1 | [`store`], [`wire`] | containers without protocol; messages without state |
//! | 2 | [`tables`] | one job each, never the wire |
//! | 3 | [`storage`], [`snapshot`] | the whole state, as memory and as bytes |
//! | 3 | [`manage`] | what a host says to a board that serves its jobs |
//! | 3 | [`peer`] | what daemons of several nodes tell each other |
//! | 4 | [`server`], [`client`] | the two state machines |
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
pub mod ids;
pub mod limits;
pub mod manage;
pub mod peer;
pub mod server;
pub mod snapshot;
mod state;
pub mod storage;
pub mod store;
pub mod tables;
pub mod time;
pub mod trace;
pub mod wire;

pub use fault::{Fault, Malformed, Refusal, ShortBuffer};
pub use ids::{ConnId, JobId, Rank, UpcallId};
pub use limits::{Limit, Limits};
pub use server::{Backend, Consumed, Inbox, Input, JobSpec, Output, Server};
pub use storage::Storage;
pub use tables::info;
pub use time::Time;
