//! The one way in and the one way out, as values. All of it is serde, so that one recording replays on every host.

use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, ErrandId, JobId, Rank};
use crate::limits::Limit;
use crate::trace::{Cause, Closing, Exit};
use crate::wire::Protocol;

/// What the host tells the core.
///
/// Order of calling: [`Job`](Input::Job), then its [`Program`](Input::Program)s and [`Attr`](Input::Attr)ibutes,
/// then connections and exits in any order, then [`Forget`](Input::Forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input<'a> {
    /// A job is to be served.
    Job(JobSpec<'a>),
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
        #[serde(borrow)]
        key: &'a [u8],
        /// Its value.
        #[serde(borrow)]
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
    Launched {
        /// Which one.
        spawn: ErrandId,
        /// Whether the processes of its job run. Otherwise none does, and the job has been forgotten if there was
        /// one.
        started: bool,
        /// The limit that left no room for its job, where that is why nothing was started.
        full: Option<Limit>,
        /// A code for each program: 0, or the `errno` of its failure.
        #[serde(borrow)]
        codes: &'a [u8],
    },
    /// A request about a name ([`Output::Names`]) has been carried out, or could not be.
    Named {
        /// Which one.
        errand: ErrandId,
        /// 0, or a code of pmi2.h (`PMI2_ERR_…`) that the client gets as `rc`.
        rc: i32,
        /// The port that a look-up found; for a failure the reason, of which the client gets the first
        /// [`MESSAGE_TEXT_MAX`](crate::limits::MESSAGE_TEXT_MAX) bytes; else empty.
        #[serde(borrow)]
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
    Aside {
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
        #[serde(borrow)]
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
    Tick,
    /// The job is over: every process has exited. Its connections are let go and what it stored is dropped.
    Forget {
        /// The job.
        job: JobId,
    },
}

/// A job as the host describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec<'a> {
    /// The number that the host gives it, free until now.
    pub job: JobId,
    /// The job id that clients see (PMI-1's kvsname): printable ASCII without blanks, `;` and `=`, at most
    /// [`crate::limits::JOBID_MAX`] bytes.
    pub name: &'a str,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`: how many processes there may be in all; the job's size where nothing is known.
    pub universe: Option<u32>,
    /// Whether a rank that fails ends the job. Otherwise the survivors go on and fences count the living.
    pub cleanup: bool,
    /// The PMI-1 subversion to answer: 2 offers group barriers, 1 suits clients that insist on 1.1.
    pub pmi1_subversion: u32,
    /// The spawn that it comes from.
    pub spawn: Option<ErrandId>,
    /// Milliseconds that a look-up waits for a name that nobody has published yet, unless it says itself how long.
    pub lookup_wait: u64,
    /// Whether names are the host's business, which hands them to a service that several servers share
    /// ([`Output::Names`]). Otherwise the jobs of this server share its own.
    pub remote_names: bool,
    /// Milliseconds after which a waiting fence is reported ([`Output::Late`]); 0 for never.
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
            universe: None,
            cleanup: true,
            pmi1_subversion: 2,
            spawn: None,
            lookup_wait: 0,
            remote_names: false,
            fence_warning: 0,
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
        #[serde(borrow)]
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
    /// [`Input::Launched`].
    Spawn {
        /// Which spawn.
        spawn: ErrandId,
        /// The job that asks.
        job: JobId,
        /// The rank that asks.
        rank: Rank,
        /// The language of the request.
        protocol: Protocol,
        /// The request as it came, for [`crate::wire::decode_spawn`].
        #[serde(borrow)]
        request: &'b [u8],
    },
    /// A job whose [names are the host's business](JobSpec::remote_names) asks for a name to be published, withdrawn or
    /// looked up: the host does so, and then says [`Input::Named`].
    Names {
        /// Which request.
        errand: ErrandId,
        /// The job that asks.
        job: JobId,
        /// The rank that asks.
        rank: Rank,
        /// The language of the request.
        protocol: Protocol,
        /// The request as it came, for [`crate::wire::decode_name`].
        #[serde(borrow)]
        request: &'b [u8],
    },
    /// A rank asked to be ended alone: the host ends its process.
    Kill {
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
    End {
        /// The job.
        job: JobId,
        /// Why.
        cause: Cause,
        /// What the aborting rank said.
        #[serde(borrow)]
        message: &'b str,
    },
    /// A fence waits for longer than [`JobSpec::fence_warning`]. Said once a fence.
    Late {
        /// The job.
        job: JobId,
        /// How many ranks have arrived.
        arrived: u32,
        /// How many must.
        size: u32,
        /// The missing ones, as `0-3,7`, cut short with `,...`.
        #[serde(borrow)]
        missing: &'b str,
    },
}
