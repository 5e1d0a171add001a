//! A rank's connection to its process manager: one request, one reply, blocking.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};

use hydrant_core::client::{self, Client, Start};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::wire::{Command, Failure, Op, Protocol, Reply, Text};

/// Why the process manager could not be reached or did not do as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{name} is '{value}' in the environment, which is not {wanted}")]
    Variable { name: &'static str, value: String, wanted: &'static str },
    #[error(
        "PMI_FD says descriptor {0}, which is not open: the process manager's socket was closed on the way here"
    )]
    NotOpen(RawFd),
    #[error("{name} is missing in the environment, beside {beside}")]
    NoVariable { name: &'static str, beside: &'static str },
    #[error("cannot connect to PMI_PORT {address}: {error}")]
    Connect { address: String, error: io::Error },
    #[error("the connection to the process manager broke in {op:?}: {error}")]
    Broken { op: Op, error: io::Error },
    #[error("the process manager closed the connection in {0:?}")]
    Closed(Op),
    #[error("{op:?} failed: {why}")]
    Client { op: Op, why: client::Error },
    #[error("the process manager's answer to {0:?} is longer than PMI allows")]
    TooLong(Op),
    #[error("the process manager answered {0:?} with something else")]
    Unexpected(Op),
    #[error("the process manager speaks PMI-{got}, not PMI-{asked}; try --pmi {got}")]
    Version { asked: u32, got: u32 },
    #[error("the process manager refused {op:?} with rc {rc}: {text}")]
    Refused { op: Op, rc: i32, text: String },
}

/// Where the process manager is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// At a connected socket that was inherited.
    Fd { fd: RawFd, rank: u32, size: u32 },
    /// At this address, where the rank introduces itself.
    Port { address: String, id: u32 },
}

impl Server {
    /// What the variables say; nothing when they say that there is none.
    pub(super) fn from_environment(
        get: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Option<Server>, LinkError> {
        let number = |name, beside| match get(name) {
            None => Err(LinkError::NoVariable { name, beside }),
            Some(value) => value.to_str().and_then(|text| text.parse::<u32>().ok()).ok_or_else(|| {
                LinkError::Variable { name, value: value.display().to_string(), wanted: "a number" }
            }),
        };
        if get("PMI_FD").is_some() {
            let fd = number("PMI_FD", "")?;
            let (rank, size) = (number("PMI_RANK", "PMI_FD")?, number("PMI_SIZE", "PMI_FD")?);
            let fd = RawFd::try_from(fd).map_err(|_| LinkError::NotOpen(RawFd::MAX))?;
            return Ok(Some(Server::Fd { fd, rank, size }));
        }
        let Some(address) = get("PMI_PORT") else { return Ok(None) };
        let address = address.into_string().map_err(|value| LinkError::Variable {
            name: "PMI_PORT",
            value: value.display().to_string(),
            wanted: "host:port",
        })?;
        Ok(Some(Server::Port { address, id: number("PMI_ID", "PMI_PORT")? }))
    }
}

/// Room for any request of a probe: a value of 1024 bytes, each of them escaped, and names.
const REQUEST_MAX: usize = 4096;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection that has joined its job.
pub(super) struct Link {
    stream: ManuallyDrop<Box<dyn Stream>>,
    /// Read and not yet consumed.
    input: Vec<u8>,
    client: Client,
    protocol: Protocol,
    rank: u32,
    size: u32,
    jobid: String,
}

impl Link {
    /// Connects and introduces this process.
    pub(super) fn join(server: &Server, protocol: Protocol) -> Result<Link, LinkError> {
        let (stream, start): (Box<dyn Stream>, Start) = match server {
            Server::Fd { fd, rank, size } => {
                (Box::new(inherited(*fd)?), Start::Fd { rank: *rank, size: *size })
            }
            Server::Port { address, id } => {
                let connect = || {
                    let stream = TcpStream::connect(address)?;
                    stream.set_nodelay(true)?;
                    Ok(stream)
                };
                let stream =
                    connect().map_err(|error| LinkError::Connect { address: address.clone(), error })?;
                (Box::new(stream), Start::Port { id: *id })
            }
        };
        let mut link = Link {
            stream: ManuallyDrop::new(stream),
            input: Vec::new(),
            client: Client::new(protocol, start),
            protocol,
            rank: 0,
            size: 0,
            jobid: String::new(),
        };
        link.introduce()?;
        Ok(link)
    }

    fn introduce(&mut self) -> Result<(), LinkError> {
        let mut buffer = [0; 64];
        while let Some(bytes) =
            self.client.introduce(&mut buffer).map_err(|why| self.failed(Op::Init, why))?
        {
            self.stream.write_all(bytes).map_err(|error| LinkError::Broken { op: Op::Init, error })?;
            self.answer(Op::Init, |_| Some(()))?;
        }
        let identity = self.client.identity().ok_or(LinkError::Unexpected(Op::Init))?;
        (self.rank, self.size) = (identity.rank, identity.size);
        self.jobid = self.ask(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(text(id)),
            _ => None,
        })?;
        Ok(())
    }

    /// This process's rank.
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// The job's number of ranks.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn put(&mut self, key: &str, value: &str) -> Result<(), LinkError> {
        let jobid = self.jobid.clone();
        let kvs = match self.protocol {
            Protocol::V1 => Some(Text::from(jobid.as_str())),
            Protocol::V2 => None,
        };
        self.ask(&Command::Put { kvs, key: key.into(), value: value.into() }, done)
    }

    /// The value of a key, where anybody has put it.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<String>, LinkError> {
        let jobid = self.jobid.clone();
        let get = Command::Get { kvs: Some(jobid.as_str().into()), key: key.into() };
        self.ask(&get, |reply| match reply {
            Reply::Found(_, value) => Some(Some(text(value))),
            Reply::Missing(_) => Some(None),
            _ => None,
        })
    }

    /// Waits until every rank has called this.
    pub(super) fn fence(&mut self) -> Result<(), LinkError> {
        self.ask(&Command::Fence { group: None }, |reply| matches!(reply, Reply::Fence { .. }).then_some(()))
    }

    /// Leaves the job in peace.
    pub(super) fn finalize(&mut self) -> Result<(), LinkError> {
        self.ask(&Command::Finalize, done)
    }

    /// Asks for the end of the job. There is no answer, and nothing to do where it cannot be asked.
    pub(super) fn abort(&mut self, code: i32, message: &str) {
        let mut buffer = [0; REQUEST_MAX];
        let message = Text::from(message.lines().next().unwrap_or_default());
        let abort = Command::Abort { code: Some(code), world: true, message };
        if let Ok(bytes) = self.client.request(&abort, &mut buffer) {
            let _ = self.stream.write_all(bytes);
        }
    }

    /// Sends a request and has `read` take what is wanted from the reply to it.
    fn ask<T>(
        &mut self,
        command: &Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> Option<T>,
    ) -> Result<T, LinkError> {
        let op = command.op();
        let mut buffer = [0; REQUEST_MAX];
        let bytes = self.client.request(command, &mut buffer).map_err(|why| LinkError::Client { op, why })?;
        self.stream.write_all(bytes).map_err(|error| LinkError::Broken { op, error })?;
        self.answer(op, read)
    }

    fn answer<T>(&mut self, op: Op, read: impl FnOnce(&Reply<'_>) -> Option<T>) -> Result<T, LinkError> {
        loop {
            match self.client.receive(&self.input) {
                Ok(None) => self.receive(op)?,
                Err(why) => return Err(self.failed(op, why)),
                Ok(Some(received)) => {
                    let result = match received.reply {
                        Reply::Refused(op, failure) => Err(refused(op, failure)),
                        reply => read(&reply).ok_or(LinkError::Unexpected(op)),
                    };
                    self.input.drain(..received.consumed as usize);
                    return result;
                }
            }
        }
    }

    fn failed(&self, op: Op, why: client::Error) -> LinkError {
        match why {
            client::Error::Version(got) => {
                LinkError::Version { asked: if self.protocol == Protocol::V1 { 1 } else { 2 }, got }
            }
            why => LinkError::Client { op, why },
        }
    }

    fn receive(&mut self, op: Op) -> Result<(), LinkError> {
        if self.input.len() > MESSAGE_MAX as usize {
            return Err(LinkError::TooLong(op));
        }
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(LinkError::Closed(op)),
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Broken { op, error }),
            }
        }
    }
}

/// The socket that the process manager has left open for this process.
fn inherited(fd: RawFd) -> Result<File, LinkError> {
    // Standard input, output and error are somebody else's.
    if fd < 3 || std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() {
        return Err(LinkError::NotOpen(fd));
    }
    // SAFETY: the descriptor is open, and by PMI's convention the one that PMI_FD names is for this process's client
    // to use; nothing else here takes numbers of descriptors from the environment. It is never closed (`Link` holds
    // it as `ManuallyDrop`), so that it cannot be closed twice either.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn done(reply: &Reply<'_>) -> Option<()> {
    matches!(reply, Reply::Done(_)).then_some(())
}

fn refused(op: Op, failure: Failure<'_>) -> LinkError {
    match failure {
        Failure::Remote(rc, why) => LinkError::Refused { op, rc, text: text(&why) },
        Failure::Refusal(refusal) => LinkError::Refused { op, rc: -1, text: refusal.to_string() },
    }
}

fn text(text: &Text<'_>) -> String {
    let bytes: Vec<u8> = text.parts().flatten().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
