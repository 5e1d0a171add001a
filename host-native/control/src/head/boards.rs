//! Links between the boards of hosts: whether and how the nodes of a run are linked, before its first job.
//!
//! 1. Each node reports its board ([`Report::Board`](crate::protocol::Report::Board)).
//! 2. If all boards have links, each links itself to that of its parent ([`Order::LinkBoards`]).
//! 3. All nodes form the tree ([`Order::FormTree`]): the one for boards that are linked if all links are there.

use std::collections::{BTreeMap, BTreeSet};

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
        /// Addresses of boards that have links.
        addrs: BTreeMap<u32, String>,
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
        self.boards = Boards::Counting { awaited, addrs: BTreeMap::new(), are_able: true };
    }

    /// A node has reported its board.
    pub(super) fn board_counted(&mut self, node: u32, report: BoardReport) {
        let Boards::Counting { awaited, addrs, are_able } = &mut self.boards else { return };
        if !awaited.remove(&node) {
            return;
        }
        match report {
            BoardReport::None => {}
            BoardReport::WithoutLinks => *are_able = false,
            BoardReport::At(addr) => {
                let own = self.config.link_addrs.iter().find(|(of, _)| *of == node);
                addrs.insert(node, own.map_or(addr, |(_, own)| own.clone()));
            }
        }
        if !awaited.is_empty() {
            return;
        }
        if !*are_able || addrs.len() < 2 {
            return self.form_tree(false);
        }
        let addrs: Vec<_> = std::mem::take(addrs).into_iter().collect();
        let awaited = addrs.iter().map(|(node, _)| *node).collect();
        self.boards = Boards::Linking { awaited, failure: None };
        self.send_all(Order::LinkBoards(addrs));
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
        let failure = failure.take();
        let are_linked = failure.is_none();
        if let Some((node, why)) = failure {
            let host = self.host(node);
            self.print(format!("note: boards exchange messages by way of their hosts: host {host}: {why}"));
        }
        self.form_tree(are_linked);
    }

    fn form_tree(&mut self, are_linked: bool) {
        self.boards = Boards::Settled;
        if are_linked && self.config.verbose {
            self.print("boards exchange messages directly".to_owned());
        }
        self.actions.push_back(Action::FormTree { are_linked });
        self.send_all(Order::FormTree { are_linked });
    }
}
