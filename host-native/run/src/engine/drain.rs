//! End of a job on this machine, after its ranks: their output is read to its end, and the processes that they have left
//! behind end.
//!
//! A filter such as `tee` ends when it has read what the ranks have written. So processes that are left have `--drain`
//! seconds from the last byte of output on. Then they get `SIGTERM`, and after the kill timeout `SIGKILL`. Where a signal
//! has ended the ranks, it ends what is no filter at once.

use std::fmt::Write as _;

use hydrant_control::KILL_TIMEOUT;
use hydrant_core::JobId;
use hydrant_reactor::process::Process;
use rustix::process::Signal;

use super::Engine;
use super::procs::Ending;

/// Milliseconds that the end of killed processes is waited for.
const GONE_TIMEOUT: u64 = 1_000;
/// Most processes that a line names.
const NAMED_MAX: usize = 8;

/// Wait for the processes that the ranks of a job have left behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// When the last rank ended.
    since: u64,
    /// When processes that are no filters are killed, if they were asked to end.
    kill_others_at: Option<u64>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The processes have time.
    Waiting,
    /// They were asked to end, and are killed at this time.
    Asked(u64),
    /// They were killed. From this time on they are not waited for.
    Killed(u64),
    /// The rest of the output is passed on.
    Over,
}

impl Engine<'_> {
    /// Begins the end of a job all of whose ranks here have ended. Returns false if it has begun before.
    pub(super) fn begin_drain(&mut self, id: JobId) -> bool {
        let now = self.now();
        let job = &mut self.jobs[id];
        if job.run.drain.is_some() {
            return false;
        }
        let slots = job.slots();
        let mut drain = Drain { since: now, kill_others_at: None, stage: Stage::Waiting };
        match self.procs.ending(slots.clone()) {
            Ending::No => {}
            Ending::Asked => {
                self.signal_others(id, Signal::TERM);
                drain.kill_others_at = Some(now + self.kill_timeout());
            }
            Ending::Killed => drain.kill_others_at = Some(now),
            Ending::KilledAll => drain.stage = Stage::Killed(now + GONE_TIMEOUT),
        }
        self.jobs[id].run.drain = Some(drain);
        true
    }

    /// Continues the end of a job. Returns true once its output has ended and nothing is left behind.
    pub(super) fn is_drained(&mut self, id: JobId) -> bool {
        let now = self.now();
        let Some(job) = self.jobs.get(id) else { return true };
        let Some(mut drain) = job.run.drain else { return true };
        let slots = job.slots();
        let closed = self.streams.are_closed(slots.clone());
        if drain.stage == Stage::Over {
            return closed;
        }
        let left = self.left_behind(id);
        if closed && left.is_empty() {
            return true;
        }
        if drain.kill_others_at.is_some_and(|at| at <= now) {
            drain.kill_others_at = None;
            self.signal_others(id, Signal::KILL);
        }
        if drain.stage == Stage::Waiting && self.drain_at(id, drain).is_some_and(|at| at <= now) {
            drain.stage = self.ask(&left, now);
        }
        if let Stage::Asked(at) = drain.stage
            && (at <= now || left.is_empty())
        {
            drain.stage = Stage::Killed(now + GONE_TIMEOUT);
        }
        if let Stage::Killed(until) = drain.stage {
            left.iter().for_each(|process| process.signal(Signal::KILL));
            if left.is_empty() || until <= now {
                drain.stage = Stage::Over;
                self.finish_output(id);
            }
        }
        let is_over = drain.stage == Stage::Over;
        self.jobs[id].run.drain = Some(drain);
        is_over && self.streams.are_closed(slots)
    }

    /// Has jobs whose ranks have ended end at once: what they have left behind is asked to end, or killed if the signal is
    /// repeated. Returns whether there were such processes.
    pub(super) fn hasten_drains(&mut self, repeated: bool) -> bool {
        let now = self.now();
        let mut any = false;
        for id in self.jobs.ids(|job| job.run.drain.is_some()) {
            let left = self.left_behind(id);
            let Some(drain) = self.jobs[id].run.drain.filter(|_| !left.is_empty()) else { continue };
            let stage = match drain.stage {
                Stage::Waiting if !repeated => self.ask(&left, now),
                Stage::Waiting | Stage::Asked(_) if repeated => Stage::Killed(now + GONE_TIMEOUT),
                stage => stage,
            };
            any = any || stage != drain.stage;
            self.jobs[id].run.drain = Some(Drain { stage, ..drain });
        }
        any
    }

    /// The next time at which [`is_drained`](Engine::is_drained) has something to do.
    pub(super) fn drains_at(&self) -> Option<u64> {
        let drains = self.jobs.iter().filter_map(|job| Some((job.id, job.run.drain?)));
        let at = |(id, drain): (JobId, Drain)| {
            let stage = match drain.stage {
                Stage::Waiting => self.drain_at(id, drain),
                Stage::Asked(at) | Stage::Killed(at) => Some(at),
                Stage::Over => None,
            };
            stage.into_iter().chain(drain.kill_others_at.filter(|_| drain.stage != Stage::Over)).min()
        };
        drains.filter_map(at).min()
    }

    /// When the time of the processes is over. None while output waits for its reader: nobody knows what follows.
    fn drain_at(&self, id: JobId, drain: Drain) -> Option<u64> {
        let slots = self.jobs[id].slots();
        let last = self.streams.last_read(slots)?;
        Some(drain.since.max(last) + self.plan.settings.drain.as_millis() as u64)
    }

    /// Milliseconds between `SIGTERM` and `SIGKILL`.
    pub(super) fn kill_timeout(&self) -> u64 {
        self.plan.settings.kill_grace.map_or(KILL_TIMEOUT, |grace| grace.as_millis() as u64)
    }

    /// Asks processes to end, and names them.
    fn ask(&mut self, left: &[Process], now: u64) -> Stage {
        if !left.is_empty() {
            let line = self.describe_left(left);
            self.sinks.print(&line);
        }
        for process in left {
            process.signal(Signal::TERM);
            // A stopped process handles no signal before it is continued.
            process.signal(Signal::CONT);
        }
        Stage::Asked(now + self.kill_timeout())
    }

    fn describe_left(&self, left: &[Process]) -> String {
        let mut line = format!("ending {} that ranks left behind on {}:", count(left.len()), self.host);
        for (at, process) in left.iter().take(NAMED_MAX).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(line, "{comma} {} (pid {})", process.name, process.pid);
        }
        if left.len() > NAMED_MAX {
            let _ = write!(line, " and {} others", left.len() - NAMED_MAX);
        }
        line
    }

    /// Signals what is left of a job except filters. What a rank's group has got already, it does not get again.
    fn signal_others(&mut self, id: JobId, signal: Signal) {
        let slots = self.jobs[id].slots();
        for process in self.left_behind(id) {
            let got_it = signal == Signal::TERM && self.procs.is_in_group(slots.clone(), &process);
            if !got_it && !self.procs.is_filter(slots.clone(), &process) {
                process.signal(signal);
                process.signal(Signal::CONT);
            }
        }
    }

    fn left_behind(&mut self, id: JobId) -> Vec<Process> {
        let job = &self.jobs[id];
        let variable = format!("PMI_JOBID={}", job.name);
        let is_last = self.jobs.iter().all(|other| other.id == id || other.running() == 0);
        self.procs.left_behind(job.slots(), Some(variable.as_bytes()), is_last)
    }
}

fn count(processes: usize) -> String {
    match processes {
        1 => "1 process".to_owned(),
        more => format!("{more} processes"),
    }
}
