//! Fences of Slurm, with its plugins mpi/pmi2 and mpi/pmix.
//!
//! Source: SchedMD/slurm, `src/plugins/mpi/pmi2/kvs.c` at 0c9a3f79, `tree.c` at 0d150ba9 and `setup.c` (width of the tree),
//! `src/slurmd/common/reverse_tree_math.c` at edac5e13, `src/plugins/mpi/pmix/pmixp_coll_ring.c` at 0aba30e3,
//! `pmixp_coll_tree.c` at 012b8d06, `pmixp_client.c` (choice of ring or tree), `src/common/read_config.h` (`TreeWidth`).

use super::{Cost, Load, allgather};
use crate::fabric::{Charge, Fabric};

/// Default of `TreeWidth` up to Slurm 23.02.
const WIDTH: u32 = 50;
/// Bytes of the header of a message, about.
const HEADER: u64 = 64;
/// Bytes of a pair beside key and value: two lengths and two final zeros.
const FRAMING: u64 = 10;
/// srun, or the first slurmstepd in a tree without srun.
const ROOT: u32 = 0;

#[derive(Clone, Debug)]
enum Body {
    /// Pairs of a subtree.
    Up,
    /// All pairs, with the nodes that the receiver passes them to.
    Down(std::ops::Range<u32>),
}

/// Each slurmstepd sends the pairs of its subtree to its parent. srun sends all pairs down another tree, in which a node
/// passes on the whole message.
pub fn pmi2(load: Load, charge: Charge) -> Cost {
    let nodes = load.daemons + 1;
    let tree = ReverseTree::new(nodes, WIDTH);
    let mut fabric = Fabric::new(nodes, charge);
    let pairs = load.bytes(FRAMING);
    let mut waiting: Vec<u32> = vec![0; nodes as usize];
    let mut subtree: Vec<u64> = vec![pairs; nodes as usize];
    subtree[ROOT as usize] = 0;
    for node in (1..nodes).rev() {
        let parent = tree.parent(node);
        waiting[parent as usize] += 1;
        subtree[parent as usize] += subtree[node as usize];
    }
    for node in 1..nodes {
        if waiting[node as usize] == 0 {
            fabric.send(node, tree.parent(node), HEADER + subtree[node as usize], Body::Up);
        }
    }
    let all = HEADER + subtree[ROOT as usize];
    let mut released = 0;
    while let Some(message) = fabric.receive() {
        let node = message.to;
        match message.body {
            Body::Up => {
                waiting[node as usize] -= 1;
                if waiting[node as usize] > 0 {
                    continue;
                }
                match node {
                    ROOT => forward(&mut fabric, ROOT, 1..nodes, all),
                    _ => fabric.send(node, tree.parent(node), HEADER + subtree[node as usize], Body::Up),
                }
            }
            Body::Down(rest) => {
                forward(&mut fabric, node, rest, all);
                released = released.max(fabric.now(node));
            }
        }
    }
    Cost::of(&fabric, released)
}

/// Sends all pairs to the first of each part of the nodes, which passes them to the others of its part.
fn forward(fabric: &mut Fabric<Body>, from: u32, nodes: std::ops::Range<u32>, bytes: u64) {
    let parts = WIDTH.min(nodes.len() as u32);
    let mut start = nodes.start;
    for part in 0..parts {
        let len = (nodes.end - start).div_ceil(parts - part);
        fabric.send(from, start, bytes, Body::Down(start + 1..start + len));
        start += len;
    }
}

/// With pairs: a ring, in which each slurmstepd passes on the pairs of every other. Without: up and down a tree.
pub fn pmix(load: Load, charge: Charge) -> Cost {
    if load.value > 0 {
        return allgather::ring(load, charge);
    }
    let nodes = load.daemons;
    let tree = ReverseTree::new(nodes, WIDTH);
    let mut fabric = Fabric::new(nodes, charge);
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    for node in 1..nodes {
        children[tree.parent(node) as usize].push(node);
    }
    let mut waiting: Vec<usize> = children.iter().map(Vec::len).collect();
    for node in (1..nodes).filter(|&node| children[node as usize].is_empty()) {
        fabric.send(node, tree.parent(node), HEADER, true);
    }
    let mut released = 0;
    while let Some(message) = fabric.receive() {
        let node = message.to;
        let mut down = !message.body;
        if message.body {
            waiting[node as usize] -= 1;
            if waiting[node as usize] == 0 && node != ROOT {
                fabric.send(node, tree.parent(node), HEADER, true);
            }
            down = waiting[node as usize] == 0 && node == ROOT;
        }
        if down {
            for &child in &children[node as usize] {
                fabric.send(node, child, HEADER, false);
            }
            released = released.max(fabric.now(node));
        }
    }
    Cost::of(&fabric, released)
}

/// Tree in which a full subtree of the lowest depth that suffices comes before the next one.
#[derive(Clone, Copy, Debug)]
struct ReverseTree {
    nodes: u32,
    width: u32,
    /// Nodes of the smallest full tree that has room for all.
    full: u64,
}

impl ReverseTree {
    fn new(nodes: u32, width: u32) -> ReverseTree {
        let mut full = 1;
        while full < u64::from(nodes) {
            full = full * u64::from(width) + 1;
        }
        ReverseTree { nodes, width, full }
    }

    /// The parent of a node other than the root. With more width than nodes it is the root.
    fn parent(self, node: u32) -> u32 {
        if self.width > self.nodes {
            return ROOT;
        }
        let (mut parent, mut full) = (0u64, self.full);
        loop {
            let part = (full - 1) / u64::from(self.width);
            let child = parent + 1 + (u64::from(node) - parent - 1) / part * part;
            if child == u64::from(node) {
                return parent as u32;
            }
            (parent, full) = (child, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reverse_tree_is_filled_subtree_by_subtree() {
        let tree = ReverseTree::new(10, 2);
        let parents: Vec<u32> = (1..10).map(|node| tree.parent(node)).collect();
        // Room for 15: 1 and 8 are the roots of subtrees of seven nodes.
        assert_eq!(parents, [0, 1, 2, 2, 1, 5, 5, 0, 8]);
        assert!((1..10).all(|node| ReverseTree::new(10, 50).parent(node) == 0));
    }
}
