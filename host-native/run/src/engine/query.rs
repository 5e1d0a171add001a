//! Query socket of a job. An MPI library's helper reads and defines process sets over it while the library uses the PMI
//! connection. Runs whose jobs are connected to this one get values over it.
//!
//! The socket is in the abstract namespace (Linux) in place of a file, so none is left behind, and the peer's user is checked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use hydrant_control::protocol::JobRecord;
use hydrant_control::{NodeRanks, query_name};
use hydrant_core::JobId;
use hydrant_driver::ACCEPT_MAX;
use hydrant_reactor::Listener;
use hydrant_reactor::local::{Accepted, LocalListener};

use super::Engine;
use super::token::Token;
use crate::error::RunError;

/// Connections that wait to be accepted. The system has a lower limit of its own.
const BACKLOG: i32 = i32::MAX;

/// A listening socket of this machine.
#[derive(Debug)]
pub(super) struct Query {
    listener: LocalListener,
}

/// Returns the value of `HYDRANT_QUERY`. `@` marks the name of a local socket.
pub(super) fn query_address(jobid: &str, node: u32) -> String {
    format!("@{}", query_name(jobid, node))
}

impl Query {
    /// Listens under the job's name, which is unpredictable, and the number of this node. Several nodes may run on one
    /// machine.
    pub(super) fn open(jobid: &str, node: u32) -> Result<Query, RunError> {
        let listener =
            LocalListener::open(&query_name(jobid, node), BACKLOG)
                .map_err(RunError::system::<io::Error>("cannot listen for the ranks' queries"))?;
        Ok(Query { listener })
    }
}

impl AsFd for Query {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Engine<'_> {
    /// Listens for queries of ranks of this node, or of runs that share the name service.
    pub(super) fn open_query(&self, record: &JobRecord) -> Result<Option<Listener<Query>>, RunError> {
        let of_ranks = self.plan.settings_of(record).mpi_psets
            && NodeRanks::of_node(&record.blocks, self.node()).count() > 0;
        if !of_ranks && self.plan.options.name_server.is_none() {
            return Ok(None);
        }
        let query = Query::open(&record.name, self.server_node())?;
        Ok(Some(Listener::new(query, Token::Queries(record.id.0), &self.poller)?))
    }

    /// Accepts pending query connections, at most [`ACCEPT_MAX`]. More may be pending; the socket stays readable then.
    pub(super) fn accept_queries(&mut self, id: JobId) -> Result<(), RunError> {
        for _ in 0..ACCEPT_MAX {
            let query = self.jobs.get(id).and_then(|job| job.run.queries.as_ref());
            let Some(query) = query else { break };
            match query.socket().listener.accept() {
                Ok(Accepted::Own(stream)) => self.open_aside(stream, id)?,
                Ok(Accepted::Foreign) => {}
                Ok(Accepted::None) => break,
                Err(error) => {
                    if !self.displace(&error)? {
                        self.sinks.print(&format!("warning: paused accepting queries: {error}"));
                        let now = self.now();
                        let query = self.jobs.get_mut(id).and_then(|job| job.run.queries.as_mut());
                        query.into_iter().for_each(|query| query.pause(&self.poller, now));
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
        driver.make_room(now)?;
        // Without room for it the connection is closed, which its client takes for an answer.
        driver.open_query(stream.into(), job, now, &self.poller)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hydrant_reactor::local;

    use super::*;

    #[test]
    fn one_connects_by_the_name_that_ranks_are_given() {
        let jobid = format!("test-{}", std::process::id());
        let query = Query::open(&jobid, 0).unwrap();
        assert!(matches!(query.listener.accept(), Ok(Accepted::None)));
        let address = query_address(&jobid, 0);
        let name = address.strip_prefix('@').unwrap();
        let client = local::connect(name).unwrap();
        assert!(matches!(query.listener.accept(), Ok(Accepted::Own(_))), "this user's own connection");
        drop((query, client));
        assert!(local::connect(name).is_err(), "nothing is left behind");
    }
}
