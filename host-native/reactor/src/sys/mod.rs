//! System calls that differ between systems: one module for each system, with the same functions.

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(not(target_os = "linux"))]
pub(crate) use bsd::*;
#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::*;
#[cfg(target_os = "linux")]
pub use linux::memfd;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;
