//! Errors of a host.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;

use hydrant_core::{BackendError, Fault};
use hydrant_driver::{InsufficientMemory, ListenError, OwnedServerError};
use hydrant_placement::{HOST_NAME_MAX, PlacementError};

/// Why a call of a [`Host`](crate::Host) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refuses an input. It is unchanged. A limit or an argument is the cause.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An input is longer than the server's buffer.
    #[error("{what} is longer than {max} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Maximum in bytes.
        max: usize,
    },
    /// More bytes of a connection than [`Host::room`](crate::Host::room).
    #[error("{given} bytes of connection {conn}, which has room for {room}")]
    Room {
        /// The connection.
        conn: u32,
        /// Number of bytes.
        given: usize,
        /// Room in bytes.
        room: usize,
    },
    /// An input is about a connection that the library reads, writes and closes itself.
    #[error(
        "connection {0} is a socket of the library, which reads, writes and closes it: `{1}` is for connections whose bytes \
         the host carries (`opened`)"
    )]
    Socket(u32, &'static str),
    /// A job has one port.
    #[error("job {0} has a port already")]
    HasPort(u32),
    /// A rank would connect to the port of a job without one.
    #[error("job {0} has no port for its ranks to connect to")]
    NoPort(u32),
    /// Nothing can connect to a wildcard address.
    #[error("ranks cannot connect to {0}: give the address by which they reach this host")]
    Wildcard(SocketAddr),
    /// The nodes of a job do not have all of its ranks.
    #[error("the nodes of the job have {ranks} ranks, and the job has {size}")]
    Nodes {
        /// Ranks of all nodes.
        ranks: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// The name of a node's host is too long for PMIx clients, or would be two of their list.
    #[error(
        "{host:?}, the host of node {node}: the name of a host has at most {HOST_NAME_MAX} bytes and no comma"
    )]
    HostName {
        /// Number of the node.
        node: u32,
        /// The name.
        host: String,
    },
    /// The nodes of a job make a `PMI_process_mapping` that no client can read.
    #[error(transparent)]
    Mapping(#[from] PlacementError),
    /// The limits require more memory than there is.
    #[error(transparent)]
    Memory(InsufficientMemory),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    /// The library cannot listen at an address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The plugin cannot be loaded, trapped, took too long, or has an output that no server has. Later calls fail, too. A server in
    /// this process fails by its own faults only.
    #[error(transparent)]
    Plugin(Box<dyn StdError + Send + Sync>),
    /// The library was built without the feature `sandbox`.
    #[cfg(not(feature = "sandbox"))]
    #[error(
        "plugin {}: this library was built without the sandbox\nhint: host-native/host/install --sandbox builds one with it",
        .0.display()
    )]
    NoSandbox(std::path::PathBuf),
}

impl Error {
    /// Returns the error of the last system call.
    pub(crate) fn system(call: &'static str) -> Error {
        hydrant_reactor::Error { what: call, why: io::Error::last_os_error() }.into()
    }

    /// Returns the fault of the server, if it is the cause.
    pub fn fault(&self) -> Option<Fault> {
        if let Error::Fault(fault) = self { Some(*fault) } else { None }
    }
}

impl From<OwnedServerError> for Error {
    fn from(error: OwnedServerError) -> Error {
        match error {
            OwnedServerError::Fault(fault) => Error::Fault(fault),
            OwnedServerError::Memory(error) => Error::Memory(error),
        }
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        match error {
            BackendError::Fault(fault) => Error::Fault(fault),
            BackendError::Other(error) => Error::Plugin(error),
        }
    }
}

impl From<hydrant_driver::Error> for Error {
    fn from(error: hydrant_driver::Error) -> Error {
        match error {
            hydrant_driver::Error::Backend(error) => error.into(),
            hydrant_driver::Error::System(error) => Error::System(error),
        }
    }
}

#[cfg(feature = "sandbox")]
impl From<hydrant_wasm::PluginError> for Error {
    fn from(error: hydrant_wasm::PluginError) -> Error {
        BackendError::from(error).into()
    }
}
