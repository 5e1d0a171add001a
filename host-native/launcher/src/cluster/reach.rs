//! `hydrant reach`: whether daemons come up on some hosts, without a job.

use std::io::Write;
use std::time::Duration;

use hydrant_placement::{Bootstrap, Host};
use hydrant_reactor::{Error, Interest, Key, KeyRange, OpenFilesError, signals};
use rustix::process::Signal;

use super::bootstrap::Settings;
use super::control::{Order, Report, decode, encode};
use super::daemon::Turn;
use super::link::Channel;
use super::net::{Event, Failure, Links, LinksError, Start, To};
use crate::plan::RADIX_MAX;
use crate::value;

/// Keys of this event loop.
const OWN: KeyRange = KeyRange(0);
const SIGNALS: Key = OWN.key(0, 0);
const STDIN: Key = OWN.key(1, 0);
const LINKS: KeyRange = KeyRange(1);

/// What is to be reached, and how.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(about = "Start a daemon on each host, say who answers, and end them")]
pub struct Options {
    /// The hosts; one that is named twice gets two daemons
    #[arg(required = true, value_name = "HOST")]
    pub hosts: Vec<String>,

    /// What starts daemons: ssh, srun, qrsh, local or exec:'COMMAND {host} {args}'
    #[arg(long, value_name = "HOW", value_parser = value::bootstrap, default_value = "ssh")]
    pub bootstrap: Bootstrap,

    /// How many daemons one node starts at most, 2 to 32
    #[arg(long, value_name = "N", default_value = "16", value_parser = value::within(2..=RADIX_MAX))]
    pub radix: u32,

    /// The network interface, by name or address, that daemons connect to
    #[arg(long, value_name = "NAME")]
    pub iface: Option<String>,

    /// Where hydrant is on the hosts; by default where it is here
    ///
    /// The variable HYDRANT_REMOTE says the same.
    #[arg(long, value_name = "PATH")]
    pub remote_hydrant: Option<std::ffi::OsString>,

    /// After how many seconds of silence a daemon counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub heartbeat: Duration,

    /// After how many seconds a daemon that has not joined is given up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub bootstrap_timeout: Duration,

    /// Keep the daemons until standard input ends
    #[arg(long)]
    pub hold: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    value::timeout(text).map(|timeout| timeout.0)
}

/// Why not all hosts have answered, or not for as long as they should.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// A daemon did not come up, or is gone.
    #[error("{0}")]
    Failed(String),
    /// There are no links.
    #[error("{0}")]
    Links(String),
    /// A signal has ended it.
    #[error("ended by {0}")]
    Signal(String),
    /// There are more hosts than open files.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
}

impl From<LinksError> for ReachError {
    fn from(error: LinksError) -> ReachError {
        ReachError::Links(error.to_string())
    }
}

/// Starts a daemon on each host, has each say who it is, prints that, and ends them.
///
/// It takes over the process that calls it, as `hydrant daemon` does.
///
/// # Errors
/// Which host failed first, and why. All daemons are ended, or have been given up.
pub fn reach(options: &Options) -> Result<(), ReachError> {
    let mut turn = Turn::new(options.radix, SIGNALS)?;
    let settings = Settings {
        bootstrap: options.bootstrap.clone(),
        bootstrap_exec: None,
        program: super::program(options.remote_hydrant.as_ref(), &options.bootstrap)?,
        iface: options.iface.clone(),
        timeout: options.heartbeat.as_millis() as u64,
        start_time: options.bootstrap_timeout.as_millis() as u64,
    };
    let head = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = options.hosts.iter().map(|name| Host::new(name)).collect();
    let start = Start { head, hosts, radix: options.radix };
    let mut links = Links::head(start, settings, turn.now(), LINKS, &turn.files, &turn.reactor.poller)?;
    for addr in links.addrs() {
        say(&format!("listening at {addr}"));
    }
    if options.hold {
        turn.reactor
            .poller
            .add(rustix::stdio::stdin(), STDIN, Interest::Read)
            .map_err(Error::during("cannot wait for standard input"))?;
    }
    RollCall::default().run(options, &mut turn, &mut links)
}

/// A roll call.
#[derive(Default)]
struct RollCall {
    answers: usize,
    failed: Option<Failure>,
    signal: Option<Signal>,
}

impl RollCall {
    fn run(mut self, options: &Options, turn: &mut Turn, links: &mut Links) -> Result<(), ReachError> {
        loop {
            while let Some(event) = links.event() {
                let now = turn.now();
                match event {
                    Event::Complete => {
                        // A question is short.
                        let _ = links.route(now, To::Below, Channel::Control, &encode(&Order::Who));
                    }
                    Event::Message { from, channel: Channel::Control, body, .. } => {
                        if let Some(Report::Here { pid }) = decode(&body) {
                            self.answers += 1;
                            say(&format!(
                                "node {from} is process {pid} on {}",
                                options.hosts[from as usize - 1]
                            ));
                            if self.answers == options.hosts.len() {
                                say(&format!("all {} answer", self.answers));
                                if !options.hold {
                                    links.end(now, &turn.reactor.poller);
                                }
                            }
                        }
                    }
                    Event::Message { via, body, .. } => links.consumed(via, body.len() as u32),
                    Event::Failed(failure) => {
                        self.failed.get_or_insert(failure);
                        links.end(now, &turn.reactor.poller);
                    }
                    Event::Over => return self.result(),
                    Event::Joined { .. } | Event::Room { .. } | Event::Orphaned(_) | Event::End => {}
                }
            }
            let (signal, input) = turn.go(links)?;
            let ended = input && rustix::io::read(rustix::stdio::stdin(), &mut [0; 4096]) == Ok(0);
            if signal.is_some() || ended {
                self.signal = self.signal.or(signal);
                turn.reactor.poller.remove(rustix::stdio::stdin());
                links.end(turn.now(), &turn.reactor.poller);
            }
        }
    }

    fn result(self) -> Result<(), ReachError> {
        match (self.failed, self.signal) {
            (Some(failure), _) => Err(ReachError::Failed(failure.to_string())),
            (None, Some(signal)) => Err(ReachError::Signal(signals::name(signal.as_raw() as u8))),
            (None, None) => Ok(()),
        }
    }
}

/// A line for whoever asked.
fn say(line: &str) {
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stdout(), "{line}");
}
