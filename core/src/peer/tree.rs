//! Tree of the nodes of a job.

use core::iter::FusedIterator;
use core::ops::Range;

use serde::{Deserialize, Serialize};

/// Minimum number of children of an inner node, if there are enough nodes. With 1 the tree would be a chain.
pub const RADIX_MIN: u32 = 2;

/// Added to a radix: node 1 is the root of the tree, and node 0 is a leaf below it.
pub const ROOT_ONE: u32 = 1 << 31;

/// Tree over the nodes `0..nodes`. Every subtree is a range of node numbers.
///
/// The root of a range is its first node. The others are divided into at most `radix` ranges, each of them a tree of
/// the same kind. Their lengths differ by at most one, and the longer ones come first. The root of the whole tree is
/// node 0, and the number of a parent is lower than those of its children. All nodes derive the tree from the same two
/// numbers.
///
/// With [`ROOT_ONE`] the nodes from 1 on form a tree of this kind, and node 0 is one more child of its root, node 1. Nodes
/// exchange messages without node 0 then.
///
/// Every method takes O(depth) steps. The depth is at most 32. Node numbers that are not in the tree give `None` or an
/// empty range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    nodes: u32,
    radix: u32,
}

impl Tree {
    /// Creates a tree of `nodes` nodes with at most `radix` children per node, or [`RADIX_MIN`] if `radix` is lower. The
    /// radix may include [`ROOT_ONE`].
    pub const fn new(nodes: u32, radix: u32) -> Tree {
        Tree { nodes, radix }
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the maximum number of children of a node. The lower bound is applied here because a deserialized tree
    /// may contain a lower value.
    pub const fn radix(&self) -> u32 {
        let radix = self.radix & !ROOT_ONE;
        if radix < RADIX_MIN { RADIX_MIN } else { radix }
    }

    /// Returns the second number of [`Tree::new`]: the radix, with [`ROOT_ONE`] for a tree of that form.
    pub const fn form(&self) -> u32 {
        self.radix() | self.radix & ROOT_ONE
    }

    /// Returns whether node 0 is a leaf below node 1.
    const fn has_root_one(&self) -> bool {
        self.radix & ROOT_ONE != 0 && self.nodes > 1
    }

    /// Returns the number of nodes before the root.
    const fn before_root(&self) -> u32 {
        self.has_root_one() as u32
    }

    /// Returns the parent of `node`, or `None` for the root.
    pub fn parent(&self, node: u32) -> Option<u32> {
        self.find(node)?.parent
    }

    /// Returns whether one of the nodes is the parent of the other.
    pub fn are_neighbours(&self, one: u32, other: u32) -> bool {
        self.parent(one) == Some(other) || self.parent(other) == Some(one)
    }

    /// Returns the range of nodes in the subtree of `node`. It is its first, except for the root of a tree with [`ROOT_ONE`].
    pub fn subtree(&self, node: u32) -> Range<u32> {
        self.find(node).map_or(0..0, |place| place.subtree)
    }

    /// Returns the subtrees of the children of `node` in ascending order. A child is the start of its range.
    pub fn children(&self, node: u32) -> Children {
        self.parts(&self.subtree(node)).children()
    }

    /// Returns the neighbour of `from` on the path to `to`, or `None` if both are the same.
    pub fn towards(&self, from: u32, to: u32) -> Option<u32> {
        if to >= self.nodes {
            return None;
        }
        let place = self.find(from)?;
        if from == to {
            None
        } else if place.subtree.contains(&to) {
            // Only the root can have a node before itself in its subtree.
            Some(if to == 0 { 0 } else { self.parts(&place.subtree).holding(to).start })
        } else {
            place.parent
        }
    }

    /// Returns the number of links between the root and the farthest node.
    pub fn depth(&self) -> u32 {
        let mut subtree = 0..self.nodes;
        let mut depth = 0;
        while let Some(longest) = self.parts(&subtree).longest() {
            subtree = longest;
            depth += 1;
        }
        depth
    }

    fn find(&self, node: u32) -> Option<Place> {
        if node >= self.nodes {
            return None;
        }
        if node == 0 && self.has_root_one() {
            return Some(Place { parent: Some(1), subtree: 0..1 });
        }
        let mut place = Place { parent: None, subtree: 0..self.nodes };
        let mut root = self.before_root();
        while root != node {
            place = Place { parent: Some(root), subtree: self.parts(&place.subtree).holding(node) };
            root = place.subtree.start;
        }
        Some(place)
    }

    /// Returns the division of `subtree` below its root.
    fn parts(&self, subtree: &Range<u32>) -> Parts {
        let has_zero = self.has_root_one() && *subtree == (0..self.nodes);
        let below = (subtree.end - subtree.start).saturating_sub(1 + u32::from(has_zero));
        let count = below.min(self.radix());
        let (length, longer) = match count {
            0 => (0, 0),
            _ => (below / count, below % count),
        };
        Parts { has_zero, start: subtree.end - below, count, length, longer }
    }
}

/// Location of a node.
struct Place {
    parent: Option<u32>,
    subtree: Range<u32>,
}

/// Division into `count` adjacent ranges from `start` on. Each has `length` nodes, and each of the first `longer` has
/// one more. Node 0 may be one more range.
struct Parts {
    has_zero: bool,
    start: u32,
    count: u32,
    length: u32,
    longer: u32,
}

impl Parts {
    fn children(self) -> Children {
        let Parts { has_zero, start: next, count: left, length, longer } = self;
        Children { has_zero, next, left, length, longer }
    }

    /// Returns the longest range. The first is at least as long as the others.
    fn longest(mut self) -> Option<Range<u32>> {
        self.has_zero &= self.count == 0;
        self.children().next()
    }

    /// Returns the range that contains `node`, which is not 0. One of them must contain it.
    fn holding(&self, node: u32) -> Range<u32> {
        let at = node - self.start;
        let split = self.longer * (self.length + 1);
        let (first, step) = match at < split {
            true => (self.start, self.length + 1),
            false => (self.start + split, self.length),
        };
        let start = node - (node - first) % step;
        start..start + step
    }
}

/// Iterator over the subtrees of a node's children, returned by [`Tree::children`].
#[derive(Clone, Debug)]
pub struct Children {
    has_zero: bool,
    next: u32,
    left: u32,
    length: u32,
    longer: u32,
}

impl Iterator for Children {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        if core::mem::take(&mut self.has_zero) {
            return Some(0..1);
        }
        self.left = self.left.checked_sub(1)?;
        let more = u32::from(self.longer > 0);
        self.longer -= more;
        let start = self.next;
        self.next += self.length + more;
        Some(start..self.next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left as usize + usize::from(self.has_zero);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Children {}
impl FusedIterator for Children {}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn children(tree: Tree, node: u32) -> Vec<Range<u32>> {
        tree.children(node).collect()
    }

    #[test]
    fn nodes_are_divided_evenly_with_the_longer_parts_first() {
        let tree = Tree::new(12, 3);
        assert_eq!(children(tree, 0), [1..5, 5..9, 9..12]);
        assert_eq!(children(tree, 1), [2..3, 3..4, 4..5]);
        assert_eq!(children(tree, 9), [10..11, 11..12]);
        assert_eq!(children(tree, 11), []);
        assert_eq!((tree.parent(0), tree.parent(5), tree.parent(8)), (None, Some(0), Some(5)));
        assert_eq!(tree.subtree(5), 5..9);
        assert_eq!(
            (tree.towards(8, 10), tree.towards(5, 10), tree.towards(0, 10)),
            (Some(5), Some(0), Some(9))
        );
        assert!(tree.are_neighbours(5, 0) && tree.are_neighbours(0, 5) && !tree.are_neighbours(5, 9));
        assert_eq!(tree.towards(4, 4), None);
        assert_eq!(tree.depth(), 2);
    }

    #[test]
    fn node_zero_is_a_leaf_below_the_root_of_the_others() {
        let tree = Tree::new(12, 3 | ROOT_ONE);
        assert_eq!(children(tree, 1), [0..1, 2..6, 6..9, 9..12]);
        assert_eq!((children(tree, 0), tree.subtree(0), tree.subtree(1)), (Vec::new(), 0..1, 0..12));
        assert_eq!(children(tree, 2), [3..4, 4..5, 5..6]);
        assert_eq!((tree.parent(0), tree.parent(1), tree.parent(2)), (Some(1), None, Some(1)));
        let next = |from, to| tree.towards(from, to);
        assert_eq!((next(0, 11), next(11, 0), next(9, 0), next(1, 0)), (Some(1), Some(9), Some(1), Some(0)));
        assert_eq!((tree.depth(), tree.radix(), tree.form()), (2, 3, 3 | ROOT_ONE));
        let two = Tree::new(2, 8 | ROOT_ONE);
        assert_eq!((two.children(1).next(), two.children(1).len()), (Some(0..1), 1));
        assert_eq!((two.depth(), two.parent(0)), (1, Some(1)));
        // A node that is alone is the root.
        let alone = Tree::new(1, 8 | ROOT_ONE);
        assert_eq!((alone.parent(0), alone.subtree(0), alone.depth()), (None, 0..1, 0));
    }

    #[test]
    fn what_is_not_there_is_empty() {
        for tree in [Tree::new(0, 4), Tree::new(3, 4), Tree::new(3, 4 | ROOT_ONE)] {
            for node in [3, 4, u32::MAX] {
                assert_eq!(tree.parent(node), None);
                assert_eq!(tree.subtree(node), 0..0);
                assert_eq!(tree.children(node).len(), 0);
                assert_eq!((tree.towards(0, node), tree.towards(node, 0)), (None, None));
            }
        }
        assert_eq!(Tree::new(0, 4).depth(), 0);
        assert_eq!(Tree::new(1, 4).depth(), 0);
    }

    #[test]
    fn a_radix_below_two_makes_no_chain() {
        for radix in [0, 1] {
            let tree = Tree::new(u32::MAX, radix);
            assert_eq!(tree.radix(), 2);
            assert_eq!(tree.depth(), 31);
            assert_eq!(tree.towards(0, u32::MAX - 1), Some(1 << 31));
        }
    }

    proptest! {
        #[test]
        fn children_and_parents_agree(nodes in 1u32..300, radix in 0u32..40, is_flat in any::<bool>()) {
            let tree = Tree::new(nodes, if is_flat { radix } else { radix | ROOT_ONE });
            let root = u32::from(!is_flat && nodes > 1);
            let mut hanging = 0;
            let mut deepest = 0;
            for node in 0..nodes {
                let subtree = tree.subtree(node);
                let mut parts = children(tree, node);
                prop_assert_eq!(parts.len(), tree.children(node).len());
                if node == root && root > 0 {
                    prop_assert_eq!(&subtree, &(0..nodes));
                    prop_assert_eq!((parts.remove(0), tree.parent(0), tree.subtree(0)), (0..1, Some(root), 0..1));
                    hanging += 1;
                } else {
                    prop_assert_eq!(subtree.start, node);
                }
                prop_assert_eq!(tree.parent(node).is_none(), node == root);
                prop_assert!(parts.len() <= tree.radix() as usize);
                let mut next = node + 1;
                for part in &parts {
                    prop_assert_eq!(part.start, next);
                    prop_assert!(part.end > part.start);
                    prop_assert_eq!(tree.parent(part.start), Some(node));
                    prop_assert_eq!(&tree.subtree(part.start), part);
                    next = part.end;
                }
                prop_assert_eq!(next, subtree.end);
                let lengths = || parts.iter().map(ExactSizeIterator::len);
                prop_assert!(lengths().max().unwrap_or(0) - lengths().min().unwrap_or(0) <= 1);
                hanging += parts.len();
                let above = core::iter::successors(tree.parent(node), |&above| tree.parent(above)).count();
                deepest = deepest.max(above);
            }
            prop_assert_eq!(hanging, nodes as usize - 1);
            prop_assert_eq!(deepest, tree.depth() as usize);
        }

        #[test]
        fn each_hop_leads_nearer(
            nodes in 1u32.., radix in any::<u32>(), from in any::<u32>(), to in any::<u32>(),
        ) {
            let tree = Tree::new(nodes, radix);
            let (from, to) = (from % nodes, to % nodes);
            let hops = core::iter::successors(Some(from), |&at| tree.towards(at, to)).collect::<Vec<_>>();
            prop_assert_eq!(hops.last(), Some(&to));
            prop_assert!(hops.len() - 1 <= 2 * tree.depth() as usize);
            for pair in hops.windows(2) {
                prop_assert!(tree.parent(pair[0]) == Some(pair[1]) || tree.parent(pair[1]) == Some(pair[0]));
            }
        }
    }
}
