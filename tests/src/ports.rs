//! Ports of loopback for servers whose ports are known beforehand.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Ports below those that the system gives to sockets that ask for any.
const BELOW_EPHEMERAL: Range<u32> = 10_000..32_768;

/// Free ports of loopback. The system gives none of them to another socket, so they stay free until the server listens.
///
/// # Panics
/// If there are too few.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = BELOW_EPHEMERAL.end - BELOW_EPHEMERAL.start;
    // Test programs that run at the same time have numbers close to each other, and ports that are not.
    let first = std::process::id().wrapping_mul(97);
    let next = || {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = (BELOW_EPHEMERAL.start + number) as u16;
        held(port).map(|socket| (socket, port))
    };
    let ports = [(); N].map(|()| (0..count).find_map(|_| next()).expect("loopback has free ports"));
    ports.map(|(_, port)| port)
}

/// A socket that has this port of loopback, if it is free. It does not listen: a process that another test forks has a copy until
/// its program is executed, which would keep a server from the port.
fn held(port: u16) -> Option<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
    set_socket_reuseaddr(&socket, true).ok()?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(socket)
}
