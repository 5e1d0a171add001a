//! User that owns a TCP socket of this machine, and whether an address is this machine's.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unknown;

#[cfg(target_os = "linux")]
pub(crate) use linux::{IS_KNOWN, Routes, SockDiag, TableFiles};
#[cfg(not(target_os = "linux"))]
pub(crate) use unknown::{IS_KNOWN, Routes, SockDiag, TableFiles};
