//! Inputs and outputs of a server. All are serde types, so that a recording replays on every host.

use core::cell::Cell;
use core::convert::Infallible;

use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::Limit;
use crate::store::bytes::in_one_piece;
use crate::trace::{Cause, Closing, Exit, Stream};
use crate::wire::Protocol;

/// [`InputOf`] that borrows its bytes and texts from the host.
pub type Input<'a> = InputOf<&'a [u8], &'a str>;

/// Input to a server.
///
/// Order of calling: [`RegisterJob`](Input::RegisterJob), then its [`Program`](Input::Program)s,
/// [`MapRanks`](Input::MapRanks)s and [`Attr`](Input::Attr)ibutes, then connections and exits in any order, then
/// [`DeregisterJob`](Input::DeregisterJob).
///
/// If several nodes serve the same jobs, [`Node`](Input::Node) is the first input. All servers then get the same jobs
/// with the same numbers, and the same process sets and job connections, in the same order. Connections and exits go
/// to the server of the rank's node only. Other messages between the hosts must not overtake the
/// [`Peer`](Output::Peer) messages before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Input", bound(serialize = "B: AsRef<[u8]>, T: Serialize"))]
pub enum InputOf<B, T> {
    /// The server is one of several, one per node, in a [tree](crate::peer::tree::Tree).
    Node {
        /// Number of this node, from 0.
        node: u32,
        /// Number of nodes.
        nodes: u32,
        /// Maximum number of children of a node. With 2^31 added ([`ROOT_ONE`](crate::peer::tree::ROOT_ONE)) node 0 is a leaf
        /// below node 1. With 2^12·n added ([`LATE`](crate::peer::tree::LATE)) the last n nodes join later, as children of
        /// node 0.
        radix: u32,
    },
    /// Registers a job.
    RegisterJob(JobSpecOf<T>),
    /// Maps ranks `first..first + count` of a job to a node. The default is node 0.
    MapRanks {
        /// The job.
        job: JobId,
        /// Its first rank there.
        first: Rank,
        /// Number of ranks.
        count: u32,
        /// The node.
        node: u32,
    },
    /// Stores a pair in the key-value space of a spawned job, on nodes other than the one that received the spawn
    /// request.
    Preput {
        /// The job.
        job: JobId,
        /// The key.
        #[serde(serialize_with = "in_one_piece")]
        key: B,
        /// Its value.
        #[serde(serialize_with = "in_one_piece")]
        value: B,
    },
    /// Defines a process set of any ranks of a job, and of all ranks of another job if there is one.
    Define {
        /// The job.
        job: JobId,
        /// The set's name.
        name: T,
        /// Its ranks, as `0-3,7`.
        #[serde(serialize_with = "in_one_piece")]
        members: B,
        /// The other job. The set ends with the first of the two that is deregistered.
        other: Option<JobId>,
    },
    /// Connects or disconnects two jobs at the request of a rank on any node. Every server gets it.
    Connected {
        /// The job that requested it.
        job: JobId,
        /// The other job.
        other: JobId,
        /// Whether they are connected from now on.
        connected: bool,
    },
    /// A fence of the job is stalled on another node. The missing ranks of this node are then reported
    /// ([`Output::StalledFence`]).
    StalledFence {
        /// The job.
        job: JobId,
    },
    /// Message from a neighbour in the tree: the bytes of its [`Output::Peer`].
    Peer {
        /// The neighbour.
        node: u32,
        /// The message.
        #[serde(serialize_with = "in_one_piece")]
        bytes: B,
    },
    /// The link to a neighbour is full. `poll` returns nothing for it until [`PeerWritable`](Input::PeerWritable).
    PeerBlocked {
        /// The neighbour.
        node: u32,
    },
    /// The link to a neighbour is writable again.
    PeerWritable {
        /// The neighbour.
        node: u32,
    },
    /// Sets the program number of ranks `first..first + count` of a job. The default is 0.
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
    /// Sets a job attribute. PMI-1 clients read it from the key-value space. A key that begins with
    /// [`NODE_ATTR_PREFIX`](crate::limits::NODE_ATTR_PREFIX) sets an attribute of this node instead.
    Attr {
        /// The job.
        job: JobId,
        /// The attribute's name.
        #[serde(serialize_with = "in_one_piece")]
        key: B,
        /// Its value.
        #[serde(serialize_with = "in_one_piece")]
        value: B,
    },
    /// Defines a process set of a job: ranks `first..first + count`.
    Pset {
        /// The job.
        job: JobId,
        /// The set's name. `mpi://WORLD` and `mpi://SELF` always exist.
        name: T,
        /// Its first rank.
        first: Rank,
        /// Number of ranks.
        count: u32,
    },
    /// Completes a spawn ([`Output::Spawn`]).
    SpawnComplete {
        /// The spawn.
        spawn: UpcallId,
        /// Whether the processes of its job run. If false, no process runs, and the job, if any, has been
        /// deregistered.
        started: bool,
        /// The exhausted limit, if it is the reason that no process was started.
        full: Option<Limit>,
        /// A code for each program: 0, or the `errno` of its failure.
        #[serde(serialize_with = "in_one_piece")]
        codes: B,
    },
    /// Completes an upcall ([`Output::Upcall`]).
    UpcallComplete {
        /// The upcall.
        upcall: UpcallId,
        /// 0, or a code of pmi2.h (`PMI2_ERR_…`) that the client gets as `rc`.
        rc: i32,
        /// The port that a look-up found, or the value that a get found. For a failure the reason, of which the client
        /// gets the first [`MESSAGE_TEXT_MAX`](crate::limits::MESSAGE_TEXT_MAX) bytes. A failed get without a reason means
        /// that the other job has no such key. Otherwise empty.
        #[serde(serialize_with = "in_one_piece")]
        text: B,
    },
    /// A client connected.
    Opened {
        /// An unused connection number.
        conn: ConnId,
        /// The job.
        job: JobId,
        /// The rank, if the host knows it (`PMI_FD`). Other clients send it in the handshake (`PMI_PORT`).
        rank: Option<Rank>,
    },
    /// A query connection was opened. Its handshake is that of PMI-2: `init`, then `fullinit` with `pmirank` and
    /// optionally `pmijobid`. It is independent of the rank's own connection and of its init and finalize. It may
    /// query process sets, attributes, the job id and key-value pairs, and may define, retire and prune process sets. Other
    /// requests are refused. At a head that is a leaf, the reply to `fullinit` waits until all is there that had been released
    /// before, with the feature `cluster`.
    OpenedQuery {
        /// An unused connection number.
        conn: ConnId,
        /// The job.
        job: JobId,
    },
    /// Bytes of a client: all that the host holds and the server has not [consumed](Consumed). [`Inbox`](super::Inbox)
    /// does this.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// From the first byte not consumed.
        #[serde(serialize_with = "in_one_piece")]
        bytes: B,
        /// Whether the host's buffer is full. If the server consumes nothing of it, the incomplete message in it cannot be
        /// completed, and the connection is closed.
        full: bool,
    },
    /// The connection's send buffer is full. `poll` returns nothing for it until [`Writable`](Input::Writable):
    /// neither replies nor [`Close`](Output::Close) nor [`Joined`](Output::Joined).
    Blocked {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is writable again.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// The connection was closed by either side. Its number may be reused.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// The process of a rank exited. A host that starts no processes learns of a rank's end by its connection, and sends this
    /// after [`Input::Closed`] of the last one: `Exit::Code(0)` if [`rank_report`](crate::Server::rank_report) says that the rank
    /// has finalized, and otherwise [`Exit::Lost`].
    Exited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its exit.
        exit: Exit,
    },
    /// Time has passed. [`poll_at`](crate::Server::poll_at) returns when this input is due.
    Timeout,
    /// Deregisters a job after all its processes have exited. Its connections are closed and its data is dropped.
    DeregisterJob {
        /// The job.
        job: JobId,
    },
    /// The host has verified that the client of a connection runs as the user of its job. When the client introduces
    /// itself as a rank that has an idle connection, it replaces that connection. MPICH connects again over `PMI_PORT` at
    /// each init, and leaves its earlier connection open. Follows [`Opened`](Input::Opened).
    Verified {
        /// The connection.
        conn: ConnId,
    },
    /// Applies a rank's request about process sets, which a server of several nodes has [passed to its host](Output::Upcall).
    /// All servers get the same requests in the same order.
    PsetRequest {
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The request of the upcall.
        #[serde(serialize_with = "in_one_piece")]
        request: B,
    },
    /// A node is lost, and with it all nodes below it in the tree. Its ranks are dead, the jobs go on: collectives do not wait
    /// for them. All servers that are left get the same changes of membership in the same order. Needs the feature `cluster`.
    NodeLost {
        /// Number of the change, from 1.
        epoch: u32,
        /// The node.
        node: u32,
    },
    /// A node has joined that the tree has had from the start ([`LATE`](crate::peer::tree::LATE)) and that is no member: it has
    /// never joined, or is lost and no job has ranks on it. It has got the inputs about jobs that are registered, process sets and
    /// connections that all servers had got before. Jobs have ranks on it from now on. All servers get the same changes of
    /// membership in the same order. Needs the feature `cluster`.
    NodeJoined {
        /// Number of the change, from 1. For the node that joins it is the first one.
        epoch: u32,
        /// The node.
        node: u32,
    },
}

impl<'a> Input<'a> {
    /// Decodes an input in postcard. Returns `None` if it is malformed.
    #[cold]
    pub fn read(bytes: &'a [u8]) -> Option<Input<'a>> {
        postcard::from_bytes(bytes).ok()
    }
}

impl<B: AsRef<[u8]>, T: AsRef<str>> InputOf<B, T> {
    /// Returns this input with borrowed bytes.
    pub fn view(&self) -> Input<'_> {
        match *self {
            InputOf::Node { node, nodes, radix } => Input::Node { node, nodes, radix },
            InputOf::RegisterJob(ref spec) => Input::RegisterJob(spec.map(T::as_ref)),
            InputOf::MapRanks { job, first, count, node } => Input::MapRanks { job, first, count, node },
            InputOf::Preput { job, ref key, ref value } => {
                Input::Preput { job, key: key.as_ref(), value: value.as_ref() }
            }
            InputOf::Define { job, ref name, ref members, other } => {
                Input::Define { job, name: name.as_ref(), members: members.as_ref(), other }
            }
            InputOf::Connected { job, other, connected } => Input::Connected { job, other, connected },
            InputOf::StalledFence { job } => Input::StalledFence { job },
            InputOf::Peer { node, ref bytes } => Input::Peer { node, bytes: bytes.as_ref() },
            InputOf::PeerBlocked { node } => Input::PeerBlocked { node },
            InputOf::PeerWritable { node } => Input::PeerWritable { node },
            InputOf::Program { job, first, count, appnum } => Input::Program { job, first, count, appnum },
            InputOf::Attr { job, ref key, ref value } => {
                Input::Attr { job, key: key.as_ref(), value: value.as_ref() }
            }
            InputOf::Pset { job, ref name, first, count } => {
                Input::Pset { job, name: name.as_ref(), first, count }
            }
            InputOf::SpawnComplete { spawn, started, full, ref codes } => {
                Input::SpawnComplete { spawn, started, full, codes: codes.as_ref() }
            }
            InputOf::UpcallComplete { upcall, rc, ref text } => {
                Input::UpcallComplete { upcall, rc, text: text.as_ref() }
            }
            InputOf::Opened { conn, job, rank } => Input::Opened { conn, job, rank },
            InputOf::OpenedQuery { conn, job } => Input::OpenedQuery { conn, job },
            InputOf::Bytes { conn, ref bytes, full } => Input::Bytes { conn, bytes: bytes.as_ref(), full },
            InputOf::Blocked { conn } => Input::Blocked { conn },
            InputOf::Writable { conn } => Input::Writable { conn },
            InputOf::Closed { conn } => Input::Closed { conn },
            InputOf::Exited { job, rank, exit } => Input::Exited { job, rank, exit },
            InputOf::Timeout => Input::Timeout,
            InputOf::DeregisterJob { job } => Input::DeregisterJob { job },
            InputOf::Verified { conn } => Input::Verified { conn },
            InputOf::PsetRequest { job, rank, ref request } => {
                Input::PsetRequest { job, rank, request: request.as_ref() }
            }
            InputOf::NodeLost { epoch, node } => Input::NodeLost { epoch, node },
            InputOf::NodeJoined { epoch, node } => Input::NodeJoined { epoch, node },
        }
    }
}

/// [`JobSpecOf`] that borrows its texts from the host.
pub type JobSpec<'a> = JobSpecOf<&'a str>;

/// Description of a job by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "JobSpec")]
pub struct JobSpecOf<T> {
    /// An unused job number.
    pub job: JobId,
    /// The job id that clients see (PMI-1's kvsname): printable ASCII without blanks, `;`, `=` and `\`, at most
    /// [`crate::limits::JOBID_MAX`] bytes. It must differ from the ids of all registered jobs. With several nodes, it
    /// must differ from the ids of all earlier jobs too, because messages about a job may arrive after its
    /// deregistration.
    pub name: T,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`: maximum number of processes in total. Not known to ranks if `None` or 0, as under hydra.
    pub universe_size: Option<u32>,
    /// hydra's auto-cleanup: whether a rank that fails aborts the job. Otherwise the job continues, and fences wait for
    /// live ranks only.
    pub cleanup: bool,
    /// The PMI-1 subversion in the reply to `init`: 2 offers group barriers, 1 is for clients that require 1.1.
    pub pmi1_subversion: u32,
    /// The spawn that started the job, if this server received the request.
    pub spawn: Option<UpcallId>,
    /// The job id of the job that requested the spawn, if another node's server received the request. Otherwise empty.
    pub spawner: T,
    /// Milliseconds that a look-up waits for an unpublished name, unless the request has its own timeout.
    pub lookup_wait: u64,
    /// Whether the host carries out requests about names and about connections between jobs ([`Output::Upcall`]), for a
    /// name service that several servers share. Otherwise this server has its own name service, which its jobs share, and
    /// jobs connect to jobs of this server only.
    pub remote_names: bool,
    /// Milliseconds after which a waiting fence is reported ([`Output::StalledFence`]), and ranks that have not
    /// initialized that long after another one. 0 for never.
    pub fence_warning: u64,
    /// Pairs that travel with the job's fences. The same on all nodes.
    pub fence: FenceMode,
}

/// Pairs that travel with the fences of a job on several nodes. Without the feature `cluster` a server refuses jobs
/// whose fences would be lazy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceMode {
    /// All. A get is answered on the node of its rank.
    #[default]
    Collect,
    /// Those of ranks that the receiving node has asked for. A get of another key asks the node of the rank that put it if
    /// the client names that rank, and all nodes otherwise.
    Lazy,
    /// All on up to [`AUTO_NODES_MAX`](crate::limits::AUTO_NODES_MAX) nodes, without those that join later. On more as
    /// [`Lazy`](FenceMode::Lazy), and a node that has asked a quarter of the others asks all.
    Auto,
}

impl<T> JobSpecOf<T> {
    /// Returns this description with texts of another type.
    pub fn map<'s, U>(&'s self, text: impl Fn(&'s T) -> U) -> JobSpecOf<U> {
        let JobSpecOf { job, ref name, size, universe_size, cleanup, pmi1_subversion, spawn, .. } = *self;
        let JobSpecOf { ref spawner, lookup_wait, remote_names, fence_warning, fence, .. } = *self;
        let (name, spawner) = (text(name), text(spawner));
        JobSpecOf {
            job,
            name,
            size,
            universe_size,
            cleanup,
            pmi1_subversion,
            spawn,
            spawner,
            lookup_wait,
            remote_names,
            fence_warning,
            fence,
        }
    }
}

impl<'a> JobSpec<'a> {
    /// Returns a job with default behaviour: a failure aborts it, PMI-1 clients get 1.2, look-ups do not wait, and
    /// stalled fences are not reported.
    pub const fn new(job: JobId, name: &'a str, size: u32) -> JobSpec<'a> {
        JobSpec {
            job,
            name,
            size,
            universe_size: None,
            cleanup: true,
            pmi1_subversion: 2,
            spawn: None,
            spawner: "",
            lookup_wait: 0,
            remote_names: false,
            fence_warning: 0,
            fence: FenceMode::Collect,
        }
    }
}

/// Result of [`crate::Server::handle`]: the consumed part of [`Input::Bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumed {
    /// Number of bytes consumed. The host hands in the others again, with those that follow.
    pub bytes: u32,
    /// Whether a complete message remains because too many replies are pending. The host hands in the rest again after
    /// the next reply to this connection, also when no more bytes arrive.
    pub again: bool,
}

/// [`OutputOf`] that borrows its bytes and texts from the buffer of [`Server::poll`](crate::Server::poll).
pub type Output<'b> = OutputOf<&'b [u8], &'b str>;

/// Action for the host. It borrows from the buffer that was passed to [`crate::Server::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Output", bound(serialize = "B: AsRef<[u8]>, T: Serialize"))]
pub enum OutputOf<B, T> {
    /// Send a reply.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// One complete reply.
        #[serde(serialize_with = "in_one_piece")]
        bytes: B,
    },
    /// Close a connection. [`Input::Closed`] follows.
    Close {
        /// The connection.
        conn: ConnId,
        /// The reason.
        why: Closing,
    },
    /// A client has become a rank of a job.
    Joined {
        /// The connection.
        conn: ConnId,
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// Start processes: the host registers a job ([`JobSpec::spawn`]), starts its processes, and completes the spawn
    /// ([`Input::SpawnComplete`]).
    Spawn {
        /// Which spawn.
        spawn: UpcallId,
        /// The requesting job.
        job: JobId,
        /// The requesting rank.
        rank: Rank,
        /// The protocol of the request.
        protocol: Protocol,
        /// The request as received, for [`crate::wire::decode_spawn`].
        #[serde(serialize_with = "in_one_piece")]
        request: B,
    },
    /// Carry out a request and complete it ([`Input::UpcallComplete`]). With [`remote_names`](JobSpec::remote_names):
    /// publish, unpublish or look up a name, or get a value of a job that the requesting job is not connected to here. With
    /// several nodes: define, retire or prune process sets. With either: connect or disconnect jobs. If both jobs are
    /// registered, the host gives all servers [`Input::Connected`] first, as it does [`Input::PsetRequest`].
    Upcall {
        /// The upcall.
        upcall: UpcallId,
        /// The requesting job.
        job: JobId,
        /// The requesting rank.
        rank: Rank,
        /// The protocol of the request.
        protocol: Protocol,
        /// The request as received, for [`crate::wire::decode_upcall`].
        #[serde(serialize_with = "in_one_piece")]
        request: B,
    },
    /// Kill the process of a rank that aborted only itself.
    KillRank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The exit code that it requested, if any.
        code: Option<i32>,
        /// Its message.
        message: T,
    },
    /// Kill all processes of a job. Returned once per job.
    AbortJob {
        /// The job.
        job: JobId,
        /// Why.
        cause: Cause,
        /// Message of the aborting rank.
        message: T,
    },
    /// Send a message to a neighbour in the tree, complete and in order.
    Peer {
        /// The neighbour.
        node: u32,
        /// The message.
        #[serde(serialize_with = "in_one_piece")]
        bytes: B,
    },
    /// A fence, or the ranks that have initialized, wait for ranks of this node for longer than
    /// [`JobSpec::fence_warning`]. Returned once per fence, and once per job for ranks that have not initialized.
    StalledFence {
        /// The job. Of several that take part, the first one.
        job: JobId,
        /// Ranks that have arrived, or initialized.
        arrived: u32,
        /// Ranks that must arrive, of all jobs that take part.
        size: u32,
        /// Missing ranks of the job as `0-3,7`, truncated with `,...`. Empty if only ranks of other nodes or jobs are missing.
        missing: T,
    },
    /// Remove files once the process of a rank has exited. A PMIx client requested it.
    RemoveFiles {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Their paths, separated by commas.
        #[serde(serialize_with = "in_one_piece")]
        paths: B,
    },
    /// Print text as if a rank had written it. A PMIx client requested it. The host may drop text that its own output does
    /// not take.
    Log {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The stream.
        stream: Stream,
        /// The text.
        #[serde(serialize_with = "in_one_piece")]
        text: B,
    },
    /// Two jobs have connected or disconnected by requests that the host did not carry out ([`Input::Connected`]). A host that
    /// ends connected jobs together, a spawned one and its spawner among them, ends those that have disconnected alone. A PMIx
    /// fence without data that names ranks of several jobs, and all ranks of one of them, disconnects in this sense only: it is
    /// `MPI_Comm_disconnect` of Open MPI. Every node whose ranks take part returns it, before their replies.
    Connected {
        /// One of the jobs.
        job: JobId,
        /// The other one.
        other: JobId,
        /// Whether they are connected from now on.
        connected: bool,
    },
}

impl<B: AsRef<[u8]>, T: AsRef<str>> OutputOf<B, T> {
    /// Returns this output with borrowed bytes.
    pub fn view(&self) -> Output<'_> {
        let Ok(view) = self.map(Ok::<_, Infallible>, Ok);
        view
    }

    /// Copies this output. The copy borrows from `buf`. Returns `None` if its bytes do not fit.
    pub fn copy_to<'b>(&self, buf: &'b mut [u8]) -> Option<Output<'b>> {
        // An output has bytes or a text.
        let buf = Cell::new(Some(buf));
        let copy = |bytes: &[u8]| {
            let copy = buf.take()?.get_mut(..bytes.len())?;
            copy.copy_from_slice(bytes);
            Some(&*copy)
        };
        let text = |text: &str| core::str::from_utf8(copy(text.as_bytes())?).ok();
        self.map(|bytes| copy(bytes).ok_or(()), |from| text(from).ok_or(())).ok()
    }

    /// Converts the bytes and the text of this output.
    pub(super) fn map<'o, B2, T2, E>(
        &'o self,
        bytes: impl Fn(&'o [u8]) -> Result<B2, E>,
        text: impl Fn(&'o str) -> Result<T2, E>,
    ) -> Result<OutputOf<B2, T2>, E> {
        let (bytes, text) = (|of: &'o B| bytes(of.as_ref()), |of: &'o T| text(of.as_ref()));
        Ok(match *self {
            OutputOf::Bytes { conn, bytes: ref reply } => OutputOf::Bytes { conn, bytes: bytes(reply)? },
            OutputOf::Close { conn, why } => OutputOf::Close { conn, why },
            OutputOf::Joined { conn, job, rank } => OutputOf::Joined { conn, job, rank },
            OutputOf::Spawn { spawn, job, rank, protocol, ref request } => {
                OutputOf::Spawn { spawn, job, rank, protocol, request: bytes(request)? }
            }
            OutputOf::Upcall { upcall, job, rank, protocol, ref request } => {
                OutputOf::Upcall { upcall, job, rank, protocol, request: bytes(request)? }
            }
            OutputOf::KillRank { job, rank, code, ref message } => {
                OutputOf::KillRank { job, rank, code, message: text(message)? }
            }
            OutputOf::AbortJob { job, cause, ref message } => {
                OutputOf::AbortJob { job, cause, message: text(message)? }
            }
            OutputOf::Peer { node, bytes: ref message } => OutputOf::Peer { node, bytes: bytes(message)? },
            OutputOf::StalledFence { job, arrived, size, ref missing } => {
                OutputOf::StalledFence { job, arrived, size, missing: text(missing)? }
            }
            OutputOf::RemoveFiles { job, rank, ref paths } => {
                OutputOf::RemoveFiles { job, rank, paths: bytes(paths)? }
            }
            OutputOf::Log { job, rank, stream, text: ref line } => {
                OutputOf::Log { job, rank, stream, text: bytes(line)? }
            }
            OutputOf::Connected { job, other, connected } => OutputOf::Connected { job, other, connected },
        })
    }
}

impl Output<'_> {
    /// Returns the job that this output is about. None for replies, closed connections and messages to other nodes.
    pub fn job(mut self) -> Option<JobId> {
        self.job_mut().copied()
    }
}

impl<B, T> OutputOf<B, T> {
    fn job_mut(&mut self) -> Option<&mut JobId> {
        match self {
            OutputOf::Bytes { .. } | OutputOf::Close { .. } | OutputOf::Peer { .. } => None,
            OutputOf::Joined { job, .. }
            | OutputOf::Spawn { job, .. }
            | OutputOf::Upcall { job, .. }
            | OutputOf::KillRank { job, .. }
            | OutputOf::AbortJob { job, .. }
            | OutputOf::StalledFence { job, .. }
            | OutputOf::RemoveFiles { job, .. }
            | OutputOf::Log { job, .. }
            | OutputOf::Connected { job, .. } => Some(job),
        }
    }

    /// Returns this output about a job with another number. A server of several hosts has numbers of its own.
    #[must_use]
    pub fn with_job(mut self, number: JobId) -> OutputOf<B, T> {
        if let Some(job) = self.job_mut() {
            *job = number;
        }
        self
    }

    /// Returns the rank that this output is about. For the end of a job that is the rank that caused it.
    pub fn rank(&self) -> Option<Rank> {
        match *self {
            OutputOf::Joined { rank, .. }
            | OutputOf::Spawn { rank, .. }
            | OutputOf::Upcall { rank, .. }
            | OutputOf::KillRank { rank, .. }
            | OutputOf::RemoveFiles { rank, .. }
            | OutputOf::Log { rank, .. } => Some(rank),
            OutputOf::AbortJob { cause, .. } => Some(cause.rank()),
            OutputOf::Bytes { .. }
            | OutputOf::Close { .. }
            | OutputOf::Peer { .. }
            | OutputOf::StalledFence { .. }
            | OutputOf::Connected { .. } => None,
        }
    }
}
