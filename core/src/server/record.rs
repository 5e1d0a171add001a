//! Records of every input and output of a server, for recordings.
//!
//! The records of a run, in the order of the calls, are all that decides what a core says: the same records played to
//! another core, on whatever host, must be answered by the same ones. A host that keeps them writes them as postcard,
//! framed as it sees fit; hydrant's own files are those of `hydrant run --record`.

use serde::{Deserialize, Serialize};

use super::io::{Consumed, Input, Output};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::time::Time;

/// One step at the border. A recording begins with [`Begin`](Record::Begin) and ends with [`End`](Record::End).
///
/// An input is followed by what was made of it: [`Took`](Record::Took), [`Refused`](Record::Refused) or
/// [`Broke`](Record::Broke). Each time that the host asked what to do is an [`Output`](Record::Output) or a
/// [`Silence`](Record::Silence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<'a> {
    /// A core was made.
    Begin {
        /// Who recorded, for readers who cannot make sense of the rest: `hydrant 0.1.0`.
        program: &'a str,
        /// Of [`Server::new`](crate::Server::new).
        limits: Limits,
        /// The same.
        seed: u32,
    },
    /// The host told it something.
    Input {
        /// When.
        now: Time,
        /// What.
        #[serde(borrow)]
        input: Input<'a>,
    },
    /// It took the input.
    Took {
        /// How much of it.
        consumed: Consumed,
        /// When it wants to be told that time has passed.
        wake: Option<Time>,
    },
    /// The input was the host's mistake.
    Refused(Fault),
    /// What stands between host and core failed, in whichever of the two calls.
    Broke {
        /// As its error says.
        why: &'a str,
    },
    /// It told the host something.
    Output(#[serde(borrow)] Output<'a>),
    /// It had nothing to tell.
    Silence,
    /// The host is done, and nothing is missing.
    End {
        /// How many inputs there were.
        inputs: u64,
        /// How many outputs.
        outputs: u64,
    },
}
