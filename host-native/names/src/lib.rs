//! Name service: names that separate runs of one user share (`MPI_Publish_name`), connections between their jobs
//! (`PMI2_Job_Connect`), and a run's client for both.
//!
//! Both ends speak PMI-2 over a Unix socket. In the server each connection is a job of one rank, so the names of a connection
//! are withdrawn, and its job is disconnected, when it closes. Names that were published for an indefinite time stay. A
//! connection that a run opens for one of its jobs has the job's id, so the server's own relation of connected jobs is that of
//! the runs' jobs. It stores no values. The names of one run on several hosts are kept in the head's process, without sockets.
//!
//! [`serve`] is the server, [`NameClient`] a run's client for it, and [`LocalNames`] the name service of one run.
//!
//! ```
//! use hydrant_core::wire::Protocol;
//! use hydrant_core::{JobId, Rank, Server, UpcallId};
//! use hydrant_driver::MappedStorage;
//! use hydrant_names::{LIMITS_OF_RUN, LocalNames, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut storage = MappedStorage::new(&LIMITS_OF_RUN);
//! let mut names = LocalNames::new(Box::new(Server::new(LIMITS_OF_RUN, storage.lend(), 0)?));
//! let request = |number, job, body: &str| Request {
//!     upcall: Some(UpcallId(number)),
//!     job: JobId(job),
//!     rank: Rank(0),
//!     protocol: Protocol::V2,
//!     body: body.into(),
//!     wait: 0,
//! };
//! // A rank of job 1 publishes a name, and a rank of job 2 looks it up.
//! names.ask(request(0, 1, "cmd=name-publish;name=ocean;port=10.0.0.1:7000;"), 0)?;
//! assert_eq!(names.answer().map(|answer| answer.rc), Some(0));
//! names.ask(request(1, 2, "cmd=name-lookup;name=ocean;"), 0)?;
//! assert_eq!(names.answer().map(|answer| answer.text), Some(b"10.0.0.1:7000".to_vec()));
//! # Ok(())
//! # }
//! ```

mod client;
mod error;
mod local;
mod options;
mod request;
mod server;
mod service;
mod socket;

pub use client::NameClient;
pub use error::NameServiceError;
pub use local::LocalNames;
pub use options::{LIMITS_OF_RUN, Options};
pub use request::{Answer, Request};
pub use server::serve;
