//! Connections to management ports, as users name them.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};

use hydrant_core::manage;
use hydrant_reactor::enable_keepalive;

use crate::error::PATIENCE;

/// Connects to `HOST:PORT`, or to the default port of `HOST`.
pub(crate) fn reach(target: &str) -> io::Result<TcpStream> {
    // A name, an IPv4 address, or an IPv6 one in brackets may stand without a port.
    let with_port = match target.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => target.to_owned(),
        _ => format!("{target}:{}", manage::PORT),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in with_port.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return enable_keepalive(&stream).map(|()| stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}
