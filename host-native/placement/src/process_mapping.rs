//! Text of `PMI_process_mapping`, which tells MPI libraries the node of each rank.

use std::fmt::Write;

use hydrant_core::limits::VALUE_MAX;

use crate::error::PlacementError;
use crate::job_map::JobMap;

/// `count` nodes from number `first`, each with `ranks` ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: u32,
    count: u32,
    ranks: u32,
}

impl JobMap {
    /// The text of `PMI_process_mapping`; see [`process_mapping`].
    ///
    /// # Errors
    /// [`PlacementError::MappingTooLong`].
    pub fn process_mapping(&self) -> Result<String, PlacementError> {
        process_mapping(&self.node_runs())
    }
}

/// The text of `PMI_process_mapping`, `(vector,(first_node,nodes,ranks_per_node),...)`, with nodes counted from 0.
///
/// `runs` holds all ranks in order: number of the node and number of consecutive ranks on it.
///
/// The mapping is written in full if it fits into a PMI value, because Intel MPI does not start over at the end of a
/// list that is shorter than the job. A longer mapping that repeats a pattern is written as one repetition: MPICH starts
/// over at the first block of node 0.
///
/// # Errors
/// [`PlacementError::MappingTooLong`] if one repetition does not fit into a PMI value either.
pub fn process_mapping(runs: &[(u32, u32)]) -> Result<String, PlacementError> {
    let whole = encode(runs);
    if whole.len() <= VALUE_MAX as usize {
        return Ok(whole);
    }
    let once = period(runs).map(|runs| encode(&runs));
    let once = once.filter(|once| once.len() <= VALUE_MAX as usize);
    once.ok_or(PlacementError::MappingTooLong { len: whole.len() })
}

fn encode(runs: &[(u32, u32)]) -> String {
    let mut blocks: Vec<Block> = Vec::new();
    for &(node, ranks) in runs {
        match blocks.last_mut() {
            Some(last) if last.ranks == ranks && last.first + last.count == node => last.count += 1,
            _ => blocks.push(Block { first: node, count: 1, ranks }),
        }
    }
    let mut text = "(vector".to_owned();
    for Block { first, count, ranks } in blocks {
        let _ = write!(text, ",({first},{count},{ranks})");
    }
    text + ")"
}

/// The shortest prefix of the runs whose repetition gives all runs, where the last repetition may be cut off. None if
/// nothing repeats, or if the first node is not node 0, where MPICH starts over.
fn period(runs: &[(u32, u32)]) -> Option<Vec<(u32, u32)>> {
    let nodes: Vec<u32> =
        runs.iter().flat_map(|&(node, count)| std::iter::repeat_n(node, count as usize)).collect();
    if nodes.first() != Some(&0) {
        return None;
    }
    // Length of the longest proper border of each prefix (Knuth, Morris and Pratt).
    let mut borders = vec![0; nodes.len()];
    let mut border = 0;
    for at in 1..nodes.len() {
        while border > 0 && nodes[at] != nodes[border] {
            border = borders[border - 1];
        }
        border += usize::from(nodes[at] == nodes[border]);
        borders[at] = border;
    }
    let mut left = nodes.len() - border;
    if left == nodes.len() {
        return None;
    }
    let mut once = Vec::new();
    for &(node, count) in runs {
        if left == 0 {
            break;
        }
        let count = left.min(count as usize);
        left -= count;
        once.push((node, count as u32));
    }
    Some(once)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hosts::{Host, Hosts};
    use crate::job_map::{MapBy, MappingPolicy, RankBy};

    fn mapping(hosts: &str, ranks: u32, policy: MappingPolicy) -> Result<String, PlacementError> {
        JobMap::new(&Hosts::parse(hosts).unwrap(), &[ranks], policy).unwrap().process_mapping()
    }

    const FILL: MappingPolicy = MappingPolicy { ppn: None, map_by: MapBy::Slot, rank_by: None };
    const ROUND: MappingPolicy = MappingPolicy { map_by: MapBy::Node, ..FILL };

    /// The node of each rank as MPICH reads it (src/util/build_nodemap.h): blocks in order and, at their end, again from
    /// the first block that starts at node 0.
    fn expand(mapping: &str, size: usize) -> Vec<u32> {
        let triples = mapping.strip_prefix("(vector").and_then(|rest| rest.strip_suffix(")")).unwrap();
        let numbers = |triple: &str| -> Vec<u32> {
            triple.trim_end_matches(')').split(',').map(|number| number.parse().unwrap()).collect()
        };
        let blocks: Vec<Vec<u32>> = triples.split(",(").skip(1).map(numbers).collect();
        let mut nodes = Vec::new();
        let mut wrapped = false;
        loop {
            let from = if wrapped { blocks.iter().position(|block| block[0] == 0).unwrap() } else { 0 };
            for block in &blocks[from..] {
                wrapped |= block[0] == 0;
                for node in block[0]..block[0] + block[1] {
                    for _ in 0..block[2] {
                        nodes.push(node);
                        if nodes.len() == size {
                            return nodes;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn short_mappings_are_written_in_full() {
        assert_eq!(mapping("a:4,b:4", 8, FILL).unwrap(), "(vector,(0,2,4))");
        assert_eq!(mapping("a:4,b:4", 6, FILL).unwrap(), "(vector,(0,1,4),(1,1,2))");
        assert_eq!(mapping("a:8", 6, FILL).unwrap(), "(vector,(0,1,6))");
        assert_eq!(mapping("a:2,b:2,c:2", 6, ROUND).unwrap(), "(vector,(0,3,1),(0,3,1))");
        assert_eq!(mapping("a:2,b:1", 5, FILL).unwrap(), "(vector,(0,1,2),(1,1,1),(0,1,2))");
    }

    #[test]
    fn long_mappings_are_written_as_one_repetition() {
        // 300 times (0,2,1) exceeds the length of a value.
        assert_eq!(mapping("a:300,b:300", 600, ROUND).unwrap(), "(vector,(0,2,1))");
        assert_eq!(mapping("a:2,b:1", 1000, FILL).unwrap(), "(vector,(0,1,2),(1,1,1))");
    }

    #[test]
    fn mappings_without_repetition_may_be_too_long() {
        let uneven: Vec<String> = (0..400).map(|at| format!("n{at}:{}", at % 7 + 1)).collect();
        let error = mapping(&uneven.join(","), 1500, FILL).unwrap_err();
        assert!(matches!(error, PlacementError::MappingTooLong { len } if len > 1024), "{error}");
    }

    proptest! {
        #[test]
        fn mpich_reads_the_job_map(
            slots in prop::collection::vec((1u32..4, prop::option::of(0u32..40)), 1..40),
            ranks in 1u32..600, ppn in prop::option::of(1u32..4),
            map_by in prop_oneof![Just(MapBy::Slot), Just(MapBy::Node)],
            rank_by in prop_oneof![Just(None), Just(Some(RankBy::Slot)), Just(Some(RankBy::Node))],
        ) {
            let mut hosts = Hosts::default();
            for (at, (slots, more)) in slots.iter().enumerate() {
                let max_slots = more.map(|more| slots + more);
                hosts.add(Host { max_slots, ..Host::with_slots(&format!("n{at}"), *slots) }).unwrap();
            }
            let Ok(job_map) = JobMap::new(&hosts, &[ranks], MappingPolicy { ppn, map_by, rank_by }) else {
                return Ok(());
            };
            let Ok(mapping) = job_map.process_mapping() else { return Ok(()) };
            prop_assert!(mapping.len() <= 1024);
            let mut nodes = vec![u32::MAX; ranks as usize];
            for (at, node) in (0..).zip(job_map.nodes()) {
                node.ranks().for_each(|rank| nodes[rank as usize] = at);
            }
            prop_assert_eq!(expand(&mapping, ranks as usize), nodes);
        }
    }
}
