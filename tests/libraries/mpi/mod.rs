//! `libhydrant_mpi.so`: alone, and in front of MPICH 5.0.2's two libraries; in Fortran.

mod alone;
mod beside;
mod fortran;
mod programs;
mod queries;
