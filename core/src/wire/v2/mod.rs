//! PMI-2: counted messages of `key=value;`.
//!
//! In values `;;` stands for `;`, as Slurm's client writes it. `init` and its reply are PMI-1 lines.

mod command;
mod reply;

pub use command::{decode, encode};
pub use reply::{Answer, decode_reply, encode_reply};
