//! The nodes that a node has started, and what starts them.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use hydrant_core::peer::tree::Tree;
use hydrant_placement::{Bootstrap, Environment, Host};
use hydrant_reactor::{Error, Interest, KeyRange, OpenFiles, Poller};

use super::key::LinkKey;
use super::line::Line;
use super::{Failure, Why};
use crate::cluster::bootstrap::{Process, Record, Settings};
use crate::cluster::link::{Channel, JobKey, Secret};

/// One of them.
#[derive(Debug)]
pub(super) struct Child {
    /// Itself first.
    pub(super) subtree: Range<u32>,
    pub(super) host: String,
    /// What starts its daemon, for what is said of it.
    pub(super) command: String,
    pub(super) process: Option<Process>,
    pub(super) stage: Stage,
    /// All daemons below it have joined.
    pub(super) complete: bool,
}

/// How far a child is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its daemon has not connected yet.
    Awaited {
        /// What it has to show.
        secret: Secret,
        /// When it is too late.
        deadline: u64,
        /// What it is sent once it is there.
        queue: Vec<(Channel, Vec<u8>)>,
    },
    Linked(Box<Line>),
    /// Its daemon is gone, or was never there.
    Gone,
}

/// What the children of a node have in common.
pub(super) struct Nursery<'a> {
    pub(super) job: JobKey,
    pub(super) me: u32,
    pub(super) tree: Tree,
    /// The hosts of the subtree of `me`.
    pub(super) hosts: &'a [Host],
    pub(super) addrs: &'a [SocketAddr],
    pub(super) settings: &'a Settings,
    pub(super) keys: KeyRange,
}

impl Nursery<'_> {
    /// Starts a child's daemon, unless that fails at once.
    pub(super) fn start(
        &self,
        subtree: Range<u32>,
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(Child, Option<Failure>), Error> {
        let secret = Secret::random()?;
        let (from, to) = ((subtree.start - self.me) as usize, (subtree.end - self.me) as usize);
        let record = Record {
            job: self.job,
            secret: secret.clone(),
            node: subtree.start,
            parent: self.me,
            addrs: self.addrs.to_vec(),
            parent_host: self.hosts[0].name.clone(),
            tree: self.tree,
            hosts: self.hosts[from..to].to_vec(),
            settings: self.settings.clone(),
        };
        let host = self.hosts[from].clone();
        let daemon = [self.settings.program.clone(), "daemon".into()];
        let program = self.settings.bootstrap_exec.as_deref().map(Path::new);
        let words = self.settings.bootstrap.command(program, &Environment::current(), &host, &daemon);
        let command = match self.settings.bootstrap {
            Bootstrap::Local => "hydrant daemon".to_owned(),
            _ => words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
        };
        let host = host.name;
        let mut child = Child { subtree, host, command, process: None, stage: Stage::Gone, complete: false };
        match Process::start(&words, record.encode(), files) {
            Ok(process) => {
                child.listen_to(&process, self.keys, poller)?;
                child.process = Some(process);
                let deadline = now + self.settings.start_time;
                child.stage = Stage::Awaited { secret, deadline, queue: Vec::new() };
                Ok((child, None))
            }
            Err(error) => {
                let failure = child.failure(Why::NotStarted(error.to_string()));
                Ok((child, Some(failure)))
            }
        }
    }
}

impl Child {
    pub(super) fn node(&self) -> u32 {
        self.subtree.start
    }

    pub(super) fn line(&mut self) -> Option<&mut Line> {
        match &mut self.stage {
            Stage::Linked(line) => Some(line),
            _ => None,
        }
    }

    /// Its secret, as long as it is waited for.
    pub(super) fn secret(&self) -> Option<&Secret> {
        match &self.stage {
            Stage::Awaited { secret, .. } => Some(secret),
            _ => None,
        }
    }

    pub(super) fn is_linked(&self) -> bool {
        matches!(self.stage, Stage::Linked(_))
    }

    /// Whether nothing of it is left here.
    pub(super) fn is_over(&self) -> bool {
        !self.is_linked() && self.process.as_ref().is_none_or(|process| !process.is_running())
    }

    /// What is told when something is wrong with it.
    pub(super) fn failure(&self, why: Why) -> Failure {
        Failure { node: self.node(), host: self.host.clone(), why }
    }

    /// The last lines that came from it or its process.
    pub(super) fn last_words(&mut self) -> String {
        self.process.as_mut().map(Process::last_words).unwrap_or_default()
    }

    fn listen_to(&self, process: &Process, keys: KeyRange, poller: &Poller) -> Result<(), Error> {
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
