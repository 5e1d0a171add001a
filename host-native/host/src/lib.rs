//! PMI server for launchers: a batch system's starter, a container runtime, a launcher of one's own.
//!
//! The launcher starts and ends processes. The library serves them: PMI-1, PMI-2 and PMIx, which MPICH, Open MPI, Intel MPI and all
//! that is built on them speak. It makes their connections or accepts them, and answers requests. The launcher waits for one
//! descriptor, beside what else it waits for, and carries out what the server asks for.
//!
//! # A launcher
//!
//! This one runs four ranks of a program, with MPICH or Open MPI. It is the whole of `examples/four_ranks.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/four_ranks.rs")]
//! ```
//!
//! | what | how |
//! |---|---|
//! | a server | [`Host::open`] with [`Settings`]: limits, a plugin, the place among several nodes |
//! | a job | [`Job::new`], its programs, nodes, attributes and process sets; [`Host::register_job`], [`Host::deregister_job`] |
//! | ranks of this process | [`Host::setup_fork`] for each `Command`; [`Host::pass_socket`] for other ways of starting |
//! | ranks elsewhere, in containers | [`Host::listen`], [`Host::setup_env`] and [`Host::rank_env`] |
//! | ranks that start before their job is known | [`Port`], [`Job::rank_env`], then [`Host::adopt_port`], [`Host::adopt_socket`] |
//! | the loop | [`as_fd`](Host#impl-AsFd-for-Host) is readable while [`Host::next_event`] has work; [`Host::wait`]; `AsyncHost` |
//! | ends of processes | [`Host::watch`] and [`Event::Exited`], or [`Host::exited`] |
//! | a job aborted, a rank to kill | [`Output::AbortJob`], [`Output::KillRank`] |
//! | the exit code of hydrant | [`Cause::exit_code`], [`Exit::exit_code`], [`Exit::of_killed`]; the first failure counts |
//! | a fence that is late | [`Job::fence_warning`], [`Output::StalledFence`] |
//! | a spawn | [`Output::Spawn`], [`decode_spawn`], [`Job::spawned_by`], [`Host::spawn_complete`] |
//! | several nodes | [`Settings::on_node`], [`Job::node`], [`Output::Peer`], [`Host::peer`] |
//!
//! Functions of the same names are in `hydrant_host.h`, as `hydrant_host_register_job`, and inputs and outputs have the same names
//! in the packages for Python and JavaScript.
//!
//! # Several nodes
//!
//! Each node has a launcher with a server of its own. The servers exchange messages, which the launchers carry over whatever they
//! have between them, whole, in order, each in at most 32 KiB for jobs of up to 100,000 ranks. All register the same jobs in the
//! same order. A launcher tells its own server of its own ranks only. [`Output::AbortJob`] is the output of one server: its
//! launcher tells the others. This one is `examples/two_nodes.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/two_nodes.rs")]
//! ```
//!
//! # Limits
//!
//! [`Limits`] are fixed when the server is created: [`Settings::for_ranks`] is enough for one job of MPI, and takes memory as pairs
//! are stored. A request beyond a limit is refused with an error that names it. Jobs have up to 100,000 ranks. Clients have
//! budgets: one that does not read its replies is not read from, and one without a handshake is closed after 10 s. The crate is for
//! Linux; elsewhere it is empty.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `c` (default) | the exported functions of `hydrant_host.h` |
//! | `tokio` | `AsyncHost`: a task awaits the events |
//! | `sandbox` | [`Plugin`]: the server as `hydrant.wasm`; brings in wasmtime and its compiler |
//!
//! # Modules
//!
//! They import only from rows below their own:
//!
//! | module | contents |
//! |---|---|
//! | `c` | the exported functions |
//! | `tokio` | a host in a program of tokio |
//! | `host` | server, clock, timer and connections |
//! | `served` | a registered job: its port, and which of its ranks run |
//! | `job` | description of a job |
//! | `port` | port of a job that is not registered yet |
//! | `variables` | variables of a rank |
//! | `settings` | settings, and the built-in server or a plugin |
//! | `event` | what the host reports |
//! | `timer` | descriptor that is readable when a deadline has passed |
//! | `error` | errors |
#![cfg(target_os = "linux")]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "c")]
pub mod c;
mod error;
mod event;
mod host;
mod job;
mod port;
mod served;
mod settings;
#[cfg(test)]
mod tests;
mod timer;
#[cfg(feature = "tokio")]
mod tokio;
mod variables;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

pub use error::Error;
pub use event::Event;
pub use host::Host;
pub use hydrant_core::server::RankReport;
pub use hydrant_core::trace::{Cause, Closing, Stream};
pub use hydrant_core::wire::{Protocol, decode_spawn, decode_upcall};
pub use hydrant_core::{
    ConnId, Exit, Fault, Input, JobId, Limit, Limits, OwnedOutput as Output, Rank, UpcallId,
};
pub use hydrant_driver::{CloseReason, Speaks, is_foreign_variable};
pub use job::{Job, random_name};
pub use port::Port;
pub use settings::{Node, Plugin, Settings};

#[cfg(feature = "tokio")]
pub use crate::tokio::AsyncHost;

/// Returns the exit of a process with this status, for [`Host::exited`].
pub fn exit_of(status: ExitStatus) -> Exit {
    let number = |of: i32| u8::try_from(of).unwrap_or(u8::MAX);
    match status.signal() {
        Some(signal) => Exit::Signal(number(signal)),
        None => Exit::Code(status.code().map_or(u8::MAX, number)),
    }
}
