//! Events that a daemon handles, and actions that it demands.

use hydrant_core::trace::{Cause, Exit};
use hydrant_core::wire::Protocol;
use hydrant_core::{JobId, Limit, Rank, UpcallId};

use crate::protocol::{BackendFailure, JobRecord, PluginFile, Report, StartError, WindowSize};

/// Something that happened on the node of a daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DaemonEvent<'a> {
    /// A message of the head's in the control channel: an encoded [`Order`](crate::protocol::Order).
    Order(&'a [u8]),
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
    /// A client has become a rank of the PMI server of this node.
    RankJoined {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
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
    /// The PMI server demands the end of a job.
    AbortJob {
        /// The job.
        job: JobId,
        /// What a rank did.
        cause: Cause,
        /// Message of a rank that called abort.
        message: String,
    },
    /// The PMI server demands the end of one rank.
    KillRank {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Exit code that the rank asked for.
        code: Option<i32>,
        /// Message of the rank.
        message: String,
    },
    /// The PMI server reports a stalled fence.
    StalledFence {
        /// The job.
        job: JobId,
        /// Number of ranks that have arrived, and of those that take part, if this node has all ranks of the job.
        arrived: Option<(u32, u32)>,
        /// Missing ranks of this node as `0-3,7`.
        missing: String,
    },
    /// A rank asks for a spawn.
    Spawn {
        /// Number of the spawn at the PMI server.
        upcall: UpcallId,
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Protocol of the request.
        protocol: Protocol,
        /// Request as the rank sent it.
        request: Vec<u8>,
    },
    /// A rank publishes or looks up a name, defines a process set, or connects jobs.
    Upcall {
        /// Number of the upcall at the PMI server.
        upcall: UpcallId,
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Protocol of the request.
        protocol: Protocol,
        /// Request as the rank sent it.
        request: Vec<u8>,
    },
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
    /// Sets the size of the windows of all pseudo-terminals, and sends `SIGWINCH` to the process groups of all ranks.
    ResizeWindows(WindowSize),
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
    /// Applies [`Input::StalledFence`](hydrant_core::Input::StalledFence) to the PMI server.
    StalledFence {
        /// The job.
        job: JobId,
    },
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
    /// Puts another core in the place of the PMI server's. The host sends the result as
    /// [`Report::CoreReplaced`](crate::protocol::Report::CoreReplaced).
    ReplaceCore {
        /// Plugin with the core, or `None` for one in this process.
        plugin: Option<Box<PluginFile>>,
    },
    /// Applies [`Input::PsetRequest`](hydrant_core::Input::PsetRequest) to the PMI server.
    ChangeSets {
        /// Job of the rank that asks.
        job: JobId,
        /// The rank that asks.
        rank: Rank,
        /// Its request.
        body: Vec<u8>,
    },
    /// Applies [`Input::Connected`](hydrant_core::Input::Connected) to the PMI server.
    ConnectJobs {
        /// Job of the rank that asked.
        job: JobId,
        /// The other job.
        other: JobId,
        /// Whether they are connected from now on.
        connected: bool,
    },
    /// Applies [`Input::UpcallComplete`](hydrant_core::Input::UpcallComplete) to the PMI server. The upcall may be gone.
    UpcallComplete {
        /// The upcall.
        upcall: UpcallId,
        /// 0, or an error code of `pmi2.h`.
        rc: i32,
        /// Port that a lookup found, or the reason of a failure.
        text: Vec<u8>,
    },
    /// Applies [`Input::SpawnComplete`](hydrant_core::Input::SpawnComplete) to the PMI server. The spawn may be gone.
    SpawnComplete {
        /// The spawn.
        upcall: UpcallId,
        /// Whether all ranks run.
        started: bool,
        /// Limit that was reached, if that is the reason of the failure.
        full: Option<Limit>,
        /// One code a program.
        codes: Vec<u8>,
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
