//! Ports of loopback for servers whose ports are known beforehand.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports below those that the system gives to sockets that ask for any.
const BELOW_EPHEMERAL: Range<u32> = 10_000..32_768;

/// Free ports of loopback. The system gives none of them to another socket, so they stay free until the server listens.
///
/// # Panics
/// If there are too few.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = BELOW_EPHEMERAL.end - BELOW_EPHEMERAL.start;
    let first = std::process::id();
    let next = || {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        TcpListener::bind((Ipv4Addr::LOCALHOST, (BELOW_EPHEMERAL.start + number) as u16)).ok()
    };
    let listeners = [(); N].map(|()| (0..count).find_map(|_| next()).expect("loopback has free ports"));
    listeners.map(|listener| listener.local_addr().expect("a listener has an address").port())
}
