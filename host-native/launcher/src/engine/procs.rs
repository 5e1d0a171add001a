//! The ranks' processes. Each leads a process group of its own, with whatever it starts.

use std::collections::HashMap;

use hydrant_core::trace::Exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
};

/// All processes of a job.
#[derive(Debug)]
pub(crate) struct Procs {
    all: Vec<Proc>,
    by_pid: HashMap<Pid, u32>,
    running: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Proc {
    pid: Option<Pid>,
    exit: Option<Exit>,
    /// Somebody may be left in the group, so that its number is not given to strangers.
    group: bool,
}

impl Procs {
    pub(crate) fn new(ranks: u32) -> Procs {
        Procs { all: vec![Proc::default(); ranks as usize], by_pid: HashMap::new(), running: 0 }
    }

    pub(crate) fn started(&mut self, rank: u32, pid: Pid) {
        self.all[rank as usize] = Proc { pid: Some(pid), exit: None, group: true };
        self.by_pid.insert(pid, rank);
        self.running += 1;
    }

    /// How many run.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// The rank's process, of which nothing may be left.
    pub(crate) fn pid(&self, rank: u32) -> Option<Pid> {
        self.all[rank as usize].pid
    }

    /// How many have ended and fit `which`.
    pub(crate) fn ended(&self, which: impl Fn(Exit) -> bool) -> u32 {
        self.all.iter().filter(|proc| proc.exit.is_some_and(&which)).count() as u32
    }

    /// Sends a signal to every rank and whatever it started.
    pub(crate) fn signal(&mut self, signal: Signal) {
        for proc in self.all.iter_mut().filter(|proc| proc.group) {
            if let Some(pid) = proc.pid {
                // A rank that changed its user cannot be signalled, and there is nobody to tell but the operator who
                // sees it stay.
                proc.group = kill_process_group(pid, signal) != Err(Errno::SRCH);
            }
        }
    }

    /// Ends one rank and whatever it started.
    pub(crate) fn end_one(&mut self, rank: u32) {
        let proc = &mut self.all[rank as usize];
        if let Some(pid) = proc.pid.filter(|_| proc.group) {
            proc.group = kill_process_group(pid, Signal::KILL) != Err(Errno::SRCH);
        }
    }

    /// A rank that has ended since the last call; waits for one where asked to.
    pub(crate) fn reap(&mut self, block: bool) -> Option<(u32, Exit)> {
        let options = if block { WaitOptions::empty() } else { WaitOptions::NOHANG };
        loop {
            let (pid, status) = match wait(options) {
                Ok(Some(ended)) => ended,
                Err(Errno::INTR) => continue,
                // Nobody has ended, or nobody is left.
                Ok(None) | Err(_) => return None,
            };
            // Others are what the launcher's own process had started before it became one.
            let Some(rank) = self.by_pid.remove(&pid) else { continue };
            let exit = exit(status);
            let proc = &mut self.all[rank as usize];
            proc.exit = Some(exit);
            proc.group = test_kill_process_group(pid).is_ok();
            self.running -= 1;
            return Some((rank, exit));
        }
    }

    /// Ends everything at once and waits until it has ended.
    pub(crate) fn kill_and_wait(&mut self) {
        self.signal(Signal::KILL);
        while self.running > 0 && self.reap(true).is_some() {}
    }
}

fn exit(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code as u8),
        (None, Some(signal)) => Exit::Signal(signal as u8),
        (None, None) => Exit::Lost,
    }
}

/// The exit code that a shell gives for it.
pub(crate) fn code(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => signal.saturating_add(128),
        Exit::Lost => 1,
    }
}
