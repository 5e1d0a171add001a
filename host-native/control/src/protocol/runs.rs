//! Blocks of ranks, and short forms of the lists in a job record that grow with the number of nodes.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// Consecutive ranks `first..first + count` on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankBlock {
    /// The node.
    pub node: u32,
    /// First rank.
    pub first: u32,
    /// Number of ranks.
    pub count: u32,
}

/// Blocks of consecutive nodes with consecutive ranks as one run.
pub(super) mod blocks {
    use hydrant_placement::RANKS_MAX;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::RankBlock;

    /// `blocks` blocks of `count` ranks each, on `node` and the nodes behind it, from rank `first` on.
    #[derive(Serialize, Deserialize)]
    struct Run {
        node: u32,
        first: u32,
        count: u32,
        blocks: u32,
    }

    impl Run {
        fn block(&self, at: u32) -> Option<RankBlock> {
            let first = at.checked_mul(self.count)?.checked_add(self.first)?;
            Some(RankBlock { node: self.node.checked_add(at)?, first, count: self.count })
        }
    }

    pub(crate) fn serialize<S: Serializer>(blocks: &[RankBlock], to: S) -> Result<S::Ok, S::Error> {
        let mut runs: Vec<Run> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run) if run.block(run.blocks).as_ref() == Some(block) => run.blocks += 1,
                _ => {
                    let RankBlock { node, first, count } = *block;
                    runs.push(Run { node, first, count, blocks: 1 });
                }
            }
        }
        runs.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RankBlock>, D::Error> {
        let runs = Vec::<Run>::deserialize(from)?;
        let all = runs.iter().try_fold(0u32, |all, run| all.checked_add(run.blocks));
        if all.is_none_or(|all| all > RANKS_MAX) {
            return Err(D::Error::custom("too many blocks"));
        }
        let blocks = runs.iter().flat_map(|run| (0..run.blocks).map(|at| run.block(at)));
        blocks.collect::<Option<_>>().ok_or(D::Error::custom("a block beyond all ranks"))
    }
}

/// Names of hosts as a list of short forms.
pub(super) mod hosts {
    use hydrant_placement::hostlist;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(hosts: &[(u32, String)], to: S) -> Result<S::Ok, S::Error> {
        let mut nodes: Vec<(u32, u32)> = Vec::new();
        for &(node, _) in hosts {
            match nodes.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(node) => *count += 1,
                _ => nodes.push((node, 1)),
            }
        }
        (nodes, hostlist::compress(hosts.iter().map(|(_, name)| name.as_str()))).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, String)>, D::Error> {
        let (nodes, list) = <(Vec<(u32, u32)>, String)>::deserialize(from)?;
        let names =
            if list.is_empty() { Vec::new() } else { hostlist::expand(&list).map_err(D::Error::custom)? };
        let mut nodes =
            nodes.into_iter().flat_map(|(first, count)| (0..count).map(move |at| first.checked_add(at)));
        let mut hosts = Vec::with_capacity(names.len());
        for name in names {
            let node = nodes.next().flatten().ok_or(D::Error::custom("a host without a node"))?;
            hosts.push((node, name));
        }
        match nodes.next() {
            Some(_) => Err(D::Error::custom("a node without a host")),
            None => Ok(hosts),
        }
    }
}
