//! Plugin as a backend of a driver.

use hydrant_core::server::{ClientBytes, Consumed};
use hydrant_core::{Backend, Input, Limits, Output, Time};
use hydrant_driver::BackendError;

use crate::{Error, Plugin};

/// A plugin with the error type of backends that are chosen at run time, as
/// [`NativeBackend`](hydrant_driver::NativeBackend) for a server in this process.
#[derive(Debug)]
pub struct PluginBackend(pub Plugin);

impl From<Error> for BackendError {
    fn from(error: Error) -> BackendError {
        match error {
            Error::Fault(why) => why.into(),
            Error::Plugin(why) => BackendError::Other(Box::new(why)),
        }
    }
}

impl Backend for PluginBackend {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.0.handle(now, input)?)
    }

    fn handle_bytes(&mut self, now: Time, received: &mut [ClientBytes<'_>]) -> Result<(), BackendError> {
        Ok(self.0.handle_bytes(now, received)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(self.0.poll(buf)?)
    }

    fn poll_at(&self) -> Option<Time> {
        self.0.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }
}
