//! Links of a node to its neighbours in the tree, with the part of the log that each has been sent.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::tree::Tree;

/// The most links that a node may have: each has a bit in sets of them.
pub const LINKS_MAX: u32 = 63;

/// A link to a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// The neighbour.
    pub(crate) node: u32,
    /// Whether it is the parent.
    pub(crate) up: bool,
    /// A child's part of the tree; for the parent, this node's own.
    pub(crate) part: Range<u32>,
    /// How much of the log has been sent.
    pub(crate) cursor: u32,
    /// The newest end of a process that has been told.
    pub(crate) told: u32,
    /// Whether the host cannot send on it at present.
    pub(crate) blocked: bool,
    /// Whether there may be something to say.
    pub(crate) events_pending: bool,
}

impl Link {
    /// An empty slot.
    pub(crate) const EMPTY: Link =
        Link { node: 0, up: false, part: 0..0, cursor: 0, told: 0, blocked: false, events_pending: false };

    /// Whether the neighbour learns over this link what comes from that node.
    pub(crate) fn carries(&self, origin: u32) -> bool {
        self.part.contains(&origin) == self.up
    }
}

/// All links of a node, the parent's first.
#[derive(Debug)]
pub(crate) struct Links<'s> {
    slots: &'s mut [Link],
    count: usize,
    node: u32,
    tree: Tree,
}

impl<'s> Links<'s> {
    /// No links: the only node.
    pub(crate) fn new(slots: &'s mut [Link]) -> Links<'s> {
        slots.fill(Link::default());
        Links { slots, count: 0, node: 0, tree: Tree::new(1, 2) }
    }

    /// Makes this node one of a tree's; nothing, and nothing is changed, when it is not, or has more neighbours than
    /// there are slots.
    pub(crate) fn join(&mut self, node: u32, tree: Tree) -> Option<()> {
        let parent = tree.parent(node);
        let count = tree.children(node).count() + usize::from(parent.is_some());
        if node >= tree.nodes() || count > self.slots.len().min(LINKS_MAX as usize) {
            return None;
        }
        let own = tree.subtree(node);
        let up = parent.map(|node| Link { node, up: true, part: own, ..Link::default() });
        let down = tree.children(node).map(|part| Link { node: part.start, part, ..Link::default() });
        self.slots.iter_mut().zip(up.into_iter().chain(down)).for_each(|(slot, link)| *slot = link);
        (self.count, self.node, self.tree) = (count, node, tree);
        Some(())
    }

    /// This node's number.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// The tree that it is in.
    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// Whether there are other nodes.
    pub(crate) fn are_any(&self) -> bool {
        self.tree.nodes() > 1
    }

    /// Whether there is a parent, whose link is number 0 then.
    pub(crate) fn have_parent(&self) -> bool {
        self.slots[..self.count].first().is_some_and(|link| link.up)
    }

    /// A bit for each child's link.
    pub(crate) fn children(&self) -> u64 {
        (0u32..)
            .zip(&self.slots[..self.count])
            .filter(|(_, link)| !link.up)
            .fold(0, |set, (at, _)| set | 1 << at)
    }

    /// The bit of the child in whose part that node is; none where it is this node, or above.
    pub(crate) fn below(&self, node: u32) -> u64 {
        let child = |link: &Link| !link.up && link.part.contains(&node);
        self.slots[..self.count].iter().position(child).map_or(0, |at| 1 << at)
    }

    /// The link to that neighbour.
    pub(crate) fn to(&self, node: u32) -> Option<usize> {
        self.slots[..self.count].iter().position(|link| link.node == node)
    }

    /// A link by its number.
    pub(crate) fn get(&self, at: usize) -> Option<&Link> {
        self.slots[..self.count].get(at)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Link> {
        self.slots[..self.count].get_mut(at)
    }

    /// A link with something to say on which the host can send.
    #[inline]
    pub(crate) fn ready(&self) -> Option<usize> {
        self.slots[..self.count].iter().position(|link| link.events_pending && !link.blocked)
    }

    /// There may be something to say on these links.
    pub(crate) fn wake(&mut self, links: u64) {
        let links_of = (0u32..).zip(&mut self.slots[..self.count]);
        links_of.filter(|(at, _)| links & (1 << at) != 0).for_each(|(_, link)| link.events_pending = true);
    }

    /// The log is empty again.
    pub(crate) fn rewind(&mut self) {
        self.slots.iter_mut().for_each(|link| link.cursor = 0);
    }

    /// All of it, for saving: the links in use, this node, and its tree.
    pub(crate) fn state(&self) -> (&[Link], u32, Tree) {
        (&self.slots[..self.count], self.node, self.tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_reaches_every_other_node_by_one_way() {
        let tree = Tree::new(23, 3);
        for node in 0..23 {
            let mut slots = [const { LINK }; 4];
            let mut links = Links::new(&mut slots);
            links.join(node, tree).unwrap();
            for origin in 0..23 {
                for at in 0..links.count {
                    let link = links.get(at).unwrap();
                    // A link leads away from an origin exactly where the way from the neighbour to it is over this node.
                    assert_eq!(link.carries(origin), tree.towards(link.node, origin) == Some(node));
                }
                let child = tree.towards(node, origin).filter(|_| tree.subtree(node).contains(&origin));
                let expected = child.map_or(0, |child| 1 << links.to(child).unwrap());
                assert_eq!(links.below(origin), expected);
            }
        }
    }

    const LINK: Link =
        Link { node: 0, up: false, part: 0..0, cursor: 0, told: 0, blocked: false, events_pending: false };

    #[test]
    fn a_node_needs_slots_for_its_neighbours() {
        let mut slots = [const { LINK }; 3];
        let mut links = Links::new(&mut slots);
        assert_eq!(links.join(1, Tree::new(40, 3)), None, "a parent and three children");
        assert_eq!(links.join(40, Tree::new(40, 2)), None);
        assert!(!links.are_any() && links.join(1, Tree::new(40, 2)).is_some());
        assert_eq!((links.have_parent(), links.children()), (true, 0b110));
        links.wake(links.children());
        assert_eq!(links.ready(), Some(1));
    }
}
