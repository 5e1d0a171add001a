//! `libhydrant_spank.so`: hydrant's server of PMI and PMIx inside Slurm.
//!
//! Slurm loads the library as a SPANK plugin. A step of `srun --hydrant` is served by a thread of each of its slurmstepds, in
//! this process or as `hydrant.wasm` in a sandbox. Slurm starts the tasks, passes their output and ends them.
//! `docs/slurm.md` describes installation and use. With the library in plugstack.conf:
//!
//! ```text
//! srun --mpi=none --hydrant -n 8 ./hello
//! ```
//!
//! The library is for Linux. Elsewhere the crate is empty. Modules import only from rows below their own:
//!
//! | module | contents |
//! |---|---|
//! | `exports` | the symbols and functions that Slurm looks for |
//! | `step` | a step in slurmstepd, from its options to its end |
//! | `head` | thread of srun with the server that connects those of several nodes |
//! | `spawned` | spawned steps, each with an srun |
//! | `server` | thread with the server of a node: event loop and what its outputs require |
//! | `uplink` | link of a node to the head |
//! | `message` | messages between the head, the nodes and other sruns, and the job of a step |
//! | `tasks` | tasks of a node: processes, sockets, environment |
//! | `arguments` | words of plugstack.conf and the value of `--hydrant` |
//! | `spank` | functions and items of Slurm |
#![cfg(target_os = "linux")]
// Slurm's functions are there in Slurm's programs only, so tests have nothing that calls them.
#![cfg_attr(test, allow(dead_code))]

mod arguments;
#[cfg(not(test))]
mod exports;
mod head;
mod message;
mod server;
#[cfg(not(test))]
mod spank;
mod spawned;
#[cfg(not(test))]
mod step;
mod tasks;
mod uplink;

#[cfg(not(test))]
pub use exports::*;
