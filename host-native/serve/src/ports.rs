//! Ports of jobs.

use std::net::SocketAddr;

use hydrant_driver::{ListenError, TcpPort};

/// Ports that are tried for a job.
const TRIED: u16 = 1024;

/// Opens the first port that is free from that of an address on: jobs of the management server and of nodes have ports. Port 0 lets
/// the system choose.
///
/// # Errors
/// None of them is free. The error is that of the first one.
pub(crate) fn open_port(addr: SocketAddr) -> Result<TcpPort, ListenError> {
    let first = match TcpPort::open(addr) {
        Err(error) if addr.port() != 0 => error,
        opened => return opened,
    };
    let mut others = addr.port().saturating_add(1)..addr.port().saturating_add(TRIED);
    others.find_map(|port| TcpPort::open((addr.ip(), port).into()).ok()).ok_or(first)
}

/// Has a job's port accept the processes of its host's user, if the host is on this machine. The server may be another user's.
pub(crate) fn of_host(port: TcpPort, user: Option<u32>) -> TcpPort {
    match user {
        Some(user) => port.for_user(Some(user)),
        None => port,
    }
}
