//! `hydrant serve`: a server without processes of its own.
//!
//! It keeps the [names](crate::universe) that separate runs publish, or it serves a job whose ranks somebody else starts:
//! on a DPU for its host, in a pod for the pods of a Kubernetes job, for a batch system that knows no PMI.

mod allow;
mod desk;
mod endpoint;
mod jobs;
mod options;
mod own;
mod token;

pub use allow::Network;
pub use options::{JobOptions, Options, Pset};

use crate::error::RunError;
use crate::universe::{self, UniverseError};

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The names of several runs.
    #[error(transparent)]
    Universe(#[from] UniverseError),
    /// A job.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
}

impl ServeError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServeError::Run(error) => error.hint(),
            _ => None,
        }
    }
}

/// Serves until everything that was asked for is over, and gives the exit code: 0 when all jobs ended well, otherwise
/// that of the first that did not, or 128 plus the number of the signal that ended it.
///
/// It takes over the process that calls it: signals are blocked in the calling thread while it runs. Call it once and
/// from the only thread.
///
/// # Errors
/// It could not begin, or not go on.
pub fn serve(options: &Options) -> Result<u8, ServeError> {
    match (options.size, options.manage) {
        (Some(size), _) => Ok(own::serve(options, size)?),
        (None, Some(addr)) => Ok(desk::serve(options, addr)?),
        (None, None) => {
            let names = options.names().map_err(ServeError::Options)?;
            universe::serve(&names)?;
            Ok(0)
        }
    }
}
