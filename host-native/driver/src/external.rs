//! External connections: those whose bytes the owner of a driver carries.

use hydrant_core::{Backend, ConnId, Fault, Input, Time};

use crate::{BackendError, Driver};

impl<B> Driver<B>
where
    B: Backend + ?Sized,
{
    /// Passes an input of an external connection to the backend: [`Input::Opened`] or [`Input::OpenedQuery`] with a number that
    /// is not open, then [`Input::Blocked`], [`Input::Writable`], [`Input::Verified`] and [`Input::Closed`]. Other inputs are
    /// passed as [`handle`](Driver::handle) does. [`poll`](Driver::poll) returns the replies.
    ///
    /// # Errors
    /// The backend did not accept the input, or the number is not below the limit.
    pub fn handle_external(&mut self, now: u64, input: Input<'_>) -> Result<(), BackendError> {
        if let Input::Opened { conn, .. } | Input::OpenedQuery { conn, .. } = input
            && conn.0 >= self.backend.limits().conns
        {
            return Err(Fault::NoSuchConn.into());
        }
        self.handle(now, input)?;
        match input {
            Input::Opened { conn, job, .. } | Input::OpenedQuery { conn, job } => {
                self.conns.open_external(conn.0, job);
            }
            Input::Closed { conn } => self.conns.close(conn.0),
            Input::Blocked { conn } | Input::Writable { conn } => {
                if let Some(open) = self.conns.get_mut(conn.0) {
                    open.set_blocked(matches!(input, Input::Blocked { .. }));
                    self.conns.deferred.push(conn.0);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether a connection is open and a socket of the driver.
    pub fn is_socket(&self, conn: ConnId) -> bool {
        self.conns.get(conn.0).is_some_and(|open| open.socket().is_some())
    }

    /// Returns how many bytes of an external connection the next [`receive`](Driver::receive) takes. None if there is no such
    /// connection.
    pub fn room(&self, conn: ConnId) -> Option<usize> {
        let open = self.conns.get(conn.0).filter(|open| open.socket().is_none())?;
        Some(self.external_room().saturating_sub(open.held()))
    }

    /// Passes bytes of an external connection to the backend, at most as many as it has [`room`](Driver::room) for. Those that
    /// the backend does not consume are kept.
    ///
    /// # Errors
    /// There is no such connection, or the backend failed.
    ///
    /// # Panics
    /// If there are more bytes than room.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8], now: u64) -> Result<(), BackendError> {
        let room = self.external_room();
        let Some(open) = self.conns.get_mut(conn.0).filter(|open| open.socket().is_none()) else {
            return Err(Fault::NoSuchConn.into());
        };
        let mut inbox = open.inbox(&mut self.buffers[..room]);
        inbox.space()[..bytes.len()].copy_from_slice(bytes);
        self.traffic.bytes_in = self.traffic.bytes_in.saturating_add(bytes.len() as u64);
        inbox.receive(conn, bytes.len(), |input| self.backend.handle(Time(now), input))?;
        open.keep(&inbox);
        Ok(())
    }

    /// Returns the length of the buffer for an external connection: that of the longest message.
    fn external_room(&self) -> usize {
        self.read_room().min(self.backend.limits().message_max() as usize)
    }
}
