//! Time in milliseconds, as given by the host.

use serde::{Deserialize, Serialize};

/// Milliseconds since a moment that the host chooses. It must not decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `millis` milliseconds later.
    pub const fn after(self, millis: u64) -> Time {
        Time(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to this time, or 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
