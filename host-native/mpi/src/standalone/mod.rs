//! MPI calls in a process without an MPI library.

pub(crate) mod errhandler;
pub(crate) mod group;
pub(crate) mod info;
pub(crate) mod session;
