//! Client of boards: PMI servers on other devices, such as a DPU or a microcontroller, that serve the ranks of a run.
//!
//! The host starts the ranks, and controls the board over the management protocol ([`hydrant_core::manage`]).
//!
//! | client | the board serves | the ranks connect to |
//! |---|---|---|
//! | [`NodeBoard`] | one node of a run, or the whole run on one host, with the jobs that its ranks spawn | the board |
//! | [`BoardBackend`] | one node, as a [`Backend`](hydrant_core::Backend) | the host, which passes each request on |
//!
//! Each begins as a [`Board`], the connection with its handshake. A [`NodeBoard`] is a part of an event loop of the caller's, which
//! polls its socket. A request whose answer the caller needs waits for it, for [`STALL_MS`](hydrant_core::manage::STALL_MS) at
//! most. A board that does not answer heartbeats is lost.
//!
//! ```
//! use std::io::{self, Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::thread;
//!
//! use hydrant_board::Board;
//! use hydrant_core::Limits;
//! use hydrant_core::manage::{PREFIX, RECORD_MAX, Report, VERSION, Welcome, encode};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let target = listener.local_addr()?.to_string();
//! // A board that answers the greeting of its host and nothing else.
//! let served = thread::spawn(move || -> io::Result<TcpStream> {
//!     let (mut host, _) = listener.accept()?;
//!     let mut buffer = [0; PREFIX + RECORD_MAX];
//!     let _greeting = host.read(&mut buffer)?;
//!     let welcome = Report::Welcome(Welcome {
//!         version: VERSION,
//!         board: "dpu",
//!         nodes: Limits::for_ranks(4),
//!         sockets: 8,
//!         free_sockets: 8,
//!         message_max: 1024,
//!         links: None,
//!         calls: None,
//!     });
//!     host.write_all(encode(&welcome, &mut buffer).expect("a welcome is short"))?;
//!     Ok(host)
//! });
//! let board = Board::connect(&target, None)?;
//! let _open = served.join().expect("the thread does not panic")?;
//! assert_eq!(board.node_limits(), &Limits::for_ranks(4));
//! # Ok(())
//! # }
//! ```

mod backend;
mod client;
mod error;
mod heartbeat;
mod lines;
pub mod manage;
mod node;
mod patience;
mod queries;
mod reach;
mod recording;
#[cfg(test)]
mod tests;
mod time;

pub use backend::BoardBackend;
pub use client::Board;
pub use error::{BoardError, CallError};
pub use heartbeat::Silence;
pub use node::{NodeBoard, NodeEvent};
pub use queries::RankState;
pub use recording::RECORDING_MAX;
