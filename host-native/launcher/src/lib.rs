//! The `hydrant` command as a library: its command line, and what it does beside runs.

pub mod cli;
mod dry_run;
pub mod observe;
pub mod probe;
mod quoting;
pub mod reach;
pub mod replay;
pub mod timeline;
mod value;

pub use dry_run::dry_run;
