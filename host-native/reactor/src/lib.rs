//! Building blocks of a single-threaded event loop on Linux, FreeBSD and macOS.
//!
//! A loop owns a [`Poller`] and dispatches on the [`Key`]s that it reports. The crate knows none of its users: each
//! component has an enum of its own, encoded into keys of the [`KeyRange`] that the owner of the loop assigns. Deadlines
//! are milliseconds of the loop's [`Clock`]. There is no executor and no callback.
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//!
//! use hydrant_reactor::{Key, KeyRange, Listener, Reactor};
//!
//! const OWN: KeyRange = KeyRange(0);
//! const SIGNALS: Key = OWN.key(0, 0);
//! const LISTENER: Key = OWN.key(1, 0);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reactor = Reactor::new(SIGNALS)?;
//! let socket = TcpListener::bind("127.0.0.1:0")?;
//! let addr = socket.local_addr()?;
//! let mut listener = Listener::new(socket, LISTENER, &reactor.poller)?;
//!
//! let client = TcpStream::connect(addr)?;
//! let mut keys = Vec::new();
//! let timeout = reactor.clock.timeout([listener.deadline()]);
//! reactor.poller.wait(timeout, &mut keys)?;
//! for &key in &keys {
//!     if key == LISTENER && listener.socket().accept().is_err() {
//!         // No descriptor is left: listen again in 100 ms.
//!         listener.pause(&reactor.poller, reactor.clock.now());
//!     }
//! }
//! listener.resume(&reactor.poller, reactor.clock.now())?;
//! # assert_eq!(keys, [LISTENER]);
//! # Ok(())
//! # }
//! ```

mod announce;
mod clock;
mod error;
pub mod file;
mod key;
mod listener;
pub mod local;
mod log;
mod memory;
mod nofile;
mod poller;
mod printable;
pub mod process;
mod random;
pub mod signals;
mod socket;
mod sys;
mod writer;

pub use announce::announce;
pub use clock::Clock;
pub use error::Error;
pub use key::{Key, KeyRange};
pub use listener::Listener;
pub use log::Log;
pub use memory::{fixed_memory, read_written};
pub use nofile::{OpenFiles, OpenFilesError, set_close_on_exec, take_inherited};
pub use poller::{Interest, Poller};
pub use printable::{is_control, printable};
pub use random::{fill_random, random_u32, random_u64};
pub use signals::Signals;
pub use socket::{
    NO_SIGPIPE, Sent, accept_stream, enable_keepalive, ignore_sigpipe, limit_unacknowledged, peer_user, pipe,
    stream_socket,
};
#[cfg(target_os = "linux")]
pub use sys::memfd;
pub use writer::{Writer, WriterState, has_room};

/// Clock, poller and signals: the fixed parts of an event loop.
#[derive(Debug)]
pub struct Reactor {
    /// Started when the reactor was made.
    pub clock: Clock,
    /// Poller of the signals and of the owner's descriptors.
    pub poller: Poller,
    /// Signals of this process, blocked until the reactor is dropped.
    pub signals: Signals,
}

impl Reactor {
    /// Takes over the signals of this process. The poller reports `signal_key` when some are pending.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new(signal_key: impl Into<Key>) -> Result<Reactor, Error> {
        let signals = Signals::new()?;
        let poller = Poller::new()?;
        poller.add(&signals, signal_key, Interest::Read)?;
        Ok(Reactor { clock: Clock::start(), poller, signals })
    }
}
