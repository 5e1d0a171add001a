//! Start and end of jobs.

use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{JobId, Limit, OwnedInput};

use super::spawn::stopped_of;
use super::{Action, FirstJob, HEAD, Head, NodeProgress, StdinReaders, Stopped};
use crate::error::Error;
use crate::job_name::job_name;
use crate::job_result::{AbortReason, RankFailure};
use crate::jobs::{EndReport, Job, SpawnKey};
use crate::protocol::{
    CANCELED, JobRecord, Order, Program, RankBlock, SpawnOrigin, StartError, Submitted, encode,
};

impl Head {
    /// Sends the settings to all daemons, and starts the first job if none of them has to apply them before.
    pub(super) fn all_joined(&mut self) -> Result<(), Error> {
        let Some(first) = self.first.as_ref().filter(|_| !self.setup_sent) else { return Ok(()) };
        let setup = first.setup.clone();
        self.setup_sent = true;
        if setup.needs_ready() {
            self.unready = self.members().collect();
        }
        if setup.boards.link.is_some() {
            self.count_boards();
        }
        self.send_all(Order::Setup(Box::new(setup)));
        self.start_first()
    }

    /// A daemon has applied the settings.
    pub(super) fn node_ready(&mut self, node: u32) -> Result<(), Error> {
        self.newcomer_is_ready(node);
        if self.unready.remove(&node) { self.start_first() } else { Ok(()) }
    }

    /// Starts the first job if all daemons are ready.
    fn start_first(&mut self) -> Result<(), Error> {
        if !self.unready.is_empty() {
            return Ok(());
        }
        if self.first.as_ref().is_some_and(|first| first.awaits_debugger) {
            self.actions.push_back(Action::FirstJobWaits);
            return Ok(());
        }
        self.open_first(None)
    }

    /// The debugger of the first job lets it start. `stopped` are ranks of the job.
    pub(super) fn release_first(&mut self, mut origin: SpawnOrigin, stopped: &Stopped) -> Result<(), Error> {
        let Some(first) = &self.first else { return Ok(()) };
        if let Some(stop) = origin.tool.as_mut().and_then(|options| options.stop.as_mut()) {
            stop.ranks = stopped_of(first.programs.iter().map(|program| (program.ranks, stopped)))?;
        }
        self.open_first(Some(origin))
    }

    fn open_first(&mut self, origin: Option<SpawnOrigin>) -> Result<(), Error> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let FirstJob { programs, blocks, mapping, nonce, setup, awaits_debugger: _ } = first;
        self.stdin = StdinReaders::new(setup.settings.stdin);
        if self.statuses.run().is_interrupted() {
            return Ok(());
        }
        if self.config.stays {
            self.actions.push_back(Action::FleetReady);
            self.submissions.hosts_are_there();
            return Ok(());
        }
        let mut record = self.describe_job(programs, (blocks, mapping), nonce, None);
        let spawn = origin.as_ref().map(|origin| (origin.node, origin.upcall));
        record.spawned = origin;
        self.open(record, spawn, String::new())
    }

    pub(super) fn describe_job(
        &self,
        programs: Vec<Program>,
        (blocks, mapping): (Vec<RankBlock>, String),
        nonce: u64,
        submitted: Option<Submitted>,
    ) -> JobRecord {
        let submission = submitted.as_ref().and_then(|submitted| self.submissions.get(submitted.id));
        // Number 0 is the job of the command line, also in a fleet, which has none.
        let of_run = self.jobs.count() + u32::from(self.config.stays);
        let ordinal = submission.map_or(of_run, |submission| submission.jobs);
        let name = job_name(self.config.process, ordinal, nonce, &self.config.host);
        let mut nodes: Vec<u32> = blocks.iter().map(|block| block.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let hosts = nodes.into_iter().map(|node| (node, self.host(node).to_owned())).collect();
        let (id, spawned) = (self.jobs.free_id(), None);
        let (programs, universe_size) = (programs.into(), self.universe_size());
        JobRecord { id, ordinal, name, programs, blocks, mapping, universe_size, hosts, spawned, submitted }
    }

    /// `universeSize` of a job that starts now, if it is known.
    pub fn universe_size(&self) -> Option<u32> {
        if self.config.stays { Some(self.slots().0) } else { self.config.universe_size }
    }

    /// Has the host register a job. `spawner` names the rank that asked for it.
    pub(super) fn open(
        &mut self,
        record: JobRecord,
        spawn: Option<SpawnKey>,
        spawner: String,
    ) -> Result<(), Error> {
        let size: u64 = record.programs.iter().map(|program| u64::from(program.ranks)).sum();
        if size == 0 || size > i32::MAX as u64 {
            return Err(Error::Size(size));
        }
        let mut nodes: Vec<u32> = record.blocks.iter().map(|block| block.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        self.last_node = record.blocks.last().map_or(0, |block| block.node);
        if let Some(max) = self.config.order_max {
            let len = encode(&Order::StartJob(Box::new(record.clone()))).len();
            if len > max {
                return Err(Error::JobTooLarge { len, max });
            }
        }
        if let Some(ended) = self.last.take() {
            self.deregister(ended);
        }
        let blocks = record.blocks.clone();
        let linked = if self.are_linked { self.config.hosts.len() as u32 } else { 0 };
        let unopened = (1..=linked).filter(|node| !self.lost.contains(node)).collect();
        let (starting, draining) = (nodes.clone(), false);
        let of_tool = record.spawned.as_ref().is_some_and(|spawned| spawned.tool.is_some());
        let submitted = record.submitted.as_ref();
        let cleanup = submitted.map_or(self.config.cleanup, |submitted| submitted.settings.cleanup);
        let run =
            NodeProgress { blocks, unopened, starting, busy: nodes, spawner, of_tool, cleanup, draining };
        if let Some(submitted) = submitted {
            self.submissions.job_opens(submitted.id);
        }
        let first = self.jobs.free_slots(size as u32);
        self.jobs.insert(Job::new(record.clone(), first, spawn, run));
        if let Some(origin) = record.spawned.as_ref().filter(|_| !of_tool) {
            self.jobs.relate(origin.job, record.id, true);
        }
        self.actions.push_back(Action::OpenJob { record: Box::new(record.clone()) });
        self.opening.push(record);
        Ok(())
    }

    /// The host has registered a job: its nodes start it, unless it has to end by now.
    pub(super) fn job_opened(&mut self, id: JobId) {
        let Some(at) = self.opening.iter().position(|record| record.id == id) else { return };
        let record = self.opening.remove(at);
        let has_stdin = record.is_of_command_line();
        let job = &mut self.jobs[id];
        if job.is_aborted() || self.statuses.ends(job.submission) {
            job.run.starting.clear();
            job.run.busy.clear();
            return;
        }
        self.send_all_applied(Order::StartJob(Box::new(record)));
        if has_stdin {
            self.open_stdin(id);
        }
    }

    /// The host cannot register a job.
    pub(super) fn open_failed(&mut self, id: JobId, error: &StartError) {
        self.opening.retain(|record| record.id != id);
        let Some(job) = self.jobs.remove_unopened(id) else { return };
        self.submissions.job_unopened(job.submission);
        let Some(spawn) = job.spawn else {
            self.tell(job.submission, error.text.clone());
            self.statuses.of_mut(job.submission).record_failure(error.code);
            return;
        };
        self.tell(job.submission, format!("nothing is spawned for {}: {}", job.run.spawner, error.text));
        let codes = vec![error.errno; job.programs.len()];
        self.spawn_complete(spawn, false, error.limit, codes);
    }

    /// A node has opened a job. Its ranks start when all nodes have.
    pub(super) fn node_opened(&mut self, node: u32, id: JobId) {
        let unopened = &mut self.jobs[id].run.unopened;
        if unopened.remove(&node) && unopened.is_empty() {
            self.send_all(Order::StartRanks(id));
        }
    }

    /// A node has started all of its ranks of a job.
    pub(super) fn node_started(&mut self, node: u32, id: JobId) {
        let job = &mut self.jobs[id];
        job.run.starting.retain(|&starting| starting != node);
        if !job.run.starting.is_empty() || job.is_ending() {
            return;
        }
        let codes = vec![0; job.programs.len()];
        if let Some((spawn, failed)) = job.all_started() {
            let status = self.statuses.of_mut(job.submission);
            failed.into_iter().for_each(|code| status.record_failure(code));
            self.spawn_complete(spawn, true, None, codes);
        } else if let Some(submission) = job.submission.filter(|_| job.ordinal == 0) {
            self.actions.push_back(Action::SubmissionStarted { submission });
        }
    }

    /// A node cannot start its part of a job, so no node shall run any of it.
    pub(super) fn start_failed(&mut self, node: u32, id: JobId, error: &StartError) {
        let submission = self.jobs[id].submission;
        let signal = self.statuses.of(submission).signal();
        if let Some(signal) = signal.filter(|_| *error == StartError::unfinished()) {
            return self.start_interrupted(id, signal);
        }
        let at = if self.config.is_alone { String::new() } else { format!("host {}: ", self.host(node)) };
        let job = &mut self.jobs[id];
        // The report of a job that is being aborted names the first failure.
        if job.is_aborted() || !job.cancel(error.appnum, error.errno) {
            return;
        }
        let text = &error.text;
        let (line, is_failure) = match (job.ordinal, job.spawn) {
            (0, _) => (format!("{at}{text}"), true),
            (job, Some(_)) => (format!("spawned job {job} is ended before it began: {at}{text}"), false),
            // The rank that asked for it has the answer that it runs.
            (job, None) => (format!("spawned job {job} is ended: {at}{text}"), true),
        };
        if is_failure {
            // A daemon may send any code.
            self.statuses.of_mut(submission).record_failure(error.code.max(1));
        }
        self.tell(submission, line);
        self.send_all(Order::CancelJob(id));
    }

    /// A node is done with a job. If its ranks have not all been started and the head has not ended the job, a signal to
    /// its daemon has stopped the start.
    pub(super) fn node_done(&mut self, node: u32, id: JobId) {
        let job = &mut self.jobs[id];
        job.run.busy.retain(|&busy| busy != node);
        if job.run.starting.contains(&node) && !job.is_ending() {
            self.start_failed(node, id, &StartError::unfinished());
        }
    }

    /// A signal of the user has stopped the start of a job. Ranks that ignore it would wait for those that are not started.
    pub(super) fn start_interrupted(&mut self, id: JobId, signal: i32) {
        let job = &mut self.jobs[id];
        if job.is_aborted() || !job.cancel(None, CANCELED) {
            return;
        }
        let submission = job.submission;
        let status = self.statuses.of_mut(submission);
        status.record_failure(Exit::Signal(signal as u8).exit_code());
        let line = status.interruption_line(signal);
        line.into_iter().for_each(|line| self.tell(submission, line));
        self.send_all(Order::AbortJob(id));
    }

    /// A rank has failed so that its job is aborted.
    pub(super) fn rank_failed(&mut self, id: JobId, cause: Cause, message: String) {
        if let Some(job) = self.jobs.get(id).filter(|job| cause.rank().0 < job.size()) {
            let (failure, cleanup) = (RankFailure { cause, message }, job.run.cleanup);
            for id in self.jobs.rank_failed(id, failure, cleanup, &mut self.statuses) {
                self.send_all(Order::AbortJob(id));
            }
        }
    }

    /// Aborts a job, unless it is being aborted already.
    pub(super) fn abort(&mut self, id: JobId, reason: AbortReason) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.abort(reason, self.statuses.of_mut(job.submission)) {
            self.send_all(Order::AbortJob(id));
        }
    }

    /// Ends jobs that no node is busy with, and the run after the last of them.
    pub(super) fn settle(&mut self) {
        let ended = |job: &Job<NodeProgress>| job.running() == 0 && job.run.busy.is_empty();
        let opening = |id| self.opening.iter().any(|record| record.id == id);
        for id in self.jobs.ids(|job| ended(job) && !job.run.draining && !opening(job.id)) {
            self.drain(id);
        }
        self.dismiss_leavers();
        self.settle_submissions();
        let finish = if self.statuses.run().gave_up() { Some(false) } else { self.is_over().then_some(true) };
        if finish.is_some() && self.finish != finish && self.finish != Some(false) {
            self.finish = finish;
            self.actions.extend(finish.map(|flush| Action::Finish { flush }));
        }
    }

    /// All ranks of a job have ended.
    fn drain(&mut self, id: JobId) {
        let others = self.jobs.len() > 1;
        let job = &mut self.jobs[id];
        job.run.draining = true;
        let (spawn, codes, of_tool) = (job.spawn.take(), job.codes(), job.run.of_tool);
        self.actions.push_back(Action::DrainOutput { job: id });
        // Boards outlive the run, and a tool waits for the end of its job.
        if others || self.has_boards || of_tool || self.config.stays {
            self.deregister(id);
        } else {
            self.last = Some(id);
        }
        if let Some(spawn) = spawn {
            self.spawn_complete(spawn, false, None, codes);
        }
    }

    /// Has all nodes drop a job that has ended.
    fn deregister(&mut self, id: JobId) {
        self.send_all(Order::DeregisterJob(id));
        self.actions.push_back(Action::DeregisterJob { job: id });
    }

    /// The output of an ended job is written: its end is reported.
    pub(super) fn output_drained(&mut self, id: JobId, reader_closed: bool) {
        let Some(job) = self.jobs.get(id).filter(|job| job.run.draining) else { return };
        let submission = job.submission;
        let status = self.statuses.of(submission);
        let report = job.describe_end(status, reader_closed, |rank| self.host_of_rank(job, rank));
        let summary = Box::new(job.summary(report.as_ref()));
        let lines = match report {
            Some(EndReport::Interrupted(signal)) => {
                self.statuses.of_mut(submission).interruption_line(signal)
            }
            Some(EndReport::Lines(lines)) => Some(lines),
            None => None,
        };
        let is_wanted = self.submissions.exit_report(submission).unwrap_or(self.config.exit_report);
        let codes = is_wanted.then(|| self.jobs[id].exit_report());
        lines.into_iter().chain(codes).for_each(|lines| self.tell(submission, lines));
        self.jobs.remove(id);
        self.submissions.job_closes(submission);
        self.actions.push_back(Action::CloseJob { job: id, submission, summary });
    }

    /// Answers a spawn.
    pub(super) fn spawn_complete(
        &mut self,
        (node, spawn): SpawnKey,
        started: bool,
        full: Option<Limit>,
        codes: Vec<u8>,
    ) {
        if node == HEAD {
            return self.actions.push_back(Action::AnswerTool { upcall: spawn, started, limit: full, codes });
        }
        let input = OwnedInput::SpawnComplete { spawn, started, full, codes };
        self.send(node, Order::Input(input));
    }
}
