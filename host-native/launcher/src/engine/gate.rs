//! A socket that is listened at, but for a while whenever the system has no room for connections.

use std::os::fd::AsFd;

use super::poller::{Interest, Poller, Token};
use crate::error::RunError;

/// How long it rests, in milliseconds.
const REST: u64 = 100;

/// A listening socket in the event loop.
#[derive(Debug)]
pub(crate) struct Gate<L> {
    listener: L,
    token: Token,
    /// Nothing is accepted until then.
    rest: Option<u64>,
}

impl<L: AsFd> Gate<L> {
    /// Has the event loop say `token` when somebody comes.
    pub(crate) fn open(listener: L, token: Token, poller: &Poller) -> Result<Gate<L>, RunError> {
        poller.add(&listener, token, Interest::Read).map_err(RunError::system("epoll"))?;
        Ok(Gate { listener, token, rest: None })
    }

    pub(crate) fn listener(&self) -> &L {
        &self.listener
    }

    /// There is no room: nobody is listened to for a while, who comes waits.
    pub(crate) fn rest(&mut self, poller: &Poller, now: u64) {
        poller.remove(&self.listener);
        self.rest = Some(now + REST);
    }

    /// When it has to be [resumed](Gate::resume).
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.rest
    }

    /// Listens again once the rest is over.
    pub(crate) fn resume(&mut self, poller: &Poller, now: u64) -> Result<(), RunError> {
        if self.rest.is_some_and(|at| at <= now) {
            self.rest = None;
            poller.add(&self.listener, self.token, Interest::Read).map_err(RunError::system("epoll"))?;
        }
        Ok(())
    }
}
