//! The processes that descend from this one, found in the system's table of processes.
//!
//! The system hands the children that a process leaves behind to the nearest ancestor that adopts orphans
//! ([`adopt_orphans`](super::adopt_orphans)). So each descendant of this process is below one of its children, whatever
//! process group or session it is in.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal};

use crate::sys;

/// Programs that this process has started for its own purposes, and that have not been collected.
static HELPERS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
/// There has been such a program, which may have left processes behind.
static HAD_HELPERS: AtomicBool = AtomicBool::new(false);

/// A process as the system's table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Number of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Time of its start, which tells it from a later process of the same number.
    pub start: u64,
    /// Name of its program, at most 15 bytes, without control characters.
    pub name: String,
    /// It has ended and has not been collected.
    pub is_zombie: bool,
}

impl Process {
    /// Sends a signal, unless the number is another process's by now. Errors are ignored: the process may have ended, or
    /// be another user's.
    pub fn signal(&self, signal: Signal) {
        sys::signal_process(self, signal.as_raw());
    }

    /// Whether its environment, as it was when its program began, has this variable as `NAME=VALUE`.
    pub fn has_variable(&self, variable: &[u8]) -> bool {
        sys::has_variable(self.pid, variable)
    }

    /// The pipe or socket that is its standard input, if it is one.
    pub fn stdin_pipe(&self) -> Option<Vec<u8>> {
        stdin_pipe(self.pid)
    }
}

/// The pipe or socket that is the standard input of a process, if it is one.
pub fn stdin_pipe(pid: i32) -> Option<Vec<u8>> {
    sys::stdin_pipe(pid)
}

/// Whether a process neither catches nor ignores a signal. False where the system does not tell.
pub fn has_default_action(pid: Pid, signal: Signal) -> bool {
    sys::has_default_action(pid.as_raw_nonzero().get(), signal.as_raw())
}

/// The children of this process, ended ones included. None where the system does not list them.
pub fn children() -> Option<Vec<i32>> {
    sys::children()
}

/// All processes of this machine that this process may see. Empty where the system does not list them.
pub fn processes() -> Vec<Process> {
    sys::processes()
}

/// Keeps a program that this process has started for its own purposes apart from adopted processes.
pub(super) fn helper_started(pid: Pid) {
    HAD_HELPERS.store(true, Ordering::Relaxed);
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).push(pid.as_raw_nonzero().get());
}

/// Forgets all, in a new child of the process that has started them.
pub(super) fn forget_helpers() {
    HAD_HELPERS.store(false, Ordering::Relaxed);
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Forgets a program that [`start_helper`](super::start_helper) or [`fork`](super::fork) has started and that has been
/// collected.
pub fn helper_collected(pid: Pid) {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).retain(|&of| of != pid.as_raw_nonzero().get());
}

/// Whether this process has ever started a program for its own purposes.
pub fn had_helpers() -> bool {
    HAD_HELPERS.load(Ordering::Relaxed)
}

/// Programs that this process has started for its own purposes, and that have not been collected.
pub fn helpers() -> Vec<i32> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The processes below `tops`, and those that run among `tops`.
pub fn below(all: &[Process], tops: &[i32]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    all.iter().for_each(|process| children.entry(process.parent).or_default().push(process));
    let is_top: HashSet<i32> = tops.iter().copied().collect();
    let mut found: Vec<&Process> = all.iter().filter(|process| is_top.contains(&process.pid)).collect();
    let mut seen: HashSet<i32> = found.iter().map(|process| process.pid).collect();
    let mut at = 0;
    while let Some(process) = found.get(at) {
        at += 1;
        let of = children.get(&process.pid).into_iter().flatten().copied();
        found.extend(of.filter(|child| seen.insert(child.pid)));
    }
    found.into_iter().filter(|process| !process.is_zombie).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, group: pid, start: 0, name: "a".into(), is_zombie: false }
    }

    #[test]
    fn a_tree_is_found_in_any_order_and_once() {
        let mut all = vec![process(5, 3), process(3, 2), process(2, 1), process(9, 1), process(4, 3)];
        all[4].is_zombie = true;
        let pids = |tops: &[i32]| below(&all, tops).iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(&[3, 5]), [5, 3]);
        assert_eq!(pids(&[2]), [2, 3, 5]);
        assert_eq!(pids(&[7]), [] as [i32; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_in_the_table() {
        let own = std::process::id() as i32;
        let all = processes();
        let this = all.iter().find(|process| process.pid == own).unwrap();
        assert!(!this.is_zombie && !this.name.is_empty() && this.start > 0);
        // SAFETY: the calls have no effect.
        assert_eq!(unsafe { (libc::getppid(), libc::getpgrp()) }, (this.parent, this.group));
        assert!(!this.has_variable(b"HYDRANT_NO_SUCH=1"));
    }

    // Fault: The number of a process or group of a job is assigned again
    // Outcome: the new one gets no signal
    // Guarantee: A group is signalled only with a child of the launcher in it, a process once its start time has been
    // compared
    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_of_another_start_is_not_signalled() {
        use std::os::unix::process::ExitStatusExt;

        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let mut process = processes().into_iter().find(|process| process.pid == pid).unwrap();
        process.start += 1;
        process.signal(Signal::KILL);
        process.start -= 1;
        process.signal(Signal::TERM);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}
