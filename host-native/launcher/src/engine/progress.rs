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
    /// Ranks of this machine that have joined.
    pub(super) joined: u32,
    /// Time of the next line in milliseconds.
    at: u64,
}

impl Progress {
    /// Time of the next line in milliseconds.
    pub(super) fn poll_at(&self) -> u64 {
        self.at
    }
}

impl Engine<'_, '_> {
    /// Prepares to show progress, if standard error is a terminal.
    pub(super) fn open_progress(&mut self) {
        if self.sinks.can_show_progress() && !self.plan.options.verbose {
            self.progress = Some(Progress { hosts: 0, joined: 0, at: FIRST });
        }
    }

    /// Shows progress if it is time, and erases it once the job runs or a rank has written something.
    pub(super) fn keep_progress(&mut self, now: u64) {
        if self.progress.as_ref().is_none_or(|progress| progress.at > now) {
            return;
        }
        match self.describe_progress().filter(|_| self.sinks.can_show_progress()) {
            Some(line) => {
                self.sinks.show_progress(&line);
                self.flush();
            }
            None => return self.end_progress(),
        }
        if let Some(progress) = &mut self.progress {
            progress.at = now + INTERVAL;
        }
    }

    /// Shows no more progress.
    pub(super) fn end_progress(&mut self) {
        if self.progress.take().is_some() {
            self.sinks.erase_progress();
            self.flush();
        }
    }

    /// Returns the line. None once the job of the command line runs or ends.
    fn describe_progress(&self) -> Option<String> {
        let progress = self.progress.as_ref()?;
        let (started, ranks) = match self.control_of_head() {
            Some(head) => {
                let hosts = head.hosts().len() as u32;
                if progress.hosts < hosts {
                    return Some(format!("hydrant: {} of {hosts} hosts have joined", progress.hosts));
                }
                match head.jobs().iter().find(|job| job.ordinal == 0) {
                    Some(job) if !job.is_aborted() => (job.started(), job.size()),
                    Some(_) => return None,
                    None if head.awaits_nodes() => return Some("hydrant: all hosts have joined".to_owned()),
                    None => return None,
                }
            }
            None => {
                let job = self.jobs.iter().find(|job| job.ordinal == 0 && !job.is_aborted())?;
                (job.started(), job.size())
            }
        };
        match progress.joined {
            _ if started < ranks => Some(format!("hydrant: {started} of {ranks} ranks have been started")),
            // Programs without MPI never join. The head is not told which ranks do.
            0 => None,
            joined if joined < ranks => Some(format!("hydrant: {joined} of {ranks} ranks have joined")),
            _ => None,
        }
    }
}
