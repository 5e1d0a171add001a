//! Submissions: the jobs that users start in a fleet.
//!
//! Ranks of a fleet share the slots of its hosts. A submission that finds too few free slots waits behind those that came before,
//! so that a large job is not passed by small ones forever.

use std::collections::{BTreeMap, VecDeque};

use hydrant_core::trace::{Exit, SignalName};
use hydrant_placement::MappingPolicy;

use super::{Action, Destination, Head, SpawnProgram, Submission};
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::job_result::AbortReason;
use crate::protocol::{Order, SubmissionId, Submitted, WindowSize};

/// A submission that has been started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) submitted: Submitted,
    exit_report: bool,
    /// Number of its jobs so far: the ordinal of the next one.
    pub(super) jobs: u32,
    /// Number of its jobs that are not over.
    open: u32,
}

/// Submissions of a fleet.
#[derive(Debug, Default)]
pub(super) struct Submissions {
    started: BTreeMap<SubmissionId, Started>,
    waiting: VecDeque<Submission>,
    /// The last job of a submission may be over, or there may be room for another.
    changed: bool,
    /// The fleet takes no more.
    closed: bool,
}

impl Submissions {
    pub(super) fn get(&self, id: SubmissionId) -> Option<&Started> {
        self.started.get(&id)
    }

    /// Whether the exit codes of all ranks are printed. `None` without a submission.
    pub(super) fn exit_report(&self, id: Option<SubmissionId>) -> Option<bool> {
        Some(self.get(id?)?.exit_report)
    }

    /// Hosts have come: submissions that wait may have room.
    pub(super) fn hosts_are_there(&mut self) {
        self.changed = true;
    }

    /// A job of a submission is being opened.
    pub(super) fn job_opens(&mut self, id: SubmissionId) {
        if let Some(started) = self.started.get_mut(&id) {
            started.jobs += 1;
            started.open += 1;
        }
    }

    /// A job has not been opened. The next one gets its ordinal.
    pub(super) fn job_unopened(&mut self, id: Option<SubmissionId>) {
        if let Some(started) = id.and_then(|id| self.started.get_mut(&id)) {
            started.jobs -= 1;
        }
        self.job_closes(id);
    }

    /// A job is over.
    pub(super) fn job_closes(&mut self, id: Option<SubmissionId>) {
        if let Some(started) = id.and_then(|id| self.started.get_mut(&id)) {
            started.open -= 1;
        }
        self.changed = true;
    }
}

impl Head {
    /// Whether the fleet takes submissions.
    pub fn is_open(&self) -> bool {
        self.config.stays && !self.submissions.closed && !self.statuses.of(None).is_interrupted()
    }

    /// Slots of the hosts that are not lost, and those of them that no rank has.
    pub fn slots(&self) -> (u32, u32) {
        let living: Vec<u32> = self.open_nodes().collect();
        let slots = |node: u32| self.config.hosts[node as usize - 1].ranks_per_turn();
        let used = self.used_slots(&living);
        let free = living.iter().zip(used).map(|(&node, used)| slots(node).saturating_sub(used));
        let all = living.iter().map(|&node| slots(node)).fold(0, u32::saturating_add);
        (all, free.fold(0, u32::saturating_add))
    }

    /// Number of submissions that wait for room.
    pub fn waiting(&self) -> u32 {
        self.submissions.waiting.len() as u32
    }

    /// Takes a submission: its job starts or waits for room.
    pub(super) fn submit(&mut self, submission: Submission) {
        let (ranks, (slots, free)) = (submission.ranks(), self.slots());
        let before = self.waiting();
        let why = if !self.is_open() {
            "the fleet is being ended".to_owned()
        } else if ranks > u64::from(slots) {
            too_large(ranks, slots)
        } else if before == 0 && ranks <= u64::from(free) && self.first.is_none() {
            return self.start_submission(submission);
        } else if !submission.waits {
            let waiting =
                if before == 0 { String::new() } else { format!(", and {before} jobs wait for room") };
            format!("{free} of the fleet's {slots} slots are free{waiting}; the job has {ranks} ranks")
        } else {
            self.actions.push_back(Action::SubmissionWaits { submission: submission.id, before });
            return self.submissions.waiting.push_back(submission);
        };
        self.actions.push_back(Action::SubmissionRefused { submission: submission.id, why });
    }

    /// Hosts are lost: refuses the submissions that wait and are larger than the fleet now.
    pub(super) fn refuse_large(&mut self) {
        let (slots, _) = self.slots();
        let waiting = std::mem::take(&mut self.submissions.waiting).into_iter();
        let (large, others): (VecDeque<_>, _) =
            waiting.partition(|waiting| waiting.ranks() > u64::from(slots));
        self.submissions.waiting = others;
        for submission in large {
            let why = too_large(submission.ranks(), slots);
            self.actions.push_back(Action::SubmissionRefused { submission: submission.id, why });
        }
        // The next one may have room.
        self.submissions.changed = true;
    }

    fn start_submission(&mut self, submission: Submission) {
        let Submission { id, programs, policy, settings, pseudo_terminals, .. } = submission;
        let Submission { exit_code_of, exit_report, nonce, .. } = submission;
        let submitted = Submitted { id, settings, pseudo_terminals };
        let started = Started { submitted: submitted.clone(), exit_report, jobs: 0, open: 0 };
        self.submissions.started.insert(id, started);
        self.statuses.add(id, ExitStatus::new(exit_code_of));
        if let Err(error) = self.open_submitted(programs, policy, submitted, nonce) {
            self.submissions.started.remove(&id);
            self.statuses.remove(id);
            let why = error.to_string();
            self.actions.push_back(Action::SubmissionRefused { submission: id, why });
        }
    }

    fn open_submitted(
        &mut self,
        mut programs: Vec<SpawnProgram>,
        policy: MappingPolicy,
        submitted: Submitted,
        nonce: u64,
    ) -> Result<(), Error> {
        let placed = self.place(&mut programs, policy)?;
        let programs = programs.into_iter().map(|program| program.program).collect();
        let record = self.describe_job(programs, placed, nonce, Some(submitted));
        self.open(record, None, String::new())
    }

    /// Ends submissions whose jobs are over, and starts those that have room now.
    pub(super) fn settle_submissions(&mut self) {
        if !std::mem::take(&mut self.submissions.changed) {
            return;
        }
        let started = &mut self.submissions.started;
        let over: Vec<SubmissionId> =
            started.iter().filter(|(_, started)| started.open == 0).map(|(&id, _)| id).collect();
        started.retain(|_, started| started.open > 0);
        for submission in over {
            let code = self.statuses.remove(submission).map_or(0, |status| status.code());
            self.actions.push_back(Action::SubmissionOver { submission, code });
        }
        while let Some(next) = self.submissions.waiting.front()
            && next.ranks() <= u64::from(self.slots().1)
            && self.is_open()
            && self.first.is_none()
        {
            let next = self.submissions.waiting.pop_front().expect("it has just been seen");
            self.start_submission(next);
        }
    }

    /// Removes a submission that waits. Returns whether it did.
    fn remove_waiting(&mut self, id: SubmissionId) -> bool {
        let before = self.submissions.waiting.len();
        self.submissions.waiting.retain(|waiting| waiting.id != id);
        // The next one may have room.
        self.submissions.changed = true;
        self.submissions.waiting.len() < before
    }

    /// Passes a signal of the user on to the ranks of a submission.
    pub(super) fn signal_submission(&mut self, id: SubmissionId, signal: i32) {
        let for_ranks = matches!(signal, libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGTSTP | libc::SIGCONT);
        if self.submissions.waiting.iter().any(|waiting| waiting.id == id) {
            if !for_ranks {
                self.remove_waiting(id);
                let why = format!("ended by {} before there was room", SignalName(signal));
                self.actions.push_back(Action::SubmissionRefused { submission: id, why });
            }
            return;
        }
        let repeated = !for_ranks && self.statuses.of_mut(Some(id)).record_signal(signal);
        if self.submissions.get(id).is_some_and(|started| started.submitted.settings.verbose) {
            self.tell(Some(id), format!("passing {} on", SignalName(signal)));
        }
        for job in self.jobs.ids(|job| job.submission == Some(id)) {
            let is_starting = !self.jobs[job].run.starting.is_empty();
            if is_starting && !for_ranks && !repeated {
                self.start_interrupted(job, signal);
                continue;
            }
            let signal = if repeated { libc::SIGKILL } else { signal };
            let order = Order::SignalRanks { job, rank: None, signal };
            self.actions.push_back(Action::Send { to: Destination::All, order });
        }
    }

    /// Passes the size of the user's window on to the ranks of a submission, and to those that it will have.
    pub(super) fn resize_submission(&mut self, id: SubmissionId, size: WindowSize) {
        let Submissions { waiting, started, .. } = &mut self.submissions;
        let waiting = waiting.iter_mut().filter(|waiting| waiting.id == id);
        let started = started.get_mut(&id).map(|started| &mut started.submitted);
        let terminals = waiting.map(|waiting| &mut waiting.pseudo_terminals);
        let terminals = terminals.chain(started.map(|submitted| &mut submitted.pseudo_terminals));
        terminals.flatten().for_each(|terminals| terminals.size = size);
        for job in self.jobs.ids(|job| job.submission == Some(id)) {
            let order = Order::ResizeWindows { job: Some(job), size };
            self.actions.push_back(Action::Send { to: Destination::All, order });
        }
    }

    /// Ends the jobs of a submission, or the wait for room.
    pub(super) fn end_submission(&mut self, id: SubmissionId, reason: &AbortReason) {
        if self.remove_waiting(id) {
            let why = "there was no room in time".to_owned();
            return self.actions.push_back(Action::SubmissionRefused { submission: id, why });
        }
        for job in self.jobs.ids(|job| job.submission == Some(id)) {
            self.abort(job, reason.clone());
        }
    }

    /// Takes no more submissions, and ends those that there are.
    pub(super) fn end_fleet(&mut self) {
        self.submissions.closed = true;
        self.first = None;
        for Submission { id, .. } in std::mem::take(&mut self.submissions.waiting) {
            let why = "the fleet was ended before there was room".to_owned();
            self.actions.push_back(Action::SubmissionRefused { submission: id, why });
        }
        for job in self.jobs.ids(|_| true) {
            // A job that is ended did not succeed.
            let status = self.statuses.of_mut(self.jobs[job].submission);
            status.record_failure(Exit::Signal(libc::SIGTERM as u8).exit_code());
            self.abort(job, AbortReason::Connected { what: "the fleet was ended".to_owned() });
        }
    }
}

fn too_large(ranks: u64, slots: u32) -> String {
    format!("the job has {ranks} ranks, and the fleet has {slots} slots")
}
