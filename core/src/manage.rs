//! How a host manages a board: a server that starts no processes of its own and is told by somebody else which jobs
//! to serve.
//!
//! The host opens one connection to the board's management port and keeps it. Both sides send *records*: two bytes of
//! length, little-endian, and as many bytes of postcard, at most [`RECORD_MAX`]. The host sends [`Request`]s and the
//! board answers each with one [`Report`], in the order of the requests; in between it sends reports that nobody asked
//! for, the [events](Report::is_event).
//!
//! The first request is [`Request::Hello`] and is answered by [`Report::Welcome`], or refused with the version that the
//! board speaks. A job is then opened by [`Request::Open`], described by [`Request::Program`], [`Request::Attr`] and
//! [`Request::Pset`], and let loose by [`Request::Serve`], from where on clients are welcome at its port. It ends with
//! [`Request::Forget`], whatever its state. Jobs go with the connection that opened them unless they are to be
//! [kept](OpenJob::keep).
//!
//! A board manages with one host at a time, and refuses others as [`Error::Busy`]. It holds its clients back while
//! events cannot be sent, so none is lost, and drops a host that does not read for [`STALL_MS`].

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::trace::{Cause, Closing, Exit};

/// The version of this protocol. Records of different versions share nothing but [`Request::Hello`] and
/// [`Report::Refused`] with [`Error::Version`], whose bytes are the same in all of them.
pub const VERSION: u16 = 1;
/// Longest record in bytes, its length not counted.
pub const RECORD_MAX: usize = 512;
/// Bytes of a record's length.
pub const PREFIX: usize = 2;
/// Milliseconds that a board waits for a host to read what it said.
pub const STALL_MS: u64 = 5000;
/// The port that boards listen at for their host, unless they are told otherwise.
pub const PORT: u16 = 4100;
/// The port of a board's first job, unless it is told otherwise; that of job `n` is `n` higher.
pub const PMI_PORT: u16 = 4000;

/// What the host asks. Each is answered by the report that its line names, or by [`Report::Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The first of a connection. [`Report::Welcome`]
    Hello {
        /// [`VERSION`]
        version: u16,
    },
    /// A job is to be served. [`Report::Opened`]
    #[serde(borrow)]
    Open(OpenJob<'a>),
    /// Ranks `first..first + count` of the job run program number `appnum`. Before [`Request::Serve`]. [`Report::Done`]
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
    /// A job attribute, such as `PMI_process_mapping`. Before [`Request::Serve`]. What does not fit a record cannot be
    /// said: some 400 bytes. [`Report::Done`]
    Attr {
        /// The job.
        job: JobId,
        /// The attribute's name.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A process set: ranks `first..first + count`. Before [`Request::Serve`]. [`Report::Done`]
    Pset {
        /// The job.
        job: JobId,
        /// The set's name.
        name: &'a str,
        /// Its first rank.
        first: Rank,
        /// How many ranks.
        count: u32,
    },
    /// The job is described: clients may come. [`Report::Done`]
    Serve {
        /// The job.
        job: JobId,
    },
    /// A rank's process has ended, where the host [tells](OpenJob::exits_told) so. [`Report::Done`]
    Exited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// How it ended.
        exit: Exit,
    },
    /// The job is over: its connections are closed and what it stored is dropped. [`Report::Done`]
    Forget {
        /// The job.
        job: JobId,
    },
    /// How a job is doing. [`Report::Job`]
    Job {
        /// The job.
        job: JobId,
    },
    /// How one of its ranks is doing. [`Report::Rank`]
    Rank {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
    },
    /// How the board is doing. [`Report::Board`]
    Board,
    /// How much of a limit is used. [`Report::Usage`]
    Usage {
        /// The limit.
        limit: Limit,
    },
    /// Makes this connection a recording: from [`Report::Done`] on the board sends what its core is told and says, each
    /// step a [`Record`](crate::server::Record) behind its length in two bytes and longer than [`RECORD_MAX`] where it
    /// has to be. Asked on a connection of its own, beside the one that manages, before the board's first job since its
    /// start. Clients are held back to the pace at which the recording is read. It ends, with its last record, when the
    /// host closes its side of the connection. [`Report::Done`]
    Record,
}

/// A job to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenJob<'a> {
    /// The job id that clients see, as [`JobSpec::name`](crate::server::JobSpec::name).
    pub name: &'a str,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`; the size where nothing is known.
    pub universe_size: Option<u32>,
    /// Whether a rank that fails ends the job.
    pub cleanup: bool,
    /// The PMI-1 subversion to answer.
    pub pmi1_subversion: u32,
    /// Milliseconds that a look-up waits for a name.
    pub lookup_wait: u64,
    /// Milliseconds after which a waiting fence is reported ([`Report::Late`]); 0 for never.
    pub fence_warning: u64,
    /// Whether the host says how each process ended ([`Request::Exited`]). Otherwise, and once the host's connection is
    /// gone, a client that closes its connection after finalize has exited with code 0, and one that does so earlier
    /// was [lost](Exit::Lost).
    pub exits_told: bool,
    /// Whether the job outlives the connection that opens it.
    pub keep: bool,
}

impl<'a> OpenJob<'a> {
    /// A job with the usual behaviour, whose processes the host looks after.
    pub const fn new(name: &'a str, size: u32) -> OpenJob<'a> {
        OpenJob {
            name,
            size,
            universe_size: None,
            cleanup: true,
            pmi1_subversion: 2,
            lookup_wait: 0,
            fence_warning: 0,
            exits_told: true,
            keep: false,
        }
    }
}

/// What the board says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report<'a> {
    /// Nothing was done, and nothing was changed.
    Refused(Error),
    /// The answer to [`Request::Hello`].
    #[serde(borrow)]
    Welcome(Welcome<'a>),
    /// It is done.
    Done,
    /// The answer to [`Request::Open`].
    Opened {
        /// The number that the board gives it.
        job: JobId,
        /// Where its clients connect (`PMI_PORT`, at the address of the management port).
        port: u16,
    },
    /// The answer to [`Request::Job`].
    Job(JobReport),
    /// The answer to [`Request::Rank`].
    Rank(RankReport),
    /// The answer to [`Request::Board`].
    Board(BoardReport),
    /// The answer to [`Request::Usage`].
    Usage {
        /// The limit.
        limit: Limit,
        /// How much of it is used.
        used: u32,
        /// Its size.
        size: u32,
    },
    /// Event: a client has become a rank.
    Joined {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its connection.
        conn: ConnId,
    },
    /// Event: the job has to end, so its processes are to be ended. Once a job.
    End {
        /// The job.
        job: JobId,
        /// Why.
        cause: Cause,
        /// What the aborting rank said.
        message: &'a str,
    },
    /// Event: a rank asked to be ended alone, so its process is to be ended.
    Kill {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The exit code it asked for, where it did.
        code: Option<i32>,
        /// What it said.
        message: &'a str,
    },
    /// Event: a fence waits for longer than [`OpenJob::fence_warning`].
    Late {
        /// The job.
        job: JobId,
        /// How many ranks have arrived.
        arrived: u32,
        /// How many must.
        size: u32,
        /// The missing ones, as `0-3,7`, cut short with `,...`.
        missing: &'a str,
    },
    /// Event: every rank of the job has ended. It waits to be [forgotten](Request::Forget).
    Over {
        /// The job.
        job: JobId,
    },
    /// Event: a client was refused for want of room. Once a job and limit.
    LimitHit {
        /// The limit.
        limit: Limit,
        /// Its size.
        size: u32,
    },
    /// Event: a client's connection was closed for what it said.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Whose it was, where that was known.
        rank: Option<Rank>,
        /// What was wrong.
        why: Closing,
    },
}

impl Report<'_> {
    /// Whether nobody asked for it.
    pub const fn is_event(&self) -> bool {
        match self {
            Report::Joined { .. }
            | Report::End { .. }
            | Report::Kill { .. }
            | Report::Late { .. }
            | Report::Over { .. }
            | Report::LimitHit { .. }
            | Report::Closed { .. } => true,
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

/// What a board is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome<'a> {
    /// [`VERSION`]
    pub version: u16,
    /// The board's name, for people.
    pub board: &'a str,
    /// What its tables hold.
    pub limits: Limits,
    /// Where the clients of its first job connect; those of job `n` do `n` higher.
    pub pmi_port: u16,
    /// Clients that can connect at the same time.
    pub sockets: u32,
    /// How many more can at the moment.
    pub free_sockets: u32,
    /// Longest message of a client in bytes; whoever says more is closed.
    pub message_max: u32,
    /// Whether it can be [recorded](Request::Record).
    pub records: bool,
}

/// How a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// How far it has come.
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

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobPhase {
    /// It is being described.
    Opened,
    /// Clients are welcome.
    Served,
    /// It has to end.
    Ending(Cause),
    /// Every rank has ended.
    Over,
}

/// How a rank is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Its connection, where it has one.
    pub conn: Option<ConnId>,
    /// Whether it is between init and finalize.
    pub initialized: bool,
    /// Whether it has finalized.
    pub finalized: bool,
    /// Whether it waits in the job's fence.
    pub in_fence: bool,
    /// How its process ended, where it has.
    pub exit: Option<Exit>,
}

/// How a board is doing. Counters begin at its start and stay at their highest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardReport {
    /// Milliseconds since its start.
    pub uptime: u64,
    /// Clients that can connect at the same time.
    pub sockets: u32,
    /// How many more can at the moment.
    pub free_sockets: u32,
    /// Clients that have connected.
    pub accepted: u32,
    /// Clients that were closed for what they said.
    pub closed: u32,
    /// Clients that came while there was no job for them.
    pub turned_away: u32,
    /// Jobs that were opened.
    pub jobs: u32,
    /// Bytes that clients said.
    pub bytes_in: u64,
    /// Bytes that they got.
    pub bytes_out: u64,
    /// The most stack that was in use, in bytes; 0 where nobody measures.
    pub stack: u32,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Error {
    /// The board speaks another version.
    Version {
        /// Which.
        spoken: u16,
    },
    /// Another request came before [`Request::Hello`], or a second one.
    Greeting,
    /// The record is longer than [`RECORD_MAX`] or no request. The board closes the connection, because it cannot tell
    /// what was meant.
    Garbled,
    /// Somebody else manages the board, or records it.
    Busy,
    /// A request out of its order: a job is described after [`Request::Serve`], or a recording begins after a job.
    Order,
    /// This board records nothing.
    NoRecording,
    /// What the core says to it.
    Core(Fault),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Version { spoken } => {
                write!(f, "it speaks version {spoken} of the management protocol, not {VERSION}")
            }
            Error::Greeting => f.write_str("the first request of a connection, and no other, is a greeting"),
            Error::Garbled => f.write_str("no request"),
            Error::Busy => f.write_str("somebody else manages or records it"),
            Error::Order => f.write_str("too late: the job is being served, or there has been one"),
            Error::NoRecording => f.write_str("it records nothing"),
            Error::Core(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// Something that has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// It is longer than [`RECORD_MAX`], or than the buffer.
    TooLong,
    /// Its bytes are not what was expected.
    Garbled,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::TooLong => write!(f, "a record of the management protocol over {RECORD_MAX} bytes"),
            BadRecord::Garbled => f.write_str("no record of the management protocol"),
        }
    }
}

impl core::error::Error for BadRecord {}

/// Writes a record, its length in front, to the front of `buf`.
///
/// # Errors
/// [`BadRecord::TooLong`] when it is longer than [`RECORD_MAX`], or than `buf`.
pub fn encode<'b>(what: &impl Serialize, buf: &'b mut [u8]) -> Result<&'b [u8], BadRecord> {
    let room = buf.len().min(PREFIX + RECORD_MAX);
    let (prefix, body) = buf[..room].split_at_mut_checked(PREFIX).ok_or(BadRecord::TooLong)?;
    let len = postcard::to_slice(what, body).map_err(|_| BadRecord::TooLong)?.len();
    // A record's length fits, as RECORD_MAX does.
    prefix.copy_from_slice(&(len as u16).to_le_bytes());
    Ok(&buf[..PREFIX + len])
}

/// The first record of what came, without its length, and how many bytes it takes with it; nothing while it is not
/// whole.
///
/// # Errors
/// [`BadRecord::TooLong`] when it is going to be longer than [`RECORD_MAX`].
pub fn next(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BadRecord> {
    let Some((&prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let len = usize::from(u16::from_le_bytes(prefix));
    if len > RECORD_MAX {
        return Err(BadRecord::TooLong);
    }
    Ok(rest.get(..len).map(|record| (record, PREFIX + len)))
}

/// Reads a record: a [`Request`] or a [`Report`].
///
/// # Errors
/// [`BadRecord::Garbled`] when it is something else, or longer than what it says.
pub fn decode<'a, T: Deserialize<'a>>(record: &'a [u8]) -> Result<T, BadRecord> {
    match postcard::take_from_bytes(record) {
        Ok((what, [])) => Ok(what),
        _ => Err(BadRecord::Garbled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_in_all_versions() {
        let mut buf = [0; 16];
        assert_eq!(encode(&Request::Hello { version: 300 }, &mut buf), Ok(&[3, 0, 0, 0xac, 2][..]));
        let refused = Report::Refused(Error::Version { spoken: 1 });
        assert_eq!(encode(&refused, &mut buf), Ok(&[3, 0, 0, 0, 1][..]));
    }

    #[test]
    fn records_come_in_any_split() {
        let mut buf = [0; 64];
        let said = encode(&Request::Attr { job: JobId(1), key: b"k", value: b"value" }, &mut buf);
        let said = said.expect("it is short");
        for end in 0..said.len() {
            assert_eq!(next(&said[..end]), Ok(None), "{end} bytes");
        }
        let (record, len) = next(said).expect("no record is too long").expect("it is whole");
        assert_eq!(len, said.len());
        assert_eq!(decode(record), Ok(Request::Attr { job: JobId(1), key: b"k", value: b"value" }));
        assert_eq!(decode::<Request<'_>>(&record[..record.len() - 1]), Err(BadRecord::Garbled));
        assert_eq!(decode::<Request<'_>>(&[2, 0, 0, 1, 2, 3, 4]), Err(BadRecord::Garbled), "a rest");
        assert_eq!(decode::<Request<'_>>(&[0xff]), Err(BadRecord::Garbled));
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
