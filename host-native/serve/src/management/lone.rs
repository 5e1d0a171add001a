//! Lone nodes: nodes without other nodes, whose jobs the server of the management port serves beside those of other hosts.
//!
//! The connection of the host carries the [records of a node](hydrant_core::server::remote). Their job numbers are the host's,
//! and are replaced by those of this server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use hydrant_board::manage::{Connection, ConnectionError, INBOX_MAX};
use hydrant_core::manage::{BadRecord, OpenNode, decode};
use hydrant_core::server::JobSpec;
use hydrant_core::server::remote::{
    NODE_PREFIX, NodeReport, NodeRequest, encode_node_record, is_of_host, report_max, request_max,
};
use hydrant_core::{Fault, Input, JobId, Limit, Output, OwnedOutput, Time, UpcallId};
use hydrant_reactor::Interest;

use super::{HostConnection, Managed, Management};
use crate::called::{NodeError, ended};
use crate::error::Error as ServiceError;
use crate::event::JobEvent;
use crate::node::fault_of;
use crate::ports::{of_host, open_port};
use crate::token::Token;

/// Maximum number of lone nodes.
pub(super) const LONE_MAX: usize = 64;

/// A lone node.
#[derive(Debug)]
pub(super) struct LoneNode {
    link: Connection,
    from: SocketAddr,
    /// User of the host, if it is on this machine.
    user: Option<u32>,
    /// Jobs by the number that the host has for them.
    jobs: BTreeMap<JobId, LoneJob>,
    /// Spawns and other upcalls that the host was sent.
    upcalls: BTreeSet<UpcallId>,
    /// Number of requests so far.
    requests: u32,
    request_max: usize,
    /// Buffer for reports.
    buffer: Vec<u8>,
    /// The socket is polled for writing too.
    blocked: bool,
}

/// Job of a lone node.
#[derive(Clone, Copy, Debug)]
struct LoneJob {
    /// Its number at the server.
    here: JobId,
    /// Port of its clients.
    port: u16,
}

/// Returns whether a node is served here. Others, and those that their hosts record, have servers and threads of their own.
pub(super) fn is_lone(open: &OpenNode) -> bool {
    open.nodes == 1 && open.seed.is_none() && open.link.is_none() && open.record.is_none()
}

impl LoneNode {
    fn new(host: HostConnection, open: &OpenNode) -> LoneNode {
        LoneNode {
            link: host.connection,
            from: host.from,
            user: host.user,
            jobs: BTreeMap::new(),
            upcalls: BTreeSet::new(),
            requests: 0,
            request_max: request_max(&open.limits),
            buffer: vec![0; NODE_PREFIX + report_max(&open.limits)],
            blocked: false,
        }
    }

    fn job(&self, theirs: JobId) -> Result<LoneJob, Fault> {
        self.jobs.get(&theirs).copied().ok_or(Fault::NoSuchJob)
    }

    /// Returns the number that the host has for a job of the server, if it is one of this node.
    fn number_of(&self, here: JobId) -> Option<JobId> {
        self.jobs.iter().find(|(_, job)| job.here == here).map(|(&theirs, _)| theirs)
    }

    fn check_upcall(&self, upcall: UpcallId) -> Result<(), Fault> {
        if self.upcalls.contains(&upcall) { Ok(()) } else { Err(Fault::NoSuchUpcall) }
    }

    /// Returns an input with the server's numbers of jobs. Upcalls have to be this node's.
    fn translate<'i>(&self, input: Input<'i>) -> Result<Input<'i>, Fault> {
        let here = |job| self.job(job).map(|job| job.here);
        Ok(match input {
            Input::Program { job, first, count, appnum } => {
                Input::Program { job: here(job)?, first, count, appnum }
            }
            Input::Attr { job, key, value } => Input::Attr { job: here(job)?, key, value },
            Input::Pset { job, name, first, count } => Input::Pset { job: here(job)?, name, first, count },
            Input::Define { job, name, members, other } => {
                Input::Define { job: here(job)?, name, members, other: other.map(here).transpose()? }
            }
            Input::Connected { job, other, connected } => {
                Input::Connected { job: here(job)?, other: here(other)?, connected }
            }
            Input::SpawnComplete { spawn: upcall, .. } | Input::UpcallComplete { upcall, .. } => {
                self.check_upcall(upcall)?;
                input
            }
            // They are about other nodes.
            _ => return Err(Fault::BadNode),
        })
    }

    fn send(&mut self, report: &NodeReport<'_>) -> Result<(), ConnectionError> {
        let record = encode_node_record(report, &mut self.buffer)?;
        self.link.send_encoded(record)
    }
}

impl Managed<'_, '_> {
    /// Checks that there is room for another lone node.
    pub(super) fn check_lone(&self, open: &OpenNode) -> Result<(), Fault> {
        if NODE_PREFIX + request_max(&open.limits) > INBOX_MAX {
            return Err(Fault::Full(Limit::Ranks, open.limits.ranks));
        }
        if self.lone.iter().flatten().count() >= LONE_MAX {
            return Err(Fault::Full(Limit::Jobs, LONE_MAX as u32));
        }
        Ok(())
    }

    fn lone_node(&mut self, at: u32) -> Option<&mut LoneNode> {
        self.lone.get_mut(at as usize).and_then(Option::as_mut)
    }

    /// Returns the lone node that a job is of, and the number that its host has for it.
    fn lone_of(&self, job: JobId) -> Option<(u32, JobId)> {
        (0..).zip(&self.lone).find_map(|(at, node)| Some((at, node.as_ref()?.number_of(job)?)))
    }

    /// Number of jobs of lone nodes.
    pub(super) fn lone_jobs(&self) -> usize {
        self.lone.iter().flatten().map(|node| node.jobs.len()).sum()
    }

    /// Carries out a request of the host of `node`. Returns its reply, if it has one.
    fn carry_out(
        &mut self,
        node: &mut LoneNode,
        request: &NodeRequest<'_>,
    ) -> Result<Option<NodeReport<'static>>, NodeError> {
        let number = node.requests;
        node.requests = number.wrapping_add(1);
        let result = match *request {
            NodeRequest::Sync { number } => return Ok(Some(NodeReport::Synced { number })),
            NodeRequest::Serve { job } => match node.job(job) {
                Ok(LoneJob { here, port }) => {
                    self.endpoint.pause(here, false)?;
                    return Ok(Some(NodeReport::Serving { job, port }));
                }
                Err(why) => Err(why),
            },
            NodeRequest::Rank { job, rank } => {
                let now = Time(self.endpoint.now());
                let known = node.job(job).ok();
                let status = known.and_then(|known| self.endpoint.server().rank_status(known.here, rank));
                node.send(&NodeReport::Rank { job, rank, now, status })?;
                return Ok(None);
            }
            NodeRequest::Read { job, rank } => match node.job(job) {
                Ok(known) => fault_of(self.endpoint.read_last(known.here, rank))?,
                Err(why) => Err(why),
            },
            NodeRequest::Link { .. } | NodeRequest::Tree { .. } => Err(Fault::BadNode),
            NodeRequest::Input(ref input) if !is_of_host(input) => {
                return Err(BadRecord::Malformed.into());
            }
            NodeRequest::Input(input) => self.handle_of(node, input)?,
        };
        Ok(result.err().map(|why| NodeReport::Refused { request: number, peer: None, why }))
    }

    /// Passes an input of the host of `node` to the server.
    fn handle_of(&mut self, node: &mut LoneNode, input: Input<'_>) -> Result<Result<(), Fault>, NodeError> {
        match input {
            Input::RegisterJob(spec) => self.register_of(node, spec),
            Input::Exited { job, rank, exit } => match node.job(job) {
                Ok(known) => fault_of(self.endpoint.exited(known.here, rank, exit)),
                Err(why) => Ok(Err(why)),
            },
            Input::DeregisterJob { job } => match node.jobs.remove(&job) {
                Some(known) => {
                    self.close(known.here)?;
                    Ok(Ok(()))
                }
                None => Ok(Err(Fault::NoSuchJob)),
            },
            input => {
                let handled = node.translate(input).and_then(|input| self.endpoint.handle(input));
                if let Input::SpawnComplete { spawn: upcall, .. } | Input::UpcallComplete { upcall, .. } =
                    input
                    && handled.is_ok()
                {
                    node.upcalls.remove(&upcall);
                }
                self.endpoint.poll_driver()?;
                Ok(handled)
            }
        }
    }

    fn register_of(
        &mut self,
        node: &mut LoneNode,
        spec: JobSpec<'_>,
    ) -> Result<Result<(), Fault>, NodeError> {
        if node.jobs.contains_key(&spec.job) {
            return Ok(Err(Fault::JobInUse));
        }
        if let Some(Err(why)) = spec.spawn.map(|spawn| node.check_upcall(spawn)) {
            return Ok(Err(why));
        }
        let (theirs, here) = (spec.job, self.endpoint.free_id());
        let port = match self.register(JobSpec { job: here, ..spec }, node.user)? {
            Ok(port) => port,
            Err(why) => return Ok(Err(why)),
        };
        node.jobs.insert(theirs, LoneJob { here, port });
        Ok(Ok(()))
    }

    /// Registers a job and opens its port for ranks of `user`, where clients wait to be accepted. Returns the port.
    pub(super) fn register(
        &mut self,
        spec: JobSpec<'_>,
        user: Option<u32>,
    ) -> Result<Result<u16, Fault>, ServiceError> {
        let JobSpec { job, name, size, .. } = spec;
        // The port of job n is n higher than that of job 0, or the next one that is free.
        let mut addr = self.options.job.pmi_port;
        if addr.port() != 0 {
            let Ok(port) = u16::try_from(u32::from(addr.port()) + job.0) else {
                return Ok(Err(Fault::Full(Limit::Jobs, job.0)));
            };
            addr.set_port(port);
        }
        let port = match open_port(addr) {
            Ok(port) => of_host(port, user),
            Err(error) => {
                self.endpoint.log(&error.to_string());
                return Ok(Err(Fault::Full(Limit::Conns, self.endpoint.usage(Limit::Conns).1)));
            }
        };
        if let Err(why) = self.endpoint.handle(Input::RegisterJob(spec)) {
            return Ok(Err(why));
        }
        let addr = port.addr();
        self.endpoint.open(job, size, port)?;
        self.endpoint.pause(job, true)?;
        self.log_verbose(|| format!("job {job} of {size} ranks is called {name}, at {addr}"));
        Ok(Ok(addr.port()))
    }

    /// Ends a job with its connections and its port.
    pub(super) fn close(&mut self, job: JobId) -> Result<(), ServiceError> {
        self.log_verbose(|| format!("job {job} is over"));
        self.endpoint.close(job)
    }
}

impl Management<'_, '_> {
    /// Serves a lone node to the host of a connection.
    pub(super) fn add_lone(&mut self, host: HostConnection, open: &OpenNode) -> Result<(), ServiceError> {
        let lone = &mut self.managed.lone;
        let at = lone.iter().position(Option::is_none).unwrap_or(lone.len());
        if at == lone.len() {
            lone.push(None);
        }
        let node = LoneNode::new(host, open);
        let token = Token::Lone(at as u32);
        self.managed.endpoint.poller().add(node.link.stream(), token, Interest::Read)?;
        self.managed.lone[at] = Some(node);
        Ok(())
    }

    /// Handles the socket of a lone node's host.
    pub(super) fn lone_ready(&mut self, at: u32) -> Result<(), ServiceError> {
        let received = self.receive_of(at);
        self.settle(at, received)
    }

    /// Ends a lone node after an error of its connection.
    fn settle(&mut self, at: u32, result: Result<(), NodeError>) -> Result<(), ServiceError> {
        let is_over = result.is_err();
        match ended(result) {
            Err(NodeError::Server(error)) => return Err(error),
            Err(NodeError::Host(why)) => {
                if let Some(from) = self.managed.lone_node(at).map(|node| node.from) {
                    self.log(&format!("closed the connection of host {from}: {why}"));
                }
            }
            Ok(()) => {}
        }
        if !is_over {
            return Ok(());
        }
        let Some(node) = self.managed.lone.get_mut(at as usize).and_then(Option::take) else { return Ok(()) };
        self.managed.endpoint.poller().remove(node.link.stream());
        // The host sees the connection end when its jobs have ended.
        node.jobs.values().try_for_each(|job| self.managed.close(job.here))
    }

    /// Carries out the requests that have arrived.
    fn receive_of(&mut self, at: u32) -> Result<(), NodeError> {
        let Some(node) = self.managed.lone_node(at) else { return Ok(()) };
        node.link.flush().and_then(|()| node.link.fill())?;
        let mut record = Vec::new();
        // The node is not in its place meanwhile.
        while let Some(mut node) = self.managed.lone.get_mut(at as usize).and_then(Option::take) {
            let next = node.link.next_of_node(&mut record, node.request_max);
            let reply = match next {
                Ok(true) => decode::<NodeRequest<'_>>(&record)
                    .map_err(NodeError::from)
                    .and_then(|request| self.managed.carry_out(&mut node, &request)),
                Ok(false) => {
                    self.managed.lone[at as usize] = Some(node);
                    break;
                }
                Err(why) => Err(why.into()),
            };
            self.managed.lone[at as usize] = Some(node);
            let reply = reply?;
            // What a request causes is reported before its reply.
            self.send_events()?;
            if let Some((node, reply)) = self.managed.lone_node(at).zip(reply) {
                node.send(&reply)?;
            }
        }
        Ok(self.watch_lone(at)?)
    }

    /// Polls the socket of a lone node for writing while bytes wait for it.
    fn watch_lone(&mut self, at: u32) -> Result<(), ConnectionError> {
        let Managed { lone, endpoint, .. } = &mut self.managed;
        let Some(node) = lone.get_mut(at as usize).and_then(Option::as_mut) else { return Ok(()) };
        let blocked = node.link.is_blocked();
        if blocked != node.blocked {
            node.blocked = blocked;
            let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
            let changed = endpoint.poller().modify(node.link.stream(), Token::Lone(at), interest);
            changed.map_err(|error| ConnectionError::Io(error.why))?;
        }
        Ok(())
    }

    /// Sends an event to the host of the lone node that its job is of.
    pub(super) fn send_to_lone(&mut self, event: &JobEvent) -> Result<(), ServiceError> {
        let Some((at, theirs)) = event.job().and_then(|job| self.managed.lone_of(job)) else { return Ok(()) };
        let Some(node) = self.managed.lone_node(at) else { return Ok(()) };
        if let JobEvent::Output(
            OwnedOutput::Spawn { spawn: upcall, .. } | OwnedOutput::Upcall { upcall, .. },
        ) = event
        {
            node.upcalls.insert(*upcall);
        }
        let report = match *event {
            JobEvent::Output(OwnedOutput::Connected { other, connected, .. }) => node
                .number_of(other)
                .map(|other| NodeReport::Output(Output::Connected { job: theirs, other, connected })),
            _ => event.report(theirs),
        };
        let sent = report.map_or(Ok(()), |report| node.send(&report));
        let sent = sent.and_then(|()| self.watch_lone(at));
        self.settle(at, sent.map_err(NodeError::from))
    }

    /// Reports to the hosts of all lone nodes that a client was refused because a limit is reached.
    pub(super) fn send_limit_hit(&mut self, limit: Limit, size: u32) -> Result<(), ServiceError> {
        for at in 0..self.managed.lone.len() as u32 {
            let Some(node) = self.managed.lone_node(at) else { continue };
            let sent = node.send(&NodeReport::limit_hit(limit, size));
            let sent = sent.and_then(|()| self.watch_lone(at));
            self.settle(at, sent.map_err(NodeError::from))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use hydrant_core::trace::Exit;
    use hydrant_core::{Limits, Rank};

    use super::super::tests::with_managed;
    use super::*;

    const OPEN: OpenNode = OpenNode {
        node: 0,
        nodes: 1,
        radix: 2,
        limits: Limits { ranks: 4, spawn_bytes: 1024, ..Limits::NONE },
        seed: None,
        link: None,
        record: None,
    };

    /// A lone node, and the connection of its host.
    fn node() -> (LoneNode, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, from) = listener.accept().unwrap();
        let connection = Connection::of_server(stream, None).unwrap();
        (LoneNode::new(HostConnection { connection, from, user: None, blocked: false }, &OPEN), host)
    }

    fn tell(managed: &mut Managed<'_, '_>, node: &mut LoneNode, input: Input<'_>) -> Option<Fault> {
        match managed.carry_out(node, &NodeRequest::Input(input)).expect("the host is heard") {
            Some(NodeReport::Refused { why, .. }) => Some(why),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hosts_number_their_jobs_and_reach_no_others() {
        with_managed(0, |managed| {
            let ((mut first, _one), (mut second, _other)) = (node(), node());
            let job = JobId(5);
            let exited = Input::Exited { job, rank: Rank(0), exit: Exit::Code(0) };
            assert_eq!(tell(managed, &mut first, Input::RegisterJob(JobSpec::new(job, "kvs_0", 2))), None);
            assert_eq!(tell(managed, &mut second, exited), Some(Fault::NoSuchJob));
            assert_eq!(tell(managed, &mut second, Input::RegisterJob(JobSpec::new(job, "kvs_1", 2))), None);
            let again = Input::RegisterJob(JobSpec::new(job, "kvs_2", 2));
            assert_eq!(tell(managed, &mut first, again), Some(Fault::JobInUse));
            assert_eq!(tell(managed, &mut first, exited), None);
            let report = |managed: &Managed<'_, '_>, job| managed.endpoint.server().job_report(job);
            let exits = [JobId(0), JobId(1)].map(|job| report(managed, job).map(|report| report.exited));
            assert_eq!(exits, [Some(1), Some(0)]);
            let numbers = [&first, &second].map(|node| [JobId(0), JobId(1)].map(|job| node.number_of(job)));
            assert_eq!(numbers, [[Some(job), None], [None, Some(job)]]);
            let connected = Input::Connected { job, other: JobId(0), connected: true };
            assert_eq!(tell(managed, &mut second, connected), Some(Fault::NoSuchJob));
            assert_eq!(tell(managed, &mut first, Input::DeregisterJob { job }), None);
            assert_eq!(tell(managed, &mut first, Input::DeregisterJob { job }), Some(Fault::NoSuchJob));
            assert!(report(managed, JobId(0)).is_none() && report(managed, JobId(1)).is_some());
        });
    }

    #[test]
    fn hosts_complete_their_own_upcalls_and_know_no_other_nodes() {
        with_managed(0, |managed| {
            let (mut node, _host) = node();
            let spawn = UpcallId(0);
            let complete = Input::SpawnComplete { spawn, started: false, full: None, codes: &[1] };
            assert_eq!(tell(managed, &mut node, complete), Some(Fault::NoSuchUpcall));
            let complete = Input::UpcallComplete { upcall: spawn, rc: 0, text: b"" };
            assert_eq!(tell(managed, &mut node, complete), Some(Fault::NoSuchUpcall));
            let spec = JobSpec { spawn: Some(spawn), ..JobSpec::new(JobId(0), "kvs_0", 2) };
            assert_eq!(tell(managed, &mut node, Input::RegisterJob(spec)), Some(Fault::NoSuchUpcall));
            let peer = Input::Peer { node: 1, bytes: b"" };
            assert_eq!(tell(managed, &mut node, peer), Some(Fault::BadNode));
            let own = managed.carry_out(&mut node, &NodeRequest::Input(Input::Timeout));
            assert!(matches!(own, Err(NodeError::Host(ConnectionError::Record(_)))), "{own:?}");
        });
    }
}
