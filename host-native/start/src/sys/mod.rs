//! System calls of the launcher that differ between systems: one module for each kind, with the same functions.

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use bsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
