//! Time in milliseconds, as given by the host.

use serde::{Deserialize, Serialize};

/// Milliseconds since a moment of the host's choice, never going back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// The moment `millis` milliseconds later.
    pub const fn after(self, millis: u64) -> Time {
        Time(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this moment; 0 when `earlier` is not earlier.
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
