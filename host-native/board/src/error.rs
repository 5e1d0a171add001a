//! Errors of boards.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::manage::ConnectionError;
use hydrant_core::limits::AUTO_NODES_MAX;
use hydrant_core::manage::{self, BadRecord, Error, STALL_MS};
use hydrant_core::{Fault, Limit};
use hydrant_validator::Violation;

use crate::heartbeat::Silence;

/// Time for a board to reply.
pub(crate) const PATIENCE: Duration = Duration::from_millis(STALL_MS);
/// Description of [`Request::Node`](hydrant_core::manage::Request::Node) in error messages.
pub(crate) const NODE: &str = "a node of this run";

/// Error of a board or of the connection to it.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The connection to the management port failed.
    #[error("cannot connect to a board at {target}: {why}")]
    Unreachable {
        /// As the user named it.
        target: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The connection was lost or carries an invalid message.
    #[error("the board at {addr} is lost: {why}")]
    Lost {
        /// Its management port.
        addr: SocketAddr,
        /// Reason.
        why: String,
    },
    /// The connection ended in the handshake.
    #[error("the board at {addr} refuses the handshake: {why}")]
    Handshake {
        /// Its management port.
        addr: SocketAddr,
        /// Reason.
        why: String,
        /// Whether this host used a secret.
        secret: bool,
    },
    /// A board on this machine is a process of another user, and there is no secret.
    #[error("the board at {addr} is a process of {user}, and no secret was given")]
    Foreign {
        /// Its management port.
        addr: SocketAddr,
        /// Its user, in words.
        user: String,
    },
    /// The board refused a request.
    #[error("the board at {addr} refuses {what}: {why}")]
    Refused {
        /// Its management port.
        addr: SocketAddr,
        /// Description of the request.
        what: &'static str,
        /// Reason of the board.
        why: Error,
    },
    /// The board has smaller tables than the limits of the run require.
    #[error("the board at {addr} has smaller tables than this run: {}", list(limits, "", ", "))]
    Small {
        /// Its management port.
        addr: SocketAddr,
        /// Limits of the run that are too large, with those of the board.
        limits: Vec<(Limit, u32)>,
    },
    /// The board has no lazy fences, and those of the job would be lazy.
    #[error(
        "the board at {addr} has no lazy fences (--fence lazy, and --fence auto on more than {AUTO_NODES_MAX} hosts)"
    )]
    NoLazyFences {
        /// Its management port.
        addr: SocketAddr,
    },
    /// It does not answer heartbeats.
    #[error("the board {} {silence}", place(name, addr))]
    Frozen {
        /// Its name.
        name: String,
        /// Its management port.
        addr: SocketAddr,
        /// Time without an answer.
        silence: Silence,
    },
    /// It does not answer a request.
    #[error("the board at {addr} has not answered for {} s: {what}", PATIENCE.as_secs())]
    Silent {
        /// Its management port.
        addr: SocketAddr,
        /// Description of the request.
        what: &'static str,
    },
    /// A call of the board that serves a node with a spare failed.
    #[error("board {}: {why}", place(target, addr))]
    Call {
        /// As the user named it.
        target: String,
        /// Its management port.
        addr: SocketAddr,
        /// Reason.
        why: CallError,
    },
    /// A link between two boards is lost.
    #[error("board {target}: its link to board {other} is lost: {why}")]
    Link {
        /// The board that has reported it, as the user named it.
        target: String,
        /// The board at the other end.
        other: String,
        /// Reason.
        why: String,
    },
    /// Error of the board that serves a node of a run on several hosts.
    #[error("{}", of_board(target, why))]
    Node {
        /// As the user named it.
        target: String,
        /// The error.
        why: Box<BoardError>,
    },
}

/// Error of a call of a board.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No return in time.
    #[error("no response within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// No return in the time that slow calls before have left.
    #[error("no response within {:.1} s, after slow ones in {:.1} s", within.as_secs_f64(), spent.as_secs_f64())]
    Slow {
        /// Time of the call.
        within: Duration,
        /// Time of the calls before.
        spent: Duration,
    },
    /// The connection is lost.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// The return is malformed or too long, or the call is.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// No correct server has this result or output.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// An earlier call failed.
    #[error("an earlier call failed")]
    Failed,
}

impl CallError {
    /// No return in time, after slow calls.
    pub(crate) fn timeout(within: Duration, spent: Duration) -> CallError {
        if spent.is_zero() { CallError::Timeout(within) } else { CallError::Slow { within, spent } }
    }
}

impl From<ConnectionError> for CallError {
    fn from(why: ConnectionError) -> CallError {
        match why {
            ConnectionError::Record(why) => CallError::Record(why),
            why => CallError::Lost(why.to_string()),
        }
    }
}

impl BoardError {
    /// Fault that the board's server reported, if a request was refused for one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            BoardError::Node { why, .. } => why.fault(),
            &BoardError::Refused { why: Error::Fault(fault), .. } => Some(fault),
            _ => None,
        }
    }

    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            BoardError::Unreachable { .. } => {
                Some(format!("--target is the board's management port, {} by default", manage::PORT))
            }
            BoardError::Handshake { secret: true, .. } => {
                Some("the board has another secret, or none".to_owned())
            }
            BoardError::Handshake { secret: false, .. } => Some(
                "the board has a secret (set --secret-file FILE), or none and runs as another user"
                    .to_owned(),
            ),
            BoardError::Foreign { .. } => {
                Some("start the board with --secret-file FILE, and give the same here".to_owned())
            }
            BoardError::Refused { why, .. } => remedy(why).map(str::to_owned),
            BoardError::Small { limits, .. } => {
                let given = limits.iter().filter(|(limit, _)| *limit != Limit::Links).copied();
                let mut options = list(&given.collect::<Vec<_>>(), "--limit ", " ");
                if let Some((_, links)) = limits.iter().find(|(limit, _)| *limit == Limit::Links) {
                    options += &format!(" --radix {}", links.saturating_sub(1));
                }
                let options = options.trim_start();
                Some(format!(
                    "start the run with {options} if its ranks need no more, or the board with larger limits"
                ))
            }
            BoardError::NoLazyFences { .. } => {
                let build = "or build the board's firmware with the feature cluster";
                Some(format!("start the run with --fence collect, {build}"))
            }
            BoardError::Node { why, .. } => match **why {
                BoardError::Unreachable { .. } => {
                    Some(format!("a board is named by its management port, {} by default", manage::PORT))
                }
                BoardError::Handshake { secret: false, .. } => Some(
                    "the board has a secret (set --offload-secret FILE), or none and runs as another user"
                        .to_owned(),
                ),
                ref why => why.hint(),
            },
            _ => None,
        }
    }
}

/// A board in words: its name, and its address unless that is the name.
pub(crate) fn place(name: &str, addr: &SocketAddr) -> String {
    if *name == addr.to_string() { name.to_owned() } else { format!("{name} at {addr}") }
}

/// Describes the error of a board that the user named.
fn of_board(target: &str, error: &BoardError) -> String {
    let addr = match error {
        BoardError::Unreachable { why, .. } => return format!("board {target}: cannot connect: {why}"),
        BoardError::Lost { addr, .. }
        | BoardError::Handshake { addr, .. }
        | BoardError::Refused { addr, .. }
        | BoardError::Small { addr, .. }
        | BoardError::NoLazyFences { addr }
        | BoardError::Silent { addr, .. } => addr,
        BoardError::Frozen { silence, addr, .. } => {
            return format!("board {} {silence}", place(target, addr));
        }
        error => return format!("board {target}: {error}"),
    };
    let text = error.to_string();
    match text.strip_prefix(&format!("the board at {addr} ")) {
        Some(what) => format!("board {} {what}", place(target, addr)),
        None => format!("board {target}: {text}"),
    }
}

/// Lists limits with their sizes.
fn list(limits: &[(Limit, u32)], before: &str, between: &str) -> String {
    let each = limits.iter().map(|(limit, size)| format!("{before}{}={size}", limit.name()));
    each.collect::<Vec<_>>().join(between)
}

/// Returns the remedy for a refusal.
fn remedy(why: &Error) -> Option<&'static str> {
    match why {
        Error::Version { .. } => {
            Some("install the same version of hydrant, or of the firmware, on both sides")
        }
        Error::NoTrees => {
            Some("use a board with 'hydrant serve --manage', or build its firmware with the feature nodes")
        }
        Error::NoCalls => Some(
            "run without --spare, use a board with 'hydrant serve --manage', or build its firmware with the feature spares",
        ),
        Error::Busy => Some("wait until its host has finished, or use another board"),
        Error::Fault(Fault::Full(Limit::Jobs, _)) => {
            Some("wait until one of its jobs is over, or use another board")
        }
        Error::Fault(Fault::Full(..)) => Some("start or build the board with larger limits"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_named_once() {
        let addr: SocketAddr = "10.0.0.7:4100".parse().unwrap();
        let of_node = |target: &str, why| {
            BoardError::Node { target: target.to_owned(), why: Box::new(why) }.to_string()
        };
        let lost = || BoardError::Lost { addr, why: "closed".to_owned() };
        assert_eq!(of_node("10.0.0.7:4100", lost()), "board 10.0.0.7:4100 is lost: closed");
        assert_eq!(of_node("dpu-a", lost()), "board dpu-a at 10.0.0.7:4100 is lost: closed");
        let call =
            |target: &str| BoardError::Call { target: target.to_owned(), addr, why: CallError::Failed };
        assert_eq!(call("10.0.0.7:4100").to_string(), "board 10.0.0.7:4100: an earlier call failed");
        let small = BoardError::Small { addr, limits: vec![(Limit::Ranks, 4)] };
        assert_eq!(
            of_node("dpu", small),
            "board dpu at 10.0.0.7:4100 has smaller tables than this run: ranks=4"
        );
    }
}
