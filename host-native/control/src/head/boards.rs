//! Links between the boards of hosts: whether and how the nodes of a run are linked, before its first job.
//!
//! 1. Each node reports its board ([`Report::Board`](crate::protocol::Report::Board)).
//! 2. If all boards have enough links for their places in the tree, each links itself to that of its parent
//!    ([`Order::LinkBoards`]).
//! 3. All nodes form the tree ([`Order::FormTree`]): the one for boards that are linked if all links are there.
//!
//! Messages on these links may overtake orders. So ranks of a job start when all nodes have opened it ([`Order::StartRanks`]): no
//! message about a job comes to a node before the job.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::peer::Tree;
use hydrant_core::peer::tree::ROOT_ONE;

use super::{Action, Head};
use crate::protocol::{BoardReport, Order};

/// State of the links between boards.
#[derive(Debug, Default)]
pub(super) enum Boards {
    /// The run has none, or it is decided.
    #[default]
    Settled,
    /// Nodes report their boards.
    Counting {
        /// Nodes that have not reported.
        awaited: BTreeSet<u32>,
        /// Boards that have links: their addresses, and how many of their children's boards can link themselves to them.
        found: BTreeMap<u32, (String, u32)>,
        /// All boards have links.
        are_able: bool,
    },
    /// Boards link themselves to those of their parents.
    Linking {
        /// Nodes that have not reported.
        awaited: BTreeSet<u32>,
        /// First failure.
        failure: Option<(u32, String)>,
    },
}

impl Head {
    /// Waits for the reports of all nodes about their boards.
    pub(super) fn count_boards(&mut self) {
        let awaited = (1..=self.config.hosts.len() as u32).collect();
        self.boards = Boards::Counting { awaited, found: BTreeMap::new(), are_able: true };
    }

    /// A node has reported its board.
    pub(super) fn board_counted(&mut self, node: u32, report: BoardReport) {
        let Boards::Counting { awaited, found, are_able } = &mut self.boards else { return };
        if !awaited.remove(&node) {
            return;
        }
        match report {
            BoardReport::None => {}
            BoardReport::WithoutLinks => *are_able = false,
            BoardReport::At { addr, links } => {
                let own = self.config.link_addrs.iter().find(|(of, _)| *of == node);
                found.insert(node, (own.map_or(addr, |(_, own)| own.clone()), links));
            }
        }
        if !awaited.is_empty() {
            return;
        }
        if !*are_able || found.len() < 2 {
            return self.form_tree(false);
        }
        let found = std::mem::take(found);
        if let Some((node, why)) = self.too_few_links(&found) {
            return self.give_links_up(node, &why);
        }
        let addrs: Vec<_> = found.into_iter().map(|(node, (addr, _))| (node, addr)).collect();
        let awaited = addrs.iter().map(|(node, _)| *node).collect();
        self.boards = Boards::Linking { awaited, failure: None };
        self.send_all(Order::LinkBoards(addrs));
    }

    /// Returns the first node whose board has fewer links than children with boards, and the reason.
    fn too_few_links(&self, found: &BTreeMap<u32, (String, u32)>) -> Option<(u32, String)> {
        let tree = Tree::new(self.config.hosts.len() as u32 + 1, self.config.radix | ROOT_ONE);
        found.iter().find_map(|(&node, &(_, links))| {
            let children = tree.children(node).filter(|part| found.contains_key(&part.start)).count();
            let board = self.first.as_ref().and_then(|first| first.setup.boards.of_node(node));
            (children > links as usize).then(|| {
                let board = board.unwrap_or_default();
                let accepts = format!("board {board} accepts {links} links of other boards");
                (node, format!("{accepts}, and its place takes {children} (name its host later)"))
            })
        })
    }

    /// A node's board is linked to that of its parent, or cannot be.
    pub(super) fn board_linked(&mut self, node: u32, result: Result<(), String>) {
        let Boards::Linking { awaited, failure } = &mut self.boards else { return };
        if !awaited.remove(&node) {
            return;
        }
        if let Err(why) = result {
            failure.get_or_insert((node, why));
        }
        if !awaited.is_empty() {
            return;
        }
        match failure.take() {
            Some((node, why)) => self.give_links_up(node, &why),
            None => self.form_tree(true),
        }
    }

    /// The board of a node cannot be linked to others.
    fn give_links_up(&mut self, node: u32, why: &str) {
        let host = self.host(node);
        self.print(format!("note: boards exchange messages by way of their hosts: host {host}: {why}"));
        self.form_tree(false);
    }

    fn form_tree(&mut self, are_linked: bool) {
        self.boards = Boards::Settled;
        self.are_linked = are_linked;
        if are_linked && self.config.verbose {
            self.print("boards exchange messages directly".to_owned());
        }
        self.actions.push_back(Action::FormTree { are_linked });
        self.send_all(Order::FormTree { are_linked });
    }
}
