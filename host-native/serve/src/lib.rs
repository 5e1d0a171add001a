//! PMI servers for ranks that another system starts, each a process of its own: the command `hydrant serve`.
//!
//! | source | jobs | ranks are started by |
//! |---|---|---|
//! | [`JobSource::Described`] | those that the options describe, one after the other | another launcher, such as a batch system without PMI or the pods of a Kubernetes job |
//! | [`JobSource::Managed`] | those of nodes that hosts open over the management protocol ([`hydrant_core::manage`]) | the hosts: `hydrant offload`, and `hydrant run --offload` |
//!
//! Both accept ranks over TCP. They start no processes.
//!
//! ```
//! use std::time::Duration;
//!
//! use hydrant_serve::{JobSource, Options, serve};
//!
//! let mut options = Options::new(JobSource::Described { size: 2 });
//! options.job.join_timeout = Duration::from_millis(1);
//! // The first line on standard output is PMI_PORT=ADDRESS. No rank connects, so the job fails.
//! assert_eq!(serve(&options)?, 1);
//! # Ok::<(), hydrant_serve::Error>(())
//! ```
//!
//! A connection that closes before finalize is all that such a server learns of a death: the rank counts as lost. Each rank counts
//! as alone on its node unless `--map` says otherwise: MPICH uses shared memory within a node, so a false "same node" fails and a
//! false "other node" costs the network path. A reader of the log that does not read loses lines, which are counted.

mod called;
mod describe;
mod endpoint;
mod error;
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

pub use error::Error;
pub use network::Network;
pub use options::{JobOptions, JobSource, Options, Pset};

/// Serves until the last job is over, or a signal ends the server. Returns the exit code: 0 if all jobs ended well, otherwise
/// that of the first that did not, or 128 plus the number of the signal.
///
/// The function takes over the calling process: signals are blocked in the calling thread. Call it once, from the only
/// thread.
///
/// # Errors
/// The server could not start or continue.
pub fn serve(options: &Options) -> Result<u8, Error> {
    match options.source {
        JobSource::Described { size } => pmi::serve(options, size),
        JobSource::Managed { addr } => management::serve(options, addr),
    }
}
