//! Records of every input and output of a server, for recordings.
//!
//! A server's output depends only on its limits, its seed and its inputs. Replaying the inputs of a recording on
//! another server, on any platform, must give the same outputs. A host writes records as postcard, in a framing of its
//! choice. `hydrant run --record` writes hydrant's own recording files.

use serde::{Deserialize, Serialize};

use super::io::{Consumed, Input, Output};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::time::Time;

/// One step of a recording, which begins with [`Begin`](Record::Begin) and ends with [`End`](Record::End).
///
/// An input is followed by its result: [`Took`](Record::Took), [`Refused`](Record::Refused) or
/// [`Broke`](Record::Broke). Each call of `poll` is an [`Output`](Record::Output) or a [`Silence`](Record::Silence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<'a> {
    /// Creation of the server.
    Begin {
        /// Program and version that recorded, for readers of another format: `hydrant 0.1.0`.
        program: &'a str,
        /// Limits, as passed to [`Server::new`](crate::Server::new).
        limits: Limits,
        /// Seed, as passed to [`Server::new`](crate::Server::new).
        seed: u32,
    },
    /// Input of the host.
    Input {
        /// Time of the call.
        now: Time,
        /// The input.
        #[serde(borrow)]
        input: Input<'a>,
    },
    /// Input that the server applied.
    Took {
        /// Number of consumed bytes.
        consumed: Consumed,
        /// Time at which the next [`Input::Timeout`] is due.
        wake: Option<Time>,
    },
    /// Input that the server returned as a fault.
    Refused(Fault),
    /// Failure of the backend in `handle` or `poll`, other than a fault.
    Broke {
        /// Text of the error.
        why: &'a str,
    },
    /// Output of the server.
    Output(#[serde(borrow)] Output<'a>),
    /// Call of `poll` that returned no output.
    Silence,
    /// End of a complete recording.
    End {
        /// Number of inputs.
        inputs: u64,
        /// Number of outputs.
        outputs: u64,
    },
}
