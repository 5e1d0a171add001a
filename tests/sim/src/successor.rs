//! Server whose place is taken by one that is restored from its snapshot.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Deref;

use hydrant_core::server::Consumed;
use hydrant_core::{Fault, Input, Output, Server, Time};
use hydrant_driver::MappedStorage;

/// A server, and at most one successor.
#[derive(Debug)]
pub struct Succeeded<'m> {
    server: Server<'m>,
    /// Step before which the successor is restored, and its memory.
    successor: Option<(u64, &'m mut MappedStorage)>,
    /// Inputs and polls so far.
    steps: u64,
    /// Digest of all outputs.
    digest: u64,
}

impl<'m> Succeeded<'m> {
    /// A server without a successor.
    pub fn new(server: Server<'m>) -> Succeeded<'m> {
        Succeeded { server, successor: None, steps: 0, digest: 0 }
    }

    /// Restores a successor before a step.
    pub fn succeed_at(&mut self, step: u64, memory: &'m mut MappedStorage) {
        self.successor = Some((step, memory));
    }

    /// Returns the number of inputs and polls so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns a digest of all outputs so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Applies an input.
    ///
    /// # Errors
    /// Those of [`Server::handle`].
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        self.step();
        self.server.handle(now, input)
    }

    /// Returns the next output.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Option<Output<'b>> {
        self.step();
        let output = self.server.poll(buf).expect("the buffer is long enough")?;
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.digest);
        hasher.write(&postcard::to_stdvec(&output).expect("outputs are records"));
        self.digest = hasher.finish();
        Some(output)
    }

    fn step(&mut self) {
        if let Some((_, memory)) = self.successor.take_if(|(at, _)| *at == self.steps) {
            let saved = snapshot(&self.server);
            let restored = Server::restore(&saved, memory.lend());
            self.server = restored.unwrap_or_else(|why| panic!("a state cannot be restored: {why}"));
            assert!(snapshot(&self.server) == saved, "the successor is in another state");
        }
        self.steps += 1;
    }
}

impl<'m> Deref for Succeeded<'m> {
    type Target = Server<'m>;

    fn deref(&self) -> &Server<'m> {
        &self.server
    }
}

/// Returns the state of a server as bytes.
pub fn snapshot(server: &Server<'_>) -> Vec<u8> {
    let mut state = vec![0; server.snapshot_len()];
    let len = server.snapshot(&mut state).expect("its length was asked for").len();
    assert_eq!(len, state.len());
    state
}
