//! Names between separate runs of one user: the daemon that keeps them, and a run's way to it.
//!
//! Both ends speak PMI-2 over a Unix socket. The daemon is a server of hydrant-core's like any other, whose every
//! connection is a job of one rank: so the names that somebody published go when the connection closes.

mod daemon;
mod keeper;
mod link;
mod member;
mod socket;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use hydrant_core::{Limit, Limits};

pub use daemon::serve;
pub(crate) use keeper::Keeper;
pub(crate) use link::{Answer, Request};
pub(crate) use member::Universe;

/// What a daemon is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The socket to listen at; the user's own, otherwise.
    pub universe: Option<PathBuf>,
    /// How much there may be of what is limited here: names and connections.
    pub limit: Vec<(Limit, u32)>,
}

/// What a daemon has room for when nobody says otherwise.
const LIMITS: Limits = Limits { jobs: 1024, ranks: 1024, conns: 1024, names: 1024, ..Limits::NONE };

impl Options {
    /// Whether a limit means anything here.
    pub(crate) fn takes(limit: Limit) -> bool {
        matches!(limit, Limit::Names | Limit::Conns)
    }

    fn limits(&self) -> Limits {
        let mut limits = LIMITS;
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        Keeper::limits(limits)
    }

    fn path(&self) -> PathBuf {
        self.universe.clone().unwrap_or_else(|| {
            default_path(std::env::var_os("XDG_RUNTIME_DIR"), rustix::process::geteuid().as_raw())
        })
    }
}

fn default_path(runtime: Option<OsString>, user: u32) -> PathBuf {
    match runtime.map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("hydrant-universe"),
        None => PathBuf::from(format!("/tmp/hydrant-{user}/universe")),
    }
}

/// Why a universe cannot be served or joined.
#[derive(Debug, thiserror::Error)]
pub enum UniverseError {
    /// Nobody listens there.
    #[error(
        "no name service answers at {path}: {why}; start one with: hydrant serve --name-server {path}",
        path = path.display()
    )]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// What listens there is another user's.
    #[error("the name service at {path} is user {user}'s, and yours is needed", path = path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// Whose it is.
        user: u32,
    },
    /// A daemon runs there.
    #[error(
        "a name service answers at {path} already: use that one, or name another path",
        path = path.display()
    )]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Another daemon is about to run in the same directory.
    #[error("another hydrant serve begins in {dir} at this moment: try again", dir = dir.display())]
    Busy {
        /// The socket's directory.
        dir: PathBuf,
    },
    /// Something else is there.
    #[error("{path} is there and is no socket: name another path, or remove it", path = path.display())]
    NoSocket {
        /// What is there.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {why}", path = path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The daemon needs more open files than the process may have.
    #[error(
        "{conns} connections need {needed} open files, but the hard limit is {limit}; raise it (ulimit -Hn, or \
         LimitNOFILE of the service that this runs in) or ask for fewer with --limit conns=N"
    )]
    OpenFiles {
        /// How many there may be.
        conns: u32,
        /// Descriptors that the daemon needs.
        needed: u64,
        /// The hard limit `RLIMIT_NOFILE`.
        limit: u64,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    /// The name service's tables take too much memory.
    #[error(transparent)]
    Memory(#[from] hydrant_driver::InsufficientMemory),
    /// The name service cannot go on.
    #[error(transparent)]
    Driver(#[from] hydrant_driver::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_users_own() {
        assert_eq!(
            default_path(Some("/run/user/7".into()), 7),
            PathBuf::from("/run/user/7/hydrant-universe")
        );
        for unusable in [None, Some("".into()), Some("run".into())] {
            assert_eq!(default_path(unusable, 7), PathBuf::from("/tmp/hydrant-7/universe"));
        }
    }

    #[test]
    fn limits_are_those_that_matter_here() {
        let limit = vec![(Limit::Conns, 5), (Limit::Names, 7)];
        let limits = Options { universe: None, limit }.limits();
        assert_eq!((limits.jobs, limits.ranks, limits.conns, limits.names), (5, 5, 5, 7));
        assert!(!Options::takes(Limit::Keys));
    }
}
