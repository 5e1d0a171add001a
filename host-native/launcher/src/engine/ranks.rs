//! The life of the ranks: starting them, passing signals on, noticing their end.

use std::os::fd::AsFd;

use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{Input, Rank, Time};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;

use super::signals::Event;
use super::{Engine, JOB};
use crate::error::RunError;
use crate::launch::Stdio;

/// Ranks that are started before the event loop looks after those that run.
const BATCH: u32 = 16;
/// How long ranks that are asked to end may take before they are made to, in milliseconds.
const GRACE: u64 = 500;

impl Engine<'_, '_> {
    /// Starts the next few ranks.
    pub(super) fn start_some(&mut self) -> Result<(), RunError> {
        let until = self.ranks.min(self.next.saturating_add(BATCH));
        while self.next < until {
            self.start(self.next)?;
            self.next += 1;
        }
        Ok(())
    }

    fn start(&mut self, rank: u32) -> Result<(), RunError> {
        let pipe = RunError::system("cannot make a pipe for a rank's output");
        let stdout = self.streams.open(2 * rank, &self.poller).map_err(&pipe)?;
        let stderr = self.streams.open(2 * rank + 1, &self.poller).map_err(&pipe)?;
        let pmi = match self.port {
            Some(_) => None,
            None => {
                let flags = SocketFlags::CLOEXEC;
                let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .map_err(RunError::system("cannot make a rank's PMI socket"))?;
                self.open_conn(ours, Some(rank))?;
                Some(theirs)
            }
        };
        let pumped = if rank == 0 { self.stdin.for_rank_0() } else { None };
        let stdin = match &pumped {
            Some(pipe) => Some(pipe.as_fd()),
            None => (rank != 0).then(|| self.null.as_fd()),
        };
        let (stdout, stderr) = (stdout.as_fd(), stderr.as_fd());
        let stdio = Stdio { stdin, stdout, stderr, pmi: pmi.as_ref().map(AsFd::as_fd) };
        let pid = self.launcher.start(rank, &stdio, &self.files)?;
        self.procs.started(rank, pid);
        if rank == 0 {
            self.stdin.started().map_err(RunError::system("cannot let go of standard input"))?;
        }
        self.open_files_of(rank, pid)?;
        if self.plan.options.verbose {
            let program = self.launcher.program(rank).1.display().to_string();
            self.sinks.say(&format!("started rank {rank} as pid {}: {program}", pid.as_raw_nonzero()));
        }
        Ok(())
    }

    /// Acts on the signals that have come.
    pub(super) fn take_signals(&mut self) -> Result<(), RunError> {
        let mut events = Vec::new();
        self.signals.read(&mut events)?;
        for event in events {
            match event {
                Event::Child => {
                    while let Some((rank, exit)) = self.procs.reap(false) {
                        self.ended(rank, exit)?;
                    }
                }
                Event::Stop => {
                    self.flush();
                    self.procs.signal(Signal::TSTP);
                    self.signals.stop_here();
                    self.go_on();
                }
                Event::Continue => self.go_on(),
                Event::Forward(signal) => self.forward(signal),
            }
        }
        Ok(())
    }

    fn go_on(&mut self) {
        self.procs.signal(Signal::CONT);
        // Perhaps in the foreground now.
        let now = self.now();
        self.stdin.pump(now, &self.poller);
    }

    fn forward(&mut self, signal: Signal) {
        let again = self.outcome.interrupted(signal);
        if self.plan.options.verbose {
            self.sinks.say(&format!("passing {} on", super::signals::name(signal.as_raw() as u8)));
        }
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return self.procs.signal(signal);
        }
        // Whatever has not been started by now shall not be.
        self.next = self.ranks;
        if again {
            self.kill();
        } else {
            self.procs.signal(signal);
        }
        if self.draining {
            // Nobody is left but a reader that does not read.
            self.outcome.give_up();
        }
    }

    /// A rank's process has ended.
    fn ended(&mut self, rank: u32, exit: Exit) -> Result<(), RunError> {
        if self.plan.options.verbose {
            self.sinks.say(&format!("rank {rank} {exit}"));
        }
        self.hear_out(rank)?;
        self.outcome.ended(rank, exit);
        let now = Time(self.now());
        self.server.handle(now, Input::Exited { job: JOB, rank: Rank(rank), exit })?;
        self.outputs()
    }

    /// The job has to end.
    pub(super) fn end(&mut self, cause: Cause, message: String) {
        let finished = self.procs.ended(|_| true);
        self.outcome.end(cause, message, self.procs.running(), finished);
        self.next = self.ranks;
        if self.procs.running() > 0 {
            self.kill_at = Some(self.now() + GRACE);
        }
        self.procs.signal(Signal::TERM);
        // One that is stopped would not notice.
        self.procs.signal(Signal::CONT);
    }

    /// Ends everything at once.
    pub(super) fn kill(&mut self) {
        self.procs.signal(Signal::KILL);
    }
}
