//! Ranks on this machine: start and end.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hydrant_control::protocol::WindowSize;
use hydrant_control::{DaemonEvent, format_ranges};
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time};
use hydrant_iof::RankInput;
use hydrant_start::Stdio;
use rustix::process::{Pid, Signal};

use super::{Daemon, Engine};
use crate::error::RunError;

/// Ranks that are started before the event loop looks after those that run.
const BATCH: usize = 16;

impl Daemon {
    /// Starts the next few ranks of each job that is not complete.
    pub(super) fn start_some(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        for id in self.control.starting() {
            let mut started = 0;
            let mut failed = Ok(());
            while let Some(Rank(rank)) = self.control.next_rank(id).filter(|_| started < BATCH) {
                match self.start(engine, id, rank) {
                    Ok(()) => started += 1,
                    Err(error) if error.is_plugins() => {
                        failed = Err(error);
                        break;
                    }
                    // The command itself has failed.
                    Err(error) if engine.is_alone() && engine.jobs[id].is_of_command_line() => {
                        return Err(error);
                    }
                    Err(error) => self.start_failed(engine, id, rank, &error)?,
                }
            }
            // The daemon reports the whole batch at once.
            self.carry_out(engine)?;
            failed?;
        }
        Ok(())
    }

    /// Returns whether ranks of any job remain to be started.
    pub(super) fn is_starting(&self) -> bool {
        !self.control.starting().is_empty()
    }

    fn start(&mut self, engine: &mut Engine<'_>, id: JobId, rank: u32) -> Result<(), RunError> {
        let job = &engine.jobs[id];
        let (slot, by_port) = (job.slot(rank), job.run.port.is_some() || engine.core.is_board());
        let (is_first, pushed_to) = (job.is_of_command_line(), job.run.pushed_to);
        let pipe = RunError::system("cannot open a stream for a rank's output");
        let stdout = engine.streams.open(2 * slot, &engine.poller).map_err(&pipe)?;
        let stderr = match engine.settings(id).merge_stderr {
            true => rustix::io::fcntl_dupfd_cloexec(&stdout, 0).map_err(&pipe)?,
            false => engine.streams.open(2 * slot + 1, &engine.poller).map_err(&pipe)?,
        };
        let pmi = match by_port {
            true => None,
            false => {
                let (ours, theirs) =
                    UnixStream::pair().map_err(RunError::system("cannot make a rank's PMI socket"))?;
                if engine.open_conn(ours.into(), id, rank)?.is_none() {
                    let limits = engine.core.limits();
                    return Err(Fault::Full(Limit::Conns, limits.conns).into());
                }
                Some(OwnedFd::from(theirs))
            }
        };
        let input = match pushed_to {
            Some(target) if target.includes(rank) => {
                engine.pushed.open(slot, &engine.poller).map(RankInput::Pipe)
            }
            None if is_first => engine.stdin.for_rank(rank, &engine.poller),
            Some(_) | None => Ok(RankInput::Null),
        };
        let input = input.map_err(RunError::system("cannot make a pipe for standard input"))?;
        let stdin = match &input {
            RankInput::Null => Some(engine.null.as_fd()),
            RankInput::Inherited => None,
            RankInput::Pipe(pipe) => Some(pipe.as_fd()),
        };
        let (stdout, stderr) = (stdout.as_fd(), stderr.as_fd());
        let job = &mut engine.jobs[id];
        let pool = job.run.pool.as_ref().map(AsFd::as_fd);
        let stdio = Stdio { stdin, stdout, stderr, pmi: pmi.as_ref().map(AsFd::as_fd), pool };
        let local = job.run.ranks.before(rank);
        let launcher = job.run.launcher.as_mut().expect("a job with ranks here has a launcher");
        let pid = launcher.start(rank, local, &stdio, &engine.files)?;
        job.rank_started(rank, pid_number(pid));
        engine.procs.started(slot, pid);
        let number = pid_number(pid);
        self.note(engine, DaemonEvent::RankStarted { job: id, rank: Rank(rank), pid: number })?;
        if matches!(input, RankInput::Inherited) {
            engine.stdin.release().map_err(RunError::system("cannot let go of standard input"))?;
        }
        engine.open_pid_files(id, rank, number)?;
        if engine.settings(id).bind.report {
            let job = &engine.jobs[id];
            let launcher = job.run.launcher.as_ref().expect("it has started the rank");
            let bound = launcher.bindings().map(|bindings| bindings.describe(local));
            let line = bound.map(|bound| format!("{} on {} is {bound}", job.rank_name(rank), engine.host));
            line.iter().for_each(|line| engine.print_about(id, line));
        }
        if engine.settings(id).verbose {
            let job = &engine.jobs[id];
            let (name, program) = (job.rank_name(rank), job.program(rank).1.command.display());
            let line = format!("started {name} as pid {}: {program}", pid.as_raw_nonzero());
            engine.print_about(id, &line);
        }
        Ok(())
    }

    /// Signals all ranks here, and what those that have ended have left behind. `SIGKILL` ends all at once.
    pub(super) fn signal_everything(&mut self, engine: &mut Engine<'_>, signal: Signal) {
        match signal {
            Signal::KILL => engine.procs.kill_all(),
            signal => engine.procs.signal_all(signal),
        }
        if !matches!(signal, Signal::USR1 | Signal::USR2 | Signal::TSTP | Signal::CONT | Signal::WINCH) {
            self.hasten_drains(engine, signal == Signal::KILL);
        }
    }

    /// Handles the exits of ranks whose processes have ended.
    pub(super) fn take_exits(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        // None of them comes a second time, so all are acted on before an error is returned.
        let mut result = Ok(());
        while let Some((slot, exit)) = engine.reap() {
            result = result.and(self.process_ended(engine, slot, exit));
        }
        result
    }

    /// Handles the exit of a rank's process.
    fn process_ended(&mut self, engine: &mut Engine<'_>, slot: u32, exit: Exit) -> Result<(), RunError> {
        let Some((job, rank)) = engine.jobs.of_slot(slot) else { return Ok(()) };
        let (id, name) = (job.id, job.rank_name(rank));
        if engine.settings(id).verbose {
            engine.print_about(id, &format!("{name} {exit}"));
        }
        let received = self.read_last_requests(engine, id, Rank(rank));
        let job = &mut engine.jobs[id];
        job.run.remove_leftovers(rank);
        engine.pushed.close(slot..slot + 1);
        // The head decides about the failure.
        let _ = job.rank_exited(rank, exit, None);
        if exit != Exit::Code(0) {
            self.failed.get_or_insert(exit.exit_code());
        }
        let reported = self.handle(engine, DaemonEvent::RankExited { job: id, rank: Rank(rank), exit });
        received.and(reported)?;
        let now = Time(engine.now());
        engine.core.handle(now, Input::Exited { job: id, rank: Rank(rank), exit })?;
        self.take_outputs(engine)
    }

    /// Handles the last requests of a rank whose process has ended.
    fn read_last_requests(
        &mut self,
        engine: &mut Engine<'_>,
        job: JobId,
        rank: Rank,
    ) -> Result<(), RunError> {
        let read = engine.read_last_requests(job, rank).and_then(|()| self.take_outputs(engine));
        match read {
            // A rank may have ended because its board is lost, which is the reason to report.
            Err(error) if engine.core.is_board() => self.break_off(engine, error),
            read => read,
        }
    }
}

impl Engine<'_> {
    /// Collects processes that have ended, where there are no ranks.
    pub(super) fn reap_helpers(&mut self) {
        while self.reap().is_some() {}
    }

    /// Collects a rank that has ended. Other processes are those that start daemons, debuggers, and what the launcher's process
    /// started before it became one.
    fn reap(&mut self) -> Option<(u32, Exit)> {
        let mut others = Vec::new();
        let rank = self.procs.reap(false, |pid, status| others.push((pid, status)));
        self.helpers_ended(others);
        rank
    }

    /// Passes the size of the window on to the ranks of a job on this machine, or to all.
    pub(super) fn resize_windows(&mut self, job: Option<JobId>, size: WindowSize) {
        let slots = job.map(|job| self.jobs[job].slots());
        if self.streams.resize_windows(slots.clone(), size) {
            // A pseudo-terminal is not the one that controls the ranks, so the system sends them no signal.
            match slots {
                Some(slots) => self.procs.signal(slots, Signal::WINCH),
                None => self.procs.signal_all(Signal::WINCH),
            }
        }
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
}

fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}
