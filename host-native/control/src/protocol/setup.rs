//! Settings of a run, and what the head sends to all nodes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::Limits;
use hydrant_core::limits::NODE_ATTR_PREFIX;
use hydrant_core::server::FenceMode;
use hydrant_placement::Binding;
use serde::{Deserialize, Serialize};

/// Settings of a run that every node needs, as the user gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Ranks of the first job that read standard input.
    pub stdin: StdinTarget,
    /// Whether the standard error of ranks is their standard output.
    pub merge_stderr: bool,
    /// Processors and memory of each rank.
    pub bind: Binding,
    /// Number of GPUs of each rank.
    pub gpus_per_rank: Option<u32>,
    /// Kinds of memory that MPI is asked to support, as `system,cuda`: `PMI_mpi_memory_alloc_kinds`.
    pub memory_alloc_kinds: Option<String>,
    /// Bytes of memory that the ranks of a job share on each node.
    pub mem_pool: Option<u64>,
    /// Ways in which MPI libraries share memory between ranks of a host.
    pub shared_memory: SharedMemory,
    /// Attributes of all jobs. The last of one name is used.
    pub attributes: Vec<Attribute>,
    /// Whether a rank that fails ends its job.
    pub cleanup: bool,
    /// Time that processes that ranks leave behind have to end, from the last byte of output on.
    pub drain: Duration,
    /// Time between `SIGTERM` and `SIGKILL`. Default: half a second where hydrant ends a job, without end after a signal of
    /// the user.
    pub kill_grace: Option<Duration>,
    /// Whether progress messages are printed on standard error.
    pub verbose: bool,
    /// Make process sets visible to MPI programs: ranks preload `libhydrant_mpi.so`, and the launcher answers its queries.
    pub mpi_psets: bool,
    /// Time after which a waiting fence is reported with the missing ranks. Zero disables the report.
    pub fence_warning: Duration,
    /// Pairs that travel with fences between hosts.
    pub fence: FenceMode,
    /// Time that a look-up waits for a name to be published.
    pub lookup_wait: Duration,
    /// Subversion of PMI-1: 2 has group barriers, 1 is for clients that require 1.1.
    pub pmi1_subversion: u32,
}

/// The settings of a command line without options.
impl Default for RunSettings {
    fn default() -> RunSettings {
        RunSettings {
            stdin: StdinTarget::default(),
            merge_stderr: false,
            bind: Binding::default(),
            gpus_per_rank: None,
            memory_alloc_kinds: None,
            mem_pool: None,
            shared_memory: SharedMemory::All,
            attributes: Vec::new(),
            cleanup: true,
            drain: Duration::from_secs(5),
            kill_grace: None,
            verbose: false,
            mpi_psets: false,
            fence_warning: Duration::from_secs(30),
            fence: FenceMode::Collect,
            lookup_wait: Duration::ZERO,
            pmi1_subversion: 2,
        }
    }
}

/// What the head sends to all nodes before the first job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Limits of each node's PMI server.
    pub limits: Limits,
    /// Settings of the user.
    pub settings: RunSettings,
    /// Plugin that runs the PMI servers; missing if the daemons run them themselves.
    pub plugin: Option<PluginFile>,
    /// Boards that serve the ranks of nodes.
    pub boards: Boards,
    /// Path that each node's server is recorded to, [extended by the name of its host](Setup::recording).
    pub record: Option<OsString>,
    /// Whether each node keeps the times of its ranks' requests, for a [`Report::Profile`](super::Report::Profile).
    pub profile: bool,
    /// Whether the head shows the progress of the start.
    pub progress: bool,
    /// Whether ranks find their server by `PMI_PORT` instead of `PMI_FD`.
    pub by_port: bool,
    /// Streams of ranks that are pseudo-terminals. Without them, all are pipes.
    pub pseudo_terminals: Option<PseudoTerminals>,
    /// Files of the first job that hosts receive.
    pub files: Vec<ProgramFile>,
}

/// File that hosts receive for the first job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    /// Absolute path at the head.
    pub path: OsString,
    /// Length in bytes.
    pub len: u64,
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// Whether a host that has the same file at the same path does not need it.
    pub use_own: bool,
    /// Programs that use it.
    pub uses: Vec<FileUse>,
    /// Places in the folder of the run where ranks find it.
    pub copies: Vec<FileCopy>,
}

/// Place of a file in the folder of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCopy {
    /// Relative path.
    pub name: OsString,
    /// Mode of the file at the head.
    pub mode: u32,
}

/// What a program uses a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// `appnum` of the program.
    pub appnum: u32,
    /// 0 for its program file, and its place in the order of loading for a shared library.
    pub place: u32,
}

/// Boards that serve the ranks of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boards {
    /// Node and management port, as `HOST:PORT` or `HOST`, of each board. Daemons of other nodes serve their ranks themselves.
    pub targets: Vec<(u32, String)>,
    /// Secret of the boards. None if they have none.
    pub secret: Option<[u8; 32]>,
    /// Time without an answer after which a board is lost.
    pub heartbeat: Duration,
    /// Whether the built-in server of a node takes the place of a board that fails.
    pub spare: bool,
    /// Random token of the run, with which boards link themselves to each other. `None` if hosts pass on their messages.
    pub link: Option<[u8; 16]>,
}

impl Boards {
    /// The management port of a node's board.
    pub fn of_node(&self, node: u32) -> Option<&str> {
        self.targets.iter().find(|(of, _)| *of == node).map(|(_, target)| target.as_str())
    }
}

/// Attribute of all jobs that the head sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Whose attribute it is.
    pub of: AttributeOf,
    /// Its name, at most [`KEY_MAX`](hydrant_core::limits::KEY_MAX) bytes.
    pub name: String,
    /// Its value, at most [`VALUE_MAX`](hydrant_core::limits::VALUE_MAX) bytes.
    pub value: String,
}

/// Job or nodes that an attribute belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeOf {
    /// The job.
    Job,
    /// Every node.
    Nodes,
    /// The node of this number.
    Node(u32),
}

impl Attribute {
    /// Returns the key of [`Input::Attr`](hydrant_core::Input::Attr) for this attribute at a node, or `None` if the node
    /// does not have it.
    pub fn key(&self, node: u32) -> Option<Vec<u8>> {
        let prefix = match self.of {
            AttributeOf::Job => &[][..],
            AttributeOf::Nodes => NODE_ATTR_PREFIX,
            AttributeOf::Node(owner) if owner == node => NODE_ATTR_PREFIX,
            AttributeOf::Node(_) => return None,
        };
        Some([prefix, self.name.as_bytes()].concat())
    }
}

/// Ways in which MPI libraries share memory between ranks of a host, which may be in containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedMemory {
    /// All that they know.
    All,
    /// Segments of `/dev/shm` alone. Ranks do not read each other's memory.
    Segments,
    /// None. Each rank counts as on a node of its own.
    None,
}

/// Ranks of the first job that read the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinTarget {
    /// All: each gets every byte.
    All,
    /// None.
    None,
    /// None: all ranks read what tools push.
    Tools,
    /// This one.
    Rank(u32),
}

impl StdinTarget {
    /// Whether a rank of the first job reads the launcher's input.
    pub fn includes(self, rank: u32) -> bool {
        match self {
            StdinTarget::All => true,
            StdinTarget::None | StdinTarget::Tools => false,
            StdinTarget::Rank(reader) => reader == rank,
        }
    }
}

/// Rank 0.
impl Default for StdinTarget {
    fn default() -> StdinTarget {
        StdinTarget::Rank(0)
    }
}

/// Streams of ranks that are pseudo-terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PseudoTerminals {
    /// Whether standard output is one.
    pub stdout: bool,
    /// Whether standard error is one.
    pub stderr: bool,
    /// Size of their windows.
    pub size: WindowSize,
}

/// Size of a terminal's window in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
}

impl Setup {
    /// These settings for nodes with these limits, which run their PMI servers themselves and need nothing else.
    pub fn new(limits: Limits, settings: RunSettings) -> Setup {
        Setup {
            limits,
            settings,
            plugin: None,
            boards: Boards::default(),
            record: None,
            profile: false,
            progress: false,
            by_port: false,
            pseudo_terminals: None,
            files: Vec::new(),
        }
    }

    /// Whether a node may fail to apply the settings. Then the head waits for [`Report::Ready`](super::Report::Ready) of
    /// all nodes before the first job.
    pub fn needs_ready(&self) -> bool {
        self.plugin.is_some()
            || self.record.is_some()
            || !self.boards.targets.is_empty()
            || !self.files.is_empty()
    }

    /// The file that the server of the node on `host` is recorded to.
    pub fn recording(&self, host: &str) -> Option<PathBuf> {
        let mut file = self.record.clone()?;
        file.push(".");
        file.push(host);
        Some(file.into())
    }
}

/// Contents of a plugin's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFile {
    /// Name of the file in error messages.
    pub file: OsString,
    /// Contents of the file.
    pub code: Vec<u8>,
    /// Longest time of one call.
    pub deadline: Duration,
    /// The built-in server takes the place of a plugin that fails.
    pub spare: bool,
}
