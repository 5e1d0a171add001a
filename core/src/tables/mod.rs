//! Tables of a server. They are independent of the wire format.

pub(crate) mod connect;
pub(crate) mod fence;
pub(crate) mod kvs;
pub(crate) mod link_set;
pub(crate) mod messages;
pub(crate) mod modex;
pub(crate) mod names;
pub(crate) mod psets;
pub(crate) mod tracker;
pub(crate) mod upcalls;
