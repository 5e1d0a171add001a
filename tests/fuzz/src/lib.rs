//! Parts that the fuzz targets share: a reader of fuzz input, and a host that checks the contract of the core.

mod host;
mod input;

pub use host::{Host, LIMITS};
pub use input::FuzzInput;
