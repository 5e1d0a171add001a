//! Status socket of a run: answers about jobs and ranks, signals, and copies of output.
//!
//! On several nodes the head knows host, process and exit of each rank. It asks the daemons what ranks do, and answers
//! without the nodes that are late.
//!
//! Nothing is recorded for display. What a rank waits for is read from its pending replies when a client asks. Output is copied
//! only while a client follows it, as the ranks wrote it. A client that does not read loses output, and is sent the count of lost
//! bytes.

use std::ops::Range;

use hydrant_board::RankState;
use hydrant_control::protocol::{Order, Report, decode, encode};
use hydrant_control::{Job, RequestId};
use hydrant_core::{JobId, Rank, UpcallId};
use hydrant_overlay::Destination;
use hydrant_reactor::Key;
use hydrant_status::record::{self, PROGRAMS_MAX, RANKS_MAX, State, TEXT_MAX, Text, Wait};
use hydrant_status::{Access, ClientId, Reply, Request, StatusServer};

use super::{Engine, Head, token};
use crate::error::RunError;

/// Milliseconds until a query is answered without the nodes that are late.
pub(super) const QUERY_TIMEOUT: u64 = 2000;

/// Questions to nodes about their ranks that are under way.
#[derive(Default)]
pub(super) struct RankQueries {
    pending: Vec<Query>,
    /// Number of the latest query.
    latest: u64,
}

/// Ranks of which some nodes are asked.
struct Query {
    number: u64,
    job: JobId,
    recipient: Recipient,
    deadline: u64,
    /// Nodes that have not answered.
    nodes: Vec<u32>,
    /// Node of each rank, and what is known about it.
    ranks: Vec<(u32, record::Rank)>,
}

/// PMIx client that asks the host something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A rank, by the head.
    Rank(RequestId),
    /// A tool.
    Tool(UpcallId),
}

/// Recipient of the ranks of a query.
#[derive(Clone, Copy)]
pub(super) enum Recipient {
    /// Client of the status socket.
    Client(ClientId),
    /// Report of this run at its time limit.
    TimeLimit,
    /// A PMIx client.
    Pmix(Asker),
}

impl RankQueries {
    /// Time of the next deadline in milliseconds.
    fn poll_at(&self) -> Option<u64> {
        self.pending.iter().map(|query| query.deadline).min()
    }

    /// Applies what a node has sent about its ranks. Returns the query that this answers. Answers that are late, or to no
    /// query, are dropped.
    fn answered(&mut self, node: u32, number: u64, body: &[u8]) -> Option<Query> {
        let states = decode::<Vec<RankState>>(body).unwrap_or_default();
        let at = self.pending.iter().position(|query| query.number == number)?;
        let query = &mut self.pending[at];
        for (rank, state, wait) in &states {
            let mut ranks = query.ranks.iter_mut().filter(|(of, known)| *of == node && known.rank == *rank);
            if let Some((_, known)) = ranks.next().filter(|(_, known)| known.state.is_running())
                && state.is_running()
            {
                (known.state, known.waits_for) = (*state, wait.clone());
            }
        }
        query.nodes.retain(|&of| of != node);
        query.nodes.is_empty().then(|| self.pending.swap_remove(at))
    }

    /// Nodes are lost or have left. Returns the queries that waited for no others.
    fn nodes_gone(&mut self, nodes: &Range<u32>) -> Vec<Query> {
        self.pending.iter_mut().for_each(|query| query.nodes.retain(|node| !nodes.contains(node)));
        self.pending.extract_if(.., |query| query.nodes.is_empty()).collect()
    }
}

/// Opens the status socket. A run without one goes on.
pub(super) fn open_status(engine: &mut Engine<'_>) -> Option<StatusServer> {
    match StatusServer::open(token::STATUS, &engine.poller) {
        Ok(server) => Some(server),
        Err(error) => {
            if engine.plan.settings.verbose {
                engine.sinks.print(&error.to_string());
            }
            None
        }
    }
}

impl Head {
    /// Time of the next deadline of clients and queries in milliseconds.
    pub(super) fn status_at(&self) -> Option<u64> {
        let replacement = self.replacement.as_ref().map(|replacement| replacement.deadline);
        let server = self.status.as_ref().and_then(StatusServer::poll_at);
        [replacement, server, self.rank_queries.poll_at()].into_iter().flatten().min()
    }

    /// Handles the status socket or one of its clients.
    pub(super) fn status_ready(&mut self, engine: &mut Engine<'_>, key: Key) -> Result<(), RunError> {
        let now = engine.now();
        let Some(server) = &mut self.status else { return Ok(()) };
        let Some((client, request)) = server.ready(key, &engine.poller, now) else { return Ok(()) };
        let reply = match request {
            Request::Run => Reply::Run(self.describe_run(engine)),
            Request::Job(from) => Reply::Job(self.describe_job_from(from)),
            Request::Ranks { job, first } => {
                self.query_ranks(engine, Recipient::Client(client), JobId(job), first);
                return Ok(());
            }
            Request::Access { job, rank } => Reply::Access(self.access(engine, JobId(job), rank)),
            Request::Replace(plugin) => {
                self.replace_servers(engine, client, plugin.as_ref());
                return Ok(());
            }
            Request::Grow(hosts) => return self.grow(engine, client, &hosts),
            Request::Shrink { hosts, force } => return self.shrink(engine, client, &hosts, force),
            Request::Signal(number) => {
                server.take_signal(client, number, &engine.poller);
                return Ok(());
            }
            Request::Attach => {
                server.attach(client, &engine.poller);
                self.copy_output(engine);
                return Ok(());
            }
        };
        self.reply(engine, client, &reply);
        Ok(())
    }

    /// Handles deadlines of clients and queries.
    pub(super) fn keep_status_time(&mut self, engine: &mut Engine<'_>, now: u64) {
        if self.status_at().is_none_or(|at| at > now) {
            return;
        }
        if let Some(server) = &mut self.status {
            server.handle_timeout(&engine.poller, now);
        }
        let late = |query: &mut Query| query.deadline <= now;
        let late: Vec<Query> = self.rank_queries.pending.extract_if(.., late).collect();
        late.into_iter().for_each(|query| self.finish_query(engine, query));
        if self.replacement.as_ref().is_some_and(|replacement| replacement.deadline <= now) {
            self.end_replacement(engine);
        }
    }

    /// Sends the output since the last call to those who follow it.
    pub(super) fn copy_output(&mut self, engine: &mut Engine<'_>) {
        let is_attached = self.status.as_ref().is_some_and(StatusServer::is_attached);
        let goes_on = is_attached || !engine.tools.pulls.is_empty();
        let Some(copies) = engine.streams.take_copies(goes_on) else { return };
        copies.pieces.iter().for_each(|copy| engine.copy_to_tools(copy));
        let Some(server) = self.status.as_mut().filter(|_| is_attached) else { return };
        for copy in copies.pieces {
            let (job, rank, stderr, bytes) = (copy.job, copy.rank, copy.stderr, copy.bytes);
            server.send(&Reply::Output { job, rank, stderr, bytes }, &engine.poller);
        }
        if copies.lost > 0 {
            server.send(&Reply::Lost(copies.lost), &engine.poller);
        }
    }

    /// Reports the end of the run to those who follow its output.
    pub(super) fn end_status(&mut self, engine: &mut Engine<'_>, code: u8) {
        self.copy_output(engine);
        if let Some(server) = &mut self.status {
            server.send(&Reply::Ended(code), &engine.poller);
        }
    }

    pub(super) fn reply(&mut self, engine: &Engine<'_>, client: ClientId, reply: &Reply) {
        if let Some(server) = &mut self.status {
            server.reply(client, reply, &engine.poller);
        }
    }

    fn describe_run(&self, engine: &Engine<'_>) -> record::Run {
        let (ranks, running, jobs) = totals(self.control.jobs().iter());
        let program = engine.plan.programs.first().map(|program| program.command.as_os_str().into());
        let fleet = self.fleet.as_ref().map(|fleet| {
            let (slots, free) = self.control.slots();
            let (name, waiting) = (fleet.name().to_owned(), self.control.waiting());
            record::Fleet { name, slots, free, waiting }
        });
        record::Run {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: engine.host.clone(),
            elapsed_ms: engine.now(),
            hosts: self.control.members().count() as u32,
            jobs,
            ranks,
            running,
            program: program.unwrap_or_default(),
            bootstrap: self.bootstrap.name().to_owned(),
            address: None,
            fleet,
        }
    }

    /// The running job with the lowest number from `from` on.
    fn describe_job_from(&self, from: u32) -> Option<record::Job> {
        let from = JobId(from);
        self.control.jobs().iter().find(|job| job.id >= from).map(describe_job)
    }

    /// How a command is started on the host of a rank. `None` if that is this machine.
    fn access(&self, engine: &Engine<'_>, job: JobId, rank: u32) -> Option<Access> {
        let job = self.control.jobs().get(job).filter(|job| rank < job.size() && !engine.is_alone())?;
        let host = self.control.hosts().get((job.run.node(rank) as usize).checked_sub(1)?)?;
        let cluster = &engine.plan.options.cluster;
        let program = cluster.bootstrap_exec.as_ref();
        Some(Access {
            host: host.clone(),
            bootstrap: self.bootstrap.clone(),
            program: program.map(|program| program.as_os_str().into()),
            args: cluster.bootstrap_args.iter().map(|word| word.as_os_str().into()).collect(),
            slurm_job: std::env::var("SLURM_JOB_ID").ok(),
        })
    }

    /// Collects ranks of a job for a recipient, at once or when their nodes have answered.
    pub(super) fn query_ranks(
        &mut self,
        engine: &mut Engine<'_>,
        recipient: Recipient,
        id: JobId,
        first: u32,
    ) {
        let Some(job) = self.control.jobs().get(id) else {
            return self.pass_ranks(engine, recipient, id, Vec::new());
        };
        let described = |rank| describe_rank(job, rank, self.control.host_of_rank(job, rank));
        let ranks = range(job.size(), first).map(|rank| (job.run.node(rank), described(rank)));
        let ranks: Vec<(u32, record::Rank)> = ranks.collect();
        let running = ranks.iter().filter(|(_, rank)| rank.state.is_running());
        let mut nodes: Vec<u32> = running.map(|&(node, _)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        self.rank_queries.latest += 1;
        let (number, deadline) = (self.rank_queries.latest, engine.now() + QUERY_TIMEOUT);
        let query = Query { number, job: id, recipient, deadline, nodes, ranks };
        if query.nodes.is_empty() {
            return self.finish_query(engine, query);
        }
        let order = Order::QueryRanks { query: number, job: id, first, count: RANKS_MAX };
        for &node in &query.nodes {
            engine.send_order(Destination::Node(node), order.clone());
        }
        // A client has one request under way, so there are as few queries as clients, and those of the time limit and of the
        // upcalls of PMIx clients.
        self.rank_queries.pending.push(query);
    }

    /// Applies what a node has sent about its ranks.
    pub(super) fn rank_states_arrived(
        &mut self,
        engine: &mut Engine<'_>,
        (node, number): (u32, u64),
        body: &[u8],
    ) {
        if let Some(query) = self.rank_queries.answered(node, number, body) {
            self.finish_query(engine, query);
        }
    }

    /// Nodes are lost or have left. Their ranks stay as the head knows them.
    pub(super) fn rank_states_gone(&mut self, engine: &Engine<'_>, nodes: &Range<u32>) {
        for query in self.rank_queries.nodes_gone(nodes) {
            self.finish_query(engine, query);
        }
    }

    fn finish_query(&mut self, engine: &Engine<'_>, query: Query) {
        let ranks = query.ranks.into_iter().map(|(_, rank)| rank).collect();
        self.pass_ranks(engine, query.recipient, query.job, ranks);
    }

    fn pass_ranks(
        &mut self,
        engine: &Engine<'_>,
        recipient: Recipient,
        job: JobId,
        ranks: Vec<record::Rank>,
    ) {
        match recipient {
            Recipient::Client(client) => self.reply(engine, client, &Reply::Ranks(ranks)),
            Recipient::TimeLimit => self.ranks_arrived_at_limit(job, ranks),
            Recipient::Pmix(asker) => self.pmix_queries.ranks_arrived(asker, job, ranks),
        }
    }
}

impl Engine<'_> {
    /// Reports the states of running ranks of this node to the head, at once or when this node's board has answered. `some` is
    /// the first rank of interest and their number.
    pub(super) fn query_ranks_here(
        &mut self,
        query: u64,
        id: JobId,
        some: (u32, u32),
    ) -> Result<(), RunError> {
        let ranks: Vec<u32> = match self.jobs.get(id) {
            Some(job) => {
                range(job.size(), some.0).take(some.1 as usize).filter(|&rank| job.is_running(rank)).collect()
            }
            None => Vec::new(),
        };
        if let Some(board) = self.core.node().filter(|_| !ranks.is_empty()) {
            return Ok(board.query_ranks(query, id, ranks)?);
        }
        let state = |rank| {
            let (state, wait) = self.activity(id, rank);
            (rank, state, wait)
        };
        let states: Vec<RankState> = ranks.into_iter().map(state).collect();
        self.report_rank_states(query, &states);
        Ok(())
    }

    /// Reports the states of ranks of this node to the head.
    pub(super) fn report_rank_states(&mut self, query: u64, states: &[RankState]) {
        self.send_report(&Report::RankStates { query, body: encode(&states) });
    }

    /// What a running rank of this machine does.
    fn activity(&mut self, id: JobId, rank: u32) -> (State, Option<Wait>) {
        let now = self.now();
        let server = self.core.inspect();
        let Some(status) = server.and_then(|server| server.rank_status(id, Rank(rank))) else {
            return (State::Running, None);
        };
        (State::from(&status.report), status.wait.map(|wait| Wait::new(&wait, now)))
    }
}

/// Numbers of ranks in one reply.
fn range(size: u32, first: u32) -> Range<u32> {
    first.min(size)..first.saturating_add(RANKS_MAX).min(size)
}

/// Ranks, running ranks, and jobs.
fn totals<'j, R: 'j>(jobs: impl Iterator<Item = &'j Job<R>>) -> (u32, u32, u32) {
    jobs.fold((0, 0, 0), |(ranks, running, jobs), job| {
        (ranks + job.size(), running + job.running(), jobs + 1)
    })
}

fn describe_job<R>(job: &Job<R>) -> record::Job {
    let programs = job.programs.iter().take(PROGRAMS_MAX).map(|program| record::Program {
        command: Text::cut(program.command.as_encoded_bytes(), TEXT_MAX),
        ranks: program.ranks,
    });
    record::Job {
        number: job.id.0,
        ordinal: job.ordinal,
        name: job.name.clone(),
        spawned_by: job.spawner.clone(),
        ending: job.is_ending(),
        ranks: job.size(),
        programs: programs.collect(),
    }
}

/// What the tables of jobs know about a rank.
fn describe_rank<R>(job: &Job<R>, rank: u32, host: &str) -> record::Rank {
    let pid = job.pid(rank);
    let state = if pid.is_some() { State::Running } else { State::NotStarted };
    let mut known = record::Rank {
        rank,
        host: Some(host.to_owned()),
        pid,
        program: job.program(rank).0,
        state,
        exit_code: None,
        signal: None,
        waits_for: None,
    };
    if let Some(exit) = job.exit(rank) {
        known.set_exit(exit);
    }
    known
}
