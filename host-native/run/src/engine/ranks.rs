//! Ranks on this machine: start, signals, end.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hydrant_control::protocol::WindowSize;
use hydrant_control::{DaemonEvent, Event as HeadEvent, format_ranges};
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time};
use hydrant_iof::{RankInput, window_size};
use hydrant_reactor::signals::Event;
use hydrant_start::Stdio;
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
                    // The command itself has failed.
                    Err(error) if self.head.is_some() && self.jobs[id].ordinal == 0 => return Err(error),
                    Err(error) => self.start_failed(id, rank, &error)?,
                }
            }
            // The daemon reports the whole batch at once.
            self.carry_out_at_daemon()?;
            failed?;
        }
        Ok(())
    }

    /// Jobs with ranks that remain to be started.
    fn starting(&self) -> Vec<JobId> {
        self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.control.starting())
    }

    /// Returns whether ranks of any job remain to be started.
    pub(super) fn is_starting(&self) -> bool {
        !self.starting().is_empty()
    }

    fn next_to_start(&self, id: JobId) -> Option<u32> {
        self.daemon.as_ref()?.control.next_rank(id).map(|rank| rank.0)
    }

    fn start(&mut self, id: JobId, rank: u32) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let (slot, by_port) = (job.slot(rank), job.run.port.is_some() || self.core.is_board());
        let is_first = job.ordinal == 0;
        let pipe = RunError::system("cannot open a stream for a rank's output");
        let stdout = self.streams.open(2 * slot, &self.poller).map_err(&pipe)?;
        let stderr = match self.plan.settings.merge_stderr {
            true => rustix::io::fcntl_dupfd_cloexec(&stdout, 0).map_err(&pipe)?,
            false => self.streams.open(2 * slot + 1, &self.poller).map_err(&pipe)?,
        };
        let pmi = match by_port {
            true => None,
            false => {
                let (ours, theirs) =
                    UnixStream::pair().map_err(RunError::system("cannot make a rank's PMI socket"))?;
                if self.open_conn(ours.into(), id, rank)?.is_none() {
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
        self.procs.started(slot, pid);
        let number = pid_number(pid);
        self.note_at_daemon(DaemonEvent::RankStarted { job: id, rank: Rank(rank), pid: number })?;
        if matches!(input, RankInput::Inherited) {
            self.stdin.release().map_err(RunError::system("cannot let go of standard input"))?;
        }
        self.open_pid_files(id, rank, number)?;
        if self.plan.settings.bind.report {
            let job = &self.jobs[id];
            let launcher = job.run.launcher.as_ref().expect("it has started the rank");
            let bound = launcher.bindings().map(|bindings| bindings.describe(local));
            let line = bound.map(|bound| format!("{} on {} is {bound}", job.rank_name(rank), self.host));
            line.iter().for_each(|line| self.sinks.print(line));
        }
        if self.plan.settings.verbose {
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
                Event::Child => result = result.and(self.take_exits()),
                Event::Stop => {
                    self.flush();
                    result = result.and(self.suspend());
                    self.announce_pause();
                    self.signals.stop_process();
                    result = result.and(self.resume());
                }
                Event::Continue => result = result.and(self.resume()),
                Event::WindowResized => {
                    result = result.and(self.handle_at_head(HeadEvent::WindowResized(window_size())));
                }
                Event::Forward(signal) => result = result.and(self.take_signal(signal)),
            }
        }
        result
    }

    /// Handles the exits of ranks whose processes have ended.
    pub(super) fn take_exits(&mut self) -> Result<(), RunError> {
        let mut result = Ok(());
        while let Some((slot, exit)) = self.reap() {
            result = result.and(self.process_ended(slot, exit));
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

    /// Handles a signal of the user, or of who ends a daemon.
    fn take_signal(&mut self, signal: Signal) -> Result<(), RunError> {
        let is_first = self.patience.is_none();
        if self.head.is_some() && !self.counts(signal) {
            return Ok(());
        }
        // What ranks have left behind may have output. A second signal ends the run without it.
        if is_first
            && self.patience.is_some()
            && self.describe_running().is_none()
            && self.hasten_drains(false)
        {
            return Ok(());
        }
        self.pass_signal_on(signal.as_raw())
    }

    /// Passes a signal to the head, or has the ranks of a daemon get it.
    pub(super) fn pass_signal_on(&mut self, signal: i32) -> Result<(), RunError> {
        match self.head {
            Some(_) => self.handle_at_head(HeadEvent::Signal(signal)),
            None => self.handle_at_daemon(DaemonEvent::Signal(signal)),
        }
    }

    fn suspend(&mut self) -> Result<(), RunError> {
        match self.head {
            Some(_) => self.handle_at_head(HeadEvent::Suspended)?,
            None => self.handle_at_daemon(DaemonEvent::Suspended)?,
        }
        self.deliver().map(drop)
    }

    fn resume(&mut self) -> Result<(), RunError> {
        let result = match self.head {
            Some(_) => self.handle_at_head(HeadEvent::Resumed),
            None => self.handle_at_daemon(DaemonEvent::Resumed),
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
            let seconds = self.plan.settings.fence_warning.as_secs_f64();
            let ranks: Vec<(u32, u32)> = stalled.into_iter().map(|rank| (rank, 1)).collect();
            let host = if self.nodes.is_some() { format!(" on {}", self.host) } else { String::new() };
            self.sinks.print(&format!(
                "standard input waits for ranks that have not read for {seconds} s: {}{host}",
                format_ranges(&ranks)
            ));
        }
    }

    /// Signals all ranks here, and what those that have ended have left behind. `SIGKILL` ends all at once.
    pub(super) fn signal_everything(&mut self, signal: Signal) {
        match signal {
            Signal::KILL => self.procs.kill_all(),
            signal => self.procs.signal_all(signal),
        }
        if !matches!(signal, Signal::USR1 | Signal::USR2 | Signal::TSTP | Signal::CONT | Signal::WINCH) {
            self.hasten_drains(signal == Signal::KILL);
        }
    }

    /// Handles the exit of a rank's process.
    fn process_ended(&mut self, slot: u32, exit: Exit) -> Result<(), RunError> {
        let Some((job, rank)) = self.jobs.of_slot(slot) else { return Ok(()) };
        let (id, name) = (job.id, job.rank_name(rank));
        if self.plan.settings.verbose {
            self.sinks.print(&format!("{name} {exit}"));
        }
        let received = self.read_last_requests(id, rank);
        let job = &mut self.jobs[id];
        job.run.remove_leftovers(rank);
        // The head decides about the failure.
        let _ = job.rank_exited(rank, exit, None);
        let reported = self.handle_at_daemon(DaemonEvent::RankExited { job: id, rank: Rank(rank), exit });
        received.and(reported)?;
        let now = Time(self.now());
        self.core.handle(now, Input::Exited { job: id, rank: Rank(rank), exit })?;
        self.outputs()
    }
}

fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}
