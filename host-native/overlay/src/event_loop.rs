//! Event loop of a process that serves nothing but its links.

use hydrant_reactor::{Error, Key, OpenFiles, Reactor, set_close_on_exec, signals};
use rustix::process::{Signal, WaitOptions, wait};

use crate::error::OverlayError;
use crate::overlay::Overlay;

/// Descriptors of a process beside those of its links.
const OWN_FILES: u64 = 32;

/// Event loop of a process that serves nothing but its links, such as a daemon that has not got a job yet.
#[derive(Debug)]
pub struct EventLoop {
    /// Clock, poller and signals.
    pub reactor: Reactor,
    /// Reserved descriptors.
    pub files: OpenFiles,
    signal_key: Key,
    keys: Vec<Key>,
}

/// Result of one turn of an [`EventLoop`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Signal that is to end the process.
    pub signal: Option<Signal>,
    /// A descriptor is ready that belongs neither to the links nor to the signals.
    pub other_ready: bool,
}

impl EventLoop {
    /// Makes a loop for a node with at most `radix` children. It takes over the signals of this process.
    ///
    /// # Errors
    /// The limit of open files is too low, or a system call failed.
    pub fn new(radix: u32, signal_key: Key) -> Result<EventLoop, OverlayError> {
        set_close_on_exec()?;
        let files = OpenFiles::reserve(OWN_FILES + Overlay::files(u64::from(radix)))?;
        Ok(EventLoop { reactor: Reactor::new(signal_key)?, files, signal_key, keys: Vec::new() })
    }

    /// Milliseconds since the loop was made.
    pub fn now(&self) -> u64 {
        self.reactor.clock.now()
    }

    /// Waits until the links need attention and handles what is ready. SIGUSR1 and SIGUSR2 are ignored.
    ///
    /// # Errors
    /// The links failed as a whole, or a system call failed.
    pub fn turn(&mut self, overlay: &mut Overlay) -> Result<Turn, OverlayError> {
        overlay.flush(self.now(), &self.reactor.poller);
        let timeout = self.reactor.clock.timeout([overlay.deadline()]);
        let mut keys = std::mem::take(&mut self.keys);
        let waited = self.reactor.poller.wait(timeout, &mut keys);
        let now = self.now();
        let mut turn = Turn::default();
        for &key in keys.iter().filter(|&&key| key != self.signal_key) {
            match overlay.keys().contains(key) {
                true => overlay.handle_ready(key, now, &self.reactor.poller)?,
                false => turn.other_ready = true,
            }
        }
        if keys.contains(&self.signal_key) {
            turn.signal = self.handle_signals(overlay)?;
        }
        self.keys = keys;
        waited?;
        overlay.handle_timeouts(now, &self.files, &self.reactor.poller)?;
        Ok(turn)
    }

    fn handle_signals(&mut self, overlay: &mut Overlay) -> Result<Option<Signal>, Error> {
        let mut events = Vec::new();
        self.reactor.signals.read(&mut events)?;
        let mut signal = None;
        for event in events {
            match event {
                signals::Event::Child => {
                    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                        overlay.handle_child_exit(self.now(), pid, status);
                    }
                }
                signals::Event::Stop => {
                    overlay.announce_pause(self.now(), &self.reactor.poller);
                    self.reactor.signals.stop_process();
                }
                signals::Event::Continue | signals::Event::WindowResized => {}
                signals::Event::Forward(Signal::USR1 | Signal::USR2) => {}
                signals::Event::Forward(other) => signal = Some(other),
            }
        }
        Ok(signal)
    }
}
