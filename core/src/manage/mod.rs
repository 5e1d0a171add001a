//! Management protocol: how a host controls a PMI server that starts no processes, such as one on a board.
//!
//! The host opens a connection to the server's management port and keeps it. Both sides send *records*: two bytes of
//! length, little-endian, and that many bytes of postcard, at most [`RECORD_MAX`]. The host sends [`Request`]s. The
//! server replies to each with one [`Report`], in the order of the requests. It also sends [events](Report::is_event),
//! which are reports without a request.
//!
//! The first request is [`Request::Hello`]. Its reply is [`Report::Welcome`], or a refusal with the server's version.
//! A job is then opened by [`Request::Open`], described by [`Request::Program`], [`Request::Attr`] and
//! [`Request::Pset`], and started by [`Request::Serve`], after which its port accepts clients. It ends with
//! [`Request::Forget`]. When a connection closes, the jobs that it opened are dropped, unless they are to be
//! [kept](OpenJob::keep).
//!
//! The server delays its clients while events cannot be sent, so that no event is lost. It closes the connection of a
//! host that does not read for [`STALL_MS`].
//!
//! After [`Request::Node`] a connection carries the inputs and outputs of one node's PMI server instead
//! ([`remote`](crate::server::remote), [`call`](crate::server::call)), and after [`Request::Link`] the messages between the
//! servers of two nodes.
//!
//! [`server::ManagementServer`] implements the server's side without I/O.

mod message;
pub mod server;
mod service;
mod slots;
#[cfg(test)]
mod tests;

pub use message::{
    BadRecord, BoardReport, Error, JobPhase, JobReport, OpenJob, OpenLink, OpenNode, PMI_PORT, PORT, PREFIX,
    RECORD_MAX, RankReport, Report, Request, STALL_MS, VERSION, Welcome, decode, encode, next,
};
