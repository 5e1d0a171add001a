//! Slot of a process set.

use heapless::String;
use serde::{Deserialize, Serialize};

#[cfg(feature = "cluster")]
use super::index::Links;
use crate::limits::PSET_NAME_MAX;

/// Bit of [`Pset::end`].
pub(super) const ENDED: u32 = 1 << 31;

/// Slot of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pset {
    pub(super) name: String<PSET_NAME_MAX, u8>,
    /// Serial number of the definition. 0 marks a free slot.
    pub(super) serial: u32,
    /// Serial number of the retirement or of the end. 0 for a set in use.
    pub(super) retired: u32,
    /// End of its members among the words of all sets, if sets may have runs. They begin at the end of those in the slot
    /// before it. A free slot may have unused words. [`ENDED`] is set if a job of the set is over. The slot is then kept
    /// for the events of its other jobs until it is needed.
    pub(super) end: u32,
    #[cfg(feature = "cluster")]
    #[serde(skip)]
    pub(super) links: Links,
}

impl Pset {
    /// Unused slot.
    pub(crate) const EMPTY: Pset = Pset {
        name: String::new(),
        serial: 0,
        retired: 0,
        end: 0,
        #[cfg(feature = "cluster")]
        links: Links::NONE,
    };

    /// Returns the slot with another set, or without one if the serial number is 0.
    pub(super) fn with_set(&self, name: String<PSET_NAME_MAX, u8>, serial: u32) -> Pset {
        Pset {
            name,
            serial,
            retired: 0,
            end: self.end & !ENDED,
            #[cfg(feature = "cluster")]
            links: self.links,
        }
    }

    /// Returns whether the slot holds nothing but unused words.
    pub(super) fn is_empty(&self) -> bool {
        self.name.is_empty() && self.retired == 0 && !self.has_ended()
    }

    /// Returns whether the slot holds a set that can be found.
    pub(crate) fn is_known(&self) -> bool {
        self.serial > 0 && !self.has_ended()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end & ENDED != 0
    }

    pub(super) fn end(&self) -> usize {
        (self.end & !ENDED) as usize
    }
}
