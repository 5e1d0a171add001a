//! PMI-1 (1.1 and 1.2): lines of `key=value`, separated by blanks.
//!
//! In commands `\x` stands for `x` in values. MPICH's servers since 4.1 decode these escapes but do not write them.
//! Replies therefore have no escapes, and a field that may contain blanks comes last. No client of another project
//! writes escapes, so the value of `put` and the message of `abort`, which come last, have none: GASNet's values have
//! backslashes.

mod command;
mod reply;

pub use command::{decode, encode};
pub use reply::{decode_reply, encode_reply};
