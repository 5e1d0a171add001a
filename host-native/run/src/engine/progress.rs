//! Line about a long start on a terminal: hosts reached, ranks started, ranks joined.

use hydrant_control::Head;
use hydrant_iof::Sinks;

/// Milliseconds after which a start is long.
const FIRST: u64 = 500;
/// Milliseconds between two lines.
const INTERVAL: u64 = 200;

/// What is known about a start.
#[derive(Debug)]
pub(super) struct Progress {
    /// Daemons that have joined. None if there are no other hosts.
    hosts: Option<u32>,
    /// Ranks of the job of the command line that have joined.
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
    /// Progress of a run whose ranks are all here if it `is_alone`. None if standard error is no terminal.
    pub(super) fn new(sinks: &Sinks, is_alone: bool) -> Option<Progress> {
        let hosts = (!is_alone).then_some(0);
        sinks.can_show_progress().then_some(Progress { hosts, joined: 0, at: Some(FIRST) })
    }

    /// Time of the next line in milliseconds.
    pub(super) fn poll_at(&self) -> Option<u64> {
        self.at
    }

    /// Counts a daemon that has joined.
    pub(super) fn host_joined(&mut self) {
        self.hosts.iter_mut().for_each(|hosts| *hosts += 1);
    }

    /// Counts ranks of the job of the command line that have joined.
    pub(super) fn ranks_joined(&mut self, ranks: u32, now: u64) {
        self.joined = self.joined.saturating_add(ranks);
        self.at.get_or_insert(now + INTERVAL);
    }

    /// Shows progress. Returns false once the job runs or a rank has written something.
    pub(super) fn show(&mut self, now: u64, head: &Head, sinks: &mut Sinks) -> bool {
        let shown = if sinks.can_show_progress() { self.describe(head) } else { Shown::Over };
        self.at = match &shown {
            Shown::Line(line) => {
                sinks.show_progress(line);
                Some(now + INTERVAL)
            }
            Shown::Nothing | Shown::Over => {
                sinks.erase_progress();
                None
            }
        };
        shown != Shown::Over
    }

    fn describe(&self, head: &Head) -> Shown {
        let hosts = head.members().count() as u32;
        if let Some(joined) = self.hosts.filter(|&joined| joined < hosts) {
            return Shown::Line(format!("hydrant: {joined} of {hosts} hosts have joined"));
        }
        let started = match head.jobs().iter().find(|job| job.is_of_command_line()) {
            Some(job) => (!job.is_aborted()).then(|| (job.started(), job.size())),
            None if head.awaits_nodes() => return Shown::Line("hydrant: all hosts have joined".to_owned()),
            None => None,
        };
        let Some((started, ranks)) = started else { return Shown::Over };
        match self.joined {
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
