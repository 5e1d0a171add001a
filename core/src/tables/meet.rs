//! How far ranks that wait for each other have come on other nodes.

use serde::{Deserialize, Serialize};

/// The part of a fence, a ring or a group's barrier that is other nodes' business. Links are named by their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meet {
    /// Children whose part of the tree has arrived.
    pub below: u64,
    /// What the parent knows.
    pub up: Up,
    /// Children that have to be told that everybody has arrived.
    pub down: u64,
    /// How much of the log they get before that.
    pub down_at: u32,
}

/// What a parent knows of those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// Nothing: some of them have not arrived.
    #[default]
    Waiting,
    /// It has to be told that they have, once it has that much of the log.
    Unsaid(u32),
    /// It has been told.
    Said,
}

impl Meet {
    /// No part of the tree has arrived.
    pub const NONE: Meet = Meet { below: 0, up: Up::Waiting, down: 0, down_at: 0 };

    /// Whether everybody at and below this node has just arrived: `arrived` of the `here` that this node's own are,
    /// and the children `below`. Nobody at all is not everybody.
    pub fn is_complete(&self, arrived: u32, here: u32, below: u64) -> bool {
        self.up == Up::Waiting
            && (arrived > 0 || self.below != 0)
            && arrived >= here
            && self.below & below == below
    }

    /// How much of the log has to be sent on a link before it is said there what is still to be said; nothing where
    /// that is nothing.
    pub fn due(&self, link: u64, parent: bool) -> Option<u32> {
        match self.up {
            Up::Unsaid(at) if parent => Some(at),
            _ if self.down & link != 0 => Some(self.down_at),
            _ => None,
        }
    }

    /// Whether no other node has a part in it.
    pub fn is_of_one_node(&self) -> bool {
        (self.below, self.up, self.down) == (0, Up::Waiting, 0)
    }

    /// It has been said on a link.
    pub fn said(&mut self, link: u64, parent: bool) {
        if parent {
            self.up = Up::Said;
        }
        self.down &= !link;
    }
}
