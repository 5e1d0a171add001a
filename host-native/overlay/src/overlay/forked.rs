//! Daemons on the machine of their parent that the parent forks. Links to them are socket pairs.
//!
//! Only the two processes have the ends of such a link, so it needs neither a secret nor encryption.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use hydrant_reactor::process::set_title;
use hydrant_reactor::{Error, Interest, OpenFiles, Poller};

use super::child::{Child, ChildLauncher, ChildState, Entry};
use super::key::LinkKey;
use super::neighbour::Neighbour;
use super::{Event, Overlay, ParentLink};
use crate::bootstrap::{BootstrapProcess, DaemonMain, DaemonSpec};
use crate::error::{DaemonFailure, FailureCause};
use crate::link::{Channel, Link};

impl ChildLauncher<'_> {
    /// Starts a child's daemon as a copy of this process, which inherits its end of the link.
    pub(super) fn fork(
        &self,
        main: DaemonMain,
        (subtree, spec): (Range<u32>, DaemonSpec),
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(Child, Option<DaemonFailure>), Error> {
        let (host, command) = (spec.host().to_owned(), "hydrant daemon".to_owned());
        let mut child = Child::new(subtree, host, command, ChildState::Gone);
        let (ours, theirs) = UnixStream::pair().map_err(Error::during("socketpair"))?;
        let program = self.settings.program.clone();
        let run = move |inherited| {
            set_title(program.as_bytes(), &[b"daemon"]);
            main(DaemonSpec { inherited: Some(inherited), ..spec })
        };
        match BootstrapProcess::fork(theirs.into(), files, run) {
            Ok(process) => {
                child.watch_process(&process, self.keys, poller)?;
                child.process = Some(process);
                let key = LinkKey::Link(child.node()).encode(self.keys);
                poller.add(&ours, key, Interest::Read)?;
                let behind = child.subtree.len() as u32;
                let neighbour = Neighbour::new(Link::inherited(ours.into(), now), key, behind);
                let deadline = now + self.settings.join_timeout;
                child.state = ChildState::starting(Entry::Inherited(Box::new(neighbour)), deadline);
                Ok((child, None))
            }
            Err(error) => {
                let failure = child.failure(FailureCause::NotStarted(error.to_string()));
                Ok((child, Some(failure)))
            }
        }
    }
}

impl Overlay {
    /// Takes over the link to the parent that this daemon has inherited.
    pub(super) fn inherit(
        &mut self,
        fd: OwnedFd,
        parent: u32,
        now: u64,
        poller: &Poller,
    ) -> Result<(), Error> {
        let key = LinkKey::Link(parent).encode(self.keys);
        poller.add(&fd, key, Interest::Read)?;
        let behind = self.tree.nodes() - self.place.subtree.len() as u32;
        let neighbour = Neighbour::new(Link::inherited(fd, now), key, behind);
        self.parent_link = ParentLink::Established(parent, Box::new(neighbour));
        // Shows the parent that this daemon runs.
        let _ = self.send(now, parent, Channel::Link, &[]);
        Ok(())
    }

    /// Reads the first message of a forked daemon, which has joined then. Returns whether the node is one that had not joined.
    pub(super) fn receive_first(&mut self, node: u32, now: u64, poller: &Poller) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut messages = Vec::new();
        let link = self.child(node).and_then(Child::inherited);
        let received = link.map(|link| link.receive(now, &mut buffer, &mut messages));
        self.buffer = buffer;
        match received {
            None => return false,
            Some(Ok(true)) => {}
            Some(Ok(false)) => return true,
            Some(Err(_)) => {
                // The exit status of the process says more.
                self.child(node).and_then(Child::inherited).iter().for_each(|link| link.unwatch(poller));
                return true;
            }
        }
        let queue = self.child(node).map(Child::enter).unwrap_or_default();
        for (channel, bytes) in queue {
            // The length was checked when the message was queued.
            let _ = self.send(now, node, channel, &bytes);
        }
        self.events.push_back(Event::Joined { node });
        self.take_messages(now, node, messages, None);
        true
    }
}
