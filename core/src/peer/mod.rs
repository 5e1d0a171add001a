//! Protocol between the servers of a job that spans several nodes.
//!
//! The servers form a [`tree`]. Their [`message`]s travel over `links` to parents and children. Each record that a
//! node adds to its log is sent over each link at most once: towards the root, and from there to all other nodes.

pub(crate) mod links;
pub mod message;
pub mod tree;

pub use crate::tables::link_set::LINKS_MAX;
pub use tree::Tree;
