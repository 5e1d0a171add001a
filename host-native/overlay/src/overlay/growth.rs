//! Daemons that are started later, and daemons that end before the others.

use hydrant_placement::Host;
use hydrant_reactor::{OpenFiles, Poller};

use super::Overlay;
use super::route::LinkMessage;
use super::{Event, SHUTDOWN_TIMEOUT};
use crate::error::OverlayError;

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
        // Of an earlier try.
        self.children.retain(|child| child.node() != node);
        let found = self.place.children.clone().find(|subtree| subtree.start == node);
        let subtree = found.filter(|subtree| subtree.start >= self.tree.first_late());
        let Some(subtree) = subtree.filter(|_| self.kill_at.is_none()) else { return Ok(()) };
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
        self.children.push(child);
        self.start_waiting(now, files, poller)
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
