//! The management protocol ([`hydrant_core::manage`]) on this side of a TCP connection.

mod backend;
mod client;
mod connection;
mod error;
mod event;
mod heartbeat;
mod lines;
mod node;
mod patience;
mod queries;
mod recording;
mod secure;
#[cfg(test)]
mod tests;

pub use backend::BoardBackend;
pub use client::Board;
pub(crate) use connection::{Connection, ConnectionError, INBOX_MAX};
pub use error::{BoardError, CallError};
pub use event::Event as BoardEvent;
pub use heartbeat::Silence;
pub use node::{NodeBoard, NodeEvent};
pub use queries::RankState;
pub use recording::RECORDING_MAX;
use recording::{BoardRecording, NodeRecording};
pub use secure::Secret;
