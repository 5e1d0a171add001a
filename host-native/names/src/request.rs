//! One connection of a run to the name server: requests in a row, each answered before the next is sent.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hydrant_control::{JOBID_PREFIX, alias};
use hydrant_core::client::{Client, Error, Start};
use hydrant_core::limits::MESSAGE_BUFFER;
use hydrant_core::wire::{
    Command, EncodeError, Failure, Op, Persistence, Protocol, Reply, Text, decode_upcall, pmix,
};
use hydrant_core::{JobId, Rank, Refusal, UpcallId};
use hydrant_reactor::NO_SIGPIPE;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Time for an answer, in milliseconds. The wait of a look-up is added.
const ANSWER_TIME: u64 = 10_000;
/// Room for any message that the name server takes.
pub(crate) const MESSAGE: usize = MESSAGE_BUFFER;

/// Code of a request that no name service has answered: `PMI2_FAIL` of pmi2.h, `PMI_FAIL` of pmi.h.
const FAIL: i32 = -1;

/// Key of the gets that ask whether jobs are connected. The name server has no values.
const NO_KEY: &[u8] = b"-";

/// A rank's request about a name or about a job of another run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number for the core. A request without one gets no answer.
    pub upcall: Option<UpcallId>,
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
            Command::Lookup { name, wait, party } => {
                Some(Command::Lookup { name, wait: wait.or(Some(self.wait)), party })
            }
            other => Some(other),
        }
    }

    /// Returns the use of the connection that the request begins on.
    pub(crate) fn purpose(&self) -> Purpose {
        match self.command() {
            Some(Command::Lookup { .. }) => Purpose::Lookup,
            Some(Command::Publish { persistence: Persistence::Process, .. }) => {
                Purpose::Process(self.job, self.rank)
            }
            Some(Command::Publish { persistence: Persistence::Session, .. }) => Purpose::Session,
            _ => Purpose::Names(self.job),
        }
    }

    /// Returns the names of a look-up of several.
    fn names(&self) -> Vec<Vec<u8>> {
        match self.command() {
            Some(Command::Lookup { name, party: Some(_), .. }) => {
                let names = pmix::names_of(name.parts().flatten());
                names.map(|name| name.copied().collect()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Encodes the request for a client after its handshake, or its next step. The inner error is the answer to a request that
    /// cannot be encoded.
    ///
    /// # Errors
    /// The reason why the client sends no further request.
    pub(crate) fn encode<'b>(
        &self,
        steps: &mut Steps,
        purpose: Purpose,
        client: &mut Client,
        now: u64,
        buffer: &'b mut [u8],
    ) -> Result<Result<&'b [u8], Option<Answer>>, String> {
        let command = self.command().ok_or("a request is not about a name or a job")?;
        let command = steps.next(self, command, now);
        // The name server knows jobs by their aliases.
        let alias = self.other_job().map(|jobid| alias(&jobid)).unwrap_or_default();
        let other_job = Text::plain(alias.as_bytes());
        let command = match command {
            // The other run knows its job by the socket.
            Command::Get { key, .. } if purpose == Purpose::Value => {
                Command::Get { kvs: None, key, source: None }
            }
            Command::Get { kvs, .. } => {
                let kvs = kvs.map(|_| other_job);
                Command::Get { kvs, key: Text::plain(NO_KEY), source: None }
            }
            // The end of the connection is that of the process or the run.
            Command::Publish { name, port, persistence: Persistence::Process | Persistence::Session } => {
                Command::Publish { name, port, persistence: Persistence::Job }
            }
            Command::Connect { .. } => Command::Connect { jobid: other_job },
            Command::Disconnect { .. } => Command::Disconnect { jobid: other_job },
            other => other,
        };
        if let Some(refusal) = self.refusal() {
            return Ok(Err(self.refused_for(refusal)));
        }
        let refusal = match client.request(&command, buffer) {
            Ok(bytes) => return Ok(Ok(bytes)),
            Err(Error::Encode(EncodeError::DoesNotFit)) => Refusal::NameLength,
            Err(Error::Encode(_)) => Refusal::Unprintable,
            Err(error) => return Err(error.to_string()),
        };
        Ok(Err(self.refused_for(refusal)))
    }

    /// Returns the job id of the other job that the request is about.
    pub(crate) fn other_job(&self) -> Option<String> {
        match self.command()? {
            Command::Connect { jobid } | Command::Disconnect { jobid } => Some(jobid),
            Command::Get { kvs, .. } => kvs,
            _ => None,
        }
        .map(|jobid| String::from_utf8_lossy(&bytes(&jobid)).into_owned())
    }

    /// Returns the refusal of a request about a job that cannot be a run's. The connections of the name server that belong
    /// to no job have other names.
    fn refusal(&self) -> Option<Refusal> {
        self.other_job().filter(|jobid| !jobid.starts_with(JOBID_PREFIX))?;
        Some(match self.command() {
            Some(Command::Get { .. }) => Refusal::NoKvs,
            _ => Refusal::NoJob,
        })
    }

    /// Returns the time for an answer in milliseconds.
    fn patience(&self) -> u64 {
        match self.command() {
            Some(Command::Lookup { wait, .. }) => ANSWER_TIME + u64::from(wait.unwrap_or(0)),
            _ => ANSWER_TIME,
        }
    }

    /// Returns the answer to a request that no name service has answered.
    pub(crate) fn failed(&self, why: &str) -> Option<Answer> {
        self.refused(FAIL, why.as_bytes().to_vec())
    }

    fn refused_for(&self, refusal: Refusal) -> Option<Answer> {
        self.refused(refusal.rc(), refusal.to_string().into_bytes())
    }

    pub(crate) fn refused(&self, rc: i32, text: Vec<u8>) -> Option<Answer> {
        self.upcall.map(|upcall| Answer { upcall, rc, text })
    }
}

/// How far a request is. A look-up of several names asks for one after the other, so that each reply has one port.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    names: Vec<Vec<u8>>,
    /// Names that have been asked for.
    asked: usize,
    /// Deadline of the look-up.
    until: u64,
    /// Ports that were found.
    found: Vec<u8>,
}

impl Steps {
    /// Returns the command of the next step.
    fn next<'a>(&'a mut self, request: &Request, command: Command<'a>, now: u64) -> Command<'a> {
        let Command::Lookup { name, wait, party } = command else { return command };
        if self.asked == 0 {
            self.names = request.names();
            self.until = now + u64::from(wait.unwrap_or(0));
        }
        self.asked += 1;
        let wait = Some(u32::try_from(self.until.saturating_sub(now)).unwrap_or(u32::MAX));
        let name = self.names.get(self.asked - 1).map_or(name, |name| Text::plain(name));
        Command::Lookup { name, wait, party }
    }

    /// Takes the answer to a step. Returns that to the request after the last one. A name that is not found is left out, unless
    /// there is none.
    pub(crate) fn take(&mut self, answer: Option<Answer>) -> Option<Option<Answer>> {
        let mut answer = match answer {
            Some(answer) if self.names.len() > 1 && answer.rc >= 0 => answer,
            only => return Some(only),
        };
        if answer.rc == 0 {
            if !self.found.is_empty() {
                self.found.push(pmix::DATA_SEPARATOR);
            }
            self.found.append(&mut answer.text);
        }
        if self.asked < self.names.len() {
            return None;
        }
        if !self.found.is_empty() {
            (answer.rc, answer.text) = (0, std::mem::take(&mut self.found));
        }
        Some(Some(answer))
    }
}

/// Use of a connection. Each job has a connection to the name server, so that its names and its connections to jobs of other
/// runs end with it. So have the run, and processes whose names end with them. Each look-up has a connection, so that a look-up
/// that waits delays no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All requests of this job except look-ups.
    Names(JobId),
    /// Names that end with this process.
    Process(JobId, Rank),
    /// Names that end with the run.
    Session,
    /// A single look-up.
    Lookup,
    /// A single get, at the run of the other job.
    Value,
}

impl Purpose {
    /// Returns whether the connection is closed after its request.
    pub(crate) fn is_single(self) -> bool {
        matches!(self, Purpose::Lookup | Purpose::Value)
    }

    /// Returns whether the connection is closed at the end of a job.
    pub(crate) fn is_of(self, job: JobId) -> bool {
        matches!(self, Purpose::Names(of) | Purpose::Process(of, _) if of == job)
    }
}

/// Result of a reply to a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The request is answered, unless its sender waits for no answer.
    Over(Option<Answer>),
    /// The jobs are connected, and the other run has the value.
    Connected,
}

/// Converts the reply to a request to its answer.
///
/// # Errors
/// The reply is none to such a request.
pub(crate) fn outcome_of(request: &Request, purpose: Purpose, reply: &Reply<'_>) -> Result<Outcome, String> {
    let (rc, text) = match reply {
        Reply::Done(_) => (0, Vec::new()),
        Reply::Port(port) => (0, bytes(port)),
        Reply::Found(Op::Get, value) if purpose == Purpose::Value => (0, bytes(value)),
        // A failed get without a reason means that there is no such key.
        Reply::Missing(Op::Get) if purpose == Purpose::Value => (Refusal::EmptyKey.rc(), Vec::new()),
        Reply::Missing(Op::Get) => return Ok(Outcome::Connected),
        Reply::Refused(_, Failure::Remote(rc, text)) => (*rc, bytes(text)),
        other => return Err(format!("it answered {:?}", other.op())),
    };
    Ok(Outcome::Over(request.refused(rc, text)))
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    purpose: Purpose,
    client: Client,
    /// Received bytes of an incomplete reply.
    inbox: Vec<u8>,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// The first of them is under way when `asked`.
    queue: VecDeque<Request>,
    asked: bool,
    /// Progress of the first of them.
    steps: Steps,
    /// Deadline of the current request.
    deadline: Option<u64>,
    /// Gets whose values the runs of the other jobs have.
    gets: Vec<Request>,
}

impl Connection {
    pub(crate) fn new(fd: OwnedFd, purpose: Purpose) -> Connection {
        Connection {
            fd,
            purpose,
            // The id is arbitrary: each connection is rank 0 of its own job.
            client: Client::new(Protocol::V2, Start::Port { id: 0 }),
            inbox: Vec::new(),
            unsent: Vec::new(),
            queue: VecDeque::new(),
            asked: false,
            steps: Steps::default(),
            deadline: None,
            gets: Vec::new(),
        }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns a get whose value the run of the other job has.
    pub(crate) fn take_get(&mut self) -> Option<Request> {
        self.gets.pop()
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn push(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    /// Returns the requests without an answer, the current one included.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter()
    }

    /// Returns whether bytes wait for the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Sends, receives and handles as much as possible without blocking. Appends new answers to `answers`.
    ///
    /// # Errors
    /// The reason why the connection is unusable.
    pub(crate) fn pump(&mut self, now: u64, answers: &mut Vec<Answer>) -> Result<(), String> {
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
            && let Some(request) = self.queue.front()
        {
            // A request whose reply is unusable fails with the connection.
            let outcome = outcome_of(request, self.purpose, &received.reply)?;
            let answer = match outcome {
                Outcome::Over(answer) => self.steps.take(answer),
                Outcome::Connected => {
                    self.gets.extend(self.queue.front().cloned());
                    Some(None)
                }
            };
            if let Some(answer) = answer {
                answers.extend(answer);
                self.queue.pop_front();
                self.steps = Steps::default();
            }
        }
        self.inbox.drain(..received.consumed as usize);
        Ok(true)
    }

    /// Encodes the next message. Returns whether there was one.
    fn ask(&mut self, now: u64, answers: &mut Vec<Answer>) -> Result<bool, String> {
        if !self.inbox.is_empty() {
            return Err("it sent a message that was not requested".to_owned());
        }
        let mut buffer = vec![0; MESSAGE];
        if let Some(step) = self.client.handshake(&mut buffer).map_err(|error| error.to_string())? {
            self.unsent.extend_from_slice(step);
            self.deadline = Some(now + ANSWER_TIME);
            return Ok(true);
        }
        let Some(request) = self.queue.front() else { return Ok(false) };
        match request.encode(&mut self.steps, self.purpose, &mut self.client, now, &mut buffer)? {
            Ok(bytes) => {
                self.unsent.extend_from_slice(bytes);
                self.deadline = Some(now + request.patience());
                self.asked = true;
                return Ok(true);
            }
            Err(refusal) => answers.extend(refusal),
        }
        self.queue.pop_front();
        self.steps = Steps::default();
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
