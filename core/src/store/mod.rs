//! Containers of fixed capacity over memory that the caller lends. They know no protocol.

pub mod bits;
pub(crate) mod bytes;
pub mod log;
pub mod ready;
pub mod view;

pub use log::{HEADER, Log};
pub use ready::Ready;
pub use view::LogView;
