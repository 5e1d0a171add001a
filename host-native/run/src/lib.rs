//! Runs of MPI jobs: a [plan], the event loop of the launcher or of a daemon, and the PMI server that it drives.
//!
//! [`run`] starts the ranks of a [`Plan`](plan::Plan), serves them and all jobs that they spawn, and returns the exit code. On
//! several hosts it starts daemons, which call [`daemon`], or waits for hosts, which call [`join_run`]. All take over the process:
//! signals, child processes and standard input are theirs. Call one of them once, from the only thread.
//!
//! ```standalone_crate
//! use hydrant_run::plan::{Plan, Program};
//!
//! # fn main() -> Result<(), hydrant_run::RunError> {
//! let program = Program {
//!     ranks: 2,
//!     command: "sh".into(),
//!     args: vec!["-c".into(), "exit $PMI_RANK".into()],
//!     env: std::env::vars_os().collect(),
//!     wdir: None,
//!     path: None,
//!     psets: Vec::new(),
//! };
//! let mut plan = Plan::new(vec![program]);
//! assert_eq!(hydrant_run::run(&mut plan)?, 1, "the code of the rank that failed first");
//! # Ok(())
//! # }
//! ```
//!
//! Feature `sandbox`: the PMI server may be a plugin (wasmtime; Rust 1.95).

mod backend;
mod debugger_call;
mod engine;
mod enrol;
mod error;
mod fleet;
mod job_array;
mod join;
pub mod json;
pub mod messages;
mod mpir;
pub mod plan;
mod rendezvous;
mod stack_traces;
mod topology_file;

pub use backend::{BackendBuilder, find_plugin, read_plugin};
pub use engine::{DaemonError, daemon, forked_daemon, join_run, run};
pub use error::RunError;
pub use fleet::{down, run_on, up};
pub use join::{JoinError, JoinOptions};
