//! Short forms of the lists in a job record that grow with the number of nodes.

/// Blocks of consecutive nodes with consecutive ranks as one run.
pub(super) mod blocks {
    use hydrant_placement::RANKS_MAX;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::job::RankBlock;

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

    pub(in crate::protocol) fn serialize<S: Serializer>(
        blocks: &[RankBlock],
        to: S,
    ) -> Result<S::Ok, S::Error> {
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

    pub(in crate::protocol) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<RankBlock>, D::Error> {
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

    pub(in crate::protocol) fn serialize<S: Serializer>(
        hosts: &[(u32, String)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut nodes: Vec<(u32, u32)> = Vec::new();
        for &(node, _) in hosts {
            match nodes.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(node) => *count += 1,
                _ => nodes.push((node, 1)),
            }
        }
        (nodes, hostlist::compress(hosts.iter().map(|(_, name)| name.as_str()))).serialize(to)
    }

    pub(in crate::protocol) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(u32, String)>, D::Error> {
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

#[cfg(test)]
mod tests {
    use crate::protocol::{JobRecord, Order, RankBlock, decode, encode};
    use crate::tests::record;

    /// A job of `per` ranks on each node, in blocks or in turns.
    fn job(nodes: u32, per: u32, in_turns: bool) -> JobRecord {
        let block = |node| RankBlock { node: node + 1, first: node * per, count: per };
        let turn = |rank| RankBlock { node: rank % nodes + 1, first: rank, count: 1 };
        let blocks =
            if in_turns { (0..nodes * per).map(turn).collect() } else { (0..nodes).map(block).collect() };
        let hosts = (1..=nodes).map(|node| (node, format!("n{node:05}"))).collect();
        JobRecord { blocks, hosts, ..record(0, 0, &[nodes * per]) }
    }

    fn sent(record: JobRecord) -> Vec<u8> {
        encode(&Order::StartJob(Box::new(record)))
    }

    #[test]
    fn an_order_hardly_grows_with_the_nodes() {
        let small = sent(job(2, 16, false)).len();
        assert!(sent(job(10_000, 16, false)).len() < small + 32, "in blocks");
        assert!(sent(job(10_000, 16, true)).len() < small + 32 + 16 * 12, "in turns");
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let bytes = sent(job(3, 2, false));
        assert!(matches!(decode(&bytes), Some(Order::StartJob(_))));
        let list = b"n[00001-00003]";
        let at = bytes.windows(list.len()).position(|window| window == list).unwrap();
        for (find, replace) in [(b'3', b'2'), (b'3', b'9')] {
            let mut bytes = bytes.clone();
            let last = at + list.len() - 2;
            assert_eq!(bytes[last], find);
            bytes[last] = replace;
            assert_eq!(decode::<Order>(&bytes), None, "hosts and nodes differ");
        }
    }

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        // Each number gives other nodes, blocks and names.
        for pattern in 0u32..2000 {
            let nodes: Vec<u32> = (1..12).filter(|node| pattern >> (node % 7) & 1 == 0).collect();
            let mut blocks = Vec::new();
            let mut first = 0;
            for at in 0..pattern % 9 {
                let Some(&node) = nodes.get((at * (1 + pattern % 3)) as usize) else { continue };
                let count = 1 + pattern / 5 % 2 * (at % 3);
                blocks.push(RankBlock { node, first, count });
                first += count;
            }
            let hosts = nodes.iter().map(|&node| (node, format!("n{}", node / (1 + pattern % 2)))).collect();
            let record = JobRecord { blocks, hosts, ..record(1, 1, &[1]) };
            let decoded = decode(&sent(record.clone()));
            assert_eq!(decoded, Some(Order::StartJob(Box::new(record))), "{pattern}");
        }
    }
}
