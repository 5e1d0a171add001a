//! Messages between a fleet and its clients: a length of four bytes (little-endian), and a postcard record.
//!
//! Clients of another version do not find the socket, whose name has [the version](VERSION).

use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use hydrant_control::protocol::{Program, PseudoTerminals, RunSettings, WindowSize};
use hydrant_control::{ExitCodeOf, JobSummary};
use hydrant_placement::MappingPolicy;
use hydrant_reactor::local;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// Version of the protocol.
const VERSION: u32 = 1;
/// Longest submission in bytes, without its length. Most of it are environments.
pub(crate) const SUBMISSION_MAX: usize = 16 << 20;
/// Longest other request.
pub(crate) const REQUEST_MAX: usize = 64 << 10;
/// Longest reply. Most of the longest one are the hosts of a job.
pub(crate) const REPLY_MAX: usize = 64 << 20;
/// Bytes of standard input that may be under way to ranks.
pub(crate) const STDIN_MAX: u32 = 256 << 10;

/// Request of a client. The first is [`Submit`](Request::Submit) or [`End`](Request::End).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Starts a job. The replies are [`Reply::Refused`], or those about the job and [`Reply::Over`].
    Submit(Box<JobRequest>),
    /// Bytes for the ranks that read standard input, at most [`STDIN_MAX`] that are not taken. An empty vector is its end. Not
    /// before [`Reply::Started`].
    Stdin(Vec<u8>),
    /// A signal of the user.
    Signal(i32),
    /// The window of the user's terminal has another size.
    WindowResized(WindowSize),
    /// The job has reached its time limit.
    TimeLimit(Duration),
    /// The reader of standard output or of standard error has closed it.
    OutputClosed {
        /// Standard error.
        stderr: bool,
    },
    /// Ends the fleet. The connection closes when it has ended.
    End,
}

/// A job for a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRequest {
    /// Programs in the order of their `appnum`, each with the hosts that it may run on, or none for all.
    pub(crate) programs: Vec<(Program, Vec<String>)>,
    /// How their ranks are mapped to hosts.
    pub(crate) policy: MappingPolicy,
    /// Settings of the user.
    pub(crate) settings: Rc<RunSettings>,
    /// Output streams of ranks that are pseudo-terminals.
    pub(crate) pseudo_terminals: Option<PseudoTerminals>,
    /// Which failures of ranks give the exit code.
    pub(crate) exit_code_of: ExitCodeOf,
    /// Whether the exit codes of all ranks are printed at the end of a job.
    pub(crate) exit_report: bool,
    /// Whether the job waits for room.
    pub(crate) waits: bool,
    /// Whether the client is told of processes ([`Reply::RankStarted`]).
    pub(crate) wants_processes: bool,
    /// Whether the client is told how jobs end ([`Reply::JobOver`]).
    pub(crate) wants_summaries: bool,
}

/// Message to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The job is not started.
    Refused {
        /// The reason.
        why: String,
        /// Whether the fleet takes other jobs.
        is_open: bool,
    },
    /// The job waits for room, behind so many others.
    Waits(u32),
    /// A job is being started: the submitted one, or one that its ranks have spawned.
    Job {
        /// 0 for the submitted one.
        ordinal: u32,
        /// Ranks of each program.
        programs: Vec<u32>,
        /// Ranks on each host, in ascending order: their number and the host.
        hosts: Vec<(u32, String)>,
    },
    /// The process of a rank runs.
    RankStarted {
        /// Ordinal of its job.
        job: u32,
        /// The rank.
        rank: u32,
        /// Its process id.
        pid: u32,
    },
    /// All ranks of the submitted job run. Standard input may be sent.
    Started,
    /// Output of a rank.
    Output {
        /// Ordinal of its job.
        job: u32,
        /// The rank.
        rank: u32,
        /// Standard error.
        stderr: bool,
        /// At least one byte.
        bytes: Vec<u8>,
    },
    /// Lines for the user.
    Lines(String),
    /// So many bytes of standard input have been taken.
    StdinTaken(u32),
    /// No rank reads standard input any more.
    StdinClosed,
    /// A job is over.
    JobOver(Box<JobSummary>),
    /// All jobs are over, with this exit code.
    Over(u8),
}

/// Name of the socket of a fleet of a user.
fn address(user: u32, name: &str) -> String {
    format!("hydrant/fleet/{VERSION}/{user}/{name}")
}

/// Listens as a fleet of this user.
///
/// # Errors
/// There is a fleet of that name.
pub(crate) fn listen(name: &str, backlog: i32) -> Result<local::LocalListener, RunError> {
    let opened = local::LocalListener::open(&address(geteuid().as_raw(), name), backlog);
    opened.map_err(|why| match why.kind() {
        io::ErrorKind::AddrInUse => RunError::FleetExists(name.to_owned()),
        _ => RunError::FleetSocket { name: name.to_owned(), why },
    })
}

/// Connects to a fleet of this user.
///
/// # Errors
/// There is none, or it is another user's.
pub(super) fn connect(name: &str) -> Result<UnixStream, RunError> {
    let user = geteuid().as_raw();
    local::connect(&address(user, name)).map_err(|why| {
        let known = local::list(&format!("hydrant/fleet/{VERSION}/")).unwrap_or_default();
        let of = |fleet: &String| {
            let mut parts = fleet.splitn(5, '/').skip(3);
            Some((parts.next()?.parse::<u32>().ok()?, parts.next()?.to_owned()))
        };
        let fleets: Vec<(u32, String)> = known.iter().filter_map(of).collect();
        let other = fleets.iter().find(|(owner, fleet)| *owner != user && fleet == name);
        match (why.kind(), other) {
            (io::ErrorKind::PermissionDenied, _) => {
                RunError::ForeignFleet { name: name.to_owned(), user: None }
            }
            (_, Some((owner, _))) => RunError::ForeignFleet { name: name.to_owned(), user: Some(*owner) },
            (io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, None) => {
                let own = fleets.into_iter().filter(|(owner, _)| *owner == user);
                RunError::NoFleet { name: name.to_owned(), known: own.map(|(_, fleet)| fleet).collect() }
            }
            _ => RunError::FleetSocket { name: name.to_owned(), why },
        }
    })
}

#[cfg(test)]
mod tests {
    use hydrant_status::message::{decode, encode};

    use super::*;

    #[test]
    fn messages_decode_as_encoded() {
        let job = JobRequest {
            programs: Vec::new(),
            policy: MappingPolicy::default(),
            settings: Rc::default(),
            pseudo_terminals: None,
            exit_code_of: ExitCodeOf::First,
            exit_report: false,
            waits: true,
            wants_processes: false,
            wants_summaries: false,
        };
        let request = Request::Submit(Box::new(job));
        assert_eq!(decode(&encode(&request)), Some(request));
        let reply = Reply::Output { job: 0, rank: 3, stderr: true, bytes: b"x".to_vec() };
        assert_eq!(decode(&encode(&reply)), Some(reply));
        assert_eq!(decode::<Request>(b"\x01\0\0\0\xff"), None);
    }
}
