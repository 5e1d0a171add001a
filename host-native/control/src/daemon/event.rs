//! Events that a daemon handles, and actions that it demands.

use hydrant_core::trace::Exit;
use hydrant_core::wire::Integers;
use hydrant_core::{JobId, OwnedInput, OwnedOutput, Rank};

use crate::protocol::{
    BackendFailure, JobRecord, Order, PluginFile, Relayed, Report, StartError, UsageParts, WindowSize,
};

/// Something that happened on the node of a daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DaemonEvent {
    /// An order of the head's.
    Order(Order),
    /// The settings of the run have been applied.
    SetupApplied,
    /// Answer to [`DaemonAction::OpenJob`]: the job is registered, and its ranks can be started.
    JobOpened {
        /// The job.
        job: JobId,
    },
    /// Answer to [`DaemonAction::OpenJob`]: the job cannot be registered, and nothing of it is left.
    OpenFailed {
        /// The job.
        job: JobId,
        /// The reasons: one for the job, or one for each program that cannot be started here.
        errors: Vec<StartError>,
    },
    /// Answer to [`Daemon::next_rank`](super::Daemon::next_rank): the rank runs.
    RankStarted {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its process.
        pid: u32,
    },
    /// Answer to [`Daemon::next_rank`](super::Daemon::next_rank): the rank cannot be started.
    StartFailed {
        /// Job of the rank.
        job: JobId,
        /// The reason.
        error: StartError,
    },
    /// The process of a rank has ended. All that the rank wrote to its PMI connection has been read.
    RankExited {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// How it ended.
        exit: Exit,
    },
    /// Answer to [`DaemonAction::DrainOutput`]: all output of the job's ranks has been sent.
    OutputDrained {
        /// The job.
        job: JobId,
    },
    /// The node's PMI server has failed, or could not be created. The host has replaced it by one that does nothing.
    BackendFailed(BackendFailure),
    /// An output of the node's PMI server: a rank that has joined, an upcall, a stalled fence, or the end of a rank or job.
    /// Other outputs have no effect.
    Output(OwnedOutput),
    /// The reading ranks of this node have read so many bytes of their standard input.
    StdinConsumed(u32),
    /// All reading ranks of this node have closed their standard input.
    StdinClosed,
    /// A signal for the daemon itself. It is passed on to the ranks.
    Signal(i32),
    /// The daemon is about to be stopped.
    Suspended,
    /// The daemon continues after it was stopped.
    Resumed,
    /// The link to the parent is lost, and with it every later order.
    LifelineLost,
    /// The head ends the run.
    Shutdown,
}

/// Something that the host of a daemon has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonAction {
    /// Sends a report to the head, behind the output that ranks have written so far.
    Send(Report),
    /// Registers a job at the PMI server of this node and prepares its ranks here. The answer is
    /// [`DaemonEvent::JobOpened`] or [`DaemonEvent::OpenFailed`] before the next order.
    OpenJob {
        /// The job.
        record: Box<JobRecord>,
    },
    /// Links the board of this node, if it has one, to that of its parent in the tree for linked boards. The host sends the
    /// result as [`Report::BoardLinked`].
    LinkBoard {
        /// Node and address of each board.
        addrs: Vec<(u32, String)>,
    },
    /// Makes the PMI server of this node a node of the tree of servers. The host sends [`Report::Ready`].
    FormTree {
        /// Whether boards are linked.
        are_linked: bool,
    },
    /// Sends a signal to the process groups of all ranks.
    SignalAll(i32),
    /// Sets the size of the windows of pseudo-terminals, and sends `SIGWINCH` to the process groups of their ranks.
    ResizeWindows {
        /// The job, or none for all.
        job: Option<JobId>,
        /// The size.
        size: WindowSize,
    },
    /// Sends a signal to the process groups of a job's ranks.
    SignalJob {
        /// The job.
        job: JobId,
        /// The signal.
        signal: i32,
    },
    /// Sends a signal to the process group of one rank.
    SignalRank {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The signal.
        signal: i32,
    },
    /// Lets ranks of a job go on that wait for a debugger. The job may have ended.
    ReleaseRanks {
        /// The job.
        job: JobId,
        /// Encoding of integers in their messages.
        integers: Integers,
    },
    /// All ranks of the job here have ended: sends the rest of their output. The answer is
    /// [`DaemonEvent::OutputDrained`].
    DrainOutput {
        /// The job.
        job: JobId,
    },
    /// Deregisters the job at the PMI server. Its number is free.
    DeregisterJob {
        /// The job.
        job: JobId,
    },
    /// Applies an input to the PMI server. What the input is about may be gone.
    Input(OwnedInput),
    /// Asks for the state of the node's ranks among these, which the host sends as
    /// [`Report::RankStates`](crate::protocol::Report::RankStates).
    QueryRanks {
        /// Number of the query.
        query: u64,
        /// The job, which may have ended.
        job: JobId,
        /// First rank.
        first: u32,
        /// Number of ranks.
        count: u32,
    },
    /// Asks what this host and its ranks use, which the host sends as [`Report::Usage`](crate::protocol::Report::Usage).
    QueryUsage {
        /// Number of the query.
        query: u64,
        /// What is asked for.
        parts: UsageParts,
    },
    /// Pushes bytes to the standard input of ranks here, if there are any. An empty vector is its end. The host sends
    /// [`Report::InputPushed`] when the push is over.
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
    /// Tells this end of the connection of a tool what the head's end does. The tool may be gone.
    RelayTool {
        /// Number of the tool.
        number: u32,
        /// What happens.
        relayed: Relayed,
    },
    /// Puts another PMI server in the place of the node's. The host sends the result as
    /// [`Report::ServerReplaced`](crate::protocol::Report::ServerReplaced).
    ReplaceServer {
        /// Plugin with the server, or `None` for one in this process.
        plugin: Option<Box<PluginFile>>,
    },
    /// Writes bytes to the standard input of the reading ranks. An empty vector is its end.
    FeedStdin(Vec<u8>),
    /// Closes output streams of ranks, which get `SIGPIPE` or `EPIPE` when they write.
    CloseOutput {
        /// Job of the ranks.
        job: JobId,
        /// Ranks, each with true for standard error and false for standard output.
        streams: Vec<(Rank, bool)>,
    },
    /// Prints a line at the head.
    Print(String),
    /// Kills all processes of the node, waits for them, and ends the daemons below this one. It is the last action.
    EndNode,
}
