//! Processes of the ranks on this machine. Each leads a process group of its own.
//!
//! A number of a process group belongs to the ranks as long as a child of this process is in the group, running or not
//! collected. Afterwards the number may be another user's, so it is not signalled. This process adopts the children that
//! ranks leave behind (`PR_SET_CHILD_SUBREAPER`), which keeps the groups of ranks that have ended.

use std::collections::HashMap;
use std::ops::Range;

use hydrant_core::trace::Exit;
use hydrant_reactor::process::{Guardian, adopt_orphans};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group,
    wait, waitid,
};

/// All processes, by their slot.
#[derive(Debug)]
pub(crate) struct Procs {
    /// Leader of the process group in each slot, until no child of this process is in the group.
    groups: Vec<Option<Pid>>,
    by_pid: HashMap<Pid, u32>,
    running: u32,
    /// Process that kills the groups after this process has been killed.
    guardian: Option<Guardian>,
}

impl Procs {
    /// The processes of a run. From here on, this process adopts those that its children leave behind.
    pub(crate) fn new() -> Procs {
        // Without it, the children of ranks that have ended are out of reach.
        let adopts = adopt_orphans();
        debug_assert!(adopts.is_ok(), "Linux 3.4 has subreapers: {adopts:?}");
        Procs { groups: Vec::new(), by_pid: HashMap::new(), running: 0, guardian: None }
    }

    /// Has all process groups killed when this process is killed. The system does so for the ranks alone.
    pub(crate) fn guard(&mut self, guardian: Guardian) {
        self.guardian = Some(guardian);
    }

    fn set(&mut self, slot: usize, group: Option<Pid>) {
        if self.groups[slot] != group {
            self.groups[slot] = group;
            if let Some(guardian) = &self.guardian {
                guardian.set(slot as u32, group);
            }
        }
    }

    /// Makes room for processes in these slots, which are free.
    pub(crate) fn make_room(&mut self, slots: Range<u32>) {
        let Range { start, end } = slots;
        if self.groups.len() < end as usize {
            self.groups.resize(end as usize, None);
        }
        (start as usize..end as usize).for_each(|slot| self.set(slot, None));
    }

    pub(crate) fn started(&mut self, slot: u32, pid: Pid) {
        self.set(slot as usize, Some(pid));
        self.by_pid.insert(pid, slot);
        self.running += 1;
    }

    /// Sends a signal to all process groups.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        self.signal(0..self.groups.len() as u32, signal);
    }

    /// Sends a signal to the process groups in these slots.
    pub(crate) fn signal(&mut self, slots: Range<u32>, signal: Signal) {
        for slot in slots.start as usize..slots.end as usize {
            let Some(group) = self.groups[slot] else { continue };
            if !self.by_pid.contains_key(&group) && !has_child(group) {
                self.set(slot, None);
                continue;
            }
            // A rank that changed its user cannot be signalled. Only the user can end it.
            let _ = kill_process_group(group, signal);
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
            // The first call is the cheap one where a job has many ranks.
            if test_kill_process_group(pid).is_err() || !has_child(pid) {
                self.set(slot as usize, None);
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

/// Returns whether a child of this process is in a process group. The number of the group is in use until that child has
/// been collected.
fn has_child(group: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pgid(Some(group)), options).is_ok()
}

fn exit(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code as u8),
        (None, Some(signal)) => Exit::Signal(signal as u8),
        (None, None) => Exit::Lost,
    }
}
