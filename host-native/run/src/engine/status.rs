//! Status socket of a run: answers about jobs and ranks, signals, and copies of output.
//!
//! On several nodes the head knows host, process and exit of each rank. It asks the daemons what ranks do, and answers
//! without the nodes that are late.
//!
//! Nothing is recorded for display. What a rank waits for is read from its pending replies when a client asks. Output is copied
//! only while a client follows it, as the ranks wrote it. A client that does not read loses output, and is sent the count of lost
//! bytes.

use hydrant_board::RankState;
use hydrant_control::protocol::{Order, Report, decode, encode};
use hydrant_control::{Job, RequestId};
use hydrant_core::{JobId, Rank};
use hydrant_overlay::Destination;
use hydrant_placement::Bootstrap;
use hydrant_reactor::Key;
use hydrant_status::record::{self, PROGRAMS_MAX, RANKS_MAX, State, TEXT_MAX, Text, Wait};
use hydrant_status::{Access, ClientId, Reply, Request, StatusServer};

use super::replace::Replacement;
use super::{Engine, token};
use crate::error::RunError;

/// Milliseconds until a query is answered without the nodes that are late.
const QUERY_TIMEOUT: u64 = 2000;
/// Status socket and the queries under way.
pub(super) struct Status {
    server: StatusServer,
    /// How processes are started on other hosts.
    bootstrap: Bootstrap,
    queries: Vec<Query>,
    /// Number of the latest query.
    latest: u64,
    /// Replacement of cores under way.
    pub(super) replacement: Option<Replacement>,
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

/// Recipient of the ranks of a query.
#[derive(Clone, Copy)]
enum Recipient {
    Client(ClientId),
    /// Report of this run at its time limit.
    TimeLimit,
    /// A PMIx client.
    Pmix(RequestId),
}

impl Status {
    /// Returns whether all ranks run on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.bootstrap == Bootstrap::Local
    }

    /// Time of the next deadline in milliseconds.
    pub(super) fn poll_at(&self) -> Option<u64> {
        let replacement = self.replacement.as_ref().map(|replacement| replacement.deadline);
        let queries = self.queries.iter().map(|query| query.deadline);
        queries.chain(self.server.poll_at()).chain(replacement).min()
    }
}

impl Engine<'_, '_> {
    /// Opens the status socket. A run without one goes on.
    pub(super) fn open_status(&mut self, bootstrap: Bootstrap) {
        self.open_progress();
        match StatusServer::open(token::STATUS, &self.poller) {
            Ok(server) => {
                self.status_socket =
                    Some(Status { server, bootstrap, queries: Vec::new(), latest: 0, replacement: None });
            }
            Err(error) if self.plan.settings.verbose => self.sinks.print(&error.to_string()),
            Err(_) => {}
        }
    }

    /// Handles the status socket or one of its clients.
    pub(super) fn status_ready(&mut self, key: Key) {
        let now = self.now();
        let Some(status) = &mut self.status_socket else { return };
        let Some((client, request)) = status.server.ready(key, &self.poller, now) else { return };
        let reply = match request {
            Request::Run => Reply::Run(self.describe_run()),
            Request::Job(from) => Reply::Job(self.describe_job_from(from)),
            Request::Ranks { job, first } => return self.answer_ranks(client, JobId(job), first),
            Request::Access { job, rank } => Reply::Access(self.access(JobId(job), rank)),
            Request::Replace(plugin) => return self.replace_servers(client, plugin.as_ref()),
            Request::Signal(number) => {
                if let Some(status) = &mut self.status_socket {
                    status.server.take_signal(client, number, &self.poller);
                }
                return;
            }
            Request::Attach => {
                if let Some(status) = &mut self.status_socket {
                    status.server.attach(client, &self.poller);
                }
                return self.copy_output();
            }
        };
        self.reply(client, &reply);
    }

    /// Handles deadlines of clients and queries.
    pub(super) fn keep_status_time(&mut self, now: u64) {
        let Some(status) = &mut self.status_socket else { return };
        if status.poll_at().is_none_or(|at| at > now) {
            return;
        }
        status.server.handle_timeout(&self.poller, now);
        let is_late = status.replacement.as_ref().is_some_and(|replacement| replacement.deadline <= now);
        let late: Vec<Query> = status.queries.extract_if(.., |query| query.deadline <= now).collect();
        late.into_iter().for_each(|query| self.finish_query(query));
        if is_late {
            self.end_replacement();
        }
    }

    /// Sends the output since the last call to those who follow it.
    pub(super) fn copy_output(&mut self) {
        let Some(status) = &mut self.status_socket else { return };
        let Some(copies) = self.streams.take_copies(status.server.is_attached()) else { return };
        for copy in copies.pieces {
            let (job, rank, stderr, bytes) = (copy.job, copy.rank, copy.stderr, copy.bytes);
            status.server.send(&Reply::Output { job, rank, stderr, bytes }, &self.poller);
        }
        if copies.lost > 0 {
            status.server.send(&Reply::Lost(copies.lost), &self.poller);
        }
    }

    /// Reports the end of the run to those who follow its output.
    pub(super) fn end_status(&mut self, code: u8) {
        self.copy_output();
        if let Some(status) = &mut self.status_socket {
            status.server.send(&Reply::Ended(code), &self.poller);
        }
    }

    pub(super) fn reply(&mut self, client: ClientId, reply: &Reply) {
        if let Some(status) = &mut self.status_socket {
            status.server.reply(client, reply, &self.poller);
        }
    }

    fn describe_run(&self) -> record::Run {
        let head = self.head.as_ref().map(|head| &head.control);
        let (ranks, running, jobs) = totals(head.into_iter().flat_map(|head| head.jobs().iter()));
        let hosts = head.map_or(1, |head| head.hosts().len() as u32);
        let program = self.plan.programs.first().map(|program| program.command.as_os_str().into());
        record::Run {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            elapsed_ms: self.now(),
            hosts,
            jobs,
            ranks,
            running,
            program: program.unwrap_or_default(),
            bootstrap: self.status_socket.as_ref().map_or("", |status| status.bootstrap.name()).to_owned(),
            address: None,
        }
    }

    /// The running job with the lowest number from `from` on.
    fn describe_job_from(&self, from: u32) -> Option<record::Job> {
        let from = JobId(from);
        self.head.as_ref()?.control.jobs().iter().find(|job| job.id >= from).map(describe_job)
    }

    /// How a command is started on the host of a rank. `None` if that is this machine.
    fn access(&self, job: JobId, rank: u32) -> Option<Access> {
        let head = &self.nodes.as_ref().and(self.head.as_ref())?.control;
        let status = self.status_socket.as_ref()?;
        let job = head.jobs().get(job).filter(|job| rank < job.size())?;
        let host = head.hosts().get((job.run.node(rank) as usize).checked_sub(1)?)?;
        let cluster = &self.plan.options.cluster;
        let program = cluster.bootstrap_exec.as_ref();
        Some(Access {
            host: host.clone(),
            bootstrap: status.bootstrap.clone(),
            program: program.map(|program| program.as_os_str().into()),
            args: cluster.bootstrap_args.iter().map(|word| word.as_os_str().into()).collect(),
            slurm_job: std::env::var("SLURM_JOB_ID").ok(),
        })
    }

    /// Answers with ranks of a job, at once or when their nodes have answered.
    fn answer_ranks(&mut self, client: ClientId, id: JobId, first: u32) {
        self.query_ranks(Recipient::Client(client), id, first);
    }

    /// Collects ranks of a job for the report at the time limit, at once or when their nodes have answered.
    pub(super) fn query_ranks_at_limit(&mut self, id: JobId, first: u32) {
        self.query_ranks(Recipient::TimeLimit, id, first);
    }

    /// Collects ranks of a job for a PMIx client, at once or when their nodes have answered.
    pub(super) fn query_ranks_for_client(&mut self, request: RequestId, id: JobId, first: u32) {
        self.query_ranks(Recipient::Pmix(request), id, first);
    }

    fn query_ranks(&mut self, recipient: Recipient, id: JobId, first: u32) {
        let now = self.now();
        let Some(control) = self.head.as_ref().map(|head| &head.control) else { return };
        let Some(job) = control.jobs().get(id) else { return self.pass_ranks(recipient, id, Vec::new()) };
        let ranks: Vec<(u32, record::Rank)> = range(job.size(), first)
            .map(|rank| (job.run.node(rank), describe_rank(job, rank, control.host_of_rank(job, rank))))
            .collect();
        let running = ranks.iter().filter(|(_, rank)| rank.state.is_running());
        let mut nodes: Vec<u32> = running.map(|&(node, _)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let Some(status) = self.status_socket.as_mut().filter(|_| !nodes.is_empty()) else {
            return self.pass_ranks(recipient, id, ranks.into_iter().map(|(_, rank)| rank).collect());
        };
        status.latest += 1;
        let (number, deadline) = (status.latest, now + QUERY_TIMEOUT);
        let query = Query { number, job: id, recipient, deadline, nodes: nodes.clone(), ranks };
        // A client has one request under way, so there are as few queries as clients, and those of the time limit and of the
        // upcalls of PMIx clients.
        status.queries.push(query);
        let order = Order::QueryRanks { query: number, job: id, first, count: RANKS_MAX };
        for node in nodes {
            self.send_order(now, Destination::Node(node), order.clone());
        }
    }

    /// Applies what a node has sent about its ranks. Answers that are late, or to no query, are dropped.
    pub(super) fn rank_states_arrived(&mut self, node: u32, number: u64, body: &[u8]) {
        let states = decode::<Vec<RankState>>(body).unwrap_or_default();
        let Some(status) = &mut self.status_socket else { return };
        let Some(at) = status.queries.iter().position(|query| query.number == number) else { return };
        let query = &mut status.queries[at];
        for (rank, state, wait) in &states {
            let mut ranks = query.ranks.iter_mut().filter(|(of, known)| *of == node && known.rank == *rank);
            if let Some((_, known)) = ranks.next().filter(|(_, known)| known.state.is_running())
                && state.is_running()
            {
                (known.state, known.waits_for) = (*state, wait.clone());
            }
        }
        query.nodes.retain(|&of| of != node);
        if query.nodes.is_empty() {
            let query = status.queries.swap_remove(at);
            self.finish_query(query);
        }
    }

    fn finish_query(&mut self, query: Query) {
        let ranks = query.ranks.into_iter().map(|(_, rank)| rank).collect();
        self.pass_ranks(query.recipient, query.job, ranks);
    }

    fn pass_ranks(&mut self, recipient: Recipient, job: JobId, ranks: Vec<record::Rank>) {
        match recipient {
            Recipient::Client(client) => self.reply(client, &Reply::Ranks(ranks)),
            Recipient::TimeLimit => self.ranks_arrived_at_limit(job, ranks),
            Recipient::Pmix(request) => self.ranks_arrived_for_client(request, job, ranks),
        }
    }

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
fn range(size: u32, first: u32) -> std::ops::Range<u32> {
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
