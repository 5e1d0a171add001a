//! Backend of a run: its server, with the recording, the profile and the topology file in front of it.

use std::cell::RefCell;
use std::rc::Rc;

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, BackendError, Input, Limits, Output, Server, Time};
use hydrant_record::RecordingFile;
use hydrant_timeline::Live;

use crate::backend::{BackendBuilder, FailedBackend, Replaceable};
use crate::error::RunError;
use crate::topology_file::SharedTopologyFile;

/// Reader of a server's inputs and outputs, which its backend and its node share.
pub(crate) type SharedLive = Rc<RefCell<Live>>;

/// Backend of a run.
pub(crate) struct RunBackend<'s> {
    server: Box<dyn Replaceable + 's>,
    /// Recording of all inputs and outputs, also of a server that takes the place of another.
    recording: Option<Rc<RecordingFile>>,
    /// Times of all requests, for the profile.
    live: Option<SharedLive>,
    /// Requests for this file are deferred until it is written.
    topology: Option<SharedTopologyFile>,
}

impl<'s> RunBackend<'s> {
    /// Wraps a server, which has had no input.
    pub(crate) fn new(
        server: Box<dyn Replaceable + 's>,
        recording: Option<&Rc<RecordingFile>>,
        live: Option<&SharedLive>,
        topology: Option<&SharedTopologyFile>,
    ) -> RunBackend<'s> {
        RunBackend { server, recording: recording.cloned(), live: live.cloned(), topology: topology.cloned() }
    }

    /// A stub in place of a failed server. It is not recorded.
    pub(crate) fn failed(limits: Limits) -> RunBackend<'s> {
        RunBackend { server: Box::new(FailedBackend(limits)), recording: None, live: None, topology: None }
    }

    /// Puts another server in the place of the present one, which goes on if that fails.
    pub(crate) fn replace_server(&mut self, builder: &BackendBuilder) -> Result<(), RunError> {
        let successor = builder.restore(self.server.save()?)?;
        std::mem::replace(&mut self.server, successor).retire();
        Ok(())
    }
}

impl Backend for RunBackend<'_> {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        if let Some(file) = &self.topology
            && let Input::Bytes { conn, bytes, .. } = input
            && file.borrow_mut().defer(conn, bytes)
        {
            return Ok(Consumed { bytes: 0, again: true });
        }
        if let Some(live) = &self.live {
            live.borrow_mut().input(now, input);
        }
        let result = match &self.recording {
            Some(file) => file.handle(&mut *self.server, now, input),
            None => self.server.handle(now, input),
        };
        if let Some((live, consumed)) = self.live.as_ref().zip(result.as_ref().ok()) {
            live.borrow_mut().took(*consumed);
        }
        result
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        let output = match &self.recording {
            Some(file) => file.poll(&mut *self.server, buf),
            None => self.server.poll(buf),
        };
        if let (Some(live), Ok(Some(output))) = (&self.live, &output) {
            live.borrow_mut().output(output);
        }
        output
    }

    fn poll_at(&self) -> Option<Time> {
        self.server.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.server.limits()
    }

    fn bytes_max(&self) -> usize {
        self.server.bytes_max()
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        self.server.inspect()
    }
}
