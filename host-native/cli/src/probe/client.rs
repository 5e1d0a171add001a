//! PMI requests of a probe.

use hydrant_client::{Connection, Environment, Error as ClientError, ServerAddress, Socket, to_string};
use hydrant_core::client;
use hydrant_core::wire::{Command, Op, Protocol, Reply, Text};

use super::pmix::PmixError;
use super::{Exchange, ProbeError};

/// Why a probe cannot join its job, or why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum JoinError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the PMI server supports PMI-{got}, not PMI-{requested}; try --pmi {got}")]
    Version { requested: u32, got: u32 },
    #[error(transparent)]
    Pmix(#[from] PmixError),
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{op:?}: {error}")]
pub(super) struct RequestError {
    op: Op,
    error: ClientError,
}

/// Returns the variables of the process manager.
pub(super) fn environment() -> Result<Environment, ClientError> {
    let environment = Environment::read(std::env::var_os)?;
    match environment.server {
        // A probe prints to the standard streams, which therefore cannot be the PMI socket.
        Some(ServerAddress::Inherited { fd: fd @ 0..3, .. }) => Err(ClientError::NotOpen(fd)),
        _ => Ok(environment),
    }
}

/// A rank that has joined its job.
pub(super) struct Client {
    connection: Connection,
    protocol: Protocol,
    jobid: String,
}

impl Client {
    /// Connects, performs the handshake, in which `jobid` is `PMI_JOBID`, and requests the job id.
    pub(super) fn join(
        server: &ServerAddress,
        protocol: Protocol,
        jobid: Option<&str>,
    ) -> Result<Client, JoinError> {
        let start = server.start(protocol)?;
        // SAFETY: PMI_FD passes its descriptor to the PMI client of the process, and a probe has only this one.
        let socket = unsafe { Socket::open(server)? };
        let connection = Connection::open(socket, protocol, start, jobid).map_err(|error| match error {
            ClientError::Protocol(client::Error::Version(got)) => {
                JoinError::Version { requested: if protocol == Protocol::V1 { 1 } else { 2 }, got }
            }
            error => error.into(),
        })?;
        let mut client = Client { connection, protocol, jobid: String::new() };
        client.jobid = client.connection.request(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(to_string(id)),
            _ => None,
        })?;
        Ok(client)
    }
}

impl Exchange for Client {
    fn rank(&self) -> u32 {
        self.connection.identity().rank
    }

    fn size(&self) -> u32 {
        self.connection.identity().size
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), ProbeError> {
        let kvs = (self.protocol == Protocol::V1).then_some(Text::from(self.jobid.as_str()));
        let put = Command::Put { kvs, key: key.into(), value: value.into() };
        Ok(self.connection.execute(&put).map_err(of(Op::Put))?)
    }

    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, ProbeError> {
        let get =
            Command::Get { kvs: Some(self.jobid.as_str().into()), key: key.into(), source: Some(owner) };
        let value = self.connection.request(&get, |reply| match reply {
            Reply::Found(_, value) => Some(Some(to_string(value))),
            Reply::Missing(_) => Some(None),
            _ => None,
        });
        Ok(value.map_err(of(Op::Get))?)
    }

    fn fence(&mut self) -> Result<(), ProbeError> {
        Ok(self.connection.execute(&Command::Fence { group: None }).map_err(of(Op::Fence))?)
    }

    fn finalize(&mut self) -> Result<(), ProbeError> {
        Ok(self.connection.execute(&Command::Finalize).map_err(of(Op::Finalize))?)
    }

    fn abort(&mut self, code: i32, message: &str) {
        let message = Text::from(message.lines().next().unwrap_or_default());
        let _ = self.connection.send(&Command::Abort { code: Some(code), world: true, message });
    }
}

fn of(op: Op) -> impl FnOnce(ClientError) -> RequestError {
    move |error| RequestError { op, error }
}
