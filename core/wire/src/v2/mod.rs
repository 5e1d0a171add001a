//! PMI-2: counted messages of `key=value;`.
//!
//! In values `;;` stands for `;`, as Slurm's client writes it. `init` and its reply are PMI-1 lines.
//!
//! A message ends at its first NUL, because MPICH 4.0.2 sends memory behind its messages. A value with NUL is therefore
//! escaped, in a field of its own: see [`Escape::Binary`](super::token::Escape::Binary). Other clients do not read that
//! field. Their reply is a refusal.

mod command;
mod reply;
#[cfg(test)]
mod tests;

/// Name of the field of a value that holds NUL, in place of `value`.
const ESCAPED_VALUE: &[u8] = b"escaped-value";

pub use command::{decode, encode};
pub use reply::{Answer, decode_reply, encode_reply};
