//! Management protocol: how a host gets a node of its run served by a PMI server that starts no processes, such as one on a board.
//!
//! The host opens a connection to the server's management port and keeps it. Both sides send *records*: two bytes of
//! length, little-endian, and that many bytes of postcard, at most [`RECORD_MAX`]. The host sends [`Request`]s. The
//! server replies to each with one [`Report`], in the order of the requests.
//!
//! The first request is [`Request::Hello`]. Its reply is [`Report::Welcome`], or a refusal with the server's version. After
//! [`Request::Node`] the connection carries the inputs and outputs of the node's PMI server instead
//! ([`remote`](crate::server::remote), [`call`](crate::server::call)), and after [`Request::Link`] the messages between the
//! servers of two nodes. All jobs, also the only one of a run on one host, are jobs of a node.
//!
//! [`server::ManagementServer`] implements the server's side without I/O. It closes the connection of a host that sends no
//! request for [some time](server::Config::request_timeout).

mod message;
pub mod server;
#[cfg(test)]
mod tests;

pub use message::{
    BadRecord, BoardReport, Error, OpenLink, OpenNode, PMI_PORT, PORT, PREFIX, RECORD_MAX, Report, Request,
    STALL_MS, VERSION, Welcome, decode, encode, next,
};
