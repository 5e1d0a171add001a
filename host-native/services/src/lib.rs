//! Servers that have no processes of their own, and the clients that a launcher needs for them.
//!
//! | module | serves | over |
//! |---|---|---|
//! | [`server`] | ranks that another launcher starts: jobs of the command line, or jobs that hosts open by the management protocol | TCP |
//! | [`board`] | the client of the management protocol: a launcher whose ranks are served by a board | TCP |
//! | [`names`] | names that separate runs of one user share, and a run's client for them | Unix socket |
//!
//! All of them are event loops, or parts of one, over [`hydrant_driver`] and [`hydrant_reactor`]. They start no processes.
//!
//! ```
//! use hydrant_core::Limit;
//! use hydrant_services::names;
//!
//! // A name service has two limits that can be set. Its other tables follow from them.
//! let options = names::Options { path: None, limit: vec![(Limit::Names, 16), (Limit::Conns, 4)] };
//! assert!(names::Options::accepts(Limit::Names) && !names::Options::accepts(Limit::Keys));
//! assert_eq!(options.limits().ranks, 4);
//! ```

pub mod board;
mod error;
pub mod names;
pub mod server;

pub use error::Error;
