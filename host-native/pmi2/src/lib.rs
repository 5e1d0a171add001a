//! `libpmi2.so.0`: the 22 functions of `pmi2.h` for C programs, and three of hydrant for values with NUL.
//!
//! The library is binary compatible with the `libpmi2.so.0` of Slurm. `include/pmi2.h` documents each function. A
//! process reaches its server by `PMI_FD`, or by `PMI_PORT` and `PMI_ID`. Without these variables it is a singleton: a
//! job of one process, whose server runs inside the process.
//!
//! ```c
//! #include <pmi2.h>
//! #include <stdio.h>
//!
//! int main(void) {
//!     int spawned, size, rank, appnum, len;
//!     char key[32], address[64];
//!     if (PMI2_Init(&spawned, &size, &rank, &appnum) != PMI2_SUCCESS) return 1;
//!     snprintf(key, sizeof key, "address-%d", rank);
//!     PMI2_KVS_Put(key, "10.0.0.1:4000");
//!     PMI2_KVS_Fence();
//!     snprintf(key, sizeof key, "address-%d", (rank + 1) % size);
//!     PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, address, sizeof address, &len);
//!     printf("rank %d of %d: the next rank is at %s\n", rank, size, address);
//!     return PMI2_Finalize();
//! }
//! ```
//!
//! Rust programs can call the same functions:
//!
//! ```
//! use std::ffi::c_int;
//!
//! use hydrant_pmi2::{Code, PMI2_Finalize, PMI2_Init, PMI2_Initialized};
//!
//! let (mut spawned, mut size, mut rank, mut appnum) = (0, 0, 0, 0);
//! // SAFETY: four integers to write to.
//! let code = unsafe { PMI2_Init(&mut spawned, &mut size, &mut rank, &mut appnum) };
//! assert_eq!(code, Code::Success as c_int);
//! assert!(rank < size && PMI2_Initialized() != 0);
//! assert_eq!(PMI2_Finalize(), Code::Success as c_int);
//! ```
//!
//! Any thread may call any function. All threads use one [`SharedConnection`](hydrant_client::SharedConnection).
//! `PMI2_KVS_Get` reads values of the process's own job from memory that hydrant shares with its ranks, if it offers
//! any. Every other request goes to the server.
//!
//! | module | contents |
//! |---|---|
//! | `api` | the exported functions; argument checks |
//! | `process` | state of this process: uninitialised, joined, finalised |
//!
//! Errors, checks of pointers and the state of the process are [`hydrant_client::c`], which `libpmi.so.0` shares.

mod api;
mod process;

pub use api::*;
pub use hydrant_client::c::Code;
