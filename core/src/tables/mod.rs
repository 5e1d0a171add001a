//! Tables of a server. None of them knows the wire format.

pub(crate) mod connect;
pub(crate) mod fence;
pub(crate) mod kvs;
pub(crate) mod names;
pub(crate) mod psets;
pub(crate) mod tracker;
pub(crate) mod upcalls;
