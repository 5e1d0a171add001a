//! Events of a host.

use hydrant_core::{ConnId, Exit, JobId, OwnedOutput, Rank};
use hydrant_driver::CloseReason;

/// What a [`Host`](crate::Host) reports to its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An output of the server. The launcher kills all processes of the job at [`AbortJob`](OwnedOutput::AbortJob), one at
    /// [`KillRank`](OwnedOutput::KillRank), removes the files of [`RemoveFiles`](OwnedOutput::RemoveFiles), and prints the text of
    /// [`Log`](OwnedOutput::Log). It sends [`Peer`](OwnedOutput::Peer) to the launcher of another node, if there are several, and
    /// starts the processes of a [`Spawn`](OwnedOutput::Spawn), if the limits permit spawns. The others are for information.
    Output(OwnedOutput),
    /// The process of a rank has ended, which [`Host::watch`](crate::Host::watch) was called for. The server knows: an abort that
    /// the rank had requested, or that its end causes, comes before.
    Exited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Code or signal. [`Lost`](Exit::Lost) if the launcher has waited for the process before.
        exit: Exit,
    },
    /// The library has closed a connection.
    Closed {
        /// The connection. Its number is free again.
        conn: ConnId,
        /// Its job.
        job: JobId,
        /// Its rank, if it had one.
        rank: Option<Rank>,
        /// The reason. Worth a message are all but [`Ended`](CloseReason::Ended).
        why: CloseReason,
    },
}

impl From<hydrant_driver::Event> for Event {
    fn from(event: hydrant_driver::Event) -> Event {
        match event {
            hydrant_driver::Event::Output(output) => Event::Output(output),
            hydrant_driver::Event::Closed { conn, job, rank, why } => Event::Closed { conn, job, rank, why },
        }
    }
}
