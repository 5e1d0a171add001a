//! Jobs on many hosts: where ranks run, the daemons there, and the links between them.
//!
//! From the command line and a batch system's environment, [`locate`] finds a place for each rank. Up to there nothing
//! starts a process or opens a connection.
//!
//! Node 0 is the head, the process that was asked to run the job. Nodes from 1 on are daemons, one a host. They hang in
//! a [`Tree`](hydrant_core::peer::tree::Tree) that follows from two numbers, and nobody starts, or is connected to,
//! more nodes than its radix and its parent.
//!
//! # How a tree comes up
//!
//! A node listens at a port of the interface that leads to its children (`listen`). It starts each child's daemon by ssh
//! or whatever else the [`Bootstrap`] says, and writes a record to the standard input of that: the secret of the link,
//! where to connect to, the hosts of the subtree (`bootstrap`). A secret is never in arguments or in the environment,
//! and each link has one of its own, made by the parent: a node can speak for itself and for those below it, because
//! it has started them, and for nobody else. The daemon connects to its parent, and meanwhile starts its own children
//! in the same way. A node whose children have all said that they are complete says so itself.
//!
//! # A link
//!
//! Over TCP, by Noise (`NNpsk0`, Curve25519, ChaCha20-Poly1305, BLAKE2s). The handshake binds the job, the version and both
//! node numbers (`link/handshake`). A connection that has not proved that it has the secret is 60 bytes of buffer in one
//! of 64 places; after 10 seconds, or when it is the oldest and all places are taken, it is closed. A port closes when
//! the last child is in.
//!
//! Messages go in frames of at most 65,535 bytes and arrive in the order of `send`, over all channels of a link together.
//! Routed messages (`net/route`) go from any node to any other along the tree, and so keep their order between
//! two nodes. A node takes from a child only what comes from below that child.
//!
//! # Back-pressure
//!
//! Reading from a link never stops, so that signs of life, commands and failures get through whatever else is stuck. What
//! is bounded is streams: a node may have sent 1 MiB of them to a neighbour beyond what has gone on from there. Who
//! reads a rank's output asks `Links::has_room` before. A node thus holds no more than 1 MiB a neighbour (and a message) for
//! others, however many ranks write and however slow the terminal at the head is.
//!
//! # Failures
//!
//! A link that closes is noticed at once. One that is silent for the time-out (30 seconds unless said otherwise; signs of
//! life come four times as often) counts as closed. A node tells its parent what failed below it, up to the head, which
//! names the host. A daemon that loses its parent ends itself; its own children notice the same way, and where the parent
//! process is on the same machine, the system kills them with it. So nothing is left when the head is killed.

mod batch;
pub(crate) mod bootstrap;
pub(crate) mod control;
mod daemon;
mod describe;
mod error;
mod hostfile;
pub mod hostlist;
pub mod hosts;
pub(crate) mod link;
mod listen;
mod mapping;
pub(crate) mod net;
pub mod placement;
mod reach;

use std::ffi::OsString;

pub use batch::Batch;
pub use daemon::JoinError;
pub(crate) use daemon::{Joined, join};
pub use describe::describe;
pub use error::{ClusterError, LineError};
pub use hosts::{Host, Hosts};
pub use placement::{Node, Placement, Policy, Share};
pub use reach::{Options as ReachOptions, ReachError, reach};

use crate::plan::{Bootstrap, HostSource, Plan};
use hostfile::Form;
pub(crate) use hosts::is_here;
pub(crate) use mapping::mapping_of;

/// What decides where ranks run, beside the plan.
pub struct Surroundings<'a> {
    /// What this machine calls itself.
    pub host: String,
    /// The environment.
    pub variables: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Surroundings<'_> {
    /// This process's.
    pub fn of_process() -> Surroundings<'static> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Surroundings { host, variables: &|name| std::env::var_os(name) }
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Whether that names this machine. Slurm's and SGE's names of a host need not be the machine's own.
    fn is_here(&self, host: &Host) -> bool {
        let name = self.variable(if self.in_sge() { "HOSTNAME" } else { "SLURMD_NODENAME" });
        let theirs = name.is_some_and(|name| name == *host.name);
        host.user.is_none() && (theirs || is_here(host.name.as_bytes(), &self.host))
    }

    /// Whether that is this machine's name but for its domain.
    fn is_namesake(&self, host: &Host) -> bool {
        let short = |name: &str| name.split('.').next().map(str::to_owned);
        short(&host.name) == short(&self.host)
    }

    /// Whether this process is in a job of Slurm's.
    fn in_slurm(&self) -> bool {
        ["SLURM_JOB_NODELIST", "SLURM_NODELIST"].iter().any(|name| self.variable(name).is_some())
    }

    /// Whether this process is in a parallel job of SGE's.
    fn in_sge(&self) -> bool {
        !self.in_slurm() && self.variable("PE_HOSTFILE").is_some()
    }
}

/// Where the ranks of a job run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine, as children of this process.
    Here,
    /// On these hosts, each with a daemon.
    Nodes(JobMap),
}

/// Ranks on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMap {
    /// Who named the hosts, where it was a batch system.
    pub batch: Option<Batch>,
    /// Which ranks run where.
    pub placement: Placement,
    /// What starts the daemons: what the user says, in a job of Slurm's or SGE's `srun` or `qrsh`, otherwise ssh.
    pub bootstrap: Bootstrap,
}

/// The `hydrant` that is a host's daemon.
pub(crate) fn program(
    said: Option<&OsString>,
    bootstrap: &Bootstrap,
) -> Result<OsString, hydrant_reactor::Error> {
    let remote = said.cloned().or_else(|| std::env::var_os("HYDRANT_REMOTE"));
    remote.filter(|_| *bootstrap != Bootstrap::Local).map_or_else(net::this_program, Ok)
}

/// Finds the hosts of a job and places its ranks.
///
/// Hosts are those of the command line, otherwise those of the batch system's job that this process is part of. It
/// stays on this machine without any, and with a single one that is this machine, unless a bootstrap is asked for.
/// Programs of the plan that are to [fill](crate::plan::Cluster::fill) the hosts get their ranks.
///
/// # Errors
/// Hosts that cannot be read or understood, or that have too little room.
pub fn locate(plan: &mut Plan, around: &Surroundings<'_>) -> Result<Location, ClusterError> {
    let options = &plan.options.cluster;
    let (batch, hosts) = match &options.hosts {
        HostSource::List(hosts) => (None, hosts.clone()),
        HostSource::File(file) => (None, hostfile::read(file, Form::Words, None)?),
        HostSource::Found => match batch::allocation(around.variables)? {
            Some((batch, hosts)) => (Some(batch), hosts),
            // Several daemons can be tried out on a machine; without names there is one.
            None if options.bootstrap == Some(Bootstrap::Local) => (None, Hosts::of_one(&around.host)),
            None => return Ok(Location::Here),
        },
    };
    if !options.fill.is_empty() {
        let ranks = placement::in_one_turn(&hosts, options.ppn);
        let ranks = u32::try_from(ranks).map_err(|_| ClusterError::Ranks(ranks))?;
        for &program in &options.fill {
            plan.programs[program as usize].ranks = ranks;
        }
    }
    let programs: Vec<u32> = plan.programs.iter().map(|program| program.ranks).collect();
    let lone = hosts.iter().next().filter(|_| hosts.len() == 1);
    // A batch system may name a host by another of its networks than the host itself does.
    let meant = |host: &Host| around.is_here(host) || batch.is_some() && around.is_namesake(host);
    if options.bootstrap.is_none() && lone.is_some_and(meant) {
        placement::check_room(&hosts, programs.iter().copied().map(u64::from).sum())?;
        return Ok(Location::Here);
    }
    let otherwise = if around.in_slurm() {
        Bootstrap::Srun
    } else if around.in_sge() {
        Bootstrap::Qrsh
    } else {
        Bootstrap::Ssh
    };
    let bootstrap = options.bootstrap.clone().unwrap_or(otherwise);
    hosts.iter().try_for_each(|host| bootstrap.check(host))?;
    let policy = Policy { ppn: options.ppn, map_by: options.map_by, rank_by: options.rank_by };
    let placement = Placement::new(&hosts, &programs, policy)?;
    Ok(Location::Nodes(JobMap { batch, placement, bootstrap }))
}

#[cfg(test)]
mod tests;
