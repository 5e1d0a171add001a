//! System calls that differ between systems: one module for each kind, with the same functions.

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use bsd::{NORESERVE, installed_memory, prefer_large_pages};
#[cfg(target_os = "linux")]
pub(crate) use linux::{NORESERVE, installed_memory, prefer_large_pages};
