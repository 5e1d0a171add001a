//! Connection that several threads use at the same time.
//!
//! A thread sends its request and waits for the reply. If no other thread is receiving, it receives for all: it passes
//! each reply to the thread that owns it. When its own reply has arrived, another waiting thread continues.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};

use hydrant_wire::client::{self, Identity, SESSION_MAX, Session, Ticket};
use hydrant_wire::frame::Framing;
use hydrant_wire::limits::ESCAPES_ATTR;
use hydrant_wire::{Command, Op, Reply, Text, next_frame, v2};

use crate::text::refusal;
use crate::{Connection, Error, Socket, Transport};

/// A PMI-2 connection whose requests come from several threads.
///
/// At most [`SESSION_MAX`] requests are outstanding, and at most `SESSION_MAX - 1` of those that wait for other
/// processes (fence, ring, spawn). A thread that exceeds a limit waits for a reply to another thread.
pub struct SharedConnection<T = Socket> {
    transport: T,
    identity: Identity,
    /// Buffer of the encoded request; held while a request is encoded and sent. Lock order: before `shared`.
    output: Mutex<Box<[u8]>>,
    shared: Mutex<Shared>,
    changed: Condvar,
}

struct Shared {
    session: Session,
    /// Received bytes that no reply has consumed.
    input: Vec<u8>,
    /// Whole replies that their threads have not taken yet.
    replies: [Option<Vec<u8>>; SESSION_MAX],
    /// Whether a thread is receiving.
    receiving: bool,
    /// Whether the connection has ended.
    ended: bool,
}

impl<T: Transport> SharedConnection<T> {
    /// Takes over a PMI-2 connection on which no request but the handshake was sent.
    ///
    /// # Errors
    /// [`Error::Protocol`] for PMI-1, whose requests have no thread ids.
    pub fn new(connection: Connection<T>) -> Result<SharedConnection<T>, Error> {
        let identity = connection.identity();
        let Connection { transport, client, input, output, .. } = connection;
        let session = Session::new(&client)?;
        let replies = [const { None }; SESSION_MAX];
        let shared = Shared { session, input, replies, receiving: false, ended: false };
        let (output, shared) = (Mutex::new(output), Mutex::new(shared));
        Ok(SharedConnection { transport, identity, output, shared, changed: Condvar::new() })
    }

    /// Returns rank, size and program number of this process.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Sends a request, waits for the reply and returns what `read` takes from it. `read` returns `None` for a reply
    /// that does not belong to the command.
    ///
    /// # Errors
    /// All except those of the environment and of connecting.
    pub fn request<R>(
        &self,
        command: &Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, Error> {
        let unexpected = || Error::UnexpectedReply(command.op());
        let ticket = self.send(command)?.ok_or_else(unexpected)?;
        let message = self.reply(ticket)?;
        let frame = next_frame(&message, Framing::Counted).ok().flatten().ok_or_else(unexpected)?;
        let answer = v2::decode_reply(&frame).map_err(|_| unexpected())?;
        match refusal(&answer.reply) {
            Some(error) => Err(error),
            None => read(&answer.reply).ok_or_else(unexpected),
        }
    }

    /// Sends a request that has no result, and waits until the server has confirmed it.
    ///
    /// # Errors
    /// As [`SharedConnection::request`].
    pub fn execute(&self, command: &Command<'_>) -> Result<(), Error> {
        self.request(command, |_| Some(()))
    }

    /// Allows values with NUL if the server reads them. Returns whether it does: only hydrant's do.
    ///
    /// # Errors
    /// As [`SharedConnection::request`].
    pub fn escape_values(&self) -> Result<bool, Error> {
        if self.lock()?.session.escapes_values() {
            return Ok(true);
        }
        let get = Command::GetJobAttr { key: Text::from(ESCAPES_ATTR) };
        let escapes = self.request(&get, |reply| match reply {
            Reply::Found(Op::GetJobAttr, value) => Some(*value == b"1"[..]),
            Reply::Missing(Op::GetJobAttr) => Some(false),
            _ => None,
        })?;
        if escapes {
            self.lock()?.session.escape_values();
        }
        Ok(escapes)
    }

    /// Requests the end of the job (`world`) or reports that this process aborts. There is no reply.
    ///
    /// # Errors
    /// As [`SharedConnection::request`].
    pub fn abort(&self, world: bool, message: &[u8]) -> Result<(), Error> {
        self.send(&Command::Abort { code: None, world, message: Text::plain(message) }).map(drop)
    }

    /// Leaves the job and closes the connection, even if the server refuses.
    ///
    /// # Errors
    /// As [`SharedConnection::request`].
    pub fn finalize(&self) -> Result<(), Error> {
        let result = self.execute(&Command::Finalize);
        self.transport.close();
        result
    }

    fn lock(&self) -> Result<MutexGuard<'_, Shared>, Error> {
        self.shared.lock().map_err(|_| Error::Poisoned)
    }

    /// Sends a request as soon as the session has a free slot.
    fn send(&self, command: &Command<'_>) -> Result<Option<Ticket>, Error> {
        loop {
            let mut output = self.output.lock().map_err(|_| Error::Poisoned)?;
            let mut shared = self.lock()?;
            if shared.ended {
                return Err(Error::Closed);
            }
            match shared.session.request(command, &mut output) {
                Ok((ticket, bytes)) => {
                    drop(shared);
                    let result = self.transport.send(bytes);
                    if result.is_err() {
                        self.end();
                    }
                    return result.map(|()| ticket);
                }
                Err(client::Error::Busy) => {
                    // A thread with an outstanding request receives. Other threads may send meanwhile.
                    drop(output);
                    drop(self.changed.wait(shared).map_err(|_| Error::Poisoned)?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Marks the connection as ended and wakes all threads.
    fn end(&self) {
        if let Ok(mut shared) = self.lock() {
            shared.ended = true;
        }
        self.transport.close();
        self.changed.notify_all();
    }

    /// Waits for the reply to the request of `ticket`.
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
            if shared.receiving {
                shared = self.changed.wait(shared).map_err(|_| Error::Poisoned)?;
                continue;
            }
            shared.receiving = true;
            let mut input = mem::take(&mut shared.input);
            drop(shared);
            let received = self.transport.receive(&mut input);
            shared = self.lock()?;
            shared.receiving = false;
            shared.input = input;
            let result = received.and_then(|()| shared.distribute());
            shared.ended |= result.is_err();
            self.changed.notify_all();
            if shared.replies[ticket.index()].is_none() {
                result?;
            }
        }
    }
}

impl Shared {
    /// Moves every whole reply from the input to its slot.
    fn distribute(&mut self) -> Result<(), Error> {
        while self.session.is_waiting() {
            let Some(completed) = self.session.receive(&self.input)? else { break };
            let (ticket, len) = (completed.ticket, completed.received.consumed as usize);
            self.replies[ticket.index()] = Some(self.input.drain(..len).collect());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
