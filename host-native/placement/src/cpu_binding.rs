//! Processors that each rank may run on.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::error::PlacementError;

/// Processors that each rank may run on (`--bind-to`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuBinding {
    /// All processors that the launcher may use.
    #[default]
    None,
    /// One core a rank, round robin, with all hardware threads of the core.
    Core,
    /// One hardware thread a rank, round robin.
    Hwthread,
    /// One set of processor numbers a rank, round robin: `user:0+2,1+3` gives rank 0 processors 0 and 2.
    User(Vec<Vec<u32>>),
}

impl CpuBinding {
    /// The sets of processors that ranks get round robin. An empty list means no binding.
    ///
    /// `allowed` holds the processors that the launcher may use, in ascending order. `siblings` returns the kernel's
    /// `thread_siblings_list` of a processor, if it has one.
    ///
    /// # Errors
    /// [`Processor`](PlacementError::Processor) if the user named a processor that is not allowed,
    /// [`NoProcessor`](PlacementError::NoProcessor) if a set is empty.
    pub fn cpu_sets(
        &self,
        allowed: &[u32],
        siblings: impl Fn(u32) -> Option<String>,
    ) -> Result<Vec<Vec<u32>>, PlacementError> {
        match self {
            CpuBinding::None => Ok(Vec::new()),
            CpuBinding::Hwthread => Ok(allowed.iter().map(|&cpu| vec![cpu]).collect()),
            CpuBinding::Core => {
                let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for &cpu in allowed {
                    // The lowest thread identifies the core, even if it is not allowed itself. A processor that the
                    // kernel does not describe is a core of its own.
                    let core = siblings(cpu).and_then(|list| first_number(&list)).unwrap_or(cpu);
                    cores.entry(core).or_default().push(cpu);
                }
                Ok(cores.into_values().collect())
            }
            CpuBinding::User(sets) => {
                if let Some(&cpu) = sets.iter().flatten().find(|&cpu| allowed.binary_search(cpu).is_err()) {
                    return Err(PlacementError::Processor { cpu, allowed: format_ranges(allowed) });
                }
                if sets.iter().any(Vec::is_empty) {
                    return Err(PlacementError::NoProcessor);
                }
                Ok(sets.clone())
            }
        }
    }
}

/// The form of `--bind-to`.
impl Display for CpuBinding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CpuBinding::None => f.write_str("none"),
            CpuBinding::Core => f.write_str("core"),
            CpuBinding::Hwthread => f.write_str("hwthread"),
            CpuBinding::User(sets) => {
                let set = |set: &Vec<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
                write!(f, "user:{}", sets.iter().map(set).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The first number of a kernel list such as `0-3,8`.
fn first_number(list: &str) -> Option<u32> {
    list.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Ascending numbers in the form `0-3,8`.
fn format_ranges(numbers: &[u32]) -> String {
    let text = |run: &[u32]| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    numbers.chunk_by(|a, b| a + 1 == *b).map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores with two threads, numbered as Linux does: threads of core 0 are 0 and 4.
    fn siblings(cpu: u32) -> Option<String> {
        Some(format!("{},{}\n", cpu % 4, cpu % 4 + 4))
    }

    fn sets(binding: &CpuBinding, allowed: &[u32]) -> Vec<Vec<u32>> {
        binding.cpu_sets(allowed, siblings).unwrap()
    }

    #[test]
    fn a_core_is_all_its_allowed_threads() {
        assert_eq!(sets(&CpuBinding::Core, &[0, 1, 2, 3, 4, 5, 6, 7]), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(sets(&CpuBinding::Core, &[1, 4, 5]), [vec![4], vec![1, 5]]);
        assert_eq!(sets(&CpuBinding::Hwthread, &[1, 4]), [[1], [4]]);
        assert!(sets(&CpuBinding::None, &[1, 4]).is_empty());
    }

    #[test]
    fn undescribed_processors_are_cores() {
        assert_eq!(CpuBinding::Core.cpu_sets(&[1, 4], |_| None).unwrap(), [[1], [4]]);
    }

    #[test]
    fn named_processors_must_be_allowed() {
        let user = |sets: &[&[u32]]| CpuBinding::User(sets.iter().map(|set| set.to_vec()).collect());
        assert_eq!(sets(&user(&[&[0, 2], &[1]]), &[0, 1, 2]), [vec![0, 2], vec![1]]);
        let error = user(&[&[9]]).cpu_sets(&[0, 1, 2, 5], siblings).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind to processor 9: this process may use 0-2,5 only");
        assert!(user(&[&[70_000]]).cpu_sets(&[0], siblings).is_err());
        assert!(matches!(user(&[&[]]).cpu_sets(&[0], siblings), Err(PlacementError::NoProcessor)));
    }
}
