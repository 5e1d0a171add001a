//! The head of a run on several hosts, as a state machine without I/O.

mod boards;
mod departure;
mod event;
mod growth;
mod lifecycle;
mod loss;
mod report;
mod spawn;
mod spread;
mod stdin;
mod submission;
#[cfg(test)]
mod tests;
mod upcall;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;

use hydrant_core::{JobId, OwnedOutput};
use hydrant_placement::{Host, MapBy};

pub use event::{
    Action, Destination, Event, Per, RequestId, SpawnProgram, Spread, Stopped, Submission, Upcall,
};

use crate::error::Error;
use crate::exit_status::{ExitCodeOf, ExitStatus, Statuses};
use crate::job_result::AbortReason;
use crate::jobs::{Job, Jobs};
use crate::protocol::{JobRecord, Order, Program, RankBlock, Setup, SubmissionId};
use boards::Boards;
use departure::Leavers;
use growth::{Newcomers, unused_nodes};
use spawn::{ToolSpawn, WaitingSpawn, origin_of_tool};
use stdin::StdinReaders;
use submission::Submissions;
use upcall::Requests;

/// Number of the head as a node. Tools of PMIx are its clients.
pub(super) const HEAD: u32 = 0;

/// What the head knows from the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the head's own host, which is node 0.
    pub host: String,
    /// Hosts of the run: node `n` runs on `hosts[n - 1]`.
    pub hosts: Vec<Host>,
    /// How many of them, the last ones, have no daemon from the start. One is started when a spawn needs it.
    pub unused: u32,
    /// How many other hosts may join later. Their nodes follow.
    pub late: u32,
    /// How many hosts stay at least, if hosts may join and leave.
    pub least: Option<u32>,
    /// How ranks of spawned jobs are mapped to hosts.
    pub map_by: MapBy,
    /// Whether each step is printed.
    pub verbose: bool,
    /// Whether a rank that fails ends its job.
    pub cleanup: bool,
    /// Whether this is a fleet: it has no first job, takes submissions, and stays until [`Event::FleetEnds`].
    pub stays: bool,
    /// `universeSize` of all jobs, if it is known. In a fleet it is the number of slots that there are when a job starts.
    pub universe_size: Option<u32>,
    /// Which failures of ranks give the exit code.
    pub exit_code_of: ExitCodeOf,
    /// Whether the exit codes of all ranks are printed at the end of a job.
    pub exit_report: bool,
    /// Whether the head's PMI server is that of the only node. Then orders need not repeat what the head has applied, the server
    /// knows all arrivals at a fence, and messages need not name the host.
    pub is_alone: bool,
    /// Whether a name service of several runs may know connections between jobs that this run does not.
    pub shares_names: bool,
    /// Milliseconds after which a waiting fence is reported.
    pub fence_warning: u64,
    /// Name of the plugin that runs the PMI servers, for messages; missing if the daemons run them themselves.
    pub plugin: Option<OsString>,
    /// Process id of the head, for the names of jobs.
    pub process: u32,
    /// Longest encoded order in bytes. `None` if the only node is in this process, and orders are not encoded.
    pub order_max: Option<usize>,
    /// Maximum number of children of a node in the tree.
    pub radix: u32,
    /// Node and address of each board that others reach at another address than its host does, as `IP:PORT`.
    pub link_addrs: Vec<(u32, String)>,
}

/// Job of the command line. It starts once all daemons have joined. A fleet has none, and no programs here.
#[derive(Clone, Debug)]
pub struct FirstJob {
    /// Programs in the order of their `appnum`.
    pub programs: Vec<Program>,
    /// Node of each rank, in ascending order of ranks.
    pub blocks: Vec<RankBlock>,
    /// Value of `PMI_process_mapping`.
    pub mapping: String,
    /// Unpredictable number for the name of the job.
    pub nonce: u64,
    /// Settings that all daemons get before the job.
    pub setup: Setup,
    /// The job is that of a debugger, which says when it starts: [`Event::FirstJobReleased`].
    pub awaits_debugger: bool,
}

/// Nodes of a job.
#[derive(Debug, Default)]
pub struct NodeProgress {
    /// Node of each rank, in ascending order of ranks.
    blocks: Vec<RankBlock>,
    /// Nodes that have not opened the job yet, if boards are linked.
    unopened: BTreeSet<u32>,
    /// Nodes that have not started all of their ranks yet.
    starting: Vec<u32>,
    /// Nodes that have not reported yet that they are done with the job.
    busy: Vec<u32>,
    /// The rank that asked for the spawn, for messages.
    spawner: String,
    /// A tool asked for the spawn.
    of_tool: bool,
    /// Whether a rank that fails ends the job.
    cleanup: bool,
    /// Output of the job is being written for the last time.
    draining: bool,
}

impl NodeProgress {
    /// Node of a rank; 0 for ranks that the job does not have.
    pub fn node(&self, rank: u32) -> u32 {
        let at = self.blocks.partition_point(|block| block.first + block.count <= rank);
        self.blocks.get(at).map_or(0, |block| block.node)
    }

    /// Ranks of a node, in ascending order.
    fn ranks_on(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let here = self.blocks.iter().filter(move |block| block.node == node);
        here.flat_map(|block| block.first..block.first + block.count)
    }

    fn has_ranks_on(&self, node: u32) -> bool {
        self.blocks.iter().any(|block| block.node == node)
    }
}

/// The head of a run on several hosts (HNP in PRRTE, `mpiexec` in hydra).
///
/// The host of the head calls these methods in a loop:
///
/// - [`handle`](Head::handle) applies one event. It does not block.
/// - [`poll`](Head::poll) returns the next action. Call it after each `handle` until it returns `None`, and carry the
///   actions out in this order. Some are answered by an event, at once or later, as documented at [`Action`].
/// - [`decode_output`](Head::decode_output) checks a rank's output, which the host writes by itself.
///
/// The head has no deadlines of its own: daemons escalate from `SIGTERM` to `SIGKILL` by themselves, and links report lost
/// daemons. Time is needed only to tell one stalled fence from the next.
///
/// Work of `handle` is proportional to the ranks of the jobs that the event is about.
#[derive(Debug)]
pub struct Head {
    config: Config,
    /// The job that starts once all daemons are ready.
    first: Option<FirstJob>,
    /// Nodes that have not applied the settings yet.
    unready: BTreeSet<u32>,
    setup_sent: bool,
    /// Whether boards serve nodes.
    has_boards: bool,
    /// The job that was the only one when it ended. The servers end with it, unless another one follows.
    last: Option<JobId>,
    boards: Boards,
    are_linked: bool,
    /// Nodes that are lost, have left, or have not joined. Nothing is sent there.
    lost: BTreeSet<u32>,
    /// Number of changes of membership that the servers have been told of.
    epoch: u32,
    newcomers: Newcomers,
    /// Spawns that wait for daemons.
    spawns: Vec<WaitingSpawn>,
    leavers: Leavers,
    jobs: Jobs<NodeProgress>,
    statuses: Statuses,
    submissions: Submissions,
    /// The stalled fence that is being reported.
    stalled: Option<StalledFence>,
    /// Node of the rank that was placed last.
    last_node: u32,
    requests: Requests,
    /// Readers of standard input.
    stdin: StdinReaders,
    /// Jobs that the host has not registered yet.
    opening: Vec<JobRecord>,
    actions: VecDeque<Action>,
    finish: Option<bool>,
}

/// A stalled fence that nodes report about.
#[derive(Clone, Copy, Debug)]
struct StalledFence {
    job: JobId,
    /// Time of the first report.
    since: u64,
    /// Lines printed so far.
    lines: u32,
}

impl Head {
    /// A head whose daemons are being started.
    pub fn new(config: Config, first: FirstJob) -> Head {
        let statuses = Statuses::new(ExitStatus::new(config.exit_code_of));
        Head {
            newcomers: Newcomers::new(&config, &first.setup),
            spawns: Vec::new(),
            leavers: Leavers::default(),
            lost: unused_nodes(&config).collect(),
            config,
            has_boards: !first.setup.boards.targets.is_empty(),
            last: None,
            first: Some(first),
            unready: BTreeSet::new(),
            setup_sent: false,
            boards: Boards::default(),
            are_linked: false,
            epoch: 0,
            jobs: Jobs::default(),
            statuses,
            submissions: Submissions::default(),
            stalled: None,
            last_node: 0,
            requests: Requests::default(),
            stdin: StdinReaders::default(),
            opening: Vec::new(),
            actions: VecDeque::new(),
            finish: None,
        }
    }

    /// Applies an event that happened at `now`, in milliseconds of any clock that does not go back.
    ///
    /// # Errors
    /// The run cannot go on: a daemon sent an invalid report, or the first job is too large for a message.
    pub fn handle(&mut self, now: u64, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Joined { node } if self.is_newcomer(node) => self.newcomer_connected(node),
            Event::Joined { node } => {
                if self.config.verbose {
                    let line = format!("the daemon of host {} has joined", self.host(node));
                    self.print(line);
                }
            }
            Event::AllJoined => self.all_joined()?,
            Event::Message { node, bytes } => self.message(now, node, bytes)?,
            Event::HostNamed { request, host, may_be_there } => {
                self.start_newcomer(request, host, may_be_there);
            }
            Event::HostLeaves { request, host, force } => self.host_leaves(request, host, force),
            Event::NodeEnded { node } if self.is_newcomer(node) => self.newcomer_ended(node),
            Event::NodeEnded { node } => self.node_ended(node),
            Event::NodesLost { nodes, reason } if self.is_newcomer(nodes.start) => {
                self.newcomer_failed(nodes.start, &reason);
            }
            Event::NodesLost { nodes, reason } => self.nodes_lost(nodes, &reason),
            Event::BackendFailed(failure) => self.backend_failed(0, failure),
            Event::Output(output) => {
                if let OwnedOutput::AbortJob { job, cause, message } = output {
                    self.rank_failed(job, cause, message);
                }
            }
            Event::TimeLimit { limit, mut states } => {
                for id in self.jobs.ids(|_| true) {
                    let states = states.remove(&id).unwrap_or_default();
                    self.abort(id, AbortReason::TimeLimit { limit, states });
                }
            }
            Event::JobOpened { job } => self.job_opened(job),
            Event::OpenFailed { job, error } => self.open_failed(job, &error),
            Event::SpawnResolved { request, nonce, programs } => {
                self.spawn_resolved(request, nonce, programs)
            }
            Event::ToolSpawns { upcall, job, tool, nonce, programs, options } => {
                self.spawn_for_tool(ToolSpawn { upcall, job, tool, nonce, programs, options });
            }
            Event::FirstJobReleased { upcall, job, tool, stopped, options } => {
                self.release_first(origin_of_tool(upcall, job, tool, options), &stopped)?;
            }
            Event::Submitted(submission) => self.submit(submission),
            Event::SubmissionSignal { submission, signal } => self.signal_submission(submission, signal),
            Event::SubmissionResized { submission, size } => self.resize_submission(submission, size),
            Event::SubmissionTimeLimit { submission, limit } => {
                let reason = AbortReason::TimeLimit { limit, states: Vec::new() };
                self.end_submission(submission, &reason);
            }
            Event::SubmissionLost { submission } => {
                let what = "its 'hydrant run' has ended".to_owned();
                self.end_submission(submission, &AbortReason::Connected { what });
            }
            Event::FleetEnds => self.end_fleet(),
            Event::BackendReply { request, result } => self.backend_replied(request, result),
            Event::SetsChanged(input) => self.tell_applied(input),
            Event::UpcallReply { request, rc, text } => self.upcall_complete(request, rc, text),
            Event::OutputDrained { job, reader_closed } => self.output_drained(job, reader_closed),
            Event::OutputClosed { job, streams } => {
                if self.jobs.get(job).is_some() && !streams.is_empty() {
                    self.send_all(Order::CloseOutput { job, streams });
                }
            }
            Event::OutputLost => self.statuses.run().record_lost_output(),
            Event::StdinRead(bytes) => self.stdin_read(bytes),
            Event::Signal(signal) => self.signal(signal),
            Event::WindowResized(size) => self.send_all(Order::ResizeWindows { job: None, size }),
            Event::Suspended => self.send_all(Order::Signal(libc::SIGTSTP)),
            Event::Resumed => self.send_all(Order::Signal(libc::SIGCONT)),
        }
        self.settle();
        Ok(())
    }

    /// The next action.
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.admit_newcomers();
        }
        self.actions.pop_front()
    }

    /// The launcher's exit code. Valid once [`Action::Finish`] has been returned.
    pub fn exit_code(&self) -> u8 {
        self.statuses.of(None).code()
    }

    /// Whether no job runs and none will start.
    pub fn is_over(&self) -> bool {
        self.first.is_none() && self.jobs.is_empty() && !self.is_open()
    }

    /// Whether the first job waits for daemons.
    pub fn awaits_nodes(&self) -> bool {
        self.first.is_some()
    }

    /// Jobs that run.
    pub fn jobs(&self) -> &Jobs<NodeProgress> {
        &self.jobs
    }

    /// Hosts of the daemons, from node 1 on, also of those that are lost or have not joined. See [`Head::members`].
    pub fn hosts(&self) -> &[Host] {
        &self.config.hosts
    }

    /// Name of a node's host; that of the head for node 0 and for nodes that there are not.
    pub fn host(&self, node: u32) -> &str {
        let at = (node as usize).checked_sub(1);
        at.and_then(|at| self.config.hosts.get(at)).map_or(&self.config.host, |host| &host.name)
    }

    /// Name of a rank's host.
    pub fn host_of_rank(&self, job: &Job<NodeProgress>, rank: u32) -> &str {
        self.host(job.run.node(rank))
    }

    fn print(&mut self, lines: String) {
        self.actions.push_back(Action::Print(lines));
    }

    /// Prints lines about jobs of a submission, or of the run.
    fn tell(&mut self, submission: Option<SubmissionId>, lines: String) {
        self.actions.push_back(match submission {
            Some(submission) => Action::Tell { submission, lines },
            None => Action::Print(lines),
        });
    }

    fn send_all(&mut self, order: Order) {
        self.newcomers.remember(&order);
        self.actions.push_back(Action::Send { to: Destination::All, order });
    }

    /// Sends an order to all nodes before the actions that wait. The host's PMI server has applied it, so that the servers of
    /// all nodes get such orders in the order of this one.
    fn send_all_applied(&mut self, order: Order) {
        self.newcomers.remember(&order);
        self.actions.push_front(Action::Send { to: Destination::All, order });
    }

    fn send(&mut self, node: u32, order: Order) {
        if !self.lost.contains(&node) {
            self.actions.push_back(Action::Send { to: Destination::Node(node), order });
        }
    }
}
