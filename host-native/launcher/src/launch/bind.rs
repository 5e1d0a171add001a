//! CPU affinity of the launcher while it starts a rank.

use std::fs;

use hydrant_placement::CpuBinding;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::LaunchError;

/// The sets of processors that ranks get round robin, and the launcher's own set.
#[derive(Debug)]
pub(crate) struct Affinity {
    own: CpuSet,
    sets: Vec<CpuSet>,
    changed: bool,
}

impl Affinity {
    /// Reads the processors and cores of the machine.
    ///
    /// # Errors
    /// The binding names a processor that the launcher may not use.
    pub(crate) fn new(binding: &CpuBinding) -> Result<Affinity, LaunchError> {
        let own =
            sched_getaffinity(None).map_err(LaunchError::system("cannot read the allowed processors"))?;
        let allowed: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|&cpu| own.is_set(cpu as usize)).collect();
        let sets = binding.cpu_sets(&allowed, |cpu| {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            fs::read_to_string(file).ok()
        })?;
        Ok(Affinity { own, sets: sets.iter().map(|cpus| cpu_set(cpus)).collect(), changed: false })
    }

    /// Sets the launcher's affinity to that of the next rank, because a new process inherits it.
    pub(crate) fn enter(&mut self, rank: u32) -> Result<(), LaunchError> {
        if self.sets.is_empty() {
            return Ok(());
        }
        self.changed = true;
        sched_setaffinity(None, &self.sets[rank as usize % self.sets.len()])
            .map_err(LaunchError::system("cannot bind to the requested processors"))
    }

    /// Restores the launcher's own affinity.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.changed) {
            // A failure is harmless: the launcher then keeps the affinity of the rank.
            let _ = sched_setaffinity(None, &self.own);
        }
    }
}

fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu as usize));
    set
}
