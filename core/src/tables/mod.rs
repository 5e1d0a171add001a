//! What a server keeps, one job a module. None of them sees the wire.

pub mod connect;
pub mod fence;
pub mod info;
pub mod kvs;
pub mod meet;
pub mod names;
pub mod psets;
pub mod upcalls;
