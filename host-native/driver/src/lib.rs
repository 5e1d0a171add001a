//! Runs a PMI server on client sockets.
//!
//! [`hydrant_core`] turns requests into replies and has no sockets. A [`Driver`] adds them: it owns a
//! [`Backend`](hydrant_core::Backend) and the connections of its clients, inside an event loop of the caller's. The loop of
//! one server, of the launcher and of the name service differ in where connections come from and in what they do with
//! [`Event`]s.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//!
//! use hydrant_core::server::JobSpec;
//! use hydrant_core::{Input, JobId, Limits, OwnedOutput, Rank, Server};
//! use hydrant_driver::{Driver, Event, MappedStorage};
//! use hydrant_reactor::{Clock, KeyRange, Poller};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::for_ranks(1);
//! let mut storage = MappedStorage::try_new(&limits)?;
//! // A job of one rank, whose process holds the other end of a socket pair.
//! let server = Server::new(limits, storage.lend(), 1)?;
//! let mut driver = Driver::new(Box::new(server), KeyRange(0));
//! let (clock, mut poller) = (Clock::start(), Poller::new()?);
//! driver.handle(clock.now(), Input::RegisterJob(JobSpec::new(JobId(0), "kvs_0", 1)))?;
//! let (ours, mut client) = UnixStream::pair()?;
//! driver.open(ours.into(), JobId(0), Rank(0), clock.now(), &poller)?;
//!
//! client.write_all(b"cmd=init pmi_version=1 pmi_subversion=1\n")?;
//! let mut keys = Vec::new();
//! poller.wait(clock.timeout([driver.poll_at()]), &mut keys)?;
//! for &key in &keys {
//!     driver.ready(key, clock.now(), &poller)?;
//! }
//! let mut joined = false;
//! while let Some(event) = driver.poll(clock.now(), &poller)? {
//!     joined |= matches!(event, Event::Output(OwnedOutput::Joined { rank: Rank(0), .. }));
//! }
//! assert!(joined);
//! let mut reply = [0; 64];
//! let len = client.read(&mut reply)?;
//! assert!(reply[..len].starts_with(b"cmd=response_to_init"));
//! # Ok(())
//! # }
//! ```

mod conns;
mod driver;
mod environment;
mod error;
mod event;
mod external;
mod native;
mod owner;
mod pmix;
mod port;
mod segment;
mod slots;
mod storage;
mod sys;
#[cfg(test)]
mod tests;

pub use driver::{Driver, HANDSHAKE_TIMEOUT, Tool, Traffic};
pub use environment::{FOREIGN_VARIABLES, TUNABLE_VARIABLES, is_foreign_variable};
pub use error::{Error, ListenError};
pub use event::{CloseReason, Event, OVERRUN};
pub use hydrant_core::BackendError;
pub use native::{LateServer, OwnedServer, OwnedServerError};
pub use pmix::{
    PMIX_SERVER, PMIX_SERVER_URIS, PMIX_VERSION, PMIX_VERSION_FOR_TOOLS, pmix_variables, refused_line,
};
pub use port::{ACCEPT_MAX, Client, PORT_FILES, Speaks, TcpPort, foreign_server, is_out_of_files};
pub use segment::Sharing;
pub use storage::{InsufficientMemory, MappedStorage, installed_memory};
