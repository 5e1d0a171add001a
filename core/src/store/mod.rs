//! Containers of fixed capacity over memory that the caller lends. They know no protocol.

pub mod bits;
pub mod log;
pub mod ready;

pub use log::{HEADER, Log};
pub use ready::Ready;
