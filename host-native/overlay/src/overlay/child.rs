//! Children of a node, and the start of their daemons.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use hydrant_core::peer::tree::Tree;
use hydrant_placement::{Bootstrap, Environment, Host};
use hydrant_reactor::{Error, Interest, KeyRange, OpenFiles, Poller};
use zeroize::Zeroizing;

use super::key::LinkKey;
use super::neighbour::Neighbour;
use crate::bootstrap::{BootstrapProcess, DaemonMain, DaemonSettings, DaemonSpec, may_pass};
use crate::error::{DaemonFailure, FailureCause};
use crate::link::{Channel, OverlayId, Secret};

/// A child of this node.
#[derive(Debug)]
pub(super) struct Child {
    /// Nodes of its subtree. The first one is the child itself.
    pub(super) subtree: Range<u32>,
    pub(super) host: String,
    /// Name of the command that starts its daemon, for messages.
    pub(super) command: String,
    pub(super) process: Option<BootstrapProcess>,
    pub(super) state: ChildState,
    /// All daemons of the subtree have joined.
    pub(super) complete: bool,
    /// It gets what is sent to all nodes.
    pub(super) is_included: bool,
    /// Its daemon was told to end, and is killed at this time.
    pub(super) dismissed: Option<u64>,
}

/// State of a child's daemon.
#[derive(Debug)]
pub(super) enum ChildState {
    /// The daemon has not joined yet.
    Starting {
        /// What its link will be.
        entry: Entry,
        /// Time limit for joining. None before its command has been started.
        deadline: Option<u64>,
        /// Messages to send when it has joined.
        queue: Vec<(Channel, Vec<u8>)>,
        /// The command that starts it, unless it is forked or others start it.
        command: Option<StartCommand>,
    },
    /// The daemon has joined.
    Joined(Box<Neighbour>),
    /// The daemon has ended or could not be started.
    Gone,
}

/// Command that starts a daemon. It is started again after it has failed for a reason that may pass: the name of a host is not
/// known yet, or its sshd does not run yet.
#[derive(Debug)]
pub(super) struct StartCommand {
    words: Vec<OsString>,
    input: Zeroizing<Vec<u8>>,
    /// The host is another one.
    is_remote: bool,
    /// Time of the first start.
    since: u64,
    /// Time of the next start, if one is due.
    pub(super) at: Option<u64>,
    /// Number of failed starts.
    failures: u32,
    /// The last lines of output of the last one.
    output: String,
    /// The owner knows.
    is_reported: bool,
}

impl StartCommand {
    /// Milliseconds between the end of a command and the next start: doubled each time.
    const DELAYS: std::ops::RangeInclusive<u64> = 250..=4_000;
    /// Milliseconds after which the owner is told.
    const REPORTED_AFTER: u64 = 1_000;
}

/// What makes a process the daemon of a child.
#[derive(Debug)]
pub(super) enum Entry {
    /// It connects, and proves that it has this secret.
    Secret(Secret),
    /// It has inherited the other end of this link. Its first message shows that it runs.
    Inherited(Box<Neighbour>),
}

/// Starts the daemons of children.
pub(super) struct ChildLauncher<'a> {
    pub(super) overlay: OverlayId,
    /// This node.
    pub(super) node: u32,
    pub(super) tree: Tree,
    /// Name of this host.
    pub(super) host: &'a str,
    /// Addresses at which this node listens.
    pub(super) addrs: &'a [SocketAddr],
    pub(super) settings: &'a DaemonSettings,
    pub(super) keys: KeyRange,
    /// What a forked daemon runs. None if daemons are started by commands.
    pub(super) fork: Option<DaemonMain>,
}

impl ChildLauncher<'_> {
    /// What the daemon of a child needs. `hosts` are those of its subtree.
    pub(super) fn spec(&self, secret: Secret, node: u32, hosts: &[Host]) -> DaemonSpec {
        DaemonSpec {
            overlay: self.overlay,
            secret,
            node,
            parent: self.node,
            addrs: self.addrs.to_vec(),
            parent_host: self.host.to_owned(),
            tree: self.tree,
            hosts: hosts.to_vec(),
            settings: self.settings.clone(),
            step: None,
            inherited: None,
        }
    }

    /// Makes a child, whose daemon is forked or waits for its command. If a fork fails, the child is gone and the failure is
    /// returned beside it.
    pub(super) fn start(
        &self,
        (subtree, hosts): (Range<u32>, &[Host]),
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(Child, Option<DaemonFailure>), Error> {
        let secret = Secret::random()?;
        let spec = self.spec(secret.clone(), subtree.start, hosts);
        let host = hosts[0].clone();
        if let Some(main) = self.fork.clone() {
            return self.fork(main, (subtree, spec), now, files, poller);
        }
        let daemon = [self.settings.program.clone(), "daemon".into()];
        let program = self.settings.bootstrap_exec.as_deref().map(Path::new);
        let args = &self.settings.bootstrap_args;
        let words = self.settings.bootstrap.command(program, args, &Environment::current(), &host, &daemon);
        let command = match self.settings.bootstrap {
            Bootstrap::Local => "hydrant daemon".to_owned(),
            _ => words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
        };
        let start = StartCommand {
            words,
            input: spec.encode(),
            is_remote: matches!(self.settings.bootstrap, Bootstrap::Ssh | Bootstrap::Exec(_)),
            since: now,
            at: None,
            failures: 0,
            output: String::new(),
            is_reported: false,
        };
        let state = ChildState::Starting {
            entry: Entry::Secret(secret),
            deadline: None,
            queue: Vec::new(),
            command: Some(start),
        };
        Ok((Child::new(subtree, host.name, command, state), None))
    }
}

impl ChildState {
    pub(super) fn starting(entry: Entry, deadline: u64) -> ChildState {
        ChildState::Starting { entry, deadline: Some(deadline), queue: Vec::new(), command: None }
    }
}

impl Child {
    pub(super) fn new(subtree: Range<u32>, host: String, command: String, state: ChildState) -> Child {
        Child {
            subtree,
            host,
            command,
            process: None,
            state,
            complete: false,
            is_included: true,
            dismissed: None,
        }
    }

    /// A child whose daemon another process starts.
    pub(super) fn expected(subtree: Range<u32>, host: &Host, secret: Secret, deadline: u64) -> Child {
        let state = ChildState::starting(Entry::Secret(secret), deadline);
        Child::new(subtree, host.name.clone(), String::new(), state)
    }

    pub(super) fn node(&self) -> u32 {
        self.subtree.start
    }

    /// The link, if the daemon has joined.
    pub(super) fn neighbour(&mut self) -> Option<&mut Neighbour> {
        match &mut self.state {
            ChildState::Joined(neighbour) => Some(neighbour),
            _ => None,
        }
    }

    /// Whether it takes streams. What is sent to a child that is lost or leaves is dropped.
    pub(super) fn has_credit(&mut self) -> bool {
        self.dismissed.is_some()
            || matches!(self.state, ChildState::Gone)
            || self.neighbour().is_some_and(|neighbour| neighbour.has_credit())
    }

    /// The secret of the link, until the daemon has joined.
    pub(super) fn secret(&self) -> Option<&Secret> {
        match &self.state {
            ChildState::Starting { entry: Entry::Secret(secret), .. } => Some(secret),
            _ => None,
        }
    }

    /// The link that the daemon has inherited, until its first message.
    pub(super) fn inherited(&mut self) -> Option<&mut Neighbour> {
        match &mut self.state {
            ChildState::Starting { entry: Entry::Inherited(neighbour), .. } => Some(neighbour),
            _ => None,
        }
    }

    /// The daemon that has inherited its link has joined. Returns the messages that waited for it.
    pub(super) fn enter(&mut self) -> Vec<(Channel, Vec<u8>)> {
        match std::mem::replace(&mut self.state, ChildState::Gone) {
            ChildState::Starting { entry: Entry::Inherited(neighbour), queue, .. } => {
                self.state = ChildState::Joined(neighbour);
                queue
            }
            other => {
                self.state = other;
                Vec::new()
            }
        }
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, ChildState::Starting { .. })
    }

    pub(super) fn has_joined(&self) -> bool {
        matches!(self.state, ChildState::Joined(_))
    }

    /// Whether neither the link nor the bootstrap process is left.
    pub(super) fn is_gone(&self) -> bool {
        !self.has_joined() && self.process.as_ref().is_none_or(|process| !process.is_running())
    }

    fn start_state(&mut self) -> Option<&mut StartCommand> {
        match &mut self.state {
            ChildState::Starting { command, .. } => command.as_mut(),
            _ => None,
        }
    }

    /// Whether its command has not been started.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, ChildState::Starting { deadline: None, .. })
    }

    /// Whether its command is to be started again.
    pub(super) fn is_retry_due(&self, now: u64) -> bool {
        let ChildState::Starting { command: Some(start), .. } = &self.state else { return false };
        start.at.is_some_and(|at| at <= now)
    }

    /// Whether its command runs and it has not joined.
    pub(super) fn is_being_started(&self) -> bool {
        self.is_starting() && self.process.as_ref().is_some_and(BootstrapProcess::is_running)
    }

    /// Number of failed starts of the command for a reason that may pass, and the last lines of output of the last one.
    pub(super) fn failed_starts(&mut self) -> Option<(u32, String)> {
        let retry = self.start_state().filter(|retry| retry.failures > 0)?;
        Some((retry.failures, retry.output.clone()))
    }

    /// The command has ended with this output. Plans another start if the reason may pass.
    pub(super) fn plan_retry(&mut self, now: u64, output: &str) -> bool {
        let may_pass = |start: &&mut StartCommand| start.is_remote && may_pass(output);
        let Some(retry) = self.start_state().filter(may_pass) else { return false };
        let (first, last) = StartCommand::DELAYS.into_inner();
        retry.at = Some(now + first.saturating_mul(1 << retry.failures.min(16)).min(last));
        retry.failures += 1;
        output.clone_into(&mut retry.output);
        true
    }

    /// The failure to report, if the command has failed for some time and nothing has been reported.
    pub(super) fn overdue_retry(&mut self, now: u64, cause: FailureCause) -> Option<DaemonFailure> {
        let retry = self.start_state()?;
        if retry.is_reported || now < retry.since + StartCommand::REPORTED_AFTER {
            return None;
        }
        retry.is_reported = true;
        Some(self.failure(cause))
    }

    /// Starts the command. One that cannot be started is returned as a failure.
    pub(super) fn start_command(
        &mut self,
        now: u64,
        keys: KeyRange,
        settings: &DaemonSettings,
        (files, poller): (&OpenFiles, &Poller),
    ) -> Result<Option<DaemonFailure>, Error> {
        let ChildState::Starting { deadline, command: Some(start), .. } = &mut self.state else {
            return Ok(None);
        };
        if deadline.is_none() {
            (*deadline, start.since) = (Some(now + settings.join_timeout), now);
        }
        start.at = None;
        let without = settings.bootstrap.removed_variables();
        match BootstrapProcess::start(&start.words, without, start.input.clone(), files) {
            Ok(process) => {
                self.watch_process(&process, keys, poller)?;
                self.process = Some(process);
                Ok(None)
            }
            Err(error) => {
                self.state = ChildState::Gone;
                Ok(Some(self.failure(FailureCause::NotStarted(error.to_string()))))
            }
        }
    }

    /// Drops the link and kills the bootstrap process.
    pub(super) fn kill(&mut self) {
        self.state = ChildState::Gone;
        if let Some(process) = &self.process {
            process.kill();
        }
    }

    pub(super) fn failure(&self, cause: FailureCause) -> DaemonFailure {
        DaemonFailure { node: self.node(), host: self.host.clone(), cause }
    }

    /// The last lines of output of the bootstrap process.
    pub(super) fn output_tail(&mut self) -> String {
        self.process.as_mut().map(BootstrapProcess::output_tail).unwrap_or_default()
    }

    pub(super) fn watch_process(
        &self,
        process: &BootstrapProcess,
        keys: KeyRange,
        poller: &Poller,
    ) -> Result<(), Error> {
        let node = self.node();
        if let Some(fd) = process.input() {
            poller.add(fd, LinkKey::BootstrapInput(node).encode(keys), Interest::Write)?;
        }
        if let Some(fd) = process.output() {
            poller.add(fd, LinkKey::BootstrapOutput(node).encode(keys), Interest::Read)?;
        }
        Ok(())
    }
}
