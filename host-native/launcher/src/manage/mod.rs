//! The management protocol ([`hydrant_core::manage`]) on this side of a TCP connection.

mod board;
mod link;
mod recording;
#[cfg(test)]
mod tests;

pub(crate) use board::Board;
pub use board::BoardError;
pub(crate) use link::{Link, LinkError};
use recording::BoardRecording;
