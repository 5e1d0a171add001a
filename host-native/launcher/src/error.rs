//! Why a job could not be run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hydrant_core::{Fault, Limit};
use hydrant_driver::{BackendError, InsufficientMemory, ListenError};
use hydrant_overlay::{LifelineLost, LinkError, OverlayError};
use hydrant_placement::PlacementError;
use hydrant_reactor::OpenFilesError;
use hydrant_record::WriteError;

use crate::launch::{LaunchError, alternatives};
use crate::manage::BoardError;
use crate::universe::UniverseError;

/// Why a job could not be run. Whatever had been started is ended before this is returned.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A rank cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The job needs more open files than the process may have.
    #[error("a job of {ranks} ranks needs {needed} open files, but the hard limit is {limit}")]
    OpenFiles {
        /// Ranks of the job.
        ranks: u32,
        /// Descriptors that the launcher needs.
        needed: u64,
        /// The hard limit `RLIMIT_NOFILE`.
        limit: u64,
    },
    /// A file for a rank's output cannot be written.
    #[error("cannot open {} for the output of rank {rank}: {why}", path.display())]
    OutputFile {
        /// The rank.
        rank: u32,
        /// The file that its pattern names.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// A pattern of file names holds an unknown `%` code.
    #[error("the file name pattern {pattern:?} holds %{code}, which is none of %r %g %h %p %a %%")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What follows its percent sign; nothing at its end.
        code: String,
    },
    /// The address for `PMI_PORT`, or for hosts that manage, cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The backend failed: the sandbox, where the server runs in one.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
    /// This build cannot run the core in a sandbox.
    #[error("this hydrant was built without the sandbox, which --sandbox needs")]
    NoSandbox,
    /// Each of several hosts has a port of its own.
    #[error("--pmi-port={0} is for jobs on this host only")]
    PortOnNodes(SocketAddr),
    /// The plugin is not where it should be.
    #[error("cannot find hydrant.wasm for --sandbox as {}", alternatives(searched))]
    NoPlugin {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// The plugin failed.
    #[cfg(feature = "sandbox")]
    #[error(transparent)]
    Plugin(hydrant_wasm::PluginError),
    /// A process set cannot be defined.
    #[error("cannot define process set {name:?}: {why}")]
    Pset {
        /// Its name.
        name: String,
        /// What speaks against it.
        why: Fault,
    },
    /// The daemon that keeps names cannot be joined.
    #[error("cannot connect to the name server: {0}")]
    Universe(#[from] Box<UniverseError>),
    /// The board does not serve the job.
    #[error(transparent)]
    Board(#[from] Box<BoardError>),
    /// The job cannot be recorded.
    #[error(transparent)]
    Record(#[from] WriteError),
    /// The ranks cannot be placed on hosts, or bound to processors.
    #[error(transparent)]
    Placement(#[from] Box<PlacementError>),
    /// A neighbour's core says what this node's does not understand.
    #[error("invalid message from node {node}: {why}")]
    Peer {
        /// The neighbour.
        node: u32,
        /// What the core here makes of it.
        why: Fault,
    },
    /// The nodes of the run cannot go on together.
    #[error("{0}")]
    Links(String),
    /// The links to other nodes failed.
    #[error(transparent)]
    Overlay(#[from] Box<OverlayError>),
    /// The link to the node's parent failed.
    #[error(transparent)]
    LifelineLost(#[from] Box<LifelineLost>),
    /// The server's tables are too large.
    #[error(transparent)]
    InsufficientMemory(#[from] InsufficientMemory),
    /// A job without ranks, or with more than 32-bit numbers count.
    #[error("a job of {0} ranks cannot be run")]
    Size(u64),
    /// A system call failed that has no reason to.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    /// The core turned down the job.
    #[error("cannot serve the job: {why}")]
    Core {
        /// What it says.
        #[from]
        why: Fault,
    },
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
        match error {
            BackendError::Fault(why) => why.into(),
            BackendError::Other(why) => match why.downcast::<BoardError>() {
                Ok(why) => why.into(),
                Err(why) => RunError::Backend(why),
            },
        }
    }
}

impl From<hydrant_driver::Error> for RunError {
    fn from(error: hydrant_driver::Error) -> RunError {
        match error {
            hydrant_driver::Error::Backend(why) => why.into(),
            hydrant_driver::Error::System(why) => why.into(),
        }
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
            RunError::PortOnNodes(_) => 2,
            _ => 1,
        }
    }

    /// The corresponding `errno` for a rank that spawns.
    pub(crate) fn errno(&self) -> u8 {
        let errno = match self {
            RunError::Launch(error) => error.errno(),
            RunError::OutputFile { why, .. }
            | RunError::Listen(ListenError { why, .. })
            | RunError::System(hydrant_reactor::Error { why, .. }) => why.raw_os_error().unwrap_or(libc::EIO),
            RunError::OpenFiles { .. } => libc::EAGAIN,
            RunError::Core { why: Fault::Full(..) } | RunError::Pset { why: Fault::Full(..), .. } => {
                libc::ENOSPC
            }
            _ => libc::EINVAL,
        };
        errno.try_into().unwrap_or(u8::MAX)
    }

    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            RunError::Launch(error) => return error.hint(),
            RunError::OpenFiles { .. } => {
                "raise the limit (ulimit -Hn, or LimitNOFILE of a systemd service) or start fewer ranks"
                    .to_owned()
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
            RunError::Core { why: Fault::Full(limit, _) }
            | RunError::Pset { why: Fault::Full(limit, _), .. } => {
                format!("raise it with --limit {}=N", limit.name())
            }
            _ => return None,
        })
    }

    /// The error and, on a second line, its hint.
    pub(crate) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}\nhint: {hint}"),
            None => self.to_string(),
        }
    }

    /// The limit that leaves no room, where that is what is wrong.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            RunError::Core { why: Fault::Full(limit, _) }
            | RunError::Pset { why: Fault::Full(limit, _), .. } => Some(*limit),
            _ => None,
        }
    }

    /// Whether it is a plugin's.
    pub(crate) fn is_plugins(&self) -> bool {
        match self {
            #[cfg(feature = "sandbox")]
            RunError::Plugin(_) => true,
            RunError::Backend(_) => true,
            _ => false,
        }
    }

    /// What is wrong between the nodes of a run.
    pub(crate) fn links(why: impl std::fmt::Display) -> RunError {
        RunError::Links(why.to_string())
    }

    /// For `map_err`: names what was attempted.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> RunError {
        move |why| RunError::System(hydrant_reactor::Error { what, why: why.into() })
    }

    /// For `map_err`: too few open files for a job of so many ranks.
    pub(crate) fn open_files(ranks: u32) -> impl Fn(OpenFilesError) -> RunError {
        move |error| match error {
            OpenFilesError::HardLimit { needed, limit } => RunError::OpenFiles { ranks, needed, limit },
            OpenFilesError::System(error) => error.into(),
        }
    }
}
