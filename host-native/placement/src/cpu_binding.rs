//! Processors that each rank may run on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::PlacementError;
use crate::topology::{Level, Objects, Topology, UnknownObject, format_ranges, range};

/// Processors that each rank may run on (`--bind-to`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuBinding {
    /// All processors that the launcher may use.
    #[default]
    None,
    /// Objects of the machine, round robin.
    Objects(Objects),
    /// One processor a rank, round robin in the order of the kernel's numbers.
    RoundRobin,
    /// One set of processor numbers a rank, round robin: `user:0+2,1+3` gives rank 0 processors 0 and 2.
    User(Vec<Vec<u32>>),
}

impl FromStr for CpuBinding {
    type Err = UnknownObject;

    fn from_str(text: &str) -> Result<CpuBinding, UnknownObject> {
        // Open MPI's modifiers. Ranks may always share processors.
        let text = text.strip_suffix(":overload-allowed").unwrap_or(text);
        match text {
            "none" => return Ok(CpuBinding::None),
            "rr" => return Ok(CpuBinding::RoundRobin),
            _ => {}
        }
        let Some(sets) = text.strip_prefix("user:") else { return text.parse().map(CpuBinding::Objects) };
        let set = |set: &str| -> Option<Vec<u32>> {
            let ranges: Option<Vec<(u32, u32)>> = set.split('+').map(range).collect();
            Some(ranges?.into_iter().flat_map(|(first, last)| first..=last).collect())
        };
        sets.split(',').map(set).collect::<Option<_>>().map(CpuBinding::User).ok_or(UnknownObject)
    }
}

impl CpuBinding {
    /// The sets of processors that ranks get round robin. An empty list means no binding.
    ///
    /// Ranks are spread over the objects of `map_by`, one rank for each in turn: `socket` and a binding to `core` give rank
    /// 0 the first core of the first socket, rank 1 the first core of the second one, and rank 2 the second core of the first.
    /// Without `map_by` neighbouring ranks get neighbouring objects. Several objects of a rank are in one socket as long as a
    /// socket has that many left.
    ///
    /// # Errors
    /// [`Processor`](PlacementError::Processor) if the user named a processor that is not allowed,
    /// [`NoProcessor`](PlacementError::NoProcessor) if a set is empty, [`NoObject`](PlacementError::NoObject) if the machine
    /// has no such objects, and [`FewObjects`](PlacementError::FewObjects) if it has fewer than a rank shall get.
    pub fn cpu_sets(
        &self,
        map_by: Option<Objects>,
        topology: &Topology,
    ) -> Result<Vec<Vec<u32>>, PlacementError> {
        match self {
            CpuBinding::None => Ok(Vec::new()),
            CpuBinding::Objects(objects) => map(*objects, map_by.unwrap_or(*objects), topology),
            CpuBinding::RoundRobin => {
                let mut cpus = topology.processors();
                cpus.sort_unstable();
                Ok(cpus.into_iter().map(|cpu| vec![cpu]).collect())
            }
            CpuBinding::User(sets) => {
                let mut allowed = topology.processors();
                allowed.sort_unstable();
                if let Some(&cpu) = sets.iter().flatten().find(|&cpu| allowed.binary_search(cpu).is_err()) {
                    return Err(PlacementError::Processor { cpu, allowed: format_ranges(&allowed) });
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
            CpuBinding::Objects(objects) => objects.fmt(f),
            CpuBinding::RoundRobin => f.write_str("rr"),
            CpuBinding::User(sets) => {
                let set = |set: &Vec<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
                write!(f, "user:{}", sets.iter().map(set).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The sets of all ranks until each object is in use.
fn map(bind: Objects, map_by: Objects, topology: &Topology) -> Result<Vec<Vec<u32>>, PlacementError> {
    let units = objects(topology, bind.level)?;
    if units.len() < bind.count as usize {
        return Err(PlacementError::FewObjects { objects: bind, available: units.len() });
    }
    let places = match bind == map_by {
        true => vec![topology.processors()],
        false => groups(&objects(topology, map_by.level)?, map_by.count, topology),
    };
    let places: Vec<Vec<Vec<u32>>> = places.iter().map(|place| sets(place, &units, bind, topology)).collect();
    let longest = places.iter().map(Vec::len).max().unwrap_or(0);
    Ok((0..longest).flat_map(|turn| places.iter().filter_map(move |sets| sets.get(turn)).cloned()).collect())
}

fn objects(topology: &Topology, level: Level) -> Result<Vec<Vec<u32>>, PlacementError> {
    topology.objects(level).ok_or(PlacementError::NoObject(level))
}

/// The sets that ranks in a place get: those in it, or the one around it.
fn sets(place: &[u32], units: &[Vec<u32>], bind: Objects, topology: &Topology) -> Vec<Vec<u32>> {
    let is_inside = |unit: &&Vec<u32>| unit.iter().all(|cpu| place.contains(cpu));
    let inside: Vec<Vec<u32>> = units.iter().filter(is_inside).cloned().collect();
    if inside.len() >= bind.count as usize {
        return groups(&inside, bind.count, topology);
    }
    let around = groups(units, bind.count, topology);
    around.into_iter().filter(|set| set.iter().any(|cpu| place.contains(cpu))).take(1).collect()
}

/// Joins `count` objects each. Those of one socket come first; what is left in all sockets is joined then.
fn groups(units: &[Vec<u32>], count: u32, topology: &Topology) -> Vec<Vec<u32>> {
    let count = count as usize;
    if count == 1 {
        return units.to_vec();
    }
    let mut by_socket: BTreeMap<Vec<u32>, Vec<&Vec<u32>>> = BTreeMap::new();
    let sockets = topology.objects(Level::Socket).unwrap_or_default();
    for unit in units {
        let of_unit =
            sockets.iter().zip(0..).filter(|(socket, _)| unit.iter().any(|cpu| socket.contains(cpu)));
        by_socket.entry(of_unit.map(|(_, number)| number).collect()).or_default().push(unit);
    }
    let join = |units: &[&Vec<u32>]| units.iter().flat_map(|unit| unit.iter().copied()).collect::<Vec<u32>>();
    let mut left = Vec::new();
    let mut groups = Vec::new();
    for units in by_socket.values() {
        let chunks = units.chunks_exact(count);
        left.extend(chunks.remainder());
        groups.extend(chunks.map(join));
    }
    groups.extend(left.chunks_exact(count).map(join));
    groups
}

/// Describes processors that ranks share without having been asked to. `sets` holds the processors of each local rank under
/// the binding, `name` names a local rank.
///
/// Ranks that are bound to the same set share it as intended while it has a core for each of them. Cores and hardware
/// threads are meant for one rank.
pub fn shared_processors(
    binding: &CpuBinding,
    sets: &[&[u32]],
    topology: &Topology,
    name: impl Fn(usize) -> u32,
) -> Option<String> {
    let is_own = matches!(
        binding,
        CpuBinding::Objects(Objects { level: Level::Core | Level::Hwthread, .. }) | CpuBinding::RoundRobin
    );
    let mut ranks: BTreeMap<&[u32], Vec<u32>> = BTreeMap::new();
    for (local, set) in sets.iter().enumerate() {
        ranks.entry(set).or_default().push(name(local));
    }
    let crowded = |(set, ranks): &(&&[u32], &Vec<u32>)| {
        let room = if is_own { 1 } else { topology.cores(set) };
        ranks.len() > room
    };
    if let Some((set, ranks)) = ranks.iter().find(crowded) {
        return Some(format!("{} share {}", list("rank", ranks), topology.describe(set)));
    }
    let mut owner: BTreeMap<u32, (&[u32], u32)> = BTreeMap::new();
    for (&set, ranks) in &ranks {
        for &cpu in set {
            let &mut (other, rank) = owner.entry(cpu).or_insert((set, ranks[0]));
            if other != set {
                let mut both = [rank, ranks[0]];
                both.sort_unstable();
                return Some(format!("{} share processor {cpu}", list("rank", &both)));
            }
        }
    }
    None
}

/// Returns whether ranks of this machine exceed the processors that they may use. `sets` holds the processors of each bound
/// rank, `unbound` is the number of other ranks, and `processors` is the number of processors for all of them, as affinity
/// and control groups allow.
pub fn is_oversubscribed(sets: &[&[u32]], unbound: usize, processors: usize) -> bool {
    if sets.len() + unbound > processors {
        return true;
    }
    let mut ranks: BTreeMap<BTreeSet<u32>, usize> = BTreeMap::new();
    for set in sets {
        *ranks.entry(set.iter().copied().collect()).or_default() += 1;
    }
    let all: BTreeSet<u32> = ranks.keys().flatten().copied().collect();
    let within = |set: &BTreeSet<u32>| -> usize {
        ranks.iter().filter(|(other, _)| other.is_subset(set)).map(|(_, ranks)| ranks).sum()
    };
    ranks.keys().chain([&all]).any(|set| within(set) > set.len())
}

fn list(noun: &str, numbers: &[u32]) -> String {
    format!("{noun}{} {}", if numbers.len() == 1 { "" } else { "s" }, format_ranges(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::Sysfs;

    const ALL: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn bind(to: &str, map_by: &str, topology: &Topology) -> Result<Vec<Vec<u32>>, PlacementError> {
        let map_by = (!map_by.is_empty()).then(|| map_by.parse().unwrap());
        to.parse::<CpuBinding>().unwrap().cpu_sets(map_by, topology)
    }

    fn sets(to: &str, map_by: &str, topology: &Topology) -> Vec<Vec<u32>> {
        bind(to, map_by, topology).unwrap()
    }

    #[test]
    fn ranks_get_objects_in_the_order_of_the_machine() {
        let topology = Sysfs::two_sockets().topology(&ALL);
        let cores = sets("core", "", &topology);
        assert_eq!((cores.len(), &cores[0], &cores[4]), (8, &vec![0, 8], &vec![4, 12]));
        assert_eq!(sets("hwthread", "", &topology)[..3], [[0], [8], [1]]);
        assert_eq!(sets("rr", "", &topology)[..3], [[0], [1], [2]]);
        assert_eq!(sets("socket", "", &topology), sets("numa", "", &topology));
        assert_eq!(sets("l3", "", &topology)[1], [2, 10, 3, 11]);
        assert_eq!(sets("machine", "", &topology).len(), 1);
        assert!(sets("none", "socket", &topology).is_empty());
    }

    /// As with hydra and Open MPI: cyclic over the objects of the mapping.
    #[test]
    fn mapping_spreads_ranks() {
        let topology = Sysfs::two_sockets().topology(&ALL);
        let first = |to, map_by| sets(to, map_by, &topology).iter().map(|set| set[0]).collect::<Vec<_>>();
        assert_eq!(first("core", "socket"), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(first("hwthread", "core"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(first("core", "l3"), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(first("core:2", "socket"), [0, 4, 2, 6]);
        // A binding that is wider than the place: the object around it.
        assert_eq!(first("socket", "core"), [0, 0, 0, 0, 4, 4, 4, 4]);
        assert_eq!(first("core", "socket:2"), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn several_objects_are_in_one_socket_while_there_is_room() {
        let topology = Sysfs::two_sockets().topology(&ALL);
        assert_eq!(sets("core:2", "", &topology)[1], [2, 10, 3, 11]);
        let triples = sets("core:3", "", &topology);
        assert_eq!(triples, [vec![0, 8, 1, 9, 2, 10], vec![4, 12, 5, 13, 6, 14]]);
        let masked = Sysfs::two_sockets().topology(&[0, 1, 2, 4, 5, 6]);
        assert_eq!(sets("core:2", "", &masked), [[0, 1], [4, 5], [2, 6]]);
        let error = bind("core:9", "", &topology).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind a rank to core:9: this process may use 8 of them only");
    }

    #[test]
    fn a_mask_leaves_uneven_sockets() {
        let topology = Sysfs::two_sockets().topology(&[1, 4, 5, 6, 9]);
        assert_eq!(sets("core", "socket", &topology), [vec![1, 9], vec![4], vec![5], vec![6]]);
        let hybrid = Sysfs::hybrid().topology(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sets("core", "", &hybrid), [vec![0, 1], vec![2, 3], vec![4], vec![5], vec![6], vec![7]]);
        assert_eq!(sets("core", "l2", &hybrid)[..4], [vec![0, 1], vec![2, 3], vec![4], vec![5]]);
        let error = bind("l3", "", &Sysfs::without_l3().topology(&[0, 1])).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind to l3: the kernel describes no such objects here");
    }

    #[test]
    fn named_processors_must_be_allowed() {
        let topology = Topology::read(&[0, 1, 2, 5], |_| None);
        assert_eq!(sets("user:0+2,1", "", &topology), [vec![0, 2], vec![1]]);
        assert_eq!(sets("user:0-2", "", &topology), [[0, 1, 2]]);
        let error = bind("user:9", "", &topology).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind to processor 9: this process may use 0-2,5 only");
        let empty = CpuBinding::User(vec![vec![]]);
        assert!(matches!(empty.cpu_sets(None, &topology), Err(PlacementError::NoProcessor)));
    }

    #[test]
    fn bindings_are_parsed_as_printed() {
        for text in ["none", "core", "core:4", "l3", "socket:2", "rr", "user:0+2,1", "machine"] {
            assert_eq!(text.parse::<CpuBinding>().unwrap().to_string(), text);
        }
        assert_eq!("package".parse::<CpuBinding>().unwrap().to_string(), "socket");
        assert_eq!("core:overload-allowed".parse::<CpuBinding>().unwrap().to_string(), "core");
        for wrong in ["user:", "user:0+,1", "user:a", "core:0", "core:x", "user:-1", "", "gpu", "none:2"] {
            assert!(wrong.parse::<CpuBinding>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shared_processors_are_named() {
        let topology = Sysfs::two_sockets().topology(&ALL);
        let shared = |to: &str, ranks: usize| {
            let sets = sets(to, "", &topology);
            let sets: Vec<&[u32]> = sets.iter().map(Vec::as_slice).cycle().take(ranks).collect();
            shared_processors(&to.parse().unwrap(), &sets, &topology, |local| local as u32 * 2)
        };
        assert_eq!(shared("core", 8), None);
        let text = shared("core", 9).unwrap();
        assert_eq!(text, "ranks 0,16 share processors 0,8 (1 core, socket 0, NUMA node 0)");
        assert_eq!(shared("socket", 8), None);
        assert!(shared("socket", 9).is_some());
        assert_eq!(shared("hwthread", 16), None);
        // Four groups of two cores.
        assert_eq!(shared("core:2", 4), None);
        let text = shared("core:2", 5).unwrap();
        assert_eq!(text, "ranks 0,8 share processors 0-1,8-9 (2 cores, socket 0, NUMA node 0)");
        assert!(shared("user:0+8", 2).is_some(), "two hardware threads of one core");
        assert_eq!(shared("user:0-1,1-2", 2).unwrap(), "ranks 0,2 share processor 1");
    }

    #[test]
    fn ranks_that_exceed_their_processors() {
        assert!(!is_oversubscribed(&[], 4, 4));
        assert!(is_oversubscribed(&[], 5, 4));
        // Bound to one processor, beside idle ones.
        assert!(is_oversubscribed(&[&[0], &[0]], 0, 4));
        assert!(!is_oversubscribed(&[&[0], &[1]], 2, 4));
        assert!(!is_oversubscribed(&[&[0, 1], &[1, 0]], 0, 4));
        assert!(is_oversubscribed(&[&[0, 1], &[1], &[0]], 0, 4));
        assert!(is_oversubscribed(&[&[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]], 0, 3 + 1));
        // A control group allows less than the processors named.
        assert!(is_oversubscribed(&[&[0], &[1]], 0, 1));
    }
}
