//! `hydrant reach`: starts daemons on hosts without a job, and prints those that respond.

use std::io::Write;
use std::time::Duration;

use hydrant_control::protocol::{Order, Report, decode, encode};
use hydrant_core::trace::SignalName;
use hydrant_overlay::{
    Channel, DaemonFailure, DaemonSettings, Destination, Event, EventLoop, Overlay, OverlayError,
    RADIX_DEFAULT, RADIX_MAX, TreeSpec, daemon_program,
};
use hydrant_placement::{Bootstrap, Host};
use hydrant_reactor::{Interest, Key, KeyRange};
use hydrant_run::forked_daemon;
use rustix::process::Signal;

use crate::value;

/// Keys of this event loop.
const OWN: KeyRange = KeyRange(0);
const SIGNALS: Key = OWN.key(0, 0);
const STDIN: Key = OWN.key(1, 0);
const LINKS: KeyRange = KeyRange(1);

/// Options of `hydrant reach`.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(about = "Start a daemon on each host, print those that respond, and end them")]
pub struct Options {
    /// Hosts. A host that is listed twice gets two daemons
    #[arg(required = true, value_name = "HOST")]
    pub hosts: Vec<String>,

    /// Launcher for daemons: ssh, srun, qrsh, local or exec:'COMMAND {host} {args}'
    #[arg(long, value_name = "HOW", value_parser = bootstrap, default_value = "ssh")]
    pub bootstrap: Bootstrap,

    /// Maximum number of daemons that one node starts, 2 to 1022
    #[arg(long, value_name = "N", default_value_t = RADIX_DEFAULT, value_parser = value::within(2..=RADIX_MAX))]
    pub radix: u32,

    /// Network interface, by name or address, that daemons connect to
    #[arg(long, value_name = "NAME")]
    pub iface: Option<String>,

    /// Path of hydrant on the hosts. Default: its path here
    ///
    /// The environment variable HYDRANT_REMOTE has the same effect.
    #[arg(long, value_name = "PATH")]
    pub remote_hydrant: Option<std::ffi::OsString>,

    /// Number of seconds without a message after which a daemon counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub heartbeat: Duration,

    /// Number of seconds within which each daemon must join
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub bootstrap_timeout: Duration,

    /// Keep the daemons running until standard input is closed
    #[arg(long)]
    pub hold: bool,
}

fn bootstrap(text: &str) -> Result<Bootstrap, String> {
    match value::bootstrap(text)? {
        Bootstrap::Join => Err("hosts that join do so for a job only".to_owned()),
        other => Ok(other),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    value::timeout(text).map(|timeout| timeout.0)
}

/// Error of `hydrant reach`.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// A daemon could not be started, or is lost.
    #[error(transparent)]
    Failed(#[from] DaemonFailure),
    /// The links failed.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// A signal ended the command.
    #[error("ended by {0}")]
    Signal(SignalName),
}

impl ReachError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ReachError::Failed(failure) => failure.hint(),
            ReachError::Overlay(error) => error.hint().map(str::to_owned),
            ReachError::Signal(_) => None,
        }
    }
}

/// Starts a daemon on each host, prints the answer of each, and ends them.
///
/// It takes over the process, as `hydrant daemon` does.
///
/// # Errors
/// The first failure of a host. All daemons have ended or have been killed.
pub fn reach(options: &Options) -> Result<(), ReachError> {
    let mut event_loop = EventLoop::new(options.radix, SIGNALS)?;
    let settings = DaemonSettings {
        bootstrap: options.bootstrap.clone(),
        bootstrap_exec: None,
        bootstrap_args: Vec::new(),
        program: daemon_program(options.remote_hydrant.as_ref(), &options.bootstrap)
            .map_err(OverlayError::from)?,
        iface: options.iface.clone(),
        heartbeat_timeout: options.heartbeat.as_millis() as u64,
        join_timeout: options.bootstrap_timeout.as_millis() as u64,
    };
    let head = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = options.hosts.iter().map(|name| Host::new(name)).collect();
    let tree = TreeSpec { head, hosts, radix: options.radix, late: 0 };
    let now = event_loop.now();
    let (files, poller) = (&event_loop.files, &event_loop.reactor.poller);
    let mut overlay = Overlay::head(tree, settings, Some(forked_daemon()), now, LINKS, files, poller)?;
    for addr in overlay.addrs() {
        print_line(&format!("listening at {addr}"));
    }
    if options.hold {
        event_loop
            .reactor
            .poller
            .add(rustix::stdio::stdin(), STDIN, Interest::Read)
            .map_err(OverlayError::from)?;
    }
    RollCall::default().run(options, &mut event_loop, &mut overlay)
}

/// State of a roll call.
#[derive(Default)]
struct RollCall {
    answers: usize,
    failure: Option<DaemonFailure>,
    signal: Option<Signal>,
}

impl RollCall {
    fn run(
        mut self,
        options: &Options,
        event_loop: &mut EventLoop,
        overlay: &mut Overlay,
    ) -> Result<(), ReachError> {
        loop {
            while let Some(event) = overlay.next_event() {
                if matches!(event, Event::Closed) {
                    return self.result();
                }
                self.handle_event(event, options, event_loop, overlay);
            }
            let turn = event_loop.turn(overlay)?;
            let is_input_closed =
                turn.other_ready && rustix::io::read(rustix::stdio::stdin(), &mut [0; 4096]) == Ok(0);
            if turn.signal.is_some() || is_input_closed {
                self.signal = self.signal.or(turn.signal);
                event_loop.reactor.poller.remove(rustix::stdio::stdin());
                overlay.shutdown(event_loop.now(), &event_loop.reactor.poller);
            }
        }
    }

    fn handle_event(
        &mut self,
        event: Event,
        options: &Options,
        event_loop: &EventLoop,
        overlay: &mut Overlay,
    ) {
        let (now, poller) = (event_loop.now(), &event_loop.reactor.poller);
        match event {
            Event::Complete => {
                // The order is short.
                let _ =
                    overlay.route(now, Destination::Descendants, Channel::Control, &encode(&Order::Identify));
            }
            Event::Message { from, channel: Channel::Control, body, .. } => {
                let Some(Report::Identity { pid }) = decode(&body) else { return };
                self.answers += 1;
                print_line(&format!("node {from} is process {pid} on {}", options.hosts[from as usize - 1]));
                if self.answers == options.hosts.len() {
                    print_line(&format!("all {} answer", self.answers));
                    if !options.hold {
                        overlay.shutdown(now, poller);
                    }
                }
            }
            Event::Message { via, body, .. } => overlay.consumed(via, body.len() as u32),
            Event::Failed(failure) => {
                self.failure.get_or_insert(failure);
                overlay.shutdown(now, poller);
            }
            Event::Joined { .. }
            | Event::Applied { .. }
            | Event::Turned { .. }
            | Event::Left { .. }
            | Event::Retrying(_)
            | Event::CreditAvailable { .. }
            | Event::LifelineLost(_)
            | Event::Shutdown
            | Event::Closed => {}
        }
    }

    fn result(self) -> Result<(), ReachError> {
        match (self.failure, self.signal) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(signal)) => Err(ReachError::Signal(SignalName(signal.as_raw()))),
            (None, None) => Ok(()),
        }
    }
}

/// Prints a line on standard output.
fn print_line(line: &str) {
    // An error means that no reader is left.
    let _ = writeln!(std::io::stdout(), "{line}");
}
