//! Servers of ranks that another launcher starts, and the choice between the services of `hydrant serve`.
//!
//! Such a launcher is a host with a DPU, the pods of a Kubernetes job, or a batch system without PMI.

mod called;
mod describe;
mod endpoint;
mod event;
mod job;
mod link_arrivals;
mod links;
mod management;
mod network;
mod node;
mod options;
mod pmi;
mod ports;
mod recorded;
mod status;
mod token;

pub use network::Network;
pub use options::{JobOptions, Options, Pset};

use crate::{Error, names};

/// Provides the service that the options name until it is complete, or a signal ends it. Returns the exit code: 0 if all
/// jobs ended well, otherwise that of the first that did not, or 128 plus the number of the signal.
///
/// The function takes over the calling process: signals are blocked in the calling thread. Call it once, from the only
/// thread.
///
/// # Errors
/// The service could not start or continue.
pub fn serve(options: &Options) -> Result<u8, Error> {
    match (options.size, options.manage) {
        (Some(size), _) => pmi::serve(options, size),
        (None, Some(addr)) => management::serve(options, addr),
        (None, None) => {
            names::serve(&options.names())?;
            Ok(0)
        }
    }
}
