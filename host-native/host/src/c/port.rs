//! Port of the loopback interface for PMIx clients.
//!
//! The host reads the bytes of its clients, so the port looks at the first one before it returns a client.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use hydrant_driver::{Client, HANDSHAKE_TIMEOUT, Speaks, TcpPort, pmix_variables};

use crate::error::Error;

/// Listening port, and the clients that it has accepted and the host has not taken.
#[derive(Debug)]
pub(crate) struct Port {
    port: TcpPort,
    accepted: VecDeque<TcpStream>,
}

impl Port {
    /// Listens on 127.0.0.1. Port 0 is any free one.
    pub(crate) fn open(number: u16) -> Result<Port, Error> {
        let port = TcpPort::open((Ipv4Addr::LOCALHOST, number).into())?.for_clients_of(Speaks::Pmix);
        await_first_byte(&port).map_err(|why| hydrant_reactor::Error { what: "setsockopt", why })?;
        Ok(Port { port, accepted: VecDeque::new() })
    }

    /// Descriptor that is readable while a client waits.
    pub(crate) fn fd(&self) -> RawFd {
        self.port.as_fd().as_raw_fd()
    }

    /// Returns the socket of the next client, a process of this user. It does not block.
    pub(crate) fn accept(&mut self) -> Result<Option<OwnedFd>, Error> {
        if self.accepted.is_empty() {
            let mut accepted = Vec::new();
            let result = self.port.accept(&mut accepted);
            self.accepted.extend(accepted.into_iter().filter(speaks_pmix).map(|client| client.stream));
            // Clients that were accepted before the error come first.
            if self.accepted.is_empty() {
                result.map_err(|why| hydrant_reactor::Error { what: "accept", why })?;
            }
        }
        let Some(client) = self.accepted.pop_front() else { return Ok(None) };
        let nonblocking = client.set_nonblocking(true);
        nonblocking.map_err(|why| hydrant_reactor::Error { what: "fcntl", why })?;
        Ok(Some(client.into()))
    }

    /// Returns the variables of a rank of a job, each with NUL at its end, and an empty one.
    pub(crate) fn variables(&self, job: &str, rank: u32) -> Vec<u8> {
        let variables = pmix_variables(job, Some(&self.port.addr().to_string()));
        let rank = ("PMIX_RANK", rank.to_string());
        let texts = variables.into_iter().chain([rank]).map(|(name, value)| format!("{name}={value}\0"));
        let mut texts: Vec<u8> = texts.flat_map(String::into_bytes).collect();
        texts.push(0);
        texts
    }
}

/// Has the port be readable only when a client has sent something, or after a while: then its client is closed.
#[cfg(target_os = "linux")]
fn await_first_byte(port: &TcpPort) -> io::Result<()> {
    let seconds = (HANDSHAKE_TIMEOUT / 1000) as c_int;
    let len = size_of::<c_int>() as libc::socklen_t;
    let fd = port.as_fd().as_raw_fd();
    // SAFETY: an open socket, and a number of that length.
    let set = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, (&raw const seconds).cast(), len)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn await_first_byte(_: &TcpPort) -> io::Result<()> {
    Ok(())
}

/// Whether the first byte that a client has sent is one of PMIx. Without [`await_first_byte`] there may be none yet.
fn speaks_pmix(client: &Client) -> bool {
    let mut first = [0];
    match client.stream.set_nonblocking(true).and_then(|()| client.stream.peek(&mut first)) {
        Ok(read) => read == 1 && client.speaks.admits(first[0]),
        Err(error) => !cfg!(target_os = "linux") && error.kind() == io::ErrorKind::WouldBlock,
    }
}
