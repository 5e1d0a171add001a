//! PMI-2: counted messages of `key=value;`.
//!
//! In a value `;;` stands for `;`, as Slurm's client writes it. `init` and its reply are lines of PMI-1.

mod command;
mod reply;

pub use command::{decode, encode};
pub use reply::{Answer, decode_reply, encode_reply};
