//! Simulator of the nodes of a job, each with the real server, under one seeded virtual clock.
//!
//! Every node runs a [`hydrant_core::Server`]. [`node`] acts as its host, [`net`] carries messages between nodes with
//! separate delays for each link, and [`rank`] plays the programs. [`checks`] verify the guarantees to ranks from
//! outside: they use requests and replies, and no internal state. The seed determines each run: actions of the ranks,
//! slow nodes, and the times of losses. [`measure`] counts the cost of a fence in the same simulation, [`exchange`]
//! that of a fence and the gets after it, a [`pattern`]. [`models`] count the fences of other process managers, and of hydrant
//! where real servers have no memory; [`compare`] puts them side by side. [`memory`] calculates the tables of a server,
//! [`startup`] the start of daemons.
//!
//! [`cluster`] simulates whole runs: the head and daemons of hydrant-control with these servers, processes and output.
//! [`successor`] replaces a server during a run by one that is restored from its snapshot.

pub mod chart;
pub mod checks;
pub mod cluster;
pub mod compare;
pub mod exchange;
pub mod fabric;
pub mod inbox;
pub mod measure;
pub mod memory;
pub mod models;
pub mod net;
pub mod node;
pub mod pattern;
pub mod rank;
pub mod scenario;
pub mod startup;
pub mod successor;
pub mod tables;
pub mod world;

pub use scenario::Scenario;
pub use world::World;
