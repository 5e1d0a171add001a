//! Fences of PRRTE: pairs are gathered up a tree of daemons, and all are sent down it again.
//!
//! Source: openpmix/prrte, `src/mca/grpcomm/direct/grpcomm_direct_fence.c` at 0bfe1d83, `grpcomm_direct_xcast.c` at
//! 0c7a3829, `src/rml/rml.c` (radix 64). The payload is not compressed here.

use super::{Cost, Load};
use crate::fabric::{Charge, Fabric};

/// Default of `rml_base_radix`.
const RADIX: u32 = 64;
/// Bytes of a header with the signature of the fence, about.
const HEADER: u64 = 128;
/// Bytes of a pair beside key and value, about: lengths, types and a rank.
const FRAMING: u64 = 16;
/// The DVM master.
const ROOT: u32 = 0;

#[derive(Clone, Copy, Debug)]
enum Body {
    Up,
    Down,
    /// All daemons of a subtree have the message.
    Acknowledged,
}

/// A daemon sends the pairs of its subtree to its parent. The root sends all pairs down, each daemon passes them on, and
/// confirmations come up.
pub fn fence(load: Load, charge: Charge) -> Cost {
    let nodes = load.daemons + 1;
    let mut fabric = Fabric::new(nodes, charge);
    let pairs = load.bytes(FRAMING);
    let parents: Vec<u32> = (0..nodes).map(|node| parent(node, RADIX)).collect();
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    let mut subtree: Vec<u64> = vec![pairs; nodes as usize];
    subtree[ROOT as usize] = 0;
    for node in (1..nodes).rev() {
        let parent = parents[node as usize] as usize;
        children[parent].push(node);
        subtree[parent] += subtree[node as usize];
    }
    let all = HEADER + subtree[ROOT as usize];
    let mut waiting: Vec<usize> = children.iter().map(Vec::len).collect();
    let mut unconfirmed = waiting.clone();
    for node in (1..nodes).filter(|&node| children[node as usize].is_empty()) {
        fabric.send(node, parents[node as usize], HEADER + subtree[node as usize], Body::Up);
    }
    let mut released = 0;
    while let Some(message) = fabric.receive() {
        let node = message.to;
        let at = node as usize;
        let mut confirmed = false;
        match message.body {
            Body::Up => {
                waiting[at] -= 1;
                if waiting[at] == 0 && node != ROOT {
                    fabric.send(node, parents[at], HEADER + subtree[at], Body::Up);
                }
                if waiting[at] == 0 && node == ROOT {
                    children[at].iter().for_each(|&child| fabric.send(ROOT, child, all, Body::Down));
                }
            }
            Body::Down => {
                children[at].iter().for_each(|&child| fabric.send(node, child, all, Body::Down));
                released = released.max(fabric.now(node));
                confirmed = children[at].is_empty();
            }
            Body::Acknowledged => {
                unconfirmed[at] -= 1;
                confirmed = unconfirmed[at] == 0 && node != ROOT;
            }
        }
        if confirmed {
            fabric.send(node, parents[at], HEADER, Body::Acknowledged);
        }
    }
    Cost::of(&fabric, released)
}

/// The parent of a node. Levels are full but for the last, whose nodes take turns among the parents.
fn parent(node: u32, radix: u32) -> u32 {
    let (mut first, mut len, mut above) = (0, 1, 0);
    while node >= first + len {
        (above, first, len) = (first, first + len, len * radix);
    }
    if node == ROOT { ROOT } else { above + (node - first) % (len / radix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_level_take_turns() {
        let parents: Vec<u32> = (1..8).map(|node| parent(node, 2)).collect();
        assert_eq!(parents, [0, 0, 1, 2, 1, 2, 3]);
        assert_eq!((parent(64, 64), parent(65, 64), parent(128, 64), parent(129, 64)), (0, 1, 64, 1));
    }
}
