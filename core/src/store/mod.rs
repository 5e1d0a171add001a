//! Containers of fixed capacity in lent memory, independent of the protocols.

mod atomic;
pub(crate) mod bits;
pub(crate) mod bytes;
pub(crate) mod log;
pub(crate) mod members;
pub(crate) mod ready;
pub(crate) mod slots;

pub(crate) use log::Log;
pub(crate) use ready::Ready;
pub(crate) use slots::Slots;

#[cfg(test)]
mod tests;
