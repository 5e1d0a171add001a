//! Processes of the ranks on this machine. Each leads a process group of its own.

use std::collections::HashMap;
use std::ops::Range;

use hydrant_core::trace::Exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
};

/// All processes, by their slot.
#[derive(Debug)]
pub(crate) struct Procs {
    /// Leader of the process group in each slot, until the group is empty.
    groups: Vec<Option<Pid>>,
    by_pid: HashMap<Pid, u32>,
    running: u32,
}

impl Procs {
    pub(crate) fn new() -> Procs {
        Procs { groups: Vec::new(), by_pid: HashMap::new(), running: 0 }
    }

    /// Makes room for processes in these slots, which are free.
    pub(crate) fn make_room(&mut self, slots: Range<u32>) {
        let Range { start, end } = slots;
        if self.groups.len() < end as usize {
            self.groups.resize(end as usize, None);
        }
        self.groups[start as usize..end as usize].fill(None);
    }

    pub(crate) fn started(&mut self, slot: u32, pid: Pid) {
        self.groups[slot as usize] = Some(pid);
        self.by_pid.insert(pid, slot);
        self.running += 1;
    }

    /// Number of processes that run.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Sends a signal to all process groups.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        self.signal(0..self.groups.len() as u32, signal);
    }

    /// Sends a signal to the process groups in these slots.
    pub(crate) fn signal(&mut self, slots: Range<u32>, signal: Signal) {
        for group in &mut self.groups[slots.start as usize..slots.end as usize] {
            // A rank that changed its user cannot be signalled. Only the user can end it.
            *group = group.filter(|&pid| kill_process_group(pid, signal) != Err(Errno::SRCH));
        }
    }

    /// Collects a rank's process that has ended, and waits for one if `block` is set. `others` receives processes that
    /// belong to no rank.
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
                // No process has ended, or no process exists.
                Ok(None) | Err(_) => return None,
            };
            let Some(slot) = self.by_pid.remove(&pid) else {
                others(pid, status);
                continue;
            };
            if test_kill_process_group(pid).is_err() {
                self.groups[slot as usize] = None;
            }
            self.running -= 1;
            return Some((slot, exit(status)));
        }
    }

    /// Kills all processes at once and waits until they have ended. `others` receives processes that belong to no rank
    /// and have ended meanwhile.
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
