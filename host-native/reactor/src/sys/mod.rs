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
pub(crate) use bsd::{RawLimit, change_kqueue, fill_random, new_kqueue, peer_user, reopen};
#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::{
    NO_SIGPIPE, NORESERVE, SIGNALS, adopt_orphans, allow_tracing, close_range, die_with_parent,
    ignore_sigpipe, mark_close_on_exec, outlive_parent,
};
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    NO_SIGPIPE, NORESERVE, RawLimit, SIGNALS, adopt_orphans, allow_tracing, close_range, die_with_parent,
    fill_random, ignore_sigpipe, mark_close_on_exec, outlive_parent, peer_user, reopen,
};
#[cfg(target_os = "macos")]
pub(crate) use macos::{
    NO_SIGPIPE, NORESERVE, SIGNALS, adopt_orphans, allow_tracing, close_range, die_with_parent,
    ignore_sigpipe, mark_close_on_exec, outlive_parent,
};
