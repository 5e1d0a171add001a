//! Start of a node's process: it joins its parent and waits for what to serve.

use hydrant_control::protocol::{Order, Report, Setup, decode, encode};
use hydrant_reactor::{Error, Key, KeyRange, OpenFiles, OpenFilesError, Reactor, set_close_on_exec, signals};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};

use super::bootstrap::{Record, RecordError};
use super::link::Channel;
use super::net::{Event, Links, LinksError, Orphaned, To};

/// Descriptors that a daemon needs beside those of its links.
const OWN_FILES: u64 = 32;

/// Why a daemon ends before it has anything to serve.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It was not told what to do.
    #[error("{0}")]
    Record(String),
    /// It has no links.
    #[error("{0}")]
    Links(String),
    /// Its parent is gone.
    #[error("{0}")]
    Orphaned(String),
    /// A signal has ended it.
    #[error("ended by {0}")]
    Signal(String),
    /// The node needs more open files than the process may have.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
}

impl From<RecordError> for JoinError {
    fn from(error: RecordError) -> JoinError {
        JoinError::Record(error.to_string())
    }
}

impl From<LinksError> for JoinError {
    fn from(error: LinksError) -> JoinError {
        JoinError::Links(error.to_string())
    }
}

impl From<Orphaned> for JoinError {
    fn from(error: Orphaned) -> JoinError {
        JoinError::Orphaned(error.to_string())
    }
}

/// What a process of links alone turns around.
pub(super) struct Turn {
    pub(super) reactor: Reactor,
    pub(super) files: OpenFiles,
    signals: Key,
    keys: Vec<Key>,
}

impl Turn {
    /// For a node with at most so many children.
    pub(super) fn new(radix: u32, signals: Key) -> Result<Turn, OpenFilesError> {
        set_close_on_exec()?;
        let files = OpenFiles::reserve(OWN_FILES + Links::files(u64::from(radix)))?;
        Ok(Turn { reactor: Reactor::new(signals)?, files, signals, keys: Vec::new() })
    }

    pub(super) fn now(&self) -> u64 {
        self.reactor.clock.now()
    }

    /// Waits until something is to be done for `links` and does it. Returns a signal that ends the process, and whether
    /// a descriptor is ready that is neither the links' nor the signals'.
    pub(super) fn go(&mut self, links: &mut Links) -> Result<(Option<Signal>, bool), LinksError> {
        links.flush(self.now(), &self.reactor.poller);
        let timeout = self.reactor.clock.timeout([links.deadline()]);
        let mut keys = std::mem::take(&mut self.keys);
        let waited = self.reactor.poller.wait(timeout, &mut keys);
        let now = self.now();
        let (mut signal, mut other) = (None, false);
        for &key in keys.iter().filter(|&&key| key != self.signals) {
            match links.keys().contains(key) {
                true => links.ready(key, now, &self.reactor.poller)?,
                false => other = true,
            }
        }
        if keys.contains(&self.signals) {
            signal = self.take_signals(links)?;
        }
        self.keys = keys;
        waited?;
        links.keep_time(now, &self.reactor.poller)?;
        Ok((signal, other))
    }

    fn take_signals(&mut self, links: &mut Links) -> Result<Option<Signal>, Error> {
        let mut events = Vec::new();
        self.reactor.signals.read(&mut events)?;
        let mut signal = None;
        for event in events {
            match event {
                signals::Event::Child => {
                    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                        links.ended(self.now(), pid, status);
                    }
                }
                signals::Event::Stop => {
                    links.hush(self.now(), &self.reactor.poller);
                    self.reactor.signals.stop_process();
                }
                signals::Event::Continue => {}
                signals::Event::Forward(Signal::USR1 | Signal::USR2) => {}
                signals::Event::Forward(other) => signal = Some(other),
            }
        }
        Ok(signal)
    }
}

/// A node that has joined its parent and has been told what to serve.
pub(crate) struct Joined {
    pub(crate) reactor: Reactor,
    pub(crate) files: OpenFiles,
    pub(crate) links: Links,
    /// What the head calls this machine.
    pub(crate) host: String,
    pub(crate) setup: Setup,
}

/// Reads the record from standard input and joins the parent. Returns what to serve, or nothing where the parent ends the
/// node before. `signals` and `keys` are those of the event loop that goes on with it.
///
/// It takes over the process that calls it: standard input is read, signals are blocked in the calling thread, the
/// exits of child processes are collected. Call it once and from the only thread.
///
/// # Errors
/// It could not begin, or its parent is gone. All daemons below it have been given up.
pub(crate) fn join(signals: Key, keys: KeyRange) -> Result<Option<Joined>, JoinError> {
    let record = Record::read()?;
    // From here on the link tells of the parent's end, which leaves time to end all that the ranks have started: where no
    // ssh is in between, the system would kill this process with its parent.
    set_parent_process_death_signal(None).map_err(Error::during("prctl"))?;
    let host = record.hosts.first().map(|host| host.name.clone()).unwrap_or_default();
    let mut turn = Turn::new(record.tree.radix(), signals)?;
    let now = turn.now();
    let mut links = Links::daemon(record, now, keys, &turn.files, &turn.reactor.poller)?;
    loop {
        while let Some(event) = links.event() {
            let now = turn.now();
            match event {
                Event::Message { from, channel: Channel::Control, body, .. } => match decode(&body) {
                    Some(Order::Setup(setup)) => {
                        let Turn { reactor, files, .. } = turn;
                        return Ok(Some(Joined { reactor, files, links, host, setup: *setup }));
                    }
                    Some(Order::Identify) => {
                        let here = encode(&Report::Identity { pid: std::process::id() });
                        // An answer is short, and whoever asked is a node.
                        let _ = links.route(now, To::Node(from), Channel::Control, &here);
                    }
                    _ => {}
                },
                Event::Message { via, body, .. } => links.consumed(via, body.len() as u32),
                Event::End => links.end(now, &turn.reactor.poller),
                Event::Over => return Ok(None),
                Event::Orphaned(why) => return Err(why.into()),
                // The head is told of it by itself, and decides.
                Event::Failed(_) | Event::Joined { .. } | Event::Complete | Event::Room { .. } => {}
            }
        }
        if let (Some(signal), _) = turn.go(&mut links)? {
            return Err(JoinError::Signal(signals::name(signal.as_raw() as u8)));
        }
    }
}
