//! Links of a node to its neighbours in the tree, with the part of the log that was sent to each.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::tree::{Place, Tree};
#[cfg(feature = "cluster")]
use crate::store::log::Offset;
use crate::tables::link_set::{LINKS_MAX, LinkSet};

/// Link to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// Node number of the neighbour.
    pub(crate) node: u32,
    /// Whether the neighbour is the parent.
    pub(crate) up: bool,
    /// Subtree of a child. For the parent, the subtree of this node.
    pub(crate) part: Range<u32>,
    /// Length of the log that has been sent.
    pub(crate) cursor: u32,
    /// Answer to requests for pairs of lazy jobs.
    pub(crate) answer: Answer,
    /// Whether a request for pairs of lazy jobs, or an answer, may be pending.
    pub(crate) fetch_pending: bool,
    /// Exits that have been sent.
    pub(crate) exits: ExitCursor,
    /// Number of the newest notice that has been sent or is not sent over it.
    pub(crate) notices_sent: u32,
    /// Progress of echoes.
    pub(crate) echo: EchoCursor,
    /// Whether the host's send buffer for it is full.
    pub(crate) blocked: bool,
    /// Whether a message may be pending.
    pub(crate) message_pending: bool,
    /// Whether the neighbour is lost. Nothing is sent over the link or comes over it.
    pub(crate) lost: bool,
    /// Whether the neighbour has not joined yet. Nothing is sent over the link or comes over it.
    pub(crate) awaited: bool,
}

/// Progress of an answer to requests for pairs of lazy jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// No answer is being sent.
    #[default]
    None,
    /// Records from this offset up to the link's cursor follow.
    Before(u32),
    /// Records from the link's cursor on follow.
    Behind,
}

/// Progress of sending exits, which are numbered. A pass over all ranks' slots sends those up to a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitCursor {
    /// Exits up to this number have been sent.
    sent: u32,
    /// The present pass sends those after `sent` up to this number.
    until: u32,
    /// Slot at which the pass continues.
    slot: u32,
}

impl ExitCursor {
    /// Starts a pass for exits up to the newest if none is under way. Returns false if all have been sent.
    pub(crate) fn start(&mut self, newest: u32) -> bool {
        if self.sent == self.until {
            (self.until, self.slot) = (newest, 0);
        }
        self.sent != self.until
    }

    /// Returns the slot at which the pass continues.
    pub(crate) fn slot(&self) -> usize {
        self.slot as usize
    }

    /// Returns whether the pass sends the exit with this number. 0 is none.
    pub(crate) fn sends(&self, exit: u32) -> bool {
        exit != 0 && exit.wrapping_sub(self.sent).wrapping_sub(1) < self.until.wrapping_sub(self.sent)
    }

    /// Interrupts the pass at a slot.
    pub(crate) fn pause(&mut self, slot: u32) {
        self.slot = slot;
    }

    /// Ends the pass.
    pub(crate) fn finish(&mut self) {
        self.sent = self.until;
    }
}

/// Progress of echoes (`Head::Echo`) over a link. Each side of a link that asks numbers its requests, and a number stands for
/// those before it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EchoCursor {
    /// Newest request: of this node to its parent, or of a child.
    pub(crate) asked: u32,
    /// Request of a child that was passed on to the parent last.
    pub(crate) passed: u32,
    /// Number of the request to the parent with which it was passed on.
    pub(crate) at_parent: u32,
    /// Newest number to send.
    pub(crate) due: u32,
    /// Newest number that has been sent.
    pub(crate) sent: u32,
}

impl Link {
    /// Unused slot.
    pub(crate) const EMPTY: Link = Link {
        node: 0,
        up: false,
        part: 0..0,
        cursor: 0,
        answer: Answer::None,
        fetch_pending: false,
        exits: ExitCursor { sent: 0, until: 0, slot: 0 },
        notices_sent: 0,
        echo: EchoCursor { asked: 0, passed: 0, at_parent: 0, due: 0, sent: 0 },
        blocked: false,
        message_pending: false,
        lost: false,
        awaited: false,
    };

    /// Returns whether the neighbour is a member.
    pub(crate) fn is_open(&self) -> bool {
        !self.lost && !self.awaited
    }

    /// Returns whether the neighbour is a child that is a member.
    fn is_child(&self) -> bool {
        !self.up && self.is_open()
    }

    /// Returns whether records of that node are sent over this link.
    pub(crate) fn carries(&self, origin: u32) -> bool {
        self.part.contains(&origin) == self.up
    }
}

/// Links of a node. The parent's is the first.
#[derive(Debug)]
pub(crate) struct Links<'s> {
    slots: &'s mut [Link],
    count: usize,
    /// No link before this one is [ready](Links::next_ready): a node may have a thousand links, and it is asked for each message.
    ready_from: usize,
    node: u32,
    tree: Tree,
    /// Number of changes of membership.
    epoch: u32,
}

impl<'s> Links<'s> {
    /// Creates the links of a single node, none, in unused slots.
    pub(crate) fn new(slots: &'s mut [Link]) -> Links<'s> {
        Links { slots, count: 0, ready_from: 0, node: 0, tree: Tree::new(1, 2), epoch: 0 }
    }

    /// Makes this node a node of a tree. Returns `None`, without a change, if the tree does not have the node, or if
    /// there are fewer slots than neighbours.
    pub(crate) fn join(&mut self, node: u32, tree: Tree) -> Option<()> {
        let place = tree.place(node);
        let count = usize::from(place.parent.is_some()) + place.children.len();
        // Another node may have a wider tree than this build can compute.
        let is_sound = tree.is_whole() && node < tree.nodes();
        if !is_sound || count > self.slots.len().min(LINKS_MAX as usize) {
            return None;
        }
        let is_awaited = |link: &Link| !link.up && link.node >= tree.first_late();
        let links = neighbours(place).map(|link| Link { awaited: is_awaited(&link), ..link });
        self.slots.iter_mut().zip(links).for_each(|(slot, link)| *slot = link);
        (self.count, self.ready_from, self.node, self.tree) = (count, 0, node, tree);
        Some(())
    }

    /// Returns all slots for restoring a snapshot. [`Links::rejoin`] follows.
    pub(crate) fn slots_mut(&mut self) -> &mut [Link] {
        self.slots
    }

    /// Makes this node a node of a tree whose links are the first `count` slots, in that epoch, read from a snapshot. Returns
    /// `None` if they do not lead to its neighbours.
    pub(crate) fn rejoin(&mut self, count: usize, node: u32, tree: Tree, epoch: u32) -> Option<()> {
        let saved = self.slots.get(..count.min(LINKS_MAX as usize))?;
        let way = |link: &Link| (link.node, link.up, link.part.clone());
        let sound = tree.is_whole()
            && node < tree.nodes()
            && saved.iter().map(way).eq(neighbours(tree.place(node)).map(|link| way(&link)));
        (self.count, self.ready_from, self.node, self.tree, self.epoch) = (count, 0, node, tree, epoch);
        sound.then_some(())
    }

    /// Begins the epoch in which a node is lost. Returns the index of its link, or `None` if it is no neighbour.
    #[cfg(feature = "cluster")]
    pub(crate) fn lose(&mut self, epoch: u32, node: u32) -> Option<usize> {
        self.epoch = epoch;
        let at = self.to(node)?;
        let link = &mut self.slots[at];
        // The rest of an answer keeps no records.
        (link.lost, link.answer) = (true, Answer::None);
        Some(at)
    }

    /// Begins the epoch in which a node has joined. Returns `None`, without a change, if it is this node's child already.
    #[cfg(feature = "cluster")]
    pub(crate) fn admit(&mut self, epoch: u32, node: u32) -> Option<()> {
        if let Some(at) = self.to(node) {
            let link = self.slots.get_mut(at).filter(|link| !link.is_open())?;
            // The node may be another than the lost one, and has nothing yet.
            *link = Link { node: link.node, part: link.part.clone(), ..Link::EMPTY };
            self.wake(at);
        }
        self.epoch = epoch;
        Some(())
    }

    /// Returns the number of changes of membership.
    #[cfg(feature = "cluster")]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the number of this node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Returns the tree.
    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// Returns whether there are other nodes.
    pub(crate) fn are_any(&self) -> bool {
        self.tree.nodes() > 1
    }

    /// Returns whether there is a parent. Its link has index 0.
    pub(crate) fn have_parent(&self) -> bool {
        self.slots[..self.count].first().is_some_and(|link| link.up)
    }

    /// Returns the set of the links to children that are members.
    pub(crate) fn children(&self) -> LinkSet {
        let links = self.slots[..self.count].iter().enumerate();
        links.filter(|(_, link)| link.is_child()).map(|(at, _)| at).collect()
    }

    /// Returns the index of the link to the child whose subtree contains the node. Returns `None` for this node and for nodes
    /// outside its subtree.
    #[inline(never)]
    pub(crate) fn below(&self, node: u32) -> Option<usize> {
        let first = usize::from(self.have_parent());
        // Children are in ascending order.
        let behind = self.slots[first..self.count].partition_point(|link| link.part.start <= node);
        let at = (first + behind).checked_sub(1).filter(|&at| at >= first)?;
        self.slots[at].part.contains(&node).then_some(at)
    }

    /// Returns the index of the link on the way to a node. Returns `None` for this node.
    pub(crate) fn towards(&self, node: u32) -> Option<usize> {
        if node == self.node {
            return None;
        }
        self.below(node).or_else(|| self.have_parent().then_some(0))
    }

    /// Returns the index of the link to a neighbour.
    pub(crate) fn to(&self, node: u32) -> Option<usize> {
        self.towards(node).filter(|&at| self.slots[at].node == node)
    }

    /// Returns a link by its index.
    pub(crate) fn get(&self, at: usize) -> Option<&Link> {
        self.slots[..self.count].get(at)
    }

    /// Returns a link by its index, mutably.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Link> {
        self.slots[..self.count].get_mut(at)
    }

    /// Returns the index of the first link from [`Links::ready_from`] on that may have a pending message and is not blocked, or
    /// the number of links.
    fn first_ready(&self) -> usize {
        let is_ready = |link: &Link| link.message_pending && !link.blocked && link.is_open();
        let links = self.slots[..self.count].iter().skip(self.ready_from);
        links.clone().position(is_ready).map_or(self.count, |at| self.ready_from + at)
    }

    /// Returns a link that may have a pending message and is not blocked.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        self.ready_from = self.first_ready();
        (self.ready_from < self.count).then_some(self.ready_from)
    }

    /// Returns whether there is such a link.
    pub(crate) fn are_ready(&self) -> bool {
        self.first_ready() < self.count
    }

    /// Marks a link as possibly having a pending message.
    #[inline(never)]
    pub(crate) fn wake(&mut self, at: usize) {
        if let Some(link) = self.get_mut(at) {
            link.message_pending = true;
            self.ready_from = self.ready_from.min(at);
        }
    }

    /// Marks those links as possibly having a pending message for which `is_due` holds.
    fn wake_if(&mut self, is_due: impl Fn(&Link) -> bool) {
        for at in 0..self.count {
            if is_due(&self.slots[at]) {
                self.wake(at);
            }
        }
    }

    /// Marks all links as possibly having a pending message.
    #[inline(never)]
    pub(crate) fn wake_all(&mut self) {
        self.wake_if(|_| true);
    }

    /// Marks the links to children as possibly having a pending message.
    pub(crate) fn wake_children(&mut self) {
        self.wake_if(Link::is_child);
    }

    /// Marks links as possibly having a pending message over which `least` bytes of a log of that length have not been sent.
    pub(crate) fn wake_behind(&mut self, log: u32, least: u32) {
        self.wake_if(|link| log.saturating_sub(link.cursor) >= least);
    }

    /// Marks links over which exits up to this number have not been sent as possibly having a pending message.
    pub(crate) fn wake_for_exits(&mut self, newest: u32) {
        self.wake_if(|link| link.exits.sent != newest);
    }

    /// Marks a link as possibly having a pending request for pairs, or an answer.
    #[inline(never)]
    pub(crate) fn wake_fetch(&mut self, at: usize) {
        if let Some(link) = self.get_mut(at) {
            link.fetch_pending = true;
        }
        self.wake(at);
    }

    /// Marks all links as possibly having a pending request for pairs, or an answer.
    #[inline(never)]
    pub(crate) fn wake_fetches(&mut self) {
        (0..self.count).for_each(|at| self.wake_fetch(at));
    }

    /// Notes whether the host's send buffer for a neighbour is full. Returns `None` for a node that is none.
    pub(crate) fn set_blocked(&mut self, node: u32, blocked: bool) -> Option<()> {
        let at = self.to(node)?;
        self.get_mut(at)?.blocked = blocked;
        self.ready_from = self.ready_from.min(at);
        Some(())
    }

    /// Calls a function with each offset of the log.
    #[cfg(feature = "cluster")]
    pub(crate) fn offsets(&mut self, then: &mut dyn FnMut(Offset, &mut u32)) {
        for link in &mut self.slots[..self.count] {
            match &mut link.answer {
                Answer::None | Answer::Behind => then(Offset::Sent, &mut link.cursor),
                Answer::Before(next) => {
                    then(Offset::Sent, next);
                    then(Offset::Cut, &mut link.cursor);
                }
            }
        }
    }

    /// Resets the cursors after the log was cleared.
    pub(crate) fn rewind(&mut self) {
        self.slots.iter_mut().for_each(|link| (link.cursor, link.answer) = (0, Answer::None));
    }

    /// Returns the state for snapshots: the links in use, this node, the tree, and the epoch.
    pub(crate) fn state(&self) -> (&[Link], u32, Tree, u32) {
        (&self.slots[..self.count], self.node, self.tree, self.epoch)
    }
}

/// Returns unused links to the neighbours of a node with this place, the parent first.
fn neighbours(Place { parent, subtree, children }: Place) -> impl Iterator<Item = Link> {
    let up = parent.map(|node| Link { node, up: true, part: subtree, ..Link::EMPTY });
    let down = children.map(|part| Link { node: part.start, part, ..Link::EMPTY });
    up.into_iter().chain(down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tree::{RADIX_MAX, ROOT_ONE};

    #[test]
    fn every_origin_reaches_every_other_node_by_one_way() {
        for (tree, node) in
            [3, 3 | ROOT_ONE].iter().flat_map(|form| (0..23).map(|node| (Tree::new(23, *form), node)))
        {
            let mut slots = [const { Link::EMPTY }; 4];
            let mut links = Links::new(&mut slots);
            links.join(node, tree).unwrap();
            for origin in 0..23 {
                for at in 0..links.count {
                    let link = links.get(at).unwrap();
                    // A link carries records of an origin if the neighbour's path to the origin leads over this node.
                    assert_eq!(link.carries(origin), tree.towards(link.node, origin) == Some(node));
                }
                let child = tree.towards(node, origin).filter(|_| tree.subtree(node).contains(&origin));
                let expected = child.map(|child| links.to(child).unwrap());
                assert_eq!(links.below(origin), expected);
            }
        }
    }

    #[test]
    fn a_node_needs_slots_for_its_neighbours() {
        let mut slots = [const { Link::EMPTY }; 3];
        let mut links = Links::new(&mut slots);
        assert_eq!(links.join(1, Tree::new(40, 3)), None, "a parent and three children");
        assert_eq!(links.join(40, Tree::new(40, 2)), None);
        assert_eq!(links.join(1, Tree::new(2, RADIX_MAX + 1)), None, "another node may have a wider tree");
        assert!(!links.are_any() && links.join(1, Tree::new(40, 2)).is_some());
        assert_eq!((links.have_parent(), links.children()), (true, [1, 2].into_iter().collect()));
        links.wake_children();
        assert_eq!(links.next_ready(), Some(1));
    }

    /// Links that become ready behind and before those that have been, in any way, are found.
    #[test]
    fn the_first_link_that_is_ready_is_found() {
        let mut slots = [const { Link::EMPTY }; 4];
        let mut links = Links::new(&mut slots);
        links.join(0, Tree::new(5, 4)).expect("there are four slots");
        let is_done = |links: &mut Links<'_>, at: usize| links.get_mut(at).unwrap().message_pending = false;
        assert!(links.next_ready().is_none() && !links.are_ready());
        links.wake(2);
        assert_eq!(links.next_ready(), Some(2));
        links.wake(1);
        assert_eq!(links.next_ready(), Some(1));
        links.set_blocked(2, true).expect("link 1 leads to node 2");
        assert_eq!(links.next_ready(), Some(2));
        is_done(&mut links, 2);
        assert!(links.next_ready().is_none() && !links.are_ready());
        links.set_blocked(2, false).expect("link 1 leads to node 2");
        assert!(links.are_ready());
        assert_eq!(links.next_ready(), Some(1));
        is_done(&mut links, 1);
        let wakes: [fn(&mut Links<'_>); 5] = [
            |links| links.wake_all(),
            |links| links.wake_children(),
            |links| links.wake_behind(10, 10),
            |links| links.wake_for_exits(1),
            |links| links.wake_fetches(),
        ];
        for wake in wakes {
            assert_eq!(links.next_ready(), None);
            wake(&mut links);
            assert_eq!(links.next_ready(), Some(0));
            (0..4).for_each(|at| is_done(&mut links, at));
        }
        assert_eq!(links.set_blocked(9, true), None);
    }
}
