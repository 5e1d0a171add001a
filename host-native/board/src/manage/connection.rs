//! One end of a management connection: buffered records over a non-blocking socket.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hydrant_core::manage::{self, BadRecord, PREFIX, RECORD_MAX};
use hydrant_core::server::call;
use hydrant_core::server::remote::next_node_record;
use hydrant_noise::Forged;

use super::noise::Channel;
use super::secret::Secret;

/// Bytes that may wait for the other side to read.
const OUTBOX_MAX: usize = 1 << 20;
/// Maximum number of received bytes that are not handled yet. It holds a call of the longest kind, or some records of a
/// recording. A faster peer is stopped by flow control.
pub const INBOX_MAX: usize = call::BYTES_MAX + 4096;

/// A management connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    inbox: VecDeque<u8>,
    outbox: VecDeque<u8>,
    /// The peer has closed the connection.
    ended: bool,
    /// Encryption, if both ends have a secret.
    channel: Option<Channel>,
    /// Received bytes of an incomplete frame.
    sealed: Vec<u8>,
}

/// Error that ends a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The other side has closed it.
    #[error("it closed the connection")]
    Closed,
    /// The received bytes are not a record.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// The other side does not read.
    #[error("it does not read its records")]
    Stalled,
    /// The other side has read nothing for this time.
    #[error("it has read none of its records for {} s", .0.as_secs_f64())]
    Unread(Duration),
    /// The other side has sent no request in time.
    #[error("no request in time")]
    Silent,
    /// The connection had to make room for another.
    #[error("no handshake, and its place was needed")]
    Displaced,
    /// The other side has another secret, or none.
    #[error("it does not have the same secret")]
    Secret,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Forged> for ConnectionError {
    fn from(_: Forged) -> ConnectionError {
        ConnectionError::Secret
    }
}

impl Connection {
    /// A server's end on a connected socket, which becomes non-blocking. With a secret, only hosts that have it are heard.
    ///
    /// # Errors
    /// The socket's options cannot be set.
    pub fn of_server(stream: TcpStream, secret: Option<&Secret>) -> io::Result<Connection> {
        let mut connection = Connection::new(stream)?;
        connection.channel = secret.map(Channel::server);
        Ok(connection)
    }

    /// A host's end on a connected socket, which becomes non-blocking. With a secret, only a server that has it is heard.
    ///
    /// # Errors
    /// The socket's options cannot be set.
    pub fn of_host(stream: TcpStream, secret: Option<&Secret>) -> io::Result<Connection> {
        let mut connection = Connection::new(stream)?;
        connection.channel = secret.map(|secret| Channel::host(secret, &mut connection.outbox));
        Ok(connection)
    }

    fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (inbox, outbox) = (VecDeque::new(), VecDeque::new());
        Ok(Connection { stream, inbox, outbox, ended: false, channel: None, sealed: Vec::new() })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Receives pending bytes, as far as the buffer has room.
    ///
    /// # Errors
    /// The socket failed, or the other side does not have the same secret.
    pub fn fill(&mut self) -> Result<(), ConnectionError> {
        let mut buffer = [0; 4096];
        while !self.ended && self.inbox.len() < INBOX_MAX {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(len) => match &mut self.channel {
                    None => self.inbox.extend(&buffer[..len]),
                    Some(channel) => {
                        self.sealed.extend_from_slice(&buffer[..len]);
                        channel.open(&mut self.sealed, &mut self.inbox, &mut self.outbox)?;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The handshake has bytes to send.
        if self.channel.is_some() { self.flush() } else { Ok(()) }
    }

    /// Returns the bytes that have been received and not consumed.
    pub fn received(&mut self) -> &[u8] {
        self.inbox.make_contiguous()
    }

    /// Drops the first `len` received bytes.
    pub fn consume(&mut self, len: usize) {
        self.inbox.drain(..len);
    }

    /// Copies the next received record into `record`. Returns false if none is complete.
    ///
    /// # Errors
    /// The record is too long, or the other side has closed the connection and no record is left.
    pub fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, ConnectionError> {
        self.copy_next(record, manage::next)
    }

    /// Like [`Connection::next`], for a record of a node of at most `max` bytes.
    ///
    /// # Errors
    /// Those of [`Connection::next`].
    pub fn next_of_node(&mut self, record: &mut Vec<u8>, max: usize) -> Result<bool, ConnectionError> {
        self.copy_next(record, |bytes| next_node_record(bytes, max))
    }

    fn copy_next(
        &mut self,
        record: &mut Vec<u8>,
        find: impl FnOnce(&[u8]) -> Result<Option<(&[u8], usize)>, BadRecord>,
    ) -> Result<bool, ConnectionError> {
        let bytes = self.inbox.make_contiguous();
        match find(bytes)? {
            Some((found, len)) => {
                record.clear();
                record.extend_from_slice(found);
                self.inbox.drain(..len);
                Ok(true)
            }
            None if self.ended => Err(ConnectionError::Closed),
            None => Ok(false),
        }
    }

    /// Returns whether the peer has closed the connection.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Sends a record, as far as the socket accepts it. [`Connection::flush`] sends the rest.
    ///
    /// # Errors
    /// Those of [`Connection::send_encoded`], or the record is too long.
    pub fn send(&mut self, what: &impl serde::Serialize) -> Result<(), ConnectionError> {
        let mut buffer = [0; PREFIX + RECORD_MAX];
        let record = manage::encode(what, &mut buffer)?;
        self.send_encoded(record)
    }

    /// Sends an encoded record, as far as the socket accepts it. [`Connection::flush`] sends the rest.
    ///
    /// # Errors
    /// The socket failed, or more than 1 MiB waits for it.
    pub fn send_encoded(&mut self, record: &[u8]) -> Result<(), ConnectionError> {
        self.send_unbounded(record)?;
        if self.outbox.len() > OUTBOX_MAX { Err(ConnectionError::Stalled) } else { Ok(()) }
    }

    /// Sends a record as [`Connection::send_encoded`], to a peer that may be far behind. The caller bounds the bytes that wait.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send_unbounded(&mut self, record: &[u8]) -> Result<(), ConnectionError> {
        match &mut self.channel {
            None => self.outbox.extend(record),
            Some(channel) => channel.seal(record, &mut self.outbox)?,
        }
        self.flush()
    }

    /// Returns the number of bytes that wait for the socket.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Sends pending bytes, as far as the socket accepts them.
    ///
    /// # Errors
    /// The socket failed.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        while !self.outbox.is_empty() {
            match self.stream.write(self.outbox.as_slices().0) {
                Ok(len) => drop(self.outbox.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns whether bytes wait for the socket.
    pub fn is_blocked(&self) -> bool {
        !self.outbox.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::manage::Request;
    use std::net::TcpListener;

    /// A peer that sends without end and omits the handshake.
    #[test]
    fn what_is_taken_in_at_once_has_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut speaker = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut link = Connection::new(listener.accept().unwrap().0).unwrap();
        let mut buffer = [0; PREFIX + RECORD_MAX];
        let said = manage::encode(&Request::Board, &mut buffer).unwrap().repeat(INBOX_MAX);
        let len = said.len();
        let speaker = std::thread::spawn(move || speaker.write_all(&said).map(|()| speaker));
        let (mut record, mut taken) = (Vec::new(), 0);
        while taken < len {
            link.fill().unwrap();
            assert!(link.inbox.len() < INBOX_MAX + 4096, "{} bytes", link.inbox.len());
            while link.next(&mut record).unwrap() {
                taken += PREFIX + record.len();
            }
        }
        drop(speaker.join().unwrap().unwrap());
    }
}
