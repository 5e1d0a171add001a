//! Slots of a management server: hosts and jobs.

use core::net::IpAddr;

/// Slot for the connection of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSlot(pub(super) Option<Host>);

impl HostSlot {
    /// An unused slot.
    pub const EMPTY: HostSlot = HostSlot(None);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// Its address, which identifies it when it connects again.
    pub(super) from: IpAddr,
    pub(super) connected_at: u64,
    pub(super) greeted: bool,
    /// Time since which it does not read.
    pub(super) blocked_since: Option<u64>,
}

/// Slot for a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobSlot(pub(super) Option<Job>);

impl JobSlot {
    /// An unused slot.
    pub const EMPTY: JobSlot = JobSlot(None);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Host that opened it, while it is connected.
    pub(super) host: Option<usize>,
    /// Address of the host that opened it. None for a job of the embedding program, which any host may change.
    pub(super) owner: Option<IpAddr>,
    /// Time since which it has no host, or at which it had none and a client was connected.
    pub(super) abandoned: Option<u64>,
    pub(super) size: u32,
    /// Whether clients are accepted.
    pub(super) served: bool,
    /// Whether the host reports exits.
    pub(super) exits_reported: bool,
    pub(super) keep: bool,
    /// Whether [`ManagementServer::poll_over`](super::server::ManagementServer::poll_over) has returned it.
    pub(super) over: bool,
}
