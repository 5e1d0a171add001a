//! Smallest PMIx client: one blocking write and one blocking read a request. It decodes as little of a reply as it can.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use hydrant_core::wire::pmix::{HEADER_LEN, Integers, Reader, WILDCARD, Writer, kind, status};

use crate::rank::{Moments, now, number, print_line, schedule_like_hydrants, value, write_digits};

/// Longest message in bytes, of either side.
const MESSAGE_MAX: usize = 512 * 1024;

/// Name of the rank's value, and of the times that it reports.
const KEYS: [&[u8]; 2] = [b"bench.value", b"bench.moments"];

/// Ranks of the same host, and those of other hosts: for whom a value is committed.
const SCOPE_LOCAL: u8 = 1;
const SCOPE_REMOTE: u8 = 2;

/// Reply to a handshake that is accepted: a status, and an index of the client.
pub(crate) const WELCOME: [u8; 8] = [0; 8];

/// First bytes of a reply's body: one status, and that is success.
const SUCCESS: [u8; 2] = [2, 0];

/// Request of a client, by its number on the wire.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Request {
    JobInfo = 0,
    Commit = 2,
    Fence = 3,
    Get = 4,
    Finalize = 5,
}

/// Encoder of requests of one namespace.
pub(crate) struct Requests {
    namespace: Vec<u8>,
    buffer: Box<[u8; MESSAGE_MAX]>,
}

impl Requests {
    /// Starts an encoder.
    pub(crate) fn new(namespace: &str) -> Requests {
        Requests { namespace: namespace.into(), buffer: Box::new([0; MESSAGE_MAX]) }
    }

    /// Returns the handshake of a rank.
    pub(crate) fn hello(&mut self, rank: u32) -> Vec<u8> {
        let user = rustix::process::geteuid().as_raw().to_be_bytes();
        let group = rustix::process::getegid().as_raw().to_be_bytes();
        // Security by credential, a client that a server has started, and the forms of libpmix 5.
        let body = [
            b"native\0".as_slice(),
            &8_u32.to_be_bytes(),
            &user,
            &group,
            &[0],
            &self.namespace,
            &[0],
            &rank.to_be_bytes(),
            b"5.0.11\0v41\0\x01hash\0",
        ]
        .concat();
        let len = u32::try_from(body.len()).expect("a handshake is short");
        [&[0xff; 8], len.to_le_bytes().as_slice(), &[0; 4], &body].concat()
    }

    /// Returns a request whose elements `write` writes.
    fn request(&mut self, request: Request, write: impl FnOnce(&[u8], &mut Writer<'_>)) -> &[u8] {
        let mut writer = Writer::new(Integers::Flexible, &mut self.buffer[HEADER_LEN..]);
        writer.single();
        writer.byte(request as u8);
        write(&self.namespace, &mut writer);
        let len = writer.finish().expect("a request is shorter than the buffer");
        let header = &mut self.buffer[..HEADER_LEN];
        header.fill(0);
        header[4..8].copy_from_slice(&101_u32.to_be_bytes());
        header[8..12].copy_from_slice(&u32::try_from(len).expect("a request is short").to_be_bytes());
        &self.buffer[..HEADER_LEN + len]
    }

    /// Returns the request for the data of the job.
    pub(crate) fn job_info(&mut self) -> &[u8] {
        self.request(Request::JobInfo, |_, _| {})
    }

    /// Returns the commit of values under the first of [`KEYS`], for ranks of the same host.
    pub(crate) fn commit(&mut self, values: &[&str]) -> &[u8] {
        self.commit_to(SCOPE_LOCAL, values)
    }

    fn commit_to(&mut self, scope: u8, values: &[&str]) -> &[u8] {
        self.request(Request::Commit, |_, writer| {
            const NOT_DESCRIBED: u8 = 1;
            writer.single();
            writer.byte(scope);
            writer.single();
            writer.byte(NOT_DESCRIBED);
            writer.blob_of(|writer| {
                for (key, value) in KEYS.iter().zip(values) {
                    writer.key(key, kind::STRING);
                    writer.string(value.as_bytes());
                }
            });
        })
    }

    /// Returns the fence of the whole job, which collects what ranks have committed.
    pub(crate) fn fence(&mut self) -> &[u8] {
        self.fence_that(true)
    }

    fn fence_that(&mut self, collects: bool) -> &[u8] {
        self.request(Request::Fence, |namespace, writer| {
            writer.array(1);
            writer.proc(namespace, WILDCARD);
            writer.array(collects.into());
            if collects {
                writer.info(b"pmix.collect", kind::BOOL);
                writer.byte(1);
            }
        })
    }

    /// Returns the request for what a rank has committed.
    pub(crate) fn get(&mut self, rank: u32, key: usize) -> &[u8] {
        self.request(Request::Get, |namespace, writer| {
            writer.single();
            writer.string(namespace);
            writer.single();
            writer.uint32(rank);
            writer.array(0);
            writer.single();
            writer.string(KEYS[key]);
        })
    }

    fn finalize(&mut self) -> &[u8] {
        self.request(Request::Finalize, |_, _| {})
    }
}

/// Returns a reply of success with data behind the status.
pub(crate) fn reply(data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(SUCCESS.len() + data.len()).expect("a reply is short");
    [&[0; 8], len.to_be_bytes().as_slice(), &[0; 4], &SUCCESS, data].concat()
}

/// Connection of a rank to its server.
struct Client {
    server: TcpStream,
    requests: Requests,
    reply: Box<[u8; MESSAGE_MAX]>,
}

impl Client {
    /// Connects, joins, and reads the data of the job.
    fn join() -> Result<Client> {
        let uri =
            std::env::var("PMIX_SERVER_URI41").context("PMIX_SERVER_URI41: not started by a PMIx server")?;
        let address = uri.split_once(";tcp4://").context("PMIX_SERVER_URI41 has no IPv4 address")?.1;
        let server = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        server.set_nodelay(true)?;
        let requests = Requests::new(&std::env::var("PMIX_NAMESPACE").context("PMIX_NAMESPACE")?);
        let mut client = Client { server, requests, reply: Box::new([0; MESSAGE_MAX]) };
        let hello = client.requests.hello(number("PMIX_RANK")?);
        client.server.write_all(&hello)?;
        let mut answer = [0; 4];
        client.server.read_exact(&mut answer)?;
        ensure!(answer == [0; 4], "the handshake is refused with status {}", i32::from_be_bytes(answer));
        client.server.read_exact(&mut answer)?;
        client.ask(|requests| requests.job_info())?;
        Ok(client)
    }

    /// Sends a request and returns the body of its reply.
    fn ask(&mut self, request: impl FnOnce(&mut Requests) -> &[u8]) -> Result<&[u8]> {
        self.server.write_all(request(&mut self.requests))?;
        let mut have = 0;
        let mut whole = HEADER_LEN;
        while have < whole {
            let got = self.server.read(&mut self.reply[have..])?;
            ensure!(got > 0, "the server has closed the connection");
            have += got;
            if let Some(header) = self.reply[..have].first_chunk::<HEADER_LEN>() {
                let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
                whole = HEADER_LEN + len as usize;
                ensure!(whole <= MESSAGE_MAX, "a reply of {len} bytes");
            }
        }
        ensure!(have == whole, "{} bytes behind the reply", have - whole);
        Ok(&self.reply[HEADER_LEN..whole])
    }

    /// Sends a request that must succeed.
    fn done(&mut self, request: impl FnOnce(&mut Requests) -> &[u8]) -> Result<()> {
        let reply = self.ask(request)?;
        let mut reader = Reader::new(Integers::Flexible, reply);
        let code = reader.single().and_then(|()| reader.int32()).context("a reply without a status")?;
        ensure!(code == status::SUCCESS, "a request failed with status {code}");
        Ok(())
    }

    /// Returns the committed data of a rank, still encoded.
    fn get(&mut self, rank: u32, key: usize) -> Result<&[u8]> {
        let reply = self.ask(|requests| requests.get(rank, key))?;
        // Data follow behind the status.
        reply.strip_prefix(&SUCCESS).with_context(|| format!("rank {rank} has no data"))
    }

    /// Commit, fence, and get of all values.
    fn exchange(&mut self, rank: u32, size: u32) -> Result<Moments> {
        let (mine, mut expected) = (value(rank), value(0).into_bytes());
        self.done(Requests::fence)?;
        let start = now();
        self.done(|requests| requests.commit(&[&mine]))?;
        let put = now();
        self.done(Requests::fence)?;
        let fence = now();
        let mut errors = 0;
        for other in (rank + 1..size).chain(0..=rank) {
            write_digits(&mut expected, other);
            errors += u64::from(!contains(self.get(other, 0)?, &expected));
        }
        Ok(Moments { start, put, fence, end: now(), errors })
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Runs as a rank of the echo server: the same exchange, whose answers hold nothing. Every rank prints its own moments.
pub(crate) fn under_echo(size: u32) -> Result<()> {
    let rank = number("PMIX_RANK")?;
    schedule_like_hydrants(size)?;
    let mut client = Client::join()?;
    let mine = Moments { errors: 0, ..client.exchange(rank, size)? };
    client.done(Requests::fence)?;
    print_line(mine)
}

/// Runs as a rank of a job that enters `count` fences in a row. Before each one it commits a value of `bytes` bytes for ranks of
/// other hosts, which the fence collects, or nothing. It prints the time before the first fence and the one behind the last.
pub(crate) fn fences(count: u32, bytes: usize) -> Result<()> {
    let rank: u32 = number("PMIX_RANK")?;
    let mut client = Client::join()?;
    client.done(|requests| requests.fence_that(false))?;
    let start = now();
    for at in 0..count {
        if bytes > 0 {
            let value = format!("{rank:08}{at:08}{:x>1$}", "", bytes.saturating_sub(16));
            client.done(|requests| requests.commit_to(SCOPE_REMOTE, &[&value]))?;
        }
        client.done(|requests| requests.fence_that(bytes > 0))?;
    }
    let end = now();
    client.done(|requests| requests.fence_that(false))?;
    print_line(format_args!("{start} {end}"))?;
    client.done(Requests::finalize)
}

/// Runs as a rank of a job. Rank 0 prints the moments of the job, which it collects by PMIx.
pub(crate) fn under_manager(size: u32) -> Result<()> {
    let rank = number("PMIX_RANK")?;
    let mut client = Client::join()?;
    let mine = client.exchange(rank, size)?;
    client.done(|requests| requests.commit(&[&value(rank), &format!("<{mine}>")]))?;
    client.done(Requests::fence)?;
    if rank == 0 {
        let mut all = mine;
        for other in 1..size {
            let data = String::from_utf8_lossy(client.get(other, 1)?).into_owned();
            // The last one: a length may look like it.
            let text = data.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>'));
            all =
                all.merge(text.with_context(|| format!("the times of rank {other} are missing"))?.0.parse()?);
        }
        println!("{all}");
    }
    client.done(Requests::finalize)
}
