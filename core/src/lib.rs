//! PMI-1, PMI-2 and PMIx process manager protocols as a state machine without I/O, in `no_std` Rust without an allocator.
//!
//! A process manager gives the processes of an MPI program their ranks, a key-value store, fences, a name service and
//! process spawning. [`Server`] implements the process manager's side of the protocols. A host embeds it, and owns the
//! sockets, the clock, the memory and the processes. Messages and the program's side are hydrant-wire's, here as [`wire`].
//!
//! - [`Server::handle`] applies one [`Input`]: a registered job, a connection, received bytes, an exited process.
//! - [`Server::poll`] returns the next [`Output`]: a reply to send, a connection to close, a job to abort.
//! - [`Storage`] is memory that the host lends. Its size follows from [`Limits`]. See [`storage`].
//! - [`Inbox`] holds the bytes of a connection that the server has not consumed.
//!
//! Equal inputs give equal outputs on every platform. Input bytes never cause a panic.
//!
//! # Example
//!
//! A job of two PMI-1 ranks, from the handshake to the end. `examples/tcp.rs` does the same over TCP.
//!
//! ```
//! use hydrant_core::storage::FixedStorage;
//! use hydrant_core::{ConnId, Fault, Input, JobId, JobSpec, Limits, Output, Rank, Server, Time, fixed_storage};
//!
//! const LIMITS: Limits = Limits { jobs: 1, ranks: 2, conns: 2, keys: 16, kvs_bytes: 1024, ..Limits::NONE };
//!
//! /// Passes a request of a rank to the server. Returns the replies, each with the rank that it is for.
//! fn request(server: &mut Server<'_>, rank: u32, bytes: &[u8]) -> Result<Vec<(u32, String)>, Fault> {
//!     let consumed = server.handle(Time(0), Input::Bytes { conn: ConnId(rank), bytes, full: false })?;
//!     assert_eq!(consumed.bytes as usize, bytes.len());
//!     let mut buffer = [0; LIMITS.output_max()];
//!     let mut replies = Vec::new();
//!     while let Some(output) = server.poll(&mut buffer)? {
//!         if let Output::Bytes { conn, bytes } = output {
//!             replies.push((conn.0, String::from_utf8_lossy(bytes).into_owned()));
//!         }
//!     }
//!     Ok(replies)
//! }
//!
//! let mut storage: fixed_storage!(LIMITS) = FixedStorage::new();
//! let mut server = Server::new(LIMITS, storage.lend(), 1)?;
//! let job = JobId(0);
//! server.handle(Time(0), Input::RegisterJob(JobSpec::new(job, "job", 2)))?;
//! for rank in 0..2 {
//!     server.handle(Time(0), Input::Opened { conn: ConnId(rank), job, rank: Some(Rank(rank)) })?;
//! }
//!
//! for rank in 0..2 {
//!     let replies = request(&mut server, rank, b"cmd=init pmi_version=1 pmi_subversion=1\n")?;
//!     assert_eq!(replies, [(rank, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n".into())]);
//! }
//! let replies = request(&mut server, 0, b"cmd=put kvsname=job key=address value=10.0.0.7\n")?;
//! assert_eq!(replies, [(0, "cmd=put_result rc=0\n".into())]);
//!
//! // The fence completes with its last rank. Then both get their reply.
//! assert!(request(&mut server, 0, b"cmd=barrier_in\n")?.is_empty());
//! assert_eq!(request(&mut server, 1, b"cmd=barrier_in\n")?.len(), 2);
//!
//! let replies = request(&mut server, 1, b"cmd=get kvsname=job key=address\n")?;
//! assert_eq!(replies, [(1, "cmd=get_result rc=0 value=10.0.0.7\n".into())]);
//! for rank in 0..2 {
//!     let replies = request(&mut server, rank, b"cmd=finalize\n")?;
//!     assert_eq!(replies, [(rank, "cmd=finalize_ack rc=0\n".into())]);
//! }
//! # Ok::<(), Fault>(())
//! ```
//!
//! # Errors
//!
//! [`Fault`] is an error of the host, or a limit that it has reached. The server is then unchanged. [`Refusal`] is an
//! error reply to a client. [`Malformed`] is the reason that bytes of a client cannot be decoded. The connection is
//! then closed.
//!
//! # Features
//!
//! All features are off by default. `alloc` adds storage on the heap and `Backend`, a server of any kind. `pmix` adds PMIx
//! clients. `cluster` adds what runs over many nodes need: fences without data, trees whose root is node 1 with the head,
//! node 0, as a leaf, and process sets of many hosts in less memory. `wide` lets a node have 1,023 links in place of 63.
//! `log` and `defmt` select the destination of logged events, and exclude each other.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(any(test, feature = "alloc"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(all(feature = "defmt", feature = "log"))]
compile_error!("the features defmt and log exclude each other: events are logged to one of them");

pub mod fault;
mod ids;
pub mod limits;
pub mod manage;
pub mod peer;
pub mod server;
pub mod snapshot;
mod state;
pub mod storage;
mod store;
mod tables;
mod time;
pub mod trace;

pub use fault::{Fault, Malformed, Refusal, ShortBuffer};
pub use hydrant_wire::{self as wire, client};
pub use ids::{ConnId, JobId, Rank, UpcallId};
pub use limits::{Limit, Limits};
#[cfg(any(test, feature = "alloc"))]
pub use server::{Backend, BackendError};
pub use server::{Consumed, Inbox, Input, InputOf, JobSpec, JobSpecOf, Output, OutputOf, Server};
#[cfg(feature = "alloc")]
pub use server::{OwnedInput, OwnedOutput};
pub use storage::Storage;
pub use time::Time;
pub use trace::Exit;
