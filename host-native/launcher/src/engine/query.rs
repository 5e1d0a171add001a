//! Query socket of a job. An MPI library's helper reads and defines process sets over it while the library uses the PMI
//! connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use hydrant_core::JobId;
use hydrant_driver::ACCEPT_MAX;
use hydrant_reactor::local::{Accepted, LocalListener};

use super::Engine;
use crate::error::RunError;

/// Connections that wait to be accepted. The system has a lower limit of its own.
const BACKLOG: i32 = i32::MAX;

/// A listening socket of this machine.
#[derive(Debug)]
pub(super) struct Query {
    listener: LocalListener,
    name: String,
}

impl Query {
    /// Listens under the job's name, which is unpredictable, and the number of this node. Several nodes may run on one
    /// machine.
    pub(super) fn open(jobid: &str, node: u32) -> Result<Query, RunError> {
        let name = format!("hydrant/{jobid}/{node}");
        let listener = LocalListener::open(&name, BACKLOG)
            .map_err(RunError::system::<io::Error>("cannot listen for the ranks' queries"))?;
        Ok(Query { listener, name })
    }

    /// Returns the value of `HYDRANT_QUERY`. `@` marks the name of a local socket.
    pub(super) fn address(&self) -> String {
        format!("@{}", self.name)
    }
}

impl AsFd for Query {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Engine<'_, '_> {
    /// Accepts pending query connections, at most [`ACCEPT_MAX`]. More may be pending; the socket stays readable then.
    pub(super) fn accept_queries(&mut self, id: JobId) -> Result<(), RunError> {
        for _ in 0..ACCEPT_MAX {
            let Some(query) = self.jobs.get(id).and_then(|job| job.run.query.as_ref()) else { break };
            match query.socket().listener.accept() {
                Ok(Accepted::Own(stream)) => self.open_aside(stream, id)?,
                Ok(Accepted::Foreign) => {}
                Ok(Accepted::None) => break,
                Err(error) => {
                    if !self.displace(&error)? {
                        self.sinks.print(&format!("paused accepting queries about process sets: {error}"));
                        let now = self.now();
                        if let Some(query) = self.jobs.get_mut(id).and_then(|job| job.run.query.as_mut()) {
                            query.pause(&self.poller, now);
                        }
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn open_aside(&mut self, stream: UnixStream, job: JobId) -> Result<(), RunError> {
        let now = self.now();
        let Some(driver) = self.core.driver() else { return Ok(()) };
        let displaced = driver.make_room(now)?;
        // Without room for it the connection is closed, which its client takes for an answer.
        driver.open_query(stream.into(), job, now, &self.poller)?;
        if displaced { self.outputs() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use hydrant_reactor::local;

    use super::*;

    #[test]
    fn one_connects_by_the_name_that_ranks_are_given() {
        let query = Query::open(&format!("test-{}", std::process::id()), 0).unwrap();
        assert!(matches!(query.listener.accept(), Ok(Accepted::None)));
        let address = query.address();
        let name = address.strip_prefix('@').unwrap();
        let client = local::connect(name).unwrap();
        assert!(matches!(query.listener.accept(), Ok(Accepted::Own(_))), "this user's own connection");
        drop((query, client));
        assert!(local::connect(name).is_err(), "nothing is left behind");
    }
}
