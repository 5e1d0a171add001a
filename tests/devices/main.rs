//! Other machines, emulated by QEMU or only compiled for: Arm microcontrollers, aarch64, WebAssembly.

/// The firmware in QEMU: a microcontroller that serves real MPI jobs.
mod board;
/// The core built for targets without an operating system and without an allocator.
mod freestanding;
/// `hydrant serve --size`, on this machine and on an emulated aarch64.
mod serve;
