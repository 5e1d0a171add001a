//! Variables of a rank.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use hydrant_core::{Rank, UpcallId};
use hydrant_driver::{Speaks, pmix_variables};

/// What the variables of a rank say of its job and its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables<'a> {
    /// Name of the job.
    pub(crate) name: &'a str,
    /// Number of its ranks.
    pub(crate) size: u32,
    pub(crate) is_spawned: bool,
    /// Name of the rank's host for PMIx clients.
    pub(crate) host: Option<&'a str>,
    /// Connection that the rank inherits.
    pub(crate) fd: Option<RawFd>,
    /// Port of the job, and the protocols of its clients.
    pub(crate) port: Option<(SocketAddr, Speaks)>,
}

/// Whether a job counts as spawned: by this launcher's servers, or by those of another one.
pub(crate) fn is_spawned(spawn: Option<UpcallId>, spawner: &str) -> bool {
    spawn.is_some() || !spawner.is_empty()
}

impl Variables<'_> {
    /// Returns those of a rank: of PMI for a client that inherits its connection or connects to the port, and those of PMIx if
    /// the port is for such clients.
    pub(crate) fn of(self, rank: Rank) -> Vec<(&'static str, String)> {
        let port = self.port.map(|(address, speaks)| (address.to_string(), speaks));
        let mut variables = match (self.fd, &port) {
            (Some(fd), _) => vec![("PMI_FD", fd.to_string())],
            (None, Some((address, Speaks::Any | Speaks::Pmi))) => {
                vec![("PMI_PORT", address.clone()), ("PMI_ID", rank.to_string())]
            }
            (None, _) => Vec::new(),
        };
        variables.extend([("PMI_RANK", rank.to_string()), ("PMI_SIZE", self.size.to_string())]);
        if self.is_spawned {
            variables.push(("PMI_SPAWNED", "1".to_owned()));
        }
        if let Some((address, Speaks::Any | Speaks::Pmix)) = port {
            variables.extend(pmix_variables(self.name, Some(&address)));
            variables.push(("PMIX_RANK", rank.to_string()));
            variables.extend(self.host.map(|host| ("PMIX_HOSTNAME", host.to_owned())));
            // MPICH 5 does not choose between PMI and PMIx by itself.
            variables.push(("MPIR_CVAR_PMI_VERSION", "1".to_owned()));
        }
        variables
    }
}
