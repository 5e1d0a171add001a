//! PMI-1 (1.1 and 1.2): lines of `key=value` with blanks between them.
//!
//! In commands a value may hold `\x` for `x`. MPICH's servers undo such escapes and never write them, so replies
//! hold values as they are, and the field that may hold blanks comes last.

mod command;
mod reply;

pub use command::{decode, encode};
pub use reply::{decode_reply, encode_reply};
