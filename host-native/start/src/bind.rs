//! Processors and memory of ranks: their choice, and the launcher's own while it starts a rank.

use std::fs;

use hydrant_placement::{Binding, CpuBinding, MemoryBinding, Topology, format_ranges, shared_processors};

use crate::LaunchError;
use crate::sys::{self, MemoryPolicy};

/// Bindings of the ranks on this machine.
#[derive(Debug)]
pub struct Bindings {
    binding: Binding,
    topology: Topology,
    /// Sets of processors that ranks get round robin. Empty without binding.
    sets: Vec<Vec<u32>>,
    /// The launcher's own processors.
    own: Vec<u32>,
}

impl Bindings {
    /// Reads the processors of the machine and chooses those of each rank, of those that are not `taken` if there are any.
    ///
    /// # Errors
    /// The binding names processors, objects or NUMA nodes that the launcher may not use, or that do not exist.
    pub fn new(binding: &Binding, taken: &[u32]) -> Result<Bindings, LaunchError> {
        let own =
            sys::allowed_processors().map_err(LaunchError::system("cannot read the allowed processors"))?;
        let read = |name: &str| fs::read_to_string(format!("/sys/devices/system/{name}")).ok();
        let free: Vec<u32> = own.iter().copied().filter(|processor| !taken.contains(processor)).collect();
        // A list of the user is taken as it is.
        let is_chosen = matches!(binding.cpus, CpuBinding::User(_)) || free.is_empty();
        let topology = Topology::read(if is_chosen { &own } else { &free }, read);
        let (sets, topology) = match binding.cpus.cpu_sets(binding.map_by, &topology) {
            Ok(sets) => (sets, topology),
            // What is free may have too few objects.
            Err(_) if !taken.is_empty() => {
                let all = Topology::read(&own, read);
                (binding.cpus.cpu_sets(binding.map_by, &all)?, all)
            }
            Err(error) => return Err(error.into()),
        };
        binding.memory.check(&topology)?;
        Ok(Bindings { binding: binding.clone(), topology, sets, own })
    }

    /// The processors of a rank by its number on this machine.
    fn processors(&self, local: u32) -> &[u32] {
        match self.sets.len() {
            0 => &self.own,
            len => &self.sets[local as usize % len],
        }
    }

    /// The processors that a rank is bound to, by its number on this machine.
    pub fn bound_to(&self, local: u32) -> Option<&[u32]> {
        (!self.sets.is_empty()).then(|| self.processors(local))
    }

    /// The processors that a rank is bound to, as in `0-3,8`, and their [place](Topology::locality) in the machine.
    pub fn place(&self, local: u32) -> Option<[String; 2]> {
        let mut cpus = self.bound_to(local)?.to_vec();
        cpus.sort_unstable();
        Some([format_ranges(&cpus), self.topology.locality(&cpus)])
    }

    fn memory(&self, local: u32) -> Option<(Vec<u32>, bool)> {
        self.binding.memory.nodes(self.processors(local), &self.topology)
    }

    /// Describes the binding of a rank, for a user.
    pub fn describe(&self, local: u32) -> String {
        let cpus = self.topology.describe(self.processors(local));
        let bound = if self.sets.is_empty() { "not bound" } else { "bound to" };
        let memory = match self.memory(local) {
            None => String::new(),
            Some((nodes, interleaved)) => {
                let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
                let how = if interleaved { "interleaved over" } else { "of" };
                format!(", memory {how} NUMA node {}", nodes.join(","))
            }
        };
        match self.sets.is_empty() {
            true => format!("{bound}: {cpus}{memory}"),
            false => format!("{bound} {cpus}{memory}"),
        }
    }

    /// Describes processors that ranks share without having been asked to. `ranks` are those of this machine.
    pub fn shared(&self, ranks: &[u32]) -> Option<String> {
        if self.sets.is_empty() {
            return None;
        }
        let sets: Vec<&[u32]> = (0..ranks.len() as u32).map(|local| self.processors(local)).collect();
        shared_processors(&self.binding.cpus, &sets, &self.topology, |local| ranks[local])
    }
}

/// CPU affinity and memory policy of the launcher while it starts a rank.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    /// Missing if ranks are not bound.
    bindings: Option<Bindings>,
    own_memory: Option<MemoryPolicy>,
    changed: bool,
}

impl Affinity {
    /// Chooses processors and memory of the ranks.
    ///
    /// # Errors
    /// The binding is not possible on this machine.
    pub(crate) fn new(binding: &Binding, taken: &[u32]) -> Result<Affinity, LaunchError> {
        let is_default = binding.cpus == CpuBinding::None && binding.memory == MemoryBinding::Default;
        if is_default && !binding.report {
            return Ok(Affinity::default());
        }
        let own_memory = match binding.memory {
            MemoryBinding::Default => None,
            _ => Some(MemoryPolicy::current().map_err(LaunchError::system("cannot read the memory policy"))?),
        };
        Ok(Affinity { bindings: Some(Bindings::new(binding, taken)?), own_memory, changed: false })
    }

    /// The bindings, if ranks are bound or bindings are reported.
    pub(crate) fn bindings(&self) -> Option<&Bindings> {
        self.bindings.as_ref()
    }

    /// Gives the launcher the processors and the memory of a rank, because a new process inherits both.
    pub(crate) fn enter(&mut self, local: u32) -> Result<(), LaunchError> {
        let Some(bindings) = &self.bindings else { return Ok(()) };
        if !bindings.sets.is_empty() {
            self.changed = true;
            sys::bind_to_processors(bindings.processors(local))
                .map_err(LaunchError::system("cannot bind to the requested processors"))?;
        }
        if let Some((nodes, interleaved)) = bindings.memory(local) {
            self.changed = true;
            MemoryPolicy::set_nodes(&nodes, interleaved)
                .map_err(LaunchError::system("cannot bind memory to the requested NUMA nodes"))?;
        }
        Ok(())
    }

    /// Restores the launcher's own affinity and memory policy.
    pub(crate) fn leave(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        // A failure is harmless: the launcher then keeps those of the rank.
        if let Some(bindings) = &self.bindings {
            let _ = sys::bind_to_processors(&bindings.own);
        }
        if let Some(own) = &self.own_memory {
            let _ = own.set();
        }
    }
}
