//! A simulator: the daemons of a job, each the real core, under one seeded virtual clock.
//!
//! Every node runs a [`hydrant_core::Server`]; [`node`] does for it what a host does, [`net`] carries messages between
//! nodes with delays of its own for each link, and [`rank`] plays the programs. What is promised to them is checked from
//! outside, by [`checks`], which know what was asked and answered and nothing of any state. One number, the seed, decides
//! everything: what the ranks do, who is slow, what is lost and when. [`measure`] asks the same machinery what a fence
//! costs.

pub mod chart;
pub mod checks;
pub mod measure;
pub mod net;
pub mod node;
pub mod rank;
pub mod scenario;
pub mod world;

pub use scenario::Scenario;
pub use world::World;
