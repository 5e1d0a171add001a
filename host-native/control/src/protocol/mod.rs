//! Messages between the head and its daemons.
//!
//! Messages are postcard records. [`Order`] and [`Report`] travel in the control channel of a link, [`OutputChunk`] in
//! the stream channel, and [`FilePiece`] in the other direction. Head and daemons are the same version of the same
//! program, so the records carry no version.
//!
//! Decoding checks the form of a record only. [`Head`](crate::Head) checks that a report concerns ranks of the reporting
//! node.

mod job;
mod request;
mod runs;
mod setup;

use hydrant_core::trace::Exit;
use hydrant_core::wire::Integers;
use hydrant_core::{JobId, Limit, OwnedInput, OwnedOutput, Rank};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::Error;
pub use job::{JobRecord, Program, SpawnOrigin, Stop, StopAt, SubmissionId, Submitted, Target, ToolOptions};
pub use request::{Entry, History, REQUESTS_MAX, is_shared_request, shared_request};
pub use runs::RankBlock;
pub use setup::{
    Attribute, AttributeOf, Boards, FileCopy, FileUse, PluginFile, ProgramFile, PseudoTerminals, RunSettings,
    Setup, SharedMemory, StdinTarget, WindowSize,
};

/// Code of a program that was not started because of another one.
pub const CANCELED: u8 = libc::ECANCELED as u8;

/// Message from the head to one node or to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Asks for a [`Report::Identity`].
    Identify,
    /// Settings for all jobs of the run. Sent once, before any job.
    Setup(Box<Setup>),
    /// Each board links itself to that of its parent in the tree for linked boards. Node and address of each board.
    LinkBoards(Vec<(u32, String)>),
    /// Makes each PMI server a node of the tree of servers. Sent once, before any job, if boards [may be linked](Boards::link).
    FormTree {
        /// Whether boards are linked, and the tree is that for them.
        are_linked: bool,
    },
    /// Starts a job: each node starts the ranks of its own, where boards are linked after [`Order::StartRanks`].
    StartJob(Box<JobRecord>),
    /// All nodes have opened the job: its ranks are started. Boards that are linked may then exchange messages about it. Sent
    /// only if boards are linked.
    StartRanks(JobId),
    /// Sends the signal of this number to all ranks.
    Signal(i32),
    /// Sends a signal to one rank of a job, or to all.
    SignalRanks {
        /// The job, which may have ended.
        job: JobId,
        /// The rank. None for all.
        rank: Option<Rank>,
        /// The signal.
        signal: i32,
    },
    /// Ranks of a job that wait for a debugger go on: the debugger has left.
    ReleaseRanks {
        /// The job, which may have ended.
        job: JobId,
        /// Encoding of integers in their messages.
        integers: Integers,
    },
    /// Sets the size of the windows of pseudo-terminals, and sends `SIGWINCH` to their ranks.
    ResizeWindows {
        /// The job, or none for all.
        job: Option<JobId>,
        /// The size.
        size: WindowSize,
    },
    /// Ends a job: its ranks get `SIGTERM`, and `SIGKILL` after the [kill timeout](crate::KILL_TIMEOUT).
    AbortJob(JobId),
    /// Cancels a job that could not be started as a whole: its ranks get `SIGKILL`, and nothing is printed.
    CancelJob(JobId),
    /// All nodes are done with the job. The number may be used again.
    DeregisterJob(JobId),
    /// An input for the node's PMI server: the result of a [`Report::Output`], a change that the head has decided about for all
    /// nodes, or a fence that is stalled.
    Input(OwnedInput),
    /// Asks for the state of the node's ranks among these. The answer is [`Report::RankStates`].
    QueryRanks {
        /// Number of the query.
        query: u64,
        /// The job.
        job: JobId,
        /// First rank.
        first: u32,
        /// Number of ranks.
        count: u32,
    },
    /// Asks what the node's host and ranks use. The answer is [`Report::Usage`].
    QueryUsage {
        /// Number of the query.
        query: u64,
        /// What is asked for.
        parts: UsageParts,
    },
    /// Bytes that a tool pushes to the standard input of ranks. An empty vector is the end of their input. Each node answers with
    /// [`Report::InputPushed`].
    PushInput {
        /// Number of the push.
        push: u64,
        /// The job, which may have ended.
        job: JobId,
        /// The rank. None for all.
        rank: Option<Rank>,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// What the head's end of the connection of a tool tells that of the node.
    RelayTool {
        /// Number that the node has given the tool.
        number: u32,
        /// What happens.
        relayed: Relayed,
    },
    /// Puts another server in the place of the node's. The answer is [`Report::ServerReplaced`].
    ReplaceServer {
        /// Plugin with the server, or `None` for one in the daemon's process.
        plugin: Option<Box<PluginFile>>,
    },
    /// Bytes for the standard input of all ranks that read it. An empty vector is its end.
    Stdin(Vec<u8>),
    /// The destination of these output streams has closed: ranks that write there get `SIGPIPE` or `EPIPE`.
    CloseOutput {
        /// Job of the ranks.
        job: JobId,
        /// Ranks, each with true for standard error and false for standard output.
        streams: Vec<(Rank, bool)>,
    },
    /// Ends a node whose server has failed, and those below it.
    End,
}

/// What a node is asked about with [`Order::QueryUsage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageParts {
    /// Counters of its ranks.
    pub ranks: bool,
    /// What its ranks use of pages that they share, for which the system walks all their pages.
    pub shares: bool,
    /// Load and memory of its host, and of the daemon.
    pub host: bool,
    /// Counters of disks and networks.
    pub devices: bool,
}

/// What one end of the relayed connection of a tool tells the other. Bytes wait until those before have been taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relayed {
    /// A tool has connected to a node, and has said this. Counts as bytes.
    Begins(Vec<u8>),
    /// Bytes for the other end's socket.
    Bytes(Vec<u8>),
    /// The socket has taken the bytes.
    Taken,
    /// The socket is closed. Nothing follows.
    Ends,
}

impl Order {
    /// Decodes an order.
    ///
    /// # Errors
    /// The bytes are no order.
    pub fn decode(bytes: &[u8]) -> Result<Order, Error> {
        decode(bytes).ok_or(Error::InvalidOrder)
    }
}

/// Message from a node to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Answer to [`Order::Identify`].
    Identity {
        /// Process id of the daemon.
        pid: u32,
    },
    /// The node has applied [`Order::Setup`]. Sent if [`Setup::needs_ready`] is true.
    Ready,
    /// The node's board. Sent once if boards [may be linked](Boards::link).
    Board(BoardReport),
    /// Answer to [`Order::LinkBoards`] of a node with a board: it has the link to its parent's board, or needs none, or the
    /// reason why it cannot be made.
    BoardLinked(Result<(), String>),
    /// The node lacks a file of [`Setup::files`]. [`Report::Ready`] follows when it has all of them.
    NeedsFiles,
    /// The node's PMI server has failed, so that the run cannot go on. The node ends its ranks and keeps its links.
    BackendFailed(BackendFailure),
    /// The node has registered a job. Sent if boards are linked.
    JobOpened {
        /// The job.
        job: JobId,
        /// Its position among all jobs of the run. A later job may have the same number.
        ordinal: u32,
    },
    /// Ranks have been started.
    RanksStarted {
        /// Job of the ranks.
        job: JobId,
        /// Ranks, each with its process id.
        ranks: Vec<(Rank, u32)>,
    },
    /// Ranks of the first job have joined the PMI server of their node. Sent if [`Setup::progress`] is true, at most four
    /// times a second.
    RanksJoined {
        /// The job.
        job: JobId,
        /// Number of ranks since the last report.
        ranks: u32,
    },
    /// All ranks of the job on this node have been started.
    JobStarted(JobId),
    /// A rank or the whole job cannot be started on this node.
    StartFailed {
        /// The job.
        job: JobId,
        /// The reason.
        error: StartError,
    },
    /// The process of a rank has ended.
    Exited {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// How it ended.
        exit: Exit,
        /// Exit code that the rank had asked to be ended with. It replaces `exit`.
        requested: Option<u8>,
    },
    /// All ranks of the job on this node have ended, and all their output has been sent.
    JobDone(JobId),
    /// Where the time of the job's ranks on this node went. Comes before [`Report::JobDone`], if [`Setup::profile`] is true.
    Profile {
        /// The job.
        job: JobId,
        /// Times in the host's own encoding, which the head does not look into.
        body: Vec<u8>,
    },
    /// An output of the node's PMI server that the head decides about: the end of a job, a stalled fence, a spawn or another
    /// upcall. The answer to the last two is an [`Order::Input`].
    Output(OwnedOutput),
    /// Answer to [`Order::QueryRanks`].
    RankStates {
        /// Number of the query.
        query: u64,
        /// States in the host's own encoding, which the head does not look into.
        body: Vec<u8>,
    },
    /// Answer to [`Order::QueryUsage`].
    Usage {
        /// Number of the query.
        query: u64,
        /// Counters in the host's own encoding, which the head does not look into.
        body: Vec<u8>,
    },
    /// Answer to [`Order::PushInput`]: no rank of the node waits for any of the bytes.
    InputPushed {
        /// Number of the push.
        push: u64,
        /// Whether a rank has taken all of them.
        is_taken: bool,
    },
    /// What the node's end of the connection of a tool tells that of the head, whose server serves the tool.
    RelayTool {
        /// Number of the tool among those of the node. None of them has had it before.
        number: u32,
        /// What happens.
        relayed: Relayed,
    },
    /// Answer to [`Order::ReplaceServer`], with the reason if the server was kept.
    ServerReplaced(Result<(), String>),
    /// Number of bytes of standard input that all reading ranks of the node have read.
    StdinConsumed(u32),
    /// All reading ranks of the node have closed their standard input.
    StdinClosed,
    /// Line for the user.
    Print(String),
    /// Line about a job of a fleet, for who has submitted it.
    Tell {
        /// The job, which may be over.
        job: JobId,
        /// The line.
        line: String,
    },
}

/// Failure of a node's PMI server (its backend).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendFailure {
    /// The backend could not be created, or has failed.
    Own(String),
    /// A neighbour's backend sent a message that this node's backend rejects.
    Neighbour {
        /// The neighbour.
        node: u32,
        /// Error of the backend.
        why: String,
    },
}

/// Part of a rank's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChunk<'a> {
    /// Job of the rank.
    pub job: JobId,
    /// The rank.
    pub rank: Rank,
    /// Standard error instead of standard output.
    pub stderr: bool,
    /// Bytes that the rank wrote. An empty chunk is the end of the stream.
    #[serde(borrow, serialize_with = "in_one_piece")]
    pub bytes: &'a [u8],
}

/// Board of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoardReport {
    /// It has none.
    None,
    /// The board cannot be linked to others.
    WithoutLinks,
    /// It can be linked to others.
    At {
        /// Address at which other boards reach it.
        addr: String,
        /// How many boards of its node's children can link themselves to it.
        links: u32,
    },
}

/// Part of a program file, from the head to all nodes in the stream channel. The pieces of all files come in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece<'a> {
    /// Position in [`Setup::files`].
    pub file: u32,
    /// The next bytes of the file.
    #[serde(borrow, serialize_with = "in_one_piece")]
    pub bytes: &'a [u8],
}

/// Serializes bytes at once, which gives the same record as one by one.
fn in_one_piece<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Reason why a rank or a job cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// Number of the program that cannot be started; missing if the whole job cannot.
    pub appnum: Option<u32>,
    /// Exit code of the launcher, as shells use it.
    pub code: u8,
    /// `errno` for the rank that asked for a spawn.
    pub errno: u8,
    /// Limit that was reached, if that is the reason.
    pub limit: Option<Limit>,
    /// Error message.
    pub text: String,
}

impl StartError {
    /// A signal has stopped the start of a job's ranks on a node.
    pub(crate) fn unfinished() -> StartError {
        let text = "its daemon has not started all ranks".to_owned();
        StartError { appnum: None, code: 1, errno: CANCELED, limit: None, text }
    }
}

/// Encodes a record.
pub fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(record)
        .expect("the records of this crate have lengths, so encoding to memory succeeds")
}

/// Decodes a record that fills `bytes`. Returns `None` if the bytes are not such a record.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Some(record),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_decode_as_encoded() {
        let request = b"cmd=pset-prune;".into();
        let order = Order::Input(OwnedInput::PsetRequest { job: JobId(3), rank: Rank(1), request });
        assert_eq!(decode(&encode(&order)), Some(order));
        let chunk = OutputChunk { job: JobId(0), rank: Rank(5), stderr: true, bytes: b"no\n" };
        assert_eq!(decode(&encode(&chunk)), Some(chunk));
        let report =
            Report::Exited { job: JobId(1), rank: Rank(2), exit: Exit::Signal(9), requested: Some(4) };
        assert_eq!(decode(&encode(&report)), Some(report));
    }

    #[test]
    fn other_bytes_are_rejected() {
        let bytes = encode(&Report::JobDone(JobId(7)));
        assert_eq!(decode::<Report>(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode::<Report>(&[&bytes[..], b"x"].concat()), None, "bytes behind the record");
        assert_eq!(decode::<Report>(b"\xff"), None, "unknown variant");
    }
}
