//! Tracker of one collective over the tree of nodes.

use serde::{Deserialize, Serialize};

/// Progress of a fence, a ring or a group barrier on other nodes. Sets of links are bit sets.
///
/// Arrivals fan in from the children to the root. The release fans out from the root to the children. Each message is
/// preceded by the records of the log that the receiver lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tracker {
    /// Children whose subtree has arrived.
    pub(crate) arrived: u64,
    /// Whether records travel with the collective.
    pub(crate) collects: bool,
    /// State of the arrival that is sent to the parent.
    pub(crate) fan_in: FanIn,
    /// Children that the release has not been sent to.
    pub(crate) fan_out: u64,
    /// Length of the log that a child receives before the release.
    pub(crate) fan_out_log: u32,
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

impl Tracker {
    /// No rank has arrived.
    pub(crate) const NONE: Tracker =
        Tracker { arrived: 0, collects: false, fan_in: FanIn::Incomplete, fan_out: 0, fan_out_log: 0 };

    /// Returns whether the collective is complete in this subtree and that has not been acted on: `arrived` of `needed`
    /// local ranks have arrived, and so have all `children`. A collective without any arrival is not complete.
    pub(crate) fn is_complete(&self, arrived: u32, needed: u32, children: u64) -> bool {
        self.fan_in == FanIn::Incomplete
            && (arrived > 0 || self.arrived != 0)
            && arrived >= needed
            && self.arrived & children == children
    }

    /// Returns the length of the log that precedes its messages, given that of the whole log.
    pub(crate) fn preceding(&self, log: u32) -> u32 {
        if self.collects { log } else { 0 }
    }

    /// Returns the length of the log that precedes the message pending for `link`, or `None` without such a message.
    pub(crate) fn pending(&self, link: u64, is_parent: bool) -> Option<u32> {
        match self.fan_in {
            FanIn::Pending(log) if is_parent => Some(log),
            _ if self.fan_out & link != 0 => Some(self.fan_out_log),
            _ => None,
        }
    }

    /// Returns whether progress read from a snapshot is possible on a node with these children, with or without a parent,
    /// and with a log of that length.
    pub(crate) fn is_sound(&self, children: u64, has_parent: bool, log: u32) -> bool {
        let due = match self.fan_in {
            FanIn::Incomplete => 0,
            FanIn::Pending(due) => due,
            FanIn::Sent => self.fan_out_log,
        };
        (self.arrived | self.fan_out) & !children == 0
            && (has_parent || self.fan_in == FanIn::Incomplete)
            && due.max(self.fan_out_log) <= log
    }

    /// Marks the message for `link` as sent.
    pub(crate) fn mark_sent(&mut self, link: u64, is_parent: bool) {
        if is_parent {
            self.fan_in = FanIn::Sent;
        }
        self.fan_out &= !link;
    }
}
