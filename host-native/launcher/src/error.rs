//! Why a job could not be run.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hydrant_core::{Fault, Limit};
use hydrant_overlay::{LifelineLost, LinkError, OverlayError};
use hydrant_placement::PlacementError;
use hydrant_reactor::OpenFilesError;
use hydrant_record::WriteError;

use crate::border::BackendError;
use crate::manage::BoardError;
use crate::storage::NoRoom;
use crate::universe::UniverseError;

/// Why a job could not be run. Whatever had been started is ended before this is returned.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command names no file in the `PATH` that its ranks get, or no file at all.
    #[error("cannot start {}: not found{}", command.display(), hint(searched))]
    NotFound {
        /// The command as the plan names it.
        command: OsString,
        /// The `PATH` that was searched, where the command holds no slash.
        searched: Option<OsString>,
    },
    /// The file is there, but it is no program that this user may run.
    #[error("cannot start {}: {why}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// What speaks against it.
        why: io::Error,
    },
    /// The file is there, but not what the system would run it with.
    #[error(
        "cannot start rank {rank} ({}): the file is there, but the interpreter that its first line names, or the loader \
         that it was linked for, is not", command.display()
    )]
    NoInterpreter {
        /// The first rank that was not started.
        rank: u32,
        /// Its command.
        command: OsString,
    },
    /// The ranks' directory cannot be entered.
    #[error("cannot use the working directory {}: {why}", dir.display())]
    WorkingDir {
        /// The directory.
        dir: PathBuf,
        /// What speaks against it.
        why: io::Error,
    },
    /// An argument, a name or a variable that holds a NUL byte cannot be handed to a process.
    #[error("{what} holds a NUL byte, which no process can be given")]
    Nul {
        /// What holds it.
        what: &'static str,
    },
    /// The system did not start a rank's process.
    #[error("cannot start rank {rank} ({}): {why}", command.display())]
    Spawn {
        /// The first rank that was not started.
        rank: u32,
        /// Its command.
        command: OsString,
        /// What the system said.
        why: io::Error,
    },
    /// The job needs more open files than the process may have.
    #[error(
        "a job of {ranks} ranks needs {needed} open files, but the hard limit is {limit}; raise it \
         (ulimit -Hn, or LimitNOFILE of the service that this runs in) or start fewer ranks"
    )]
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
    #[error("cannot listen at {addr}: {why}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        why: io::Error,
    },
    /// The library that shows process sets to MPI programs is not where it should be.
    #[error(
        "cannot find libhydrant_mpi.so, which --mpi-psets needs, as {}: build it (cargo build -p hydrant-mpi) or say with \
         HYDRANT_MPI_LIB where it is",
        named(searched)
    )]
    NoMpiLibrary {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// That library lies where no process can be told to load it from.
    #[error("cannot have ranks load {}: LD_PRELOAD takes no path with a blank or a colon", library.display())]
    PreloadPath {
        /// The library.
        library: PathBuf,
    },
    /// This build cannot run the core in a sandbox.
    #[error(
        "this hydrant was built without the sandbox, which --sandbox needs: build it with cargo build --release -p hydrant \
         --features sandbox"
    )]
    NoSandbox,
    /// Each of several hosts has a port of its own.
    #[error(
        "--pmi-port={0} is for jobs on this host alone: on several, each daemon serves its ranks at a free port on its \
         loopback interface, so give --pmi-port without an address"
    )]
    PortOnNodes(SocketAddr),
    /// The plugin is not where it should be.
    #[error(
        "cannot find hydrant.wasm, which --sandbox needs, as {}: build it (host-wasm/build) and say with HYDRANT_WASM or \
         --sandbox=FILE where it is",
        named(searched)
    )]
    NoPlugin {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// The plugin failed.
    #[cfg(feature = "sandbox")]
    #[error(transparent)]
    Plugin(hydrant_wasm::PluginError),
    /// A process set cannot be defined.
    #[error("the process set {name:?} cannot be defined: {why}{}", raise(why))]
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
    #[error("node {node} told this one what no core says: {why}")]
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
    NoRoom(#[from] NoRoom),
    /// A job without ranks, or with more than 32-bit numbers count.
    #[error("a job of {0} ranks cannot be run")]
    Size(u64),
    /// A system call failed that has no reason to.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    /// The core turned down the job.
    #[error("the job cannot be served: {why}{}", raise(why))]
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
            BackendError::Board(why) => why.into(),
            #[cfg(feature = "sandbox")]
            BackendError::Plugin(why) => RunError::Plugin(why),
        }
    }
}

impl RunError {
    /// The exit code that shells use for the same error: 127 for a command that is not found, 126 for one that
    /// cannot be run, 2 for hosts that were not named rightly, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::NotFound { .. } => 127,
            RunError::NotExecutable { .. } | RunError::NoInterpreter { .. } | RunError::WorkingDir { .. } => {
                126
            }
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

    /// The `errno` that says the same to whoever asked for the job.
    pub(crate) fn errno(&self) -> u8 {
        let number = |why: &io::Error, otherwise| why.raw_os_error().unwrap_or(otherwise);
        let errno = match self {
            RunError::NotFound { .. } | RunError::NoInterpreter { .. } => libc::ENOENT,
            RunError::NotExecutable { why, .. } => number(why, libc::EACCES),
            RunError::WorkingDir { why, .. } => number(why, libc::ENOTDIR),
            RunError::Spawn { why, .. }
            | RunError::OutputFile { why, .. }
            | RunError::Listen { why, .. }
            | RunError::System(hydrant_reactor::Error { why, .. }) => number(why, libc::EIO),
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
        None
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

/// What to do about a limit.
fn raise(fault: &Fault) -> String {
    match fault {
        Fault::Full(limit, _) => format!("; raise it with --limit {}=N", limit.name()),
        _ => String::new(),
    }
}

fn named(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" or ")
}

fn hint(searched: &Option<OsString>) -> String {
    match searched {
        Some(path) => format!(
            " in the ranks' PATH ({}); a program in the working directory is named with a slash, as ./a.out",
            path.display()
        ),
        None => String::new(),
    }
}
