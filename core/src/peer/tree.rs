//! Tree of the nodes of a job.
//!
//! Node 0, the head, has no ranks. It is the root, or with [`ROOT_ONE`] a leaf below node 1. Subtrees differ in size, because a
//! parent handles one message after the other. A level of the tree costs a fence one hop each way, and the start of daemons one
//! login; a child costs its parent one more copy of all data.

use core::iter::FusedIterator;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::tables::link_set::LINKS_MAX;

/// Minimum number of children of an inner node, if there are enough nodes. With 1 the tree would be a chain.
pub const RADIX_MIN: u32 = 2;
/// Maximum number of children of a node: 1,022 with the feature `wide`, and 32 without.
pub const RADIX_MAX: u32 = if cfg!(feature = "wide") { LINKS_MAX - 1 } else { 32 };

/// Added to a radix: node 1 is the root of the tree, and node 0 is a leaf below it.
pub const ROOT_ONE: u32 = 1 << 31;

/// Added to a radix, times a number of nodes: so many nodes at the end join later, as children of node 0.
pub const LATE: u32 = 1 << 12;
/// Bits of the number of nodes that join later.
const LATE_BITS: u32 = 0xfff * LATE;

/// Tree over the nodes `0..nodes`. Every subtree is a range of node numbers.
///
/// The root of a range is its first node. The others are divided into at most `radix` ranges, each of them a tree of
/// the same kind. The root of the whole tree is node 0, and the number of a parent is lower than those of its children.
/// All nodes derive the tree from the same two numbers.
///
/// The tree has the lowest depth that the radix allows. Within this depth the lengths of the ranges are those with which
/// a fence takes the fewest steps up the tree. A node handles the messages of its children one after the other, a step
/// each, and a message is on its way for a step. A child whose message may arrive later can have a longer range. The first
/// child has the longest range. Its message arrives last, and it is the first to get one from its parent.
///
/// With [`ROOT_ONE`] the nodes from 1 on form a tree of this kind, and node 0 is one more child of its root, node 1. Nodes
/// exchange messages without node 0 then.
///
/// With [`LATE`] the last nodes are leaves below node 0, beside the tree of the others. Node 0 has at most [`RADIX_MAX`] children.
///
/// A method takes some thousand instructions for each level on the way from the root; [`Tree::place`] is for those that
/// ask often. The depth is at most 32. Node numbers that are not in the tree give `None` or an empty range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    nodes: u32,
    radix: u32,
}

impl Tree {
    /// Creates a tree of `nodes` nodes with at most `radix` children per node. A radix outside [`RADIX_MIN`] to
    /// [`RADIX_MAX`] counts as the nearer of the two. It may include [`ROOT_ONE`].
    pub const fn new(nodes: u32, radix: u32) -> Tree {
        Tree { nodes, radix }
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the maximum number of children of a node. The bounds are applied here because a deserialized tree
    /// may contain another value.
    pub const fn radix(&self) -> u32 {
        match self.given_radix() {
            ..RADIX_MIN => RADIX_MIN,
            radix @ RADIX_MIN..RADIX_MAX => radix,
            _ => RADIX_MAX,
        }
    }

    const fn given_radix(&self) -> u32 {
        self.radix & !ROOT_ONE & !LATE_BITS
    }

    /// Returns whether the tree is the same in all builds: one without the feature `wide` has fewer children for a wide tree.
    pub const fn is_whole(&self) -> bool {
        self.given_radix() <= RADIX_MAX
    }

    /// Returns the second number of [`Tree::new`]: the radix, with [`ROOT_ONE`] and [`LATE`] for trees of these forms.
    pub const fn form(&self) -> u32 {
        self.radix() | self.radix & (ROOT_ONE | LATE_BITS)
    }

    /// Returns the number of nodes at the end that join later.
    pub const fn late(&self) -> u32 {
        if self.has_root_one() || self.nodes == 0 {
            return 0;
        }
        let (late, room) = ((self.radix & LATE_BITS) / LATE, RADIX_MAX - self.radix());
        let late = if late < room { late } else { room };
        if late < self.nodes { late } else { self.nodes - 1 }
    }

    /// Returns the first of the nodes that join later, or the number of nodes without any.
    pub const fn first_late(&self) -> u32 {
        self.nodes - self.late()
    }

    /// Returns whether node 0 is a leaf below node 1.
    pub(crate) const fn has_root_one(&self) -> bool {
        self.radix & ROOT_ONE != 0 && self.nodes > 1
    }

    /// Returns the number of nodes before the root.
    const fn before_root(&self) -> u32 {
        self.has_root_one() as u32
    }

    /// Returns the parent of `node`, or `None` for the root.
    pub fn parent(&self, node: u32) -> Option<u32> {
        self.place(node).parent
    }

    /// Returns whether one of the nodes is the parent of the other.
    pub fn are_neighbours(&self, one: u32, other: u32) -> bool {
        self.parent(one) == Some(other) || self.parent(other) == Some(one)
    }

    /// Returns the range of nodes in the subtree of `node`. It is its first, except for the root of a tree with [`ROOT_ONE`].
    pub fn subtree(&self, node: u32) -> Range<u32> {
        self.place(node).subtree
    }

    /// Returns the subtrees of the children of `node`. A child is the start of its range. They are in ascending order of
    /// the nodes and in descending order of the lengths, except for node 0 below node 1, which comes first.
    pub fn children(&self, node: u32) -> Children {
        self.place(node).children
    }

    /// Returns the neighbour of `from` on the path to `to`, or `None` if both are the same.
    pub fn towards(&self, from: u32, to: u32) -> Option<u32> {
        if to < self.nodes { self.place(from).towards(to) } else { None }
    }

    /// Returns the number of links between the root and the farthest node.
    pub const fn depth(&self) -> u32 {
        let late = self.late();
        let below_zero = (self.has_root_one() || late > 0) as u32;
        let (mut depth, mut room) = (0, 1u32);
        while room < self.nodes - late - self.before_root() {
            room = room.saturating_mul(self.radix()).saturating_add(1);
            depth += 1;
        }
        if depth < below_zero { below_zero } else { depth }
    }

    /// Returns the place of `node`. A node that is not in the tree has an empty one.
    pub fn place(&self, node: u32) -> Place {
        let mut place = Place { parent: None, subtree: 0..0, children: Children::NONE };
        if node >= self.nodes {
            return place;
        }
        if node == 0 && self.has_root_one() {
            (place.parent, place.subtree) = (Some(1), 0..1);
            return place;
        }
        let mut depth = self.depth();
        let mut root = self.before_root();
        place.subtree = 0..self.nodes;
        self.divide(&place.subtree, depth, &mut place.children);
        while root != node
            && let Some(subtree) = place.children.find(|part| part.contains(&node))
        {
            depth -= 1;
            place.parent = Some(root);
            root = subtree.start;
            place.subtree = subtree;
            self.divide(&place.subtree, depth, &mut place.children);
        }
        place
    }

    /// Divides a subtree below its root, which is at most `depth` levels deep. The result is written in its place, because
    /// firmware is short of stack.
    fn divide(&self, subtree: &Range<u32>, depth: u32, children: &mut Children) {
        let is_whole = *subtree == (0..self.nodes);
        let has_zero = is_whole && self.has_root_one();
        let late = if is_whole { self.late() } else { 0 };
        let below = (subtree.end - subtree.start).saturating_sub(1 + late + u32::from(has_zero));
        (children.has_zero, children.next, children.at) = (has_zero, subtree.end - below - late, 0);
        children.lengths.fill(0);
        if below > 0 {
            set_lengths(&mut children.lengths, below, self.radix() as usize, depth);
        }
        let free = children.lengths.iter_mut().filter(|length| **length == 0);
        free.take(late as usize).for_each(|length| *length = 1);
    }
}

/// Place of a node in a [`Tree`].
#[derive(Clone, Debug)]
pub struct Place {
    /// The parent, except for the root.
    pub parent: Option<u32>,
    /// The nodes of the subtree.
    pub subtree: Range<u32>,
    /// The subtrees of the children.
    pub children: Children,
}

impl Place {
    /// Returns the neighbour on the path to another node of the tree, or `None` for the node itself.
    pub fn towards(&self, to: u32) -> Option<u32> {
        if !self.subtree.contains(&to) {
            return self.parent;
        }
        self.children.clone().find(|part| part.contains(&to)).map(|part| part.start)
    }
}

/// Steps within which the root of any tree has all messages: [`RADIX_MAX`] + 1 for each of its levels. There are 4 with the
/// feature `wide`, and 7 without. Trees with a lower radix have more levels, but take fewer steps.
const STEPS_MAX: usize = (RADIX_MAX as usize + 1) * if cfg!(feature = "wide") { 4 } else { 7 };

/// Steps of trees of usual radix. Wider ones take more memory.
const STEPS_FEW: usize = 256;

/// Divides `below` nodes among at most `radix` children whose subtrees are at most `depth` - 1 levels deep. The lengths of
/// children that are not needed stay 0.
fn set_lengths(lengths: &mut [u32; RADIX_MAX as usize], below: u32, radix: usize, depth: u32) {
    let len = depth as usize * (radix + 1);
    match len {
        ..=STEPS_FEW => set_lengths_within::<STEPS_FEW>(lengths, below, radix, depth),
        _ => set_lengths_within::<STEPS_MAX>(lengths, below, radix, depth),
    }
}

/// Does the same for trees of at most `STEPS` steps. As a part of the caller, it would take the stack of the widest trees for all.
#[inline(never)]
fn set_lengths_within<const STEPS: usize>(
    lengths: &mut [u32; RADIX_MAX as usize],
    below: u32,
    radix: usize,
    depth: u32,
) {
    let mut most = [1; STEPS];
    let most = &mut most[..depth as usize * (radix + 1)];
    (1..depth).for_each(|_| add_level(most, radix));
    // The message of child `i` arrives `i` steps before that of child 0. The fewest steps that leave room for all are sought.
    let mut room = 0;
    let steps = (0..most.len()).find(|&steps| {
        room += u64::from(most[steps]) - u64::from(steps.checked_sub(radix).map_or(0, |steps| most[steps]));
        room >= below.into()
    });
    let steps = steps.unwrap_or(most.len() - 1);
    let mut left = below;
    for (length, most) in lengths.iter_mut().zip(most[..=steps].iter().rev()).take(radix) {
        *length = left.min(*most);
        left -= *length;
    }
}

/// Allows one more level below the root of the trees. Element `i` of `most` says how many nodes a tree can have whose root
/// has all messages within `i` steps.
fn add_level(most: &mut [u32], radix: usize) {
    let last = most.len() - 1;
    let mut children: u32 = most[(last - 1).saturating_sub(radix)..last - 1].iter().sum();
    // From the last on, because a number follows from lower ones of the level before.
    for steps in (2..=last).rev() {
        most[steps] = 1 + children;
        children = children - most[steps - 2] + (steps - 2).checked_sub(radix).map_or(0, |first| most[first]);
    }
}

/// Iterator over the subtrees of a node's children, returned by [`Tree::children`].
#[derive(Clone, Debug)]
pub struct Children {
    has_zero: bool,
    next: u32,
    lengths: [u32; RADIX_MAX as usize],
    at: usize,
}

impl Children {
    const NONE: Children = Children { has_zero: false, next: 0, lengths: [0; RADIX_MAX as usize], at: 0 };
}

impl Iterator for Children {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        if core::mem::take(&mut self.has_zero) {
            return Some(0..1);
        }
        let length = *self.lengths.get(self.at).filter(|length| **length > 0)?;
        self.at += 1;
        let start = self.next;
        self.next += length;
        Some(start..self.next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Children {
    fn len(&self) -> usize {
        let left = self.lengths[self.at..].iter().take_while(|length| **length > 0).count();
        left + usize::from(self.has_zero)
    }
}

impl FusedIterator for Children {}

#[cfg(test)]
mod tests {
    use core::cmp::Reverse;
    use std::collections::HashSet;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn children(tree: Tree, node: u32) -> Vec<Range<u32>> {
        tree.children(node).collect()
    }

    #[test]
    fn a_child_whose_message_is_handled_later_has_more_nodes() {
        let ends = |nodes, radix| {
            children(Tree::new(nodes, radix), 0).iter().map(|part| part.end).collect::<Vec<_>>()
        };
        assert_eq!(ends(9, 8), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(ends(17, 8), [6, 10, 13, 15, 16, 17]);
        assert_eq!(ends(73, 8), [10, 19, 28, 37, 46, 55, 64, 73], "a full tree");
        assert_eq!(ends(257, 8), [59, 111, 156, 193, 223, 246, 257]);
    }

    #[test]
    fn nodes_know_their_parents_and_the_way_to_others() {
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
        assert_eq!(children(tree, 1), [0..1, 2..6, 6..10, 10..12]);
        assert_eq!((children(tree, 0), tree.subtree(0), tree.subtree(1)), (Vec::new(), 0..1, 0..12));
        assert_eq!(children(tree, 2), [3..4, 4..5, 5..6]);
        assert_eq!((tree.parent(0), tree.parent(1), tree.parent(2)), (Some(1), None, Some(1)));
        let next = |from, to| tree.towards(from, to);
        assert_eq!(
            (next(0, 11), next(11, 0), next(10, 0), next(1, 0)),
            (Some(1), Some(10), Some(1), Some(0))
        );
        assert_eq!((tree.depth(), tree.radix(), tree.form()), (2, 3, 3 | ROOT_ONE));
        let two = Tree::new(2, 8 | ROOT_ONE);
        assert_eq!((two.children(1).next(), two.children(1).len()), (Some(0..1), 1));
        assert_eq!((two.depth(), two.parent(0)), (1, Some(1)));
        // A node that is alone is the root.
        let alone = Tree::new(1, 8 | ROOT_ONE);
        assert_eq!((alone.parent(0), alone.subtree(0), alone.depth()), (None, 0..1, 0));
    }

    #[test]
    fn late_nodes_are_leaves_below_the_root_and_change_no_place() {
        let (before, tree) = (Tree::new(9, 3), Tree::new(12, 3 | (3 * LATE)));
        let late = [9..10, 10..11, 11..12];
        assert_eq!(children(tree, 0), [children(before, 0), late.into()].concat());
        for node in 1..9 {
            assert_eq!((tree.parent(node), tree.subtree(node)), (before.parent(node), before.subtree(node)));
            assert_eq!(children(tree, node), children(before, node));
        }
        assert_eq!((tree.parent(11), children(tree, 11), tree.subtree(0)), (Some(0), Vec::new(), 0..12));
        assert_eq!(
            (tree.towards(4, 11), tree.towards(11, 4), tree.late()),
            (before.towards(4, 0), Some(0), 3)
        );
        assert_eq!((tree.radix(), tree.form(), tree.depth()), (3, 3 | (3 * LATE), before.depth()));
        // A head has no more children than a node can have, and is there from the start.
        assert_eq!(Tree::new(RADIX_MAX + 68, (RADIX_MAX - 2) | (9 * LATE)).late(), 2);
        let all_late = Tree::new(3, 8 | (9 * LATE));
        assert_eq!((children(all_late, 0), all_late.depth()), (vec![1..2, 2..3], 1));
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

    #[test]
    fn a_tree_that_another_build_has_wider_is_known() {
        for form in [0, ROOT_ONE, 5 * LATE] {
            assert!(Tree::new(9, RADIX_MAX | form).is_whole());
            assert!(!Tree::new(9, (RADIX_MAX + 1) | form).is_whole());
        }
        assert_eq!(Tree::new(9, RADIX_MAX + 1).radix(), RADIX_MAX);
    }

    #[test]
    fn the_largest_trees_are_complete_within_the_steps() {
        for radix in RADIX_MIN..=RADIX_MAX {
            let tree = Tree::new(u32::MAX, radix);
            assert!(tree.depth() * (radix + 1) <= STEPS_MAX as u32, "radix {radix}");
            let last =
                core::iter::successors(Some(0), |&node| children(tree, node).last().map(|part| part.start));
            assert_eq!(last.map(|node| tree.subtree(node).end).collect::<HashSet<_>>(), [u32::MAX].into());
        }
    }

    /// Returns the steps until a node has all messages of its subtree.
    fn steps(tree: Tree, node: u32) -> u32 {
        let parts = children(tree, node);
        let arrival = |(at, part): (usize, &Range<u32>)| steps(tree, part.start) + 2 + at as u32;
        parts.iter().enumerate().map(arrival).max().unwrap_or(0)
    }

    /// Returns the fewest steps of all divisions of `below` nodes among at most `radix` children, none longer than `longest`.
    fn fewest(below: u32, longest: u32, radix: u32, depth: u32, all: u32) -> Option<u32> {
        if below == 0 {
            return Some(0);
        }
        let left = radix.checked_sub(1).filter(|_| depth > 0)?;
        let of = |length: u32| {
            let child = fewest(length - 1, length - 1, all, depth - 1, all)? + 2 + all - radix;
            Some(child.max(fewest(below - length, length, left, depth, all)?))
        };
        (1..=longest.min(below)).filter_map(of).min()
    }

    #[test]
    fn no_division_takes_fewer_steps() {
        for radix in [2, 3, 4, 8] {
            for nodes in 1..15 {
                let tree = Tree::new(nodes, radix);
                let best = fewest(nodes - 1, nodes - 1, radix, tree.depth(), radix);
                assert_eq!(Some(steps(tree, 0)), best, "{nodes} nodes, radix {radix}");
            }
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
                prop_assert!(parts.is_sorted_by_key(|part| Reverse(part.len())));
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
