//! The firmware in QEMU: a microcontroller that serves real MPI jobs.

mod deadlines;
mod faults;
mod fleet;
mod forward;
mod gdb;
mod jobs;
mod links;
mod log;
mod manager;
mod mpi;
mod offload;
mod qemu;
mod recording;
mod secret;
mod spares;
mod spawn;
mod talk;
mod trouble;
mod watchdog;
