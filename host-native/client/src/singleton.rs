//! PMI server inside the process, for a process that was started without a process manager (a singleton).

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use hydrant_core::limits::{MESSAGE_BUFFER, OUTPUT_MAX};
use hydrant_core::server::{Inbox, JobSpec};
use hydrant_core::storage::OwnedStorage;
use hydrant_core::{ConnId, Fault, Input, JobId, Limits, Output, Rank, Server, Time};

use crate::{Error, Transport};

/// Capacities for one process. Untouched memory costs nothing.
const LIMITS: Limits = Limits {
    jobs: 1,
    ranks: 1,
    conns: 1,
    keys: 16 * 1024,
    kvs_bytes: 16 << 20,
    groups: 4,
    names: 64,
    psets: 8,
    ..Limits::NONE
};

const CONN: ConnId = ConnId(0);
const JOB: JobId = JobId(0);

/// A server in this process, with a job of one rank. It implements [`Transport`]: [`Transport::send`] runs the server.
pub struct Singleton {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    server: Server<'static>,
    started: Instant,
    /// Bytes sent that the server has not consumed.
    inbox: Inbox<Vec<u8>>,
    /// Bytes of the server that no call has received.
    output: Vec<u8>,
    closed: bool,
}

impl Singleton {
    /// Creates the server and its job.
    ///
    /// # Errors
    /// The core's fault; none is known.
    pub fn new() -> Result<Singleton, Fault> {
        // A process initializes PMI once, so the storage is never freed.
        let storage = Box::leak(Box::new(OwnedStorage::new(&LIMITS)));
        let mut server = Server::new(LIMITS, storage.lend(), 0)?;
        let name = format!("singleton_{}", std::process::id());
        for input in [
            Input::RegisterJob(JobSpec::new(JOB, &name, 1)),
            Input::Attr { job: JOB, key: b"PMI_process_mapping", value: b"(vector,(0,1,1))" },
            Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) },
        ] {
            server.handle(Time(0), input)?;
        }
        let inbox = Inbox::new(vec![0; 2 * MESSAGE_BUFFER]);
        let state = State { server, started: Instant::now(), inbox, output: Vec::new(), closed: false };
        Ok(Singleton { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.state.lock().map_err(|_| Error::Poisoned)
    }
}

impl Transport for Singleton {
    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.serve(bytes)?;
        self.changed.notify_all();
        Ok(())
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let mut state = self.lock()?;
        while state.output.is_empty() {
            if state.closed {
                return Err(Error::Closed);
            }
            state = self.changed.wait(state).map_err(|_| Error::Poisoned)?;
        }
        buffer.append(&mut state.output);
        Ok(())
    }

    fn close(&self) {
        if let Ok(mut state) = self.lock() {
            state.closed = true;
        }
        self.changed.notify_all();
    }
}

impl State {
    /// Passes bytes to the server and collects its output.
    fn serve(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let now = Time(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut rest = bytes;
        while !rest.is_empty() && !self.closed {
            let space = self.inbox.space();
            let len = rest.len().min(space.len());
            if len == 0 {
                return Err(Error::Transport("too many requests wait for replies".into()));
            }
            let (now_sent, later) = rest.split_at(len);
            space[..len].copy_from_slice(now_sent);
            rest = later;
            self.inbox.receive(CONN, len, |input| self.server.handle(now, input)).map_err(transport)?;
            while self.collect()? {
                self.inbox.resume(CONN, |input| self.server.handle(now, input)).map_err(transport)?;
            }
        }
        Ok(())
    }

    /// Collects the output of the server. Returns whether there was a reply.
    fn collect(&mut self) -> Result<bool, Error> {
        let mut buf = [0; OUTPUT_MAX];
        let mut replied = false;
        while let Some(output) = self.server.poll(&mut buf).map_err(|short| Error::Transport(short.into()))? {
            match output {
                Output::Bytes { bytes, .. } => {
                    self.output.extend_from_slice(bytes);
                    replied = true;
                }
                Output::Close { .. } => self.closed = true,
                // Actions on other processes. There are none; an abort ends this process in `PMI2_Abort`.
                _ => {}
            }
        }
        Ok(replied)
    }
}

fn transport(fault: Fault) -> Error {
    Error::Transport(fault.into())
}
