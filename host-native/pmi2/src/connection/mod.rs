//! Requests of several threads under way at once on one connection.
//!
//! A thread sends its request and waits for the reply. Whoever finds that nobody reads, reads for all: it hands each
//! reply to its owner and, once it has its own, leaves the reading to somebody who still waits.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};

use hydrant_core::client::{self, Client, Identity, SESSION_MAX, Session, Start, Ticket};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::wire::frame::Framing;
use hydrant_core::wire::{Command, Failure, Reply, Text, Unsent, next_frame, v2};

use crate::environment::{Environment, Place};
use crate::error::Error;
use crate::transport::Transport;

/// A conversation with the server, introduced.
pub(crate) struct Connection {
    transport: Transport,
    /// Held while a request is written and sent. Taken before `shared`, never after it.
    outgoing: Mutex<Box<[u8]>>,
    shared: Mutex<Shared>,
    changed: Condvar,
}

struct Shared {
    session: Session,
    /// Received, and not yet handed to anybody.
    input: Vec<u8>,
    /// Whole replies that wait for their owners.
    replies: [Option<Vec<u8>>; SESSION_MAX],
    reading: bool,
    /// Nothing will come any more.
    ended: bool,
}

fn message_buffer() -> Box<[u8]> {
    vec![0; MESSAGE_MAX as usize].into_boxed_slice()
}

fn unsent(error: client::Error) -> Error {
    match error {
        client::Error::Unsent(Unsent::DoesNotFit) => Error::TooLong,
        other => Error::Client(other),
    }
}

impl Connection {
    /// Introduces this process to the server at the other end.
    pub(crate) fn introduce(
        transport: Transport,
        environment: &Environment,
    ) -> Result<(Connection, Identity), Error> {
        let start = match environment.place {
            Place::Fd { rank, size, .. } => Start::Fd { rank, size },
            Place::Port { id, .. } => Start::Port { id },
            Place::Alone => Start::Fd { rank: 0, size: 1 },
        };
        let mut client = Client::new(hydrant_core::wire::Protocol::V2, start);
        let jobid = environment.jobid.as_deref().filter(|_| environment.place != Place::Alone);
        let (mut input, mut outgoing) = (Vec::new(), message_buffer());
        while let Some(bytes) = client.introduce_to(jobid.map(Text::from), &mut outgoing).map_err(unsent)? {
            transport.send(bytes)?;
            loop {
                if let Some(received) = client.receive(&input).map_err(Error::Client)? {
                    let refusal = refusal(&received.reply);
                    let consumed = received.consumed as usize;
                    refusal.map_or(Ok(()), Err)?;
                    input.drain(..consumed);
                    break;
                }
                transport.receive(&mut input)?;
            }
        }
        let identity = client.identity().ok_or(Error::Client(client::Error::OutOfOrder))?;
        let session = Session::new(&client).map_err(Error::Client)?;
        let replies = [const { None }; SESSION_MAX];
        let shared = Shared { session, input, replies, reading: false, ended: false };
        let (outgoing, shared) = (Mutex::new(outgoing), Mutex::new(shared));
        Ok((Connection { transport, outgoing, shared, changed: Condvar::new() }, identity))
    }

    /// Asks, and reads the reply by `read`, which gives `None` for one that does not belong to the command.
    pub(crate) fn ask<R>(
        &self,
        command: &Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, Error> {
        let Some(ticket) = self.send(command)? else { return Err(Error::Unexpected(command.op())) };
        let message = self.reply(ticket)?;
        let unexpected = || Error::Unexpected(command.op());
        let frame = next_frame(&message, Framing::Counted).ok().flatten().ok_or_else(unexpected)?;
        let answer = v2::decode_reply(&frame).map_err(|_| unexpected())?;
        match refusal(&answer.reply) {
            Some(error) => Err(error),
            None => read(&answer.reply).ok_or_else(unexpected),
        }
    }

    /// Asks for what has no result.
    pub(crate) fn tell(&self, command: &Command<'_>) -> Result<(), Error> {
        self.ask(command, |_| Some(()))
    }

    /// Sends an abort, which nobody answers.
    pub(crate) fn abort(&self, world: bool, message: &[u8]) -> Result<(), Error> {
        self.send(&Command::Abort { code: None, world, message: Text::plain(message) }).map(drop)
    }

    /// Tells the server that this process is done, and closes whatever it says.
    pub(crate) fn finalize(&self) -> Result<(), Error> {
        let said = self.tell(&Command::Finalize);
        self.transport.close();
        said
    }

    fn lock(&self) -> Result<MutexGuard<'_, Shared>, Error> {
        self.shared.lock().map_err(|_| Error::Panicked)
    }

    /// Sends a request as soon as the session has room for it.
    fn send(&self, command: &Command<'_>) -> Result<Option<Ticket>, Error> {
        loop {
            let mut outgoing = self.outgoing.lock().map_err(|_| Error::Panicked)?;
            let mut shared = self.lock()?;
            if shared.ended {
                return Err(Error::Closed);
            }
            match shared.session.request(command, &mut outgoing) {
                Ok((ticket, bytes)) => {
                    drop(shared);
                    let sent = self.transport.send(bytes);
                    if sent.is_err() {
                        self.end();
                    }
                    return sent.map(|()| ticket);
                }
                Err(client::Error::Busy) => {
                    // Who has a reply coming is there to read it. Others may send meanwhile.
                    drop(outgoing);
                    drop(self.changed.wait(shared).map_err(|_| Error::Panicked)?);
                }
                Err(error) => return Err(unsent(error)),
            }
        }
    }

    /// Nothing more can be sent or received.
    fn end(&self) {
        if let Ok(mut shared) = self.lock() {
            shared.ended = true;
        }
        self.transport.close();
        self.changed.notify_all();
    }

    /// Waits for the reply of that ticket.
    fn reply(&self, ticket: Ticket) -> Result<Vec<u8>, Error> {
        let mut shared = self.lock()?;
        loop {
            if let Some(reply) = shared.replies[ticket.index()].take() {
                shared.session.release(ticket);
                self.changed.notify_all();
                return Ok(reply);
            }
            if shared.ended {
                return Err(Error::Closed);
            }
            if shared.reading {
                shared = self.changed.wait(shared).map_err(|_| Error::Panicked)?;
                continue;
            }
            shared.reading = true;
            let mut input = mem::take(&mut shared.input);
            drop(shared);
            let received = self.transport.receive(&mut input);
            shared = self.lock()?;
            shared.reading = false;
            shared.input = input;
            let handed_out = received.and_then(|()| shared.hand_out());
            shared.ended |= handed_out.is_err();
            self.changed.notify_all();
            if shared.replies[ticket.index()].is_none() {
                handed_out?;
            }
        }
    }
}

impl Shared {
    /// Gives every whole reply to its owner.
    fn hand_out(&mut self) -> Result<(), Error> {
        while self.session.is_waiting() {
            let Some(settled) = self.session.receive(&self.input).map_err(Error::Client)? else { break };
            let (ticket, len) = (settled.ticket, settled.received.consumed as usize);
            self.replies[ticket.index()] = Some(self.input.drain(..len).collect());
        }
        Ok(())
    }
}

/// The error that a reply is, if it is one.
fn refusal(reply: &Reply<'_>) -> Option<Error> {
    let Reply::Refused(op, failure) = reply else { return None };
    let (rc, text) = match failure {
        Failure::Refusal(refusal) => (refusal.rc(), refusal.to_string()),
        Failure::Remote(rc, text) => (*rc, string(text)),
    };
    Some(Error::Refused { op: *op, rc, text })
}

/// A text as a string, escapes undone.
pub(crate) fn string(text: &Text<'_>) -> String {
    let bytes: Vec<u8> = text.parts().flatten().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
