//! The management protocol ([`hydrant_core::manage`]) on this side of a TCP connection.

mod board;
mod link;
mod recording;
#[cfg(test)]
mod tests;

pub use board::BoardError;
pub(crate) use board::{Board, Event as BoardEvent};
pub(crate) use link::{Link, LinkError};
use recording::BoardRecording;
