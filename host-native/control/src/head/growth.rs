//! Hosts that join a running run.
//!
//! A node that joins gets in one go what all others have got: the settings, the jobs that are registered, and what ranks have asked
//! for all nodes. The change of membership follows, and then the orders for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hydrant_core::OwnedInput;
use hydrant_core::peer::tree::{LATE, RADIX_MIN, Tree};
use hydrant_placement::Host;

use super::{Action, Config, Head};
use crate::error::{Error, HostRefusal};
use crate::protocol::{Order, Setup};

/// Most requests of ranks that a node that joins is told of. Each takes as many bytes as a rank has sent.
const REQUESTS_MAX: usize = 4096;

/// Hosts that join, and what they are told.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// Settings of all nodes. Missing if no host may join.
    setup: Option<Box<Setup>>,
    /// The tree of all nodes, late ones included.
    tree: Tree,
    /// Hosts that have been named before the first job has started: the request, the host, and whether it may be there.
    early: Vec<(u64, Host, bool)>,
    /// Nodes whose daemons are being started, each with the numbers of the requests.
    starting: BTreeMap<u32, Vec<u64>>,
    /// Nodes whose daemons wait to be told.
    arrived: BTreeSet<u32>,
    /// Nodes that have not joined. Their numbers are free.
    failed: BTreeSet<u32>,
    /// Orders to all nodes that say which jobs there are and what ranks have asked for all nodes, without those of ended jobs.
    history: Vec<Order>,
    /// How many of them ranks have asked for.
    requests: usize,
    /// Ranks have asked for more than is kept.
    is_cut: bool,
}

impl Newcomers {
    pub(super) fn new(config: &Config, setup: &Setup) -> Newcomers {
        Newcomers {
            setup: config.least.map(|_| Box::new(setup.clone())),
            tree: Tree::new(
                config.hosts.len() as u32 + 1 + config.late,
                config.radix.max(RADIX_MIN) | (config.late * LATE),
            ),
            early: Vec::new(),
            starting: BTreeMap::new(),
            arrived: BTreeSet::new(),
            failed: BTreeSet::new(),
            history: Vec::new(),
            requests: 0,
            is_cut: false,
        }
    }

    /// Whether hosts may join and leave.
    pub(super) fn is_elastic(&self) -> bool {
        self.setup.is_some()
    }

    /// Whether a node has not joined, and no host has its number.
    pub(super) fn has_failed(&self, node: u32) -> bool {
        self.failed.contains(&node)
    }

    /// A node and those below it.
    pub(super) fn subtree(&self, node: u32) -> Range<u32> {
        self.tree.subtree(node)
    }

    /// Keeps an order to all nodes, if nodes that join are to be told.
    pub(super) fn remember(&mut self, order: &Order) {
        if !self.is_elastic() {
            return;
        }
        let is_request = |order: &Order| {
            matches!(order, Order::Input(OwnedInput::PsetRequest { .. } | OwnedInput::Connected { .. }))
        };
        match order {
            Order::StartJob(_) => self.history.push(order.clone()),
            Order::DeregisterJob(ended) => {
                self.history.retain(|order| match order {
                    Order::StartJob(record) => record.id != *ended,
                    Order::Input(OwnedInput::PsetRequest { job, .. }) => job != ended,
                    Order::Input(OwnedInput::Connected { job, other, .. }) => job != ended && other != ended,
                    _ => true,
                });
                self.requests = self.history.iter().filter(|order| is_request(order)).count();
            }
            order if is_request(order) && !self.is_cut => {
                self.history.push(order.clone());
                self.requests += 1;
                if self.requests > REQUESTS_MAX {
                    self.is_cut = true;
                    self.history.retain(|order| !is_request(order));
                }
            }
            _ => {}
        }
    }
}

impl Head {
    /// Nodes that are members of the run.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.config.hosts.len() as u32).filter(|node| !self.lost.contains(node))
    }

    /// A host is to join.
    pub(super) fn start_newcomer(&mut self, request: u64, host: Host, may_be_there: bool) {
        if self.first.is_some() && self.newcomers.is_elastic() {
            self.newcomers.early.push((request, host, may_be_there));
            return;
        }
        if let Some(node) = self.node_there(&host.name).filter(|_| may_be_there) {
            match self.newcomers.starting.get_mut(&node) {
                Some(requests) => requests.push(request),
                None => {
                    let (host, result) = (host.name, Ok(node));
                    self.actions.push_back(Action::HostChanged { request, host, result });
                }
            }
            return;
        }
        match self.number_newcomer(&host) {
            Ok(node) => {
                self.newcomers.failed.remove(&node);
                self.newcomers.starting.insert(node, vec![request]);
                // Until it has joined, no more is sent there than to a lost one.
                self.lost.insert(node);
                match self.config.hosts.get_mut(node as usize - 1) {
                    Some(known) => *known = host.clone(),
                    None => self.config.hosts.push(host.clone()),
                }
                self.actions.push_back(Action::StartDaemon { node, host });
            }
            Err(why) => {
                let (host, result) = (host.name, Err(why.into()));
                self.actions.push_back(Action::HostChanged { request, host, result });
            }
        }
    }

    /// Checks that hosts can do this now: join or leave.
    pub(super) fn check_elastic(&self, what: &str) -> Result<(), Error> {
        let runs = if self.config.stays { self.is_open() } else { !self.jobs.is_empty() };
        let why = if !self.newcomers.is_elastic() {
            format!("hosts cannot {what} this run: start it with --elastic HOSTS")
        } else if self.first.is_some() || !runs || self.statuses.of(None).is_interrupted() {
            format!("the run starts or ends, and hosts {what} between")
        } else {
            return Ok(());
        };
        Err(Error::NotElastic(why))
    }

    /// Number of the node of a host that is to join.
    fn number_newcomer(&self, host: &Host) -> Result<u32, Error> {
        let Newcomers { tree, failed, is_cut, .. } = &self.newcomers;
        let last = tree.nodes() - 1;
        self.check_elastic("join")?;
        if *is_cut {
            let why = "its ranks have changed process sets and connections too often for hosts to be told: 4096 times";
            return Err(Error::NotElastic(why.to_owned()));
        }
        if self.node_there(&host.name).is_some() {
            return Err(Error::HostThere(host.name.clone()));
        }
        let known = self.config.hosts.len() as u32;
        let free = failed.first().copied().or((known < last).then_some(known + 1));
        free.ok_or(Error::ManyHosts(last))
    }

    /// Node of a host of this name that is a member or joins.
    fn node_there(&self, host: &str) -> Option<u32> {
        let is_there = |node: &u32| !self.lost.contains(node) || self.is_newcomer(*node);
        (1..=self.config.hosts.len() as u32).filter(is_there).find(|&node| self.host(node) == host)
    }

    /// Whether a node's daemon is being started.
    pub(super) fn is_newcomer(&self, node: u32) -> bool {
        self.newcomers.starting.contains_key(&node)
    }

    /// The daemon of a host that joins has connected. It is told when all actions have been carried out that others are told of.
    pub(super) fn newcomer_connected(&mut self, node: u32) {
        self.newcomers.arrived.insert(node);
    }

    /// The daemon of a host that was to join could not be started, or has ended.
    pub(super) fn newcomer_failed(&mut self, node: u32, reason: &str) {
        self.newcomers.arrived.remove(&node);
        self.newcomers.failed.insert(node);
        self.answer_newcomer(node, Err(HostRefusal::failed(reason)));
    }

    fn answer_newcomer(&mut self, node: u32, result: Result<u32, HostRefusal>) {
        let host = self.host(node).to_owned();
        for request in self.newcomers.starting.remove(&node).unwrap_or_default() {
            let (host, result) = (host.clone(), result.clone());
            self.actions.push_back(Action::HostChanged { request, host, result });
        }
    }

    /// Makes the nodes that have connected members. Called when no other action waits.
    pub(super) fn admit_newcomers(&mut self) {
        if self.first.is_none() {
            for (request, host, may_be_there) in std::mem::take(&mut self.newcomers.early) {
                self.start_newcomer(request, host, may_be_there);
            }
        }
        while let Some(node) = self.newcomers.arrived.pop_first() {
            self.lost.remove(&node);
            self.epoch += 1;
            if let Some(setup) = self.newcomers.setup.clone() {
                self.send(node, Order::Setup(setup));
            }
            for order in self.newcomers.history.clone() {
                self.send(node, order);
            }
            let change = OwnedInput::NodeJoined { epoch: self.epoch, node };
            self.actions.push_back(Action::ChangeMembership(change.clone()));
            self.actions.push_back(Action::IncludeNode { node });
            self.send_all(Order::Input(change));
            if self.config.verbose {
                self.print(format!("host {} (node {node}) has joined", self.host(node)));
            }
            self.answer_newcomer(node, Ok(node));
            self.submissions.hosts_are_there();
        }
        self.settle_submissions();
    }
}
