//! Causes of outputs, and event logging.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Malformed;
use crate::ids::Rank;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Exit {
    /// It returned this code, 0 to 255.
    Code(u8),
    /// It died by this signal.
    Signal(u8),
    /// Its connection closed and nothing more is known, on hosts that do not start processes.
    Lost,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "died by signal {signal}"),
            Exit::Lost => f.write_str("was lost"),
        }
    }
}

/// Why a job has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Cause {
    /// The rank asked for it; the message comes beside.
    Abort {
        /// Who asked.
        rank: Rank,
        /// The exit code it asked for, where it did.
        code: Option<i32>,
    },
    /// The rank ended between init and finalize.
    NoFinalize {
        /// Who ended.
        rank: Rank,
        /// How.
        exit: Exit,
    },
    /// The rank died by a signal, or failed before init while others wait for it.
    Died {
        /// Who died.
        rank: Rank,
        /// How.
        exit: Exit,
    },
    /// The rank ended without init or after finalize while others wait for it in a fence.
    Absent {
        /// Who ended.
        rank: Rank,
        /// How.
        exit: Exit,
    },
}

impl Cause {
    /// The rank that the job ends for.
    pub const fn rank(&self) -> Rank {
        match *self {
            Cause::Abort { rank, .. }
            | Cause::NoFinalize { rank, .. }
            | Cause::Died { rank, .. }
            | Cause::Absent { rank, .. } => rank,
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
            Cause::Absent { exit, .. } => write!(f, "rank {rank} {exit} while others wait for it"),
        }
    }
}

/// Why the core wants a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Closing {
    /// Its bytes are not PMI.
    Malformed(Malformed),
    /// Its introduction was turned down, and it has been told so.
    Refused,
    /// Its job is over.
    JobOver,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closing::Malformed(what) => what.fmt(f),
            Closing::Refused => f.write_str("its introduction was turned down"),
            Closing::JobOver => f.write_str("its job is over"),
        }
    }
}

/// Logs an event by the feature that is on, and does nothing without: `event!(info, "rank {}", rank)`.
///
/// Levels: `info` for jobs, `debug` for connections, ranks and fences, `warn` for what a client is refused or closed for.
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
