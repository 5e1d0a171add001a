//! `libhydrant_mpi.so`: alone, and in front of MPICH 5.0.2's two libraries.

mod alone;
mod beside;
mod programs;
mod queries;
