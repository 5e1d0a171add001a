//! Requests and reports of the management protocol, and their encoding.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::trace::{Cause, Closing, Exit, Stream};

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
pub enum Request<'a> {
    /// Handshake, the first request of a connection. Reply: [`Report::Welcome`].
    Hello {
        /// [`VERSION`]
        version: u16,
    },
    /// Opens a job. Reply: [`Report::Opened`].
    #[serde(borrow)]
    Open(OpenJob<'a>),
    /// Sets the program number of ranks `first..first + count`. Only before [`Request::Serve`]. Reply:
    /// [`Report::Done`].
    Program {
        /// The job.
        job: JobId,
        /// Its first rank of this program.
        first: Rank,
        /// Number of ranks.
        count: u32,
        /// The program's number on the command line.
        appnum: u32,
    },
    /// Sets a job attribute, such as `PMI_process_mapping`. Only before [`Request::Serve`]. A record limits its length
    /// to some 400 bytes. Reply: [`Report::Done`].
    Attr {
        /// The job.
        job: JobId,
        /// The attribute's name.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Defines ranks `first..first + count` as a process set. Only before [`Request::Serve`]. Reply: [`Report::Done`].
    Pset {
        /// The job.
        job: JobId,
        /// The set's name.
        name: &'a str,
        /// Its first rank.
        first: Rank,
        /// Number of ranks.
        count: u32,
    },
    /// Accepts clients of the job. Reply: [`Report::Done`].
    Serve {
        /// The job.
        job: JobId,
    },
    /// Reports the exit of a rank's process, if the host does [that](OpenJob::exits_reported). Reply: [`Report::Done`].
    Exited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its exit.
        exit: Exit,
    },
    /// Ends the job: closes its connections and drops its data. Reply: [`Report::Done`].
    Forget {
        /// The job.
        job: JobId,
    },
    /// Queries the state of a job. Reply: [`Report::Job`].
    Job {
        /// The job.
        job: JobId,
    },
    /// Queries the state of a rank. Reply: [`Report::Rank`].
    Rank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// Queries the state of the server. Reply: [`Report::Board`].
    Board,
    /// Queries how much of a limit is used. Reply: [`Report::Usage`].
    Usage {
        /// The limit.
        limit: Limit,
    },
    /// Starts a recording on this connection. Reply: [`Report::Done`].
    ///
    /// After the reply the server sends every input and output of its PMI server, each as a
    /// [`Record`](crate::server::Record) after its length in two bytes. These records may be longer than
    /// [`RECORD_MAX`]. The request is valid on a connection that manages no jobs, while the server has no job. The
    /// server handles clients only as fast as the recording is read. The recording ends with its
    /// last record when the host shuts down its side of the connection.
    Record,
    /// Serves one node of a run on several hosts on this connection, by a PMI server of its own. Reply: [`Report::Done`].
    ///
    /// After the reply both sides send [records of a node](crate::server::remote), or [calls](crate::server::call) and their
    /// returns if the request has a [seed](OpenNode::seed). The request is valid on a connection
    /// that manages no jobs, with limits of at most [`Welcome::nodes`]. All of the node ends with the connection.
    Node(OpenNode),
    /// Links the server of another node of a run to one that this server serves, on this connection. Reply:
    /// [`Report::Done`].
    ///
    /// After the reply both sides send [records of a link](crate::server::link). The request is valid on a
    /// connection that manages no jobs, if the node was opened with the same [token](OpenNode::link).
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

/// Description of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenJob<'a> {
    /// The job id that clients see, as [`JobSpec::name`](crate::server::JobSpec::name).
    pub name: &'a str,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`. Not known to ranks if `None` or 0.
    pub universe_size: Option<u32>,
    /// hydra's auto-cleanup: whether a rank that fails aborts the job.
    pub cleanup: bool,
    /// The PMI-1 subversion to answer.
    pub pmi1_subversion: u32,
    /// Milliseconds that a lookup waits for a name.
    pub lookup_wait: u64,
    /// Milliseconds after which a stalled fence is reported ([`Report::Late`]). 0 for never.
    pub fence_warning: u64,
    /// Whether the host reports exits ([`Request::Exited`]). Otherwise, and after the host has disconnected, the server
    /// derives them: a client that closes its connection after finalize has exited with code 0, and one that closes it
    /// earlier was [lost](Exit::Lost).
    pub exits_reported: bool,
    /// Whether the job is kept when the connection that opened it closes.
    pub keep: bool,
}

impl<'a> OpenJob<'a> {
    /// Returns a job with default behaviour, whose exits the host reports.
    pub const fn new(name: &'a str, size: u32) -> OpenJob<'a> {
        OpenJob {
            name,
            size,
            universe_size: None,
            cleanup: true,
            pmi1_subversion: 2,
            lookup_wait: 0,
            fence_warning: 0,
            exits_reported: true,
            keep: false,
        }
    }
}

/// Reply or event of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report<'a> {
    /// Reply: the request was refused, and nothing was changed.
    Refused(Error),
    /// Reply to [`Request::Hello`].
    #[serde(borrow)]
    Welcome(Welcome<'a>),
    /// Reply: the request was carried out.
    Done,
    /// Reply to [`Request::Open`].
    Opened {
        /// The job's number.
        job: JobId,
        /// Port of its clients (`PMI_PORT`, at the address of the management port).
        port: u16,
    },
    /// Reply to [`Request::Job`].
    Job(JobReport),
    /// Reply to [`Request::Rank`].
    Rank(RankReport),
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
    /// Event: a client has identified itself as a rank.
    Joined {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its connection.
        conn: ConnId,
    },
    /// Event: the job is aborted, and the host has to kill its processes. Sent once for a job.
    End {
        /// The job.
        job: JobId,
        /// The cause.
        cause: Cause,
        /// Message of the aborting rank.
        message: &'a str,
    },
    /// Event: a rank aborted itself alone, and the host has to kill its process.
    Kill {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The exit code that it requested.
        code: Option<i32>,
        /// Its message.
        message: &'a str,
    },
    /// Event: a fence has been waiting for longer than [`OpenJob::fence_warning`].
    Late {
        /// The job.
        job: JobId,
        /// Number of ranks that have arrived.
        arrived: u32,
        /// Number of ranks that take part.
        size: u32,
        /// The missing ranks, as `0-3,7`, truncated with `,...`.
        missing: &'a str,
    },
    /// Event: every rank of the job has exited. The host ends it with [`Request::Forget`].
    Over {
        /// The job.
        job: JobId,
    },
    /// Event: a client was refused because a limit is reached. Sent once for a job and limit.
    LimitHit {
        /// The limit.
        limit: Limit,
        /// Its size.
        size: u32,
    },
    /// Event: a client's connection was closed because of its messages.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Its rank, if known.
        rank: Option<Rank>,
        /// The reason.
        why: Closing,
    },
    /// Event: a PMIx client has named files that the host removes when the rank's process has exited. The board cannot
    /// check who the client is.
    RemoveFiles {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Absolute paths, separated by commas.
        paths: &'a [u8],
    },
    /// Event: a PMIx client has sent text that the host prints as output of the rank.
    Log {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The stream.
        stream: Stream,
        /// The text.
        text: &'a [u8],
    },
}

impl Report<'_> {
    /// Returns whether this is an event.
    pub const fn is_event(&self) -> bool {
        match self {
            Report::Joined { .. }
            | Report::End { .. }
            | Report::Kill { .. }
            | Report::Late { .. }
            | Report::Over { .. }
            | Report::LimitHit { .. }
            | Report::Closed { .. }
            | Report::RemoveFiles { .. }
            | Report::Log { .. } => true,
            Report::Refused(_)
            | Report::Welcome(_)
            | Report::Done
            | Report::Opened { .. }
            | Report::Job(_)
            | Report::Rank(_)
            | Report::Board(_)
            | Report::Usage { .. } => false,
        }
    }
}

/// Properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome<'a> {
    /// [`VERSION`]
    pub version: u16,
    /// The server's name, for people.
    pub board: &'a str,
    /// Capacities of its tables.
    pub limits: Limits,
    /// Port of the first job's clients. That of job `n` is `n` higher.
    pub pmi_port: u16,
    /// Maximum number of connected clients.
    pub sockets: u32,
    /// Number of clients that can connect in addition now.
    pub free_sockets: u32,
    /// Maximum length of a client's message in bytes. Clients with longer ones are closed.
    pub message_max: u32,
    /// Whether [`Request::Record`] is supported.
    pub records: bool,
    /// Largest limits of the run of a node ([`Request::Node`]). `None` if nodes are not served.
    pub nodes: Option<Limits>,
    /// Maximum number of children whose servers link themselves to that of a node ([`Request::Link`]). The node links itself to
    /// its parent in addition. `None` if nodes cannot be linked.
    pub links: Option<u32>,
    /// Maximum length in bytes of a client's bytes in a [call](crate::server::call). `None` if nodes cannot be called.
    pub calls: Option<u32>,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its phase.
    pub phase: JobPhase,
    /// Its number of ranks.
    pub size: u32,
    /// Ranks that are connected.
    pub connected: u32,
    /// Ranks between init and finalize.
    pub initialized: u32,
    /// Ranks that wait in the job's fence.
    pub in_fence: u32,
    /// Ranks that have finalized.
    pub finalized: u32,
    /// Ranks whose process has ended.
    pub exited: u32,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobPhase {
    /// Clients are not accepted yet.
    Opened,
    /// Clients are accepted.
    Served,
    /// It is aborted.
    Ending(Cause),
    /// Every rank has exited.
    Over,
}

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Its connection, if it has one.
    pub conn: Option<ConnId>,
    /// Whether it is between init and finalize.
    pub initialized: bool,
    /// Whether it has finalized.
    pub finalized: bool,
    /// Whether it waits in the job's fence.
    pub in_fence: bool,
    /// Its exit, if it has exited.
    pub exit: Option<Exit>,
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
    /// Another host manages or records the server, or has it serve a node of a run.
    Busy,
    /// The job is already served, or a recording was requested while a job is open.
    Order,
    /// Recording is not supported.
    NoRecording,
    /// Error of the PMI server.
    Fault(Fault),
    /// Nodes of a run on several hosts are not served.
    NoNodes,
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
            Error::Order => f.write_str("too late: the job is already served, or a job is open"),
            Error::NoRecording => f.write_str("recording is not supported"),
            Error::Fault(fault) => fault.fmt(f),
            Error::NoNodes => f.write_str("nodes of a run on several hosts are not supported"),
            Error::NoCalls => f.write_str("nodes with a spare on their host are not supported"),
            Error::NoLink => f.write_str("no such node of this run is served here"),
        }
    }
}

impl core::error::Error for Error {}

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
        let said = encode(&Request::Attr { job: JobId(1), key: b"k", value: b"value" }, &mut buf);
        let said = said.expect("it is short");
        for end in 0..said.len() {
            assert_eq!(next(&said[..end]), Ok(None), "{end} bytes");
        }
        let (record, len) = next(said).expect("no record is too long").expect("it is whole");
        assert_eq!(len, said.len());
        assert_eq!(decode(record), Ok(Request::Attr { job: JobId(1), key: b"k", value: b"value" }));
        assert_eq!(decode::<Request<'_>>(&record[..record.len() - 1]), Err(BadRecord::Malformed));
        assert_eq!(decode::<Request<'_>>(&[2, 0, 0, 1, 2, 3, 4]), Err(BadRecord::Malformed), "a rest");
        assert_eq!(decode::<Request<'_>>(&[0xff]), Err(BadRecord::Malformed));
    }

    #[test]
    fn long_records_are_refused_on_both_sides() {
        let value = [b'x'; RECORD_MAX];
        let mut buf = [0; 2 * RECORD_MAX];
        let attr = |value| Request::Attr { job: JobId(0), key: b"key", value };
        assert_eq!(encode(&attr(&value), &mut buf), Err(BadRecord::TooLong));
        // Variant, job, a length of one byte and one of two.
        let most = &value[..RECORD_MAX - 8];
        assert_eq!(encode(&attr(most), &mut buf).map(<[u8]>::len), Ok(PREFIX + RECORD_MAX));
        assert_eq!(encode(&attr(most), &mut buf[..100]), Err(BadRecord::TooLong));
        assert_eq!(encode(&Request::Board, &mut []), Err(BadRecord::TooLong));
        assert_eq!(next(&[0, 2]), Ok(None));
        assert_eq!(next(&[1, 2]), Err(BadRecord::TooLong));
    }
}
