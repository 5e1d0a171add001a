//! Names in the abstract namespace of Linux: nothing is left behind by a killed process, and nothing has to be removed.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, getpeername,
    listen as listen_at, socket_with,
};

/// Flag of a listening socket in `/proc/net/unix`.
const LISTENS: u64 = 0x1_0000;

/// Nothing: the system removes a name with its socket.
#[derive(Debug)]
pub(super) struct Name;

pub(super) fn listen(name: &str, backlog: i32) -> io::Result<(UnixListener, Name)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen_at(&fd, backlog)?;
    Ok((fd.into(), Name))
}

/// Connects to the socket of a name, and waits for room in its queue of connections. The listening process must be one of
/// this user.
///
/// # Errors
/// No process of this user listens under the name.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    connect_with(name, SocketFlags::CLOEXEC)
}

/// Connects to the socket of a name without waiting. The stream blocks. The listening process must be one of this user.
///
/// # Errors
/// No process of this user listens under the name, or its queue of connections is full.
pub fn connect_now(name: &str) -> io::Result<UnixStream> {
    let stream = connect_with(name, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn connect_with(name: &str, flags: SocketFlags) -> io::Result<UnixStream> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    retry_on_intr(|| connect_to(&fd, &address))?;
    super::check_user(fd.into())
}

/// Binds a socket that is to be connected to a name, which the accepting process reads with [`peer_name`].
///
/// # Errors
/// Another socket has the name.
pub fn bind_peer(fd: impl AsFd, name: &str) -> Result<(), Errno> {
    bind(fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Returns the name that the other end of a connection is bound to.
pub fn peer_name(fd: impl AsFd) -> Option<String> {
    let address = SocketAddrUnix::try_from(getpeername(fd).ok()??).ok()?;
    std::str::from_utf8(address.abstract_name()?).ok().map(str::to_owned)
}

/// Returns the names of listening sockets that begin with a prefix, sorted.
///
/// # Errors
/// The list of sockets cannot be read.
pub fn list(prefix: &str) -> io::Result<Vec<String>> {
    Ok(parse_list(&fs::read("/proc/self/net/unix")?, prefix))
}

/// Finds names in the text of `/proc/net/unix`: address, references, protocol, flags, type, state, inode, name.
fn parse_list(text: &[u8], prefix: &str) -> Vec<String> {
    let of_line = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let flags = u64::from_str_radix(words.nth(3)?, 16).ok()?;
        let name = words.nth(3)?.strip_prefix('@')?;
        // Accepted connections have the name of the socket that listens.
        (flags & LISTENS != 0 && name.starts_with(prefix)).then(|| name.to_owned())
    };
    let mut found: Vec<String> = text.split(|&byte| byte == b'\n').filter_map(of_line).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_of_the_prefix_are_found() {
        let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 11 @hydrant/status/1/7/4711/0000beef\n\
            ffff: 00000003 00000000 00000000 0001 03 12 @hydrant/status/1/7/4711/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 13 @hydrant/status/1/70/4712/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 14 @hydrant/status/2/7/4713/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 16 /run/\xff\n\
            ffff: 00000002 00000000 00010000 0001 01 17\n\
            ffff: 00000002 00000000 00010000 0001 01 18 @hydrant/status/1/7/19/00000001\n";
        let found = parse_list(text, "hydrant/status/1/7/");
        assert_eq!(found, ["hydrant/status/1/7/19/00000001", "hydrant/status/1/7/4711/0000beef"]);
    }
}
