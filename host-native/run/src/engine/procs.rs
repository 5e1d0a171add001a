//! Processes of the ranks on this machine. Each leads a process group of its own.
//!
//! A number of a process group belongs to the ranks as long as a child of this process is in the group, running or not
//! collected. Afterwards the number may be another user's, so it is not signalled. This process adopts the children that
//! ranks leave behind (`PR_SET_CHILD_SUBREAPER`), which keeps the groups of ranks that have ended. So what a job has started
//! is below a rank or below an adopted process, in whatever group or session it is.
//!
//! Some processes of a rank's group are its *filters*: their standard input is a pipe that is not the rank's, as in
//! `exec > >(tee log)` or `rank | gzip`. A signal that ends a job spares them. They end when they have read their input.

use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Range;
use std::time::Duration;

use hydrant_core::trace::Exit;
use hydrant_reactor::process::{
    Guardian, Process, adopt_orphans, below, children, group_of, had_helpers, has_default_action,
    helper_collected, helpers, leads_session, processes, stdin_pipe,
};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    test_kill_process_group, wait, waitid,
};

/// Searches for processes that are left when this process ends, and the time between them. A process that the system does
/// not end keeps the launcher no longer.
const SEARCHES_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// How far the end of a slot's processes has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// No signal that ends them has been sent.
    #[default]
    No,
    /// They were asked to end.
    Asked,
    /// They were killed, except filters.
    Killed,
    /// All were killed.
    KilledAll,
}

/// All processes, by their slot.
#[derive(Debug)]
pub(crate) struct Procs {
    /// Leader of the process group in each slot, until no child of this process is in the group.
    groups: Vec<Option<Pid>>,
    by_pid: HashMap<Pid, u32>,
    running: u32,
    /// How far the end of each slot's processes has come.
    endings: Vec<Ending>,
    /// Standard input of a rank that was asked to end, if it is a pipe.
    inputs: HashMap<u32, Vec<u8>>,
    /// Children of this process that are no job's: those from before it started ranks.
    others: Vec<i32>,
    /// There were such children, which may leave processes behind.
    had_others: bool,
    /// When this process last looked it had no child but the guardian, and it has started no rank since. So it adopts none either.
    is_childless: bool,
    /// Process that kills the groups after this process has been killed.
    guardian: Option<Guardian>,
}

impl Procs {
    /// The processes of a run. From here on, this process adopts those that its children leave behind.
    pub(crate) fn new() -> Procs {
        // Without it, the children of ranks that have ended are out of reach.
        let adopts = adopt_orphans();
        debug_assert!(adopts.is_ok(), "Linux 3.4 has subreapers: {adopts:?}");
        Procs {
            groups: Vec::new(),
            by_pid: HashMap::new(),
            running: 0,
            endings: Vec::new(),
            inputs: HashMap::new(),
            others: children().unwrap_or_default(),
            had_others: false,
            is_childless: false,
            guardian: None,
        }
    }

    /// Has all process groups killed when this process is killed. The system does so for the ranks alone.
    pub(crate) fn guard(&mut self, guardian: Guardian) {
        self.had_others = self.others.iter().any(|&pid| pid != guardian.pid());
        self.guardian = Some(guardian);
    }

    /// Variable that the environment of ranks must have.
    pub(crate) fn mark(&self) -> Option<&CStr> {
        self.guardian.as_ref().map(Guardian::mark)
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
            self.endings.resize(end as usize, Ending::No);
        }
        for slot in start..end {
            self.set(slot as usize, None);
            self.endings[slot as usize] = Ending::No;
            self.inputs.remove(&slot);
        }
    }

    pub(crate) fn started(&mut self, slot: u32, pid: Pid) {
        self.set(slot as usize, Some(pid));
        self.by_pid.insert(pid, slot);
        self.running += 1;
        self.is_childless = false;
    }

    /// Sends a signal to all ranks and their process groups.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        self.signal(0..self.groups.len() as u32, signal);
    }

    /// Sends a signal to the ranks in these slots and to their process groups. One that ends them spares their filters.
    pub(crate) fn signal(&mut self, slots: Range<u32>, signal: Signal) {
        let ending = match signal {
            Signal::TSTP | Signal::STOP | Signal::CONT | Signal::WINCH => Ending::No,
            Signal::USR1 | Signal::USR2 => Ending::No,
            Signal::KILL => Ending::Killed,
            _ => Ending::Asked,
        };
        let all = if ending == Ending::No { Vec::new() } else { processes() };
        for slot in slots {
            self.note_ending(slot, ending);
            let Some(group) = self.group(slot) else { continue };
            // The system ignores the default action of SIGTSTP in a session without a shell that could continue it.
            let is_stop = signal == Signal::TSTP && leads_session(group) && has_default_action(group, signal);
            let signal = if is_stop { Signal::STOP } else { signal };
            let filters = self.filters(slot, group, &all);
            // A rank that changed its user cannot be signalled. Only the user can end it.
            if filters.is_empty() {
                let _ = kill_process_group(group, signal);
            } else {
                let members =
                    all.iter().filter(|process| process.group == number(group) && !process.is_zombie);
                let members = members.filter(|process| !filters.contains(&process.pid));
                members.for_each(|process| process.signal(signal));
            }
            self.signal_moved(group, signal);
        }
    }

    /// Kills the ranks in these slots, and all processes of their groups.
    pub(crate) fn kill(&mut self, slots: Range<u32>) {
        for slot in slots {
            self.note_ending(slot, Ending::KilledAll);
            let Some(group) = self.group(slot) else { continue };
            let _ = kill_process_group(group, Signal::KILL);
            self.signal_moved(group, Signal::KILL);
        }
    }

    /// As [`kill`](Procs::kill), in all slots.
    pub(crate) fn kill_all(&mut self) {
        self.kill(0..self.groups.len() as u32);
    }

    /// How far the end of the processes in these slots has come.
    pub(crate) fn ending(&self, slots: Range<u32>) -> Ending {
        let of_slots = &self.endings[slots.start as usize..slots.end as usize];
        of_slots.iter().copied().max().unwrap_or_default()
    }

    fn note_ending(&mut self, slot: u32, ending: Ending) {
        let known = &mut self.endings[slot as usize];
        *known = ending.max(*known);
    }

    /// The process group of a slot, if its number is still that of the group.
    fn group(&mut self, slot: u32) -> Option<Pid> {
        let group = self.groups[slot as usize]?;
        if !self.by_pid.contains_key(&group) && !has_child(group) {
            self.set(slot as usize, None);
            return None;
        }
        Some(group)
    }

    /// Signals a rank that has moved to another group.
    fn signal_moved(&self, rank: Pid, signal: Signal) {
        if self.by_pid.contains_key(&rank) && group_of(rank).is_some_and(|group| group != number(rank)) {
            let _ = kill_process(rank, signal);
        }
    }

    /// The filters of a rank.
    fn filters(&mut self, slot: u32, group: Pid, all: &[Process]) -> Vec<i32> {
        let rank = number(group);
        // What the rank leaves behind is compared with it later.
        if !all.is_empty()
            && self.by_pid.contains_key(&group)
            && let Some(input) = stdin_pipe(rank)
        {
            self.inputs.insert(slot, input);
        }
        let members = all.iter().filter(|process| process.group == rank && process.pid != rank);
        let input = self.inputs.get(&slot);
        let is_filter = |process: &&Process| process.stdin_pipe().is_some_and(|own| input != Some(&own));
        members.filter(is_filter).map(|process| process.pid).collect()
    }

    /// Returns whether a process is a filter of the ranks in these slots, or another one that reads a pipe.
    pub(crate) fn is_filter(&self, slots: Range<u32>, process: &Process) -> bool {
        let of_ranks = |own: &Vec<u8>| slots.clone().any(|slot| self.inputs.get(&slot) == Some(own));
        process.stdin_pipe().is_some_and(|own| !of_ranks(&own))
    }

    /// Returns whether a process is in the group of a rank in these slots.
    pub(crate) fn is_in_group(&self, slots: Range<u32>, process: &Process) -> bool {
        let groups = &self.groups[slots.start as usize..slots.end as usize];
        groups.iter().any(|&group| group.map(number) == Some(process.group))
    }

    /// The processes that the ranks in these slots, all of which have ended, have left behind. `job` is the variable that
    /// the environment of their job has, if there is one job. `is_last` tells that this process serves no other job: what is
    /// of no known job is this one's.
    pub(crate) fn left_behind(
        &mut self,
        slots: Range<u32>,
        job: Option<&[u8]>,
        is_last: bool,
    ) -> Vec<Process> {
        if self.is_childless && !had_helpers() {
            return Vec::new();
        }
        let Some(mut children) = children() else { return self.groups_left(slots) };
        let (helpers, guardian) = (helpers(), self.guardian.as_ref().map(Guardian::pid));
        children.retain(|&pid| Some(pid) != guardian);
        self.is_childless = children.is_empty();
        let is_adopted = |&pid: &i32| {
            let is_rank = Pid::from_raw(pid).is_some_and(|pid| self.by_pid.contains_key(&pid));
            !is_rank && !helpers.contains(&pid) && !self.others.contains(&pid)
        };
        let adopted: Vec<i32> = children.into_iter().filter(is_adopted).collect();
        if adopted.is_empty() {
            return Vec::new();
        }
        let all = processes();
        // A process that other programs of this process left behind has no mark.
        let is_alone = !self.had_others && !had_helpers();
        let mark = self.mark().map(CStr::to_bytes);
        let is_marked = |process: &Process| mark.is_some_and(|mark| process.has_variable(mark));
        let is_of_job = |process: &Process| {
            let group = self.groups.iter().position(|&group| group.map(number) == Some(process.group));
            match group {
                Some(slot) => slots.contains(&(slot as u32)),
                None if job.is_some_and(|job| process.has_variable(job)) => true,
                None => is_last && (is_alone || is_marked(process)),
            }
        };
        let tops = all.iter().filter(|process| adopted.contains(&process.pid) && is_of_job(process));
        below(&all, &tops.map(|process| process.pid).collect::<Vec<_>>())
    }

    /// The groups of ranks that have ended, where the system does not list processes.
    fn groups_left(&mut self, slots: Range<u32>) -> Vec<Process> {
        for slot in slots {
            if self.group(slot).is_some() {
                self.kill(slot..slot + 1);
            }
        }
        Vec::new()
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
                helper_collected(pid);
                self.others.retain(|&other| other != number(pid));
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

    /// Kills all ranks and what they have started at once, and waits until they have ended. `others` receives processes that
    /// belong to no rank and have ended meanwhile.
    pub(crate) fn kill_and_wait(&mut self, mut others: impl FnMut(Pid, WaitStatus)) {
        self.kill_all();
        while self.running > 0 && self.reap(true, &mut others).is_some() {}
        let slots = 0..self.groups.len() as u32;
        for _ in 0..SEARCHES_MAX {
            // Adopted processes that have ended.
            while self.reap(false, &mut others).is_some() {}
            let left = self.left_behind(slots.clone(), None, true);
            if left.is_empty() {
                return;
            }
            left.iter().for_each(|process| process.signal(Signal::KILL));
            std::thread::sleep(PAUSE);
        }
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
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
