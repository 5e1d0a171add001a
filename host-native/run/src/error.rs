//! Errors of a run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hydrant_board::BoardError;
use hydrant_core::peer::tree::RADIX_MAX;
use hydrant_core::{Fault, Limit};
use hydrant_driver::{BackendError, InsufficientMemory, ListenError, OwnedServerError};
use hydrant_names::NameServiceError;
use hydrant_overlay::{EnrolError, LifelineLost, LinkError, OverlayError};
use hydrant_placement::PlacementError;
use hydrant_reactor::OpenFilesError;
use hydrant_record::WriteError;
use hydrant_start::ProgramFileError;
use hydrant_start::{LaunchError, alternatives};

use crate::debugger_call::{DebuggerCallError, VARIABLE as DEBUGGER};
use crate::plan::UriTarget;

/// Error of a run. All started processes are killed before it is returned.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Rank that cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Program file that cannot be sent along.
    #[error(transparent)]
    ProgramFile(#[from] Box<ProgramFileError>),
    /// Hard limit of open files that is too low for the job.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// Output file that cannot be opened.
    #[error("cannot open {} for the output of rank {rank}: {why}", path.display())]
    OutputFile {
        /// The rank.
        rank: u32,
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// A fleet of that name that does not exist.
    #[error("there is no fleet {name}{}", known_fleets(known))]
    NoFleet {
        /// The name.
        name: String,
        /// Names of this user's fleets.
        known: Vec<String>,
    },
    /// Fleet of another user.
    #[error("fleet {name} is another user's{}", user.map(|user| format!(" (user {user})")).unwrap_or_default())]
    ForeignFleet {
        /// The name.
        name: String,
        /// Its user, if the system tells.
        user: Option<u32>,
    },
    /// Name of a fleet that there is.
    #[error("there is a fleet {0} already")]
    FleetExists(String),
    /// Socket of a fleet that cannot be used.
    #[error("cannot use the socket of fleet {name}: {why}")]
    FleetSocket {
        /// The name.
        name: String,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// Job that a fleet does not start.
    #[error("fleet {name}: {why}")]
    Refused {
        /// The name.
        name: String,
        /// The fleet's reason.
        why: String,
    },
    /// Fleet that has ended before its job.
    #[error("fleet {0} has ended")]
    FleetEnded(String),
    /// `--stdin` with a rank that the job does not have.
    #[error("--stdin={rank}: the job has ranks 0 to {} only", ranks - 1)]
    StdinRank {
        /// The rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// File for the result of the run that cannot be opened.
    #[error("cannot write {}: {why}", path.display())]
    ResultFile {
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The address of the server for tools of PMIx cannot be written.
    #[error("cannot write the address of the server to {target}: {why}")]
    UriFile {
        /// Where it goes.
        target: UriTarget,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The debugger that has started this launcher cannot be called, or has left.
    #[error("cannot run a job for the debugger at {uri} ({DEBUGGER}): {why}")]
    Debugger {
        /// Its address.
        uri: String,
        /// What has failed.
        why: DebuggerCallError,
    },
    /// The address of the server was asked for, and tools of PMIx cannot connect.
    #[error(
        "tools of PMIx cannot connect to this run: boards serve its ranks, or --limit commit-bytes=0 turns PMIx off"
    )]
    NoTools,
    /// File name pattern with an unknown `%` code.
    #[error("unknown code %{code} in file name pattern {pattern:?}; expected %r, %g, %I, %h, %p, %a or %%")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Character after the percent sign; empty at the end of the pattern.
        code: String,
    },
    /// Address for ranks or managing hosts that cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Job that the server refused, or failure of its backend or connections.
    #[error(transparent)]
    Driver(#[from] hydrant_driver::Error),
    /// `--sandbox` in a build without the feature.
    #[error("this hydrant was built without the sandbox, which --sandbox needs")]
    NoSandbox,
    /// Server on a board, which cannot be replaced.
    #[error("a PMI server on a board cannot be replaced")]
    ServerOnBoard,
    /// Failed server, which cannot be replaced.
    #[error("the PMI server has failed, so there is no state to go on with")]
    ServerFailed,
    /// `--pmi-port` with an address in a job on several hosts.
    #[error("--pmi-port={0} is for jobs on this host only")]
    PortOnNodes(SocketAddr),
    /// Missing plugin.
    #[error("cannot find hydrant.wasm for --sandbox as {}", alternatives(searched))]
    NoPlugin {
        /// The searched files.
        searched: Vec<PathBuf>,
    },
    /// Failure of the plugin.
    #[cfg(feature = "sandbox")]
    #[error(transparent)]
    Plugin(hydrant_wasm::PluginError),
    /// Process set that cannot be defined.
    #[error("cannot define process set {name:?}: {why}")]
    Pset {
        /// Name of the set.
        name: String,
        /// Reason given by the server.
        why: Fault,
    },
    /// Name server that cannot be reached.
    #[error(transparent)]
    Names(#[from] Box<NameServiceError>),
    /// Failure of the board.
    #[error(transparent)]
    Board(#[from] Box<BoardError>),
    /// Failure of the recording.
    #[error(transparent)]
    Record(#[from] WriteError),
    /// Ranks that cannot be mapped to hosts or bound to processors.
    #[error(transparent)]
    Placement(#[from] Box<PlacementError>),
    /// Invalid message from another node.
    #[error("invalid message from node {node}: {why}")]
    Peer {
        /// The other node.
        node: u32,
        /// Reason given by the server.
        why: Fault,
    },
    /// Failure of the links between nodes.
    #[error("{0}")]
    Links(String),
    /// Failure of the links to other nodes.
    #[error(transparent)]
    Overlay(#[from] Box<OverlayError>),
    /// Lost link to the parent of this node.
    #[error(transparent)]
    LifelineLost(#[from] Box<LifelineLost>),
    /// Server tables that do not fit into memory.
    #[error(transparent)]
    InsufficientMemory(#[from] InsufficientMemory),
    /// Job without ranks, or with more than 32-bit numbers can count.
    #[error("cannot run a job of {0} ranks: give from 1 to {max} with -n", max = i32::MAX)]
    Size(u64),
    /// Limit of ranks with which the members of a process group do not fit into a message between hosts.
    #[error(
        "the limit ranks of {0} is too large for several hosts: the members of a process group may not fit into a message \
         between them"
    )]
    RanksOnNodes(u32),
    /// `--elastic` with more hosts than the job has from the start.
    #[error(
        "--elastic keeps {least} hosts, but the job has {hosts}: lower it, or name more hosts and start more ranks"
    )]
    FewHosts {
        /// Hosts of the job.
        hosts: u32,
        /// Hosts that stay.
        least: u32,
    },
    /// `--elastic` with fewer hosts than the job has from the start.
    #[error("--elastic {most}, but the job has {hosts} hosts")]
    HostsBeyond {
        /// Hosts of the job.
        hosts: u32,
        /// Most hosts that the run may have.
        most: u32,
    },
    /// `--elastic` with more hosts than can join.
    #[error(
        "--elastic lets {late} hosts join, and {max} can at most, because a node has {children} children: lower it, or --radix",
        children = RADIX_MAX
    )]
    LateHosts {
        /// Hosts that may join.
        late: u32,
        /// How many can.
        max: u32,
    },
    /// `--elastic` without hosts.
    #[error("--elastic needs hosts: name them with --hosts or --hostfile, or run in an allocation")]
    NoHosts,
    /// A host is to be started in a run whose hosts join by themselves.
    #[error("hosts of this run join by themselves (--bootstrap join): start 'hydrant join' there")]
    HostsJoin,
    /// Hosts that do not join the run.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// Job with more ranks than the hosts that have joined have slots.
    #[error(
        "{ranks} ranks, and the {hosts} hosts that have joined have {slots} slots: start fewer, or join with more (-n)"
    )]
    FewSlots {
        /// Ranks of the job.
        ranks: u32,
        /// Number of hosts.
        hosts: usize,
        /// Their slots.
        slots: u64,
    },
    /// Number of ranks for the different programs of hosts.
    #[error("-n {ranks}, and the hosts have joined with {programs} different programs: leave out -n")]
    JoinedPrograms {
        /// The number of ranks.
        ranks: u32,
        /// Number of programs.
        programs: usize,
    },
    /// Failed system call.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl From<ProgramFileError> for RunError {
    fn from(error: ProgramFileError) -> RunError {
        match error {
            ProgramFileError::Program(why) => why.into(),
            error => Box::new(error).into(),
        }
    }
}

impl From<NameServiceError> for RunError {
    fn from(error: NameServiceError) -> RunError {
        match error {
            NameServiceError::Driver(why) => why.into(),
            error => Box::new(error).into(),
        }
    }
}

impl From<BoardError> for RunError {
    fn from(error: BoardError) -> RunError {
        Box::new(error).into()
    }
}

impl From<hydrant_control::Error> for RunError {
    fn from(error: hydrant_control::Error) -> RunError {
        match error {
            hydrant_control::Error::Size(ranks) => RunError::Size(ranks),
            hydrant_control::Error::Placement(error) => error.into(),
            error => RunError::links(error),
        }
    }
}

impl From<OverlayError> for RunError {
    fn from(error: OverlayError) -> RunError {
        Box::new(error).into()
    }
}

impl From<LinkError> for RunError {
    fn from(error: LinkError) -> RunError {
        OverlayError::Link(error).into()
    }
}

impl From<PlacementError> for RunError {
    fn from(error: PlacementError) -> RunError {
        Box::new(error).into()
    }
}

impl From<BackendError> for RunError {
    fn from(error: BackendError) -> RunError {
        RunError::Driver(error.into())
    }
}

impl From<OwnedServerError> for RunError {
    fn from(error: OwnedServerError) -> RunError {
        BackendError::from(error).into()
    }
}

impl From<Fault> for RunError {
    fn from(why: Fault) -> RunError {
        RunError::Driver(why.into())
    }
}

impl RunError {
    /// Exit code of the command: that of the [`LaunchError`], 2 for invalid hosts or options, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Launch(error) => error.exit_code(),
            RunError::Placement(error) => match **error {
                PlacementError::MappingTooLong { .. }
                | PlacementError::Processor { .. }
                | PlacementError::NoProcessor => 1,
                _ => 2,
            },
            RunError::PortOnNodes(_) | RunError::FewSlots { .. } | RunError::JoinedPrograms { .. } => 2,
            RunError::Enrol(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// The corresponding `errno` for a rank that spawns.
    pub(crate) fn errno(&self) -> u8 {
        let errno = match self {
            RunError::Launch(error) => error.errno(),
            RunError::OutputFile { why, .. }
            | RunError::Listen(ListenError { why, .. })
            | RunError::OpenFiles(OpenFilesError::System(hydrant_reactor::Error { why, .. }))
            | RunError::Driver(hydrant_driver::Error::System(hydrant_reactor::Error { why, .. }))
            | RunError::System(hydrant_reactor::Error { why, .. }) => why.raw_os_error().unwrap_or(libc::EIO),
            RunError::OpenFiles(OpenFilesError::HardLimit { .. }) => libc::EAGAIN,
            _ if self.limit().is_some() => libc::ENOSPC,
            _ => libc::EINVAL,
        };
        errno.try_into().unwrap_or(u8::MAX)
    }

    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            RunError::Launch(error) => return error.hint(),
            RunError::Names(error) => return error.hint(),
            RunError::Listen(error) => error.hint()?.to_owned(),
            RunError::Board(error) => return error.hint(),
            RunError::Driver(hydrant_driver::Error::Backend(BackendError::Other(why))) => {
                return why.downcast_ref::<BoardError>()?.hint();
            }
            RunError::OpenFiles(error) => format!("{} or start fewer ranks", error.hint()?),
            RunError::Overlay(error) => error.hint()?.to_owned(),
            RunError::Debugger { why, .. } => why.hint()?.to_owned(),
            RunError::NoFleet { name, .. } => format!("start it with 'hydrant up --name {name}'"),
            RunError::FleetExists(name) => {
                format!("end it with 'hydrant down {name}', or give another --name")
            }
            RunError::NoSandbox => {
                "build it with: cargo build --release -p hydrant --features sandbox".to_owned()
            }
            RunError::NoPlugin { .. } => {
                "build it (host-wasm/build), then set HYDRANT_WASM or --sandbox=FILE to its path".to_owned()
            }
            RunError::PortOnNodes(_) => {
                "on several hosts, give --pmi-port without an address: each daemon uses a free \
                                         port of its loopback interface"
                    .to_owned()
            }
            RunError::RanksOnNodes(_) => "lower it with --limit ranks=N, or start fewer ranks".to_owned(),
            _ => format!("raise it with --limit {}=N", self.limit()?.name()),
        })
    }

    /// The error and, on a second line, its hint.
    pub(crate) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}\nhint: {hint}"),
            None => self.to_string(),
        }
    }

    /// The exceeded limit, if this is the cause.
    pub(crate) fn limit(&self) -> Option<Limit> {
        let fault = match self {
            RunError::Driver(error) => error.fault(),
            RunError::Pset { why, .. } => Some(*why),
            RunError::Board(error) => error.fault(),
            _ => None,
        };
        match fault {
            Some(Fault::Full(limit, _)) => Some(limit),
            _ => None,
        }
    }

    /// Whether the plugin failed.
    pub(crate) fn is_plugins(&self) -> bool {
        match self {
            #[cfg(feature = "sandbox")]
            RunError::Plugin(_) => true,
            // A board's error is no plugin's.
            RunError::Driver(hydrant_driver::Error::Backend(BackendError::Other(why))) => {
                !why.is::<BoardError>()
            }
            _ => false,
        }
    }

    /// Creates an error of the links between nodes.
    pub(crate) fn links(why: impl std::fmt::Display) -> RunError {
        RunError::Links(why.to_string())
    }

    /// For `map_err`: a failed system call with its purpose.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> RunError {
        move |why| RunError::System(hydrant_reactor::Error { what, why: why.into() })
    }
}

/// Names the fleets that there are.
fn known_fleets(known: &[String]) -> String {
    match known {
        [] => String::new(),
        known => format!("; yours: {}", known.join(", ")),
    }
}
