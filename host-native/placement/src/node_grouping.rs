//! Grouping of ranks into nodes for a server whose ranks are started elsewhere (`--map`).
//!
//! MPICH uses shared memory between ranks that `PMI_process_mapping` puts on one node, and the network between others. A
//! mapping that groups ranks of different nodes makes MPICH fail. A mapping that separates ranks of one node only costs
//! them shared memory. The default is therefore one node for each rank.

use std::fmt::Write;
use std::str::FromStr;

/// Grouping of the ranks of a job into nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeGrouping {
    /// One node for each rank: `apart`.
    Apart,
    /// One node for all ranks: `together`.
    Together,
    /// That many ranks on each node; the last one has the rest.
    Each(u32),
    /// Number of ranks of each node.
    Nodes(Vec<u32>),
}

impl FromStr for NodeGrouping {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeGrouping, String> {
        match text {
            "apart" => return Ok(NodeGrouping::Apart),
            "together" => return Ok(NodeGrouping::Together),
            _ => {}
        }
        let ranks = text.split(',').map(|ranks| ranks.parse().ok().filter(|&ranks: &u32| ranks > 0));
        match ranks.collect::<Option<Vec<u32>>>().as_deref() {
            Some(&[each]) => Ok(NodeGrouping::Each(each)),
            Some(nodes) => Ok(NodeGrouping::Nodes(nodes.to_vec())),
            None => {
                Err("expected apart, together, or the number of ranks of each node: 4 or 4,4,2".to_owned())
            }
        }
    }
}

impl NodeGrouping {
    /// Checks that the grouping fits a job of `size` ranks.
    ///
    /// # Errors
    /// The number of ranks that the grouping has.
    pub fn check_size(&self, size: u32) -> Result<(), u64> {
        match self {
            NodeGrouping::Nodes(nodes) => {
                let sum = nodes.iter().map(|&ranks| u64::from(ranks)).sum();
                if sum == u64::from(size) { Ok(()) } else { Err(sum) }
            }
            _ => Ok(()),
        }
    }

    /// The text of `PMI_process_mapping` for `size` ranks: blocks of (first node, nodes, ranks a node).
    ///
    /// `size` must pass [`check_size`](NodeGrouping::check_size).
    pub fn process_mapping(&self, size: u32) -> String {
        let blocks = match self {
            NodeGrouping::Apart => vec![(size, 1)],
            NodeGrouping::Together => vec![(1, size)],
            NodeGrouping::Each(each) => {
                let each = (*each).min(size);
                let rest = size % each;
                let mut blocks = vec![(size / each, each)];
                blocks.extend((rest > 0).then_some((1, rest)));
                blocks
            }
            NodeGrouping::Nodes(nodes) => {
                nodes.chunk_by(|a, b| a == b).map(|equal| (equal.len() as u32, equal[0])).collect()
            }
        };
        let (mut text, mut first) = ("(vector".to_owned(), 0);
        for (nodes, ranks) in blocks {
            // Writing to a string cannot fail.
            let _ = write!(text, ",({first},{nodes},{ranks})");
            first += nodes;
        }
        text + ")"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_in_blocks() {
        let mapping = |text: &str, size| text.parse::<NodeGrouping>().unwrap().process_mapping(size);
        assert_eq!(mapping("apart", 5), "(vector,(0,5,1))");
        assert_eq!(mapping("together", 5), "(vector,(0,1,5))");
        assert_eq!(mapping("2", 4), "(vector,(0,2,2))");
        assert_eq!(mapping("4", 10), "(vector,(0,2,4),(2,1,2))");
        assert_eq!(mapping("9", 4), "(vector,(0,1,4))");
        assert_eq!(mapping("4,4,2,4", 14), "(vector,(0,2,4),(2,1,2),(3,1,4))");
    }

    #[test]
    fn nodes_must_hold_all_ranks() {
        let check = |text: &str, size| text.parse::<NodeGrouping>().unwrap().check_size(size);
        assert_eq!((check("4,4,2", 10), check("4,4,2", 9), check("4", 9)), (Ok(()), Err(10), Ok(())));
        for invalid in ["", "0", "4,,2", "4,x", "near"] {
            assert!(invalid.parse::<NodeGrouping>().unwrap_err().contains("4,4,2"), "{invalid}");
        }
    }
}
