//! Errors of starting ranks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hydrant_doctor::{NoExec, script_interpreter};

/// Error of starting the ranks of a job.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Program that does not exist.
    #[error("cannot start {}: not found{}", command.display(), in_path(searched))]
    NotFound {
        /// The command of the user.
        command: OsString,
        /// The `PATH` that was searched; `None` for a command with a slash.
        searched: Option<OsString>,
    },
    /// File that this user cannot execute.
    #[error("cannot start {}: {why}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// Program whose interpreter or dynamic loader does not exist.
    #[error("cannot start rank {rank} ({}): its interpreter (first line) or dynamic loader was not found", command.display())]
    NoInterpreter {
        /// The first rank that was not started.
        rank: u32,
        /// Its command.
        command: OsString,
    },
    /// File that is no program of this machine.
    #[error("cannot start {}: {}", command.display(), format_error(*kind))]
    Format {
        /// The command of the user.
        command: OsString,
        /// What the file holds.
        kind: NoExec,
    },
    /// Working directory that cannot be entered.
    #[error("cannot use the working directory {}: {why}", dir.display())]
    WorkingDir {
        /// The directory.
        dir: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// More GPUs than the machine has, or than the user made visible.
    #[error(
        "{ranks} rank{} with {each} GPU{} each need {} GPUs, and {name} has {available} on this machine",
        if *ranks == 1 { "" } else { "s" }, if *each == 1 { "" } else { "s" }, u64::from(*ranks) * u64::from(*each)
    )]
    FewGpus {
        /// Ranks on this machine.
        ranks: u32,
        /// GPUs of each rank.
        each: u32,
        /// Number of GPUs.
        available: u32,
        /// Variable that lists them.
        name: &'static str,
    },
    /// Memory pool that is larger than a limit.
    #[error("the memory pool of {size} bytes exceeds {what}, {limit} bytes")]
    PoolTooLarge {
        /// Size of the pool in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// Name of the limit.
        what: &'static str,
    },
    /// Memory pool that the operating system did not provide.
    #[error("cannot create a memory pool of {size} bytes: {why}")]
    Pool {
        /// Size of the pool in bytes.
        size: u64,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// NUL byte in a string for `execve`.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Description of the string.
        what: &'static str,
    },
    /// Process that the operating system did not start.
    #[error("cannot start rank {rank} ({}): {why}", command.display())]
    Spawn {
        /// The first rank that was not started.
        rank: u32,
        /// Its command.
        command: OsString,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// Binding that this machine cannot provide.
    #[error(transparent)]
    Binding(#[from] hydrant_placement::PlacementError),
    /// Missing library for `--mpi-psets`.
    #[error("cannot find libhydrant_mpi.so for --mpi-psets as {}", alternatives(searched))]
    NoMpiLibrary {
        /// The searched files.
        searched: Vec<PathBuf>,
    },
    /// Library whose path cannot be written in `LD_PRELOAD`.
    #[error("cannot preload {}: LD_PRELOAD cannot contain a path with a blank or a colon", library.display())]
    PreloadPath {
        /// The library.
        library: PathBuf,
    },
    /// Failed system call.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl LaunchError {
    /// Exit code by the convention of shells: 127 for a program that is not found, 126 for one that cannot be
    /// executed, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::NotFound { .. } => 127,
            LaunchError::NotExecutable { .. }
            | LaunchError::NoInterpreter { .. }
            | LaunchError::Format { .. }
            | LaunchError::WorkingDir { .. } => 126,
            _ => 1,
        }
    }

    /// The corresponding `errno` for a rank that spawns.
    pub fn errno(&self) -> i32 {
        let number = |why: &io::Error, default| why.raw_os_error().unwrap_or(default);
        match self {
            LaunchError::NotFound { .. } | LaunchError::NoInterpreter { .. } => libc::ENOENT,
            LaunchError::Format { .. } => libc::ENOEXEC,
            LaunchError::NotExecutable { why, .. } => number(why, libc::EACCES),
            LaunchError::WorkingDir { why, .. } => number(why, libc::ENOTDIR),
            LaunchError::PoolTooLarge { .. } => libc::ENOMEM,
            LaunchError::Pool { why, .. } => number(why, libc::ENOMEM),
            LaunchError::Spawn { why, .. } | LaunchError::System(hydrant_reactor::Error { why, .. }) => {
                number(why, libc::EIO)
            }
            _ => libc::EINVAL,
        }
    }

    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            LaunchError::NotFound { command, searched: Some(_), .. } if is_number(command) => {
                format!(
                    "'{}' is taken for the program: does an option before it lack its value?",
                    command.display()
                )
            }
            LaunchError::NoInterpreter { command, .. } => {
                let interpreter = script_interpreter(command.as_ref())?;
                format!(
                    "correct the first line: there is no {interpreter:?}; it must not end with a carriage return"
                )
            }
            LaunchError::WorkingDir { .. } => {
                "the ranks of each host start in the directory with this name there; -wdir names another one"
                    .to_owned()
            }
            LaunchError::NotExecutable { path, why }
                if why.kind() == io::ErrorKind::PermissionDenied && path.is_file() =>
            {
                format!("write: chmod +x {}", path.display())
            }
            LaunchError::Format { kind: NoExec::Program(_), .. } => {
                "compile the program on this machine, or for it".to_owned()
            }
            LaunchError::NoMpiLibrary { .. } => {
                "build it (cargo build -p hydrant-mpi), or set HYDRANT_MPI_LIB to its path".to_owned()
            }
            LaunchError::PreloadPath { .. } => {
                "copy the library and set HYDRANT_MPI_LIB to the copy".to_owned()
            }
            LaunchError::PoolTooLarge { .. } => "give --mem-pool a smaller SIZE".to_owned(),
            _ => return None,
        })
    }

    /// For `map_err`: a failed system call with its purpose.
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> LaunchError {
        move |why| LaunchError::System(hydrant_reactor::Error { what, why: why.into() })
    }
}

fn is_number(command: &OsStr) -> bool {
    command.as_bytes().iter().all(u8::is_ascii_digit)
}

fn format_error(kind: NoExec) -> String {
    match kind {
        NoExec::Program(built_for) => {
            format!(
                "Exec format error: built for {built_for}, and this machine is {}",
                std::env::consts::ARCH
            )
        }
        NoExec::Script | NoExec::Data => "Exec format error: not a program or script".to_owned(),
    }
}

/// Joins searched files for a message.
pub fn alternatives(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" or ")
}

fn in_path(searched: &Option<OsString>) -> String {
    let place = |path: &OsString| format!(" in the ranks' PATH ({}) or working directory", path.display());
    searched.as_ref().map_or_else(String::new, place)
}
