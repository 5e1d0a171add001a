//! Ranks that run on after a signal of the user: they are named, and killed after `--kill-grace`.

use std::fmt::Write as _;
use std::time::Duration;

use hydrant_control::Event;
use hydrant_core::trace::SignalName;
use rustix::process::Signal;

use super::{Engine, Head};
use crate::error::RunError;

/// Milliseconds after which ranks that run on are named.
const NAMED_AFTER: u64 = 3_000;
/// Most ranks that are named.
const NAMED_MAX: usize = 8;
/// Milliseconds in which a second `SIGTERM` is the first one again: `timeout` sends it to its child and to its group, and
/// resource managers may send it to several processes.
const SAME: u64 = 1_000;

/// A signal of the user that ranks may ignore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    signal: Signal,
    since: u64,
    /// When the ranks that run on are named.
    name_at: Option<u64>,
    /// When they are killed.
    kill_at: Option<u64>,
}

/// What a signal of the user is to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is passed on.
    Counts,
    /// It is the first one, and all ranks have ended.
    NoRankRuns,
    /// It has come twice at once.
    Twice,
}

/// What a signal of the user is beside those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It is the first one.
    First,
    /// It is another one.
    Again,
    /// It has come twice at once.
    Twice,
}

impl Patience {
    /// Notes a signal that ends jobs. The ranks are killed after `grace`.
    pub(crate) fn note(
        known: &mut Option<Patience>,
        signal: Signal,
        now: u64,
        grace: Option<Duration>,
    ) -> Noted {
        match known {
            Some(known) if signal == Signal::TERM && known.signal == signal && now < known.since + SAME => {
                Noted::Twice
            }
            Some(_) => Noted::Again,
            none => {
                let kill_at = grace.map(|grace| now + grace.as_millis() as u64);
                *none = Some(Patience { signal, since: now, name_at: Some(now + NAMED_AFTER), kill_at });
                Noted::First
            }
        }
    }

    /// When the ranks are killed.
    pub(crate) fn kill_at(&self) -> Option<u64> {
        self.kill_at
    }

    /// If the ranks are to be killed, the signal that does it, and how often it is sent.
    pub(crate) fn take_kill(&mut self, now: u64) -> Option<(Signal, u32)> {
        self.kill_at.take_if(|at| *at <= now)?;
        self.name_at = None;
        let signal = repeatable(self.signal);
        // A signal that is not escalated has not been counted.
        Some((signal, if signal == self.signal { 1 } else { 2 }))
    }

    /// The next time at which ranks that run on are named or killed.
    pub(super) fn poll_at(&self) -> Option<u64> {
        self.name_at.into_iter().chain(self.kill_at).min()
    }
}

impl Head {
    /// Notes a signal of the user.
    pub(super) fn hear(&mut self, engine: &Engine<'_>, signal: Signal) -> Heard {
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return Heard::Counts;
        }
        match Patience::note(&mut self.patience, signal, engine.now(), engine.plan.settings.kill_grace) {
            Noted::First if describe_running(&self.control).is_none() => Heard::NoRankRuns,
            Noted::First | Noted::Again => Heard::Counts,
            Noted::Twice => Heard::Twice,
        }
    }

    /// Names the ranks that run on after a signal, and kills them after the time that the user has set.
    pub(super) fn keep_patience(&mut self, engine: &mut Engine<'_>, now: u64) -> Result<(), RunError> {
        let Some(patience) = &mut self.patience else { return Ok(()) };
        let Patience { signal, since, .. } = *patience;
        if let Some((signal, times)) = patience.take_kill(now) {
            return (0..times).try_for_each(|_| self.handle(engine, Event::Signal(signal.as_raw())));
        }
        let names = patience.name_at.take_if(|at| *at <= now).is_some();
        if names && let Some(ranks) = describe_running(&self.control) {
            let name = SignalName(signal.as_raw());
            let next = match engine.plan.settings.kill_grace {
                Some(grace) => format!("SIGKILL follows {} s after {name}", grace.as_secs_f64()),
                None => format!("a second {} kills them", SignalName(repeatable(signal).as_raw())),
            };
            let seconds = (now - since) / 1000;
            engine.sinks.print(&format!("still running {seconds} s after {name}: {ranks}; {next}"));
        }
        Ok(())
    }
}

/// The first ranks that run, with pid and host, and the number of the others.
fn describe_running(head: &hydrant_control::Head) -> Option<String> {
    let of_job = |job| running(job).map(move |rank| named(job, rank, head.host_of_rank(job, rank)));
    let running: Vec<String> = head.jobs().iter().flat_map(of_job).collect();
    let mut text = running.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if running.len() > NAMED_MAX {
        let _ = write!(text, " and {} others", running.len() - NAMED_MAX);
    }
    (!running.is_empty()).then_some(text)
}

/// The signal whose second one escalates.
fn repeatable(signal: Signal) -> Signal {
    if signal == Signal::INT { signal } else { Signal::TERM }
}

fn running<R>(job: &hydrant_control::Job<R>) -> impl Iterator<Item = u32> + '_ {
    (0..job.size()).filter(|&rank| job.is_running(rank))
}

fn named<R>(job: &hydrant_control::Job<R>, rank: u32, host: &str) -> String {
    format!("{} (pid {} on {host})", job.rank_name(rank), job.pid(rank).unwrap_or(0))
}
