//! Processor binding of ranks.

use std::collections::BTreeMap;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::LaunchError;
use crate::plan::Bind;

/// Processor sets for the ranks of a job, round robin, and the set of the launcher itself.
#[derive(Debug)]
pub(crate) struct Binding {
    own: CpuSet,
    sets: Vec<CpuSet>,
    moved: bool,
}

impl Binding {
    /// Reads the allowed processors of this process. Returns an error if the plan lists another one.
    pub(crate) fn new(bind: &Bind) -> Result<Binding, LaunchError> {
        let own =
            sched_getaffinity(None).map_err(LaunchError::system("cannot read the allowed processors"))?;
        let sets = sets(bind, &own, |cpu| {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            fs::read_to_string(file).ok()
        })?;
        Ok(Binding { own, sets, moved: false })
    }

    /// Binds the launcher to the processors of `rank`, because a new process inherits its parent's binding.
    pub(crate) fn enter(&mut self, rank: u32) -> Result<(), LaunchError> {
        if self.sets.is_empty() {
            return Ok(());
        }
        self.moved = true;
        sched_setaffinity(None, &self.sets[rank as usize % self.sets.len()])
            .map_err(LaunchError::system("cannot bind to the requested processors"))
    }

    /// Restores the binding of the launcher.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.moved) {
            // The error is ignored: the launcher works on any processor.
            let _ = sched_setaffinity(None, &self.own);
        }
    }
}

/// The sets in rank order. `siblings` returns the hardware threads of a processor's core.
fn sets(
    bind: &Bind,
    own: &CpuSet,
    siblings: impl Fn(usize) -> Option<String>,
) -> Result<Vec<CpuSet>, LaunchError> {
    let allowed = || (0..CpuSet::MAX_CPU).filter(|&cpu| own.is_set(cpu));
    Ok(match bind {
        Bind::None => Vec::new(),
        Bind::Hwthread => allowed().map(|cpu| set_of([cpu])).collect(),
        Bind::Core => {
            let mut cores: BTreeMap<usize, CpuSet> = BTreeMap::new();
            for cpu in allowed() {
                // The lowest thread identifies the core, even if it is not allowed itself. A processor without
                // topology is a core of its own.
                let first = siblings(cpu).and_then(|list| lowest(&list)).unwrap_or(cpu);
                cores.entry(first).or_default().set(cpu);
            }
            cores.into_values().collect()
        }
        Bind::User(list) => {
            for &cpu in list.iter().flatten() {
                let index = cpu as usize;
                if index >= CpuSet::MAX_CPU || !own.is_set(index) {
                    return Err(LaunchError::Processor { cpu, allowed: ranges(allowed()) });
                }
            }
            if list.iter().any(Vec::is_empty) {
                return Err(LaunchError::NoProcessor);
            }
            list.iter().map(|cpus| set_of(cpus.iter().map(|&cpu| cpu as usize))).collect()
        }
    })
}

fn set_of(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu);
    }
    set
}

/// The first number of a kernel list such as `0-3,8`.
fn lowest(list: &str) -> Option<usize> {
    list.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Ascending numbers as `0-3,8`.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |&(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores with two threads, numbered as Linux does: threads of core 0 are 0 and 4.
    fn siblings(cpu: usize) -> Option<String> {
        Some(format!("{},{}\n", cpu % 4, cpu % 4 + 4))
    }

    fn numbers(set: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }

    fn bound(bind: &Bind, own: &[usize]) -> Vec<Vec<usize>> {
        let own = set_of(own.iter().copied());
        sets(bind, &own, siblings).unwrap().iter().map(numbers).collect()
    }

    #[test]
    fn a_core_is_all_its_allowed_threads() {
        assert_eq!(bound(&Bind::Core, &[0, 1, 2, 3, 4, 5, 6, 7]), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(bound(&Bind::Core, &[1, 4, 5]), [vec![4], vec![1, 5]]);
        assert_eq!(bound(&Bind::Hwthread, &[1, 4]), [[1], [4]]);
        assert!(bound(&Bind::None, &[1, 4]).is_empty());
    }

    #[test]
    fn named_processors_must_be_allowed() {
        assert_eq!(bound(&Bind::User(vec![vec![0, 2], vec![1]]), &[0, 1, 2]), [vec![0, 2], vec![1]]);
        let error = sets(&Bind::User(vec![vec![9]]), &set_of([0, 1, 2, 5]), siblings).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind to processor 9: this process may use 0-2,5 only");
        assert!(sets(&Bind::User(vec![vec![70_000]]), &set_of([0]), siblings).is_err());
        assert!(sets(&Bind::User(vec![vec![]]), &set_of([0]), siblings).is_err());
    }
}
