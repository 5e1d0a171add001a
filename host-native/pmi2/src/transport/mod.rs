//! Bytes to a server and back: through a socket, or to the server within.

mod within;

use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::environment::Place;
use crate::error::Error;
use within::Within;

/// One connection. Sending and receiving may happen at the same time, each by one thread.
pub(crate) enum Transport {
    Socket(OwnedFd),
    Within(Box<Within>),
}

/// What is read at once at most, in bytes.
const READ: usize = 16 * 1024;

impl Transport {
    /// Goes to the server, wherever it is.
    pub(crate) fn open(place: &Place) -> Result<Transport, Error> {
        match place {
            Place::Fd { fd, .. } => {
                // SAFETY: not -1, by `Environment::read`, and borrowed for calls that fail where it is not open.
                let inherited = unsafe { BorrowedFd::borrow_raw(*fd) };
                // Programs that this one starts have no business with it, and would keep it open.
                let closing =
                    fcntl_getfd(inherited).and_then(|flags| fcntl_setfd(inherited, flags | FdFlags::CLOEXEC));
                closing.map_err(|_| Error::NotOpen(*fd))?;
                // SAFETY: open, and `PMI_FD` hands it over to the PMI library of this process.
                Ok(Transport::Socket(unsafe { OwnedFd::from_raw_fd(*fd) }))
            }
            Place::Port { address, .. } => {
                let connect = || {
                    let stream = TcpStream::connect(address)?;
                    // A request is one small packet, and its sender waits for the reply.
                    stream.set_nodelay(true)?;
                    Ok(stream)
                };
                let stream = connect().map_err(|why| Error::Connect { address: address.clone(), why })?;
                Ok(Transport::Socket(stream.into()))
            }
            Place::Alone => Ok(Transport::Within(Box::new(Within::new()?))),
        }
    }

    /// Sends all of it.
    pub(crate) fn send(&self, mut bytes: &[u8]) -> Result<(), Error> {
        let socket = match self {
            Transport::Socket(socket) => socket,
            Transport::Within(within) => return within.send(bytes),
        };
        while !bytes.is_empty() {
            // Without NOSIGNAL a server that is gone would end the program by SIGPIPE.
            let sent = retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL))?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Waits for bytes and puts them behind those in `buffer`.
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let socket = match self {
            Transport::Socket(socket) => socket,
            Transport::Within(within) => return within.receive(buffer),
        };
        buffer.reserve(READ);
        match retry_on_intr(|| recv(socket, spare_capacity(buffer), RecvFlags::empty())) {
            // A server that goes with requests of ours unread resets the connection.
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(Error::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the conversation, also for a thread that waits for bytes.
    pub(crate) fn close(&self) {
        match self {
            // One that the server has closed already is as good.
            Transport::Socket(socket) => drop(shutdown(socket, Shutdown::Both)),
            Transport::Within(within) => within.close(),
        }
    }
}
