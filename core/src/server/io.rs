//! The one way in and the one way out, as values. All of it is serde, so that one recording replays on every host.

use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::Limit;
use crate::manage::OpenJob;
use crate::store::bytes::in_one_piece;
use crate::trace::{Cause, Closing, Exit};
use crate::wire::Protocol;

/// What the host tells the core.
///
/// Order of calling: [`RegisterJob`](Input::RegisterJob), then its [`Program`](Input::Program)s, [`MapRanks`](Input::MapRanks)s and
/// [`Attr`](Input::Attr)ibutes, then connections and exits in any order, then [`DeregisterJob`](Input::DeregisterJob).
///
/// Where several nodes serve the same jobs, [`Node`](Input::Node) comes before everything else. Then their hosts tell
/// all of them, in the same order, of the same jobs with the same numbers, and of sets and connections; each is told of
/// connections and exits of its own ranks alone. What a host passes on from node to node must not overtake what it was
/// given for that [`Peer`](Output::Peer) before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input<'a> {
    /// This server is one of several, each on a node of its own, in a [tree](crate::peer::tree::Tree).
    Node {
        /// Its number, from 0.
        node: u32,
        /// How many there are.
        nodes: u32,
        /// How many children each of them has at most.
        radix: u32,
    },
    /// A job is to be served.
    RegisterJob(JobSpec<'a>),
    /// Ranks `first..first + count` of the job are on that node; those of which nothing is said, on node 0.
    MapRanks {
        /// The job.
        job: JobId,
        /// Its first rank there.
        first: Rank,
        /// How many ranks.
        count: u32,
        /// Where.
        node: u32,
    },
    /// A pair for the key-value space of a spawned job, on nodes other than the one that was asked for the spawn.
    Preput {
        /// The job.
        job: JobId,
        /// The key.
        #[serde(borrow, serialize_with = "in_one_piece")]
        key: &'a [u8],
        /// Its value.
        #[serde(borrow, serialize_with = "in_one_piece")]
        value: &'a [u8],
    },
    /// A process set that a rank has defined on some node; every node is told.
    Define {
        /// The job.
        job: JobId,
        /// The set's name.
        #[serde(borrow)]
        name: &'a str,
        /// Its ranks, as `0-3,7`.
        #[serde(borrow, serialize_with = "in_one_piece")]
        members: &'a [u8],
    },
    /// Two jobs have been connected or parted by a rank on some node; every node is told.
    Connected {
        /// The job that asked.
        job: JobId,
        /// The other one.
        other: JobId,
        /// Whether they are connected from now on.
        connected: bool,
    },
    /// A fence of the job is late on some node: whoever is missing on this one is to be named ([`Output::StalledFence`]).
    StalledFence {
        /// The job.
        job: JobId,
    },
    /// A message from a neighbour in the tree: exactly what an [`Output::Peer`] of its was.
    Peer {
        /// The neighbour.
        node: u32,
        /// The message.
        #[serde(borrow, serialize_with = "in_one_piece")]
        bytes: &'a [u8],
    },
    /// The host has no room for more messages to a neighbour for now.
    PeerBlocked {
        /// The neighbour.
        node: u32,
    },
    /// The host has room for messages to a neighbour again.
    PeerWritable {
        /// The neighbour.
        node: u32,
    },
    /// Ranks `first..first + count` of the job run program number `appnum` (0 where nothing is said).
    Program {
        /// The job.
        job: JobId,
        /// Its first rank of this program.
        first: Rank,
        /// How many ranks.
        count: u32,
        /// The program's number on the command line.
        appnum: u32,
    },
    /// A job attribute, which PMI-1 clients read from the key-value space.
    Attr {
        /// The job.
        job: JobId,
        /// The attribute's name.
        #[serde(borrow, serialize_with = "in_one_piece")]
        key: &'a [u8],
        /// Its value.
        #[serde(borrow, serialize_with = "in_one_piece")]
        value: &'a [u8],
    },
    /// A process set of a job: ranks `first..first + count`.
    Pset {
        /// The job.
        job: JobId,
        /// The set's name; `mpi://WORLD` and `mpi://SELF` are there without being defined.
        #[serde(borrow)]
        name: &'a str,
        /// Its first rank.
        first: Rank,
        /// How many ranks.
        count: u32,
    },
    /// A spawn has been carried out, or could not be.
    SpawnComplete {
        /// Which one.
        spawn: UpcallId,
        /// Whether the processes of its job run. Otherwise none does, and the job has been forgotten if there was
        /// one.
        started: bool,
        /// The limit that left no room for its job, where that is why nothing was started.
        full: Option<Limit>,
        /// A code for each program: 0, or the `errno` of its failure.
        #[serde(borrow, serialize_with = "in_one_piece")]
        codes: &'a [u8],
    },
    /// A request that is the host's business ([`Output::Upcall`]) has been carried out, or could not be.
    UpcallComplete {
        /// Which one.
        upcall: UpcallId,
        /// 0, or a code of pmi2.h (`PMI2_ERR_…`) that the client gets as `rc`.
        rc: i32,
        /// The port that a look-up found; for a failure the reason, of which the client gets the first
        /// [`MESSAGE_TEXT_MAX`](crate::limits::MESSAGE_TEXT_MAX) bytes; else empty.
        #[serde(borrow, serialize_with = "in_one_piece")]
        text: &'a [u8],
    },
    /// A client connected.
    Opened {
        /// The number that the host gives it, free until now.
        conn: ConnId,
        /// The job that it came for.
        job: JobId,
        /// Whose it is where the host knows (`PMI_FD`); others introduce themselves (`PMI_PORT`).
        rank: Option<Rank>,
    },
    /// A client connected that has queries alone. It introduces itself by PMI-2 (`init`, then `fullinit` with its
    /// `pmirank`, and with the job's id as `pmijobid` or without), may do so while the rank is connected and again
    /// after it has left, and counts for nothing in the rank's life. It may ask for process sets, attributes, the
    /// job's id and what was put, may define process sets, and is refused everything else.
    OpenedQuery {
        /// The number that the host gives it, free until now.
        conn: ConnId,
        /// The job that it asks about.
        job: JobId,
    },
    /// A client's bytes: all that the host holds and the core has not [consumed](Consumed) yet.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// From the first byte not consumed.
        #[serde(borrow, serialize_with = "in_one_piece")]
        bytes: &'a [u8],
        /// Whether the host's buffer is full, so that a message not whole by now never will be.
        full: bool,
    },
    /// The host could not write all of a reply: no more for this connection for now.
    Blocked {
        /// The connection.
        conn: ConnId,
    },
    /// The host can write to the connection again.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is closed, by whichever side. Its number is free again.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// A rank's process has ended.
    Exited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// How it ended.
        exit: Exit,
    },
    /// Nothing happened, but time passed.
    Timeout,
    /// The job is over: every process has exited. Its connections are let go and what it stored is dropped.
    DeregisterJob {
        /// The job.
        job: JobId,
    },
}

impl<'a> Input<'a> {
    /// Reads an input that was written in postcard, and nothing where there is none.
    #[cold]
    pub fn read(bytes: &'a [u8]) -> Option<Input<'a>> {
        postcard::from_bytes(bytes).ok()
    }
}

/// A job as the host describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec<'a> {
    /// The number that the host gives it, free until now.
    pub job: JobId,
    /// The job id that clients see (PMI-1's kvsname): printable ASCII without blanks, `;` and `=`, at most
    /// [`crate::limits::JOBID_MAX`] bytes. Where there are several nodes, one that no job before has had: messages about
    /// it may be under way for longer than it lives.
    pub name: &'a str,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`: how many processes there may be in all; the job's size where nothing is known.
    pub universe_size: Option<u32>,
    /// Whether a rank that fails ends the job. Otherwise the survivors go on and fences count the living.
    pub cleanup: bool,
    /// The PMI-1 subversion to answer: 2 offers group barriers, 1 suits clients that insist on 1.1.
    pub pmi1_subversion: u32,
    /// The spawn that it comes from, where this server was asked for it.
    pub spawn: Option<UpcallId>,
    /// The job id of the job that asked for the spawn, where another node's server was; else empty.
    #[serde(borrow)]
    pub spawner: &'a str,
    /// Milliseconds that a look-up waits for a name that nobody has published yet, unless it says itself how long.
    pub lookup_wait: u64,
    /// Whether names are the host's business, which hands them to a service that several servers share
    /// ([`Output::Upcall`]). Otherwise the jobs of this server share its own.
    pub remote_names: bool,
    /// Milliseconds after which a waiting fence is reported ([`Output::StalledFence`]); 0 for never.
    pub fence_warning: u64,
}

impl<'a> JobSpec<'a> {
    /// A job with the usual behaviour: failures end it, PMI-1 is answered as 1.2, and nothing is waited for or
    /// warned of.
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
        }
    }

    /// The job that a host has a board serve, under the number that the board gives it.
    pub const fn managed(job: JobId, open: &OpenJob<'a>) -> JobSpec<'a> {
        JobSpec {
            universe_size: open.universe_size,
            cleanup: open.cleanup,
            pmi1_subversion: open.pmi1_subversion,
            lookup_wait: open.lookup_wait,
            fence_warning: open.fence_warning,
            ..JobSpec::new(job, open.name, open.size)
        }
    }
}

/// What [`crate::Server::handle`] did with an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumed {
    /// How many of the bytes are done with; the host hands in the rest again, with what follows them.
    pub bytes: u32,
    /// Whether a whole message waits behind them until the connection's replies are taken: hand the rest in
    /// again after the next reply to this connection, also when no more bytes come.
    pub again: bool,
}

/// What the core tells the host. Borrows from the buffer that was passed to
/// [`crate::Server::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<'b> {
    /// Bytes to write to a connection.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// One whole reply.
        #[serde(borrow, serialize_with = "in_one_piece")]
        bytes: &'b [u8],
    },
    /// The connection cannot go on: the host closes it and then says [`Input::Closed`].
    Close {
        /// The connection.
        conn: ConnId,
        /// What was wrong with its bytes.
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
    /// Processes have to be started: the host makes a job of them ([`JobSpec::spawn`]), starts them, and then says
    /// [`Input::SpawnComplete`].
    Spawn {
        /// Which spawn.
        spawn: UpcallId,
        /// The job that asks.
        job: JobId,
        /// The rank that asks.
        rank: Rank,
        /// The language of the request.
        protocol: Protocol,
        /// The request as it came, for [`crate::wire::decode_spawn`].
        #[serde(borrow, serialize_with = "in_one_piece")]
        request: &'b [u8],
    },
    /// A job asks for something that is the host's business, which sees to it and then says [`Input::UpcallComplete`]: where
    /// [names are](JobSpec::remote_names), to publish, withdraw or look up one; where there are several nodes, to define
    /// a process set or to connect or part jobs, which the host has all nodes told of ([`Input::Define`],
    /// [`Input::Connected`]) before it answers.
    Upcall {
        /// Which request.
        upcall: UpcallId,
        /// The job that asks.
        job: JobId,
        /// The rank that asks.
        rank: Rank,
        /// The language of the request.
        protocol: Protocol,
        /// The request as it came, for [`crate::wire::decode_upcall`].
        #[serde(borrow, serialize_with = "in_one_piece")]
        request: &'b [u8],
    },
    /// A rank asked to be ended alone: the host ends its process.
    KillRank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The exit code it asked for, where it did.
        code: Option<i32>,
        /// What it said.
        #[serde(borrow)]
        message: &'b str,
    },
    /// The job has to end: the host ends its processes. Said once a job.
    AbortJob {
        /// The job.
        job: JobId,
        /// Why.
        cause: Cause,
        /// What the aborting rank said.
        #[serde(borrow)]
        message: &'b str,
    },
    /// A message for a neighbour in the tree. The host hands it over whole and in order.
    Peer {
        /// The neighbour.
        node: u32,
        /// The message.
        #[serde(borrow, serialize_with = "in_one_piece")]
        bytes: &'b [u8],
    },
    /// A fence waits for longer than [`JobSpec::fence_warning`], as far as this node's ranks are concerned. Said once a
    /// fence.
    StalledFence {
        /// The job.
        job: JobId,
        /// How many ranks have arrived.
        arrived: u32,
        /// How many must.
        size: u32,
        /// The missing ones, as `0-3,7`, cut short with `,...`; empty where only other nodes' are.
        #[serde(borrow)]
        missing: &'b str,
    },
}
