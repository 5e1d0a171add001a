//! Records of a node: inputs and outputs of the PMI server of one node of a run, on a management connection.
//!
//! The connection carries them after [`Request::Node`](crate::manage::Request::Node) without a seed. Each record is four bytes
//! of length, little-endian, and that many bytes of postcard, at most [`request_max`] or [`report_max`]. The host sends
//! [`NodeRequest`]s, which the server counts from 0. The server sends [`NodeReport`]s. Records of one side are handled in their
//! order.
//!
//! Messages for other nodes' servers are outputs and inputs as all others: the host passes them on.

use serde::{Deserialize, Serialize};

use super::{Input, Output, RankStatus};
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::{Limit, Limits, MESSAGE_MAX, VALUE_MAX, max};
use crate::manage::BadRecord;
use crate::time::Time;
use crate::trace::Closing;

/// Length in bytes of a record's prefix.
pub const NODE_PREFIX: usize = 4;
/// Bytes of a record beside the longest message in it.
pub(super) const HEAD_MAX: usize = 256;
/// Longest decimal rank with its comma, in the ranks of a process set.
const RANK_MAX: usize = 11;

/// Number of no request, in [`NodeReport::Refused`].
pub const UNASKED: u32 = u32::MAX;

/// Request of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest<'a> {
    /// Input of the server. Those about connections and time are the server's own, and not valid here.
    #[serde(borrow)]
    Input(Input<'a>),
    /// Accepts clients of a registered job. Reply: [`NodeReport::Serving`] or [`NodeReport::Refused`].
    Serve {
        /// The job.
        job: JobId,
    },
    /// Reads the last requests of a rank whose process has ended.
    Read {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// Queries the state of a rank. Reply: [`NodeReport::Rank`].
    Rank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// Reply: [`NodeReport::Synced`], when all requests before it have been handled.
    Sync {
        /// Any number, which is returned.
        number: u32,
    },
    /// Links the node to its parent, which another server serves. Reply, while other requests go on:
    /// [`NodeReport::Linked`] or [`NodeReport::Unlinked`].
    Link {
        /// The parent.
        node: u32,
        /// Management port of its server, as `IP:PORT`.
        addr: &'a str,
    },
    /// Makes the node a node of its tree, before the first job, if it was opened with a
    /// [token](crate::manage::OpenNode::link).
    Tree {
        /// Whether the tree is that for linked boards ([`ROOT_ONE`](crate::peer::tree::ROOT_ONE)), and messages for neighbours
        /// that are linked use these links.
        linked: bool,
        /// Milliseconds after which a neighbour's machine that answers nothing is lost.
        silence: u32,
    },
}

/// Report of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReport<'a> {
    /// Output of the server. Those about connections are the server's own, and not sent.
    #[serde(borrow)]
    Output(Output<'a>),
    /// Clients of a job are accepted.
    Serving {
        /// The job.
        job: JobId,
        /// Their port, at the address of the management port.
        port: u16,
    },
    /// A request was refused. With the number [`UNASKED`], a client was refused because a [limit](Fault::Full) is reached.
    Refused {
        /// Number of the request.
        request: u32,
        /// The other node, if the request was a message of it.
        peer: Option<u32>,
        /// The reason.
        why: Fault,
    },
    /// Reply to [`NodeRequest::Sync`].
    Synced {
        /// Number of the request.
        number: u32,
    },
    /// State of a rank.
    Rank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The server's time.
        now: Time,
        /// Its state, or `None` for an unknown job or rank.
        status: Option<RankStatus<'a>>,
    },
    /// A client's connection was closed because of its messages.
    Closed {
        /// The job.
        job: JobId,
        /// Its rank, if known.
        rank: Option<Rank>,
        /// The reason.
        why: Closing,
    },
    /// Next bytes of the inputs and outputs so far, if the node was opened for [that](crate::manage::OpenNode::record):
    /// [records](super::Record) as postcard, one after another. The bytes of a record may come in several reports.
    Recorded(&'a [u8]),
    /// The link to the parent is there.
    Linked {
        /// The parent.
        node: u32,
    },
    /// The link to a neighbour is lost, or did not come up.
    Unlinked {
        /// The neighbour.
        node: u32,
        /// The reason.
        why: &'a str,
    },
}

impl NodeReport<'_> {
    /// Returns the report that a client was refused because a limit of this size is reached.
    pub const fn limit_hit(limit: Limit, size: u32) -> NodeReport<'static> {
        NodeReport::Refused { request: UNASKED, peer: None, why: Fault::Full(limit, size) }
    }
}

/// Returns the maximum length in bytes of a [`NodeRequest`] to a server with these limits: a value, a result, the ranks of a
/// process set, or a message of another node.
pub const fn request_max(limits: &Limits) -> usize {
    let sets = limits.ranks as usize * RANK_MAX;
    let sets = if sets > MESSAGE_MAX as usize { MESSAGE_MAX as usize } else { sets };
    let peers = if limits.links > 0 { limits.peer_message_max() } else { 0 };
    HEAD_MAX + max(max(VALUE_MAX as usize, limits.spawn_bytes as usize), max(sets, peers))
}

/// Returns the maximum length in bytes of a [`NodeReport`] of a server with these limits.
pub const fn report_max(limits: &Limits) -> usize {
    HEAD_MAX + limits.output_room()
}

/// Returns whether a host may send this input.
pub fn is_of_host(input: &Input<'_>) -> bool {
    match input {
        Input::RegisterJob(_)
        | Input::MapRanks { .. }
        | Input::Preput { .. }
        | Input::Define { .. }
        | Input::Connected { .. }
        | Input::StalledFence { .. }
        | Input::Peer { .. }
        | Input::PeerBlocked { .. }
        | Input::PeerWritable { .. }
        | Input::Program { .. }
        | Input::Attr { .. }
        | Input::Pset { .. }
        | Input::SpawnComplete { .. }
        | Input::UpcallComplete { .. }
        | Input::Exited { .. }
        | Input::DeregisterJob { .. }
        | Input::PsetRequest { .. }
        | Input::NodeLost { .. }
        | Input::NodeJoined { .. } => true,
        Input::Node { .. }
        | Input::Opened { .. }
        | Input::OpenedQuery { .. }
        | Input::Bytes { .. }
        | Input::Blocked { .. }
        | Input::Writable { .. }
        | Input::Closed { .. }
        | Input::Timeout
        | Input::Verified { .. } => false,
    }
}

/// Encodes a record with its prefix into the front of `buf`.
///
/// # Errors
/// [`BadRecord::TooLong`] if it is longer than `buf`.
pub fn encode_node_record<'b>(what: &impl Serialize, buf: &'b mut [u8]) -> Result<&'b [u8], BadRecord> {
    let (prefix, body) = buf.split_at_mut_checked(NODE_PREFIX).ok_or(BadRecord::TooLong)?;
    let len = postcard::to_slice(what, body).map_err(|_| BadRecord::TooLong)?.len();
    let number = u32::try_from(len).map_err(|_| BadRecord::TooLong)?;
    prefix.copy_from_slice(&number.to_le_bytes());
    Ok(&buf[..NODE_PREFIX + len])
}

/// Returns the first record in `bytes` without its prefix, and its length with the prefix. Returns `None` if it is
/// incomplete.
///
/// # Errors
/// [`BadRecord::TooLong`] if the prefix announces more than `max` bytes.
pub fn next_node_record(bytes: &[u8], max: usize) -> Result<Option<(&[u8], usize)>, BadRecord> {
    let Some((&prefix, rest)) = bytes.split_first_chunk::<NODE_PREFIX>() else { return Ok(None) };
    let len = u32::from_le_bytes(prefix) as usize;
    if len > max {
        return Err(BadRecord::TooLong);
    }
    Ok(rest.get(..len).map(|record| (record, NODE_PREFIX + len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::decode;

    #[test]
    fn records_of_a_node_are_decoded_in_any_split() {
        let message = [7; 300];
        let request = NodeRequest::Input(Input::Peer { node: 2, bytes: &message });
        let mut buf = [0; 400];
        let said = encode_node_record(&request, &mut buf).expect("it fits");
        for end in 0..said.len() {
            assert_eq!(next_node_record(&said[..end], 400), Ok(None), "{end} bytes");
        }
        let (record, len) = next_node_record(said, 400).expect("it is short").expect("it is whole");
        assert_eq!(len, said.len());
        assert_eq!(decode(record), Ok(request));
        assert_eq!(next_node_record(said, record.len() - 1), Err(BadRecord::TooLong));
        assert_eq!(encode_node_record(&request, &mut [0; 300]), Err(BadRecord::TooLong));
        assert_eq!(encode_node_record(&request, &mut [0; 3]), Err(BadRecord::TooLong));
    }

    #[test]
    fn connections_and_time_are_the_servers_own() {
        let job = JobId(0);
        assert!(is_of_host(&Input::DeregisterJob { job }) && !is_of_host(&Input::Timeout));
        assert!(!is_of_host(&Input::Node { node: 0, nodes: 1, radix: 2 }));
        assert!(!is_of_host(&Input::Opened { conn: crate::ConnId(0), job, rank: None }));
    }
}
