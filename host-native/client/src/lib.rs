//! Blocking PMI-1 and PMI-2 client for Linux processes.
//!
//! A rank joins its job in three steps. [`Environment`] says where the process manager's PMI server is, [`Socket`]
//! connects to it, and [`Connection`] performs the handshake and exchanges requests and replies. A connection that
//! several threads use is a [`SharedConnection`].
//!
//! The protocol is implemented in [`hydrant_wire::client`], without I/O. This crate adds the environment and the
//! sockets. It has no global state and changes no signal dispositions, so that libraries for foreign programs can use
//! it.
//!
//! ```
//! use hydrant_client::{Connection, Environment, Socket};
//! use hydrant_wire::{Command, Protocol};
//!
//! fn main() -> Result<(), hydrant_client::Error> {
//!     let environment = Environment::read(std::env::var_os)?;
//!     let Some(server) = &environment.server else {
//!         println!("started without a process manager");
//!         return Ok(());
//!     };
//!     let start = server.start(Protocol::V2)?;
//!     // SAFETY: nothing else in this program uses the descriptor in PMI_FD.
//!     let socket = unsafe { Socket::open(server)? };
//!     let mut connection = Connection::open(socket, Protocol::V2, start, environment.jobid.as_deref())?;
//!     println!("rank {} of {}", connection.identity().rank, connection.identity().size);
//!     let (key, value) = ("address".into(), "10.0.0.1:4000".into());
//!     connection.execute(&Command::Put { kvs: None, key, value })?;
//!     connection.execute(&Command::Fence { group: None })?;
//!     connection.execute(&Command::Finalize)
//! }
//! ```
//!
//! # Features
//!
//! Both are off by default. `singleton` adds `Singleton`, a PMI server inside a process that has no process manager, and with it
//! hydrant-core. `c` adds the module `c`, of which `libpmi.so.0` and `libpmi2.so.0` are built, and `singleton`.

#[cfg(feature = "c")]
pub mod c;
mod connection;
mod environment;
mod error;
mod mapping;
mod segment;
mod shared;
#[cfg(feature = "singleton")]
mod singleton;
mod socket;
mod sys;
mod text;

pub use connection::Connection;
pub use environment::{Environment, KVS, QUERY, QueryAddress, ServerAddress, rank_and_size};
pub use error::Error;
pub use mapping::ranks_on_node_of;
pub use segment::{Segment, SegmentError};
pub use shared::SharedConnection;
#[cfg(feature = "singleton")]
pub use singleton::Singleton;
pub use socket::{Socket, Transport};
pub use text::{to_bytes, to_string};
