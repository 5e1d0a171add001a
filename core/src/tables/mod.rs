//! What a server keeps, one job a module. None of them sees the wire.

pub mod fence;
pub mod kvs;
