//! The `hydrant` command as a library: plans a job, launches it and serves it.

mod backend;
pub mod cli;
mod dry_run;
mod engine;
mod error;
mod join;
pub mod json;
mod launch;
pub mod messages;
pub mod observe;
pub mod plan;
pub mod probe;
mod program_files;
mod quoting;
pub mod reach;
pub mod replay;
mod run_backend;
#[cfg(feature = "sandbox")]
mod sandbox;
mod saved;
mod spare;
mod stack_traces;
mod sys;
pub mod timeline;
mod topology_file;
mod value;

pub use dry_run::dry_run;
pub use engine::{DaemonError, daemon, run};
pub use error::RunError;
pub use hydrant_doctor::NoExec;
pub use hydrant_driver::BackendError;
pub use launch::LaunchError;
pub use program_files::ProgramFileError;
