//! Names between separate runs of one user: the daemon that keeps them, and a run's way to it.
//!
//! Both ends speak PMI-2 over a Unix socket. The daemon is a server of hydrant-core's like any other, whose every
//! connection is a job of one rank: so the names that somebody published go when the connection closes.

mod daemon;
mod link;
mod member;
mod socket;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use hydrant_core::{Limit, Limits};

use crate::error::RunError;
pub use daemon::serve;
pub(crate) use link::Request;
pub(crate) use member::Universe;

/// What a daemon is to do.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The socket to listen at
    ///
    /// Its directory is made, for you alone, when it is missing. By default this is hydrant-universe in
    /// XDG_RUNTIME_DIR, or /tmp/hydrant-UID/universe where that variable is not set.
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub universe: Option<PathBuf>,

    /// Change how much there may be of something: names or conns, each 1024 otherwise
    ///
    /// `names` are those published and those that look-ups wait for, `conns` are connections: each run has one, another
    /// for each job it spawned that publishes, and one for each look-up that waits.
    #[arg(long, value_name = "NAME=N", value_parser = limit, action = clap::ArgAction::Append)]
    pub limit: Vec<(Limit, u32)>,
}

/// What a daemon has room for when nobody says otherwise.
const LIMITS: Limits = Limits { jobs: 1024, ranks: 1024, conns: 1024, names: 1024, ..Limits::NONE };

/// A path, which cannot be empty.
pub(crate) fn path() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text: OsString| match text.is_empty() {
        true => Err("give the path of a socket"),
        false => Ok(PathBuf::from(text)),
    })
}

fn limit(text: &str) -> Result<(Limit, u32), String> {
    let wrong = || "write names=N or conns=N, with a whole number from 1 up".to_owned();
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    let limit = Limit::from_name(name).filter(|limit| matches!(limit, Limit::Names | Limit::Conns));
    let size = size.parse().ok().filter(|&size| size > 0);
    limit.zip(size).ok_or_else(wrong)
}

impl Options {
    /// Each connection is a job of one rank.
    fn limits(&self) -> Limits {
        let mut limits = LIMITS;
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        Limits { jobs: limits.conns, ranks: limits.conns, ..limits }
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
        "no name service answers at {path}: {why}; start one with: hydrant serve --universe {path}",
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
    /// The daemon cannot go on.
    #[error(transparent)]
    Run(#[from] RunError),
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
        let limit = vec![limit("conns=5").unwrap(), limit("names=7").unwrap()];
        let limits = Options { universe: None, limit }.limits();
        assert_eq!((limits.jobs, limits.ranks, limits.conns, limits.names), (5, 5, 5, 7));
        for wrong in ["keys=5", "names", "names=0", "names=-1", "names=x"] {
            assert!(super::limit(wrong).unwrap_err().contains("names=N"), "{wrong}");
        }
    }
}
