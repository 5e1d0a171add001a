//! NUMA nodes that each rank takes its memory from.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cpu_binding::CpuBinding;
use crate::error::PlacementError;
use crate::topology::{Objects, Topology, format_ranges, range};

/// Processors and memory of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Processors of each rank.
    pub cpus: CpuBinding,
    /// Objects that ranks of a machine are spread over; those of the binding if missing.
    pub map_by: Option<Objects>,
    /// Memory of each rank.
    pub memory: MemoryBinding,
    /// Whether the binding of each rank is printed.
    pub report: bool,
}

/// The forms of the options.
impl Display for Binding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.cpus.fmt(f)?;
        if let Some(map_by) = &self.map_by {
            write!(f, ", mapped by {map_by}")?;
        }
        if self.memory != MemoryBinding::Default {
            write!(f, ", memory {}", self.memory)?;
        }
        Ok(())
    }
}

/// NUMA nodes that each rank takes its memory from (`--membind`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryBinding {
    /// The node of the processor that first writes to a page, or another one if it is full.
    #[default]
    Default,
    /// The nodes of the rank's processors only.
    Local,
    /// These nodes only.
    Nodes(Vec<u32>),
    /// These nodes in turn, page by page. If empty, those of the rank's processors.
    Interleave(Vec<u32>),
}

impl MemoryBinding {
    /// The nodes of a rank that is bound to these processors, and whether they are interleaved. `None` for the system's
    /// default.
    pub fn nodes(&self, cpus: &[u32], topology: &Topology) -> Option<(Vec<u32>, bool)> {
        Some(match self {
            MemoryBinding::Default => return None,
            MemoryBinding::Local => (topology.numa_nodes(cpus), false),
            MemoryBinding::Nodes(nodes) => (nodes.clone(), false),
            MemoryBinding::Interleave(nodes) if nodes.is_empty() => (topology.numa_nodes(cpus), true),
            MemoryBinding::Interleave(nodes) => (nodes.clone(), true),
        })
    }

    /// Checks that the named nodes have memory. On a kernel without NUMA nothing is known.
    ///
    /// # Errors
    /// [`NoMemory`](PlacementError::NoMemory) names the first node without memory. The kernel accepts a list if one of its
    /// nodes has memory.
    pub fn check(&self, topology: &Topology) -> Result<(), PlacementError> {
        let (MemoryBinding::Nodes(nodes) | MemoryBinding::Interleave(nodes)) = self else { return Ok(()) };
        let known = topology.memory_nodes();
        match nodes.iter().find(|node| !known.is_empty() && !known.contains(node)) {
            Some(&node) => Err(PlacementError::NoMemory { node, known: format_ranges(known) }),
            None => Ok(()),
        }
    }
}

/// Text that names no memory binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected none, firsttouch, local, bind:NODES or interleave[:NODES], as in bind:0,1")]
pub struct UnknownMemoryBinding;

/// Largest number of a NUMA node.
const NODE_MAX: u32 = 1023;

impl FromStr for MemoryBinding {
    type Err = UnknownMemoryBinding;

    fn from_str(text: &str) -> Result<MemoryBinding, UnknownMemoryBinding> {
        let (name, list) = text.split_once(':').map_or((text, None), |(name, list)| (name, Some(list)));
        let nodes = || -> Result<Vec<u32>, UnknownMemoryBinding> {
            let ranges: Option<Vec<(u32, u32)>> =
                list.unwrap_or_default().split([',', '+']).map(range).collect();
            let mut nodes: Vec<u32> =
                ranges.into_iter().flatten().flat_map(|(first, last)| first..=last).collect();
            nodes.sort_unstable();
            nodes.dedup();
            match nodes.last() {
                Some(&last) if last <= NODE_MAX => Ok(nodes),
                _ => Err(UnknownMemoryBinding),
            }
        };
        match (name, list) {
            ("none" | "firsttouch", None) => Ok(MemoryBinding::Default),
            ("local", None) => Ok(MemoryBinding::Local),
            ("bind", Some(_)) => nodes().map(MemoryBinding::Nodes),
            ("interleave", None) => Ok(MemoryBinding::Interleave(Vec::new())),
            ("interleave", Some(_)) => nodes().map(MemoryBinding::Interleave),
            _ => Err(UnknownMemoryBinding),
        }
    }
}

/// The form of `--membind`.
impl Display for MemoryBinding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MemoryBinding::Default => f.write_str("none"),
            MemoryBinding::Local => f.write_str("local"),
            MemoryBinding::Nodes(nodes) => write!(f, "bind:{}", format_ranges(nodes)),
            MemoryBinding::Interleave(nodes) if nodes.is_empty() => f.write_str("interleave"),
            MemoryBinding::Interleave(nodes) => write!(f, "interleave:{}", format_ranges(nodes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::Sysfs;

    #[test]
    fn memory_bindings_are_parsed_as_printed() {
        for text in ["none", "local", "bind:0", "bind:0-1,3", "interleave", "interleave:1"] {
            assert_eq!(text.parse::<MemoryBinding>().unwrap().to_string(), text);
        }
        for wrong in ["", "bind", "bind:", "bind:x", "bind:1024", "local:1", "nexttouch", "interleave:"] {
            assert!(wrong.parse::<MemoryBinding>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn named_nodes_have_memory() {
        let check = |text: &str, topology: &Topology| {
            text.parse::<MemoryBinding>().unwrap().check(topology).map_err(|error| error.to_string())
        };
        let topology = Sysfs::without_l3().topology(&[0]);
        for text in ["none", "local", "bind:1", "interleave", "interleave:0-1"] {
            assert_eq!(check(text, &topology), Ok(()), "{text}");
        }
        let error = "cannot take memory from NUMA node 2: the nodes with memory are 0-1".to_owned();
        assert_eq!(check("bind:0,2", &topology), Err(error.clone()));
        assert_eq!(check("interleave:2-3", &topology), Err(error));
        assert_eq!(check("bind:7", &Topology::read(&[0], |_| None)), Ok(()));
    }

    #[test]
    fn local_memory_is_that_of_the_processors() {
        let topology = Sysfs::without_l3().topology(&[0, 1, 2, 3]);
        assert_eq!(MemoryBinding::Default.nodes(&[1], &topology), None);
        assert_eq!(MemoryBinding::Local.nodes(&[1, 3], &topology), Some((vec![1], false)));
        assert_eq!(MemoryBinding::Interleave(vec![]).nodes(&[0, 1], &topology), Some((vec![0, 1], true)));
    }
}
