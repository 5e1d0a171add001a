//! Time of an event loop in milliseconds.

use std::time::{Duration, Instant};

/// Milliseconds since a start, the unit of all deadlines of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock at 0.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time in milliseconds.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Returns the time left until the earliest of several deadlines, 0 if it has passed. Returns none without a
    /// deadline, which [`Poller::wait`](crate::Poller::wait) treats as no limit.
    pub fn timeout(&self, deadlines: impl IntoIterator<Item = Option<u64>>) -> Option<Duration> {
        let at = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_millis(at.saturating_sub(self.now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_counts() {
        let clock = Clock::start();
        assert_eq!(clock.timeout([None, None]), None);
        assert_eq!(clock.timeout([Some(u64::MAX), None, Some(0)]), Some(Duration::ZERO));
        assert!(clock.timeout([Some(60_000)]).unwrap() > Duration::from_millis(1000));
    }
}
