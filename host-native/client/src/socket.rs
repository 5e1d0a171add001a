//! Blocking byte streams to a PMI server.

use std::io;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use hydrant_reactor::{NO_SIGPIPE, ignore_sigpipe, local};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd, retry_on_intr};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, Shutdown, SocketType, recv, send, shutdown};

use crate::Error;
use crate::environment::{QUERY, ServerAddress};

/// A byte stream to a PMI server. One thread may send while another receives.
pub trait Transport: Send + Sync {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The stream failed; part of the bytes may have been sent.
    fn send(&self, bytes: &[u8]) -> Result<(), Error>;

    /// Waits for at least one byte and appends what has arrived to `buffer`.
    ///
    /// # Errors
    /// [`Error::Closed`] if the server closed the stream, or if the stream failed.
    fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error>;

    /// Closes the stream in both directions. A thread that waits in [`Transport::receive`] gets an error.
    fn close(&self);
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        (**self).send(bytes)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        (**self).receive(buffer)
    }

    fn close(&self) {
        (**self).close();
    }
}

/// A connected stream socket: inherited, TCP or Unix.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// Bytes that one call of `recv` reads at most.
const RECEIVE_MAX: usize = 16 * 1024;

impl Socket {
    /// Takes over the inherited socket, or connects to the TCP address. The descriptor is closed on exec.
    ///
    /// # Errors
    /// [`Error::NotOpen`], [`Error::NotSocket`], [`Error::Connect`].
    ///
    /// # Safety
    /// If the address is [`ServerAddress::Inherited`], its descriptor belongs to the caller, and nothing else in the
    /// process uses or closes it.
    pub unsafe fn open(server: &ServerAddress) -> Result<Socket, Error> {
        match server {
            // SAFETY: guaranteed by the caller.
            ServerAddress::Inherited { fd, .. } => unsafe { Socket::inherit(*fd) },
            ServerAddress::Tcp { address, .. } => {
                let connect = || {
                    let stream = TcpStream::connect(address)?;
                    // A request is one small packet, and its sender waits for the reply.
                    stream.set_nodelay(true)?;
                    ignore_sigpipe(&stream)?;
                    Ok(stream)
                };
                let stream = connect().map_err(|error| Error::Connect {
                    variable: "PMI_PORT",
                    address: address.clone(),
                    error,
                })?;
                Ok(Socket(stream.into()))
            }
        }
    }

    /// # Safety
    /// As for [`Socket::open`].
    unsafe fn inherit(fd: RawFd) -> Result<Socket, Error> {
        if fd < 0 {
            return Err(Error::NotOpen(fd));
        }
        // SAFETY: not -1, and borrowed only for calls that fail if it is not open.
        let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
        // Programs that this process starts must not keep the connection open.
        let result =
            fcntl_getfd(inherited).and_then(|flags| fcntl_setfd(inherited, flags | FdFlags::CLOEXEC));
        result.map_err(|_| Error::NotOpen(fd))?;
        if socket_type(inherited) != Ok(SocketType::STREAM) {
            return Err(Error::NotSocket(fd));
        }
        ignore_sigpipe(inherited)?;
        // SAFETY: open, and owned by the caller.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Connects to hydrant's query socket: `@` and the name of a local socket (`HYDRANT_QUERY`). The listening process must run
    /// as this process's effective user.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub fn query(address: &str) -> Result<Socket, Error> {
        let connect = || {
            let name = address.strip_prefix('@').ok_or(io::ErrorKind::InvalidInput)?;
            let stream = local::connect(name)?;
            ignore_sigpipe(&stream)?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: io::Error| Error::Connect {
            variable: QUERY,
            address: address.to_owned(),
            error,
        })?;
        Ok(stream.into())
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Socket {
        Socket(stream.into())
    }
}

impl Transport for Socket {
    fn send(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            // Without the flag, SIGPIPE would end the program if the server has closed the connection.
            let sent = retry_on_intr(|| send(&self.0, bytes, NO_SIGPIPE))?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        buffer.reserve(RECEIVE_MAX);
        match retry_on_intr(|| recv(&self.0, spare_capacity(buffer), RecvFlags::empty())) {
            // A server that closes with unread requests resets the connection.
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(Error::Closed),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn close(&self) {
        // Fails only if the server has closed the connection already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_closed_descriptor_is_reported() {
        let server = ServerAddress::Inherited { fd: 1 << 20, rank: 0, size: Some(1) };
        // SAFETY: the descriptor is not open.
        let error = unsafe { Socket::open(&server) }.unwrap_err().to_string();
        assert!(error.contains("PMI_FD=1048576"), "{error}");
    }

    // Fault: `PMI_FD` names a file or a pipe
    // Outcome: `PMI2_Init` fails and names the variable
    // Guarantee: libpmi2 refuses it with the reason and leaves the descriptor open
    #[test]
    fn a_descriptor_that_is_no_socket_is_refused_and_stays_open() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let server = ServerAddress::Inherited { fd: file.as_raw_fd(), rank: 0, size: Some(1) };
        // SAFETY: the descriptor is this test's own, and is not taken over.
        let error = unsafe { Socket::open(&server) }.unwrap_err().to_string();
        assert!(error.starts_with(&format!("PMI_FD={} is not a stream socket", file.as_raw_fd())), "{error}");
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn connection_errors_name_the_address() {
        let server = ServerAddress::Tcp { address: "127.0.0.1:x".into(), id: 0 };
        // SAFETY: not an inherited descriptor.
        let error = unsafe { Socket::open(&server) }.unwrap_err().to_string();
        assert!(error.contains("PMI_PORT=127.0.0.1:x"), "{error}");
        for address in ["hydrant/none", "@hydrant/none"] {
            let error = Socket::query(address).unwrap_err().to_string();
            assert!(error.contains(&format!("HYDRANT_QUERY={address}")), "{error}");
        }
    }

    #[test]
    fn a_closed_stream_is_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = Socket::from(ours);
        drop(theirs);
        assert!(matches!(socket.send(b"x"), Err(Error::Io(Errno::PIPE))));
        assert!(matches!(socket.receive(&mut Vec::new()), Err(Error::Closed)));
    }
}
