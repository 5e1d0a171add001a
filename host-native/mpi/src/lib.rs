//! `libhydrant_mpi.so`: MPI's Info, Sessions and process sets (MPI 5.0, chapters 10 and 11) for C programs.
//!
//! Where the process has no MPI library, this one is it, for the calls that it has: with the handles and constants of
//! the standard ABI (MPI 5.0, chapter 20), which `include/hydrant_mpi.h` declares. Where it has one, each call goes
//! on to that library's `PMPI_` name, and the process sets that hydrant keeps are added to those of the library. The
//! first call of a process decides which of the two it is.
//!
//! Modules, from the outside in: `api` holds the exported names; `beside` is in front of an MPI library (`real`);
//! `session`, `info` and `errhandler` do without one; `psets` and `query` ask hydrant for both.

mod abi;
mod api;
mod beside;
mod cstr;
mod errhandler;
mod info;
mod psets;
mod query;
mod real;
mod session;
mod state;
