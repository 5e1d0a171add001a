//! The life of the ranks: starting them, passing signals on, noticing their end.

use std::os::fd::AsFd;

use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal};

use super::Engine;
use super::report::Why;
use crate::control::{Order, Report};
use crate::error::RunError;
use crate::launch::Stdio;
use hydrant_reactor::signals::{self, Event};

/// Ranks that are started before the event loop looks after those that run.
const BATCH: usize = 16;
/// How long ranks that are asked to end may take before they are made to, in milliseconds.
const GRACE: u64 = 500;

/// A rank that has asked to be ended and is made to if it has not gone by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doomed {
    pub(super) at: u64,
    process: u32,
    pid: Pid,
}

impl Engine<'_, '_> {
    /// Starts the next few ranks of each job that is not complete.
    pub(super) fn start_some(&mut self) -> Result<(), RunError> {
        for id in self.jobs.ids(|job| job.is_starting()) {
            let mut begun = Vec::new();
            let mut failed = Ok(());
            while let Some(rank) = self.next_to_start(id).filter(|_| begun.len() < BATCH) {
                match self.start(id, rank) {
                    Ok(pid) => {
                        begun.push((Rank(rank), pid.as_raw_nonzero().get() as u32));
                        self.jobs[id].advance();
                    }
                    Err(error) if error.is_plugins() => {
                        failed = Err(error);
                        break;
                    }
                    Err(error) if self.is_daemon() => self.tell_failed(id, Some(rank), &error),
                    Err(error) if self.jobs[id].spawn.is_some() => self.undo(id, rank, &error),
                    Err(error) => return Err(error),
                }
            }
            self.tell_begun(id, begun);
            failed?;
            if !self.jobs[id].is_starting() {
                self.started(id)?;
            }
        }
        Ok(())
    }

    fn next_to_start(&self, id: JobId) -> Option<u32> {
        self.jobs.get(id).filter(|job| job.is_starting()).map(|job| job.next)
    }

    fn start(&mut self, id: JobId, rank: u32) -> Result<Pid, RunError> {
        let job = &self.jobs[id];
        let (process, by_port) = (job.first + rank, job.port.is_some() || self.core.board().is_some());
        let reads = job.ordinal == 0 && rank == 0;
        let pipe = RunError::system("cannot make a pipe for a rank's output");
        let stdout = self.streams.open(2 * process, &self.poller).map_err(&pipe)?;
        let stderr = self.streams.open(2 * process + 1, &self.poller).map_err(&pipe)?;
        let pmi = match by_port {
            true => None,
            false => {
                let flags = SocketFlags::CLOEXEC;
                let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .map_err(RunError::system("cannot make a rank's PMI socket"))?;
                if self.open_conn(ours, id, Some(rank))?.is_none() {
                    let limits = self.core.limits();
                    return Err(Fault::Full(Limit::Conns, limits.conns).into());
                }
                Some(theirs)
            }
        };
        let pumped = if reads { self.stdin.for_rank_0() } else { None };
        let stdin = match &pumped {
            Some(pipe) => Some(pipe.as_fd()),
            None => (!reads).then(|| self.null.as_fd()),
        };
        let (stdout, stderr) = (stdout.as_fd(), stderr.as_fd());
        let stdio = Stdio { stdin, stdout, stderr, pmi: pmi.as_ref().map(AsFd::as_fd) };
        let job = &mut self.jobs[id];
        let local = job.here.before(rank);
        let launcher = job.launcher.as_mut().expect("a job with ranks here has a launcher");
        let pid = launcher.start(rank, local, &stdio, &self.files)?;
        job.running += 1;
        self.procs.started(process, pid);
        if reads {
            self.stdin.started().map_err(RunError::system("cannot let go of standard input"))?;
        }
        self.open_files_of(id, rank, pid)?;
        if self.plan.options.verbose {
            let job = &self.jobs[id];
            let (who, program) = (job.rank_name(rank), job.program(rank).1.command.display());
            let line = format!("started {who} as pid {}: {program}", pid.as_raw_nonzero());
            self.sinks.say(&line);
        }
        Ok(pid)
    }

    /// Acts on the signals that have come.
    pub(super) fn take_signals(&mut self) -> Result<(), RunError> {
        let mut events = Vec::new();
        self.signals.read(&mut events)?;
        // None of them comes a second time: all are acted on, and then an error is one.
        let mut result = Ok(());
        for event in events {
            match event {
                Event::Child => {
                    while let Some((process, exit)) = self.reap() {
                        result = result.and(self.ended(process, exit));
                    }
                }
                Event::Stop => {
                    self.flush();
                    self.signal_all(Signal::TSTP);
                    self.hush();
                    self.signals.stop_process();
                    self.go_on();
                }
                Event::Continue => self.go_on(),
                Event::Forward(signal) => self.forward(signal),
            }
        }
        result
    }

    /// A rank that has ended.
    fn reap(&mut self) -> Option<(u32, Exit)> {
        let mut others = Vec::new();
        let rank = self.procs.reap(false, |pid, status| others.push((pid, status)));
        for (pid, status) in others {
            // Others are what starts daemons, or what the launcher's own process had started before it became one.
            self.helper_ended(pid, status);
        }
        rank
    }

    fn go_on(&mut self) {
        self.signal_all(Signal::CONT);
        // Perhaps in the foreground now.
        let now = self.now();
        self.stdin.pump(now, &self.poller);
    }

    fn forward(&mut self, signal: Signal) {
        let again = self.verdict.interrupted(signal);
        if self.plan.options.verbose {
            self.sinks.say(&format!("passing {} on", signals::name(signal.as_raw() as u8)));
        }
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return self.signal_all(signal);
        }
        self.start_no_more();
        self.give_up_waiting(signal);
        if again {
            self.kill();
        } else {
            self.signal_all(signal);
        }
        if self.procs.running() == 0 {
            // Nobody is left but a reader that does not read, or nodes have not said yet whom they have started.
            if self.jobs.iter().any(|job| job.is_beginning()) {
                self.say_ended_by(signal);
            }
            self.verdict.give_up();
        }
    }

    /// Whatever has not been started by now shall not be.
    pub(super) fn start_no_more(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.next = job.ranks);
    }

    /// Sends a signal to all ranks, on whichever node.
    pub(super) fn signal_all(&mut self, signal: Signal) {
        self.procs.signal_all(signal);
        self.order_all(&Order::Signal(signal.as_raw()));
    }

    /// A process has ended.
    fn ended(&mut self, process: u32, exit: Exit) -> Result<(), RunError> {
        let Some((job, rank)) = self.jobs.of(process) else { return Ok(()) };
        let (id, who) = (job.id, job.rank_name(rank));
        if self.plan.options.verbose {
            self.sinks.say(&format!("{who} {exit}"));
        }
        let heard = self.hear_out(id, rank);
        self.count_end(id, rank, exit);
        let asked = self.procs.asked(process);
        self.report_up(&Report::Exited { job: id, rank: Rank(rank), exit, asked });
        self.drop_lookups(id, Rank(rank));
        heard?;
        let now = Time(self.now());
        self.core.handle(now, Input::Exited { job: id, rank: Rank(rank), exit })?;
        self.outputs()
    }

    /// A rank is running no more, on whichever node.
    pub(super) fn count_end(&mut self, id: JobId, rank: u32, exit: Exit) {
        let job = &mut self.jobs[id];
        job.running -= 1;
        if job.undone.is_none() {
            let counts = self.procs.asked(job.first + rank).map_or(exit, Exit::Code);
            if job.outcome.ended(rank, counts) {
                self.verdict.failed(super::procs::code(counts));
            }
        }
    }

    /// A job has to end.
    pub(super) fn end(&mut self, id: JobId, why: Why) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.undone.is_none()) else { return };
        if job.outcome.is_ending() {
            // Another node's server has found a reason as well.
            return;
        }
        let finished = self.procs.ended(job.processes(), |_| true);
        let code = job.outcome.end(why, finished);
        self.verdict.failed(code);
        self.order_all(&Order::End(id));
        self.make_end(id);
    }

    /// The ranks of a job that are here have to go.
    pub(super) fn make_end(&mut self, id: JobId) {
        let at = self.now() + GRACE;
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.next = job.ranks;
        if job.running > 0 {
            job.kill_at = Some(at);
        }
        self.procs.signal(job.processes(), Signal::TERM);
        // One that is stopped would not notice.
        self.procs.signal(job.processes(), Signal::CONT);
    }

    /// A rank has to end alone.
    pub(super) fn end_one(&mut self, id: JobId, rank: u32, code: Option<i32>, message: &str) {
        let Some(job) = self.jobs.get(id) else { return };
        let process = job.first + rank;
        // What had to be ended did not succeed.
        let code = (code.unwrap_or(1) as u8).max(1);
        let colon = if message.is_empty() { "" } else { ": " };
        let line = format!("{} aborted itself with code {code}{colon}{message}", job.rank_name(rank));
        self.sinks.say(&line);
        self.procs.ask(process, code);
        self.procs.signal(process..process + 1, Signal::TERM);
        self.procs.signal(process..process + 1, Signal::CONT);
        if let Some(pid) = self.procs.pid(process) {
            self.doomed.push(Doomed { at: self.now() + GRACE, process, pid });
        }
    }

    /// Ends those at once who have had their time to do it themselves.
    pub(super) fn end_doomed(&mut self, now: u64) {
        let due = |doomed: &Doomed| doomed.at <= now;
        for Doomed { process, pid, .. } in self.doomed.iter().copied().filter(due) {
            // The number may be another's by now.
            if self.procs.pid(process) == Some(pid) {
                self.procs.signal(process..process + 1, Signal::KILL);
            }
        }
        self.doomed.retain(|doomed| !due(doomed));
        for job in self.jobs.iter_mut().filter(|job| job.kill_at.is_some_and(|at| at <= now)) {
            job.kill_at = None;
            self.procs.signal(job.processes(), Signal::KILL);
        }
    }

    /// Ends everything at once.
    pub(super) fn kill(&mut self) {
        self.signal_all(Signal::KILL);
    }
}
