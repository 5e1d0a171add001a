//! Sockets for processes on this machine, by name: in the abstract namespace of Linux, elsewhere as files of a private
//! folder.
//!
//! On Linux any user can listen under any name, so a client checks the user of the process that listens.

#[cfg(target_os = "linux")]
mod abstract_name;
#[cfg(not(target_os = "linux"))]
mod folder;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

#[cfg(target_os = "linux")]
use abstract_name as place;
#[cfg(not(target_os = "linux"))]
use folder as place;
pub use place::{bind_peer, connect, connect_now, list, peer_name};
use rustix::process::geteuid;

use crate::peer_user;

/// A listening socket. Its name is free again when it is dropped.
#[derive(Debug)]
pub struct LocalListener {
    socket: UnixListener,
    _name: place::Name,
}

/// Result of accepting a connection.
#[derive(Debug)]
pub enum Accepted {
    /// A connection of this user. It does not block.
    Own(UnixStream),
    /// A connection of another user, which is closed.
    Foreign,
    /// No connection is pending.
    None,
}

impl LocalListener {
    /// Listens under a name. At most `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// The name is in use or too long, or the process has no descriptor left.
    pub fn open(name: &str, backlog: i32) -> io::Result<LocalListener> {
        let (socket, name) = place::listen(name, backlog)?;
        Ok(LocalListener { socket, _name: name })
    }

    /// Accepts a connection, without waiting for one.
    ///
    /// # Errors
    /// The process or the system has no descriptor left.
    pub fn accept(&self) -> io::Result<Accepted> {
        match self.socket.accept() {
            Ok((stream, _)) if peer_user(&stream).ok() == Some(geteuid().as_raw()) => {
                stream.set_nonblocking(true)?;
                Ok(Accepted::Own(stream))
            }
            Ok(_) => Ok(Accepted::Foreign),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted => Ok(Accepted::None),
                _ => Err(error),
            },
        }
    }
}

impl AsFd for LocalListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Fails for a connection to another user's process.
fn check_user(stream: UnixStream) -> io::Result<UnixStream> {
    if peer_user(&stream)? == geteuid().as_raw() {
        Ok(stream)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_name() {
        let name = format!("hydrant/test/{}", std::process::id());
        let listener = LocalListener::open(&name, 4).unwrap();
        assert!(matches!(listener.accept(), Ok(Accepted::None)));
        assert!(list("hydrant/test/").unwrap().contains(&name));
        assert_eq!(LocalListener::open(&name, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = connect(&name).unwrap();
        assert!(matches!(listener.accept(), Ok(Accepted::Own(_))));
        drop(client);
        assert!(connect("hydrant/test/none").is_err());
    }
}
