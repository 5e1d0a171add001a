//! Port for the clients of a job.

use std::net::SocketAddr;

use hydrant_driver::{Speaks, TcpPort};

use crate::error::Error;

/// Port at which clients connect, for launchers that start ranks before they know enough to register the job: the port is opened
/// first, [`Job::rank_env`](crate::Job::rank_env) has the variables of the ranks, and [`Host::adopt_port`](crate::Host::adopt_port)
/// serves the clients that have connected meanwhile. [`Host::listen`](crate::Host::listen) does all that for others.
#[derive(Debug)]
pub struct Port {
    port: TcpPort,
    speaks: Speaks,
}

impl Port {
    /// Listens at an address, of which port 0 is any free one. `speaks` says which protocols the clients have.
    ///
    /// # Errors
    /// [`Error::Wildcard`]: ranks cannot connect to such an address. [`Error::Listen`]: the address is in use or none of this
    /// machine's.
    pub fn open(address: SocketAddr, speaks: Speaks) -> Result<Port, Error> {
        if address.ip().is_unspecified() {
            return Err(Error::Wildcard(address));
        }
        Ok(Port { port: TcpPort::open(address)?.for_clients_of(speaks), speaks })
    }

    /// Accepts processes of that user on this machine in place of this process's: for a launcher that runs as root.
    #[must_use]
    pub fn for_user(self, user: u32) -> Port {
        Port { port: self.port.for_user(Some(user)), ..self }
    }

    /// The address, with the port that the system has chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Protocols that its clients have.
    pub fn speaks(&self) -> Speaks {
        self.speaks
    }

    pub(crate) fn into_tcp(self) -> TcpPort {
        self.port
    }
}
