//! Parts that the fuzz targets share: a reader of fuzz input, and a host that checks the contract of the core.

mod host;
mod input;
mod seal;

pub use host::{Host, LIMITS, Memory, with_memory};
pub use input::FuzzInput;
pub use seal::{seal, unseal};
