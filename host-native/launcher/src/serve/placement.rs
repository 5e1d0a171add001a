//! Which ranks share a node, as far as the server is told.
//!
//! MPICH joins the ranks that `PMI_process_mapping` puts on one node by shared memory and all others by the network.
//! A mapping that puts ranks together that are not makes it fail, one that keeps ranks apart that share a node costs
//! them their shared memory only. So each rank is on a node of its own unless the user says otherwise.

use std::fmt::Write;
use std::str::FromStr;

/// Where the ranks of a job are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each on a node of its own.
    Apart,
    /// All on one node.
    Together,
    /// So many ranks on each node but the last, which has the rest.
    Each(u32),
    /// So many ranks on the first node, so many on the second, and so on.
    Nodes(Vec<u32>),
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        match text {
            "apart" => return Ok(Placement::Apart),
            "together" => return Ok(Placement::Together),
            _ => {}
        }
        let ranks = text.split(',').map(|ranks| ranks.parse().ok().filter(|&ranks: &u32| ranks > 0));
        match ranks.collect::<Option<Vec<u32>>>().as_deref() {
            Some(&[each]) => Ok(Placement::Each(each)),
            Some(nodes) => Ok(Placement::Nodes(nodes.to_vec())),
            None => Err("say apart, together, or how many ranks each node has: 4, or 4,4,2".to_owned()),
        }
    }
}

impl Placement {
    /// Whether so many ranks can be placed so; otherwise how many it is for.
    pub(crate) fn check(&self, size: u32) -> Result<(), u64> {
        match self {
            Placement::Nodes(nodes) => {
                let sum = nodes.iter().map(|&ranks| u64::from(ranks)).sum();
                if sum == u64::from(size) { Ok(()) } else { Err(sum) }
            }
            _ => Ok(()),
        }
    }

    /// `PMI_process_mapping` for so many ranks: blocks of (first node, nodes, ranks a node).
    pub(crate) fn mapping(&self, size: u32) -> String {
        let blocks = match self {
            Placement::Apart => vec![(size, 1)],
            Placement::Together => vec![(1, size)],
            Placement::Each(each) => {
                let each = (*each).min(size);
                let rest = size % each;
                let mut blocks = vec![(size / each, each)];
                blocks.extend((rest > 0).then_some((1, rest)));
                blocks
            }
            Placement::Nodes(nodes) => {
                nodes.chunk_by(|a, b| a == b).map(|alike| (alike.len() as u32, alike[0])).collect()
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
        let mapping = |text: &str, size| text.parse::<Placement>().unwrap().mapping(size);
        assert_eq!(mapping("apart", 5), "(vector,(0,5,1))");
        assert_eq!(mapping("together", 5), "(vector,(0,1,5))");
        assert_eq!(mapping("2", 4), "(vector,(0,2,2))");
        assert_eq!(mapping("4", 10), "(vector,(0,2,4),(2,1,2))");
        assert_eq!(mapping("9", 4), "(vector,(0,1,4))");
        assert_eq!(mapping("4,4,2,4", 14), "(vector,(0,2,4),(2,1,2),(3,1,4))");
    }

    #[test]
    fn nodes_hold_all_ranks() {
        let check = |text: &str, size| text.parse::<Placement>().unwrap().check(size);
        assert_eq!((check("4,4,2", 10), check("4,4,2", 9), check("4", 9)), (Ok(()), Err(10), Ok(())));
        for wrong in ["", "0", "4,,2", "4,x", "near"] {
            assert!(wrong.parse::<Placement>().unwrap_err().contains("4,4,2"), "{wrong}");
        }
    }
}
