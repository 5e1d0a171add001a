//! Node of a run whose server its host calls: the host keeps the connections of clients and the time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hydrant_board::manage::{Connection, ConnectionError};
use hydrant_core::manage::{BadRecord, decode};
use hydrant_core::server::call::{BYTES_MAX, Call, Callee, call_max, return_max};
use hydrant_core::{Input, Limit, Limits, Server};
use hydrant_driver::MappedStorage;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::Error;

/// Error that ends a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("closed the connection of its host: {0}")]
    Host(#[from] ConnectionError),
}

impl From<BadRecord> for NodeError {
    fn from(why: BadRecord) -> NodeError {
        NodeError::Host(why.into())
    }
}

/// Returns the result of a node, for which it is no error that its host has closed the connection.
pub(crate) fn ended(result: Result<(), NodeError>) -> Result<(), NodeError> {
    match result {
        Err(NodeError::Host(ConnectionError::Closed)) => Ok(()),
        // The host has ended with reports unread.
        Err(NodeError::Host(ConnectionError::Io(why))) if is_closed(&why) => Ok(()),
        result => result,
    }
}

fn is_closed(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Waits until the socket of a host takes bytes, for this time at most.
pub(crate) fn await_reader(link: &Connection, patience: Duration) -> Result<(), ConnectionError> {
    let timeout = patience.try_into().map_err(|_| Errno::INVAL).map_err(io::Error::from)?;
    match poll(&mut [PollFd::new(link.stream(), PollFlags::OUT)], Some(&timeout)) {
        Ok(0) => Err(ConnectionError::Unread(patience)),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(ConnectionError::Io(errno.into())),
    }
}

/// Carries out the calls of a host until it closes the connection, or does not read returns for the time `patience`. `jobs`
/// counts the jobs of all nodes.
pub(crate) fn serve(
    link: Connection,
    limits: &Limits,
    seed: u32,
    patience: Duration,
    jobs: Arc<AtomicUsize>,
) -> Result<(), NodeError> {
    let mut storage = MappedStorage::try_new(limits).map_err(Error::from)?;
    let server = Server::new_zeroed(*limits, storage.lend(), seed).map_err(Error::from)?;
    let buffer = vec![0; return_max(limits)];
    let scratch = vec![0; limits.output_room()];
    let (callee, record) = (Callee::default(), Vec::new());
    let mut called = Called { link, patience, server, callee, jobs, counted: 0, record, buffer, scratch };
    ended(called.run())
}

/// A server and the connection of its host.
struct Called<'s> {
    link: Connection,
    /// Time that a return may stay unread.
    patience: Duration,
    server: Server<'s>,
    callee: Callee,
    /// Number of jobs of all nodes, of which this server has `counted`.
    jobs: Arc<AtomicUsize>,
    counted: usize,
    record: Vec<u8>,
    /// Buffer for returns.
    buffer: Vec<u8>,
    /// Room for an output.
    scratch: Vec<u8>,
}

impl Called<'_> {
    fn run(&mut self) -> Result<(), NodeError> {
        let max = call_max(self.server.limits(), BYTES_MAX);
        loop {
            self.link.flush()?;
            self.link.fill()?;
            // A host waits for the return of a call before the next one.
            while !self.link.is_blocked() && self.link.next_of_node(&mut self.record, max)? {
                let call = decode::<Call<'_>>(&self.record)?;
                let returned =
                    self.callee.carry_out(&mut self.server, &call, &mut self.buffer, &mut self.scratch)?;
                self.link.send_unbounded(returned)?;
                if let Call::Handle { input: Input::RegisterJob(_) | Input::DeregisterJob { .. }, .. } = call
                {
                    count(&self.jobs, &mut self.counted, self.server.used(Limit::Jobs));
                }
            }
            if self.link.is_blocked() {
                await_reader(&self.link, self.patience)?;
                continue;
            }
            match poll(&mut [PollFd::new(self.link.stream(), PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(ConnectionError::Io(errno.into()).into()),
            }
        }
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        count(&self.jobs, &mut self.counted, 0);
    }
}

/// Counts the jobs of a server, of which `counted` are in the number of all jobs.
fn count(all: &AtomicUsize, counted: &mut usize, jobs: u32) {
    all.fetch_add(jobs as usize, Ordering::Relaxed);
    all.fetch_sub(std::mem::replace(counted, jobs as usize), Ordering::Relaxed);
}
