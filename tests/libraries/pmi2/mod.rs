//! libpmi2.so.0: the same programs over this library and over Slurm's, built against either header, under every process
//! manager that speaks PMI-2 and under none.

mod binary;
mod functions;
pub(crate) mod header;
mod nodes;
mod peers;
mod shared;
mod spawn;
pub(crate) mod support;
