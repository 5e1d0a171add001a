//! `hydrant daemon`: the process of a node.

use std::time::Duration;

use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};

use super::bootstrap::{Record, RecordError};
use super::control::{Order, Report, decode, encode};
use super::link::Channel;
use super::net::{Event, Links, LinksError, Orphaned, To};
use crate::engine::poller::Token;
use crate::engine::{Base, serve_node, signals};
use crate::error::RunError;
use crate::launch::{OpenFiles, keep_descriptors};

/// Descriptors that a daemon needs beside those of its links.
const OWN_FILES: u64 = 32;

/// Why a daemon ends before it should.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
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
    /// The system fails.
    #[error(transparent)]
    System(#[from] RunError),
}

impl From<RecordError> for DaemonError {
    fn from(error: RecordError) -> DaemonError {
        DaemonError::Record(error.to_string())
    }
}

impl From<LinksError> for DaemonError {
    fn from(error: LinksError) -> DaemonError {
        DaemonError::Links(error.to_string())
    }
}

impl From<Orphaned> for DaemonError {
    fn from(error: Orphaned) -> DaemonError {
        DaemonError::Orphaned(error.to_string())
    }
}

/// What a process of links alone turns around.
pub(super) struct Turn {
    pub(super) base: Base,
    pub(super) files: OpenFiles,
    tokens: Vec<Token>,
}

impl Turn {
    /// For a node with at most so many children.
    pub(super) fn new(radix: u32) -> Result<Turn, RunError> {
        keep_descriptors()?;
        let files = OpenFiles::reserve(0, OWN_FILES + Links::files(u64::from(radix)))?;
        Ok(Turn { base: Base::new()?, files, tokens: Vec::new() })
    }

    pub(super) fn now(&self) -> u64 {
        self.base.start.elapsed().as_millis() as u64
    }

    /// Waits until something is to be done for `links` and does it; a signal that ends the process, and whether
    /// standard input has something, if it is waited for.
    pub(super) fn go(&mut self, links: &mut Links) -> Result<(Option<Signal>, bool), LinksError> {
        links.flush(self.now(), &self.base.poller);
        let timeout = links.deadline().map(|at| Duration::from_millis(at.saturating_sub(self.now())));
        let mut tokens = std::mem::take(&mut self.tokens);
        let waited = self.base.poller.wait(timeout, &mut tokens);
        let now = self.now();
        let (mut signal, mut input) = (None, false);
        for &token in &tokens {
            match token {
                Token::Signals => {}
                Token::Terminal => input = true,
                token => links.ready(token, now, &self.base.poller)?,
            }
        }
        if tokens.contains(&Token::Signals) {
            signal = self.take_signals(links)?;
        }
        self.tokens = tokens;
        waited?;
        links.keep_time(now, &self.base.poller)?;
        Ok((signal, input))
    }

    fn take_signals(&mut self, links: &mut Links) -> Result<Option<Signal>, RunError> {
        let mut events = Vec::new();
        self.base.signals.read(&mut events)?;
        let mut signal = None;
        for event in events {
            match event {
                signals::Event::Child => {
                    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                        links.ended(self.now(), pid, status);
                    }
                }
                signals::Event::Stop => {
                    links.hush(self.now(), &self.base.poller);
                    self.base.signals.stop_here();
                }
                signals::Event::Continue => {}
                signals::Event::Forward(Signal::USR1 | Signal::USR2) => {}
                signals::Event::Forward(other) => signal = Some(other),
            }
        }
        Ok(signal)
    }
}

/// Is the daemon of a node until its parent says that all is done.
///
/// It takes over the process that calls it: standard input is read, signals are blocked in the calling thread, the
/// exits of child processes are collected. Call it once and from the only thread.
///
/// # Errors
/// It could not begin, or its parent is gone. All daemons below it have been given up.
pub fn daemon() -> Result<(), DaemonError> {
    let record = Record::read()?;
    // From here on the link tells of the parent's end, which leaves time to end all that the ranks have started: where no
    // ssh is in between, the system would kill this process with its parent.
    set_parent_process_death_signal(None).map_err(RunError::system("prctl"))?;
    let host = record.hosts.first().map(|host| host.name.clone()).unwrap_or_default();
    let mut turn = Turn::new(record.tree.radix())?;
    let now = turn.now();
    let mut links = Links::daemon(record, now, &turn.files, &turn.base.poller)?;
    loop {
        while let Some(event) = links.event() {
            let now = turn.now();
            match event {
                Event::Message { from, channel: Channel::Control, body, .. } => match decode(&body) {
                    Some(Order::Setup(setup)) => {
                        let Turn { base, files, .. } = turn;
                        return Ok(serve_node(base, files, links, host, *setup)?);
                    }
                    Some(Order::Who) => {
                        let here = encode(&Report::Here { pid: std::process::id() });
                        // An answer is short, and whoever asked is a node.
                        let _ = links.route(now, To::Node(from), Channel::Control, &here);
                    }
                    _ => {}
                },
                Event::Message { via, body, .. } => links.consumed(via, body.len() as u32),
                Event::End => links.end(now, &turn.base.poller),
                Event::Over => return Ok(()),
                Event::Orphaned(why) => return Err(why.into()),
                // The head is told of it by itself, and decides.
                Event::Failed(_) | Event::Joined { .. } | Event::Complete | Event::Room { .. } => {}
            }
        }
        if let (Some(signal), _) = turn.go(&mut links)? {
            return Err(DaemonError::Signal(signals::name(signal.as_raw() as u8)));
        }
    }
}
