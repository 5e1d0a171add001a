//! Buffer for the bytes of one client, with the rule for handing them to a server.

use super::{Consumed, Input};
use crate::ids::ConnId;

/// Bytes of one connection that the server has not consumed.
///
/// A server leaves incomplete messages in the buffer, and complete ones while too many replies are pending
/// ([`Consumed::again`](super::Consumed::again)). This type keeps track of both. The host reads into
/// [`space`](Inbox::space), calls [`receive`](Inbox::receive) after each read, and [`resume`](Inbox::resume) after each
/// reply that it has sent to the connection.
///
/// The buffer bounds the length of a message. One of [`MESSAGE_BUFFER`](crate::limits::MESSAGE_BUFFER) bytes takes every
/// message that the protocols allow. The server closes a connection whose message does not fit.
///
/// A host that has the bytes in a buffer of its own, such as a socket's, can pass them as
/// [`Input::Bytes`] without this type.
///
/// ```
/// use hydrant_core::server::Inbox;
/// # use hydrant_core::{ConnId, Fault, Input, JobId, JobSpec, Limits, Server, Time, fixed_storage, storage::FixedStorage};
/// # const LIMITS: Limits = Limits { jobs: 1, ranks: 1, conns: 1, keys: 4, kvs_bytes: 256, ..Limits::NONE };
/// # let mut storage: fixed_storage!(LIMITS) = FixedStorage::new();
/// # let mut server = Server::new(LIMITS, storage.lend(), 1)?;
/// # let (now, conn) = (Time(0), ConnId(0));
/// # server.handle(now, Input::RegisterJob(JobSpec::new(JobId(0), "job", 1)))?;
/// # server.handle(now, Input::Opened { conn, job: JobId(0), rank: None })?;
/// let mut inbox = Inbox::new([0; 1024]);
/// // A read from a socket, which ends in the middle of a message.
/// let read = b"cmd=init";
/// inbox.space()[..read.len()].copy_from_slice(read);
/// inbox.receive(conn, read.len(), |input| server.handle(now, input))?;
/// assert_eq!(inbox.space().len(), 1024 - read.len());
/// # Ok::<(), Fault>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Inbox<B> {
    buffer: B,
    /// Bytes held, from the front of the buffer on.
    len: usize,
    /// A complete message waits for a reply to be taken.
    waiting: bool,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Inbox<B> {
    /// Creates an empty inbox. `buffer` may be an array, a vector or a slice. Its content does not matter.
    pub const fn new(buffer: B) -> Inbox<B> {
        Inbox { buffer, len: 0, waiting: false }
    }

    /// Continues an inbox in another buffer, whose front holds its [`held`](Inbox::held) bytes. A host with many
    /// connections can read into one buffer for all, and store only the bytes that are left.
    pub const fn continued(buffer: B, held: usize, waiting: bool) -> Inbox<B> {
        Inbox { buffer, len: held, waiting }
    }

    /// Returns the bytes that the server has not consumed.
    #[must_use]
    pub fn held(&self) -> &[u8] {
        &self.buffer.as_ref()[..self.len]
    }

    /// Returns whether a complete message waits for a reply to be taken, so that [`resume`](Inbox::resume) has an effect.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Returns the free part of the buffer. It is empty while a client sends more requests than it takes replies: the
    /// host must not read from the connection then.
    #[must_use]
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[self.len..]
    }

    /// Passes the bytes held to `handle`, which has the server handle them, after the host has read `len` bytes to the front
    /// of [`space`](Inbox::space).
    ///
    /// # Errors
    /// Those of `handle`.
    ///
    /// # Panics
    /// If `len` is greater than the length of the space.
    pub fn receive<E>(
        &mut self,
        conn: ConnId,
        len: usize,
        handle: impl FnOnce(Input<'_>) -> Result<Consumed, E>,
    ) -> Result<(), E> {
        assert!(len <= self.space().len(), "more bytes were read than there was space for");
        self.len += len;
        let bytes = &self.buffer.as_ref()[..self.len];
        let full = bytes.len() == self.buffer.as_ref().len();
        let consumed = handle(Input::Bytes { conn, bytes, full })?;
        let rest = consumed.bytes as usize;
        self.buffer.as_mut().copy_within(rest..self.len, 0);
        self.len -= rest;
        self.waiting = consumed.again;
        Ok(())
    }

    /// Passes a message that waits for a reply to be taken to `handle` again. Does nothing if there is none. The host calls
    /// this after each [`Output::Bytes`](super::Output::Bytes) for the connection.
    ///
    /// # Errors
    /// Those of `handle`.
    pub fn resume<E>(
        &mut self,
        conn: ConnId,
        handle: impl FnOnce(Input<'_>) -> Result<Consumed, E>,
    ) -> Result<(), E> {
        if self.waiting { self.receive(conn, 0, handle) } else { Ok(()) }
    }
}
