//! Liveness of a board: regular requests, and the time since its last record.

use std::fmt;
use std::time::{Duration, Instant};

use hydrant_core::server::JobReport;

/// Heartbeats within the timeout. A busy board or network may delay three of them.
const PER_TIMEOUT: u32 = 4;

/// Times of the heartbeats of a board. Every record of the board postpones the next heartbeat.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// Time without a record after which the board is lost.
    pub(crate) timeout: Duration,
    /// Time after which a waiting fence of a silent board is reported. Zero for never.
    pub(crate) fence_warning: Duration,
    /// Time of the last record.
    heard: Instant,
    /// Time of the first heartbeat since then.
    sent: Option<Instant>,
    /// Ranks in the fence and ranks of the job, at the last report with a waiting fence.
    fence: Option<(u32, u32)>,
    /// The waiting fence was reported.
    reported: bool,
}

/// Action at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// No action.
    Nothing,
    /// A heartbeat is to be sent.
    Send,
    /// The board is silent while ranks wait in a fence. This is reported once.
    Report,
    /// The board is lost.
    Lost,
}

/// Time that a board has not answered, and the fence of its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    duration: Duration,
    fence: Option<(u32, u32)>,
}

impl Heartbeat {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Heartbeat {
        let fence_warning = Duration::ZERO;
        Heartbeat { timeout, fence_warning, heard: now, sent: None, fence: None, reported: false }
    }

    /// Records that a record has arrived.
    pub(crate) fn heard(&mut self, now: Instant) {
        (self.heard, self.sent, self.reported) = (now, None, false);
    }

    /// Records the state of the job, as the board has reported it.
    pub(crate) fn answered(&mut self, report: &JobReport) {
        self.fence = (report.in_fence > 0).then_some((report.in_fence, report.size));
    }

    /// Records that no rank waits in a fence.
    pub(crate) fn left_fence(&mut self) {
        self.fence = None;
    }

    /// Records that a heartbeat was sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent = self.sent.or(Some(now));
    }

    fn interval(&self) -> Duration {
        self.timeout / PER_TIMEOUT
    }

    /// Start of the silence. A host that was stopped itself has sent the heartbeat late, and the silence began one interval
    /// before it.
    fn silent_since(&self, sent: Instant) -> Instant {
        sent.checked_sub(self.interval()).map_or(self.heard, |start| start.max(self.heard))
    }

    /// Returns the duration of a silence after which a waiting fence is reported. The board has at least one interval for
    /// its answer.
    pub(crate) fn report_after(&self) -> Duration {
        self.fence_warning.max(2 * self.interval())
    }

    fn report_at(&self, since: Instant) -> Option<Instant> {
        let reports = self.fence.is_some() && !self.reported && !self.fence_warning.is_zero();
        reports.then(|| since + self.report_after())
    }

    /// Returns the time of the next action.
    pub(crate) fn deadline(&self) -> Instant {
        let Some(sent) = self.sent else { return self.heard + self.interval() };
        let since = self.silent_since(sent);
        let lost = since + self.timeout;
        self.report_at(since).map_or(lost, |report| report.min(lost))
    }

    /// Returns the action that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let Some(sent) = self.sent else {
            return if now >= self.heard + self.interval() { Due::Send } else { Due::Nothing };
        };
        let since = self.silent_since(sent);
        if now >= since + self.timeout {
            return Due::Lost;
        }
        if self.report_at(since).is_some_and(|at| now >= at) {
            self.reported = true;
            return Due::Report;
        }
        Due::Nothing
    }

    /// Describes a silence of this duration.
    pub(crate) fn silence(&self, duration: Duration) -> Silence {
        Silence { duration, fence: self.fence }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has not answered for {} s", self.duration.as_secs_f64())?;
        match self.fence {
            Some((arrived, size)) => {
                write!(f, "; at its last report {arrived} of {size} ranks waited in a fence")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::server::JobPhase;

    const TIMEOUT: Duration = Duration::from_secs(4);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn report(in_fence: u32) -> JobReport {
        let phase = JobPhase::Served;
        JobReport { phase, size: 3, connected: 3, initialized: 3, in_fence, finalized: 0, exited: 0 }
    }

    #[test]
    fn a_board_that_answers_is_asked_four_times_within_the_timeout() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(TIMEOUT, start);
        for second in 1..20 {
            let now = start + seconds(second);
            assert_eq!(heartbeat.deadline(), now);
            assert_eq!(heartbeat.due(now - Duration::from_millis(1)), Due::Nothing);
            assert_eq!(heartbeat.due(now), Due::Send);
            heartbeat.sent(now);
            heartbeat.heard(now);
            heartbeat.answered(&report(0));
        }
    }

    #[test]
    fn a_silent_board_is_lost_after_the_timeout_and_its_fence_is_named_once() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(TIMEOUT, start);
        heartbeat.fence_warning = Duration::from_millis(1);
        heartbeat.answered(&report(2));
        heartbeat.sent(start + seconds(1));
        assert_eq!(heartbeat.deadline(), start + seconds(2));
        assert_eq!(heartbeat.due(start + seconds(2)), Due::Report);
        assert_eq!(heartbeat.due(start + seconds(3)), Due::Nothing);
        assert_eq!(heartbeat.deadline(), start + TIMEOUT);
        assert_eq!(heartbeat.due(start + TIMEOUT), Due::Lost);
        let text = "has not answered for 4 s; at its last report 2 of 3 ranks waited in a fence";
        assert_eq!(heartbeat.silence(TIMEOUT).to_string(), text);
        heartbeat.heard(start + TIMEOUT);
        assert_eq!(heartbeat.due(start + TIMEOUT), Due::Nothing);
    }

    /// The process was stopped for a minute and has not asked meanwhile.
    #[test]
    fn a_host_that_was_stopped_asks_before_it_gives_up() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(TIMEOUT, start);
        let now = start + seconds(60);
        assert_eq!(heartbeat.due(now), Due::Send);
        heartbeat.sent(now);
        assert_eq!(heartbeat.due(now), Due::Nothing);
        assert_eq!(heartbeat.deadline(), now + seconds(3));
    }
}
