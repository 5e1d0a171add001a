//! What a server keeps, one job a module. None of them sees the wire.

pub(crate) mod connect;
pub(crate) mod fence;
pub(crate) mod kvs;
pub(crate) mod names;
pub(crate) mod psets;
pub(crate) mod tracker;
pub(crate) mod upcalls;
