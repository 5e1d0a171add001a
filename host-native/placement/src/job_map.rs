//! Mapping of ranks to hosts, and numbering of ranks.

use std::str::FromStr;

use hydrant_core::peer::tree::Tree;

use serde::{Deserialize, Serialize};

use crate::error::PlacementError;
use crate::hosts::{Host, Hosts};
use crate::limits::RANKS_MAX;

/// Consecutive ranks of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRange {
    /// Number of the program, its `appnum`.
    pub program: u32,
    /// The first rank.
    pub first: u32,
    /// Number of ranks, at least one.
    pub count: u32,
}

/// A host and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The host.
    pub host: Host,
    /// The host's ranks in ascending order. Empty on a host with a daemon only.
    pub rank_ranges: Vec<RankRange>,
}

impl Node {
    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.rank_ranges.iter().map(|range| range.count).sum()
    }

    /// The ranks in ascending order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.rank_ranges.iter().flat_map(|range| range.first..range.first + range.count)
    }
}

/// Name of the process set that holds the ranks of a host.
pub fn node_pset(host: &str) -> String {
    format!("hydrant://node/{host}")
}

/// Order in which hosts get ranks (`-map-by`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapBy {
    /// A host gets ranks for all its slots, then the next host does.
    #[default]
    Slot,
    /// Hosts get one rank each in turn.
    Node,
    /// Hosts get one rank each in turn, which are then numbered host by host: Slurm's block distribution.
    Block,
}

/// Order in which ranks are numbered (`-rank-by`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankBy {
    /// Host by host.
    Slot,
    /// One rank of each host in turn.
    Node,
}

/// A ranking policy that is neither `slot` nor `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected slot or node")]
pub struct UnknownPolicy;

impl FromStr for RankBy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<RankBy, UnknownPolicy> {
        match text {
            "slot" => Ok(RankBy::Slot),
            "node" => Ok(RankBy::Node),
            _ => Err(UnknownPolicy),
        }
    }
}

/// How ranks are mapped to hosts and numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingPolicy {
    /// Ranks that a host gets in one turn (`-ppn`), instead of one for each slot.
    pub ppn: Option<u32>,
    /// Order in which hosts get ranks.
    pub map_by: MapBy,
    /// Order in which ranks are numbered. Without it, ranks are numbered in the order of mapping.
    pub rank_by: Option<RankBy>,
}

/// The ranks of each host.
///
/// In the tree of daemons, node 0 is the launcher and runs no ranks. Nodes 1 to n are the hosts in their order, also those without
/// ranks that have not been [taken out](JobMap::take_unused). `PMI_process_mapping` counts hosts from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMap {
    nodes: Vec<Node>,
    ranks: u32,
}

impl JobMap {
    /// Maps the ranks of programs to hosts. `programs` holds the number of ranks of each program.
    ///
    /// Hosts take turns in their order. In a turn a host gets one rank for each slot, or `ppn` ranks: all at once with
    /// [`MapBy::Slot`], one each time it comes round with [`MapBy::Node`] and [`MapBy::Block`]. If ranks are left after a
    /// turn of all hosts, the next turn begins. A host never gets more ranks than its `max_slots`. Programs follow each other
    /// without a gap. Ranks of a program are numbered in the order of mapping, with [`RankBy::Slot`] host by host, and with
    /// [`RankBy::Node`] round robin over its hosts.
    ///
    /// # Errors
    /// More ranks than the `max_slots` of all hosts allow, more than [`RANKS_MAX`], or no host.
    pub fn new(hosts: &Hosts, programs: &[u32], policy: MappingPolicy) -> Result<JobMap, PlacementError> {
        let mut job_map = JobMap::unmapped(hosts, programs)?;
        let ranks = job_map.ranks;
        check_capacity(hosts, ranks.into())?;
        let mut assignments = assign_ranks(hosts, ranks, policy).into_iter();
        let mut rest_of_turn = None;
        let mut first = 0;
        for (program, &size) in (0..).zip(programs) {
            // A turn may hold ranks of several programs.
            let mut of_program = Vec::new();
            let mut left = size;
            while left > 0 {
                let next = rest_of_turn.take().or_else(|| assignments.next());
                let (node, count) = next.expect("assign_ranks assigns every rank");
                let taken = left.min(count);
                of_program.push((node, taken));
                rest_of_turn = Some((node, count - taken)).filter(|&(_, rest)| rest > 0);
                left -= taken;
            }
            for (node, count) in rank_order(of_program, policy.rank_by) {
                job_map.push_range(node, RankRange { program, first, count });
                first += count;
            }
        }
        Ok(job_map)
    }

    /// Maps the ranks of programs of which some have hosts of their own: for each program, the positions of its hosts among `hosts`
    /// with the slots that it names, or none. Each program is mapped as [`JobMap::new`] maps one, to its
    /// [`candidates`].
    ///
    /// # Errors
    /// As [`JobMap::new`].
    pub fn of_programs(
        hosts: &Hosts,
        programs: &[(u32, &[NamedHost])],
        policy: MappingPolicy,
    ) -> Result<JobMap, PlacementError> {
        let sizes: Vec<u32> = programs.iter().map(|&(size, _)| size).collect();
        let mut job_map = JobMap::unmapped(hosts, &sizes)?;
        let mut first = 0;
        for (program, &(size, named)) in (0..).zip(programs) {
            let used: Vec<u32> = job_map.nodes.iter().map(Node::size).collect();
            let candidates = candidates(hosts.as_slice(), &used, named, None, size);
            for node in JobMap::new(&candidates, &[size], policy)?.nodes {
                let at = hosts.iter().position(|host| host.name == node.host.name);
                for range in node.rank_ranges {
                    let range = RankRange { program, first: first + range.first, count: range.count };
                    job_map.push_range(at.expect("candidates are hosts of the job"), range);
                }
            }
            first += size;
        }
        Ok(job_map)
    }

    /// Maps each rank to the host that `rank_map` names, by its position from 0. Ranks behind the end of the map start again
    /// at its front.
    ///
    /// # Errors
    /// A position without a host, more ranks on a host than its `max_slots`, or more than [`RANKS_MAX`].
    ///
    /// # Panics
    /// If `rank_map` is empty.
    pub fn from_rank_map(
        hosts: &Hosts,
        programs: &[u32],
        rank_map: &[u32],
    ) -> Result<JobMap, PlacementError> {
        let mut job_map = JobMap::unmapped(hosts, programs)?;
        check_rank_map(rank_map, hosts.len())?;
        let program_of = (0..).zip(programs).flat_map(|(program, &size)| (0..size).map(move |_| program));
        for ((first, program), &node) in (0..).zip(program_of).zip(rank_map.iter().cycle()) {
            job_map.push_range(node as usize, RankRange { program, first, count: 1 });
        }
        let is_full = |node: &&Node| node.host.max_slots.is_some_and(|max| node.size() > max);
        match job_map.nodes.iter().find(is_full) {
            Some(node) => Err(PlacementError::Full {
                ranks: node.size().into(),
                capacity: node.host.max_slots.unwrap_or(0).into(),
            }),
            None => Ok(job_map),
        }
    }

    /// The hosts without ranks, and the number of ranks of all programs.
    fn unmapped(hosts: &Hosts, programs: &[u32]) -> Result<JobMap, PlacementError> {
        let sum: u64 = programs.iter().copied().map(u64::from).sum();
        let ranks = u32::try_from(sum).ok().filter(|&sum| sum <= RANKS_MAX);
        let ranks = ranks.ok_or(PlacementError::Ranks(sum))?;
        let nodes = hosts.iter().map(|host| Node { host: host.clone(), rank_ranges: Vec::new() });
        Ok(JobMap { nodes: nodes.collect(), ranks })
    }

    /// Adds ranks to a node, as part of its last range if they follow it.
    fn push_range(&mut self, node: usize, range: RankRange) {
        let ranges = &mut self.nodes[node].rank_ranges;
        match ranges.last_mut() {
            Some(last) if last.program == range.program && last.first + last.count == range.first => {
                last.count += range.count;
            }
            _ => ranges.push(range),
        }
    }

    /// Takes hosts without ranks out of the map, at most so many. The first ones stay.
    pub fn take_unused(&mut self, most: usize) -> Vec<Host> {
        let unused = self.nodes.iter().filter(|node| node.rank_ranges.is_empty()).count();
        let mut stay = unused.saturating_sub(most);
        let is_taken = |node: &mut Node| {
            let may_stay = !node.rank_ranges.is_empty() || stay > 0;
            stay -= usize::from(node.rank_ranges.is_empty() && may_stay);
            !may_stay
        };
        self.nodes.extract_if(.., is_taken).map(|node| node.host).collect()
    }

    /// The hosts in their order. Node n of the tree is at position n - 1.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The tree of the launcher and one daemon for each host.
    pub fn tree(&self, radix: u32) -> Tree {
        Tree::new(self.nodes.len() as u32 + 1, radix)
    }

    /// All ranks in order, as runs: position of the host and number of consecutive ranks on it.
    pub(crate) fn node_runs(&self) -> Vec<(u32, u32)> {
        let of_node = |(at, node): (u32, &Node)| -> Vec<(u32, u32, u32)> {
            node.rank_ranges.iter().map(|range| (range.first, at, range.count)).collect()
        };
        let mut ranges: Vec<_> = (0..).zip(&self.nodes).flat_map(of_node).collect();
        ranges.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (_, node, count) in ranges {
            match runs.last_mut() {
                Some((last, run)) if *last == node => *run += count,
                _ => runs.push((node, count)),
            }
        }
        runs
    }

    /// Describes hosts with more ranks than slots, if there are any. A host without a number of slots is never among
    /// them.
    pub fn oversubscription(&self) -> Option<String> {
        const SHOWN: usize = 4;
        let is_oversubscribed = |node: &&Node| node.host.slots.is_some_and(|slots| node.size() > slots);
        let all: Vec<&Node> = self.nodes.iter().filter(is_oversubscribed).collect();
        let one = |node: &&Node| {
            format!("{} runs {} on {}", node.host.name, node.size(), node.host.ranks_per_turn())
        };
        let mut shown: Vec<String> = all.iter().take(SHOWN).map(one).collect();
        if all.len() > SHOWN {
            shown.push(format!("and {} more", all.len() - SHOWN));
        }
        (!shown.is_empty()).then(|| format!("more ranks than slots: {}", shown.join(", ")))
    }
}

/// Checks that each position of a rank map is that of one of `hosts` hosts.
pub(crate) fn check_rank_map(rank_map: &[u32], hosts: usize) -> Result<(), PlacementError> {
    match rank_map.iter().find(|&&node| node as usize >= hosts) {
        Some(&node) => Err(PlacementError::RankMap { node, hosts }),
        None => Ok(()),
    }
}

/// Checks that the `max_slots` of all hosts allow that many ranks.
pub(crate) fn check_capacity(hosts: &Hosts, ranks: u64) -> Result<(), PlacementError> {
    let capacity = hosts.iter().map(|host| host.max_slots.map(u64::from)).sum::<Option<u64>>();
    match capacity {
        Some(capacity) if capacity < ranks => Err(PlacementError::Full { ranks, capacity }),
        _ => Ok(()),
    }
}

/// A host that a program names: its position among the hosts of the run, and the slots that the program names.
pub type NamedHost = (usize, Option<u32>);

/// Hosts for so many ranks of one program, in the order in which they get ranks, and with the slots that they offer. `used` has the
/// ranks that each host runs already, and `last` is the position of the host of the last rank.
///
/// If the free slots of the `named` hosts suffice, these are offered, otherwise all slots of these hosts. Without named hosts
/// they are those of all hosts: free ones from the host of the last rank on, otherwise all from the host behind that on.
/// `max_slots` is what the running ranks leave of it, and a host without room is left out.
pub fn candidates(
    hosts: &[Host],
    used: &[u32],
    named: &[NamedHost],
    last: Option<usize>,
    ranks: u32,
) -> Hosts {
    let slots_of = |&(at, slots): &NamedHost| slots.or(hosts[at].slots);
    let room_of = |at: usize| hosts[at].max_slots.map(|max| max.saturating_sub(used[at]));
    let free_of = |named: &NamedHost| {
        let free = slots_of(named).unwrap_or(1).saturating_sub(used[named.0]);
        room_of(named.0).map_or(free, |room| room.min(free))
    };
    let from = |first: usize| (0..hosts.len()).map(move |at| ((first + at) % hosts.len(), None));
    let (with_free, all): (Vec<NamedHost>, Vec<NamedHost>) = match named {
        [] => (from(last.unwrap_or(0)).collect(), from(last.map_or(0, |last| last + 1)).collect()),
        named => (named.to_vec(), named.to_vec()),
    };
    let free: u64 = with_free.iter().map(|named| u64::from(free_of(named))).sum();
    let use_free = free >= u64::from(ranks);
    let mut offered = Hosts::default();
    for named in if use_free { with_free } else { all } {
        let host = &hosts[named.0];
        let room = room_of(named.0);
        let slots = if use_free { Some(free_of(&named)) } else { slots_of(&named) };
        let slots = slots.map(|slots| room.map_or(slots, |room| slots.min(room)));
        if room == Some(0) || slots == Some(0) {
            continue;
        }
        // The host's name is valid, and a host that is named twice offers its slots twice.
        let _ = offered.add(Host { slots, max_slots: room, ..host.clone() });
    }
    offered
}

/// Number of ranks that all hosts get in one turn.
pub(crate) fn ranks_per_turn(hosts: &Hosts, ppn: Option<u32>) -> u64 {
    hosts.iter().map(|host| ranks_after_turns(host, 1, ppn)).sum()
}

/// Maximum number of ranks of a host after that many turns.
fn ranks_after_turns(host: &Host, turns: u64, ppn: Option<u32>) -> u64 {
    let ranks = turns * u64::from(ppn.unwrap_or_else(|| host.ranks_per_turn()));
    host.max_slots.map_or(ranks, |max| ranks.min(u64::from(max)))
}

/// Assigns ranks to hosts, in the order of mapping: position of the host and number of ranks. The capacity of the hosts
/// has been checked.
fn assign_ranks(hosts: &Hosts, ranks: u32, policy: MappingPolicy) -> Vec<(usize, u32)> {
    let in_turn = assign_in_turn(hosts, ranks, policy);
    match policy.map_by {
        MapBy::Block => rank_order(in_turn, Some(RankBy::Slot)),
        MapBy::Slot | MapBy::Node => in_turn,
    }
}

/// Assigns ranks to hosts that take turns.
fn assign_in_turn(hosts: &Hosts, ranks: u32, policy: MappingPolicy) -> Vec<(usize, u32)> {
    let hosts: Vec<&Host> = hosts.iter().collect();
    let mut assigned = vec![0u64; hosts.len()];
    let mut assignments = Vec::new();
    let mut left = ranks;
    let mut turn = 0u64;
    while left > 0 {
        turn += 1;
        let most = |at: usize| ranks_after_turns(hosts[at], turn, policy.ppn);
        let mut open: Vec<usize> = (0..hosts.len()).filter(|&at| assigned[at] < most(at)).collect();
        while !open.is_empty() {
            for &at in &open {
                if left == 0 {
                    return assignments;
                }
                let free = u32::try_from(most(at) - assigned[at]).unwrap_or(u32::MAX);
                let count = match policy.map_by {
                    MapBy::Slot => free.min(left),
                    MapBy::Node | MapBy::Block => 1,
                };
                assigned[at] += u64::from(count);
                left -= count;
                assignments.push((at, count));
            }
            open.retain(|&at| assigned[at] < most(at));
        }
    }
    assignments
}

/// Assignments in the order in which their ranks are numbered.
fn rank_order(assignments: Vec<(usize, u32)>, rank_by: Option<RankBy>) -> Vec<(usize, u32)> {
    let Some(rank_by) = rank_by else { return assignments };
    let mut counts = std::collections::BTreeMap::new();
    for (node, count) in assignments {
        *counts.entry(node).or_insert(0) += count;
    }
    let mut counts: Vec<(usize, u32)> = counts.into_iter().collect();
    if rank_by == RankBy::Slot {
        return counts;
    }
    let mut order = Vec::new();
    while !counts.is_empty() {
        for (node, count) in &mut counts {
            order.push((*node, 1));
            *count -= 1;
        }
        counts.retain(|&(_, count)| count > 0);
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: MappingPolicy = MappingPolicy { ppn: None, map_by: MapBy::Slot, rank_by: None };
    const BY_NODE: MappingPolicy = MappingPolicy { map_by: MapBy::Node, ..DEFAULT };

    /// The host of each rank, by the first letter of its name.
    fn letters(job_map: &JobMap) -> String {
        let runs = job_map.node_runs();
        let letter = |&(node, count): &(u32, u32)| {
            job_map.nodes()[node as usize].host.name[..1].repeat(count as usize)
        };
        runs.iter().map(letter).collect()
    }

    fn mapped(hosts: &str, programs: &[u32], policy: MappingPolicy) -> String {
        let job_map = JobMap::new(&Hosts::parse(hosts).unwrap(), programs, policy).unwrap();
        letters(&job_map)
    }

    #[test]
    fn hosts_are_filled_in_turn_and_then_again() {
        assert_eq!(mapped("a:2,b:1,c:3", &[6], DEFAULT), "aabccc");
        assert_eq!(mapped("a:2,b:1,c:3", &[3], DEFAULT), "aab");
        // hydra 4.0.2, `-f` with a:2 and b:1, nine ranks.
        assert_eq!(mapped("a:2,b:1", &[9], DEFAULT), "aabaabaab");
        assert_eq!(mapped("a,b,c", &[7], DEFAULT), "abcabca");
    }

    #[test]
    fn ppn_overrides_slots() {
        // hydra 4.0.2: (vector,(0,2,2)).
        let ppn = |ppn| MappingPolicy { ppn: Some(ppn), ..DEFAULT };
        assert_eq!(mapped("a:2,b:1", &[9], ppn(2)), "aabbaabba");
        assert_eq!(mapped("a:4,b:4", &[4], ppn(1)), "abab");
    }

    #[test]
    fn map_by_node_skips_full_hosts() {
        assert_eq!(mapped("a:3,b:1,c:2", &[6], BY_NODE), "abcaca");
        assert_eq!(mapped("a:3,b:1,c:2", &[9], BY_NODE), "abcacaabc");
        // `srun --ntasks-per-node 2 --distribution cyclic`.
        assert_eq!(mapped("a:8,b:8", &[4], MappingPolicy { ppn: Some(2), ..BY_NODE }), "abab");
    }

    /// Programs with hosts of their own: each with its number of ranks and the positions of its hosts.
    fn of_programs(hosts: &str, programs: &[(u32, &[NamedHost])], policy: MappingPolicy) -> String {
        letters(&JobMap::of_programs(&Hosts::parse(hosts).unwrap(), programs, policy).unwrap())
    }

    #[test]
    fn programs_have_hosts_of_their_own() {
        let (a, b): (NamedHost, NamedHost) = ((0, None), (1, None));
        assert_eq!(of_programs("a,b", &[(1, &[a]), (2, &[b])], DEFAULT), "abb");
        assert_eq!(of_programs("a:2,b:2", &[(1, &[b]), (3, &[])], DEFAULT), "baab");
        assert_eq!(of_programs("a:2,b:2", &[(3, &[]), (2, &[a])], DEFAULT), "aabaa");
        assert_eq!(of_programs("a:2,b:2", &[(2, &[(0, Some(1)), b])], DEFAULT), "ab");
        // The same list at each program is the same as once.
        assert_eq!(of_programs("a:2,b:2", &[(2, &[a, b]), (2, &[a, b])], DEFAULT), "aabb");
        assert_eq!(of_programs("a:2,b:2,c", &[(4, &[b, a]), (3, &[])], BY_NODE), "babaabc");
        let ppn = MappingPolicy { ppn: Some(1), ..DEFAULT };
        assert_eq!(of_programs("a:4,b:4", &[(3, &[a, b]), (1, &[a])], ppn), "abaa");
    }

    #[test]
    fn max_slots_hold_for_all_programs() {
        let mut hosts = Hosts::default();
        hosts.add(Host { max_slots: Some(2), ..Host::with_slots("a", 2) }).unwrap();
        hosts.add(Host::with_slots("b", 1)).unwrap();
        let map = |programs: &[(u32, &[NamedHost])]| JobMap::of_programs(&hosts, programs, DEFAULT);
        assert_eq!(letters(&map(&[(1, &[(0, None)]), (3, &[])]).unwrap()), "aabb");
        assert!(matches!(
            map(&[(1, &[]), (2, &[(0, None)])]),
            Err(PlacementError::Full { ranks: 2, capacity: 1 })
        ));
        assert!(matches!(map(&[(2, &[]), (1, &[(0, None)])]), Err(PlacementError::Full { .. })));
    }

    /// As `srun` of Slurm 22.05 in an allocation of these nodes and processors.
    #[test]
    fn map_by_block_spreads_consecutive_ranks() {
        let block = MappingPolicy { map_by: MapBy::Block, ..DEFAULT };
        assert_eq!(mapped("a:4,b:4", &[6], block), "aaabbb");
        assert_eq!(mapped("a:4,b:4", &[7], block), "aaaabbb");
        assert_eq!(mapped("a:4,b:4,c:4", &[7], block), "aaabbcc");
        assert_eq!(mapped("a:4,b:4,c:4,d:4", &[6], block), "aabbcd");
        assert_eq!(mapped("a:7,b:1,c:1", &[7], block), "aaaaabc");
        assert_eq!(mapped("a:15,b:1", &[6], block), "aaaaab");
        // Hosts without slots, `ppn` in their place, and more ranks than slots.
        assert_eq!(mapped("a,b", &[7], block), "aaaabbb");
        assert_eq!(mapped("a:1,b:9", &[6], MappingPolicy { ppn: Some(4), ..block }), "aaabbb");
        assert_eq!(mapped("a:2,b:1", &[5], block), "aaabb");
        // Blocks are those of the job, not of each program.
        assert_eq!(mapped("a:4,b:4", &[1, 4, 1], block), "aaabbb");
        assert_eq!(mapped("a:4,b:4", &[6], MappingPolicy { rank_by: Some(RankBy::Node), ..block }), "ababab");
    }

    #[test]
    fn ranks_are_numbered_by_mapping_by_host_or_round_robin() {
        let by = |rank_by, policy: MappingPolicy| MappingPolicy { rank_by: Some(rank_by), ..policy };
        assert_eq!(mapped("a:2,b:1", &[9], by(RankBy::Slot, DEFAULT)), "aaaaaabbb");
        assert_eq!(mapped("a:3,b:1,c:2", &[6], by(RankBy::Node, DEFAULT)), "abcaca");
        assert_eq!(mapped("a:3,b:1,c:2", &[6], by(RankBy::Slot, BY_NODE)), "aaabcc");
        assert_eq!(mapped("a:3,b:1,c:2", &[4, 2], by(RankBy::Node, DEFAULT)), "abaacc");
    }

    #[test]
    fn programs_follow_each_other_without_a_gap() {
        let job_map = JobMap::new(&Hosts::parse("a:3,b:3").unwrap(), &[1, 4, 1], DEFAULT).unwrap();
        let range = |program, first, count| RankRange { program, first, count };
        assert_eq!(job_map.nodes()[0].rank_ranges, [range(0, 0, 1), range(1, 1, 2)]);
        assert_eq!(job_map.nodes()[1].rank_ranges, [range(1, 3, 2), range(2, 5, 1)]);
        assert_eq!(job_map.nodes()[1].ranks().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(node_pset("b"), "hydrant://node/b");
        assert_eq!(job_map.tree(16).nodes(), 3);
        assert_eq!(mapped("a:3,b:3", &[1, 4, 1], BY_NODE), "ababab");
    }

    #[test]
    fn max_slots_are_never_exceeded() {
        let mut hosts = Hosts::default();
        let host = |name, slots, max_slots| Host { max_slots, ..Host::with_slots(name, slots) };
        hosts.add(host("a", 2, Some(3))).unwrap();
        hosts.add(host("b", 1, Some(1))).unwrap();
        let map = |hosts: &Hosts, ranks| JobMap::new(hosts, &[ranks], DEFAULT);
        assert_eq!(letters(&map(&hosts, 4).unwrap()), "aaba");
        let error = map(&hosts, 5).unwrap_err();
        assert!(matches!(error, PlacementError::Full { ranks: 5, capacity: 4 }), "{error}");
        hosts.add(host("c", 1, None)).unwrap();
        assert_eq!(letters(&map(&hosts, 8).unwrap()), "aabcaccc");
        assert!(matches!(map(&hosts, RANKS_MAX + 1), Err(PlacementError::Ranks(_))));
        assert!(matches!(map(&Hosts::default(), 1), Err(PlacementError::Full { capacity: 0, .. })));
    }

    /// As hydra 5.0.2 does it with `-rankmap`.
    #[test]
    fn a_rank_map_is_repeated() {
        let hosts = Hosts::parse("a,b").unwrap();
        let mapped = |programs: &[u32], map: &[u32]| JobMap::from_rank_map(&hosts, programs, map);
        let text = |map: &[u32]| letters(&mapped(&[4], map).unwrap());
        assert_eq!([text(&[0, 1]), text(&[1, 1, 0, 0]), text(&[0, 1, 0])], ["abab", "bbaa", "abaa"]);
        let two = mapped(&[1, 2], &[1]).unwrap();
        assert_eq!(two.nodes()[1].rank_ranges.len(), 2, "one for each program");
        assert_eq!(two.process_mapping().unwrap(), "(vector,(1,1,3))");
        let error = mapped(&[4], &[0, 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the rank map names host 2, counted from 0, and the number of hosts is 2"
        );
        let mut small = Hosts::default();
        small.add(Host { max_slots: Some(1), ..Host::with_slots("a", 1) }).unwrap();
        assert!(matches!(JobMap::from_rank_map(&small, &[2], &[0]), Err(PlacementError::Full { .. })));
    }

    #[test]
    fn hosts_without_ranks_are_taken_from_the_end() {
        let hosts = Hosts::parse("a,b,c,d").unwrap();
        let taken = |most| {
            let mut job_map = JobMap::from_rank_map(&hosts, &[2], &[1]).unwrap();
            let unused = job_map.take_unused(most);
            let names = |hosts: Vec<&Host>| hosts.iter().map(|host| &*host.name).collect::<String>();
            let there = names(job_map.nodes().iter().map(|node| &node.host).collect());
            (there, names(unused.iter().collect()), job_map.process_mapping().unwrap())
        };
        let of = |there: &str, unused: &str, mapping: &str| (there.into(), unused.into(), mapping.into());
        assert_eq!(taken(9), of("b", "acd", "(vector,(0,1,2))"));
        assert_eq!(taken(2), of("ab", "cd", "(vector,(1,1,2))"));
        assert_eq!(taken(0), of("abcd", "", "(vector,(1,1,2))"));
    }

    #[test]
    fn oversubscribed_hosts_are_named() {
        let oversubscribed = |hosts: &str, ranks| {
            JobMap::new(&Hosts::parse(hosts).unwrap(), &[ranks], DEFAULT).unwrap().oversubscription()
        };
        assert_eq!(oversubscribed("a:2,b:1", 3), None);
        assert_eq!(oversubscribed("a,b", 9), None);
        assert_eq!(oversubscribed("a:2,b", 6).as_deref(), Some("more ranks than slots: a runs 4 on 2"));
        assert!(oversubscribed("n[1-9]:1", 18).unwrap().ends_with("n4 runs 2 on 1, and 5 more"));
    }

    proptest! {
        #[test]
        fn every_rank_is_on_one_host(
            slots in prop::collection::vec((prop::option::of(1u32..5), prop::option::of(0u32..4)), 1..9),
            programs in prop::collection::vec(1u32..12, 1..4),
            ppn in prop::option::of(1u32..4), map_by in map_by(), rank_by in prop::option::of(rank_by()),
        ) {
            let mut hosts = Hosts::default();
            for (at, (slots, more)) in slots.iter().enumerate() {
                let max_slots = more.map(|more| slots.unwrap_or(1) + more);
                hosts.add(Host { slots: *slots, max_slots, ..Host::new(&format!("n{at}")) }).unwrap();
            }
            let policy = MappingPolicy { ppn, map_by, rank_by };
            let Ok(job_map) = JobMap::new(&hosts, &programs, policy) else {
                prop_assert!(hosts.iter().all(|host| host.max_slots.is_some()));
                return Ok(());
            };
            let mut seen = vec![None; job_map.ranks() as usize];
            let starts: Vec<u32> = programs.iter().scan(0, |at, n| { *at += n; Some(*at - n) }).collect();
            for node in job_map.nodes() {
                prop_assert!(node.host.max_slots.is_none_or(|max| node.size() <= max));
                prop_assert!(node.rank_ranges.is_sorted_by_key(|range| range.first));
                for range in &node.rank_ranges {
                    for rank in range.first..range.first + range.count {
                        prop_assert_eq!(seen[rank as usize].replace(range.program), None);
                    }
                }
            }
            for (rank, program) in seen.iter().enumerate() {
                let start = starts.iter().rposition(|&start| start as usize <= rank);
                prop_assert_eq!(program.map(|program| program as usize), start);
            }
            prop_assert_eq!(job_map.nodes()[0].rank_ranges[0].first, 0);
        }
    }

    fn map_by() -> impl Strategy<Value = MapBy> {
        prop_oneof![Just(MapBy::Slot), Just(MapBy::Node), Just(MapBy::Block)]
    }

    fn rank_by() -> impl Strategy<Value = RankBy> {
        prop_oneof![Just(RankBy::Slot), Just(RankBy::Node)]
    }
}
