//! User that owns a TCP socket, on systems that do not report it to an ordinary process: unknown. Clients on this machine are
//! refused.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Whether the system reports users.
pub(crate) const IS_KNOWN: bool = false;

/// Queries about one TCP socket at a time. There are none.
#[derive(Debug)]
pub(crate) enum SockDiag {}

impl SockDiag {
    /// Fails.
    pub(crate) fn open(_: SocketAddr) -> io::Result<SockDiag> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the user whose socket is connected from one address to another.
    pub(crate) fn owner(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
        match *self {}
    }
}

/// Routes to addresses.
#[derive(Debug)]
pub(crate) struct Routes;

impl Routes {
    /// Never fails.
    pub(crate) fn open() -> io::Result<Routes> {
        Ok(Routes)
    }

    /// Returns whether an address is one of this machine: only those can be bound to.
    pub(crate) fn leads_here(&self, ip: IpAddr) -> io::Result<bool> {
        match UdpSocket::bind((ip, 0)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Tables of TCP sockets. They are empty.
#[derive(Debug)]
pub(crate) struct TableFiles;

impl TableFiles {
    /// Opens the tables.
    pub(crate) fn open() -> io::Result<TableFiles> {
        Ok(TableFiles)
    }

    /// Reads the present state.
    pub(crate) fn read(&self) -> io::Result<Table> {
        Ok(Table)
    }
}

/// A table of TCP sockets without an entry.
pub(crate) struct Table;

impl Table {
    /// Returns none: no user is known.
    pub(crate) fn owner(&self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
        None
    }
}
