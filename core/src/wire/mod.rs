//! Messages: bytes to typed commands and replies, and back. Knows no state.
//!
//! Both protocols decode into one [`Command`] and one [`Reply`] vocabulary, borrowed from the bytes.

pub mod command;
pub mod reply;
pub mod token;

pub use command::{Command, Group, Op};
pub use reply::Reply;
pub use token::Text;

use serde::{Deserialize, Serialize};

/// The language that a connection speaks after its introduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// PMI-1 (1.1 and 1.2): lines of `key=value`.
    #[default]
    V1,
    /// PMI-2: counted messages of `key=value;`.
    V2,
}
