//! Other machines, emulated by QEMU or only compiled for: Arm microcontrollers, aarch64, WebAssembly.

/// The firmware in QEMU: a microcontroller that serves real MPI jobs.
mod board;
/// The core as a task of Embassy, on this machine and in QEMU.
mod embassy;
/// The core built for targets without an operating system and without an allocator.
mod freestanding;
/// The model of the core and its random sequences, of which the boards' deadlines use the inputs.
#[path = "../core/model/mod.rs"]
#[allow(dead_code)]
mod model;
/// `hydrant serve --size`, on this machine and on an emulated aarch64.
mod serve;
