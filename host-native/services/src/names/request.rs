//! One connection of a run to the name server: requests in a row, each answered before the next is sent.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hydrant_core::client::{Client, Error, Start};
use hydrant_core::limits::{NAME_MAX, PORT_MAX};
use hydrant_core::wire::{Command, Failure, Protocol, Reply, Text, Unsent, decode_upcall};
use hydrant_core::{JobId, Rank, Refusal, UpcallId};
use hydrant_reactor::NO_SIGPIPE;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Time for an answer, in milliseconds. The wait of a look-up is added.
const ANSWER_TIME: u64 = 10_000;
/// Room for any message that the name server takes, its fields and each byte's escape included.
pub(super) const MESSAGE: usize = 2 * (NAME_MAX + PORT_MAX) + 256;

/// A rank's request about a name.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number for the core.
    pub upcall: UpcallId,
    /// The job of the rank.
    pub job: JobId,
    /// The rank.
    pub rank: Rank,
    /// The language of `body`.
    pub protocol: Protocol,
    /// The request as it came.
    pub body: Vec<u8>,
    /// Time that a look-up waits for the name, in milliseconds, if it names no time itself.
    pub wait: u32,
}

/// Result of a request, for `Input::UpcallComplete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub upcall: UpcallId,
    /// 0, or a code of pmi2.h.
    pub rc: i32,
    /// The port of a look-up, or the reason of a failure.
    pub text: Vec<u8>,
}

impl Request {
    /// Returns the PMI command of the request.
    fn command(&self) -> Option<Command<'_>> {
        match decode_upcall(self.protocol, &self.body)? {
            Command::Lookup { name, wait } => Some(Command::Lookup { name, wait: wait.or(Some(self.wait)) }),
            other => Some(other),
        }
    }

    /// Returns what the connection for this request is used for.
    pub(super) fn purpose(&self) -> Purpose {
        match self.command() {
            Some(Command::Lookup { .. }) => Purpose::Lookup,
            _ => Purpose::Names(self.job),
        }
    }

    /// Encodes the request for a client after its handshake. The inner error is the answer to a request that cannot be
    /// encoded.
    ///
    /// # Errors
    /// The reason why the client sends no further request.
    pub(super) fn encode<'b>(
        &self,
        client: &mut Client,
        buffer: &'b mut [u8],
    ) -> Result<Result<&'b [u8], Answer>, String> {
        let command = self.command().ok_or("a request is not about a name")?;
        let refusal = match client.request(&command, buffer) {
            Ok(bytes) => return Ok(Ok(bytes)),
            Err(Error::Unsent(Unsent::DoesNotFit)) => Refusal::NameLength,
            Err(Error::Unsent(_)) => Refusal::Unprintable,
            Err(error) => return Err(error.to_string()),
        };
        Ok(Err(self.refused(refusal.rc(), refusal.to_string().into_bytes())))
    }

    /// Returns the time for an answer in milliseconds.
    fn patience(&self) -> u64 {
        match self.command() {
            Some(Command::Lookup { wait, .. }) => ANSWER_TIME + u64::from(wait.unwrap_or(0)),
            _ => ANSWER_TIME,
        }
    }

    /// Returns the answer to a request that failed.
    pub(super) fn failed(&self, why: &str) -> Answer {
        self.refused(Refusal::NoName.rc(), why.as_bytes().to_vec())
    }

    fn refused(&self, rc: i32, text: Vec<u8>) -> Answer {
        Answer { upcall: self.upcall, rc, text }
    }
}

/// Use of a connection. Each job that publishes has a connection, so that its names end with it. Each look-up has a
/// connection, so that a look-up that waits delays no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Publish and unpublish requests of this job.
    Names(JobId),
    /// A single look-up.
    Lookup,
}

/// Converts the reply to a request to its answer.
///
/// # Errors
/// The reply is none to a request about a name.
pub(super) fn answer_of(request: &Request, reply: &Reply<'_>) -> Result<Answer, String> {
    let (rc, text) = match reply {
        Reply::Done(_) => (0, Vec::new()),
        Reply::Port(port) => (0, bytes(port)),
        Reply::Refused(_, Failure::Remote(rc, text)) => (*rc, bytes(text)),
        other => return Err(format!("it answered {:?}", other.op())),
    };
    Ok(request.refused(rc, text))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    client: Client,
    /// Received bytes of an incomplete reply.
    inbox: Vec<u8>,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// The first of them is under way when `asked`.
    queue: VecDeque<Request>,
    asked: bool,
    /// Deadline of the current request.
    deadline: Option<u64>,
}

impl Connection {
    pub(super) fn new(fd: OwnedFd) -> Connection {
        Connection {
            fd,
            // The id is arbitrary: each connection is rank 0 of its own job.
            client: Client::new(Protocol::V2, Start::Port { id: 0 }),
            inbox: Vec::new(),
            unsent: Vec::new(),
            queue: VecDeque::new(),
            asked: false,
            deadline: None,
        }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn push(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    /// Returns the requests without an answer, the current one included.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter()
    }

    /// Returns whether bytes wait for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Sends, receives and handles as much as possible without blocking. Appends new answers to `answers`.
    ///
    /// # Errors
    /// The reason why the connection is unusable.
    pub(super) fn pump(&mut self, now: u64, answers: &mut Vec<Answer>) -> Result<(), String> {
        loop {
            if !self.flush()? {
                return Ok(());
            }
            let more =
                if self.client.is_waiting() { self.take_reply(answers)? } else { self.ask(now, answers)? };
            if !more && !self.read()? {
                return Ok(());
            }
        }
    }

    /// Sends pending bytes. Returns whether all are sent.
    fn flush(&mut self) -> Result<bool, String> {
        while !self.unsent.is_empty() {
            match send(&self.fd, &self.unsent, SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(reason(errno)),
            }
        }
        Ok(true)
    }

    /// Receives pending bytes. Returns whether there were any.
    fn read(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 4096];
        loop {
            return match recv(&self.fd, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Err(reason(Errno::CONNRESET)),
                Ok((len, _)) => {
                    self.inbox.extend_from_slice(&buffer[..len]);
                    Ok(true)
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(false),
                Err(errno) => Err(reason(errno)),
            };
        }
    }

    /// Takes a reply, if a whole one is there.
    fn take_reply(&mut self, answers: &mut Vec<Answer>) -> Result<bool, String> {
        let Some(received) = self.client.receive(&self.inbox).map_err(|error| error.to_string())? else {
            return Ok(false);
        };
        self.deadline = None;
        if std::mem::take(&mut self.asked)
            && let Some(request) = self.queue.pop_front()
        {
            answers.push(answer_of(&request, &received.reply)?);
        }
        self.inbox.drain(..received.consumed as usize);
        Ok(true)
    }

    /// Encodes the next message. Returns whether there was one.
    fn ask(&mut self, now: u64, answers: &mut Vec<Answer>) -> Result<bool, String> {
        if !self.inbox.is_empty() {
            return Err("it sent a message that was not requested".to_owned());
        }
        let mut buffer = [0; MESSAGE];
        if let Some(step) = self.client.handshake(&mut buffer).map_err(|error| error.to_string())? {
            self.unsent.extend_from_slice(step);
            self.deadline = Some(now + ANSWER_TIME);
            return Ok(true);
        }
        let Some(request) = self.queue.front() else { return Ok(false) };
        match request.encode(&mut self.client, &mut buffer)? {
            Ok(bytes) => {
                self.unsent.extend_from_slice(bytes);
                self.deadline = Some(now + request.patience());
                self.asked = true;
                return Ok(true);
            }
            Err(refusal) => answers.push(refusal),
        }
        self.queue.pop_front();
        Ok(true)
    }
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::PIPE | Errno::CONNRESET => "it has closed the connection".to_owned(),
        other => other.to_string(),
    }
}

fn bytes(text: &Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}
