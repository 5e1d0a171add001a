//! Links between the boards of hosts: what a node does for its board.

use hydrant_board::BoardError;
use hydrant_control::protocol::{BoardReport, Boards, Report};
use hydrant_core::peer::tree::{ROOT_ONE, Tree};
use hydrant_core::{Input, Time};

use super::super::Engine;
use crate::error::RunError;

/// What a process knows of boards that may be linked.
#[derive(Debug, Default)]
pub(in super::super) struct LinkedBoards {
    /// Node and name of each board.
    targets: Vec<(u32, String)>,
    /// The PMI server of the node is in no tree yet.
    awaits_tree: bool,
}

impl LinkedBoards {
    pub(super) fn new(boards: &Boards) -> LinkedBoards {
        let awaits_tree = boards.link.is_some();
        let targets = if awaits_tree { boards.targets.clone() } else { Vec::new() };
        LinkedBoards { targets, awaits_tree }
    }

    fn name(&self, node: u32) -> String {
        let found = self.targets.iter().find(|(of, _)| *of == node);
        found.map_or_else(|| format!("of node {node}"), |(_, target)| target.clone())
    }
}

impl Engine<'_> {
    /// Returns whether the head decides later about the tree of PMI servers.
    pub(super) fn awaits_tree(&self) -> bool {
        self.boards.awaits_tree
    }

    /// Reports the board of this node.
    pub(super) fn report_board(&mut self) {
        let report = match self.core.node().map(|board| board.link_addr()) {
            None => BoardReport::None,
            Some(None) => BoardReport::WithoutLinks,
            Some(Some((addr, links))) => BoardReport::At { addr: addr.to_string(), links },
        };
        self.send_report(&Report::Board(report));
    }

    /// Links the board of this node to that of its parent, if both have one.
    pub(super) fn link_board(&mut self, addrs: &[(u32, String)]) -> Result<(), RunError> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let tree = nodes.links.tree();
        let tree = Tree::new(tree.nodes(), tree.radix() | ROOT_ONE);
        let parent = tree.parent(nodes.links.node());
        let Some(board) = self.core.node() else { return Ok(()) };
        match addrs.iter().find(|(node, _)| Some(*node) == parent) {
            Some((parent, addr)) => board.link(*parent, addr)?,
            None => self.report_link(Ok(())),
        }
        Ok(())
    }

    /// Reports the link of this node's board to that of its parent.
    pub(in super::super) fn report_link(&mut self, result: Result<(), String>) {
        self.send_report(&Report::BoardLinked(result));
    }

    /// Handles the loss of the link to the board of another node, or of the attempt to make it.
    pub(in super::super) fn link_lost(&mut self, node: u32, why: String) -> Result<(), RunError> {
        let this = self.node();
        let (target, other) = (self.boards.name(this), self.boards.name(node));
        if self.boards.awaits_tree {
            self.report_link(Err(format!("board {target} has no link to board {other}: {why}")));
            return Ok(());
        }
        Err(BoardError::Link { target, other, why }.into())
    }

    /// Makes the PMI server a node of the tree of servers.
    pub(super) fn form_tree(&mut self, are_linked: bool) -> Result<(), RunError> {
        let now = Time(self.now());
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let (node, tree) = (nodes.links.node(), nodes.links.tree());
        let radix = if are_linked { tree.radix() | ROOT_ONE } else { tree.radix() };
        match self.core.node() {
            // Its node was opened in the usual tree.
            Some(board) if board.link_addr().is_none() => {}
            Some(board) => board.form(are_linked)?,
            None => self.core.handle(now, Input::Node { node, nodes: tree.nodes(), radix })?,
        }
        self.boards.awaits_tree = false;
        Ok(())
    }
}
