//! The `hydrant` command as a library: its command line, and the commands beside runs.
//!
//! [`cli::parse`] turns a command line into an [`Action`](cli::Action). [`hydrant_run::run`] carries out a run, and
//! [`dry_run`] describes it. The other commands have a module each.
//!
//! ```
//! use hydrant::cli::{self, Action};
//!
//! let words = ["hydrant", "run", "-hosts", "a:4,b:4", "-n", "8", "./a.out"];
//! let action = cli::parse(words.map(Into::into).to_vec(), Vec::new)?;
//! let Action::Run(mut plan) = action else { panic!("'run' starts a job") };
//! assert_eq!((plan.programs.len(), plan.size()), (1, 8));
//! assert!(hydrant::dry_run(&mut plan)?.contains("node 2: b, 4 slots: ranks 4-7\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
