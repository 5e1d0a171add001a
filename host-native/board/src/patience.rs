//! Time that a host waits in calls of a board.

use std::time::{Duration, Instant};

/// Part of the longest time of a call above which it is slow.
const SLOW: u32 = 10;

/// Time of calls, in which a host does nothing else. Slow ones share the longest time of one call, as long as not as much time
/// passes between them: other hosts wait for this one meanwhile.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Longest time of a call.
    max: Duration,
    /// Time of slow calls, less the time since.
    spent: Duration,
    /// End of the last call.
    last: Instant,
}

impl Patience {
    pub(crate) fn new(max: Duration, now: Instant) -> Patience {
        Patience { max, spent: Duration::ZERO, last: now }
    }

    /// Begins a call. Returns the time that it has.
    pub(crate) fn begin(&mut self, now: Instant) -> Duration {
        self.recover(now);
        self.max.saturating_sub(self.spent).max(self.max / SLOW)
    }

    /// Ends a call that began at `start`.
    pub(crate) fn end(&mut self, start: Instant, now: Instant) {
        let took = now.saturating_duration_since(start);
        if took > self.max / SLOW {
            self.spent += took;
            self.last = now;
        } else {
            self.recover(now);
        }
    }

    /// Time of slow calls before.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    fn recover(&mut self, now: Instant) {
        self.spent = self.spent.saturating_sub(now.saturating_duration_since(self.last));
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(5);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn slow_calls_share_the_time_of_one() {
        let mut now = Instant::now();
        let mut patience = Patience::new(MAX, now);
        let mut call = |pause, took| {
            now += millis(pause);
            let start = now;
            let left = patience.begin(now);
            now += millis(took);
            patience.end(start, now);
            left
        };
        // Short calls do not count, however many they are.
        for _ in 0..100 {
            assert_eq!(call(0, 400), MAX);
        }
        assert_eq!(call(0, 2000), MAX);
        assert_eq!(call(0, 2000), millis(3000));
        assert_eq!(call(0, 600), millis(1000));
        // A short one always has its time.
        assert_eq!(call(0, 300), millis(500));
        // Time has passed in it, and passes between calls.
        assert_eq!(call(700, 0), millis(1400));
        assert_eq!(call(4000, 0), MAX);
    }
}
