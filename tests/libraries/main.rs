//! Real MPI libraries: as clients of the launcher, and around the libraries that hydrant brings.

/// Commands in README.md and in the book.
mod documents;
/// Launchers in Rust on `hydrant-host`: its examples.
mod embedded;
/// Unmodified MPI libraries and PMI clients under `hydrant run`.
mod interop;
/// `libhydrant_mpi.so`, alone and in front of MPICH 5.0.2.
mod mpi;
/// MPI libraries in jobs over several daemons on this machine.
mod nodes;
/// Pages of `hydrant replay --html` in a browser.
mod pages;
/// `libpmi.so.0` beside Slurm's library of that name.
mod pmi1;
/// `libpmi2.so.0` beside Slurm's library of that name.
mod pmi2;
