//! Status socket of an endpoint, and what it tells about the server.

use hydrant_reactor::Poller;
use hydrant_status::StatusServer;

use crate::token::STATUS;

/// What an endpoint learns about the processes of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Their connections only. An exit in the server's tables stands for a closed connection.
    Unseen,
    /// Hosts report their exits.
    Reported,
}

/// The socket and what clients learn about the server.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) server: StatusServer,
    pub(crate) processes: Processes,
    /// Command of the server.
    pub(crate) command: &'static str,
    /// Address at which it serves.
    pub(crate) address: String,
    /// Name of this machine.
    pub(crate) host: String,
}

impl Status {
    /// Listens.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub(crate) fn open(
        processes: Processes,
        host: &str,
        address: &str,
        poller: &Poller,
    ) -> Result<Status, hydrant_status::Error> {
        let server = StatusServer::open(STATUS, poller)?;
        let command = match processes {
            Processes::Unseen => "hydrant serve --size",
            Processes::Reported => "hydrant serve --manage",
        };
        Ok(Status { server, processes, command, address: address.to_owned(), host: host.to_owned() })
    }

    /// Time of the next deadline in milliseconds.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.server.poll_at()
    }

    /// Handles deadlines of clients.
    pub(crate) fn handle_timeout(&mut self, poller: &Poller, now: u64) {
        if self.server.poll_at().is_some_and(|at| at <= now) {
            self.server.handle_timeout(poller, now);
        }
    }
}
