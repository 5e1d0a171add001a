//! Options of a name server: its socket and its capacities.

use std::ffi::OsString;
use std::path::PathBuf;

use hydrant_core::{Limit, Limits};

/// Options of a name service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Path of the socket. None for the user's default.
    pub path: Option<PathBuf>,
    /// Capacities for names and connections that replace the defaults.
    pub limit: Vec<(Limit, u32)>,
}

/// Default capacities.
const LIMITS: Limits = Limits { jobs: 1024, ranks: 1024, conns: 1024, names: 1024, ..Limits::NONE };

impl Options {
    /// Returns whether a name service has this limit.
    pub fn accepts(limit: Limit) -> bool {
        matches!(limit, Limit::Names | Limit::Conns)
    }

    /// Capacities of all tables.
    pub fn limits(&self) -> Limits {
        let mut limits = LIMITS;
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        per_connection(limits)
    }

    /// Returns the path of the socket, and whether its directory must be this user's alone.
    pub(crate) fn path(&self) -> (PathBuf, bool) {
        match &self.path {
            Some(path) => (path.clone(), false),
            None => default_path(std::env::var_os("XDG_RUNTIME_DIR"), rustix::process::geteuid().as_raw()),
        }
    }
}

/// Each connection is a job of one rank.
pub(crate) const fn per_connection(limits: Limits) -> Limits {
    Limits { jobs: limits.conns, ranks: limits.conns, ..limits }
}

/// Capacities of the name service inside a single run.
pub const LIMITS_OF_RUN: Limits = per_connection(LIMITS);

/// Returns the user's own path, and whether its directory is one that another user could have made.
fn default_path(runtime: Option<OsString>, user: u32) -> (PathBuf, bool) {
    match runtime.map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) => (dir.join("hydrant-universe"), false),
        None => (PathBuf::from(format!("/tmp/hydrant-{user}/universe")), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_users_own() {
        assert_eq!(
            default_path(Some("/run/user/7".into()), 7),
            (PathBuf::from("/run/user/7/hydrant-universe"), false)
        );
        for unusable in [None, Some("".into()), Some("run".into())] {
            assert_eq!(default_path(unusable, 7), (PathBuf::from("/tmp/hydrant-7/universe"), true));
        }
    }

    #[test]
    fn limits_are_those_that_matter_here() {
        let limit = vec![(Limit::Conns, 5), (Limit::Names, 7)];
        let limits = Options { path: None, limit }.limits();
        assert_eq!((limits.jobs, limits.ranks, limits.conns, limits.names), (5, 5, 5, 7));
        assert!(!Options::accepts(Limit::Keys));
    }
}
