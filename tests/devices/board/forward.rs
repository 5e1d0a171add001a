//! Forwarder between clients and the port that QEMU forwards to the board.
//!
//! QEMU shows the board each connection with the port that it has on this machine. Two connections to different
//! forwarded ports may have the same one there, since the system tells them apart by where they lead; to the board, where
//! all lead to one port, they are the same connection, and one of them is never served. With 64 clients that is one job in
//! seven. So clients come here, and from here each goes on from a port of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// Where clients connect to get to `board`. The way is there as long as this program.
pub(crate) fn to(board: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    through(listener, vec![board]);
    address
}

/// Forwards the connections of a port to the board, one after the other by each of its ports.
pub(crate) fn through(listener: TcpListener, boards: Vec<SocketAddr>) {
    thread::spawn(move || {
        for (client, &board) in listener.incoming().zip(boards.iter().cycle()) {
            // A client that cannot go on finds its connection closed.
            let _ = client.and_then(|client| join(&client, &leave_for(board)?));
        }
    });
}

/// Connects from a port that no other connection has: one that was asked for is not given away twice.
fn leave_for(board: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    connect(&socket, &board)?;
    Ok(TcpStream::from(socket))
}

/// Has what either says reach the other.
fn join(client: &TcpStream, board: &TcpStream) -> io::Result<()> {
    for (from, to) in [(client, board), (board, client)] {
        to.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || pass_on(from, to));
    }
    Ok(())
}

/// Passes on what comes, and its end, whichever it is.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut buf = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buf) {
        if to.write_all(&buf[..len]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
