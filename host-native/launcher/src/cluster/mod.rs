//! Jobs on many hosts: the daemons there, and the links between them.
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

pub(crate) mod bootstrap;
mod daemon;
pub(crate) mod link;
mod listen;
pub(crate) mod net;
mod reach;

use std::ffi::OsString;

use hydrant_placement::Bootstrap;

pub use daemon::JoinError;
pub(crate) use daemon::{Joined, join};
pub use reach::{Options as ReachOptions, ReachError, reach};

/// The `hydrant` that is a host's daemon.
pub(crate) fn program(
    said: Option<&OsString>,
    bootstrap: &Bootstrap,
) -> Result<OsString, hydrant_reactor::Error> {
    let remote = said.cloned().or_else(|| std::env::var_os("HYDRANT_REMOTE"));
    remote.filter(|_| *bootstrap != Bootstrap::Local).map_or_else(net::this_program, Ok)
}
