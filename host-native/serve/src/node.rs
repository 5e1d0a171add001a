//! Nodes of runs on several hosts: for each of them a PMI server on a thread of its own, whose host is the daemon of that node.
//!
//! The thread ends with the host's connection, and with it the node's jobs.
//!
//! Each node has a server of its own, because a server belongs to one tree and the nodes of two runs must not share tables. A
//! recorded node keeps a journal in memory and sends it ahead of the other reports of a turn. While much of it waits for the host
//! the thread does nothing else, until the host has read nothing for `--heartbeat` seconds.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hydrant_board::manage::{Connection, INBOX_MAX};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::manage::{BadRecord, OpenNode, decode};
use hydrant_core::peer::LINKS_MAX;
use hydrant_core::peer::tree::{ROOT_ONE, Tree};
use hydrant_core::server::remote::{
    NODE_PREFIX, NodeReport, NodeRequest, UNASKED, encode_node_record, is_of_host, report_max, request_max,
};
use hydrant_core::{Fault, Input, JobId, Limit, Limits, OwnedOutput, Rank, Server, Time};
use hydrant_driver::MappedStorage;
use hydrant_reactor::{Interest, limit_unacknowledged, printable, random_u32};

use crate::called::{self, NodeError, await_reader, ended};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::event::{JobEvent, truncate};
use crate::link_arrivals::{Arrivals, LinkedNodes};
use crate::links::{LinkEvent, Links};
use crate::options::Options;
use crate::ports::{of_host, open_port};
use crate::recorded::RecordedServer;
use crate::token::Token;

/// Maximum number of nodes at the same time.
const NODES_MAX: usize = 64;
/// Bytes that wait for the host above which no more reports are sent.
const HIGH_WATER: usize = 256 * 1024;
/// Key of the host's connection.
const HOST: Token = Token::Host(0);

/// Nodes that a management server serves.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) linked: LinkedNodes,
    count: Arc<AtomicUsize>,
    jobs: Arc<AtomicUsize>,
}

impl Nodes {
    /// Number of nodes.
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Number of jobs of all nodes.
    pub(crate) fn running_jobs(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Returns the largest limits of a node beside a server with these limits.
    pub(crate) fn most(own: &Limits) -> Limits {
        // These are not bounded by the tables of the server, and cost some bytes an entry.
        let most = |limit: u32| own.ranks.saturating_mul(4).max(limit);
        Limits {
            jobs: most(own.jobs),
            conns: most(own.conns),
            groups: most(own.groups),
            names: most(own.names),
            spawns: most(own.spawns),
            psets: most(own.psets),
            links: LINKS_MAX,
            spawn_bytes: MESSAGE_MAX,
            ..*own
        }
    }

    /// Checks that there is room for a node, whose limits are at most [`Nodes::most`].
    pub(crate) fn check(&self, node: &OpenNode) -> Result<(), Fault> {
        if self.count() >= NODES_MAX {
            return Err(Fault::Full(Limit::Jobs, NODES_MAX as u32));
        }
        if 2 * (NODE_PREFIX + request_max(&node.limits)) > INBOX_MAX {
            return Err(Fault::Full(Limit::Ranks, node.limits.ranks));
        }
        Ok(())
    }

    /// Serves a node to the host of a connection, on a thread.
    ///
    /// # Errors
    /// No thread can be started. The connection is closed.
    pub(crate) fn start(
        &self,
        (link, user): (Connection, Option<u32>),
        open: OpenNode,
        options: &Options,
    ) -> io::Result<()> {
        let (options, count, jobs) = (options.clone(), Arc::clone(&self.count), Arc::clone(&self.jobs));
        // Other boards may link to the node as soon as its host has the reply.
        let arrivals = open.link.map(|token| self.linked.accept(token, open.node)).transpose()?;
        // A machine that is gone acknowledges nothing, and a host that is stopped keeps its window closed.
        let silence = options.heartbeat.as_millis().try_into().unwrap_or(u32::MAX);
        limit_unacknowledged(link.stream(), silence)?;
        count.fetch_add(1, Ordering::Relaxed);
        let serve = move || {
            let (node, verbose) = (open.node, options.verbose);
            let say =
                |line: &str| drop(writeln!(io::stderr(), "hydrant serve: node {node}: {}", printable(line)));
            let result = match open.seed {
                Some(seed) => {
                    called::serve(link, &open.limits, seed, options.heartbeat, jobs).map(|()| Sent::default())
                }
                None => serve((link, user), open, &options, (jobs, arrivals)),
            };
            match result {
                Ok(sent) if verbose => say(&format!("its host has closed the connection; {sent}")),
                Ok(_) => {}
                Err(why) => say(&why.to_string()),
            }
            count.fetch_sub(1, Ordering::Relaxed);
        };
        let started = std::thread::Builder::new().name("node".to_owned()).spawn(serve);
        if started.is_err() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        started.map(drop)
    }
}

/// Number of messages for other nodes that a node has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    by_links: u64,
    by_host: u64,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages sent to other boards, {} by its host", self.by_links, self.by_host)
    }
}

/// Serves a node until its host closes the connection. Returns what it has sent to other nodes.
fn serve(
    (link, user): (Connection, Option<u32>),
    open: OpenNode,
    options: &Options,
    (jobs, arrivals): (Arc<AtomicUsize>, Option<Arrivals>),
) -> Result<Sent, NodeError> {
    let OpenNode { node, nodes, radix, limits, seed: _, link: token, record } = open;
    let mut storage = MappedStorage::try_new(&limits).map_err(Error::from)?;
    let seed = record.map_or_else(random_u32, Ok).map_err(Error::from)?;
    let server = Server::new_zeroed(limits, storage.lend(), seed).map_err(Error::from)?;
    let server = RecordedServer::of_node(server, record.is_some());
    let mut endpoint = Endpoint::of_thread(&options.job.allow, &limits, server)?;
    let links = match arrivals.zip(token) {
        Some((arrivals, token)) => {
            Some(Links::new((arrivals, token, node), options.secret.clone(), &limits, endpoint.poller())?)
        }
        // The only node of a run is in no tree.
        None if nodes == 1 => None,
        None => {
            endpoint.handle(Input::Node { node, nodes, radix }).map_err(Error::from)?;
            None
        }
    };
    endpoint.poller().add(link.stream(), HOST, Interest::Read).map_err(Error::from)?;
    let mut node = Node {
        link,
        endpoint,
        nodes,
        radix,
        is_recorded: record.is_some(),
        patience: options.heartbeat,
        links,
        sent: 0,
        pmi_port: options.job.pmi_port,
        user,
        sizes: BTreeMap::new(),
        jobs,
        requests: 0,
        request_max: request_max(&limits),
        record: Vec::new(),
        buffer: vec![0; NODE_PREFIX + report_max(&limits)],
        waiting: VecDeque::new(),
        blocked: false,
    };
    ended(node.run())?;
    Ok(Sent { by_links: node.links.as_ref().map_or(0, |links| links.sent), by_host: node.sent })
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.jobs.fetch_sub(self.sizes.len(), Ordering::Relaxed);
    }
}

/// A node and the connection of its host.
struct Node<'s> {
    link: Connection,
    endpoint: Endpoint<'s>,
    /// Number of nodes, and the maximum number of children of one.
    nodes: u32,
    radix: u32,
    /// The host records the server.
    is_recorded: bool,
    /// Time that the host may read nothing.
    patience: Duration,
    /// Links to the boards of neighbours, if the node was opened for them.
    links: Option<Links>,
    /// Number of messages for other nodes that the host was sent.
    sent: u64,
    /// Address for clients, with the lowest port.
    pmi_port: SocketAddr,
    /// User of the host, if it is on this machine. Its ranks are this user's.
    user: Option<u32>,
    /// Number of ranks of each job.
    sizes: BTreeMap<JobId, u32>,
    /// Number of jobs of all nodes.
    jobs: Arc<AtomicUsize>,
    /// Number of requests so far.
    requests: u32,
    request_max: usize,
    record: Vec<u8>,
    /// Buffer for reports.
    buffer: Vec<u8>,
    /// Events that wait until the host has read earlier ones.
    waiting: VecDeque<JobEvent>,
    /// The socket is polled for writing too.
    blocked: bool,
}

impl Node<'_> {
    fn run(&mut self) -> Result<(), NodeError> {
        let mut tokens = Vec::new();
        loop {
            self.await_host()?;
            let deadline = self.links.as_ref().filter(|_| !self.sizes.is_empty()).and_then(Links::deadline);
            self.endpoint.turn(deadline, &mut tokens)?;
            self.send_events()?;
            self.turn_links(&tokens)?;
            if tokens.contains(&HOST) {
                self.link.flush()?;
                self.send_events()?;
                self.receive()?;
            }
            self.update_interest()?;
        }
    }

    /// Waits until the host of a recorded server has read most of the recording, which would fill the memory otherwise.
    fn await_host(&mut self) -> Result<(), NodeError> {
        while self.is_recorded && self.link.waiting() >= HIGH_WATER {
            await_reader(&self.link, self.patience)?;
            self.link.flush()?;
        }
        Ok(())
    }

    /// Handles connections and messages of neighbours' boards, and reports what has become of links.
    fn turn_links(&mut self, tokens: &[Token]) -> Result<(), NodeError> {
        let Some(links) = &mut self.links else { return Ok(()) };
        for &token in tokens {
            match token {
                Token::Bell => links.take_arrivals(&mut self.endpoint)?,
                Token::Link(node) => links.ready(node, &mut self.endpoint)?,
                _ => {}
            }
        }
        if !self.sizes.is_empty() {
            links.handle_timeout(self.endpoint.now());
        }
        self.send_events()
    }

    /// Carries out a request about links.
    fn arrange_links(&mut self, request: &NodeRequest<'_>) -> Result<(), Fault> {
        let links = self.links.as_mut().ok_or(Fault::BadNode)?;
        match *request {
            NodeRequest::Link { node, addr } => {
                links.connect(node, addr);
                Ok(())
            }
            NodeRequest::Tree { linked, silence } => {
                let radix = if linked { self.radix | ROOT_ONE } else { self.radix };
                links.form(Tree::new(self.nodes, radix), linked, silence, &mut self.endpoint)
            }
            _ => Ok(()),
        }
    }

    /// Carries out the requests that have arrived.
    fn receive(&mut self) -> Result<(), NodeError> {
        self.link.fill()?;
        let mut record = std::mem::take(&mut self.record);
        while self.link.next_of_node(&mut record, self.request_max)? {
            let request = decode::<NodeRequest<'_>>(&record)?;
            self.carry_out(&request)?;
            self.requests = self.requests.wrapping_add(1);
        }
        self.record = record;
        Ok(())
    }

    fn carry_out(&mut self, request: &NodeRequest<'_>) -> Result<(), NodeError> {
        let result = match *request {
            NodeRequest::Sync { number } => return self.send(&NodeReport::Synced { number }),
            NodeRequest::Rank { job, rank } => return self.report_rank(job, rank),
            NodeRequest::Serve { job } => match self.accept_clients(job)? {
                Ok(port) => return self.send(&NodeReport::Serving { job, port }),
                Err(why) => Err(why),
            },
            NodeRequest::Read { job, rank } => fault_of(self.endpoint.read_last(job, rank))?,
            NodeRequest::Link { .. } | NodeRequest::Tree { .. } => self.arrange_links(request),
            NodeRequest::Input(ref input) if !is_of_host(input) => return Err(BadRecord::Malformed.into()),
            NodeRequest::Input(Input::Exited { job, rank, exit }) => {
                fault_of(self.endpoint.exited(job, rank, exit))?
            }
            NodeRequest::Input(Input::DeregisterJob { job }) => {
                if self.sizes.remove(&job).is_some() {
                    self.jobs.fetch_sub(1, Ordering::Relaxed);
                }
                fault_of(self.endpoint.close(job))?
            }
            NodeRequest::Input(input) => {
                let handled = self.endpoint.handle(input);
                if let (Ok(()), Input::RegisterJob(spec)) = (handled, input) {
                    self.sizes.insert(spec.job, spec.size);
                    self.jobs.fetch_add(1, Ordering::Relaxed);
                }
                self.endpoint.poll_driver()?;
                handled
            }
        };
        self.send_events()?;
        match result {
            Ok(()) => Ok(()),
            Err(why) => {
                let peer = match *request {
                    NodeRequest::Input(Input::Peer { node, .. }) => Some(node),
                    _ => None,
                };
                self.send(&NodeReport::Refused { request: self.requests, peer, why })
            }
        }
    }

    /// Reports the state of a rank.
    fn report_rank(&mut self, job: JobId, rank: Rank) -> Result<(), NodeError> {
        let (now, status) = (Time(self.endpoint.now()), self.endpoint.server().rank_status(job, rank));
        let record = encode_node_record(&NodeReport::Rank { job, rank, now, status }, &mut self.buffer)?;
        Ok(self.link.send_unbounded(record)?)
    }

    /// Opens the port of a job. Returns it.
    fn accept_clients(&mut self, job: JobId) -> Result<Result<u16, Fault>, NodeError> {
        let Some(&size) = self.sizes.get(&job) else { return Ok(Err(Fault::NoSuchJob)) };
        let Ok(port) = open_port(self.pmi_port).map(|port| of_host(port, self.user)) else {
            return Ok(Err(Fault::Full(Limit::Conns, self.endpoint.usage(Limit::Conns).1)));
        };
        let number = port.addr().port();
        self.endpoint.open(job, size, port)?;
        Ok(Ok(number))
    }

    /// Sends the next part of the recording.
    fn send_journal(&mut self) -> Result<(), NodeError> {
        let journal = self.endpoint.take_journal();
        journal.chunks(self.buffer.len() / 2).try_for_each(|piece| self.send(&NodeReport::Recorded(piece)))
    }

    /// Sends the recording, messages for linked neighbours, and events of the jobs while the host reads them.
    fn send_events(&mut self) -> Result<(), NodeError> {
        self.send_journal()?;
        while let Some(event) = self.endpoint.next_event() {
            if let JobEvent::Output(OwnedOutput::Peer { node, bytes }) = &event
                && let Some(links) = &mut self.links
                && links.send(*node, bytes, &mut self.endpoint)?
            {
                continue;
            }
            self.waiting.push_back(event);
        }
        while let Some(event) = self.links.as_mut().and_then(Links::next_event) {
            self.send_link_event(&event)?;
        }
        while self.link.waiting() < HIGH_WATER
            && let Some(event) = self.waiting.pop_front()
        {
            self.send_event(&event)?;
        }
        Ok(())
    }

    fn send_link_event(&mut self, event: &LinkEvent) -> Result<(), NodeError> {
        match event {
            &LinkEvent::Linked { node } => self.send(&NodeReport::Linked { node }),
            LinkEvent::Unlinked { node, why } => {
                self.send(&NodeReport::Unlinked { node: *node, why: truncate(why) })
            }
            &LinkEvent::BadPeer { node, why } => {
                self.send(&NodeReport::Refused { request: UNASKED, peer: Some(node), why })
            }
        }
    }

    fn send_event(&mut self, event: &JobEvent) -> Result<(), NodeError> {
        if let JobEvent::Output(OwnedOutput::Peer { .. }) = event {
            self.sent += 1;
        }
        if let JobEvent::Full { limit } = *event {
            return self.send(&NodeReport::limit_hit(limit, self.endpoint.usage(limit).1));
        }
        // Messages for other nodes are of no job.
        let report = event.report(event.job().unwrap_or_default());
        report.map_or(Ok(()), |report| self.send(&report))
    }

    fn send(&mut self, report: &NodeReport<'_>) -> Result<(), NodeError> {
        let record = encode_node_record(report, &mut self.buffer)?;
        Ok(self.link.send_unbounded(record)?)
    }

    /// Polls the socket for writing while bytes wait for it.
    fn update_interest(&mut self) -> Result<(), NodeError> {
        let blocked = self.link.is_blocked();
        if blocked != self.blocked {
            self.blocked = blocked;
            let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
            self.endpoint.poller().modify(self.link.stream(), HOST, interest).map_err(Error::from)?;
        }
        Ok(())
    }
}

/// Separates refusals of the server from errors that end the node.
pub(crate) fn fault_of(result: Result<(), Error>) -> Result<Result<(), Fault>, NodeError> {
    match result {
        Ok(()) => Ok(Ok(())),
        Err(Error::Driver(why)) if why.fault().is_some() => Ok(why.fault().map_or(Ok(()), Err)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_more_than_its_board_of_what_costs_little() {
        let own = Limits { spawn_bytes: 0, ..Limits::for_ranks(100) };
        let most = Nodes::most(&own);
        let bounds = |limits: &Limits| [limits.ranks, limits.keys, limits.kvs_bytes, limits.commit_bytes];
        assert_eq!(bounds(&most), bounds(&own));
        assert_eq!((most.jobs, most.spawn_bytes, most.links), (4 * own.ranks, MESSAGE_MAX, LINKS_MAX));
        let run = Limits { links: 33, ..Limits::for_ranks(100) };
        assert_eq!(run.exceeding(most).next(), None);
        let open =
            OpenNode { node: 1, nodes: 3, radix: 2, limits: run, seed: None, link: None, record: None };
        assert_eq!(Nodes::default().check(&open), Ok(()));
        let full = Nodes::default();
        full.count.store(NODES_MAX, Ordering::Relaxed);
        assert_eq!(full.check(&open), Err(Fault::Full(Limit::Jobs, NODES_MAX as u32)));
        let huge = OpenNode { limits: Limits { ranks: u32::MAX, commit_bytes: 1 << 20, ..run }, ..open };
        assert_eq!(Nodes::default().check(&huge), Err(Fault::Full(Limit::Ranks, u32::MAX)));
    }
}
