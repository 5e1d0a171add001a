//! Processors of a machine with their cores, caches, NUMA nodes and sockets.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use hydrant_core::wire::{ranges, write_ranges};
use serde::{Deserialize, Serialize};

/// Kind of object that a machine is made of, from the largest to the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// All processors.
    Machine,
    /// Processor package.
    Socket,
    /// Processors with the same local memory.
    Numa,
    /// Processors that share a third-level cache.
    L3,
    /// Processors that share a second-level cache.
    L2,
    /// Processors that share a first-level data cache.
    L1,
    /// Core with all its hardware threads.
    Core,
    /// Hardware thread: one processor of the kernel.
    Hwthread,
}

/// The name in options.
impl Display for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Machine => "machine",
            Level::Socket => "socket",
            Level::Numa => "numa",
            Level::L3 => "l3",
            Level::L2 => "l2",
            Level::L1 => "l1",
            Level::Core => "core",
            Level::Hwthread => "hwthread",
        })
    }
}

impl Level {
    /// Parses a name of hydra or Open MPI.
    pub fn parse(name: &str) -> Option<Level> {
        Some(match name {
            "machine" | "board" => Level::Machine,
            "socket" | "package" => Level::Socket,
            "numa" | "numanode" => Level::Numa,
            "l3" | "l3cache" | "l3dcache" | "l3ucache" => Level::L3,
            "l2" | "l2cache" | "l2dcache" | "l2ucache" => Level::L2,
            "l1" | "l1cache" | "l1dcache" | "l1ucache" => Level::L1,
            "core" => Level::Core,
            "hwthread" => Level::Hwthread,
            _ => return None,
        })
    }
}

/// Consecutive objects of a machine: `core:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Their kind.
    pub level: Level,
    /// Number of objects, at least one.
    pub count: u32,
}

impl Objects {
    /// One object of a level.
    pub fn one(level: Level) -> Objects {
        Objects { level, count: 1 }
    }
}

/// The form of `--bind-to`.
impl Display for Objects {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => self.level.fmt(f),
            count => write!(f, "{}:{count}", self.level),
        }
    }
}

impl FromStr for Objects {
    type Err = UnknownObject;

    fn from_str(text: &str) -> Result<Objects, UnknownObject> {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let level = Level::parse(name).ok_or(UnknownObject)?;
        let count = count.parse().ok().filter(|&count| count > 0).ok_or(UnknownObject)?;
        Ok(Objects { level, count })
    }
}

/// Text that names no binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected none, core, hwthread, l1, l2, l3, numa, socket or machine, with a number as in core:4, rr, or user:CPUS as in \
     user:0-1,2+3"
)]
pub struct UnknownObject;

/// The processors that this process may use, in the order of the machine: sockets one after another, in a socket NUMA nodes,
/// then caches, cores and hardware threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// NUMA nodes with memory, also those without processors. Empty on a kernel without NUMA.
    memory_nodes: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpu {
    number: u32,
    socket: u32,
    numa: u32,
    /// Lowest processor that shares the cache; missing if the kernel describes none.
    l3: Option<u32>,
    l2: Option<u32>,
    l1: Option<u32>,
    /// Lowest hardware thread of the core.
    core: u32,
}

/// Most entries below `cache/` of a processor.
const CACHES_MAX: usize = 10;

impl Topology {
    /// Reads the topology of the `allowed` processors, which are in ascending order.
    ///
    /// `read` returns the contents of a file below `/sys/devices/system`. A processor that the kernel does not describe is a
    /// core of its own in socket 0 and NUMA node 0. Processors that are offline or forbidden to this process are not part of
    /// any object.
    pub fn read(allowed: &[u32], read: impl Fn(&str) -> Option<String>) -> Topology {
        let nodes = numa_nodes(&read);
        let cpu = |&number: &u32| {
            let file = |name: &str| read(&format!("cpu/cpu{number}/{name}"));
            let caches = caches(&file);
            let siblings = file("topology/core_cpus_list").or_else(|| file("topology/thread_siblings_list"));
            Cpu {
                number,
                // Minus one in some virtual machines.
                socket: file("topology/physical_package_id")
                    .and_then(|id| id.trim().parse().ok())
                    .unwrap_or(0),
                numa: nodes.get(&number).copied().unwrap_or(0),
                l3: caches[2],
                l2: caches[1],
                l1: caches[0],
                core: siblings.and_then(|list| numbers(&list).min()).unwrap_or(number),
            }
        };
        let memory = read("node/has_memory").or_else(|| read("node/online")).unwrap_or_default();
        let cpus = allowed.iter().map(cpu).collect();
        let mut topology = Topology { cpus, memory_nodes: numbers(&memory).collect() };
        topology.sort();
        topology
    }

    /// Sorts by objects, each of which is as far in front as its lowest processor.
    fn sort(&mut self) {
        const LEVELS: [Level; 6] = [Level::Socket, Level::Numa, Level::L3, Level::L2, Level::L1, Level::Core];
        let mut lowest: BTreeMap<(Level, u32), u32> = BTreeMap::new();
        for cpu in &self.cpus {
            for level in LEVELS {
                let id = cpu.object(level).unwrap_or(cpu.number);
                let first = lowest.entry((level, id)).or_insert(cpu.number);
                *first = cpu.number.min(*first);
            }
        }
        let place = |cpu: &Cpu| LEVELS.map(|level| lowest[&(level, cpu.object(level).unwrap_or(cpu.number))]);
        self.cpus.sort_by_key(|cpu| (place(cpu), cpu.number));
    }

    /// Numbers of the processors, in the order of the machine.
    pub fn processors(&self) -> Vec<u32> {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// The objects of a level, each with its processors. `None` if processors are not part of such an object: a machine without
    /// a third-level cache.
    pub fn objects(&self, level: Level) -> Option<Vec<Vec<u32>>> {
        let mut objects: Vec<(u32, Vec<u32>)> = Vec::new();
        for cpu in &self.cpus {
            let id = cpu.object(level)?;
            match objects.iter_mut().find(|(known, _)| *known == id) {
                Some((_, cpus)) => cpus.push(cpu.number),
                None => objects.push((id, vec![cpu.number])),
            }
        }
        Some(objects.into_iter().map(|(_, cpus)| cpus).collect())
    }

    /// The NUMA nodes of processors, in ascending order.
    pub fn numa_nodes(&self, cpus: &[u32]) -> Vec<u32> {
        self.distinct(cpus, |cpu| cpu.numa)
    }

    /// NUMA nodes with memory, in ascending order. Empty on a kernel without NUMA.
    pub fn memory_nodes(&self) -> &[u32] {
        &self.memory_nodes
    }

    /// Number of cores that processors belong to.
    pub fn cores(&self, cpus: &[u32]) -> usize {
        self.distinct(cpus, |cpu| cpu.core).len()
    }

    /// Describes processors for a user: `processors 0,4 (1 core, socket 0, NUMA node 0)`.
    pub fn describe(&self, cpus: &[u32]) -> String {
        let mut sorted = cpus.to_vec();
        sorted.sort_unstable();
        let cores = self.cores(cpus);
        let list = |name: &str, ids: Vec<u32>| {
            format!("{name}{} {}", if ids.len() == 1 { "" } else { "s" }, format_ranges(&ids))
        };
        format!(
            "{} ({cores} core{}, {}, {})",
            list("processor", sorted),
            if cores == 1 { "" } else { "s" },
            list("socket", self.distinct(cpus, |cpu| cpu.socket)),
            list("NUMA node", self.numa_nodes(cpus)),
        )
    }

    /// The place of processors as PMIx writes it (`PMIX_LOCALITY_STRING`), in the form of hwloc: numbers of the objects that hold
    /// any of them, `SK0:L30:L20:L10:CR0:HT0-1:NM0`. A level of which the machine has no objects is left out.
    pub fn locality(&self, cpus: &[u32]) -> String {
        const LEVELS: [(Level, &str); 7] = [
            (Level::Socket, "SK"),
            (Level::L3, "L3"),
            (Level::L2, "L2"),
            (Level::L1, "L1"),
            (Level::Core, "CR"),
            (Level::Hwthread, "HT"),
            (Level::Numa, "NM"),
        ];
        let place = |(level, name): (Level, &str)| {
            let objects = (0..).zip(self.objects(level)?);
            let holding = objects.filter(|(_, object)| object.iter().any(|cpu| cpus.contains(cpu)));
            Some(format!("{name}{}", format_ranges(&holding.map(|(number, _)| number).collect::<Vec<u32>>())))
        };
        LEVELS.into_iter().filter_map(place).collect::<Vec<_>>().join(":")
    }

    fn distinct(&self, cpus: &[u32], id: impl Fn(&Cpu) -> u32) -> Vec<u32> {
        let mut ids: Vec<u32> = self.cpus.iter().filter(|cpu| cpus.contains(&cpu.number)).map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Cpu {
    fn object(&self, level: Level) -> Option<u32> {
        match level {
            Level::Machine => Some(0),
            Level::Socket => Some(self.socket),
            Level::Numa => Some(self.numa),
            Level::L3 => self.l3,
            Level::L2 => self.l2,
            Level::L1 => self.l1,
            Level::Core => Some(self.core),
            Level::Hwthread => Some(self.number),
        }
    }
}

/// The NUMA node of each processor. Empty on a kernel without NUMA.
fn numa_nodes(read: &impl Fn(&str) -> Option<String>) -> BTreeMap<u32, u32> {
    let online = read("node/online").unwrap_or_default();
    let cpus = |node: u32| {
        let list = read(&format!("node/node{node}/cpulist")).unwrap_or_default();
        numbers(&list).map(|cpu| (cpu, node)).collect::<Vec<_>>()
    };
    numbers(&online).flat_map(cpus).collect()
}

/// The lowest processors that share the data caches of the levels 1 to 3.
fn caches(file: &impl Fn(&str) -> Option<String>) -> [Option<u32>; 3] {
    let mut caches = [None; 3];
    for index in 0..CACHES_MAX {
        let of_cache = |name: &str| file(&format!("cache/index{index}/{name}"));
        let Some(level) = of_cache("level") else { break };
        let holds_data = of_cache("type").is_some_and(|kind| kind.trim() != "Instruction");
        let shared = of_cache("shared_cpu_list").and_then(|list| numbers(&list).min());
        let level = level.trim().parse().ok().filter(|level| (1..=3usize).contains(level));
        if let Some(level) = level.filter(|_| holds_data) {
            caches[level - 1] = shared;
        }
    }
    caches
}

/// Largest number that is taken from a list of the kernel.
const NUMBER_MAX: u32 = 1 << 16;

/// The numbers of a kernel list such as `0-3,8`.
fn numbers(list: &str) -> impl Iterator<Item = u32> + use<> {
    let ranges: Vec<(u32, u32)> = list.trim().split(',').filter_map(range).collect();
    ranges.into_iter().flat_map(|(first, last)| first..=last)
}

/// Parses `3` or `0-3`.
pub(crate) fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < NUMBER_MAX).then_some((first, last))
}

/// Ascending numbers in the form `0-3,8`.
pub fn format_ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    write_ranges(ranges(numbers.iter().copied()), &mut text).expect("a String takes all text");
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Files below `/sys/devices/system`.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Sysfs(BTreeMap<String, String>);

    impl Sysfs {
        pub(crate) fn file(&mut self, name: String, contents: impl Display) {
            self.0.insert(name, format!("{contents}\n"));
        }

        fn cpu(&mut self, cpu: u32, socket: i32, core: &str) {
            self.file(format!("cpu/cpu{cpu}/topology/physical_package_id"), socket);
            self.file(format!("cpu/cpu{cpu}/topology/core_cpus_list"), core);
        }

        fn cache(&mut self, cpu: u32, index: u32, level: u32, kind: &str, shared: &str) {
            let folder = format!("cpu/cpu{cpu}/cache/index{index}");
            self.file(format!("{folder}/level"), level);
            self.file(format!("{folder}/type"), kind);
            self.file(format!("{folder}/shared_cpu_list"), shared);
        }

        fn nodes(&mut self, online: &str, lists: &[&str]) {
            self.file("node/online".to_owned(), online);
            for (node, list) in lists.iter().enumerate() {
                self.file(format!("node/node{node}/cpulist"), list);
            }
        }

        pub(crate) fn topology(&self, allowed: &[u32]) -> Topology {
            Topology::read(allowed, |name| self.0.get(name).cloned())
        }

        /// Two sockets of four cores with two threads: threads of core 0 are 0 and 8. Each socket is a NUMA node with two
        /// third-level caches.
        pub(crate) fn two_sockets() -> Sysfs {
            let mut sysfs = Sysfs::default();
            for cpu in 0..16 {
                let core = cpu % 8;
                let threads = format!("{core},{}", core + 8);
                sysfs.cpu(cpu, (core / 4) as i32, &threads);
                sysfs.cache(cpu, 0, 1, "Data", &threads);
                sysfs.cache(cpu, 1, 1, "Instruction", &threads);
                sysfs.cache(cpu, 2, 2, "Unified", &threads);
                let first = core / 2 * 2;
                sysfs.cache(
                    cpu,
                    3,
                    3,
                    "Unified",
                    &format!("{first}-{},{}-{}", first + 1, first + 8, first + 9),
                );
            }
            sysfs.nodes("0-1", &["0-3,8-11", "4-7,12-15"]);
            sysfs
        }

        /// Four cores with one thread, two NUMA nodes, and no third-level cache.
        pub(crate) fn without_l3() -> Sysfs {
            let mut sysfs = Sysfs::default();
            for cpu in 0..4 {
                sysfs.cpu(cpu, -1, &cpu.to_string());
                sysfs.cache(cpu, 0, 1, "Data", &cpu.to_string());
                sysfs.cache(cpu, 1, 2, "Unified", if cpu < 2 { "0-1" } else { "2-3" });
            }
            sysfs.nodes("0-1", &["0,2", "1,3"]);
            sysfs
        }

        /// Two cores with two threads, and four small cores that share a second-level cache.
        pub(crate) fn hybrid() -> Sysfs {
            let mut sysfs = Sysfs::default();
            for cpu in 0..8 {
                let core = match cpu {
                    0 | 1 => "0-1".to_owned(),
                    2 | 3 => "2-3".to_owned(),
                    _ => cpu.to_string(),
                };
                sysfs.cpu(cpu, 0, &core);
                sysfs.cache(cpu, 0, 2, "Unified", if cpu < 4 { &core } else { "4-7" });
                sysfs.cache(cpu, 1, 3, "Unified", "0-7");
            }
            sysfs
        }
    }

    fn sizes(topology: &Topology, level: Level) -> Vec<usize> {
        topology.objects(level).unwrap().iter().map(Vec::len).collect()
    }

    #[test]
    fn processors_are_in_the_order_of_the_machine() {
        let all: Vec<u32> = (0..16).collect();
        let topology = Sysfs::two_sockets().topology(&all);
        assert_eq!(topology.processors(), [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]);
        assert_eq!(topology.objects(Level::L3).unwrap()[1], [2, 10, 3, 11]);
        let levels = [Level::Machine, Level::Socket, Level::Numa, Level::L3, Level::L2, Level::Core];
        assert_eq!(levels.map(|level| sizes(&topology, level).len()), [1, 2, 2, 4, 8, 8]);
        let text = topology.describe(&[8, 0]);
        assert_eq!(text, "processors 0,8 (1 core, socket 0, NUMA node 0)");
        assert_eq!(topology.describe(&[3, 4]), "processors 3-4 (2 cores, sockets 0-1, NUMA nodes 0-1)");
    }

    #[test]
    fn the_place_of_processors_is_that_of_hwloc() {
        let all: Vec<u32> = (0..16).collect();
        let topology = Sysfs::two_sockets().topology(&all);
        // The second thread of core 0 is the second processor of the machine.
        assert_eq!(topology.locality(&[0]), "SK0:L30:L20:L10:CR0:HT0:NM0");
        assert_eq!(topology.locality(&[8]), "SK0:L30:L20:L10:CR0:HT1:NM0");
        assert_eq!(topology.locality(&[3, 11]), "SK0:L31:L23:L13:CR3:HT6-7:NM0");
        assert_eq!(topology.locality(&[4, 5, 6, 7, 12]), "SK1:L32-3:L24-7:L14-7:CR4-7:HT8-10,12,14:NM1");
        assert_eq!(Sysfs::without_l3().topology(&[0, 1, 2, 3]).locality(&[3]), "SK0:L21:L13:CR3:HT3:NM1");
    }

    /// A cgroup or an affinity mask leaves some processors only. Others are offline.
    #[test]
    fn forbidden_processors_are_in_no_object() {
        let topology = Sysfs::two_sockets().topology(&[1, 5, 9, 14]);
        assert_eq!(topology.objects(Level::Socket).unwrap(), [vec![1, 9], vec![5, 14]]);
        assert_eq!(topology.objects(Level::Core).unwrap(), [vec![1, 9], vec![5], vec![14]]);
    }

    #[test]
    fn numa_nodes_need_no_cache_and_caches_need_no_node() {
        let topology = Sysfs::without_l3().topology(&[0, 1, 2, 3]);
        assert_eq!(topology.objects(Level::Numa).unwrap(), [[0, 2], [1, 3]]);
        assert_eq!(topology.objects(Level::L2).unwrap().len(), 2);
        assert_eq!(topology.objects(Level::L3), None);
        assert_eq!(topology.objects(Level::Socket).unwrap().len(), 1);
        let hybrid = Sysfs::hybrid().topology(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sizes(&hybrid, Level::Core), [2, 2, 1, 1, 1, 1]);
        assert_eq!(sizes(&hybrid, Level::L2), [2, 2, 4]);
        assert_eq!(sizes(&hybrid, Level::Numa), [8]);
    }

    #[test]
    fn undescribed_processors_are_cores() {
        let topology = Topology::read(&[1, 4], |_| None);
        assert_eq!(topology.objects(Level::Core).unwrap(), [[1], [4]]);
        assert_eq!(topology.objects(Level::Socket).unwrap(), [[1, 4]]);
        assert_eq!(topology.objects(Level::L1), None);
    }

    #[test]
    fn lists_of_the_kernel() {
        let list = |text: &str| numbers(text).collect::<Vec<_>>();
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        for strange in ["", "\n", "x", "3-1", "0-4294967295"] {
            assert!(list(strange).is_empty(), "{strange:?}");
        }
        assert_eq!(format_ranges(&[0, 1, 2, 5]), "0-2,5");
    }
}
