//! Jobs over several machines: real ssh between hosts made of namespaces, a real Grid Engine on them, and a
//! real Slurm.

mod mapping;
mod namespaces;
mod sge;
mod slurm;
mod ssh;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
