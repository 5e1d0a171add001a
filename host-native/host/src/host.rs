//! Host: a server with its clock, its timer and its connections, which are sockets of the library or external.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::trace::Exit;
use hydrant_core::{Backend, ConnId, Fault, Input, JobId, Limit, Limits, OwnedOutput, Rank};
use hydrant_driver::{Driver, Event, Speaks, TcpPort, is_out_of_files};
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Listener, Poller, random_u32};

use crate::backend::{self, PluginFile};
use crate::environment::Environment;
use crate::error::Error;
use crate::job::Job;
use crate::timer::{Due, Timer};
use crate::types::HostOutput;

const CLIENTS: KeyRange = KeyRange(0);
const PORTS: KeyRange = KeyRange(1);
const TIMER: Key = KeyRange(2).key(0, 0);

/// Server and what belongs to it.
pub(crate) struct Host {
    driver: Driver<dyn Backend>,
    clock: Clock,
    /// Watches the timer, sockets and ports. Its descriptor is the one that the host waits for.
    poller: Poller,
    timer: Timer,
    jobs: BTreeMap<JobId, Job>,
    /// There have been sockets or ports.
    has_sockets: bool,
    /// The last call may have left outputs.
    has_work: bool,
    /// Deadlines and sockets have been looked at since [`next`](Host::next) returned nothing, and these were ready.
    turn: Option<Vec<Key>>,
    /// Requests of ranks that have waited for the ends of their processes.
    due: VecDeque<Event>,
    /// Holds the bytes of the last output.
    event: Option<Event>,
    /// That of the last rank.
    environment: Option<Environment>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a server without jobs.
    pub(crate) fn new(limits: Limits, plugin: Option<PluginFile<'_>>) -> Result<Host, Error> {
        let backend = backend::new(limits, random_u32()?, plugin)?;
        let (poller, timer) = (Poller::new()?, Timer::new()?);
        poller.add(&timer, TIMER, Interest::Read)?;
        Ok(Host {
            driver: Driver::new(backend, CLIENTS),
            clock: Clock::start(),
            poller,
            timer,
            jobs: BTreeMap::new(),
            has_sockets: false,
            has_work: false,
            turn: None,
            due: VecDeque::new(),
            event: None,
            environment: None,
        })
    }

    /// Descriptor that is readable while [`next`](Host::next) has work.
    pub(crate) fn fd(&self) -> RawFd {
        self.poller.as_fd().as_raw_fd()
    }

    /// Applies an input other than bytes and timeouts.
    pub(crate) fn input(&mut self, input: Input<'_>) -> Result<(), Error> {
        self.check(&input)?;
        let now = self.clock.now();
        match input {
            Input::Exited { job, rank, exit } => self.exited(job, rank, exit)?,
            Input::DeregisterJob { job } => {
                self.driver.deregister_job(job, now)?;
                self.jobs.remove(&job);
            }
            _ => self.driver.handle_external(now, input)?,
        }
        if let Input::RegisterJob(spec) = &input {
            self.jobs.insert(spec.job, Job::new(spec));
        }
        self.work()
    }

    /// Refuses an input that a plugin's buffer cannot hold, or of a connection that is not the host's.
    fn check(&self, input: &Input<'_>) -> Result<(), Error> {
        let len = match *input {
            Input::Attr { key, value, .. } | Input::Preput { key, value, .. } => {
                key.len().saturating_add(value.len())
            }
            Input::Define { members: bytes, .. }
            | Input::Peer { bytes, .. }
            | Input::SpawnComplete { codes: bytes, .. }
            | Input::UpcallComplete { text: bytes, .. }
            | Input::PsetRequest { request: bytes, .. } => bytes.len(),
            Input::Blocked { conn } => return self.check_conn(conn, "hydrant_host_blocked"),
            Input::Writable { conn } => return self.check_conn(conn, "hydrant_host_writable"),
            Input::Verified { conn } => return self.check_conn(conn, "hydrant_host_verified"),
            Input::Closed { conn } => return self.check_conn(conn, "hydrant_host_closed"),
            _ => 0,
        };
        let max = self.driver.backend().limits().output_room().max(MESSAGE_MAX as usize);
        if len > max { Err(Error::TooLong { what: "the input", max }) } else { Ok(()) }
    }

    /// Refuses a call for a connection that is a socket of the library.
    fn check_conn(&self, conn: ConnId, call: &'static str) -> Result<(), Error> {
        if self.driver.is_socket(conn) { Err(Error::Socket(conn.0, call)) } else { Ok(()) }
    }

    /// Reports the end of a rank's process.
    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Error> {
        if let Some(known) = self.jobs.get(&job) {
            known.check_exit(rank)?;
        }
        // The rank may be a PMIx client that has not been accepted.
        self.accept(job)?;
        self.driver.exited(job, rank, exit, self.clock.now())?;
        if let Some(known) = self.jobs.get_mut(&job) {
            self.due.extend(known.exit(rank));
        }
        Ok(())
    }

    /// Returns how many bytes of a connection the next call of [`bytes`](Host::bytes) takes.
    pub(crate) fn room(&self, conn: u32) -> usize {
        self.driver.room(ConnId(conn)).unwrap_or(0)
    }

    /// Passes bytes of a client to the server.
    pub(crate) fn bytes(&mut self, conn: u32, bytes: &[u8]) -> Result<(), Error> {
        self.check_conn(ConnId(conn), "hydrant_host_bytes")?;
        let room = self.driver.room(ConnId(conn)).ok_or(Fault::NoSuchConn)?;
        if bytes.len() > room {
            return Err(Error::Room { conn, given: bytes.len(), room });
        }
        let passed = self.driver.receive(ConnId(conn), bytes, self.clock.now());
        self.work()?;
        Ok(passed?)
    }

    /// Makes the connection of a rank. Returns the rank's end, and its environment, which is valid until the next call of
    /// this function.
    pub(crate) fn setup_fork(
        &mut self,
        job: JobId,
        rank: Rank,
        inherited: &[&CStr],
    ) -> Result<(OwnedFd, *mut *mut c_char), Error> {
        let known = self.jobs.get(&job).ok_or(Fault::NoSuchJob)?;
        let pair = UnixStream::pair();
        let (ours, theirs) = pair.map_err(|why| hydrant_reactor::Error { what: "socketpair", why })?;
        let mut environment = Environment::new(inherited, &known.variables(rank, theirs.as_raw_fd()));
        let now = self.clock.now();
        self.driver.make_room(now)?;
        if self.driver.open(ours.into(), job, rank, now, &self.poller)?.is_none() {
            return Err(Fault::Full(Limit::Conns, self.driver.backend().limits().conns).into());
        }
        if let Some(known) = self.jobs.get_mut(&job) {
            known.set_up(rank);
        }
        let pointers = environment.as_ptr();
        self.environment = Some(environment);
        self.has_sockets = true;
        self.work()?;
        Ok((theirs.into(), pointers))
    }

    /// Listens at a port of the loopback interface for PMIx clients of a job. Port 0 is any free one.
    pub(crate) fn listen(&mut self, job: JobId, number: u16) -> Result<(), Error> {
        let known = self.jobs.get_mut(&job).ok_or(Fault::NoSuchJob)?;
        if known.port.is_some() {
            return Err(Error::HasPort(job.0));
        }
        let port = TcpPort::open((Ipv4Addr::LOCALHOST, number).into())?.for_clients_of(Speaks::Pmix);
        known.port = Some(Listener::new(port, PORTS.key(0, job.0), &self.poller)?);
        self.has_sockets = true;
        Ok(())
    }

    /// Accepts clients of a job.
    fn accept(&mut self, job: JobId) -> Result<(), Error> {
        let now = self.clock.now();
        let Some(port) = self.jobs.get_mut(&job).and_then(|known| known.port.as_mut()) else { return Ok(()) };
        let mut accepted = Vec::new();
        let result = port.socket().accept(&mut accepted);
        for client in accepted {
            self.driver.make_room(now)?;
            // At the limit the client is closed.
            self.driver.open_client(client, job, now, &self.poller)?;
        }
        // The port stays readable, so the next turn accepts in place of a client that is closed here.
        if let Err(error) = result
            && !(is_out_of_files(&error) && self.driver.displace(now)?)
        {
            port.pause(&self.poller, now);
        }
        Ok(())
    }

    /// Returns the next output, whose bytes are valid until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<HostOutput>, Error> {
        let next = self.advance();
        self.has_work = !matches!(next, Ok(None));
        self.set_timer()?;
        next
    }

    /// Looks for an output: first those of calls, then those of one turn over deadlines and sockets.
    fn advance(&mut self) -> Result<Option<HostOutput>, Error> {
        loop {
            let polled = match self.due.pop_front() {
                Some(event) => Some(event),
                None => self.driver.poll(self.clock.now(), &self.poller)?,
            };
            match polled {
                Some(event) => {
                    if let Some(output) = self.output(event) {
                        return Ok(Some(output));
                    }
                }
                None => {
                    let Some(ready) = &mut self.turn else {
                        self.begin_turn()?;
                        continue;
                    };
                    let Some(key) = ready.pop() else {
                        self.turn = None;
                        return Ok(None);
                    };
                    match PORTS.decode(key) {
                        Some((_, job)) => self.accept(JobId(job))?,
                        None => self.driver.ready(key, self.clock.now(), &self.poller)?,
                    }
                }
            }
        }
    }

    /// Returns the output of an event, if the host has something to do now.
    fn output(&mut self, event: Event) -> Option<HostOutput> {
        let event = match event {
            Event::Output(OwnedOutput::RemoveFiles { job, rank, .. }) => match self.jobs.get_mut(&job) {
                Some(known) => known.keep_removal(rank, event)?,
                None => event,
            },
            _ => event,
        };
        HostOutput::of_event(self.event.insert(event))
    }

    /// Handles deadlines that have passed, and looks which sockets are ready.
    fn begin_turn(&mut self) -> Result<(), Error> {
        let now = self.clock.now();
        self.driver.handle_timeout(now)?;
        let mut ready = Vec::new();
        if self.has_sockets {
            let mut ports = self.jobs.values_mut().filter_map(|job| job.port.as_mut());
            ports.try_for_each(|port| port.resume(&self.poller, now))?;
            self.poller.wait(Some(Duration::ZERO), &mut ready)?;
        }
        self.turn = Some(ready);
        Ok(())
    }

    /// Notes that the server may have outputs.
    fn work(&mut self) -> Result<(), Error> {
        self.has_work = true;
        self.set_timer()
    }

    /// Sets the timer to when [`next`](Host::next) has work without a ready socket.
    fn set_timer(&mut self) -> Result<(), Error> {
        let ports = self.jobs.values().filter_map(|job| job.port.as_ref()?.deadline());
        let due = match ports.chain(self.driver.poll_at()).min() {
            _ if self.has_work => Due::Now,
            None => Due::Never,
            Some(at) => Due::At(at),
        };
        self.timer.set(due, self.clock.now())
    }
}
