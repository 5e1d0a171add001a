//! `libhydrant_mpi.so`: MPI Info, Sessions and process sets (MPI 5.0, chapters 10 and 11) for C and Fortran programs.
//!
//! The library works in two ways. The first MPI call of a process selects one:
//!
//! - *Interposed*: the process has an MPI library too. Each call is forwarded to that library's `PMPI_` function. The
//!   process sets of hydrant are appended to those of the library. `hydrant run --mpi-psets` preloads the library for
//!   this purpose.
//! - *Standalone*: the process has no other MPI library. This library implements the calls that it exports, with the
//!   handles and constants of the standard ABI (MPI 5.0, chapter 20). `include/hydrant_mpi.h` declares them.
//!
//! ```c
//! #include <hydrant_mpi.h>
//! #include <stdio.h>
//!
//! int main(void) {
//!     MPI_Session session;
//!     int count, len;
//!     char name[MPI_MAX_PSET_NAME_LEN];
//!     MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
//!     MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count);
//!     for (int n = 0; n < count; n++) {
//!         len = sizeof name;
//!         MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, name);
//!         puts(name);
//!     }
//!     return MPI_Session_finalize(&session);
//! }
//! ```
//!
//! The crate is a C library only: it exports no Rust items. Modules import only from rows below their own:
//!
//! | module | contents |
//! |---|---|
//! | `fortran` | the exported Fortran bindings |
//! | `exports` | the exported C functions |
//! | `interpose` | calls in front of an MPI library |
//! | `standalone` | calls without an MPI library |
//! | `objects` | objects behind handles |
//! | `psets` | process sets of which this process is a member |
//! | `query` | requests to hydrant |
//! | `cpointer` | checked access to pointers from C callers |
//! | `error` | errors and their MPI error classes |
//! | `abi` | constants of the standard ABI and of MPICH's ABI |

mod abi;
mod cpointer;
mod error;
mod exports;
mod fortran;
mod info;
mod interpose;
mod objects;
mod pset_list;
mod psets;
mod query;
mod standalone;
