//! `libpmi.so.0`: the 33 functions of Slurm's `pmi.h`, and `PMI_Barrier_group` of PMI 1.2, for C programs.
//!
//! The library is binary compatible with the `libpmi.so.0` of Slurm. `include/pmi.h` documents each function. A process
//! reaches its server by `PMI_FD`, or by `PMI_PORT` and `PMI_ID`. Without these variables it is a singleton: a job of one
//! process, whose server runs inside the process.
//!
//! ```c
//! #include <pmi.h>
//! #include <stdio.h>
//!
//! int main(void) {
//!     int spawned, size, rank;
//!     char job[256], key[32], address[64];
//!     if (PMI_Init(&spawned) != PMI_SUCCESS) return 1;
//!     PMI_Get_size(&size);
//!     PMI_Get_rank(&rank);
//!     PMI_KVS_Get_my_name(job, sizeof job);
//!     snprintf(key, sizeof key, "address-%d", rank);
//!     PMI_KVS_Put(job, key, "10.0.0.1:4000");
//!     PMI_KVS_Commit(job);
//!     PMI_Barrier();
//!     snprintf(key, sizeof key, "address-%d", (rank + 1) % size);
//!     PMI_KVS_Get(job, key, address, sizeof address);
//!     printf("rank %d of %d: the next rank is at %s\n", rank, size, address);
//!     return PMI_Finalize();
//! }
//! ```
//!
//! Rust programs can call the same functions:
//!
//! ```
//! use hydrant_pmi1::{PMI_Finalize, PMI_Get_rank, PMI_Get_size, PMI_Init};
//!
//! let (mut spawned, mut size, mut rank) = (0, 0, 0);
//! // SAFETY: integers to write to.
//! unsafe {
//!     assert_eq!(PMI_Init(&mut spawned), 0);
//!     assert_eq!((PMI_Get_size(&mut size), PMI_Get_rank(&mut rank)), (0, 0));
//! }
//! assert!(rank < size);
//! assert_eq!(PMI_Finalize(), 0);
//! ```
//!
//! Any thread may call any function. PMI-1 has one request at a time, so calls of several threads wait for each other.
//! `PMI_KVS_Get` reads values of the process's own job from memory that hydrant shares with its ranks, if it offers
//! any, and waits for no other call then.
//!
//! | module | contents |
//! |---|---|
//! | `api` | the exported functions; argument checks |
//! | `process` | state of this process, requests, return codes |
//!
//! Errors, checks of pointers and the state of the process are [`hydrant_client::c`], which `libpmi2.so.0` shares.

mod api;
mod process;

pub use api::*;
