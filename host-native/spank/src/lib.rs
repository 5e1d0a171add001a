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
//! | `head` | thread of srun to which nodes connect, those of spawned steps among them |
//! | `spawned` | spawned steps, each with an srun |
//! | `srun` | command of such a srun, from the request of a rank |
//! | `server` | thread with the server of a node: event loop and what its outputs require |
//! | `uplink` | link of a node to the head |
//! | `message` | messages between the head and the nodes, and the job of a step |
//! | `address` | address of the head, as nodes get it from their srun |
//! | `servers` | numbers, tree and capacities of all servers |
//! | `tasks` | tasks of a node: processes, sockets, environment |
//! | `arguments` | words of plugstack.conf and the value of `--hydrant` |
//! | `spank` | functions and items of Slurm |
#![cfg(target_os = "linux")]
// Slurm's functions are there in Slurm's programs only, so tests have nothing that calls them.
#![cfg_attr(test, allow(dead_code))]

mod address;
mod arguments;
#[cfg(not(test))]
mod exports;
mod head;
mod message;
mod server;
mod servers;
#[cfg(not(test))]
mod spank;
mod spawned;
mod srun;
#[cfg(not(test))]
mod step;
mod tasks;
mod uplink;

#[cfg(not(test))]
pub use exports::*;
