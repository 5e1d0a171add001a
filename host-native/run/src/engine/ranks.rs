//! Ranks on this machine: start, signals, end.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hydrant_control::protocol::WindowSize;
use hydrant_control::{DaemonEvent, KillTarget, RankFailure, format_ranges, self_abort_line};
use hydrant_core::trace::{Cause, Exit, SignalName};
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time};
use hydrant_iof::{RankInput, window_size};
use hydrant_launch::Stdio;
use hydrant_reactor::signals::Event;
use rustix::process::{Pid, Signal};

use super::Engine;
use crate::error::RunError;

/// Ranks that are started before the event loop looks after those that run.
const BATCH: usize = 16;

impl Engine<'_, '_> {
    /// Starts the next few ranks of each job that is not complete.
    pub(super) fn start_some(&mut self) -> Result<(), RunError> {
        for id in self.starting() {
            let mut started = 0;
            let mut failed = Ok(());
            while let Some(rank) = self.next_to_start(id).filter(|_| started < BATCH) {
                match self.start(id, rank) {
                    Ok(()) => started += 1,
                    Err(error) if error.is_plugins() => {
                        failed = Err(error);
                        break;
                    }
                    Err(error) if self.is_daemon() => self.start_failed_at_daemon(id, rank, &error)?,
                    Err(error) if self.jobs[id].spawn.is_some() => self.cancel(id, rank, &error),
                    Err(error) => return Err(error),
                }
            }
            // The daemon reports the whole batch at once.
            self.carry_out_at_daemon()?;
            failed?;
            if !self.is_daemon() && !self.jobs[id].run.is_starting() {
                self.job_started(id)?;
            }
        }
        Ok(())
    }

    /// Jobs with ranks that remain to be started.
    fn starting(&self) -> Vec<JobId> {
        match self.control() {
            Some(daemon) => daemon.starting(),
            None => self.jobs.ids(|job| job.run.is_starting()),
        }
    }

    /// Returns whether ranks of any job remain to be started.
    pub(super) fn is_starting(&self) -> bool {
        !self.starting().is_empty()
    }

    fn next_to_start(&self, id: JobId) -> Option<u32> {
        match self.control() {
            Some(daemon) => daemon.next_rank(id).map(|rank| rank.0),
            None => self.jobs.get(id)?.run.next,
        }
    }

    fn start(&mut self, id: JobId, rank: u32) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let (slot, by_port) = (job.slot(rank), job.run.port.is_some() || self.core.is_board());
        let is_first = job.ordinal == 0;
        let pipe = RunError::system("cannot open a stream for a rank's output");
        let stdout = self.streams.open(2 * slot, &self.poller).map_err(&pipe)?;
        let stderr = match self.plan.options.merge_stderr {
            true => rustix::io::fcntl_dupfd_cloexec(&stdout, 0).map_err(&pipe)?,
            false => self.streams.open(2 * slot + 1, &self.poller).map_err(&pipe)?,
        };
        let pmi = match by_port {
            true => None,
            false => {
                let (ours, theirs) =
                    UnixStream::pair().map_err(RunError::system("cannot make a rank's PMI socket"))?;
                if self.open_conn(ours.into(), id, Some(rank))?.is_none() {
                    let limits = self.core.limits();
                    return Err(Fault::Full(Limit::Conns, limits.conns).into());
                }
                Some(OwnedFd::from(theirs))
            }
        };
        let input = match is_first {
            true => self.stdin.for_rank(rank, &self.poller),
            false => Ok(RankInput::Null),
        };
        let input = input.map_err(RunError::system("cannot make a pipe for standard input"))?;
        let stdin = match &input {
            RankInput::Null => Some(self.null.as_fd()),
            RankInput::Inherited => None,
            RankInput::Pipe(pipe) => Some(pipe.as_fd()),
        };
        let (stdout, stderr) = (stdout.as_fd(), stderr.as_fd());
        let job = &mut self.jobs[id];
        let pool = job.run.pool.as_ref().map(AsFd::as_fd);
        let stdio = Stdio { stdin, stdout, stderr, pmi: pmi.as_ref().map(AsFd::as_fd), pool };
        let local = job.run.ranks.before(rank);
        let launcher = job.run.launcher.as_mut().expect("a job with ranks here has a launcher");
        let pid = launcher.start(rank, local, &stdio, &self.files)?;
        job.rank_started(rank, pid_number(pid));
        job.run.advance();
        self.procs.started(slot, pid);
        let number = pid_number(pid);
        self.note_at_daemon(DaemonEvent::RankStarted { job: id, rank: Rank(rank), pid: number })?;
        self.show_debuggers(id);
        if matches!(input, RankInput::Inherited) {
            self.stdin.release().map_err(RunError::system("cannot let go of standard input"))?;
        }
        self.open_pid_files(id, rank, number)?;
        if self.plan.options.bind.report {
            let job = &self.jobs[id];
            let launcher = job.run.launcher.as_ref().expect("it has started the rank");
            let bound = launcher.bindings().map(|bindings| bindings.describe(local));
            let line = bound.map(|bound| format!("{} on {} is {bound}", job.rank_name(rank), self.host));
            line.iter().for_each(|line| self.sinks.print(line));
        }
        if self.plan.options.verbose {
            let job = &self.jobs[id];
            let (name, program) = (job.rank_name(rank), job.program(rank).1.command.display());
            let line = format!("started {name} as pid {}: {program}", pid.as_raw_nonzero());
            self.sinks.print(&line);
        }
        Ok(())
    }

    /// Handles pending signals.
    pub(super) fn take_signals(&mut self) -> Result<(), RunError> {
        let mut events = Vec::new();
        self.signals.read(&mut events)?;
        // None of them comes a second time, so all are acted on before an error is returned.
        let mut result = Ok(());
        for event in events {
            match event {
                Event::Child => {
                    while let Some((slot, exit)) = self.reap() {
                        result = result.and(self.process_ended(slot, exit));
                    }
                }
                Event::Stop => {
                    self.flush();
                    result = result.and(self.suspend());
                    self.announce_pause();
                    self.signals.stop_process();
                    result = result.and(self.resume());
                }
                Event::Continue => result = result.and(self.resume()),
                Event::WindowResized if self.is_head() => {
                    let resized = hydrant_control::Event::WindowResized(window_size());
                    result = result.and(self.handle_at_head(resized));
                }
                Event::WindowResized if self.is_daemon() => {}
                Event::WindowResized => self.resize_windows(window_size()),
                Event::Forward(signal) if self.is_head() => {
                    let signal = signal.as_raw();
                    result = result.and(self.handle_at_head(hydrant_control::Event::Signal(signal)));
                }
                Event::Forward(signal) if self.is_daemon() => {
                    let signal = signal.as_raw();
                    result = result.and(self.handle_at_daemon(DaemonEvent::Signal(signal)));
                }
                Event::Forward(signal) => self.forward(signal),
            }
        }
        result
    }

    /// Collects a rank that has ended. Other processes are those that start daemons, or were started by the launcher's
    /// process before it became one.
    fn reap(&mut self) -> Option<(u32, Exit)> {
        let mut others = Vec::new();
        let rank = self.procs.reap(false, |pid, status| others.push((pid, status)));
        for (pid, status) in others {
            self.helper_ended(pid, status);
        }
        rank
    }

    /// Passes the size of the window on to the ranks of this machine.
    pub(super) fn resize_windows(&mut self, size: WindowSize) {
        if self.streams.resize_windows(size) {
            // A pseudo-terminal is not the one that controls the ranks, so the system sends them no signal.
            self.procs.signal_all(Signal::WINCH);
        }
    }

    fn suspend(&mut self) -> Result<(), RunError> {
        if self.is_daemon() {
            return self.handle_at_daemon(DaemonEvent::Suspended);
        }
        self.procs.signal_all(Signal::TSTP);
        self.handle_at_head(hydrant_control::Event::Suspended)
    }

    fn resume(&mut self) -> Result<(), RunError> {
        let result = if self.is_daemon() {
            self.handle_at_daemon(DaemonEvent::Resumed)
        } else {
            self.procs.signal_all(Signal::CONT);
            self.handle_at_head(hydrant_control::Event::Resumed)
        };
        // The launcher may be in the foreground now.
        let now = self.now();
        self.stdin.pump(now, &self.poller);
        result
    }

    /// Reports ranks that the others wait for because they do not read their standard input.
    pub(super) fn report_stalled_input(&mut self, now: u64) {
        let stalled = self.stdin.take_stalled(now);
        if !stalled.is_empty() {
            let seconds = self.plan.options.fence_warning.as_secs_f64();
            let ranks: Vec<(u32, u32)> = stalled.into_iter().map(|rank| (rank, 1)).collect();
            let host = if self.is_daemon() { format!(" on {}", self.host) } else { String::new() };
            self.sinks.print(&format!(
                "standard input waits for ranks that have not read for {seconds} s: {}{host}",
                format_ranges(&ranks)
            ));
        }
    }

    /// Passes a signal on to the ranks of this machine.
    fn forward(&mut self, signal: Signal) {
        let repeated = self.status.record_signal(signal.as_raw());
        if self.plan.options.verbose {
            self.sinks.print(&format!("passing {} on", SignalName(signal.as_raw())));
        }
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return self.procs.signal_all(signal);
        }
        self.stop_starting();
        self.procs.signal_all(if repeated { Signal::KILL } else { signal });
        if self.procs.running() == 0 {
            // Only output remains, and its reader does not read.
            self.status.give_up();
        }
    }

    /// Starts no more ranks of any job.
    pub(super) fn stop_starting(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.run.stop_starting());
    }

    /// Handles the exit of a rank's process.
    fn process_ended(&mut self, slot: u32, exit: Exit) -> Result<(), RunError> {
        let Some((job, rank)) = self.jobs.of_slot(slot) else { return Ok(()) };
        let (id, name) = (job.id, job.rank_name(rank));
        if self.plan.options.verbose {
            self.sinks.print(&format!("{name} {exit}"));
        }
        let received = self.read_last_requests(id, rank);
        // The head tells of the ranks of daemons.
        let others_go_on = !self.plan.options.cleanup && !self.is_daemon();
        let job = &mut self.jobs[id];
        job.run.remove_leftovers(rank);
        let first = job.rank_exited(rank, exit, None);
        self.status.record_exit(job.ordinal == 0, first, job.counted_exit(rank));
        if first.is_some() {
            let line = job.describe_loss(rank, &self.status, &self.host).filter(|_| others_go_on);
            line.into_iter().for_each(|line| self.sinks.print(&line));
        }
        let reported = self.handle_at_daemon(DaemonEvent::RankExited { job: id, rank: Rank(rank), exit });
        let dropped = self.drop_lookups(id, Rank(rank));
        received.and(reported).and(dropped)?;
        let now = Time(self.now());
        self.core.handle(now, Input::Exited { job: id, rank: Rank(rank), exit })?;
        self.outputs()
    }

    /// Aborts a job at the request of the PMI server. On several nodes the head decides.
    pub(super) fn abort_job(&mut self, id: JobId, cause: Cause, message: String) -> Result<(), RunError> {
        if self.is_daemon() {
            return self.handle_at_daemon(DaemonEvent::AbortJob { job: id, cause, message });
        }
        if self.is_head() {
            return self.handle_at_head(hydrant_control::Event::AbortJob { job: id, cause, message });
        }
        let (failure, cleanup) = (RankFailure { cause, message }, self.plan.options.cleanup);
        for id in self.jobs.rank_failed(id, failure, cleanup, &mut self.status) {
            self.terminate_job(id);
        }
        Ok(())
    }

    /// Ends the ranks of a job on this machine: `SIGTERM`, and `SIGKILL` after the kill timeout.
    pub(super) fn terminate_job(&mut self, id: JobId) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.run.stop_starting();
        let (slots, running) = (job.slots(), job.running());
        if running > 0 {
            self.kills.terminated(now, KillTarget::Job(id));
        }
        self.terminate(slots);
    }

    /// A rank asked to be ended alone.
    pub(super) fn end_rank(
        &mut self,
        id: JobId,
        rank: Rank,
        code: Option<i32>,
        message: String,
    ) -> Result<(), RunError> {
        if self.is_daemon() {
            return self.handle_at_daemon(DaemonEvent::KillRank { job: id, rank, code, message });
        }
        let (now, rank) = (self.now(), rank.0);
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        // A rank that had to be ended did not succeed.
        let code = (code.unwrap_or(1) as u8).max(1);
        self.sinks.print(&self_abort_line(&job.rank_name(rank), code, &message));
        job.request_exit(rank, code);
        if let Some(pid) = job.pid(rank) {
            self.kills.terminated(now, KillTarget::Rank { job: id, rank, pid });
        }
        let slot = job.slot(rank);
        self.terminate(slot..slot + 1);
        Ok(())
    }

    fn terminate(&mut self, slots: Range<u32>) {
        self.procs.signal(slots.clone(), Signal::TERM);
        // A stopped process would not notice.
        self.procs.signal(slots, Signal::CONT);
    }

    /// Kills processes whose kill timeout has passed.
    pub(super) fn kill_overdue(&mut self, now: u64) {
        while let Some(target) = self.kills.poll(now) {
            let slots = match target {
                KillTarget::Job(id) => self.jobs.get(id).map(|job| job.slots()),
                KillTarget::Rank { job, rank, pid } => {
                    let job =
                        self.jobs.get(job).filter(|job| rank < job.size() && job.pid(rank) == Some(pid));
                    job.map(|job| job.slot(rank)..job.slot(rank) + 1)
                }
            };
            slots.into_iter().for_each(|slots| self.procs.signal(slots, Signal::KILL));
        }
    }
}

fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}
