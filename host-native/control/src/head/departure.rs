//! Hosts that leave a running run.
//!
//! A node that leaves gets no more ranks. Once no job has ranks there, it is no member any more: for the servers it is a lost node,
//! without an alarm, and its daemon ends.

use std::collections::BTreeMap;

use hydrant_core::trace::Exit;
use hydrant_core::{JobId, OwnedInput, Rank};

use super::{Action, Head};
use crate::error::{Error, HostRefusal};
use crate::protocol::Order;
use crate::psets::{format_ranges, ranges_of};

/// Nodes that leave, each with the number of the request.
#[derive(Debug, Default)]
pub(super) struct Leavers {
    /// Members whose ranks are to end.
    leaving: BTreeMap<u32, u64>,
    /// Nodes that are no members any more, and whose daemons end.
    ending: BTreeMap<u32, u64>,
}

impl Head {
    /// Members that do not leave.
    pub(super) fn open_nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.members().filter(|&node| self.is_open_node(node))
    }

    /// Whether a node is a member and does not leave.
    pub(super) fn is_open_node(&self, node: u32) -> bool {
        !self.lost.contains(&node) && !self.leavers.leaving.contains_key(&node)
    }

    /// Names of the hosts without ranks that may leave, those that came last first.
    pub fn idle_hosts(&self) -> impl Iterator<Item = &str> {
        let mut nodes: Vec<u32> = self.open_nodes().collect();
        nodes.retain(|node| self.jobs.iter().all(|job| !job.run.busy.contains(node)));
        nodes.into_iter().rev().map(|node| self.host(node))
    }

    /// A host is to leave. `force` ends its ranks.
    pub(super) fn host_leaves(&mut self, request: u64, host: String, force: bool) {
        match self.node_to_leave(&host, force) {
            Ok(node) => {
                self.leavers.leaving.insert(node, request);
                let jobs = self.jobs.ids(|job| job.run.busy.contains(&node));
                let ranks: usize = jobs.iter().map(|&id| self.ranks_at(id, node).len()).sum();
                if ranks > 0 {
                    let of = if ranks == 1 { "its rank is" } else { "its ranks are" };
                    self.print(format!("host {host} leaves: {of} ended"));
                }
                jobs.into_iter().for_each(|id| self.send(node, Order::AbortJob(id)));
                self.refuse_large();
            }
            Err(why) => {
                let result = Err(why.into());
                self.actions.push_back(Action::HostChanged { request, host, result });
            }
        }
    }

    /// Node of a host that may leave.
    fn node_to_leave(&self, host: &str, force: bool) -> Result<u32, Error> {
        self.check_elastic("leave")?;
        self.check_running("leave")?;
        let is_named = |node: &u32| self.host(*node) == host;
        let Some(node) = self.members().find(is_named) else {
            let mut others = 1..=self.config.hosts.len() as u32;
            return Err(match others.rfind(is_named) {
                Some(node) if self.is_newcomer(node) => Error::HostJoins(host.to_owned()),
                Some(node) if !self.newcomers.is_free(node) => Error::HostGone(host.to_owned()),
                _ => Error::NoSuchHost(host.to_owned()),
            });
        };
        if self.leavers.leaving.contains_key(&node) {
            return Err(Error::HostLeaves(host.to_owned()));
        }
        let below = self.newcomers.subtree(node).skip(1).filter(|node| !self.lost.contains(node));
        let below: Vec<&str> = below.map(|node| self.host(node)).collect();
        if !below.is_empty() {
            return Err(Error::HostInside { host: host.to_owned(), below: below.join(", ") });
        }
        match (self.open_nodes().count() as u32, self.config.least.unwrap_or(1)) {
            (1, _) => return Err(Error::LastHost(host.to_owned())),
            (open, least) if open <= least => return Err(Error::FewHosts { host: host.to_owned(), least }),
            _ => {}
        }
        let ranks: Vec<String> = self.jobs.iter().filter_map(|job| self.name_ranks(job.id, node)).collect();
        if !ranks.is_empty() && !force {
            return Err(Error::HostHasRanks { host: host.to_owned(), ranks: ranks.join(" and ") });
        }
        Ok(node)
    }

    /// Ranks of a job on a node that run, or that are still to be started.
    fn ranks_at(&self, id: JobId, node: u32) -> Vec<u32> {
        let job = &self.jobs[id];
        let (is_there, ends) = (job.run.busy.contains(&node), job.is_ending());
        let counts = |rank: &u32| job.is_running(*rank) || !ends && job.pid(*rank).is_none();
        job.run.ranks_on(node).filter(|_| is_there).filter(counts).collect()
    }

    /// Ranks of a job on a node, for messages.
    fn name_ranks(&self, id: JobId, node: u32) -> Option<String> {
        let ranks = self.ranks_at(id, node);
        let noun = match &ranks[..] {
            [] => return None,
            [_] => "rank",
            _ => "ranks",
        };
        let job = &self.jobs[id];
        let of = if job.ordinal == 0 { String::new() } else { format!(" of spawned job {}", job.ordinal) };
        Some(format!("{noun} {}{of}", format_ranges(&ranges_of(ranks.into_iter()))))
    }

    /// Whether the end of a rank is what the user wants: its host leaves, and its job goes on. It is no failure then.
    pub(super) fn is_asked_to_end(&self, id: JobId, node: u32) -> bool {
        self.leavers.leaving.contains_key(&node) && !self.jobs[id].run.cleanup
    }

    /// A rank has ended that [was asked to](Head::is_asked_to_end).
    pub(super) fn rank_left(&mut self, id: JobId, rank: Rank, exit: Exit) {
        self.jobs[id].rank_left(rank.0, exit);
        self.actions.push_back(Action::CancelLookups { job: id, rank });
    }

    /// Nodes that leave and that no job has ranks on are no members any more.
    pub(super) fn dismiss_leavers(&mut self) {
        let is_free = |node: &u32| self.jobs.iter().all(|job| !job.run.busy.contains(node));
        let free: Vec<u32> = self.leavers.leaving.keys().copied().filter(is_free).collect();
        for node in free {
            let request = self.leavers.leaving.remove(&node).expect("the node leaves");
            self.leavers.ending.insert(node, request);
            self.lost.insert(node);
            self.actions.push_back(Action::DismissNode { node });
            self.part_with(node);
            self.stdin_closed(node);
            if self.config.verbose {
                self.print(format!("host {} (node {node}) has left", self.host(node)));
            }
        }
    }

    /// Tells all servers that a node, and those below it, are no members any more.
    pub(super) fn part_with(&mut self, node: u32) {
        self.epoch += 1;
        let change = OwnedInput::NodeLost { epoch: self.epoch, node };
        self.actions.push_back(Action::ChangeMembership(change.clone()));
        self.send_all(Order::Input(change));
    }

    /// The daemon of a node that has left has ended.
    pub(super) fn node_ended(&mut self, node: u32) {
        if let Some(request) = self.leavers.ending.remove(&node) {
            self.answer_leaver(node, request, Ok(node));
        }
    }

    /// A node is lost before it has left.
    pub(super) fn leaver_lost(&mut self, node: u32, reason: &str) {
        if let Some(request) = self.leavers.leaving.remove(&node) {
            self.answer_leaver(node, request, Err(HostRefusal::failed(reason)));
        }
    }

    fn answer_leaver(&mut self, node: u32, request: u64, result: Result<u32, HostRefusal>) {
        let host = self.host(node).to_owned();
        self.actions.push_back(Action::HostChanged { request, host, result });
    }
}
