//! The ranks' processes. Each leads a process group of its own, with whatever it starts.

use std::collections::HashMap;
use std::ops::Range;

use hydrant_core::trace::Exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
};

/// All processes, by their number in the launcher.
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
    /// It asked to be ended, with this exit code.
    asked: Option<u8>,
}

impl Procs {
    pub(crate) fn new() -> Procs {
        Procs { all: Vec::new(), by_pid: HashMap::new(), running: 0 }
    }

    /// There shall be processes of these numbers, which are nobody's.
    pub(crate) fn make_room(&mut self, processes: Range<u32>) {
        let Range { start, end } = processes;
        if self.all.len() < end as usize {
            self.all.resize(end as usize, Proc::default());
        }
        self.all[start as usize..end as usize].fill(Proc::default());
    }

    pub(crate) fn started(&mut self, process: u32, pid: Pid) {
        self.all[process as usize] = Proc { pid: Some(pid), group: true, ..Proc::default() };
        self.by_pid.insert(pid, process);
        self.running += 1;
    }

    /// A rank runs on another node, under this number.
    pub(crate) fn began_elsewhere(&mut self, process: u32, pid: Pid) {
        self.all[process as usize] = Proc { pid: Some(pid), ..Proc::default() };
        self.running += 1;
    }

    /// A rank on another node has ended, and what it had asked to be ended with; whether that is news.
    pub(crate) fn ended_elsewhere(&mut self, process: u32, exit: Exit, asked: Option<u8>) -> bool {
        let proc = &mut self.all[process as usize];
        if proc.exit.is_some() {
            return false;
        }
        (proc.exit, proc.asked) = (Some(exit), asked);
        self.running -= 1;
        true
    }

    /// Whether a process has ended.
    pub(crate) fn has_ended(&self, process: u32) -> bool {
        self.all[process as usize].exit.is_some()
    }

    /// How many run.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// The system's number of a process, of which nothing may be left.
    pub(crate) fn pid(&self, process: u32) -> Option<Pid> {
        self.all[process as usize].pid
    }

    /// How many of these have ended and fit `which`.
    pub(crate) fn ended(&self, processes: Range<u32>, which: impl Fn(Exit) -> bool) -> u32 {
        let processes = &self.all[processes.start as usize..processes.end as usize];
        processes.iter().filter(|proc| proc.exit.is_some_and(&which)).count() as u32
    }

    /// How many of these have not been started.
    pub(crate) fn never(&self, processes: Range<u32>) -> u32 {
        let processes = &self.all[processes.start as usize..processes.end as usize];
        processes.iter().filter(|proc| proc.pid.is_none()).count() as u32
    }

    /// Sends a signal to every process and whatever it started.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        self.signal(0..self.all.len() as u32, signal);
    }

    /// Sends a signal to these processes and whatever they started.
    pub(crate) fn signal(&mut self, processes: Range<u32>, signal: Signal) {
        let processes = &mut self.all[processes.start as usize..processes.end as usize];
        for proc in processes.iter_mut().filter(|proc| proc.group) {
            if let Some(pid) = proc.pid {
                // A rank that changed its user cannot be signalled, and there is nobody to tell but the operator who
                // sees it stay.
                proc.group = kill_process_group(pid, signal) != Err(Errno::SRCH);
            }
        }
    }

    /// A process has asked to be ended, which counts as that exit code.
    pub(crate) fn ask(&mut self, process: u32, code: u8) {
        self.all[process as usize].asked.get_or_insert(code);
    }

    /// What a process asked to be ended with.
    pub(crate) fn asked(&self, process: u32) -> Option<u8> {
        self.all[process as usize].asked
    }

    /// A rank's process that has ended since the last call; waits for one where asked to. `others` hears of those that
    /// are no rank's.
    pub(crate) fn reap(
        &mut self,
        block: bool,
        mut others: impl FnMut(Pid, WaitStatus),
    ) -> Option<(u32, Exit)> {
        let options = if block { WaitOptions::empty() } else { WaitOptions::NOHANG };
        loop {
            let (pid, status) = match wait(options) {
                Ok(Some(ended)) => ended,
                Err(Errno::INTR) => continue,
                // Nobody has ended, or nobody is left.
                Ok(None) | Err(_) => return None,
            };
            let Some(process) = self.by_pid.remove(&pid) else {
                others(pid, status);
                continue;
            };
            let exit = exit(status);
            let proc = &mut self.all[process as usize];
            proc.exit = Some(exit);
            proc.group = test_kill_process_group(pid).is_ok();
            self.running -= 1;
            return Some((process, exit));
        }
    }

    /// Ends everything at once and waits until it has ended. `others` hears of those that are no rank's and have ended
    /// meanwhile.
    pub(crate) fn kill_and_wait(&mut self, mut others: impl FnMut(Pid, WaitStatus)) {
        self.signal_all(Signal::KILL);
        while self.running > 0 && self.reap(true, &mut others).is_some() {}
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
