//! Hosts that join a running run: others than those of its start, and those of its start that had no ranks and so no daemon.
//!
//! A node that may fail to apply the settings gets them first, and is refused if it has failed. A node that joins then gets in one
//! go what all others have got: the settings otherwise, the jobs that are registered, and what ranks have asked for all nodes. The
//! change of membership follows, and then the orders for all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hydrant_core::OwnedInput;
use hydrant_core::peer::tree::{LATE, RADIX_MIN, Tree};
use hydrant_placement::Host;

use super::{Action, Config, Destination, Head};
use crate::error::{Error, HostRefusal};
use crate::protocol::{Entry, History, JobRecord, Order, REQUESTS_MAX, Setup};

/// Hosts that join, and what they are told.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// Settings of all nodes. Missing if no host may join.
    setup: Option<Box<Setup>>,
    /// Nodes of the hosts that have had no daemon at the start. Their numbers are for no other hosts.
    given: Range<u32>,
    /// Those of them that no daemon has been started for.
    unused: BTreeSet<u32>,
    /// The tree of all nodes, late ones included.
    tree: Tree,
    /// Hosts that have been named before the first job has started: the request, the host, and whether it may be there.
    early: Vec<(u64, Host, bool)>,
    /// Nodes whose daemons are being started, each with the numbers of the requests.
    starting: BTreeMap<u32, Vec<u64>>,
    /// Nodes that apply the settings, each with the reason why it cannot, if it has failed.
    preparing: BTreeMap<u32, Option<String>>,
    /// Nodes whose daemons wait to be told.
    arrived: BTreeSet<u32>,
    /// Nodes that have not joined. Their numbers are free.
    failed: BTreeSet<u32>,
    /// What all nodes have been told of the jobs that there are, those of tools among them.
    history: History<Box<JobRecord>>,
}

/// Nodes of the hosts that have no daemon at the start.
pub(super) fn unused_nodes(config: &Config) -> Range<u32> {
    let hosts = config.hosts.len() as u32;
    hosts + 1 - config.unused..hosts + 1
}

impl Newcomers {
    pub(super) fn new(config: &Config, setup: &Setup) -> Newcomers {
        let may_join = config.least.is_some() || config.unused > 0;
        let late = config.unused + config.late;
        Newcomers {
            setup: may_join.then(|| Box::new(setup.clone())),
            given: unused_nodes(config),
            unused: unused_nodes(config).collect(),
            tree: Tree::new(
                config.hosts.len() as u32 + 1 + config.late,
                config.radix.max(RADIX_MIN) | (late * LATE),
            ),
            early: Vec::new(),
            starting: BTreeMap::new(),
            preparing: BTreeMap::new(),
            arrived: BTreeSet::new(),
            failed: BTreeSet::new(),
            history: History::default(),
        }
    }

    /// Whether a node has not joined, and its daemon is not being started.
    pub(super) fn is_free(&self, node: u32) -> bool {
        self.failed.contains(&node) || self.unused.contains(&node)
    }

    /// Settings that a node may fail to apply before it is a member. Files are sent to members, and boards are linked before the
    /// first job.
    fn setup_before(&self) -> Option<&Setup> {
        let setup = self.setup.as_deref()?;
        (setup.needs_ready() && setup.files.is_empty() && setup.boards.link.is_none()).then_some(setup)
    }

    /// A node and those below it.
    pub(super) fn subtree(&self, node: u32) -> Range<u32> {
        self.tree.subtree(node)
    }

    /// Keeps an order to all nodes, if nodes that join are to be told.
    pub(super) fn remember(&mut self, order: &Order) {
        if self.setup.is_none() {
            return;
        }
        match order {
            Order::StartJob(record) => self.history.push_job(record.id, record.clone()),
            Order::DeregisterJob(job) | Order::Input(OwnedInput::DeregisterJob { job }) => {
                self.history.forget(*job);
            }
            Order::Input(input) => self.history.push_input(input),
            _ => {}
        }
    }
}

/// Ranks have asked for more than a daemon is told.
fn many_requests() -> Error {
    let what = "its ranks have changed process sets and connections too often for hosts to be told";
    Error::NotElastic(format!("{what}: {REQUESTS_MAX} times"))
}

impl Head {
    /// Nodes that are members of the run.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.config.hosts.len() as u32).filter(|node| !self.lost.contains(node))
    }

    /// Keeps an order for nodes that join. The launcher has sent it to all nodes by itself: one about the job of a tool.
    pub fn note_sent(&mut self, order: &Order) {
        self.newcomers.remember(order);
    }

    /// A host is to join.
    pub(super) fn start_newcomer(&mut self, request: u64, host: Host, may_be_there: bool) {
        if self.first.is_some() && self.newcomers.setup.is_some() {
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
                match self.config.hosts.get_mut(node as usize - 1) {
                    // It is as the run was given it.
                    Some(_) if self.newcomers.given.contains(&node) => {}
                    Some(known) => *known = host,
                    None => self.config.hosts.push(host),
                }
                self.start_daemon(node, vec![request]);
            }
            Err(why) => {
                let (host, result) = (host.name, Err(why.into()));
                self.actions.push_back(Action::HostChanged { request, host, result });
            }
        }
    }

    /// Starts the daemon of a node. The requests are answered when it has joined or failed.
    fn start_daemon(&mut self, node: u32, requests: Vec<u64>) {
        let Newcomers { failed, unused, starting, .. } = &mut self.newcomers;
        failed.remove(&node);
        unused.remove(&node);
        starting.insert(node, requests);
        // Until it has joined, no more is sent there than to a lost one.
        self.lost.insert(node);
        let host = self.config.hosts[node as usize - 1].clone();
        self.actions.push_back(Action::StartDaemon { node, host });
    }

    /// Starts the daemons of these nodes that are unused, and has a spawn wait for all of them.
    pub(super) fn await_daemons(&mut self, nodes: &BTreeSet<u32>) -> Result<(), Error> {
        self.check_joining()?;
        for &node in nodes {
            if !self.is_newcomer(node) {
                self.start_daemon(node, Vec::new());
            }
        }
        Ok(())
    }

    /// Checks that hosts which the run was not given can do this: join or leave.
    pub(super) fn check_elastic(&self, what: &str) -> Result<(), Error> {
        if self.config.least.is_none() {
            let why = format!("hosts cannot {what} this run: start it with --elastic HOSTS");
            return Err(Error::NotElastic(why));
        }
        Ok(())
    }

    /// Checks that the run is between its start and its end.
    pub(super) fn check_running(&self, what: &str) -> Result<(), Error> {
        let runs = if self.config.stays { self.is_open() } else { !self.jobs.is_empty() };
        match self.first.is_some() || !runs || self.statuses.of(None).is_interrupted() {
            true => Err(Error::NotElastic(format!("the run starts or ends, and hosts {what} between"))),
            false => Ok(()),
        }
    }

    /// Checks that a daemon can be told what all others know.
    fn check_joining(&self) -> Result<(), Error> {
        match self.newcomers.history.is_cut() {
            true => Err(many_requests()),
            false => self.check_running("join"),
        }
    }

    /// Number of the node of a host that is to join.
    fn number_newcomer(&self, host: &Host) -> Result<u32, Error> {
        let Newcomers { tree, failed, unused, .. } = &self.newcomers;
        let given = unused.iter().copied().find(|&node| self.host(node) == host.name);
        if given.is_none() {
            self.check_elastic("join")?;
        }
        self.check_joining()?;
        if self.node_there(&host.name).is_some() {
            return Err(Error::HostThere(host.name.clone()));
        }
        let (known, last) = (self.config.hosts.len() as u32, tree.nodes() - 1);
        let free = given.or(failed.first().copied()).or((known < last).then_some(known + 1));
        free.ok_or(Error::ManyHosts(last))
    }

    /// Hosts that the run was given and that have no daemon.
    pub fn unused_hosts(&self) -> impl Iterator<Item = &Host> {
        self.newcomers.unused.iter().map(|&node| &self.config.hosts[node as usize - 1])
    }

    /// Nodes that ranks may be placed on. Those of [unused](Head::unused_hosts) hosts join before.
    pub(super) fn usable_nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let Newcomers { given, unused, .. } = &self.newcomers;
        let joins = |node: u32| unused.contains(&node) || given.contains(&node) && self.is_newcomer(node);
        let nodes = 1..=self.config.hosts.len() as u32;
        nodes.filter(move |&node| self.is_open_node(node) || joins(node))
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
        match self.newcomers.setup_before() {
            Some(setup) => {
                let (to, order) = (Destination::Node(node), Order::Setup(Box::new(setup.clone())));
                self.actions.push_back(Action::Send { to, order });
                self.newcomers.preparing.insert(node, None);
            }
            None => drop(self.newcomers.arrived.insert(node)),
        }
    }

    /// A daemon has applied the settings.
    pub(super) fn newcomer_is_ready(&mut self, node: u32) {
        if self.newcomers.preparing.get(&node) == Some(&None) {
            self.newcomers.preparing.remove(&node);
            self.newcomers.arrived.insert(node);
        }
    }

    /// The daemon of a host that joins cannot serve ranks. Its number is free once it has ended.
    pub(super) fn newcomer_is_unfit(&mut self, node: u32, why: String) {
        self.newcomers.arrived.remove(&node);
        self.newcomers.preparing.insert(node, Some(why));
        self.actions.push_back(Action::Send { to: Destination::Node(node), order: Order::End });
    }

    /// The daemon of a host that was to join could not be started, or has ended.
    pub(super) fn newcomer_failed(&mut self, node: u32, reason: &str) {
        let Newcomers { preparing, arrived, given, unused, failed, .. } = &mut self.newcomers;
        let unfit = preparing.remove(&node).flatten();
        let reason = unfit.as_deref().unwrap_or(reason);
        arrived.remove(&node);
        if given.contains(&node) {
            unused.insert(node)
        } else {
            failed.insert(node)
        };
        self.answer_newcomer(node, Err(HostRefusal::failed(reason)));
        self.resume_spawns();
    }

    /// The daemon of a host has ended that could not be told what all others know.
    pub(super) fn newcomer_ended(&mut self, node: u32) {
        self.newcomer_failed(node, &many_requests().to_string());
    }

    fn answer_newcomer(&mut self, node: u32, result: Result<u32, HostRefusal>) {
        self.tell_spawns(node, result.as_ref().err().map(|why| &*why.text));
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
            // Since its daemon was started.
            if self.newcomers.history.is_cut() {
                self.actions.push_back(Action::DismissNode { node });
                continue;
            }
            self.lost.remove(&node);
            self.epoch += 1;
            if let Some(setup) =
                self.newcomers.setup.clone().filter(|_| self.newcomers.setup_before().is_none())
            {
                self.send(node, Order::Setup(setup));
            }
            let order_of = |entry: &Entry<Box<JobRecord>>| match entry {
                Entry::Job(_, record) => Order::StartJob(record.clone()),
                Entry::Input(input) => Order::Input(input.clone()),
            };
            let orders: Vec<Order> = self.newcomers.history.iter().map(order_of).collect();
            orders.into_iter().for_each(|order| self.send(node, order));
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
        // A node that joins is told of the jobs of before, so that no job begins between.
        self.resume_spawns();
        self.settle_submissions();
    }
}
