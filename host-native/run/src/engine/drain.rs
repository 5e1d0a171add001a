//! End of a job on this machine, after its ranks: their output is read to its end, and the processes that they have left
//! behind end.
//!
//! A filter such as `tee` ends when it has read what the ranks have written. So processes that are left have `--drain`
//! seconds from the last byte of output on. Then they get `SIGTERM`, and after the kill timeout `SIGKILL`. Where a signal
//! has ended the ranks, it ends what is no filter at once.

use std::fmt::Write as _;

use hydrant_control::{DaemonEvent, KILL_TIMEOUT};
use hydrant_core::JobId;
use hydrant_reactor::process::Process;
use rustix::process::Signal;

use super::procs::Ending;
use super::singletons::describe_singletons;
use super::{Daemon, Engine};
use crate::error::RunError;

/// Milliseconds that the end of killed processes is waited for.
const GONE_TIMEOUT: u64 = 1_000;
/// Most processes that a line names.
const NAMED_MAX: usize = 8;

/// Wait for the processes that the ranks of a job have left behind.
#[derive(Debug)]
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

impl Drain {
    /// Begins the end of a job all of whose ranks here have ended.
    fn begin(engine: &mut Engine<'_>, id: JobId) -> Drain {
        let now = engine.now();
        let mut drain = Drain { since: now, kill_others_at: None, stage: Stage::Waiting };
        match engine.procs.ending(engine.jobs[id].slots()) {
            Ending::No => {}
            Ending::Asked => {
                signal_others(engine, id, Signal::TERM);
                drain.kill_others_at = Some(now + kill_timeout(engine, id));
            }
            Ending::Killed => drain.kill_others_at = Some(now),
            Ending::KilledAll => drain.stage = Stage::Killed(now + GONE_TIMEOUT),
        }
        drain
    }

    /// Continues the end of a job. Returns true once its output has ended and nothing is left behind.
    fn go_on(&mut self, engine: &mut Engine<'_>, id: JobId) -> bool {
        let now = engine.now();
        let Some(job) = engine.jobs.get(id) else { return true };
        let slots = job.slots();
        let closed = engine.streams.are_closed(slots.clone());
        if self.stage == Stage::Over {
            return closed;
        }
        let left = left_behind(engine, id);
        if closed && left.is_empty() {
            return true;
        }
        if self.kill_others_at.is_some_and(|at| at <= now) {
            self.kill_others_at = None;
            signal_others(engine, id, Signal::KILL);
        }
        if self.stage == Stage::Waiting && self.ask_at(engine, id).is_some_and(|at| at <= now) {
            self.stage = ask(engine, id, &left, now);
        }
        if let Stage::Asked(at) = self.stage
            && (at <= now || left.is_empty())
        {
            self.stage = Stage::Killed(now + GONE_TIMEOUT);
        }
        if let Stage::Killed(until) = self.stage {
            left.iter().for_each(|process| process.signal(Signal::KILL));
            if left.is_empty() || until <= now {
                self.stage = Stage::Over;
                engine.finish_output(id);
            }
        }
        self.stage == Stage::Over && engine.streams.are_closed(slots)
    }

    /// Asks what is left to end at once, or kills it if the signal is repeated. Returns whether there was something.
    fn hasten(&mut self, engine: &mut Engine<'_>, id: JobId, repeated: bool) -> bool {
        let now = engine.now();
        let left = left_behind(engine, id);
        if left.is_empty() {
            return false;
        }
        let stage = match self.stage {
            Stage::Waiting if !repeated => ask(engine, id, &left, now),
            Stage::Waiting | Stage::Asked(_) if repeated => Stage::Killed(now + GONE_TIMEOUT),
            stage => stage,
        };
        std::mem::replace(&mut self.stage, stage) != stage
    }

    /// The next time at which [`go_on`](Drain::go_on) has something to do.
    fn poll_at(&self, engine: &Engine<'_>, id: JobId) -> Option<u64> {
        let stage = match self.stage {
            Stage::Waiting => self.ask_at(engine, id),
            Stage::Asked(at) | Stage::Killed(at) => Some(at),
            Stage::Over => None,
        };
        stage.into_iter().chain(self.kill_others_at.filter(|_| self.stage != Stage::Over)).min()
    }

    /// When the time of the processes is over. None while output waits for its reader: nobody knows what follows.
    fn ask_at(&self, engine: &Engine<'_>, id: JobId) -> Option<u64> {
        let last = engine.streams.last_read(engine.jobs.get(id)?.slots())?;
        Some(self.since.max(last) + engine.settings(id).drain.as_millis() as u64)
    }
}

impl Daemon {
    /// Begins the end of a job all of whose ranks here have ended. The rest of their output is sent.
    pub(super) fn drain(&mut self, engine: &mut Engine<'_>, id: JobId) {
        let Some(job) = engine.jobs.get_mut(id) else { return };
        // No more connections are accepted.
        (job.run.port, job.run.pmix) = (None, None);
        let slots = job.slots();
        let drain = Drain::begin(engine, id);
        engine.read_ended(slots);
        self.draining.insert(id, drain);
    }

    /// Reports jobs whose output has been sent.
    pub(super) fn settle(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let mut done = Vec::new();
        self.draining.retain(|&id, drain| {
            let is_over = drain.go_on(engine, id);
            done.extend(is_over.then_some(id));
            !is_over
        });
        for id in done {
            let serves_pmix = engine.serves_pmix();
            let line = engine.jobs.get(id).and_then(|job| describe_singletons(job, serves_pmix));
            line.iter().for_each(|line| engine.print_about(id, line));
            self.handle(engine, DaemonEvent::OutputDrained { job: id })?;
        }
        Ok(())
    }

    /// Has jobs whose ranks have ended end at once: what they have left behind is asked to end, or killed if the signal is
    /// repeated. Returns whether there were such processes.
    pub(super) fn hasten_drains(&mut self, engine: &mut Engine<'_>, repeated: bool) -> bool {
        let drains = self.draining.iter_mut();
        drains.fold(false, |any, (&id, drain)| drain.hasten(engine, id, repeated) || any)
    }

    /// The next time at which the daemon has something to do.
    pub(super) fn poll_at(&self, engine: &Engine<'_>) -> Option<u64> {
        let drains = self.draining.iter().filter_map(|(&id, drain)| drain.poll_at(engine, id));
        drains.chain(self.control.poll_at()).min()
    }
}

/// Milliseconds between `SIGTERM` and `SIGKILL`.
fn kill_timeout(engine: &Engine<'_>, id: JobId) -> u64 {
    engine.settings(id).kill_grace.map_or(KILL_TIMEOUT, |grace| grace.as_millis() as u64)
}

/// Asks processes to end, and names them.
fn ask(engine: &mut Engine<'_>, id: JobId, left: &[Process], now: u64) -> Stage {
    if !left.is_empty() {
        let line = describe_left(&engine.host, left);
        engine.print_about(id, &line);
    }
    for process in left {
        process.signal(Signal::TERM);
        // A stopped process handles no signal before it is continued.
        process.signal(Signal::CONT);
    }
    Stage::Asked(now + kill_timeout(engine, id))
}

fn describe_left(host: &str, left: &[Process]) -> String {
    let mut line = format!("ending {} that ranks left behind on {host}:", count(left.len()));
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
fn signal_others(engine: &mut Engine<'_>, id: JobId, signal: Signal) {
    let slots = engine.jobs[id].slots();
    for process in left_behind(engine, id) {
        let got_it = signal == Signal::TERM && engine.procs.is_in_group(slots.clone(), &process);
        if !got_it && !engine.procs.is_filter(slots.clone(), &process) {
            process.signal(signal);
            process.signal(Signal::CONT);
        }
    }
}

/// What the ranks of a job here, all of which have ended, have left behind.
fn left_behind(engine: &mut Engine<'_>, id: JobId) -> Vec<Process> {
    let Some(job) = engine.jobs.get(id) else { return Vec::new() };
    let variable = format!("PMI_JOBID={}", job.name);
    let is_last = engine.jobs.iter().all(|other| other.id == id || other.running() == 0);
    engine.procs.left_behind(job.slots(), Some(variable.as_bytes()), is_last)
}

fn count(processes: usize) -> String {
    match processes {
        1 => "1 process".to_owned(),
        more => format!("{more} processes"),
    }
}
