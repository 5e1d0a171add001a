//! Servers of a step and of the steps that its ranks spawn: one tree, in which nodes of spawned steps come and go.
//!
//! ```text
//! step on several nodes             step on one node
//!
//!        0 head in srun                    0 the node
//!      /   \      \                       /  (the head passes messages on)
//!     1 … N   late nodes            late nodes
//! ```

use std::ops::Range;

use hydrant_core::peer::tree::LATE;
use hydrant_host::{Limits, Node, Settings};

/// Most nodes of a step. The head has a link to each.
pub(crate) const NODES_MAX: u32 = 64;
/// Most spawned steps at the same time.
pub(crate) const STEPS_MAX: u32 = 16;
/// Most nodes of spawned steps at the same time.
const LATE_MAX: u32 = 256;
/// Ranks of spawned steps at the same time that there is room for at least: Slurm may share processors.
const SPAWNED_RANKS_MIN: u32 = 256;
/// As many at most.
const SPAWNED_RANKS_MAX: u32 = 1024;
/// Most ranks of all steps.
const RANKS_MAX: u32 = 1 << 17;
/// Most bytes of the request for a spawn.
const SPAWN_BYTES: u32 = 1 << 16;

/// What all servers agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    /// Nodes of the first step.
    pub(crate) nodes: u32,
    /// Ranks that there is room for.
    pub(crate) ranks: u32,
}

impl Servers {
    /// Those of a first step of so many nodes and ranks, in an allocation with processors for so many ranks.
    pub(crate) fn of(nodes: u32, size: u32, universe: Option<u32>) -> Servers {
        let spawned = universe.unwrap_or(0).max(size).clamp(SPAWNED_RANKS_MIN, SPAWNED_RANKS_MAX);
        Servers { nodes, ranks: size.saturating_add(spawned) }
    }

    /// Whether there can be so many.
    pub(crate) fn are_sound(self) -> bool {
        (1..=NODES_MAX).contains(&self.nodes) && self.ranks <= RANKS_MAX
    }

    /// Whether the head is a server, and not the only node of the first step.
    pub(crate) fn has_root_in_srun(self) -> bool {
        self.nodes > 1
    }

    /// Number of a node of the first step, which Slurm counts from 0.
    pub(crate) fn number(self, node: u32) -> u32 {
        if self.has_root_in_srun() { node + 1 } else { 0 }
    }

    /// Numbers of the nodes of the first step.
    pub(crate) fn first(self) -> Range<u32> {
        if self.has_root_in_srun() { 1..self.nodes + 1 } else { 0..1 }
    }

    /// Numbers for nodes of spawned steps. For PMIx clients node n is host n - 1, and so are both 0 and 1.
    pub(crate) fn late(self) -> Range<u32> {
        self.nodes + 1..self.nodes + 1 + LATE_MAX
    }

    /// Settings of the server with this number, whose own step has `size` ranks: names and process sets of its own, and room for
    /// spawns.
    pub(crate) fn settings(self, number: u32, size: u32) -> Settings {
        let settings = Settings::for_ranks(self.ranks);
        let count = self.late().end;
        let late = count - self.first().end;
        let limits = Limits {
            // A number is free when all servers have forgotten its last job.
            jobs: 1 + 2 * STEPS_MAX,
            conns: size.saturating_mul(2),
            groups: 64,
            names: 64,
            psets: 64,
            spawn_bytes: SPAWN_BYTES,
            links: if number == 0 { count } else { 1 },
            ..settings.limits
        };
        let node = Node { number, count, radix: self.nodes.max(2) | (late * LATE) };
        Settings { limits, node: Some(node), ..settings }
    }
}

#[cfg(test)]
mod tests {
    use hydrant_core::peer::tree::Tree;

    use super::*;

    #[test]
    fn nodes_of_spawned_steps_are_children_of_the_root() {
        for nodes in [1, 2, 64] {
            let servers = Servers::of(nodes, 100, Some(8));
            let Node { count, radix, .. } = servers.settings(0, 100).node.unwrap();
            let tree = Tree::new(count, radix);
            assert!(servers.late().all(|node| tree.parent(node) == Some(0) && node >= tree.first_late()));
            assert!(servers.first().all(|node| node < tree.first_late()), "they are there from the start");
            assert_eq!(servers.late().len(), LATE_MAX as usize);
        }
    }

    #[test]
    fn servers_have_room_for_the_rest_of_the_allocation() {
        let ranks = |size, universe| Servers::of(1, size, universe).ranks;
        assert_eq!([ranks(1, Some(300)), ranks(300, Some(300)), ranks(4, None)], [301, 600, 260]);
        assert_eq!(ranks(1, Some(1 << 20)), 1 + SPAWNED_RANKS_MAX);
    }
}
