//! Requests and reports of the management protocol, and their encoding.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::limits::{Limit, Limits};

/// Version of the protocol. [`Request::Hello`] and [`Report::Refused`] with [`Error::Version`] have the same bytes in
/// every version.
pub const VERSION: u16 = 1;
/// Maximum length of a record in bytes, without its prefix.
pub const RECORD_MAX: usize = 512;
/// Length in bytes of a record's prefix.
pub const PREFIX: usize = 2;
/// Milliseconds that a server waits for a host that does not read.
pub const STALL_MS: u64 = 5000;
/// Default management port.
pub const PORT: u16 = 4100;
/// Default port of the first job's clients. That of job `n` is `n` higher.
pub const PMI_PORT: u16 = 4000;

/// Request of a host. The reply is the report that is named here, or [`Report::Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Handshake, the first request of a connection. Reply: [`Report::Welcome`].
    Hello {
        /// [`VERSION`]
        version: u16,
    },
    /// Queries the state of the server. Reply: [`Report::Board`].
    Board,
    /// Queries how much of a limit is used. Reply: [`Report::Usage`].
    Usage {
        /// The limit.
        limit: Limit,
    },
    /// Serves one node of a run on this connection. Reply: [`Report::Done`].
    ///
    /// After the reply both sides send [records of a node](crate::server::remote), or [calls](crate::server::call) and their
    /// returns if the request has a [seed](OpenNode::seed). The limits are at most [`Welcome::nodes`]. All of the node ends
    /// with the connection.
    Node(OpenNode),
    /// Links the server of another node of a run to one that this server serves, on this connection. Reply:
    /// [`Report::Done`].
    ///
    /// After the reply both sides send [records of a link](crate::server::link). The request is valid if the node was opened
    /// with the same [token](OpenNode::link).
    Link(OpenLink),
}

/// Description of a link between the servers of two nodes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLink {
    /// Token of the run.
    pub token: [u8; 16],
    /// Node of the server that is asked.
    pub to: u32,
    /// Node of the server that asks.
    pub from: u32,
}

/// Description of a node that a server serves for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenNode {
    /// Number of the node in the tree, as in [`Input::Node`](crate::Input::Node).
    pub node: u32,
    /// Number of nodes. The only node of a run is in no tree, and its jobs may share their server with those of other hosts, unless
    /// it is [recorded](OpenNode::record).
    pub nodes: u32,
    /// Maximum number of children of a node, as in [`Input::Node`](crate::Input::Node).
    pub radix: u32,
    /// Capacities of the node's PMI server. They are the same on all nodes of the run, but those of connections, names and
    /// upcalls ([`Limits::conns`], [`Limits::names`] and [`Limits::spawns`]), of which a server may have fewer. One that is
    /// called or recorded has exactly these, or refuses the node with [`Fault::Full`].
    pub limits: Limits,
    /// Seed of the server if the host [calls](crate::server::call) it and keeps the connections of clients. `None` if clients
    /// connect to the server.
    pub seed: Option<u32>,
    /// Random token of the run, with which the servers of other nodes may [link](Request::Link) to this one. The node is in
    /// no tree before [`NodeRequest::Tree`](crate::server::remote::NodeRequest::Tree) then. `None` if hosts pass on all
    /// messages between nodes.
    pub link: Option<[u8; 16]>,
    /// Seed of the server if it reports [what it takes and answers](crate::server::remote::NodeReport::Recorded). Clients connect
    /// to such a server.
    pub record: Option<u32>,
}

/// Reply of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report<'a> {
    /// Reply: the request was refused, and nothing was changed.
    Refused(Error),
    /// Reply to [`Request::Hello`].
    #[serde(borrow)]
    Welcome(Welcome<'a>),
    /// Reply: the request was carried out.
    Done,
    /// Reply to [`Request::Board`].
    Board(BoardReport),
    /// Reply to [`Request::Usage`].
    Usage {
        /// The limit.
        limit: Limit,
        /// Used part of it.
        used: u32,
        /// Its size.
        size: u32,
    },
}

/// Properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome<'a> {
    /// [`VERSION`]
    pub version: u16,
    /// The server's name, for people.
    pub board: &'a str,
    /// Maximum number of connected clients.
    pub sockets: u32,
    /// Number of clients that can connect in addition now.
    pub free_sockets: u32,
    /// Maximum length of a client's message in bytes. Clients with longer ones are closed.
    pub message_max: u32,
    /// Largest limits of a node ([`Request::Node`]).
    pub nodes: Limits,
    /// Maximum number of children whose servers link themselves to that of a node ([`Request::Link`]). The node links itself to
    /// its parent in addition. `None` if nodes cannot be linked.
    pub links: Option<u32>,
    /// Maximum length in bytes of a client's bytes in a [call](crate::server::call). `None` if nodes cannot be called.
    pub calls: Option<u32>,
}

/// State of a server. Counters start at 0 when the server starts, and saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardReport {
    /// Milliseconds since the server's start.
    pub uptime: u64,
    /// Maximum number of connected clients.
    pub sockets: u32,
    /// Number of clients that can connect in addition now.
    pub free_sockets: u32,
    /// Clients that have connected.
    pub accepted: u32,
    /// Clients that were closed because of their messages.
    pub closed: u32,
    /// Clients that were refused because there was no job for them.
    pub turned_away: u32,
    /// Jobs that were opened.
    pub jobs: u32,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes sent to clients.
    pub bytes_out: u64,
    /// Maximum stack usage in bytes. 0 if it is not measured.
    pub stack: u32,
}

/// Error in the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Error {
    /// The server has another version of the protocol.
    Version {
        /// The server's version.
        spoken: u16,
    },
    /// A request before [`Request::Hello`], or a second [`Request::Hello`].
    Handshake,
    /// The record is longer than [`RECORD_MAX`] or malformed. The server closes the connection.
    Malformed,
    /// The server serves a node of another host, or a job of its own.
    Busy,
    /// Error of the PMI server.
    Fault(Fault),
    /// Nodes with other nodes in their run are not served.
    NoTrees,
    /// Nodes whose server the host calls are not served.
    NoCalls,
    /// There is no node with that token, or nodes cannot be linked.
    NoLink,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Version { spoken } => {
                write!(f, "management protocol version {spoken}, this side has version {VERSION}")
            }
            Error::Handshake => f.write_str("handshake missing or repeated"),
            Error::Malformed => f.write_str("malformed request"),
            Error::Busy => f.write_str("in use by another host"),
            Error::Fault(fault) => fault.fmt(f),
            Error::NoTrees => f.write_str("nodes of a run on several hosts are not supported"),
            Error::NoCalls => f.write_str("nodes with a spare on their host are not supported"),
            Error::NoLink => f.write_str("no such node of this run is served here"),
        }
    }
}

impl core::error::Error for Error {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Fault(fault)
    }
}

/// Bytes that are not a valid record, or a value that does not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// Longer than [`RECORD_MAX`], or than the buffer.
    TooLong,
    /// Malformed.
    Malformed,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::TooLong => write!(f, "management record longer than {RECORD_MAX} bytes"),
            BadRecord::Malformed => f.write_str("malformed management record"),
        }
    }
}

impl core::error::Error for BadRecord {}

/// Encodes a record with its prefix into the front of `buf`.
///
/// # Errors
/// [`BadRecord::TooLong`] if it is longer than [`RECORD_MAX`], or than `buf`.
pub fn encode<'b>(what: &impl Serialize, buf: &'b mut [u8]) -> Result<&'b [u8], BadRecord> {
    let room = buf.len().min(PREFIX + RECORD_MAX);
    let (prefix, body) = buf[..room].split_at_mut_checked(PREFIX).ok_or(BadRecord::TooLong)?;
    let len = postcard::to_slice(what, body).map_err(|_| BadRecord::TooLong)?.len();
    // RECORD_MAX fits into 16 bits.
    prefix.copy_from_slice(&(len as u16).to_le_bytes());
    Ok(&buf[..PREFIX + len])
}

/// Returns the first record in `bytes` without its prefix, and its length with the prefix. Returns `None` if it is
/// incomplete.
///
/// # Errors
/// [`BadRecord::TooLong`] if the prefix announces more than [`RECORD_MAX`] bytes.
pub fn next(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BadRecord> {
    let Some((&prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let len = usize::from(u16::from_le_bytes(prefix));
    if len > RECORD_MAX {
        return Err(BadRecord::TooLong);
    }
    Ok(rest.get(..len).map(|record| (record, PREFIX + len)))
}

/// Decodes a record: a [`Request`] or a [`Report`].
///
/// # Errors
/// [`BadRecord::Malformed`] if it is malformed or has trailing bytes.
pub fn decode<'a, T: Deserialize<'a>>(record: &'a [u8]) -> Result<T, BadRecord> {
    match postcard::take_from_bytes(record) {
        Ok((what, [])) => Ok(what),
        _ => Err(BadRecord::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_and_its_refusal_have_the_same_bytes_in_every_version() {
        let mut buf = [0; 16];
        assert_eq!(encode(&Request::Hello { version: 300 }, &mut buf), Ok(&[3, 0, 0, 0xac, 2][..]));
        let refused = Report::Refused(Error::Version { spoken: 1 });
        assert_eq!(encode(&refused, &mut buf), Ok(&[3, 0, 0, 0, 1][..]));
    }

    #[test]
    fn records_are_decoded_in_any_split() {
        let mut buf = [0; 64];
        let request = Request::Link(OpenLink { token: [7; 16], to: 1, from: 300 });
        let said = encode(&request, &mut buf).expect("it is short");
        for end in 0..said.len() {
            assert_eq!(next(&said[..end]), Ok(None), "{end} bytes");
        }
        let (record, len) = next(said).expect("no record is too long").expect("it is whole");
        assert_eq!(len, said.len());
        assert_eq!(decode(record), Ok(request));
        assert_eq!(decode::<Request>(&record[..record.len() - 1]), Err(BadRecord::Malformed));
        assert_eq!(decode::<Request>(&[0, 1, 2]), Err(BadRecord::Malformed), "a rest");
        assert_eq!(decode::<Request>(&[0xff]), Err(BadRecord::Malformed));
    }

    #[test]
    fn long_records_are_refused_on_both_sides() {
        let mut buf = [0; 2 * RECORD_MAX];
        // A length of two bytes.
        assert_eq!(encode(&&[b'x'; RECORD_MAX - 1][..], &mut buf), Err(BadRecord::TooLong));
        let most = encode(&&[b'x'; RECORD_MAX - 2][..], &mut buf);
        assert_eq!(most.map(<[u8]>::len), Ok(PREFIX + RECORD_MAX));
        assert_eq!(encode(&&[b'x'; RECORD_MAX - 2][..], &mut buf[..100]), Err(BadRecord::TooLong));
        assert_eq!(encode(&Request::Board, &mut []), Err(BadRecord::TooLong));
        assert_eq!(next(&[0, 2]), Ok(None));
        assert_eq!(next(&[1, 2]), Err(BadRecord::TooLong));
    }
}
