//! Status socket of a run or a server: which jobs and ranks it has, what the ranks wait for, and their output.
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | runs, jobs and ranks, as they are sent and as JSON |
//! | [`words`] | states of ranks for people, and ranks by their states |
//! | [`client`] | finding the runs of this user, and asking one |
//! | [`StatusServer`] | the socket of a run or a server, for an event loop |
//!
//! The socket has a name in the abstract namespace with the process id of the run. Both ends check that the other is of
//! the same user. The server never waits: requests are short, replies are bounded, a client has one request under way,
//! and silent clients give way to others.
//!
//! ```
//! use hydrant_reactor::{KeyRange, Poller};
//! use hydrant_status::{Reply, Request, StatusServer, client};
//!
//! let mut poller = Poller::new()?;
//! let mut server = StatusServer::open(KeyRange(1), &poller)?;
//! let address = client::find(&std::process::id().to_string())?;
//! let mut connection = client::Connection::open(&address)?;
//! connection.send(&Request::Attach)?;
//!
//! // The event loop of the run.
//! let mut keys = Vec::new();
//! let (client, request) = 'request: loop {
//!     poller.wait(None, &mut keys)?;
//!     for &key in &keys {
//!         if let Some(request) = server.ready(key, &poller, 0) {
//!             break 'request request;
//!         }
//!     }
//! };
//! assert_eq!(request, Request::Attach);
//! server.attach(client, &poller);
//! assert_eq!(connection.receive(None)?, Reply::Done);
//! # Ok::<(), hydrant_status::Error>(())
//! ```

pub mod address;
pub mod client;
mod convert;
mod error;
mod protocol;
pub mod record;
mod server;
pub mod words;

use std::time::{Duration, Instant};

pub use address::Address;
pub use error::Error;
pub use protocol::{Access, Reply, Request};
pub use server::{ClientId, FILES, StatusServer};

/// Messages of a local socket: a length of four bytes (little-endian), and a postcard record.
pub mod message {
    pub use crate::protocol::{decode, encode, message_len};
}

/// Time until `deadline`.
fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
