//! Daemons that are started later, and daemons that end before the others.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;

use hydrant_placement::Host;
use hydrant_reactor::{Error, Key, OpenFiles, Poller};

use super::Overlay;
use super::child::{Child, ChildState};
use super::key::LinkKey;
use super::route::LinkMessage;
use super::{Event, SHUTDOWN_TIMEOUT};
use crate::enrol::Knock;
use crate::error::{FailureCause, OverlayError};
use crate::link::{Link, Secret};

impl Overlay {
    /// Starts the daemon of a host as a child of this node, the head. The tree has the `node` from the start
    /// ([`TreeSpec::late`](super::TreeSpec::late)), and it has no daemon. Messages to all nodes do not go there before
    /// [`Overlay::include`]. [`Event::Joined`](super::Event::Joined) or [`Event::Failed`](super::Event::Failed) follows. `head` is
    /// the name of the head's host, for messages.
    ///
    /// # Errors
    /// The head cannot listen, or a system call failed.
    pub fn grow(
        &mut self,
        node: u32,
        (head, host): (&str, &Host),
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        let Some(subtree) = self.late_subtree(node) else { return Ok(()) };
        self.listen([host.name.as_str()].into_iter(), &[], poller)?;
        let addrs: Vec<_> = self.addrs().collect();
        // A forked daemon would have all of this process's memory and descriptors.
        let (mut child, _) = self.launcher(head, &addrs, None).start(
            (subtree, std::slice::from_ref(host)),
            now,
            files,
            poller,
        )?;
        child.is_included = false;
        self.add_child(child);
        self.start_waiting(now, files, poller)
    }

    /// Makes a host that has asked to join ([`Event::Applied`](super::Event::Applied)) a child of this node, as
    /// [`Overlay::grow`] does with one whose daemon is started.
    ///
    /// # Errors
    /// There is no random number.
    pub fn admit(
        &mut self,
        node: u32,
        (head, host): (&str, &Host),
        applicant: u32,
        now: u64,
    ) -> Result<(), OverlayError> {
        let Some(subtree) = self.late_subtree(node) else { return Ok(()) };
        let secret = Secret::random()?;
        let addrs: Vec<_> = self.addrs().collect();
        let hosts = std::slice::from_ref(host);
        let record = self.launcher(head, &addrs, None).spec(secret.clone(), node, hosts).encode();
        let is_there = self.late_hosts.as_mut().is_some_and(|late| late.admit(applicant, &record, now));
        let deadline = now.saturating_add(self.settings.join_timeout);
        let mut child = Child::expected(subtree, host, secret, deadline);
        child.is_included = false;
        if !is_there {
            child.state = ChildState::Gone;
            self.report_failure(now, child.failure(FailureCause::Gone));
        }
        self.add_child(child);
        Ok(())
    }

    /// Tells a host that has asked to join that it does not.
    pub fn refuse(&mut self, applicant: u32, why: &str, now: u64) {
        self.late_hosts.iter_mut().for_each(|late| late.refuse(applicant, why, now));
    }

    /// The nodes below a child that may join now. One of an earlier try is forgotten.
    fn late_subtree(&mut self, node: u32) -> Option<Range<u32>> {
        self.children.retain(|child| child.node() != node);
        let found = self.place.children.clone().find(|subtree| subtree.start == node);
        found.filter(|subtree| subtree.start >= self.tree.first_late() && self.kill_at.is_none())
    }

    /// A host that asks to join has been greeted. `watch` has the poller report its socket by a key.
    pub(super) fn greeted(
        &mut self,
        link: Link,
        addr: SocketAddr,
        now: u64,
        watch: impl FnOnce(&OwnedFd, Key) -> Result<(), Error>,
    ) -> Result<(), OverlayError> {
        let added = self.late_hosts.as_mut().and_then(|late| late.add(link, addr, now));
        if let Some((applicant, fd)) = added {
            watch(fd, LinkKey::LateHost(applicant).encode(self.keys))?;
        }
        Ok(())
    }

    /// Reads from a host that asks to join.
    pub(super) fn handle_late_host(&mut self, applicant: u32, now: u64) {
        let Some(late) = &mut self.late_hosts else { return };
        let knock = late.receive(applicant, now, &mut self.buffer);
        self.events.extend(knock.map(|knock| match knock {
            Knock::Applied(application, addr) => Event::Applied { applicant, application, addr },
            Knock::Turned(addr, why) => Event::Turned { addr, why },
        }));
    }

    /// Sends messages to all nodes to this child too, from now on.
    pub fn include(&mut self, node: u32) {
        self.child(node).into_iter().for_each(|child| child.is_included = true);
    }

    /// Ends the daemon of a child, which has no children. No more is sent there, and what comes from there is dropped. If it is
    /// left after 5 seconds, it is killed. [`Event::Left`](super::Event::Left) follows when it has ended.
    pub fn dismiss(&mut self, node: u32, now: u64, poller: &Poller) {
        self.send_link_message(now, node, &LinkMessage::Shutdown);
        self.flush(now, poller);
        self.events.retain(|event| !matches!(event, Event::Message { via, .. } if *via == node));
        if let Some(child) = self.child(node) {
            child.is_included = false;
            child.dismissed = Some(now.saturating_add(SHUTDOWN_TIMEOUT));
        }
        self.check_left();
    }

    /// Reports children that have left, once.
    pub(super) fn check_left(&mut self) {
        for child in self.children.iter_mut().filter(|child| child.is_gone()) {
            if child.dismissed.take().is_some() {
                self.events.push_back(Event::Left { node: child.subtree.start });
            }
        }
    }

    /// Kills the daemons that should have left by now. Those on other machines end when their links close.
    pub(super) fn kill_dismissed(&mut self, now: u64) {
        for child in &mut self.children {
            if child.dismissed.is_some_and(|at| at <= now) {
                child.dismissed = Some(u64::MAX);
                child.kill();
            }
        }
        self.check_left();
    }
}
