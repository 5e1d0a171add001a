//! What ends, in time or out of it.

use hydrant_reactor::{Listener, Poller};

use super::children::Stage;
use super::route::Note;
use super::{END_TIME, Event, Failure, Links, LinksError, Orphaned, Up, Why};
use crate::cluster::link::LinkError;

impl Links {
    /// Tells all daemons below this node to end, and sees to it that they do. [`Event::Over`] says when they have.
    pub(crate) fn end(&mut self, now: u64, poller: &Poller) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(now + END_TIME);
        self.ports.clear();
        self.strangers.clear();
        for child in &mut self.children {
            if child.secret().is_some() {
                child.stage = Stage::Gone;
                if let Some(process) = &child.process {
                    process.kill();
                }
            }
        }
        for node in self.neighbours() {
            if self.parent() != Some(node) {
                self.note(now, node, &Note::End);
            }
        }
        self.flush(now, poller);
        self.check_over();
    }

    /// When there is something to do though nothing happens, in milliseconds of the caller's clock.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let timeout = self.settings.timeout;
        let up = match &self.up {
            Up::Dialing(dial) => Some(dial.deadline()),
            Up::Linked(_, line) | Up::Proving(_, line) => Some(line.deadline(timeout)),
            Up::None => None,
        };
        let of_child = |stage: &Stage| match stage {
            Stage::Awaited { deadline, .. } => Some(*deadline),
            Stage::Linked(line) => Some(line.deadline(timeout)),
            Stage::Gone => None,
        };
        let children = self.children.iter().filter_map(|child| of_child(&child.stage));
        let paused = self.ports.iter().filter_map(Listener::deadline);
        let others = [up, self.strangers.deadline(), self.ending].into_iter().flatten().chain(paused);
        // Events are there to be taken at once.
        children.chain(others).chain((!self.events.is_empty()).then_some(0)).min()
    }

    /// Does what is due. To be called after what is ready has been read, so that nobody counts as silent who was not
    /// listened to.
    pub(crate) fn keep_time(&mut self, now: u64, poller: &Poller) -> Result<(), LinksError> {
        self.dial(now, poller)?;
        self.strangers.expire(now);
        for port in &mut self.ports {
            port.resume(poller, now)?;
        }
        self.drop_late(now);
        let timeout = self.settings.timeout;
        for node in self.neighbours() {
            let overdue =
                |links: &mut Links| links.line(node).is_some_and(|line| line.is_overdue(now, timeout));
            // This process itself may have been stopped, or busy: what has come meanwhile is heard first.
            if overdue(self) && !self.receive(node, now) && overdue(self) {
                self.lose(now, node, LinkError::Silent(timeout));
            }
            if let Some(Err(why)) = self.line(node).map(|line| line.beat(now, timeout)) {
                self.lose(now, node, why);
            }
        }
        if self.ending.is_some_and(|at| at <= now) {
            // Those that do not end by themselves: the daemons behind them end when their links close.
            self.ending = Some(u64::MAX);
            for child in &mut self.children {
                child.stage = Stage::Gone;
                if let Some(process) = &child.process {
                    process.kill();
                }
            }
            self.check_over();
        }
        Ok(())
    }

    /// Children that should have come by now have failed.
    fn drop_late(&mut self, now: u64) {
        let mut failures = Vec::new();
        for child in &mut self.children {
            if matches!(child.stage, Stage::Awaited { deadline, .. } if deadline <= now) {
                let said = child.last_words();
                child.stage = Stage::Gone;
                if let Some(process) = &child.process {
                    process.kill();
                }
                failures.push(child.failure(Why::Late { millis: self.settings.start_time, said }));
            }
        }
        for failure in failures {
            self.fail(now, failure);
        }
    }

    /// The link to a neighbour is of no use any more.
    pub(super) fn lose(&mut self, now: u64, node: u32, why: LinkError) {
        if self.parent() == Some(node) {
            let up = std::mem::replace(&mut self.up, Up::None);
            if let Up::Proving(mut dial, _) = up {
                if dial.turned_away(now).is_ok() {
                    self.up = Up::Dialing(dial);
                    return;
                }
            } else if !matches!(up, Up::Linked(..)) {
                self.up = up;
                return;
            }
            let host = self.parent_host.clone();
            self.events.push_back(Event::Orphaned(Orphaned { node, host, why }));
            return;
        }
        let Some(child) = self.child(node).filter(|child| child.is_linked()) else { return };
        // Closing the link ends the daemon, if it can still see that.
        child.stage = Stage::Gone;
        if let (LinkError::Silent(_), Some(process)) = (&why, &child.process) {
            process.kill();
        }
        let (link, said) = (why.to_string(), child.last_words());
        let failure = child.failure(Why::Lost { link, said });
        if self.ending.is_none() {
            self.fail(now, failure);
        }
        self.check_over();
    }

    /// A daemon below this node has failed: the head is told, and whoever serves this node.
    pub(super) fn fail(&mut self, now: u64, failure: Failure) {
        if self.ending.is_none() {
            self.note_up(now, &Note::Failed(failure.clone()));
            self.events.push_back(Event::Failed(failure));
        }
    }

    pub(super) fn check_over(&mut self) {
        if self.ending.is_some() && !self.over && self.children.iter().all(|child| child.is_over()) {
            self.over = true;
            self.events.push_back(Event::Over);
        }
    }
}
