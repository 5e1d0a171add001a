//! The server of a process that was started without one: a job of one rank.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use hydrant_core::limits::OUTPUT_MAX;
use hydrant_core::server::JobSpec;
use hydrant_core::storage::OwnedStorage;
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Server, Time};

use crate::error::Error;

/// Room for what one process may put. Memory that is not written to costs nothing.
const LIMITS: Limits = Limits {
    jobs: 1,
    ranks: 1,
    conns: 1,
    keys: 16 * 1024,
    kvs_bytes: 16 << 20,
    names: 64,
    psets: 8,
    ..Limits::NONE
};

const CONN: ConnId = ConnId(0);
const JOB: JobId = JobId(0);

/// A server in this process.
pub(crate) struct Within {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    server: Server<'static>,
    started: Instant,
    /// Sent to the server and not consumed yet.
    input: Vec<u8>,
    /// Said by the server and not received yet.
    output: Vec<u8>,
    closed: bool,
}

impl Within {
    pub(super) fn new() -> Result<Within, Error> {
        // It stays for the rest of the process, which initializes PMI once.
        let storage = Box::leak(Box::new(OwnedStorage::new(&LIMITS)));
        let mut server = Server::new(LIMITS, storage.lend(), 0).map_err(Error::Within)?;
        let name = format!("singleton_{}", std::process::id());
        for input in [
            Input::RegisterJob(JobSpec::new(JOB, &name, 1)),
            Input::Attr { job: JOB, key: b"PMI_process_mapping", value: b"(vector,(0,1,1))" },
            Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) },
        ] {
            server.handle(Time(0), input).map_err(Error::Within)?;
        }
        let (input, output) = (Vec::new(), Vec::new());
        let state = State { server, started: Instant::now(), input, output, closed: false };
        Ok(Within { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.state.lock().map_err(|_| Error::Panicked)
    }

    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.input.extend_from_slice(bytes);
        state.serve()?;
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let mut state = self.lock()?;
        while state.output.is_empty() {
            if state.closed {
                return Err(Error::Closed);
            }
            state = self.changed.wait(state).map_err(|_| Error::Panicked)?;
        }
        buffer.append(&mut state.output);
        Ok(())
    }

    pub(super) fn close(&self) {
        if let Ok(mut state) = self.lock() {
            state.closed = true;
        }
        self.changed.notify_all();
    }
}

impl State {
    /// Lets the server answer all that it can.
    fn serve(&mut self) -> Result<(), Error> {
        let now = Time(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut again = true;
        while again && !self.closed {
            let input = Input::Bytes { conn: CONN, bytes: &self.input, full: false };
            let consumed = self.server.handle(now, input).map_err(Error::Within)?;
            self.input.drain(..consumed.bytes as usize);
            again = consumed.again;
            let mut buf = [0; OUTPUT_MAX];
            while let Some(output) = self.server.poll(&mut buf) {
                match output {
                    Output::Bytes { bytes, .. } => self.output.extend_from_slice(bytes),
                    Output::Close { .. } => self.closed = true,
                    // What a host does to other processes; there is only this one, which ends itself on abort.
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
