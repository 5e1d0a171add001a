//! Process sets that the ranks of a job know from its start.

use hydrant_core::wire::{ranges, write_ranges};
use hydrant_placement::node_pset;

use crate::protocol::{JobRecord, Program, RankBlock};

/// Ranges of ranks: first rank and number of ranks.
pub type RankRanges = Vec<(u32, u32)>;

/// Passes on the process sets of a job, each with the ranges of its ranks, until one is refused: one for each node, one for a
/// spawned job as a whole, one for each program, and those that the user named. All nodes derive the same sets.
///
/// # Errors
/// That of `define`.
pub fn process_sets<E>(
    record: &JobRecord,
    mut define: impl FnMut(&str, &[(u32, u32)]) -> Result<(), E>,
) -> Result<(), E> {
    let JobRecord { ordinal, name, programs, blocks, hosts, .. } = record;
    let mut blocks: Vec<&RankBlock> = blocks.iter().collect();
    blocks.sort_by_key(|block| block.node);
    let mut ranges = RankRanges::new();
    for of_node in blocks.chunk_by(|one, next| one.node == next.node) {
        ranges.clear();
        ranges.extend(of_node.iter().map(|block| (block.first, block.count)));
        let at = hosts.binary_search_by_key(&of_node[0].node, |(node, _)| *node);
        define(&node_pset(at.map_or("", |at| &hosts[at].1)), &ranges)?;
    }
    sets_of_programs(*ordinal, name, programs).iter().try_for_each(|(name, ranges)| define(name, ranges))
}

/// Name of the process set of a job's ranks.
pub fn job_pset(jobid: &str) -> String {
    format!("hydrant://job/{jobid}")
}

/// Name of the process set of the ranks of a spawned job and of the job that spawned it.
pub fn pset_with_parent(jobid: &str) -> String {
    format!("{}/with-parent", job_pset(jobid))
}

fn sets_of_programs(ordinal: u32, name: &str, programs: &[Program]) -> Vec<(String, RankRanges)> {
    let mut sets = Vec::new();
    if ordinal > 0 {
        let ranks = programs.iter().map(|program| program.ranks).sum();
        sets.push((job_pset(name), vec![(0, ranks)]));
    }
    let next_start = |first: &mut u32, program: &Program| {
        let start = *first;
        *first += program.ranks;
        Some(start)
    };
    let starts: Vec<u32> = programs.iter().scan(0, next_start).collect();
    for (appnum, (program, &first)) in programs.iter().zip(&starts).enumerate() {
        sets.push((format!("hydrant://app/{appnum}"), vec![(first, program.ranks)]));
    }
    let named = sets.len();
    for (program, &first) in programs.iter().zip(&starts) {
        for name in &program.psets {
            // The same name at the next program extends the set.
            let ends_here = |(start, len): (u32, u32)| start + len == first;
            match sets[named..].iter_mut().find(|(known, ranges)| known == name && ends_here(ranges[0])) {
                Some((_, ranges)) => ranges[0].1 += program.ranks,
                None => sets.push((name.clone(), vec![(first, program.ranks)])),
            }
        }
    }
    sets
}

/// Formats ranges of ranks as `0-3,7`.
pub fn format_ranges(ranks: &[(u32, u32)]) -> String {
    let mut text = String::new();
    let ranks = ranks.iter().map(|&(first, count)| first..=first + count.saturating_sub(1));
    write_ranges(ranks, &mut text).expect("a String takes all text");
    text
}

/// Joins consecutive ranks to ranges.
pub fn ranges_of(ranks: impl Iterator<Item = u32>) -> RankRanges {
    ranges(ranks).map(|range| (*range.start(), range.end() - range.start() + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{program, record};

    #[test]
    fn sets_of_nodes_programs_and_names() {
        let set = |name: &str, ranks| Program { psets: vec![name.to_owned()], ..program(ranks) };
        let programs = [set("left", 2), set("left", 1), set("right", 1)];
        let blocks =
            [(2, 0, 1), (1, 1, 2), (2, 3, 1)].map(|(node, first, count)| RankBlock { node, first, count });
        let hosts = vec![(1, "a".to_owned()), (2, "b".to_owned())];
        let record =
            JobRecord { programs: programs.into(), blocks: blocks.to_vec(), hosts, ..record(1, 1, &[]) };
        let mut sets = Vec::new();
        let result: Result<(), ()> = process_sets(&record, |name, ranges| {
            sets.push(format!("{name} {}", format_ranges(ranges)));
            if sets.len() == 8 { Err(()) } else { Ok(()) }
        });
        assert_eq!(result, Err(()));
        let want = [
            "hydrant://node/a 1-2",
            "hydrant://node/b 0,3",
            "hydrant://job/job-1 0-3",
            "hydrant://app/0 0-1",
            "hydrant://app/1 2",
            "hydrant://app/2 3",
            "left 0-2",
            "right 3",
        ];
        assert_eq!(sets, want);
    }

    #[test]
    fn consecutive_ranks_are_one_range() {
        assert_eq!(format_ranges(&ranges_of([0, 1, 2, 7, 9, 10].into_iter())), "0-2,7,9-10");
        assert_eq!(format_ranges(&[]), "");
    }
}
