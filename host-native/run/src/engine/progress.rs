//! Line about a long start on a terminal: hosts reached, ranks started, ranks joined.

use super::Engine;

/// Milliseconds after which a start is long.
const FIRST: u64 = 500;
/// Milliseconds between two lines.
const INTERVAL: u64 = 200;

/// What is known about a start.
#[derive(Debug)]
pub(super) struct Progress {
    /// Daemons that have joined.
    pub(super) hosts: u32,
    /// Ranks that have joined.
    joined: u32,
    /// Time of the next line in milliseconds. None while all ranks run and none has joined: programs without MPI never join.
    at: Option<u64>,
}

/// What is to be seen.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Line(String),
    /// Nothing until a rank joins.
    Nothing,
    /// Nothing from now on.
    Over,
}

impl Progress {
    /// Time of the next line in milliseconds.
    pub(super) fn poll_at(&self) -> Option<u64> {
        self.at
    }
}

impl Engine<'_, '_> {
    /// Prepares to show progress, if standard error is a terminal.
    pub(super) fn open_progress(&mut self) {
        if self.sinks.can_show_progress() && !self.plan.settings.verbose {
            self.progress = Some(Progress { hosts: 0, joined: 0, at: Some(FIRST) });
        }
    }

    /// Counts ranks of the job of the command line that have joined.
    pub(super) fn count_joined(&mut self, ranks: u32) {
        let now = self.now();
        if let Some(progress) = &mut self.progress {
            progress.joined = progress.joined.saturating_add(ranks);
            progress.at.get_or_insert(now + INTERVAL);
        }
    }

    /// Shows progress if it is time, and erases it once the job runs or a rank has written something.
    pub(super) fn keep_progress(&mut self, now: u64) {
        let is_due = |progress: &Progress| progress.at.is_some_and(|at| at <= now);
        if !self.progress.as_ref().is_some_and(is_due) {
            return;
        }
        let shown = if self.sinks.can_show_progress() { self.describe_progress() } else { Shown::Over };
        let at = match shown {
            Shown::Line(line) => {
                self.sinks.show_progress(&line);
                Some(now + INTERVAL)
            }
            Shown::Nothing => {
                self.sinks.erase_progress();
                None
            }
            Shown::Over => return self.end_progress(),
        };
        self.flush();
        if let Some(progress) = &mut self.progress {
            progress.at = at;
        }
    }

    /// Shows no more progress.
    pub(super) fn end_progress(&mut self) {
        if self.progress.take().is_some() {
            self.sinks.erase_progress();
            self.flush();
        }
    }

    /// Returns what is to be seen.
    fn describe_progress(&self) -> Shown {
        let Some(progress) = &self.progress else { return Shown::Over };
        let Some(head) = self.head.as_ref().map(|head| &head.control) else { return Shown::Over };
        let hosts = head.hosts().len() as u32;
        if self.nodes.is_some() && progress.hosts < hosts {
            return Shown::Line(format!("hydrant: {} of {hosts} hosts have joined", progress.hosts));
        }
        let started = match head.jobs().iter().find(|job| job.ordinal == 0) {
            Some(job) => (!job.is_aborted()).then(|| (job.started(), job.size())),
            None if head.awaits_nodes() => return Shown::Line("hydrant: all hosts have joined".to_owned()),
            None => None,
        };
        let Some((started, ranks)) = started else { return Shown::Over };
        match progress.joined {
            _ if started < ranks => {
                Shown::Line(format!("hydrant: {started} of {ranks} ranks have been started"))
            }
            0 => Shown::Nothing,
            joined if joined < ranks => {
                Shown::Line(format!("hydrant: {joined} of {ranks} ranks have joined"))
            }
            _ => Shown::Over,
        }
    }
}
