//! Servers say when they accept connections.

use std::ffi::OsStr;
use std::fmt::Arguments;
use std::io::{self, Write};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Prints a line on standard output, and tells the service manager that has started this process, if there is one that waits for
/// that, that it accepts connections now (`Type=notify` of systemd, sd_notify(3)).
///
/// # Errors
/// The line cannot be written: standard output may be closed. A service manager that does not listen is no error.
pub fn announce(line: Arguments<'_>) -> io::Result<()> {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = notify(&socket);
    }
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

fn notify(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}
