//! Jobs over several machines: real ssh between hosts made of namespaces, hosts that join, a real Grid Engine on them, and a
//! real Slurm. Machines that lack something.

mod interface;
mod join;
mod losses;
mod machine;
#[allow(dead_code, reason = "plugins of other tests")]
#[path = "../sandbox/made.rs"]
mod made;
mod mapping;
mod namespaces;
mod sge;
mod slurm;
mod spank;
mod ssh;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
