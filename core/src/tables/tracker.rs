//! Tracker of one collective over the tree of nodes.

use serde::{Deserialize, Serialize};

use super::link_set::LinkSet;
#[cfg(feature = "cluster")]
use crate::store::log::Offset;

/// Progress of a fence, a ring or a group barrier on other nodes.
///
/// Arrivals fan in from the children to the root. The release fans out from the root to the children. Each message is
/// preceded by the records of the log that the receiver lacks.
///
/// A node whose ranks have waited for too long asks its parent to end the collective. The root decides, so that no rank is
/// released while another times out. Arrivals may be on their way to a node that has ended the collective. So each child
/// acknowledges the end, and what comes from it before is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tracker {
    /// Children whose subtree has arrived.
    pub(crate) arrived: LinkSet,
    /// Whether records travel with the collective.
    pub(crate) collects: bool,
    /// State of the arrival that is sent to the parent.
    pub(crate) fan_in: FanIn,
    /// Children that the release has not been sent to.
    pub(crate) fan_out: LinkSet,
    /// Length of the log that a child receives before the release.
    pub(crate) fan_out_log: u32,
    /// State of the request to the parent to end the collective.
    pub(crate) expiry: Expiry,
    /// Children that have not been told that the collective has ended, and the parent if it has not got the acknowledgement.
    pub(crate) ended: LinkSet,
    /// Children that have not acknowledged the end.
    pub(crate) owing: LinkSet,
}

/// State of the request to end a collective whose time-out has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expiry {
    /// No time-out has passed.
    #[default]
    No,
    /// The request will be sent.
    Pending,
    /// The request was sent.
    Sent,
}

/// State of the arrival that is sent to the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FanIn {
    /// Ranks in this subtree have not arrived.
    #[default]
    Incomplete,
    /// The arrival will be sent, after this length of the log.
    Pending(u32),
    /// The arrival was sent.
    Sent,
}

/// Message about a collective, in the order in which those that are pending for a link are sent: a child that has not been
/// released yet has no part in a later collective that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// To the parent: it is known that the collective has ended by a time-out.
    Acknowledge,
    /// To the parent: the arrival. To a child: the release.
    Regular,
    /// To a child: the collective has ended by a time-out.
    End,
    /// To the parent: request to end the collective.
    Expire,
}

/// Pending message about a collective, and the length of the log that precedes it.
pub(crate) type Due = (Step, u32);

impl Tracker {
    /// No rank has arrived.
    pub(crate) const NONE: Tracker = Tracker {
        arrived: LinkSet::EMPTY,
        collects: false,
        fan_in: FanIn::Incomplete,
        fan_out: LinkSet::EMPTY,
        fan_out_log: 0,
        expiry: Expiry::No,
        ended: LinkSet::EMPTY,
        owing: LinkSet::EMPTY,
    };

    /// Returns whether the collective is complete in this subtree and that has not been acted on: `arrived` of `needed`
    /// local ranks have arrived, and so have all `children`. A collective without any arrival is not complete.
    pub(crate) fn is_complete(&self, arrived: u32, needed: u32, children: &LinkSet) -> bool {
        self.fan_in == FanIn::Incomplete
            && (arrived > 0 || !self.arrived.is_empty())
            && arrived >= needed
            && children.is_within(&self.arrived)
    }

    /// Returns the length of the log that precedes its messages, given that of the whole log.
    pub(crate) fn preceding(&self, log: u32) -> u32 {
        if self.collects { log } else { 0 }
    }

    /// Returns the message pending for the link with this index, or `None` without one.
    pub(crate) fn pending(&self, link: usize, is_parent: bool) -> Option<Due> {
        match self.fan_in {
            _ if is_parent && self.ended.contains(link) => Some((Step::Acknowledge, 0)),
            FanIn::Pending(log) if is_parent => Some((Step::Regular, log)),
            _ if self.fan_out.contains(link) => Some((Step::Regular, self.fan_out_log)),
            _ if self.ended.contains(link) => Some((Step::End, 0)),
            _ if is_parent && self.expiry == Expiry::Pending => Some((Step::Expire, 0)),
            _ => None,
        }
    }

    /// Returns whether a message to a neighbour is pending or an acknowledgement is due, so that a complete collective is
    /// still needed.
    pub(crate) fn is_in_use(&self) -> bool {
        [&self.fan_out, &self.ended, &self.owing].into_iter().any(|set| !set.is_empty())
    }

    /// Ends the collective by a time-out, for these `children` and, if `told` by the parent, with an acknowledgement to it.
    pub(crate) fn end(&mut self, children: &LinkSet, told: bool) {
        // What came from a child that owes an acknowledgement is not of the collective that ends now.
        let new = children.without(&self.owing);
        self.ended.add(&new);
        self.ended.add(&LinkSet::parent(told));
        self.owing.add(&new);
        self.begin();
    }

    /// Begins the next collective, in which nothing has arrived. What neighbours have not been told of the last one stays.
    fn begin(&mut self) {
        self.arrived = LinkSet::EMPTY;
        (self.collects, self.fan_in, self.expiry) = (false, FanIn::Incomplete, Expiry::No);
    }

    /// Ends the collective by a release, which these `children` get after this length of the log.
    pub(crate) fn release(&mut self, children: LinkSet, log: u32) {
        (self.fan_out, self.fan_out_log) = (children, self.preceding(log));
        self.begin();
    }

    /// Calls a function with each offset of the log.
    #[cfg(feature = "cluster")]
    pub(crate) fn offsets(&mut self, then: &mut dyn FnMut(Offset, &mut u32)) {
        if let FanIn::Pending(log) = &mut self.fan_in {
            then(Offset::Cut, log);
        }
        let of = if self.fan_out.is_empty() { Offset::Sent } else { Offset::Cut };
        then(of, &mut self.fan_out_log);
    }

    /// Forgets a child that is lost: what has come from it, and what was to be sent to it.
    #[cfg(feature = "cluster")]
    pub(crate) fn forget(&mut self, link: usize) {
        for set in [&mut self.arrived, &mut self.fan_out, &mut self.ended, &mut self.owing] {
            set.remove(link);
        }
    }

    /// Returns whether progress read from a snapshot is possible on a node with these children, with or without a parent,
    /// and with a log of that length.
    pub(crate) fn is_sound(&self, children: &LinkSet, has_parent: bool, log: u32) -> bool {
        let due = match self.fan_in {
            FanIn::Incomplete => 0,
            FanIn::Pending(due) => due,
            FanIn::Sent => self.fan_out_log,
        };
        [&self.arrived, &self.fan_out, &self.owing].into_iter().all(|set| set.is_within(children))
            && self.ended.without(children).is_within(&LinkSet::parent(has_parent))
            && (has_parent || (self.fan_in, self.expiry) == (FanIn::Incomplete, Expiry::No))
            && due.max(self.fan_out_log) <= log
    }

    /// Marks a message for the link with this index as sent.
    pub(crate) fn mark_sent(&mut self, step: Step, link: usize, is_parent: bool) {
        match step {
            Step::Acknowledge | Step::End => self.ended.remove(link),
            Step::Regular if is_parent => self.fan_in = FanIn::Sent,
            Step::Regular => self.fan_out.remove(link),
            Step::Expire => self.expiry = Expiry::Sent,
        }
    }
}
