//! PMIx requests of a probe, without a library.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::wire::pmix::{
    HEADER_LEN, HELLO_MAX, Hello, Integers, Kind, Reader, WILDCARD, Writer, keys, kind, status, write_header,
};

use super::{Exchange, ProbeError};

/// Variables by which a client finds its server.
const NAMESPACE: &str = "PMIX_NAMESPACE";
const RANK: &str = "PMIX_RANK";
const SERVER: &str = "PMIX_SERVER_URI41";
/// Scopes of data: for ranks on this host, and for others.
const SCOPES: [u8; 2] = [1, 2];

/// Numbers of commands.
mod command {
    pub(super) use hydrant_core::wire::pmix::JOB_INFO;

    pub(super) const ABORT: u8 = 1;
    pub(super) const COMMIT: u8 = 2;
    pub(super) const FENCE: u8 = 3;
    pub(super) const GET: u8 = 4;
    pub(super) const FINALIZE: u8 = 5;
}

/// Why a PMIx request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PmixError {
    #[error("{0} is not set, or is invalid: the process manager serves no PMIx")]
    Environment(&'static str),
    #[error("cannot connect to {address}: {why}")]
    Connect { address: String, why: io::Error },
    #[error("the PMIx server has refused this process")]
    Refused,
    #[error("the connection to the PMIx server has ended: {0}")]
    Ended(#[from] io::Error),
    #[error("the PMIx server answers {request} with status {code}")]
    Status { request: &'static str, code: i32 },
    #[error("the PMIx server's reply to {0} cannot be read")]
    Unreadable(&'static str),
    #[error("the message exceeds {MESSAGE_MAX} bytes; probe with fewer or shorter values")]
    TooLong,
}

/// A rank that has joined its job.
pub(super) struct PmixClient {
    stream: TcpStream,
    namespace: String,
    rank: u32,
    size: u32,
    tag: u32,
    /// All pairs that this rank has put, encoded. A commit sends all of them.
    put: Vec<u8>,
    /// Pairs of all ranks that have been fetched, by rank and key.
    fetched: HashMap<(u32, String), String>,
}

/// Returns whether the process manager serves PMIx.
pub(super) fn is_served() -> bool {
    std::env::var_os(NAMESPACE).is_some()
}

impl PmixClient {
    /// Connects and requests the job's data.
    pub(super) fn join() -> Result<PmixClient, PmixError> {
        let variable = |name| std::env::var(name).map_err(|_| PmixError::Environment(name));
        let namespace = variable(NAMESPACE)?;
        let rank = variable(RANK)?.parse().map_err(|_| PmixError::Environment(RANK))?;
        let uri = variable(SERVER)?;
        let address = uri.split_once(";tcp4://").ok_or(PmixError::Environment(SERVER))?.1;
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connect().map_err(|why| PmixError::Connect { address: address.to_owned(), why })?;
        let (put, fetched) = (Vec::new(), HashMap::new());
        let mut client = PmixClient { stream, namespace, rank, size: 0, tag: 100, put, fetched };
        client.introduce()?;
        let reply = client.request("job info", command::JOB_INFO, |_, _| {})?;
        client.size = job_size(&reply).ok_or(PmixError::Unreadable("job info"))?;
        Ok(client)
    }

    /// Performs the handshake.
    fn introduce(&mut self) -> Result<(), PmixError> {
        let (kind, namespace) = (Kind::Client, self.namespace.as_bytes());
        let hello = Hello { kind, namespace, rank: self.rank, major: 5, integers: Integers::Flexible };
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut room = [0; HEADER_LEN + HELLO_MAX as usize];
        let len = hello.write(user, &mut room).ok_or(PmixError::Environment(NAMESPACE))?;
        self.stream.write_all(&room[..len])?;
        let mut answer = [0; 4];
        self.stream.read_exact(&mut answer)?;
        if i32::from_be_bytes(answer) != status::SUCCESS {
            return Err(PmixError::Refused);
        }
        Ok(self.stream.read_exact(&mut answer)?)
    }

    /// Sends a request and returns the body of its reply.
    fn request(
        &mut self,
        name: &'static str,
        command: u8,
        write: impl Fn(&PmixClient, &mut Writer<'_>),
    ) -> Result<Vec<u8>, PmixError> {
        self.tag += 1;
        let mut body = vec![0; MESSAGE_MAX as usize - HEADER_LEN];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        writer.single();
        writer.byte(command);
        write(self, &mut writer);
        let len = writer.finish().ok_or(PmixError::TooLong)?;
        let mut message = write_header(self.tag, len as u32).to_vec();
        message.extend(&body[..len]);
        self.stream.write_all(&message)?;
        loop {
            let mut header = [0; HEADER_LEN];
            self.stream.read_exact(&mut header)?;
            let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
            if word(8) > MESSAGE_MAX {
                return Err(PmixError::Unreadable(name));
            }
            let mut body = vec![0; word(8) as usize];
            self.stream.read_exact(&mut body)?;
            // Other messages are events.
            if word(4) == self.tag {
                return Ok(body);
            }
        }
    }

    /// Sends a request whose reply is a status, and returns the rest of the reply.
    fn call(
        &mut self,
        name: &'static str,
        command: u8,
        write: impl Fn(&PmixClient, &mut Writer<'_>),
    ) -> Result<Vec<u8>, PmixError> {
        let reply = self.request(name, command, write)?;
        let mut reader = Reader::new(Integers::Flexible, &reply);
        let code = reader.single().and_then(|()| reader.int32()).ok_or(PmixError::Unreadable(name))?;
        match code {
            status::SUCCESS => Ok(reader.rest().to_vec()),
            code => Err(PmixError::Status { request: name, code }),
        }
    }

    /// Fetches all pairs of a rank that the server has, if it has this key.
    fn fetch(&mut self, owner: u32, key: &str) -> Result<(), PmixError> {
        const NAME: &str = "get";
        let reply = self.call(NAME, command::GET, |client, writer| {
            writer.single();
            writer.string(client.namespace.as_bytes());
            writer.single();
            writer.uint32(owner);
            writer.array(1);
            writer.info(b"pmix.immediate", kind::BOOL);
            writer.byte(1);
            writer.single();
            writer.string(key.as_bytes());
        });
        let reply = match reply {
            Err(PmixError::Status { code: status::NOT_FOUND, .. }) => return Ok(()),
            reply => reply?,
        };
        let pairs = pairs(&reply).ok_or(PmixError::Unreadable(NAME))?;
        self.fetched.extend(pairs.into_iter().map(|(key, value)| ((owner, key), value)));
        Ok(())
    }

    fn commit_and_fence(&mut self) -> Result<(), PmixError> {
        self.call("commit", command::COMMIT, |client, writer| {
            for scope in SCOPES {
                writer.single();
                writer.byte(scope);
                writer.single();
                writer.byte(1);
                writer.blob_of(|writer| writer.raw(&client.put));
            }
        })?;
        self.call("fence", command::FENCE, |client, writer| {
            writer.array(1);
            writer.proc(client.namespace.as_bytes(), WILDCARD);
            writer.array(1);
            writer.info(b"pmix.collect", kind::BOOL);
            writer.byte(1);
        })?;
        Ok(())
    }
}

impl Exchange for PmixClient {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), ProbeError> {
        let mut room = vec![0; key.len() + value.len() + 64];
        let mut writer = Writer::new(Integers::Flexible, &mut room);
        writer.key(key.as_bytes(), kind::STRING);
        writer.string(value.as_bytes());
        let len = writer.finish().ok_or(PmixError::TooLong)?;
        self.put.extend(&room[..len]);
        Ok(())
    }

    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, ProbeError> {
        let place = (owner, key.to_owned());
        if !self.fetched.contains_key(&place) {
            self.fetch(owner, key)?;
        }
        Ok(self.fetched.get(&place).cloned())
    }

    fn fence(&mut self) -> Result<(), ProbeError> {
        Ok(self.commit_and_fence()?)
    }

    fn finalize(&mut self) -> Result<(), ProbeError> {
        self.call("finalize", command::FINALIZE, |_, _| {})?;
        Ok(())
    }

    fn abort(&mut self, code: i32, message: &str) {
        // The exit status of this process reports the failure too.
        let _ = self.call("abort", command::ABORT, |_, writer| {
            writer.status(code);
            writer.single();
            writer.string(message.lines().next().unwrap_or_default().as_bytes());
            writer.array(0);
        });
    }
}

/// Returns the number of ranks in the reply to a request for the job's data.
fn job_size(reply: &[u8]) -> Option<u32> {
    let mut data = Reader::new(Integers::Flexible, reply).job_data()?;
    data.find(|info| info.key == keys::JOB_SIZE)?.as_u32()
}

/// Returns the pairs in the reply to a get. Values that are no text are left out.
fn pairs(reply: &[u8]) -> Option<Vec<(String, String)>> {
    let mut reader = Reader::new(Integers::Flexible, reply);
    let mut pairs = Vec::new();
    while !reader.is_at_end() {
        reader.single()?;
        let mut data = Reader::new(Integers::Flexible, reader.blob()?);
        data.single()?;
        data.proc()?;
        while !data.is_at_end() {
            let pair = data.key_value()?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            pairs.extend(pair.as_string().map(|value| (text(pair.key), text(value))));
        }
    }
    Some(pairs)
}
