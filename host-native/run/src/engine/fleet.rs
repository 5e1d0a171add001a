//! Clients of a fleet: connections over which jobs are submitted, and what they get of them.
//!
//! Output of a client's ranks goes to sinks of its own, which forward it. A client that does not read fills its sinks, and its
//! ranks wait, as with a launcher whose output is not read. Nobody else waits for it.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hydrant_control::protocol::{JobRecord, SubmissionId};
use hydrant_control::{Event, JobSummary, SpawnProgram, Stopped, Submission};
use hydrant_core::JobId;
use hydrant_iof::UNSENT_MAX;
use hydrant_placement::Host;
use hydrant_reactor::local::{Accepted, LocalListener};
use hydrant_reactor::{Interest, Key, Listener, NO_SIGPIPE, Poller, WriterState, announce, has_room};
use hydrant_status::message::{decode, encode, message_len};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::token::FLEET;
use super::{Engine, Head, open};
use crate::error::RunError;
use crate::fleet::protocol::{self, JobRequest, REQUEST_MAX, Reply, Request, STDIN_MAX, SUBMISSION_MAX};

/// Most connections at a time. Further clients wait to be accepted.
const CLIENTS_MAX: usize = 1024;
/// Descriptors for them.
pub(super) const FILES: u64 = CLIENTS_MAX as u64 + 1;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Milliseconds after which a client without a request is closed.
const IDLE_TIMEOUT: u64 = 10_000;
/// Time for what clients have not read yet when the fleet ends.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const READ_MAX: usize = 64 * 1024;

/// Kind of the listening socket's key.
const LISTENER: u16 = 0;
/// Kind of the clients' keys.
const CLIENT: u16 = 1;

/// A fleet's connections.
#[derive(Debug)]
pub(super) struct Fleet {
    name: String,
    listener: Listener<LocalListener>,
    /// A connection is number `n` here, and its submission has the same number.
    clients: Vec<Option<Client>>,
    open: usize,
    /// The listening socket is not watched, because there are as many clients as there may be.
    is_full: bool,
    /// Clients with pending bytes that have not been written yet.
    dirty: Vec<u32>,
}

#[derive(Debug)]
struct Client {
    /// Missing once it is lost, until its jobs are over.
    stream: Option<UnixStream>,
    /// Part of a request.
    input: Vec<u8>,
    /// Bytes to send, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    interest: Interest,
    stage: Stage,
    /// Number of the submitted job, once it is there.
    job: Option<JobId>,
    /// Bytes of standard input that are under way to ranks.
    input_pending: u32,
    wants_processes: bool,
    wants_summaries: bool,
    /// Output is being held back.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has been connected at this time, and has asked for nothing.
    New(u64),
    /// It has a submission.
    Submitted,
    /// It waits for the end of the fleet.
    Ending,
    /// It is closed when it has got everything.
    Over,
}

impl Fleet {
    /// The clients of a fleet. None for a run with a job.
    pub(super) fn open(engine: &mut Engine<'_>) -> Result<Option<Fleet>, RunError> {
        let Some(options) = &engine.plan.options.fleet else { return Ok(None) };
        let (name, socket) = (options.name.clone(), protocol::listen(&options.name, BACKLOG)?);
        let listener = Listener::new(socket, FLEET.key(LISTENER, 0), &engine.poller)?;
        let fleet = Fleet { name, listener, clients: Vec::new(), open: 0, is_full: false, dirty: Vec::new() };
        Ok(Some(fleet))
    }

    /// The next time at which a client is closed or the listening socket is watched again.
    pub(super) fn poll_at(&self) -> Option<u64> {
        let idle = |client: &Client| match client.stage {
            Stage::New(since) => Some(since + IDLE_TIMEOUT),
            _ => None,
        };
        self.clients.iter().flatten().filter_map(idle).chain(self.listener.deadline()).min()
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn client(&mut self, submission: SubmissionId) -> Option<&mut Client> {
        self.clients.get_mut(submission.0 as usize)?.as_mut()
    }

    /// Queues a message for a client.
    fn tell(&mut self, submission: SubmissionId, reply: &Reply) {
        if let Some(client) = self.client(submission).filter(|client| client.stream.is_some()) {
            client.out.extend(encode(reply));
            if !self.dirty.contains(&submission.0) {
                self.dirty.push(submission.0);
            }
        }
    }

    /// Accepts connections.
    fn accept(&mut self, poller: &Poller, now: u64) -> Result<(), RunError> {
        while self.open < CLIENTS_MAX {
            let stream = match self.listener.socket().accept() {
                Ok(Accepted::Own(stream)) => stream,
                Ok(Accepted::Foreign) => continue,
                Ok(Accepted::None) => return Ok(()),
                Err(_) => {
                    self.listener.pause(poller, now);
                    return Ok(());
                }
            };
            let at = self.clients.iter().position(Option::is_none).unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            if poller.add(&stream, FLEET.key(CLIENT, at as u32), Interest::Read).is_err() {
                continue;
            }
            self.clients[at] = Some(Client::new(stream, now));
            self.open += 1;
        }
        self.is_full = true;
        poller.remove(self.listener.socket());
        Ok(())
    }

    /// Drops a connection without jobs.
    fn drop_client(&mut self, at: u32, poller: &Poller) {
        if self.clients.get_mut(at as usize).is_some_and(|client| client.take().is_some()) {
            self.open -= 1;
            self.dirty.retain(|&dirty| dirty != at);
            if std::mem::take(&mut self.is_full) {
                // It was watched before.
                let _ = poller.add(self.listener.socket(), FLEET.key(LISTENER, 0), Interest::Read);
            }
        }
    }
}

impl Client {
    fn new(stream: UnixStream, now: u64) -> Client {
        Client {
            stream: Some(stream),
            input: Vec::new(),
            out: Vec::new(),
            sent: 0,
            interest: Interest::Read,
            stage: Stage::New(now),
            job: None,
            input_pending: 0,
            wants_processes: false,
            wants_summaries: false,
            is_full: false,
        }
    }

    fn pending(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// The client has closed the connection.
    fn flush(&mut self, key: Key, poller: &Poller) -> Result<(), Errno> {
        let Some(stream) = &self.stream else { return Ok(()) };
        while self.out.len() > self.sent {
            match send(stream, &self.out[self.sent..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if self.out.len() == self.sent {
            (self.out, self.sent) = (Vec::new(), 0);
        } else if self.sent > UNSENT_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        let interest = if self.pending() > 0 { Interest::ReadWrite } else { Interest::Read };
        if interest != self.interest && poller.modify(stream, key, interest).is_ok() {
            self.interest = interest;
        }
        Ok(())
    }

    /// Reads once. Returns false at the end of the connection.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let Some(stream) = &self.stream else { return false };
        match recv(stream, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => false,
            Ok((_, len)) => {
                self.input.extend_from_slice(&buffer[..len]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Takes the next request that is complete.
    ///
    /// # Errors
    /// The bytes are no request, or one that is too long.
    fn next_request(&mut self) -> Result<Option<Request>, ()> {
        let Some(len) = message_len(&self.input) else { return Ok(None) };
        let most = if matches!(self.stage, Stage::New(_)) { SUBMISSION_MAX } else { REQUEST_MAX };
        if len > most + 4 {
            return Err(());
        }
        if self.input.len() < len {
            return Ok(None);
        }
        let request = decode(&self.input[..len]).ok_or(())?;
        self.input.drain(..len);
        Ok(Some(request))
    }
}

impl Head {
    /// Handles the socket of the fleet, or one of its clients.
    pub(super) fn fleet_ready(&mut self, engine: &mut Engine<'_>, key: Key) -> Result<(), RunError> {
        let now = engine.now();
        let Some(fleet) = &mut self.fleet else { return Ok(()) };
        match FLEET.decode(key) {
            Some((LISTENER, _)) => fleet.accept(&engine.poller, now),
            Some((CLIENT, at)) => self.client_ready(engine, at),
            _ => Ok(()),
        }
    }

    fn client_ready(&mut self, engine: &mut Engine<'_>, at: u32) -> Result<(), RunError> {
        let Some(client) = self.client_at(at) else { return Ok(()) };
        let is_open = client.receive(&mut engine.buffer[..READ_MAX]);
        while let Some(client) = self.client_at(at) {
            match client.next_request() {
                Ok(Some(request)) => {
                    if !self.take_request(engine, at, request)? {
                        return self.client_lost(engine, at);
                    }
                }
                Ok(None) => break,
                Err(()) => return self.client_lost(engine, at),
            }
        }
        match is_open {
            true => self.flush_client(engine, at),
            false => self.client_lost(engine, at),
        }
    }

    fn client_at(&mut self, at: u32) -> Option<&mut Client> {
        self.fleet.as_mut()?.client(SubmissionId(at))
    }

    /// Carries out a request. Returns false for one that the client may not send now.
    fn take_request(&mut self, engine: &mut Engine<'_>, at: u32, request: Request) -> Result<bool, RunError> {
        let submission = SubmissionId(at);
        let Some(client) = self.client_at(at) else { return Ok(false) };
        let (stage, job) = (client.stage, client.job);
        match (stage, request) {
            (Stage::New(_), Request::Submit(job)) => {
                client.stage = Stage::Submitted;
                (client.wants_processes, client.wants_summaries) = (job.wants_processes, job.wants_summaries);
                let to = [engine.sinks.forwarding(), engine.sinks.forwarding()];
                engine.outlets.insert(submission, to);
                self.submit(engine, submission, *job)?;
            }
            (Stage::New(_), Request::End) => {
                client.stage = Stage::Ending;
                self.handle(engine, Event::FleetEnds)?;
            }
            (Stage::Submitted, Request::Stdin(bytes)) => {
                client.input_pending = client.input_pending.saturating_add(bytes.len() as u32);
                let Some(job) = job.filter(|_| client.input_pending <= STDIN_MAX) else { return Ok(false) };
                self.push_of_client(engine, (submission, job), &bytes);
            }
            (Stage::Submitted, Request::Signal(signal)) => {
                self.handle(engine, Event::SubmissionSignal { submission, signal })?;
            }
            (Stage::Submitted, Request::WindowResized(size)) => {
                self.handle(engine, Event::SubmissionResized { submission, size })?;
            }
            (Stage::Submitted, Request::TimeLimit(limit)) => {
                self.handle(engine, Event::SubmissionTimeLimit { submission, limit })?;
            }
            (Stage::Submitted, Request::OutputClosed { stderr }) => {
                if let Some(to) = engine.outlets.get(&submission) {
                    engine.sinks.cut(to[usize::from(stderr)]);
                }
            }
            // The job has just ended.
            (Stage::Over, _) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn submit(&mut self, engine: &mut Engine<'_>, id: SubmissionId, job: JobRequest) -> Result<(), RunError> {
        let JobRequest { programs, policy, mut settings, pseudo_terminals, .. } = job;
        let of_hosts = &engine.plan.settings.attributes;
        if !of_hosts.is_empty() {
            // Attributes of the user come behind those of the hosts.
            let own = std::rc::Rc::make_mut(&mut settings);
            own.attributes.splice(0..0, of_hosts.iter().cloned());
        }
        let program = |(program, hosts): (_, Vec<String>)| SpawnProgram {
            program,
            hosts: hosts.iter().map(|host| Host::new(host)).collect(),
            spread: None,
            stopped: Stopped::No,
        };
        let submission = Submission {
            id,
            programs: programs.into_iter().map(program).collect(),
            policy,
            settings,
            pseudo_terminals,
            exit_code_of: job.exit_code_of,
            exit_report: job.exit_report,
            waits: job.waits,
            nonce: open::nonce()?,
        };
        self.handle(engine, Event::Submitted(submission))
    }

    /// A connection is lost. Its jobs end.
    fn client_lost(&mut self, engine: &mut Engine<'_>, at: u32) -> Result<(), RunError> {
        let Some(client) = self.client_at(at) else { return Ok(()) };
        let stream = client.stream.take();
        if let Some(stream) = &stream {
            engine.poller.remove(stream);
        }
        match client.stage {
            Stage::Submitted if stream.is_some() => {
                let submission = SubmissionId(at);
                for sink in engine.outlets.get(&submission).copied().into_iter().flatten() {
                    engine.sinks.cut(sink);
                }
                self.handle(engine, Event::SubmissionLost { submission })
            }
            Stage::Submitted => Ok(()),
            _ => {
                self.fleet.iter_mut().for_each(|fleet| fleet.drop_client(at, &engine.poller));
                Ok(())
            }
        }
    }

    /// Writes to a client, and has its ranks wait or go on.
    fn flush_client(&mut self, engine: &mut Engine<'_>, at: u32) -> Result<(), RunError> {
        let Some(client) = self.client_at(at) else { return Ok(()) };
        if client.flush(FLEET.key(CLIENT, at), &engine.poller).is_err() {
            return self.client_lost(engine, at);
        }
        if client.stage == Stage::Over && client.pending() == 0 {
            return self.client_lost(engine, at);
        }
        let is_full = match client.is_full {
            true => client.pending() > UNSENT_MAX / 2,
            false => client.pending() >= UNSENT_MAX,
        };
        client.is_full = is_full;
        for sink in engine.outlets.get(&SubmissionId(at)).copied().into_iter().flatten() {
            engine.sinks.set_full(sink, is_full);
        }
        Ok(())
    }

    /// Queues the output of ranks for the clients.
    pub(super) fn forward_to_clients(&mut self, engine: &mut Engine<'_>) {
        let Some(fleet) = &mut self.fleet else { return };
        for forwarded in engine.sinks.take_forwarded() {
            let Some((job, rank)) = engine.jobs.of_slot(forwarded.stream / 2) else { continue };
            let Some(submission) = job.submission else { continue };
            let (job, stderr) = (job.ordinal, forwarded.stream % 2 == 1);
            fleet.tell(submission, &Reply::Output { job, rank, stderr, bytes: forwarded.bytes });
        }
    }

    /// Writes to clients.
    pub(super) fn write_to_clients(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        self.forward_to_clients(engine);
        while let Some(fleet) = &mut self.fleet
            && let Some(at) = fleet.dirty.pop()
        {
            self.flush_client(engine, at)?;
        }
        Ok(())
    }

    /// Whether the next turn has something to do: a client that was lost while the head wrote may end jobs.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.draining.is_empty() || self.fleet.as_ref().is_some_and(|fleet| !fleet.dirty.is_empty())
    }

    /// Queues a message for a client.
    pub(super) fn tell_client(&mut self, submission: SubmissionId, reply: &Reply) {
        if let Some(fleet) = &mut self.fleet {
            fleet.tell(submission, reply);
        }
    }

    /// Prints lines for the user of a submission, or of the run, behind the output so far.
    pub(super) fn tell_user(&mut self, engine: &mut Engine<'_>, of: Option<SubmissionId>, lines: String) {
        match of {
            Some(submission) => {
                self.forward_to_clients(engine);
                self.tell_client(submission, &Reply::Lines(lines));
            }
            None => engine.sinks.print(&lines),
        }
    }

    /// Tells a client of a job that is being opened for it.
    pub(super) fn describe_to_client(&mut self, record: &JobRecord) {
        let Some(submitted) = &record.submitted else { return };
        let Some(client) = self.client_at(submitted.id.0) else { return };
        if record.ordinal == 0 {
            client.job = Some(record.id);
        }
        let host = |node: u32| {
            let at = record.hosts.binary_search_by_key(&node, |(node, _)| *node);
            at.map_or(String::new(), |at| record.hosts[at].1.clone())
        };
        let reply = Reply::Job {
            ordinal: record.ordinal,
            programs: record.programs.iter().map(|program| program.ranks).collect(),
            hosts: record.blocks.iter().map(|block| (block.count, host(block.node))).collect(),
        };
        self.tell_client(submitted.id, &reply);
    }

    /// Tells a client of the process of a rank, if it wants to know.
    pub(super) fn tell_process(&mut self, job: JobId, rank: u32, pid: u32) {
        let Some(of) = self.control.jobs().get(job) else { return };
        let (submission, job) = (of.submission, of.ordinal);
        if let Some(submission) = submission
            && self.client_at(submission.0).is_some_and(|client| client.wants_processes)
        {
            self.tell_client(submission, &Reply::RankStarted { job, rank, pid });
        }
    }

    /// Tells a client how a job has ended, if it wants to know.
    pub(super) fn tell_end(&mut self, submission: SubmissionId, summary: Box<JobSummary>) {
        if self.client_at(submission.0).is_some_and(|client| client.wants_summaries) {
            self.tell_client(submission, &Reply::JobOver(summary));
        }
    }

    /// Ranks have taken bytes of standard input, or have closed theirs.
    pub(super) fn input_of_client_taken(&mut self, submission: SubmissionId, len: u32, is_taken: bool) {
        let Some(client) = self.client_at(submission.0) else { return };
        client.input_pending = client.input_pending.saturating_sub(len);
        let reply = if is_taken { Reply::StdinTaken(len) } else { Reply::StdinClosed };
        self.tell_client(submission, &reply);
    }

    /// A submission is over, with this last message for its client.
    pub(super) fn submission_over(
        &mut self,
        engine: &mut Engine<'_>,
        submission: SubmissionId,
        reply: &Reply,
    ) {
        self.forward_to_clients(engine);
        self.forget_help_texts(engine, submission);
        self.forget_pushes(submission);
        for sink in engine.outlets.remove(&submission).into_iter().flatten() {
            engine.sinks.remove(sink);
        }
        self.tell_client(submission, reply);
        let Some(client) = self.client_at(submission.0) else { return };
        client.stage = Stage::Over;
        if client.stream.is_none() {
            self.fleet.iter_mut().for_each(|fleet| fleet.drop_client(submission.0, &engine.poller));
        }
    }

    /// The fleet takes submissions: says so. Without a terminal of its own it writes nothing after that.
    pub(super) fn fleet_is_ready(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let (slots, hosts) = (self.control.slots().0, self.control.hosts().len());
        let Some((fleet, options)) = self.fleet.as_ref().zip(engine.plan.options.fleet.as_ref()) else {
            return Ok(());
        };
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (host, slot) = (plural(hosts), plural(slots as usize));
        let written =
            announce(format_args!("fleet {} is ready: {hosts} host{host}, {slots} slot{slot}", fleet.name));
        if !options.detached {
            return Ok(());
        }
        engine.sinks.let_go().map_err(RunError::system("cannot let go of the terminal"))?;
        match written {
            Ok(()) => Ok(()),
            // The command that waited has been ended.
            Err(_) => self.handle(engine, Event::FleetEnds),
        }
    }

    /// Handles timeouts of clients.
    pub(super) fn keep_fleet_time(&mut self, engine: &mut Engine<'_>, now: u64) -> Result<(), RunError> {
        let Some(fleet) = self.fleet.as_mut().filter(|fleet| fleet.poll_at().is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        fleet.listener.resume(&engine.poller, now)?;
        let is_idle = |client: &Client| matches!(client.stage, Stage::New(at) if at + IDLE_TIMEOUT <= now);
        let idle = (0..).zip(&fleet.clients).filter(|(_, client)| client.as_ref().is_some_and(is_idle));
        for at in idle.map(|(at, _)| at).collect::<Vec<_>>() {
            self.client_lost(engine, at)?;
        }
        Ok(())
    }

    /// Writes what clients have not got yet, for a second at most.
    pub(super) fn part_from_clients(&mut self, engine: &mut Engine<'_>) {
        self.forward_to_clients(engine);
        let Some(fleet) = &mut self.fleet else { return };
        let until = Instant::now() + LAST_WORDS;
        for (at, client) in (0..).zip(&mut fleet.clients) {
            let Some(client) = client else { continue };
            while client.flush(FLEET.key(CLIENT, at), &engine.poller).is_ok()
                && client.pending() > 0
                && let Some(stream) = &client.stream
                && has_room(stream.as_fd(), until.saturating_duration_since(Instant::now()))
            {}
        }
    }
}

impl Engine<'_> {
    /// Whether the reader of the output of a submission, or of the run, has closed it.
    pub(super) fn is_cut_off(&self, submission: Option<SubmissionId>) -> bool {
        match submission.and_then(|submission| self.outlets.get(&submission)) {
            Some(to) => to.iter().any(|&sink| self.sinks.get(sink).state() != WriterState::Open),
            None => self.sinks.is_cut_off(),
        }
    }
}
