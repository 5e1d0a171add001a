//! Shutdown, timeouts and lost links.

use hydrant_reactor::{Listener, OpenFiles, Poller};

use super::child::{Child, ChildState};
use super::route::LinkMessage;
use super::step::Step;
use super::{Event, Overlay, ParentLink, SHUTDOWN_TIMEOUT};
use crate::enrol::LateHosts;
use crate::error::{DaemonFailure, FailureCause, LifelineLost, LinkError, OverlayError};

/// Hosts whose daemons are started again and that are reported.
const RETRIES_REPORTED: u32 = 8;
/// Commands that start daemons at the same time. Each is a process such as ssh, which is busy until its daemon has joined.
const STARTS_MAX: usize = 128;

impl Overlay {
    /// Ends all daemons below this node. Those that are left after 5 seconds are killed. [`Event::Closed`] follows when
    /// all have ended.
    pub fn shutdown(&mut self, now: u64, poller: &Poller) {
        if self.kill_at.is_some() {
            return;
        }
        self.kill_at = Some(now + SHUTDOWN_TIMEOUT);
        self.listeners.clear();
        self.incoming.clear();
        self.late_hosts = None;
        self.guide = None;
        self.children.iter_mut().filter(|child| child.is_starting()).for_each(|child| child.kill());
        if let Some(process) = self.step.as_mut().and_then(Step::process).filter(|_| !self.complete) {
            // Daemons that have not joined get no shutdown.
            process.terminate();
        }
        for node in self.neighbours() {
            if self.parent() != Some(node) {
                self.send_link_message(now, node, &LinkMessage::Shutdown);
            }
        }
        self.flush(now, poller);
        self.check_closed();
    }

    /// Time of the next call of [`Overlay::handle_timeouts`], in milliseconds of the caller's clock.
    pub fn deadline(&mut self) -> Option<u64> {
        let timeout = self.settings.heartbeat_timeout;
        let parent = match &self.parent_link {
            ParentLink::Connecting(connector) => Some(connector.deadline()),
            ParentLink::Established(_, neighbour) | ParentLink::Authenticating(_, neighbour) => {
                Some(neighbour.deadline(timeout))
            }
            ParentLink::None => None,
        };
        let child_deadline = |state: &ChildState| match state {
            ChildState::Starting { deadline, command, .. } => {
                let next = command.as_ref().and_then(|command| command.at);
                next.into_iter().chain(*deadline).min()
            }
            ChildState::Joined(neighbour) => Some(neighbour.deadline(timeout)),
            ChildState::Gone => None,
        };
        let children = self.children.iter().filter_map(|child| child_deadline(&child.state));
        let paused = self.listeners.iter().filter_map(Listener::deadline);
        let named = self.step.as_ref().and_then(Step::deadline);
        let late = self.late_hosts.as_ref().and_then(LateHosts::deadline);
        let others = [parent, self.incoming.deadline(), late, self.kill_at, named];
        let dismissed = self.children.iter().filter_map(|child| child.dismissed);
        let others = others.into_iter().flatten().chain(paused).chain(dismissed);
        // Events are to be taken at once.
        let is_due =
            !self.events.is_empty() || self.children.iter().any(Child::waits) && self.room_to_start() > 0;
        children.chain(others).chain(is_due.then_some(0)).min()
    }

    /// Handles timeouts and sends heartbeats. Call it after the ready keys have been handled, so that bytes that have
    /// arrived count.
    ///
    /// # Errors
    /// The parent cannot be reached, or a system call failed.
    pub fn handle_timeouts(
        &mut self,
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        self.connect_to_parent(now, poller)?;
        self.incoming.expire(now);
        self.late_hosts.iter_mut().for_each(|late| late.expire(now));
        for listener in &mut self.listeners {
            listener.resume(poller, now)?;
        }
        self.report_named_host(now);
        self.expire_starting_children(now);
        self.start_commands((usize::MAX, |child| child.is_retry_due(now)), now, files, poller)?;
        self.start_waiting(now, files, poller)?;
        let timeout = self.settings.heartbeat_timeout;
        for node in self.neighbours() {
            let is_overdue = |overlay: &mut Overlay| {
                overlay.neighbour(node).is_some_and(|neighbour| neighbour.is_overdue(now, timeout))
            };
            // This process may have been stopped or busy. Bytes that have arrived since are read first.
            if is_overdue(self) && !self.receive(node, now) && is_overdue(self) {
                self.disconnect(now, node, LinkError::Silent(timeout));
            }
            let sent = self.neighbour(node).map(|neighbour| neighbour.send_heartbeat(now, timeout));
            if let Some(Err(error)) = sent {
                self.disconnect(now, node, error);
            }
        }
        self.kill_dismissed(now);
        if self.kill_at.is_some_and(|at| at <= now) {
            // Daemons on other machines end when their links close.
            self.kill_at = Some(u64::MAX);
            self.children.iter_mut().for_each(|child| child.kill());
            if let Some(process) = self.step.as_mut().and_then(Step::process) {
                process.kill();
            }
            self.check_closed();
        }
        Ok(())
    }

    /// Reports and kills children that have not joined in time.
    fn expire_starting_children(&mut self, now: u64) {
        let is_late = |child: &&Child| matches!(child.state, ChildState::Starting { deadline: Some(at), .. } if at <= now);
        let late: Vec<u32> = self.children.iter().filter(is_late).map(Child::node).collect();
        let mut failures = Vec::new();
        for node in late {
            let (millis, output) = (self.settings.join_timeout, self.output_of(node));
            let Some(child) = self.child(node) else { continue };
            let cause = match child.failed_starts() {
                None => FailureCause::JoinTimeout { millis, output },
                Some((failures, output)) => {
                    let times = if failures == 1 { "once".to_owned() } else { format!("{failures} times") };
                    let seconds = millis as f64 / 1000.0;
                    let status = format!("failed {times} within {seconds} s (--bootstrap-timeout)");
                    FailureCause::BootstrapExited { command: child.command.clone(), status, output }
                }
            };
            child.kill();
            failures.push(child.failure(cause));
        }
        for failure in failures {
            self.report_failure(now, failure);
        }
    }

    /// Starts at most so many commands of children of this kind.
    fn start_commands(
        &mut self,
        (most, kind): (usize, impl Fn(&Child) -> bool),
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        let mut failures = Vec::new();
        for child in self.children.iter_mut().filter(|child| kind(child)).take(most) {
            failures.extend(child.start_command(now, self.keys, &self.settings, (files, poller))?);
        }
        for failure in failures {
            self.report_failure(now, failure);
        }
        Ok(())
    }

    /// How many more commands that start daemons may run.
    fn room_to_start(&self) -> usize {
        STARTS_MAX.saturating_sub(self.children.iter().filter(|child| child.is_being_started()).count())
    }

    /// Starts commands that wait for others.
    pub(super) fn start_waiting(
        &mut self,
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        self.start_commands((self.room_to_start(), Child::waits), now, files, poller)
    }

    /// Reports to the parent and to the owner that the start of a daemon below this node is tried again, for some hosts.
    pub(super) fn report_retry(&mut self, now: u64, failure: DaemonFailure) {
        self.retries += 1;
        if self.kill_at.is_none() && self.retries <= RETRIES_REPORTED {
            self.send_to_parent(now, &LinkMessage::Retrying(failure.clone()));
            self.events.push_back(Event::Retrying(failure));
        }
    }

    /// Handles a failed link.
    pub(super) fn disconnect(&mut self, now: u64, node: u32, error: LinkError) {
        if self.parent() == Some(node) {
            let parent_link = std::mem::replace(&mut self.parent_link, ParentLink::None);
            if let ParentLink::Authenticating(mut connector, _) = parent_link {
                if connector.refused(now).is_ok() {
                    self.parent_link = ParentLink::Connecting(connector);
                    return;
                }
            } else if !matches!(parent_link, ParentLink::Established(..)) {
                self.parent_link = parent_link;
                return;
            }
            let host = self.parent_host.clone();
            self.events.push_back(Event::LifelineLost(LifelineLost { node, host, error }));
            return;
        }
        let ends = self.kill_at.is_some();
        let Some(child) = self.child(node).filter(|child| child.has_joined()) else { return };
        let is_shutting_down = ends || child.dismissed.is_some();
        // A daemon that still runs ends when its link closes.
        child.state = ChildState::Gone;
        if let LinkError::Silent(_) = &error {
            child.kill();
        }
        let (error, output) = (error.to_string(), self.output_of(node));
        let failure = self.child(node).map(|child| child.failure(FailureCause::LinkLost { error, output }));
        if let Some(failure) = failure.filter(|_| !is_shutting_down) {
            self.report_failure(now, failure);
        }
        self.check_closed();
        self.check_left();
    }

    /// Reports the failure of a daemon below this node to the parent and to the owner.
    pub(super) fn report_failure(&mut self, now: u64, failure: DaemonFailure) {
        if self.kill_at.is_none() {
            self.send_to_parent(now, &LinkMessage::Failed(failure.clone()));
            self.events.push_back(Event::Failed(failure));
        }
    }

    /// Reports the end of a shutdown, once.
    pub(super) fn check_closed(&mut self) {
        let is_gone = !self.step.as_ref().is_some_and(Step::is_running)
            && self.children.iter().all(|child| child.is_gone());
        if self.kill_at.is_some() && !self.closed && is_gone {
            self.closed = true;
            self.events.push_back(Event::Closed);
        }
    }
}
