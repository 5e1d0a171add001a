//! Tree of daemons on many hosts, with authenticated and encrypted links between them.
//!
//! Node 0 is the head, the process that runs the job. Nodes from 1 on are daemons, one for each host. They form a
//! [`Tree`](hydrant_core::peer::tree::Tree) that follows from the number of nodes and the radix. A node starts, and has
//! links to, at most as many children as the radix, and has one link to its parent.
//!
//! [`Overlay`] is the part of one node. It has no event loop: the owner passes it ready keys, timeouts and child exits,
//! and takes its [`Event`]s.
//!
//! ```
//! use hydrant_overlay::{DaemonSettings, Event, EventLoop, Overlay, TreeSpec};
//! use hydrant_placement::{Bootstrap, Host};
//! use hydrant_reactor::KeyRange;
//!
//! const OWN: KeyRange = KeyRange(0);
//! const LINKS: KeyRange = KeyRange(1);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A head with one daemon, started by a command that fails.
//! let mut event_loop = EventLoop::new(2, OWN.key(0, 0))?;
//! let settings = DaemonSettings {
//!     bootstrap: Bootstrap::Exec(vec!["false".into(), "{host}".into(), "{args}".into()]),
//!     bootstrap_exec: None,
//!     bootstrap_args: Vec::new(),
//!     program: "hydrant".into(),
//!     iface: Some("lo".to_owned()),
//!     heartbeat_timeout: 30_000,
//!     join_timeout: 60_000,
//! };
//! let tree = TreeSpec { head: "here".to_owned(), hosts: vec![Host::new("n1")], radix: 2, late: 0 };
//! let mut overlay = Overlay::head(
//!     tree, settings, None, event_loop.now(), LINKS, &event_loop.files, &event_loop.reactor.poller,
//! )?;
//! let failure = loop {
//!     if let Some(Event::Failed(failure)) = overlay.next_event() {
//!         break failure;
//!     }
//!     event_loop.turn(&mut overlay)?;
//! };
//! assert_eq!(
//!     failure.to_string(),
//!     "host n1 (node 1): false ended with exit code 1 before the daemon had joined"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # Bootstrap
//!
//! A node listens on the interface that leads to its children. It starts the daemon of each child by ssh or another
//! [`Bootstrap`], and writes a [`DaemonSpec`] to its standard input: the secret of the
//! link, the addresses to connect to, and the hosts of the subtree. A secret is never in arguments or in the
//! environment. Each link has a secret of its own, made by the parent. A node can therefore send in the name of itself and
//! of the nodes below it, which it has started, and in no other name. The daemon connects to its parent and starts its own
//! children at the same time. A node whose children have all reported completion reports completion itself.
//!
//! A bootstrap that has a [command for all hosts](hydrant_placement::Bootstrap::step_command), `srun`, starts all daemons
//! at once. They read the same record, with the hosts of the whole tree and one secret, from which the secrets of all
//! links are derived. Each finds its node by the name of its host. No daemon knows where its parent listens, so each
//! tells the head where it listens itself and asks for the addresses of its parent, in one exchange of 133 and 105 bytes
//! with MACs of the secret, and asks again until the parent has told its own.
//!
//! Hosts that join by themselves ([`Bootstrap::Join`]) enrol at the head ([`Enrolment`], [`Applicant`]). The head sends each
//! what the daemons of such a command get, with the secrets of its own links alone.
//!
//! Daemons on the machine of their parent ([`Bootstrap::Local`]) are forked ([`DaemonSettings::forks_daemons`]): they go on in
//! the memory of their parent, and need no record.
//!
//! # Links
//!
//! The link to a forked daemon is a Unix socket pair, of which the daemon inherits one end. No other process has an end, so
//! it needs neither a secret nor encryption, and its frames have no tag.
//!
//! Every other link is a TCP connection with Noise (`NNpsk0`, ChaCha20-Poly1305, BLAKE2s). The handshake binds
//! the job, the version and both node numbers. It has no curve where the secret of the link came to the child over an
//! encrypted connection, or from its own machine: ssh of the `PATH`, [`Bootstrap::Local`] and [`Bootstrap::Join`]; elsewhere it is
//! Curve25519. An incoming connection that has not proved that it has the secret takes 133
//! bytes of buffer in one of 64 slots. It is closed after 10 seconds, or when it is the oldest and all slots are taken. A
//! listening socket is closed when the last child has joined.
//!
//! Messages are sent in frames of at most 65,535 bytes and arrive in the order of sending, over all channels of a link
//! together. Routed messages go from any node to any other along the tree and keep their order between two nodes. A
//! node accepts from a child only messages of nodes below that child.
//!
//! # Flow control
//!
//! Reading from a link never stops, so heartbeats, commands and failures arrive even if streams are blocked. Only
//! streams are bounded: a node may have sent 1 MiB of them to a neighbour that the neighbour has not passed on. The
//! reader of a rank's output calls [`Overlay::has_credit`] first, and may send [`BEYOND_CREDIT_MAX`] more. Streams of other
//! nodes are forwarded without credit, and theirs is held back until there is some. A node therefore stores at most 2 MiB
//! for each node behind a link, however many ranks write and however slow the terminal of the head is. A neighbour that
//! sends more is lost: [`LinkError::NoCredit`].
//!
//! # Failures
//!
//! A closed link is noticed at once. A link without any message for the heartbeat timeout (30 seconds by default) counts
//! as closed; heartbeats are sent four times as often. A node reports failures below it to its parent, up to the
//! head, which names the host. A daemon without its parent ends itself, and so do the daemons below it. No daemon is
//! left after the head is killed.
//!
//! # Links
//!
//! - A connection is a child's only after its first frame: the first message of a handshake can be replayed and is answered, the
//!   frames after it cannot be forged.
//! - Links are always read. Streams have credit for each neighbour, so a stopped terminal stops output but neither heartbeats nor
//!   failures. A neighbour that sends much more than its credit is lost.
//! - `TCP_USER_TIMEOUT` equals the heartbeat timeout, because the system counts a closed window as silence.
//! - Helper processes (ssh, srun) end with the process that started them. A daemon that has read its record does not: its link
//!   tells it, and it ends with its ranks and all daemons below it.
//! - Daemons on the machine of their parent (`--bootstrap local`) are forked and inherit one end of a socket pair as their link,
//!   without secret, handshake and encryption. A process with more than one thread (a head with a plugin) cannot fork, and starts
//!   programs that connect.

mod bootstrap;
mod enrol;
mod error;
mod event_loop;
mod incoming;
mod interface;
mod link;
mod overlay;
mod star;
mod version;

use std::time::Duration;

use hydrant_placement::Bootstrap;

pub use bootstrap::{DaemonMain, DaemonSettings, DaemonSpec, daemon_program};
pub use enrol::{Applicant, Application, EnrolError, Enrolled, Enrolment, Notice, SLOTS_MAX, Secrets, Terms};
pub use error::{
    AttemptError, ConnectError, DaemonFailure, FailureCause, InterfaceError, LifelineLost, LinkError,
    MESSAGE_MAX, OverlayError, SpecError,
};
pub use event_loop::{EventLoop, Turn};
pub use hydrant_core::peer::tree::RADIX_MAX;
pub use link::{Channel, Link, RECEIVE_BUFFER_MIN};
pub use overlay::{BEYOND_CREDIT_MAX, Destination, Event, Overlay, TreeSpec};
pub use star::{Candidate, Ticket, connect};

/// Default radix. Two levels of daemons reach 72 hosts, three 584 and four 4,680. Each level costs a fence one hop each way,
/// and the start one login. Each child costs a daemon one more copy of all data to send, and one more process while it
/// starts. Empty fences are quickest with 8, those with data with less, and the start by ssh with 8 to 16 (docs/scaling.md).
pub const RADIX_DEFAULT: u32 = 8;
/// Default radix of daemons that one command starts, or that start by themselves. Their tree has no part in the start, and
/// fences with data are quickest with few children.
pub const RADIX_OF_STEP: u32 = 4;
/// Default radix of daemons that are started in this way.
pub fn radix_default(bootstrap: &Bootstrap) -> u32 {
    match bootstrap {
        Bootstrap::Srun | Bootstrap::Join => RADIX_OF_STEP,
        _ => RADIX_DEFAULT,
    }
}

/// Default time without a message after which a link counts as closed.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(30);
/// Default time for a daemon to join. It allows for an ssh with slow name servers and for an srun that waits for others.
pub const BOOTSTRAP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
