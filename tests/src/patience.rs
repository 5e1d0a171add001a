//! Time limit of what tests wait for.

use std::time::{Duration, Instant};

/// How long a job may take before it counts as hung. Generous: machines have two cores and MPI libraries spin.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds, [`PATIENCE`] at most. Returns whether it does.
pub fn until(holds: impl Fn() -> bool) -> bool {
    within(PATIENCE, holds)
}

/// Waits until something holds, for this time at most. Returns whether it does.
pub fn within(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
