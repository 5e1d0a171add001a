//! What a server reports beside its replies.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Malformed;
use crate::ids::Rank;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Why the core wants a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    /// Its bytes are not PMI.
    Malformed(Malformed),
    /// Its introduction was turned down, and it has been told so.
    TurnedDown,
    /// Its job is over.
    JobOver,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closing::Malformed(what) => what.fmt(f),
            Closing::TurnedDown => f.write_str("its introduction was turned down"),
            Closing::JobOver => f.write_str("its job is over"),
        }
    }
}
