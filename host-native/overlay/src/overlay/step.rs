//! The command at the head that starts all daemons at once.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use hydrant_placement::Host;
use hydrant_reactor::{Error, Interest, KeyRange, OpenFiles, Poller};
use zeroize::Zeroizing;

use super::Overlay;
use super::child::{Child, ChildState};
use super::key::LinkKey;
use crate::bootstrap::{
    BootstrapProcess, DaemonSettings, DaemonSpec, Guide, StartRecord, StepSecret, StepSpec, ended_host,
};
use crate::enrol::{Enrolment, LateHosts};
use crate::error::{DaemonFailure, FailureCause, OverlayError};
use crate::link::Secret;

/// Milliseconds for the rest of the output after srun has named a host. What the daemon itself wrote takes another way.
const OUTPUT_DELAY: u64 = 200;
/// Key of the command among those of the children. The head is no child.
const NODE: u32 = 0;

/// Start of all daemons by one command.
#[derive(Debug)]
pub(super) struct Step {
    command: String,
    process: Option<BootstrapProcess>,
    /// Hosts of the daemons.
    hosts: Vec<Host>,
    /// The output names this host, and its failure is reported at that time.
    named: Option<(usize, u64)>,
    /// A failure has been reported.
    failed: bool,
}

/// The words of the command, if one can start all daemons.
pub(super) fn command(settings: &DaemonSettings, hosts: &[Host]) -> Option<Vec<OsString>> {
    let program = settings.bootstrap_exec.as_deref().map(Path::new);
    let daemon = [settings.program.clone(), "daemon".into()];
    settings.bootstrap.step_command(program, &settings.bootstrap_args, hosts, &daemon)
}

impl Step {
    /// Starts the command without some variables of the environment. A command that cannot be started is a failure of the first
    /// daemon.
    pub(super) fn start(
        (words, without): (&[OsString], &[&str]),
        record: Zeroizing<Vec<u8>>,
        hosts: Vec<Host>,
        (files, poller, keys): (&OpenFiles, &Poller, KeyRange),
    ) -> Result<(Step, Option<DaemonFailure>), Error> {
        let command = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let mut step = Step { command, process: None, hosts, named: None, failed: false };
        match BootstrapProcess::start(words, without, record, files) {
            Ok(process) => {
                if let Some(fd) = process.input() {
                    poller.add(fd, LinkKey::BootstrapInput(NODE).encode(keys), Interest::Write)?;
                }
                if let Some(fd) = process.output() {
                    poller.add(fd, LinkKey::BootstrapOutput(NODE).encode(keys), Interest::Read)?;
                }
                step.process = Some(process);
                Ok((step, None))
            }
            Err(error) => {
                let failure = step.failure(0, FailureCause::NotStarted(error.to_string()));
                Ok((step, Some(failure)))
            }
        }
    }

    /// The failure of the daemon on the host at this place.
    fn failure(&mut self, at: usize, cause: FailureCause) -> DaemonFailure {
        self.failed = true;
        let host = self.hosts.get(at).map_or_else(String::new, |host| host.name.clone());
        DaemonFailure { node: at as u32 + 1, host, cause }
    }

    pub(super) fn process(&mut self) -> Option<&mut BootstrapProcess> {
        self.process.as_mut()
    }

    /// Time at which a host that the command has named is reported.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.named.map(|(_, time)| time)
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(BootstrapProcess::is_running)
    }

    /// The last lines of output of the command.
    fn output_tail(&mut self) -> String {
        self.process.as_mut().map(BootstrapProcess::output_tail).unwrap_or_default()
    }
}

impl Overlay {
    /// Starts all daemons by one command.
    pub(super) fn start_step(
        &mut self,
        words: &[OsString],
        hosts: Vec<Host>,
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        let daemons = hosts[1..].to_vec();
        let record = StartRecord::Step(self.expect_step(hosts, now, poller)?).encode();
        let command = (words, self.settings.bootstrap.removed_variables());
        let (step, failure) = Step::start(command, record, daemons, (files, poller, self.keys))?;
        self.step = Some(step);
        if let Some(failure) = failure {
            self.report_failure(now, failure);
        }
        Ok(())
    }

    /// Expects daemons that others start, and guides them. Returns what they need.
    fn expect_step(&mut self, hosts: Vec<Host>, now: u64, poller: &Poller) -> Result<StepSpec, OverlayError> {
        let secret = StepSecret::random()?;
        let of_children: Vec<_> =
            self.children_from_start().map(|child| secret.of_link(child.start)).collect();
        self.expect_children(of_children, &hosts, &[], now, poller)?;
        let addrs: Vec<SocketAddr> = self.addrs().collect();
        self.guide = Some(Guide::new(secret.clone(), self.tree, addrs.clone()));
        let settings = self.settings.clone();
        Ok(StepSpec { overlay: self.id, secret, addrs, tree: self.tree, hosts, settings })
    }

    /// Takes the hosts that have joined by themselves as those of the daemons, and sends them what they need.
    pub(super) fn start_enrolled(
        &mut self,
        mut enrolment: Enrolment,
        hosts: Vec<Host>,
        now: u64,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        self.is_enrolled = true;
        for socket in enrolment.take_listeners() {
            self.listen_at(socket, poller)?;
        }
        let step = self.expect_step(hosts, now, poller)?;
        let specs = (1..self.tree.first_late()).filter_map(|node| step.of_node(node));
        let (secrets, late) = enrolment.send_records(specs.map(DaemonSpec::encode));
        if self.tree.late() > 0 {
            self.late_hosts = Some(LateHosts::new(secrets));
            for (link, addr) in late {
                self.greeted(link, addr, now, |fd, key| poller.add(fd, key, Interest::Read))?;
            }
        }
        Ok(())
    }

    /// Listens for children whose daemons others start, unless this node listens already. `secrets` are those of their links.
    pub(super) fn expect_children(
        &mut self,
        secrets: Vec<Secret>,
        hosts: &[Host],
        parent: &[SocketAddr],
        now: u64,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        let node = self.node;
        let host_of = |subtree: &Range<u32>| &hosts[(subtree.start - node) as usize];
        let subtrees: Vec<Range<u32>> = self.children_from_start().collect();
        if !subtrees.is_empty() && self.listeners.is_empty() {
            self.listen(subtrees.iter().map(|subtree| host_of(subtree).name.as_str()), parent, poller)?;
        }
        let deadline = now + self.settings.join_timeout;
        self.children = subtrees
            .into_iter()
            .zip(secrets)
            .map(|(subtree, secret)| {
                let host = host_of(&subtree);
                Child::expected(subtree, host, secret, deadline)
            })
            .collect();
        Ok(())
    }

    /// Writes to the command that started all daemons, and reads from it. A host that it names while daemons still join will be
    /// reported, because the command stays while other daemons run.
    pub(super) fn handle_step_ready(&mut self, now: u64) {
        let complete = self.complete;
        let Some(step) = &mut self.step else { return };
        let Some(process) = &mut step.process else { return };
        process.write_input();
        process.read_output();
        if !complete && !step.failed && step.named.is_none() {
            let named = ended_host(&process.output_end(), &step.hosts);
            step.named = named.map(|(at, _)| (at, now + OUTPUT_DELAY));
        }
    }

    /// Reports the host that the command has named.
    pub(super) fn report_named_host(&mut self, now: u64) {
        let Some(step) = &mut self.step else { return };
        let Some((at, _)) = step.named.take_if(|(_, time)| *time <= now) else { return };
        if step.failed {
            return;
        }
        let (command, output) = (step.command.clone(), step.output_tail());
        let status = "ended the daemon's process".to_owned();
        let failure = step.failure(at, FailureCause::BootstrapExited { command, status, output });
        self.report_failure(now, failure);
    }

    /// The command that started all daemons has ended. Without it, those of them that run have no input, and the batch system
    /// may end them.
    pub(super) fn handle_step_exit(&mut self, now: u64) {
        let complete = self.complete;
        let Some(step) = &mut self.step else { return };
        let status = step.process.as_ref().and_then(BootstrapProcess::exit_status).unwrap_or_default();
        let (command, output) = (step.command.clone(), step.output_tail());
        if !step.failed {
            let end = step.process.as_ref().map(|process| process.output_end().into_owned());
            let named = end.and_then(|end| ended_host(&end, &step.hosts).map(|(at, _)| at));
            let named = step.named.map(|(at, _)| at).or(named);
            let waiting =
                self.children.iter().find(|child| child.is_starting()).map(|child| child.node() - 1);
            let at = named.or(waiting.map(|node| node as usize)).unwrap_or(0);
            let cause = match complete {
                false => FailureCause::BootstrapExited { command, status, output },
                true => FailureCause::StepEnded { command, status, output },
            };
            let failure = step.failure(at, cause);
            self.report_failure(now, failure);
        }
        for child in self.children.iter_mut().filter(|child| child.is_starting()) {
            child.state = ChildState::Gone;
        }
        self.check_closed();
    }

    /// The last lines of output of the command that started the daemon of a child.
    pub(super) fn output_of(&mut self, node: u32) -> String {
        match &mut self.step {
            Some(step) => step.output_tail(),
            None => self.child(node).map(|child| child.output_tail()).unwrap_or_default(),
        }
    }
}
