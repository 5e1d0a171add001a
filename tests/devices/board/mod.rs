//! The firmware in QEMU: a microcontroller that serves real MPI jobs.

mod faults;
mod forward;
mod gdb;
mod jobs;
mod log;
mod manager;
mod mpi;
mod offload;
mod qemu;
mod recording;
mod talk;
mod trouble;
