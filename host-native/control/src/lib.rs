//! Control of MPI jobs on several hosts, without I/O.
//!
//! One process, the **head**, decides for a whole run: which jobs run where, when a job ends, which names and process sets
//! there are, and what the exit code is. It is what hydra calls `mpiexec` and PRRTE calls the HNP or DVM master. Each host
//! has a **daemon**, which starts the ranks of its host and reports their starts and ends: hydra's proxy, PRRTE's `prted`,
//! Slurm's `slurmstepd`. The head is node 0, the daemons are nodes 1 to n.
//!
//! - [`protocol`] holds the messages: an [`Order`](protocol::Order) goes to daemons, a [`Report`](protocol::Report) to the
//!   head.
//! - [`Head`] is the head as a state machine: [`Event`]s in, [`Action`]s out. It opens no socket, starts no process and
//!   reads no clock, so that a simulator can drive it.
//! - [`Daemon`] is a daemon in the same form: [`DaemonEvent`]s in, [`DaemonAction`]s out.
//!
//! A run on one machine has both in one process, which pass each other orders and reports in memory.
//!
//! Daemons are trusted as little as their network: bytes that are no report, and reports about ranks of other nodes, are
//! an [`Error`].
//!
//! # Example
//!
//! A job of two ranks on one remote host, up to its exit code:
//!
//! ```
//! use hydrant_control::protocol::{Order, Program, RankBlock, Report, encode};
//! use hydrant_control::{Action, Config, Destination, Event, FirstJob, Head};
//! use hydrant_core::trace::Exit;
//! use hydrant_core::{JobId, Rank};
//! # use hydrant_control::protocol::{RunSettings, Setup};
//! use hydrant_placement::{Host, MapBy};
//!
//! let config = Config {
//!     host: "login".into(),
//!     hosts: vec![Host::with_slots("n1", 2)],
//!     unused: 0,
//!     late: 0,
//!     least: None,
//!     map_by: MapBy::Slot,
//!     verbose: false,
//!     cleanup: true,
//!     stays: false,
//!     universe_size: None,
//!     exit_report: false,
//!     exit_code_of: hydrant_control::ExitCodeOf::First,
//!     is_alone: false,
//!     shares_names: false,
//!     fence_warning: 60_000,
//!     plugin: None,
//!     process: 4711,
//!     order_max: Some(1 << 20),
//!     radix: 8,
//!     link_addrs: Vec::new(),
//! };
//! let program = Program {
//!     ranks: 2,
//!     command: "./a.out".into(),
//!     args: vec![],
//!     env: vec![],
//!     wdir: None,
//!     path: None,
//!     psets: vec![],
//! };
//! # let setup = Setup::new(hydrant_core::Limits::for_ranks(2), RunSettings::default());
//! let first = FirstJob {
//!     programs: vec![program],
//!     blocks: vec![RankBlock { node: 1, first: 0, count: 2 }],
//!     mapping: "(vector,(0,1,2))".into(),
//!     nonce: 0x5eed,
//!     setup,
//!     awaits_debugger: false,
//! };
//! let mut head = Head::new(config, first);
//!
//! // All daemons have joined: they get their settings, and the host registers the job.
//! head.handle(0, Event::AllJoined)?;
//! assert!(matches!(head.poll(), Some(Action::Send { to: Destination::All, order: Order::Setup(_) })));
//! let Some(Action::OpenJob { record }) = head.poll() else { panic!("a job opens") };
//! let job = record.id;
//! head.handle(0, Event::JobOpened { job })?;
//! assert!(matches!(head.poll(), Some(Action::Send { order: Order::StartJob(_), .. })));
//! assert_eq!(head.poll(), Some(Action::AllowStdin(None)));
//!
//! // The daemon reports.
//! let exited = |rank, code| Report::Exited { job, rank: Rank(rank), exit: Exit::Code(code), requested: None };
//! let reports = [
//!     Report::RanksStarted { job, ranks: vec![(Rank(0), 100), (Rank(1), 101)] },
//!     Report::JobStarted(job),
//!     exited(1, 3),
//!     exited(0, 0),
//!     Report::JobDone(job),
//! ];
//! for report in reports {
//!     head.handle(5, Event::Message { node: 1, bytes: &encode(&report) })?;
//! }
//!
//! // The host carries the actions out until the run is over.
//! let mut printed = String::new();
//! while let Some(action) = head.poll() {
//!     match action {
//!         Action::DrainOutput { job } => {
//!             head.handle(9, Event::OutputDrained { job, reader_closed: false })?;
//!         }
//!         Action::Print(lines) => printed += &lines,
//!         Action::Finish { .. } => break,
//!         _ => {}
//!     }
//! }
//! assert_eq!(printed, "rank 1 on n1, pid 101, program ./a.out exited with code 3");
//! assert_eq!(head.exit_code(), 3);
//! # Ok::<(), hydrant_control::Error>(())
//! ```
//!
//! # Rules
//!
//! - The head decides: jobs, ends, spawns, process sets of running jobs, connections between jobs, names. Orders travel over the
//!   same links as the servers' messages, so every node receives them in the same order.
//! - A job is over when each of its nodes has reported that its ranks are gone and their output is sent. Then all nodes deregister
//!   it. The first reason to end a job wins.
//! - No rank starts before all daemons have joined, and, where boards are linked, before all nodes have opened its job.
//! - A daemon starts its ranks, passes signals on and reports. Only a lost head, a failed PMI server or a failed start ends ranks
//!   without an order.
//! - A lost daemon ends every job, because fences went through it. Ranks on it and below it count as lost. In a run without
//!   cleanup it is a change of membership, which the head numbers and tells the servers of all nodes: jobs go on without these
//!   ranks (docs/membership.md).
//! - Output travels as bytes; lines, labels and files are made at the head. Output that its sink has not taken counts as under
//!   way, so daemons stop reading. The head reads at most 256 KiB of rank 0's input ahead.

mod daemon;
mod error;
mod exit_status;
mod head;
mod job_name;
mod job_result;
mod jobs;
mod kill_escalation;
pub mod protocol;
mod psets;
mod stalled;
#[cfg(test)]
mod tests;

pub use daemon::{Daemon, DaemonAction, DaemonConfig, DaemonEvent, NodeRanks};
pub use error::{Error, HostRefusal, HostRefusalKind};
pub use exit_status::{ExitCodeOf, ExitStatus, Statuses};
pub use head::{
    Action, Config, Destination, Event, FirstJob, Head, NodeProgress, Per, RequestId, SpawnProgram, Spread,
    Stopped, Submission, Upcall,
};
pub use job_name::{ALIAS_PREFIX, JOBID_PREFIX, alias, job_name, query_name};
pub use job_result::{AbortReason, JobResult, RankFailure, RanksInState, abort_text, count_others};
pub use jobs::{EndReport, Job, JobSummary, Jobs, SpawnKey, first_fit, self_abort_line};
pub use kill_escalation::{KILL_TIMEOUT, KillEscalation, KillTarget};
pub use psets::{RankRanges, format_ranges, job_pset, process_sets, pset_with_parent, ranges_of};
pub use stalled::stalled_line;
