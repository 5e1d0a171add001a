//! Parser of `PMI_process_mapping`, which says which ranks share a node.

/// Returns the ranks of a job of `size` ranks that share the node of `rank`, itself included.
///
/// A mapping like `(vector,(0,4,2))` is a list of blocks: first node, number of nodes, ranks on each node. The list
/// repeats until every rank has a node. Returns `None` if `mapping` is malformed or `rank` is not below `size`.
pub fn ranks_on_node_of(mapping: &str, rank: u32, size: u32) -> Option<Vec<u32>> {
    let blocks = blocks(mapping)?;
    let nodes = || {
        blocks
            .iter()
            .cycle()
            .flat_map(|&[first, nodes, ranks]| {
                (0..nodes).flat_map(move |node| (0..ranks).map(move |_| u64::from(first) + u64::from(node)))
            })
            .take(size as usize)
    };
    let mine = nodes().nth(rank as usize)?;
    Some((0..size).zip(nodes()).filter(|&(_, node)| node == mine).map(|(rank, _)| rank).collect())
}

fn blocks(mapping: &str) -> Option<Vec<[u32; 3]>> {
    let list = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in list.split_terminator(')') {
        let numbers = block.trim_start_matches(',').strip_prefix('(')?;
        let mut numbers = numbers.split(',').map(|number| number.trim().parse().ok());
        let block = [numbers.next()??, numbers.next()??, numbers.next()??];
        if block[1] > 0 && block[2] > 0 {
            blocks.push(block);
        }
    }
    (!blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::ranks_on_node_of;

    #[test]
    fn ranks_of_a_node() {
        let ranks = |mapping, rank, size| ranks_on_node_of(mapping, rank, size).unwrap();
        assert_eq!(ranks("(vector,(0,1,4))", 3, 4), [0, 1, 2, 3]);
        // hydra 4.0.2 sends this for one node with two ranks.
        assert_eq!(ranks("(vector,(0,1,1))", 0, 2), [0, 1]);
        assert_eq!(ranks("(vector,(0,2,2),(2,1,1))", 0, 5), [0, 1]);
        assert_eq!(ranks("(vector,(0,2,2),(2,1,1))", 4, 5), [4]);
        assert_eq!(ranks("(vector,(0,2,1))", 1, 5), [1, 3]);
        assert_eq!(ranks("(vector,(0,2,1))", 0, 5), [0, 2, 4]);
    }

    #[test]
    fn malformed_mappings_are_refused() {
        for mapping in ["", "(vector,)", "(vector,(0,1,0))", "(vector,(0,1))", "(vector,(0,x,1))", "(0,1,1)"]
        {
            assert_eq!(ranks_on_node_of(mapping, 0, 1), None, "{mapping}");
        }
        assert_eq!(ranks_on_node_of("(vector,(0,1,1))", 2, 2), None);
    }
}
