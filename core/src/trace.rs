//! Causes of outputs, and event logging.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Malformed;
use crate::ids::Rank;

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
// The variants begin with 1, so that an `Option` without an exit is zero, as in unused slots.
#[repr(u8)]
pub enum Exit {
    /// Exit with this code, 0 to 255.
    Code(u8) = 1,
    /// Death by this signal.
    Signal(u8),
    /// Closed connection without further information, on hosts that do not start processes.
    Lost,
}

impl Exit {
    /// Returns the exit of a process of which only the closed connection is known: code 0 if the rank had `finalized`, otherwise
    /// [`Exit::Lost`].
    pub const fn of_connection(finalized: bool) -> Exit {
        if finalized { Exit::Code(0) } else { Exit::Lost }
    }

    /// Returns the exit of a rank that has asked to be ended with `code` ([`KillRank`](crate::Output::KillRank)), in place of the
    /// signal by which its process dies: the low 8 bits of the code, and 1 without one or for 0. A rank that had to be ended has
    /// not succeeded.
    pub const fn of_killed(code: Option<i32>) -> Exit {
        match code {
            Some(code) if code as u8 != 0 => Exit::Code(code as u8),
            _ => Exit::Code(1),
        }
    }

    /// Returns the exit code of a launcher for this end, as shells have it: the code, 128 + N for signal N, and 1 if nothing is
    /// known.
    pub const fn exit_code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => signal.saturating_add(128),
            Exit::Lost => 1,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "died by {}", SignalName((*signal).into())),
            Exit::Lost => f.write_str("was lost"),
        }
    }
}

/// Standard output or standard error of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Name of a signal for messages, for example `SIGSEGV`, or `signal 42` for a number without a name.
///
/// The numbers are Linux's on x86, Arm, POWER and RISC-V. The table does not depend on the machine, because hosts report
/// signals to each other by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalName(pub i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "SIGHUP",
            2 => "SIGINT",
            3 => "SIGQUIT",
            4 => "SIGILL",
            5 => "SIGTRAP",
            6 => "SIGABRT",
            7 => "SIGBUS",
            8 => "SIGFPE",
            9 => "SIGKILL",
            10 => "SIGUSR1",
            11 => "SIGSEGV",
            12 => "SIGUSR2",
            13 => "SIGPIPE",
            14 => "SIGALRM",
            15 => "SIGTERM",
            24 => "SIGXCPU",
            25 => "SIGXFSZ",
            26 => "SIGVTALRM",
            27 => "SIGPROF",
            31 => "SIGSYS",
            other => return write!(f, "signal {other}"),
        })
    }
}

/// Reason for aborting a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
// As in `Exit`.
#[repr(u8)]
pub enum Cause {
    /// Request of the rank. Its message is a separate field of the output.
    Abort {
        /// The rank.
        rank: Rank,
        /// The exit code that it requested, if any.
        code: Option<i32>,
    } = 1,
    /// Exit of the rank between init and finalize.
    NoFinalize {
        /// The rank.
        rank: Rank,
        /// Its exit.
        exit: Exit,
    },
    /// Death of the rank by a signal, or its failure before init while other ranks wait for it.
    Died {
        /// The rank.
        rank: Rank,
        /// Its exit.
        exit: Exit,
    },
    /// Exit of the rank without init while another rank is between init and finalize, or exit after finalize while
    /// another rank waits for it in a fence. [`Exit::Lost`] for a rank whose connection was closed between init and
    /// finalize and whose process lives.
    Absent {
        /// The rank.
        rank: Rank,
        /// Its exit.
        exit: Exit,
    },
}

impl Cause {
    /// Returns the rank that caused the abort.
    pub const fn rank(&self) -> Rank {
        match *self {
            Cause::Abort { rank, .. }
            | Cause::NoFinalize { rank, .. }
            | Cause::Died { rank, .. }
            | Cause::Absent { rank, .. } => rank,
        }
    }

    /// Returns the exit code of a launcher that ends a job for this cause: of an abort its code, in 8 bits, or 1, otherwise
    /// [that of the exit](Exit::exit_code), at least 1. It is 0 only for an abort with code 0, by which `shmem_global_exit(0)` ends
    /// a job that has succeeded.
    pub const fn exit_code(&self) -> u8 {
        match *self {
            Cause::Abort { code: Some(0), .. } => 0,
            Cause::Abort { code, .. } => Exit::of_killed(code).exit_code(),
            Cause::NoFinalize { exit: Exit::Code(0), .. }
            | Cause::Died { exit: Exit::Code(0), .. }
            | Cause::Absent { exit: Exit::Code(0), .. } => 1,
            Cause::NoFinalize { exit, .. } | Cause::Died { exit, .. } | Cause::Absent { exit, .. } => {
                exit.exit_code()
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank();
        match self {
            Cause::Abort { code: Some(code), .. } => write!(f, "rank {rank} aborted it with code {code}"),
            Cause::Abort { code: None, .. } => write!(f, "rank {rank} aborted it"),
            Cause::NoFinalize { exit, .. } => write!(f, "rank {rank} {exit} between init and finalize"),
            Cause::Died { exit, .. } => write!(f, "rank {rank} {exit}"),
            Cause::Absent { exit: Exit::Lost, .. } => {
                write!(f, "rank {rank} closed its connection without finalize while others wait for it")
            }
            Cause::Absent { exit, .. } => write!(f, "rank {rank} {exit} while others wait for it"),
        }
    }
}

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
// As in `Exit`.
#[repr(u8)]
pub enum Closing {
    /// Bytes that are not PMI.
    Malformed(Malformed) = 1,
    /// Refused handshake. The client has got the error reply.
    Refused,
    /// Deregistered job.
    JobOver,
    /// Another connection of the same rank, which has finalized on this one or has waited for no reply.
    Replaced,
    /// Refused handshake of a PMIx client. The client does not fail: it runs as a job of one rank.
    Unserved,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closing::Malformed(what) => what.fmt(f),
            Closing::Refused => f.write_str("its handshake was refused"),
            Closing::JobOver => f.write_str("its job is over"),
            Closing::Replaced => f.write_str("its rank has connected again"),
            Closing::Unserved => {
                f.write_str("its PMIx handshake was refused, so it runs as a job of one rank")
            }
        }
    }
}

/// Logs an event through the enabled feature, or does nothing without one: `event!(info, "rank {}", rank)`.
///
/// Levels: `info` for jobs, `debug` for connections, ranks and fences, `warn` for refused requests and closed
/// connections.
macro_rules! event {
    ($level:ident, $text:literal $(, $arg:expr)* $(,)?) => {{
        #[cfg(feature = "defmt")]
        ::defmt::$level!($text $(, $arg)*);
        #[cfg(all(feature = "log", not(feature = "defmt")))]
        ::log::$level!($text $(, $arg)*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        { $(let _ = &$arg;)* }
    }};
}
pub(crate) use event;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_job_has_failed_unless_its_code_is_0() {
        let rank = Rank(2);
        let code = |code| Cause::Abort { rank, code }.exit_code();
        assert_eq!([Some(5), Some(-1), Some(256), Some(0), None].map(code), [5, 255, 1, 0, 1]);
        let ends = [Exit::Code(7), Exit::Code(0), Exit::Signal(9), Exit::Lost];
        assert_eq!(ends.map(Exit::exit_code), [7, 0, 137, 1]);
        for cause in [
            |rank, exit| Cause::NoFinalize { rank, exit },
            |rank, exit| Cause::Died { rank, exit },
            |rank, exit| Cause::Absent { rank, exit },
        ] {
            assert_eq!(ends.map(|exit| cause(rank, exit).exit_code()), [7, 1, 137, 1]);
        }
    }

    #[test]
    fn a_rank_that_had_to_be_ended_has_not_succeeded() {
        let code = |code| Exit::of_killed(code).exit_code();
        assert_eq!([Some(5), Some(-1), Some(256), Some(0), None].map(code), [5, 255, 1, 1, 1]);
    }
}
