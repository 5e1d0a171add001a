//! Host name and environment variables that placement depends on.

use std::ffi::OsString;

use crate::hosts::{Host, is_name_of};

/// The host name and the environment variables of the process that launches a job.
pub struct Environment<'a> {
    /// Name of this machine, as `uname` reports it.
    pub hostname: String,
    /// Looks up an environment variable.
    pub variables: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'_> {
    /// The environment of this process.
    pub fn current() -> Environment<'static> {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Environment { hostname, variables: &|name| std::env::var_os(name) }
    }

    /// The value of a variable. An empty value counts as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Whether `host` is this machine, reached as the current user. Slurm and Grid Engine may use a name of their own
    /// for it.
    pub(crate) fn is_local(&self, host: &Host) -> bool {
        let name = self.variable(if self.is_sge_job() { "HOSTNAME" } else { "SLURMD_NODENAME" });
        let is_node_name = name.is_some_and(|name| name == *host.name);
        host.user.is_none() && (is_node_name || is_name_of(host.name.as_bytes(), &self.hostname))
    }

    /// Whether the names of `host` and of this machine are equal up to the first dot.
    pub(crate) fn has_same_short_name(&self, host: &Host) -> bool {
        let short = |name: &str| name.split('.').next().map(str::to_owned);
        short(&host.name) == short(&self.hostname)
    }

    /// Whether this process runs in a Slurm job.
    pub(crate) fn is_slurm_job(&self) -> bool {
        ["SLURM_JOB_NODELIST", "SLURM_NODELIST"].iter().any(|name| self.variable(name).is_some())
    }

    /// Whether this process runs in a parallel job of Grid Engine.
    pub(crate) fn is_sge_job(&self) -> bool {
        !self.is_slurm_job() && self.variable("PE_HOSTFILE").is_some()
    }
}
