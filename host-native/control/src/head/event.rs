//! Events that the head handles, and actions that it demands.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use hydrant_core::wire::Protocol;
use hydrant_core::{JobId, Limit, OwnedInput, OwnedOutput, Rank, Refusal, UpcallId};
use hydrant_placement::{Host, MappingPolicy};

use crate::error::HostRefusal;
use crate::exit_status::ExitCodeOf;
use crate::job_result::RanksInState;
use crate::jobs::JobSummary;
use crate::protocol::{
    BackendFailure, JobRecord, Order, Program, PseudoTerminals, Relayed, RunSettings, StartError,
    SubmissionId, Target, ToolOptions, WindowSize,
};

/// A job for a fleet.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Number that no other submission has now.
    pub id: SubmissionId,
    /// Programs in the order of their `appnum`.
    pub programs: Vec<SpawnProgram>,
    /// How their ranks are mapped to hosts.
    pub policy: MappingPolicy,
    /// Settings of the user.
    pub settings: Rc<RunSettings>,
    /// Output streams of its ranks that are pseudo-terminals.
    pub pseudo_terminals: Option<PseudoTerminals>,
    /// Which failures of ranks give the exit code.
    pub exit_code_of: ExitCodeOf,
    /// Whether the exit codes of all ranks are printed at the end of a job.
    pub exit_report: bool,
    /// Whether the job waits for room.
    pub waits: bool,
    /// Unpredictable number for the name of the job.
    pub nonce: u64,
}

impl Submission {
    pub(super) fn ranks(&self) -> u64 {
        self.programs.iter().map(|program| u64::from(program.program.ranks)).sum()
    }
}

/// Number of a request of the head's to its host, for the event that answers it. Numbers of answered requests are used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A daemon has joined.
    Joined {
        /// Its node.
        node: u32,
    },
    /// All daemons have joined.
    AllJoined,
    /// A message of a daemon's in the control channel. The bytes are untrusted.
    Message {
        /// Node of the daemon.
        node: u32,
        /// Encoded [`Report`](crate::protocol::Report).
        bytes: &'a [u8],
    },
    /// A host is to join the run, once its first job has been started. The answers are [`Action::StartDaemon`], and
    /// [`Action::HostChanged`] then or at once, if the host is refused.
    HostNamed {
        /// Number for [`Action::HostChanged`].
        request: u64,
        /// The host.
        host: Host,
        /// Whether a host that is in the run already is as good as one that has joined. Otherwise it is refused.
        may_be_there: bool,
    },
    /// A host is to leave the run. The answer is [`Action::HostChanged`], when its daemon has ended or at once, if that is refused.
    HostLeaves {
        /// Number for [`Action::HostChanged`].
        request: u64,
        /// Name of the host.
        host: String,
        /// Whether its ranks are ended. Otherwise a host with ranks is refused.
        force: bool,
    },
    /// The daemon of a node has ended after [`Action::DismissNode`].
    NodeEnded {
        /// The node.
        node: u32,
    },
    /// Daemons are lost: one of them, and all below it in the tree.
    NodesLost {
        /// Their nodes. The first is the one that was lost.
        nodes: Range<u32>,
        /// The host and what happened, for the user.
        reason: String,
    },
    /// The head's own PMI server has failed.
    BackendFailed(BackendFailure),
    /// An output of the head's own PMI server. Only the end of a job has an effect.
    Output(OwnedOutput),
    /// Answer to [`Action::OpenJob`]: the job is registered.
    JobOpened {
        /// The job.
        job: JobId,
    },
    /// Answer to [`Action::OpenJob`]: the job cannot be registered, and nothing of it is left.
    OpenFailed {
        /// The job.
        job: JobId,
        /// The reason.
        error: StartError,
    },
    /// Answer to [`Action::ResolveSpawn`].
    SpawnResolved {
        /// The request.
        request: RequestId,
        /// Unpredictable number for the name of the job.
        nonce: u64,
        /// One result a program.
        programs: Vec<Result<SpawnProgram, (u8, String)>>,
    },
    /// A tool of PMIx, which is a client of the head's own PMI server, spawns a job. The answer is [`Action::AnswerTool`].
    ToolSpawns {
        /// Number of the request at that server.
        upcall: UpcallId,
        /// Job of the tool at the PMI servers.
        job: JobId,
        /// Its job id.
        tool: String,
        /// Unpredictable number for the name of the job.
        nonce: u64,
        /// The programs.
        programs: Vec<SpawnProgram>,
        /// What the tool wants of the job.
        options: ToolOptions,
    },
    /// The debugger of the first job lets it start. The job is then its spawn, which [`Action::AnswerTool`] ends.
    FirstJobReleased {
        /// Number of the spawn at the head's PMI server.
        upcall: UpcallId,
        /// Job of the debugger as a tool.
        job: JobId,
        /// The debugger.
        tool: String,
        /// Ranks of the job that wait for the debugger again.
        stopped: Stopped,
        /// What the debugger wants of the job.
        options: ToolOptions,
    },
    /// A user of the fleet submits a job. It is answered by [`Action::SubmissionRefused`], or by
    /// [`Action::SubmissionStarted`] unless the job ends before that, and [`Action::SubmissionOver`].
    Submitted(Submission),
    /// A signal of the user for the jobs of a submission.
    SubmissionSignal {
        /// The submission.
        submission: SubmissionId,
        /// The signal.
        signal: i32,
    },
    /// The window of the terminal of a submission has another size.
    SubmissionResized {
        /// The submission.
        submission: SubmissionId,
        /// The size.
        size: WindowSize,
    },
    /// A submission has reached its time limit.
    SubmissionTimeLimit {
        /// The submission.
        submission: SubmissionId,
        /// The limit.
        limit: Duration,
    },
    /// Nobody waits for a submission any more: its jobs end.
    SubmissionLost {
        /// The submission.
        submission: SubmissionId,
    },
    /// The user ends the fleet: its jobs end, and the run after them.
    FleetEnds,
    /// Answer to [`Action::Apply`].
    BackendReply {
        /// The request.
        request: RequestId,
        /// Whether the backend has carried it out.
        result: Result<(), Refusal>,
    },
    /// The head's PMI server has changed process sets for a PMIx client ([`PsetRequest`](hydrant_core::InputOf::PsetRequest)).
    SetsChanged(OwnedInput),
    /// Answer to [`Action::CallNameService`] or [`Action::AnswerQuery`].
    UpcallReply {
        /// The request.
        request: RequestId,
        /// 0, or an error code of `pmi2.h`.
        rc: i32,
        /// Port that a lookup found, the reply to a query, or the reason of a failure.
        text: Vec<u8>,
    },
    /// Answer to [`Action::DrainOutput`]: the output of the job's ranks has been written or discarded.
    OutputDrained {
        /// The job.
        job: JobId,
        /// Whether the reader of the output has closed it.
        reader_closed: bool,
    },
    /// The destination of ranks' output has closed.
    OutputClosed {
        /// Job of the ranks.
        job: JobId,
        /// Ranks, each with true for standard error and false for standard output.
        streams: Vec<(Rank, bool)>,
    },
    /// The run has reached its time limit.
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// States of running ranks of each job, as far as they are known.
        states: BTreeMap<JobId, Vec<RanksInState>>,
    },
    /// Output could not be written.
    OutputLost,
    /// Bytes were read from standard input. An empty vector is the end.
    StdinRead(Vec<u8>),
    /// A signal that is passed on to the ranks. Those other than `SIGUSR1` and `SIGUSR2` end the run.
    Signal(i32),
    /// The window of the launcher's terminal has another size.
    WindowResized(WindowSize),
    /// The launcher is about to be stopped.
    Suspended,
    /// The launcher continues after it was stopped.
    Resumed,
}

/// A program of a spawn that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnProgram {
    /// The program.
    pub program: Program,
    /// Hosts that it may run on, with the slots and the maximum that it has there, if it says so; all hosts if empty.
    pub hosts: Vec<Host>,
    /// How many of its ranks are on each host, if the spawn says so.
    pub spread: Option<Spread>,
    /// Its ranks that wait for a debugger.
    pub stopped: Stopped,
}

/// Ranks of a program that wait for a debugger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stopped {
    /// None of them.
    #[default]
    No,
    /// All of them.
    All,
    /// Those among these ranks of the job.
    Some(BTreeSet<u32>),
}

/// Ranks of a program that go to each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Their number.
    pub count: u32,
    /// What that number is for.
    pub per: Per,
    /// Job and rank beside which they are placed, or all ranks of that job. Missing for all hosts.
    pub beside: Option<Target>,
    /// Most ranks of the program. `None` for as many as there are places.
    pub most: Option<u32>,
}

/// What a number of ranks is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each host.
    Host,
    /// Each rank beside which they are placed.
    Rank,
}

/// A rank's request for a spawn or another upcall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcall {
    /// Node of the rank.
    pub node: u32,
    /// Number of the request at that node.
    pub id: UpcallId,
    /// Job of the rank.
    pub job: JobId,
    /// The rank.
    pub rank: Rank,
    /// Protocol of the request.
    pub protocol: Protocol,
    /// The request as the rank sent it.
    pub request: Vec<u8>,
}

/// Recipient of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// All nodes that are not lost.
    All,
    /// One node, which is not lost.
    Node(u32),
}

/// Something that the host of the head has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sends an order.
    Send {
        /// Its recipient.
        to: Destination,
        /// The order.
        order: Order,
    },
    /// Registers a job at the PMI server of the head and makes room for its output. The answer is [`Event::JobOpened`]
    /// or [`Event::OpenFailed`].
    OpenJob {
        /// The job.
        record: Box<JobRecord>,
    },
    /// A rank runs as process `pid` of its host.
    RankStarted {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its process.
        pid: u32,
    },
    /// Ranks of the first job have joined the PMI servers of their nodes. For display only.
    RanksJoined {
        /// The job.
        job: JobId,
        /// Number of ranks since the last such action.
        ranks: u32,
    },
    /// Reads the programs of a spawn. The answer is [`Event::SpawnResolved`].
    ResolveSpawn {
        /// The request.
        request: RequestId,
        /// Program of the spawning rank, for what the spawn leaves open.
        spawner: Box<Program>,
        /// The request of the rank, for [`hydrant_core::wire::decode_spawn`].
        upcall: Upcall,
    },
    /// Applies a rank's request to the head's PMI server. The answer is [`Event::BackendReply`].
    Apply {
        /// The request.
        request: RequestId,
        /// [`PsetRequest`](hydrant_core::InputOf::PsetRequest) or [`Connected`](hydrant_core::InputOf::Connected).
        input: OwnedInput,
    },
    /// All daemons are ready, and the first job waits for [`Event::FirstJobReleased`].
    FirstJobWaits,
    /// Answers the spawn of a tool ([`Event::ToolSpawns`] or [`Event::FirstJobReleased`]).
    AnswerTool {
        /// Number of the request at the head's PMI server.
        upcall: UpcallId,
        /// All ranks of the job have been started.
        started: bool,
        /// Limit that has kept the job from being started.
        limit: Option<Limit>,
        /// A code for each program: 0, or the `errno` of its failure.
        codes: Vec<u8>,
    },
    /// Applies a change of membership ([`NodeLost`](hydrant_core::InputOf::NodeLost),
    /// [`NodeJoined`](hydrant_core::InputOf::NodeJoined)) to the head's PMI server. The order for the other nodes follows.
    ChangeMembership(OwnedInput),
    /// Starts the daemon of a host that is to join. Until [`Event::Joined`] no orders are sent there, also not those for all nodes.
    /// If it cannot be started, [`Event::NodesLost`] says so.
    StartDaemon {
        /// Its node.
        node: u32,
        /// The host.
        host: Host,
    },
    /// Sends orders for all nodes to this one too, from now on.
    IncludeNode {
        /// The node.
        node: u32,
    },
    /// Ends the daemon of a node that has left. No more is sent there, and what comes from there is dropped. The answer is
    /// [`Event::NodeEnded`].
    DismissNode {
        /// The node.
        node: u32,
    },
    /// A host has joined or left, or the reason why it has not.
    HostChanged {
        /// Number of [`Event::HostNamed`] or [`Event::HostLeaves`].
        request: u64,
        /// Name of the host.
        host: String,
        /// Its node.
        result: Result<u32, HostRefusal>,
    },
    /// Publishes, withdraws or looks up a name. The answer is [`Event::UpcallReply`].
    CallNameService {
        /// The request.
        request: RequestId,
        /// The request of the rank.
        upcall: Upcall,
    },
    /// Answers queries of a PMIx client about the run, or carries out another request for a host. The answer is
    /// [`Event::UpcallReply`].
    AnswerQuery {
        /// The request.
        request: RequestId,
        /// The request of the rank, for [`HostCall::read`](hydrant_core::wire::pmix::HostCall::read).
        upcall: Upcall,
    },
    /// Cancels lookups of a rank that has ended. Each is answered all the same. Names that end with the rank are withdrawn.
    CancelLookups {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// All ranks of the job have ended: writes the rest of their output. The answer is [`Event::OutputDrained`].
    DrainOutput {
        /// The job.
        job: JobId,
    },
    /// Deregisters the job at the PMI server of the head. Omitted for the last job of a run.
    DeregisterJob {
        /// The job.
        job: JobId,
    },
    /// The job is gone, and its number is free. Comes after [`Event::OutputDrained`].
    CloseJob {
        /// The job.
        job: JobId,
        /// Its submission, if it is a job of a fleet.
        submission: Option<SubmissionId>,
        /// How it ended.
        summary: Box<JobSummary>,
    },
    /// Standard input may be read: so many bytes more, or the first bytes.
    AllowStdin(Option<u32>),
    /// A node has sent the state of its ranks, in answer to an order of the host or unasked. The bytes are untrusted.
    RankStates {
        /// The node.
        node: u32,
        /// Number of the query.
        query: u64,
        /// States in the host's own encoding.
        body: Vec<u8>,
    },
    /// A node has sent what its host and ranks use, in answer to an order of the host or unasked. The bytes are untrusted.
    Usage {
        /// The node.
        node: u32,
        /// Number of the query.
        query: u64,
        /// Counters in the host's own encoding.
        body: Vec<u8>,
    },
    /// A node has passed on what a tool pushed, in answer to an order of the host or unasked.
    InputPushed {
        /// The node.
        node: u32,
        /// Number of the push.
        push: u64,
        /// Whether a rank of the node has taken all of it.
        is_taken: bool,
    },
    /// Tells the head's end of the connection of a tool what the node's end does. The bytes are untrusted.
    RelayTool {
        /// The node.
        node: u32,
        /// Number of the tool at the node.
        number: u32,
        /// What happens.
        relayed: Relayed,
    },
    /// A node has sent where the time of the job's ranks there went. The bytes are untrusted.
    Profile {
        /// The node.
        node: u32,
        /// The job.
        job: JobId,
        /// Times in the host's own encoding.
        body: Vec<u8>,
    },
    /// Makes the head's PMI server a node of the tree of servers, which is that for linked boards or the usual one. Comes before
    /// the first job, if boards may be linked.
    FormTree {
        /// Whether boards are linked.
        are_linked: bool,
    },
    /// A node lacks a program file of the setup: sends the files to all nodes.
    SendFiles,
    /// A node has replaced its server, or kept it for this reason, in answer to an order of the host or unasked.
    ServerReplaced {
        /// The node.
        node: u32,
        /// The result.
        result: Result<(), String>,
    },
    /// Stops reading standard input.
    CloseStdin,
    /// Prints lines to standard error.
    Print(String),
    /// Prints lines to standard error of a submission.
    Tell {
        /// The submission.
        submission: SubmissionId,
        /// The lines.
        lines: String,
    },
    /// All hosts of the fleet are there: it takes submissions.
    FleetReady,
    /// A submission waits for room. The number of those before it.
    SubmissionWaits {
        /// The submission.
        submission: SubmissionId,
        /// Submissions that get room before it.
        before: u32,
    },
    /// All ranks of a submission's first job run.
    SubmissionStarted {
        /// The submission.
        submission: SubmissionId,
    },
    /// A submission is not started. The number is free.
    SubmissionRefused {
        /// The submission.
        submission: SubmissionId,
        /// The reason, for the user.
        why: String,
    },
    /// All jobs of a submission are over. The number is free.
    SubmissionOver {
        /// The submission.
        submission: SubmissionId,
        /// Its exit code, as that of a run.
        code: u8,
    },
    /// The run is over: ends all daemons. The launcher then exits with [`Head::exit_code`](crate::Head::exit_code).
    Finish {
        /// Whether output that has not been written yet is written first.
        flush: bool,
    },
}
