//! `PMI_process_mapping`: which node each rank runs on, as MPI libraries read it.

use std::fmt::Write;

use hydrant_core::limits::VALUE_MAX;

use super::placement::Placement;
use crate::error::RunError;

/// `count` nodes from `first` on, each with `ranks` ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: u32,
    count: u32,
    ranks: u32,
}

impl Placement {
    /// The layout as `(vector,(first_node,nodes,ranks_per_node),...)`, where hosts are counted from 0.
    ///
    /// It is written out as a whole where that fits into a value: Intel MPI does not start over at the end of a list
    /// that is shorter than the job. Where it does not fit, but the layout repeats itself, it is written out once;
    /// MPICH starts over at the first block of node 0.
    ///
    /// # Errors
    /// [`RunError::Mapping`] where that does not fit either.
    pub fn mapping(&self) -> Result<String, RunError> {
        mapping_of(&self.runs())
    }
}

/// The same for runs of ranks: a host's number, and how many consecutive ranks are there.
pub(crate) fn mapping_of(runs: &[(u32, u32)]) -> Result<String, RunError> {
    let whole = written(runs);
    if whole.len() <= VALUE_MAX as usize {
        return Ok(whole);
    }
    let once = period(runs).map(|runs| written(&runs));
    let once = once.filter(|once| once.len() <= VALUE_MAX as usize);
    once.ok_or(RunError::Mapping { len: whole.len() })
}

fn written(runs: &[(u32, u32)]) -> String {
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

/// The runs of the shortest beginning that the whole is repetitions of, the last one cut off where it may be; none
/// where it does not repeat itself, or where it would not start over at its beginning.
fn period(runs: &[(u32, u32)]) -> Option<Vec<(u32, u32)>> {
    let nodes: Vec<u32> =
        runs.iter().flat_map(|&(node, count)| std::iter::repeat_n(node, count as usize)).collect();
    if nodes.first() != Some(&0) {
        return None;
    }
    // For each beginning, how long a shorter one ends it (Knuth, Morris and Pratt).
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

    use super::super::hosts::{Host, Hosts};
    use super::super::placement::{Placement, Policy};
    use super::*;
    use crate::plan::By;

    fn mapping(hosts: &str, ranks: u32, policy: Policy) -> Result<String, RunError> {
        Placement::new(&Hosts::parse(hosts).unwrap(), &[ranks], policy).unwrap().mapping()
    }

    const FILL: Policy = Policy { ppn: None, map_by: By::Slot, rank_by: None };
    const ROUND: Policy = Policy { map_by: By::Node, ..FILL };

    /// The node of each rank as MPICH reads it (src/util/build_nodemap.h): blocks one after the other and, when they
    /// are used up, again from the first one that starts at node 0.
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
    fn layouts_are_written_as_a_whole() {
        assert_eq!(mapping("a:4,b:4", 8, FILL).unwrap(), "(vector,(0,2,4))");
        assert_eq!(mapping("a:4,b:4", 6, FILL).unwrap(), "(vector,(0,1,4),(1,1,2))");
        assert_eq!(mapping("a:8", 6, FILL).unwrap(), "(vector,(0,1,6))");
        assert_eq!(mapping("a:2,b:2,c:2", 6, ROUND).unwrap(), "(vector,(0,3,1),(0,3,1))");
        assert_eq!(mapping("a:2,b:1", 5, FILL).unwrap(), "(vector,(0,1,2),(1,1,1),(0,1,2))");
    }

    #[test]
    fn what_is_too_long_is_written_once() {
        // 300 times (0,2,1) is more than a value holds.
        assert_eq!(mapping("a:300,b:300", 600, ROUND).unwrap(), "(vector,(0,2,1))");
        assert_eq!(mapping("a:2,b:1", 1000, FILL).unwrap(), "(vector,(0,1,2),(1,1,1))");
    }

    #[test]
    fn what_fits_in_no_way_is_an_error() {
        let uneven: Vec<String> = (0..400).map(|at| format!("n{at}:{}", at % 7 + 1)).collect();
        let error = mapping(&uneven.join(","), 1500, FILL).unwrap_err();
        assert!(matches!(error, RunError::Mapping { len } if len > 1024), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_placed(
            slots in prop::collection::vec((1u32..4, prop::option::of(0u32..40)), 1..40),
            ranks in 1u32..600, ppn in prop::option::of(1u32..4),
            map_by in prop_oneof![Just(By::Slot), Just(By::Node)],
            rank_by in prop_oneof![Just(None), Just(Some(By::Slot)), Just(Some(By::Node))],
        ) {
            let mut hosts = Hosts::default();
            for (at, (slots, more)) in slots.iter().enumerate() {
                let max_slots = more.map(|more| slots + more);
                hosts.add(Host { max_slots, ..Host::with_slots(&format!("n{at}"), *slots) }).unwrap();
            }
            let Ok(placement) = Placement::new(&hosts, &[ranks], Policy { ppn, map_by, rank_by }) else {
                return Ok(());
            };
            let Ok(mapping) = placement.mapping() else { return Ok(()) };
            prop_assert!(mapping.len() <= 1024);
            let mut nodes = vec![u32::MAX; ranks as usize];
            for (at, node) in (0..).zip(placement.nodes()) {
                node.ranks().for_each(|rank| nodes[rank as usize] = at);
            }
            prop_assert_eq!(expand(&mapping, ranks as usize), nodes);
        }
    }
}
