//! Description of a job as the head sends it to all nodes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use hydrant_core::{JobId, Rank, UpcallId};
use serde::{Deserialize, Serialize};

use super::StdinTarget;
use super::runs::{self, RankBlock};
use super::{PseudoTerminals, RunSettings};

/// One program of a job (PRRTE: app context). Its position in the job is its `appnum`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Number of ranks that run it; at least one.
    pub ranks: u32,
    /// Command: a path if it holds a slash, otherwise looked up in `PATH`.
    pub command: OsString,
    /// Arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Whole environment, without PMI variables, to which the launcher adds those of each rank.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; the launcher's own when missing.
    #[serde(with = "path")]
    pub wdir: Option<PathBuf>,
    /// Directories, separated by colons, that are searched for the command before `PATH`.
    pub path: Option<OsString>,
    /// Process sets of its ranks, beside those that every program has. The same name at adjacent programs is one set.
    pub psets: Vec<String>,
}

/// Job as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Number of the job at the PMI servers of all nodes. Numbers of ended jobs are used again.
    pub id: JobId,
    /// Position among all jobs of the run, or of a submission: 0 is the job of the command line, spawned jobs follow from 1 on.
    pub ordinal: u32,
    /// Job id that clients see.
    pub name: String,
    /// Programs in the order of their `appnum`. Their environments make up most of a record, so copies share them.
    pub programs: Rc<[Program]>,
    /// Job map: the node of each rank, in ascending order of ranks.
    #[serde(with = "runs::blocks")]
    pub blocks: Vec<RankBlock>,
    /// Value of `PMI_process_mapping`.
    pub mapping: String,
    /// `universeSize`, if it is known.
    pub universe_size: Option<u32>,
    /// Names of the hosts of nodes with ranks of the job, in ascending order of nodes.
    #[serde(with = "runs::hosts")]
    pub hosts: Vec<(u32, String)>,
    /// Origin of a spawned job.
    pub spawned: Option<SpawnOrigin>,
    /// Where a job of a fleet comes from, and its settings. `None` if they are those of the run.
    pub submitted: Option<Submitted>,
}

impl JobRecord {
    /// Whether it is the job of the command line. A fleet has none.
    pub fn is_of_command_line(&self) -> bool {
        self.ordinal == 0 && self.submitted.is_none()
    }
}

/// Number of a submission among those that a fleet has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubmissionId(pub u32);

/// Submission that a job of a fleet belongs to: that of its command line, or of the job whose rank spawned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The submission.
    pub id: SubmissionId,
    /// Settings of the user.
    pub settings: Rc<RunSettings>,
    /// Output streams of its ranks that are pseudo-terminals. Without them, all are pipes.
    pub pseudo_terminals: Option<PseudoTerminals>,
}

/// Origin of a spawned job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrigin {
    /// Node whose rank asked.
    pub node: u32,
    /// Number of the spawn at that node.
    pub upcall: UpcallId,
    /// Number of the spawning job at the PMI servers.
    pub job: JobId,
    /// Number of its ranks.
    pub ranks: u32,
    /// Rank that asked.
    pub rank: Rank,
    /// Job id of the spawning job, as clients see it.
    pub spawner: String,
    /// Pairs for the key-value space of the spawned job.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
    /// What a tool of PMIx that has asked wants of the job. `None` if a rank has asked.
    pub tool: Option<ToolOptions>,
}

/// What a tool of PMIx wants of a job that it spawns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOptions {
    /// Where ranks wait for a debugger.
    pub stop: Option<Stop>,
    /// Processes that the job debugs.
    pub target: Option<Target>,
    /// Ranks that read what tools push. `None` if no rank does.
    pub stdin: Option<StdinTarget>,
}

/// Where ranks wait for a debugger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The place.
    pub at: StopAt,
    /// The ranks that wait, as ranges (first rank, number of ranks), once they have places.
    pub ranks: Vec<(u32, u32)>,
}

impl Stop {
    /// Returns the ranks that wait.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranks.iter().flat_map(|&(first, count)| first..first + count)
    }
}

/// Place in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopAt {
    /// Its first instruction, stopped by the system.
    Exec,
    /// `PMIx_Init`.
    Init,
    /// Where its program, or its MPI library, looks for the option.
    App,
}

/// Processes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Job id.
    pub job: String,
    /// The rank. `None` for all.
    pub rank: Option<Rank>,
}

/// Serde form of a path of any bytes.
mod path {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| path.as_os_str()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<OsString>::deserialize(from)?.map(PathBuf::from))
    }
}
