//! Protocol between the servers of a job that spans several nodes.
//!
//! They hang together in a [`tree`]. What a fence has to bring about climbs and descends it over `links`, as
//! [`message`]s: the records that each node adds to its log go up once, and what the others added comes down once.

pub(crate) mod links;
pub mod message;
pub mod tree;

pub use links::LINKS_MAX;
pub use tree::Tree;
