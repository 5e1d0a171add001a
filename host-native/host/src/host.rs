//! Host: a server with its clock, its timer and its connections, which are sockets of the library or external.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::server::RankReport;
use hydrant_core::{
    Backend, ConnId, Exit, Fault, Input, JobId, JobSpec, Limit, Limits, OwnedOutput, Rank, UpcallId,
};
use hydrant_driver::{Driver, Speaks, is_foreign_variable, is_out_of_files};
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Listener, Poller, random_u32};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::error::Error;
use crate::event::Event;
use crate::job::Job;
use crate::port::Port;
use crate::served::Served;
use crate::settings::{self, Settings};
use crate::timer::{Due, Timer};

/// Time for a timeout that the system has no number for.
const LONG: Timespec = Timespec { tv_sec: 1 << 30, tv_nsec: 0 };
const CLIENTS: KeyRange = KeyRange(0);
const PORTS: KeyRange = KeyRange(1);
const PROCESSES: KeyRange = KeyRange(2);
const TIMER: Key = KeyRange(3).key(0, 0);

/// PMI server of a launcher, for the jobs that it registers.
///
/// [`next_event`](Host::next_event) returns what the launcher has to do. The descriptor of [`as_fd`](Host::as_fd) is readable
/// while there may be more: sockets to read or write, clients to accept, a deadline that has passed, or what an earlier call has
/// left. A launcher waits for it, level-triggered, in its own event loop, and never reads from it.
///
/// No method waits. One that fails has changed nothing, unless the error is [`Error::Plugin`]: the host is of no further use then.
pub struct Host {
    driver: Driver<dyn Backend + Send>,
    clock: Clock,
    /// Watches the timer, sockets and ports. Its descriptor is the one that the launcher waits for.
    poller: Poller,
    timer: Timer,
    jobs: BTreeMap<JobId, Served>,
    /// Processes of ranks that the library watches, by the numbers of their keys.
    processes: BTreeMap<u32, Watched>,
    /// Number of the next one.
    next_process: u32,
    /// Number of this node, if there are several.
    node: Option<u32>,
    /// There have been sockets or ports.
    has_sockets: bool,
    /// The last call may have left outputs.
    has_work: bool,
    /// Deadlines and sockets have been looked at since [`next_event`](Host::next_event) returned nothing, and these were ready.
    turn: Option<Vec<Key>>,
    /// Requests of ranks that have waited for the ends of their processes.
    due: VecDeque<Event>,
    /// Ends of watched processes. They follow what the server has to say, because a rank may have aborted before.
    ends: VecDeque<Event>,
}

/// A process of a rank.
#[derive(Debug)]
struct Watched {
    job: JobId,
    rank: Rank,
    process: OwnedFd,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl AsRawFd for Host {
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_fd().as_raw_fd()
    }
}

impl Host {
    /// Creates a server without jobs. A plugin is compiled, which takes less than a second unless its cache has the code.
    ///
    /// # Errors
    /// [`Error::Fault`]: the limits are invalid. [`Error::Memory`]: they require more memory than there is. `Error::NoSandbox`,
    /// [`Error::Plugin`]: the plugin cannot be loaded. [`Error::System`]
    pub fn open(settings: &Settings) -> Result<Host, Error> {
        let server = settings::server(settings.limits, random_u32()?, settings.plugin.as_ref())?;
        let (poller, timer) = (Poller::new()?, Timer::new()?);
        poller.add(&timer, TIMER, Interest::Read)?;
        let mut host = Host {
            driver: Driver::new(server, CLIENTS),
            clock: Clock::start(),
            poller,
            timer,
            jobs: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_process: 0,
            node: None,
            has_sockets: false,
            has_work: false,
            turn: None,
            due: VecDeque::new(),
            ends: VecDeque::new(),
        };
        if let Some(node) = settings.node {
            host.input(Input::Node { node: node.number, nodes: node.count, radix: node.radix })?;
        }
        Ok(host)
    }

    /// Registers a job under the lowest free number. On several nodes every launcher registers the same jobs in the same order,
    /// and a launcher that deregisters jobs chooses the numbers by [`register_job_as`](Host::register_job_as).
    ///
    /// # Errors
    /// As [`register_job_as`](Host::register_job_as).
    pub fn register_job(&mut self, job: &Job) -> Result<JobId, Error> {
        let number = (0..).map(JobId).find(|number| !self.jobs.contains_key(number));
        let number = number.expect("the limit of jobs is below the number of numbers");
        self.register_job_as(number, job)?;
        Ok(number)
    }

    /// Registers a job under a number that is not in use.
    ///
    /// # Errors
    /// [`Error::Fault`]: the name is invalid or in use, the job is too large for the limits, or an attribute or a process set is
    /// refused. [`Error::Nodes`]: the nodes have more or fewer ranks than the job. [`Error::HostName`]: a host has no name for
    /// clients. [`Error::Mapping`]: the nodes make a `PMI_process_mapping` that is too long. [`Error::TooLong`]: so is an
    /// attribute.
    pub fn register_job_as(&mut self, number: JobId, job: &Job) -> Result<(), Error> {
        let spec = job.spec.map(String::as_str);
        self.input(Input::RegisterJob(JobSpec { job: number, ..spec }))?;
        let is_cluster = self.node.is_some();
        let described = job.describe(number, is_cluster, |input| self.input(input));
        if let Err(error) = described {
            self.input(Input::DeregisterJob { job: number })?;
            return Err(error);
        }
        if let Some(served) = self.jobs.get_mut(&number) {
            served.host = job.host(self.node.unwrap_or(0)).map(str::to_owned);
        }
        self.work()
    }

    /// Applies an input of the server other than bytes and timeouts. Most have a method of their own; the others are for process
    /// sets, connected jobs, and launchers with transports of their own ([`Input`] describes each).
    ///
    /// # Errors
    /// [`Error::Fault`]: the server refuses it. [`Error::Socket`]: it is about a connection of the library. [`Error::TooLong`].
    pub fn input(&mut self, input: Input<'_>) -> Result<(), Error> {
        self.check(&input)?;
        let now = self.clock.now();
        match input {
            Input::Exited { job, rank, exit } => return self.exited(job, rank, exit),
            Input::DeregisterJob { job } => {
                self.driver.deregister_job(job, now)?;
                self.jobs.remove(&job);
            }
            _ => self.driver.handle_external(now, input)?,
        }
        match input {
            Input::RegisterJob(spec) => drop(self.jobs.insert(spec.job, Served::new(&spec))),
            Input::Node { node, .. } => self.node = Some(node),
            _ => {}
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
            Input::Blocked { conn } => return self.check_conn(conn, "blocked"),
            Input::Writable { conn } => return self.check_conn(conn, "writable"),
            Input::Verified { conn } => return self.check_conn(conn, "verified"),
            Input::Closed { conn } => return self.check_conn(conn, "closed"),
            _ => 0,
        };
        let max = self.driver.backend().limits().output_room().max(MESSAGE_MAX as usize);
        if len > max { Err(Error::TooLong { what: "the input", max }) } else { Ok(()) }
    }

    /// Refuses a call for a connection that is a socket of the library.
    fn check_conn(&self, conn: ConnId, call: &'static str) -> Result<(), Error> {
        if self.driver.is_socket(conn) { Err(Error::Socket(conn.0, call)) } else { Ok(()) }
    }

    /// Reports the end of a rank's process. The library reads the last requests of the rank first. [`exit_of`](crate::exit_of) has
    /// the `exit` of a status. Its [exit code](Exit::exit_code) counts unless the events that follow have another one for the job.
    /// A launcher that starts no processes learns of an end by [`Event::Closed`] of the rank's connection,
    /// and reports [`Exit::of_connection`] with what [`rank_report`](Host::rank_report) says.
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job or rank, or its process has ended before.
    pub fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Error> {
        if let Some(known) = self.jobs.get(&job) {
            known.check_exit(rank)?;
        }
        // The rank may be a PMIx client that has not been accepted.
        self.accept(job)?;
        self.driver.exited(job, rank, exit, self.clock.now())?;
        if let Some(known) = self.jobs.get_mut(&job) {
            self.due.extend(known.exit(rank));
        }
        self.work()
    }

    /// Watches a process of this one's children, `child.id()` of [`Child`](std::process::Child): its end is reported to the server,
    /// and is then an [`Event::Exited`]. The launcher waits for the child after that event, and not before. A launcher that waits
    /// for its children in another way, as tokio does, reports their ends by [`exited`](Host::exited).
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job or rank. [`Error::System`]: there is no such process, or no descriptor is left.
    pub fn watch(&mut self, job: JobId, rank: Rank, pid: u32) -> Result<(), Error> {
        self.served(job)?.check_exit(rank)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        let opened = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let process = opened.map_err(hydrant_reactor::Error::during("pidfd_open"))?;
        let number = self.next_process;
        self.poller.add(&process, PROCESSES.key(0, number), Interest::Read)?;
        self.next_process = number.wrapping_add(1);
        self.processes.insert(number, Watched { job, rank, process });
        self.has_sockets = true;
        self.work()
    }

    /// Reports the end of a watched process.
    fn ended(&mut self, number: u32) -> Result<(), Error> {
        let Some(Watched { job, rank, process }) = self.processes.remove(&number) else { return Ok(()) };
        self.poller.remove(&process);
        // The launcher waits for its child later.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(process.as_fd()), options).ok().flatten();
        let number = |of: i32| u8::try_from(of).unwrap_or(u8::MAX);
        let code = status.as_ref().and_then(|status| status.exit_status());
        let signal = status.as_ref().and_then(|status| status.terminating_signal());
        let exit = match (code, signal) {
            (Some(code), _) => Exit::Code(number(code)),
            (None, Some(signal)) => Exit::Signal(number(signal)),
            (None, None) => Exit::Lost,
        };
        // A launcher that has deregistered the job, or reported the end, is told all the same.
        match self.exited(job, rank, exit) {
            Ok(()) | Err(Error::Fault(_)) => {}
            Err(error) => return Err(error),
        }
        self.ends.push_back(Event::Exited { job, rank, exit });
        Ok(())
    }

    /// Deregisters a job whose processes have ended, and closes its connections.
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job.
    pub fn deregister_job(&mut self, job: JobId) -> Result<(), Error> {
        self.input(Input::DeregisterJob { job })
    }

    /// Passes a message of a neighbour to the server: the bytes of its [`Output::Peer`](OwnedOutput::Peer), whole and in the order
    /// in which they were sent.
    ///
    /// # Errors
    /// [`Error::Fault`]: the message is invalid. The neighbour, or what carries its messages, is at fault, and the jobs cannot go
    /// on.
    pub fn peer(&mut self, node: u32, bytes: &[u8]) -> Result<(), Error> {
        self.input(Input::Peer { node, bytes })
    }

    /// Completes a [`Spawn`](OwnedOutput::Spawn): the job that was registered for it runs. `codes` has 0 for each program of the
    /// request. Without a job nothing was started, and `codes` are the `errno`s of the programs.
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such spawn.
    pub fn spawn_complete(&mut self, spawn: UpcallId, started: bool, codes: &[u8]) -> Result<(), Error> {
        self.input(Input::SpawnComplete { spawn, started, full: None, codes })
    }

    /// Returns the state of a rank: whether it has initialized, waits in a fence, or has finalized. None for an unknown rank, and
    /// with a plugin.
    pub fn rank_report(&mut self, job: JobId, rank: Rank) -> Option<RankReport> {
        self.driver.backend_mut().inspect()?.rank_report(job, rank)
    }

    /// The limits of the server.
    pub fn limits(&self) -> &Limits {
        self.driver.backend().limits()
    }

    /// Returns how many bytes of an external connection ([`Input::Opened`]) the next call of [`bytes`](Host::bytes) takes. A
    /// launcher that carries bytes itself reads no more. 0 for a client that does not read its replies.
    pub fn room(&self, conn: ConnId) -> usize {
        self.driver.room(conn).unwrap_or(0)
    }

    /// Passes bytes of an external connection to the server. The replies are [`Output::Bytes`](OwnedOutput::Bytes).
    ///
    /// # Errors
    /// [`Error::Room`]: there are more than [`room`](Host::room). [`Error::Socket`], [`Error::Fault`]
    pub fn bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Error> {
        self.check_conn(conn, "bytes")?;
        let room = self.driver.room(conn).ok_or(Fault::NoSuchConn)?;
        if bytes.len() > room {
            return Err(Error::Room { conn: conn.0, given: bytes.len(), room });
        }
        let passed = self.driver.receive(conn, bytes, self.clock.now());
        self.work()?;
        Ok(passed?)
    }

    /// Gives a command the connection and the variables of a rank, as `PMIx_server_setup_fork` does. Its process inherits the
    /// environment of this one or of the command, without the variables by which other launchers describe their ranks. Afterwards
    /// the launcher spawns the process, drops the command, whose end of the connection is open otherwise, and reports its end by
    /// [`exited`](Host::exited).
    ///
    /// The variables of PMIx are among them after [`listen`](Host::listen). A process whose launcher is killed is not ended: a
    /// launcher that wants that sets `PR_SET_PDEATHSIG`, or has a group or container of its own for the ranks.
    ///
    /// # Errors
    /// As [`pass_socket`](Host::pass_socket).
    pub fn setup_fork(&mut self, job: JobId, rank: Rank, command: &mut Command) -> Result<(), Error> {
        let socket = self.pass_socket(job, rank)?;
        set_env(command, self.inherited_env(job, rank, socket.as_raw_fd())?);
        // SAFETY: the descriptor is the closure's.
        let inherit = move || match unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: the closure makes one system call, which is safe after a fork, and allocates nothing.
        unsafe { command.pre_exec(inherit) };
        Ok(())
    }

    /// Gives a command the variables of a rank that connects to the port of its job: [`rank_env`](Host::rank_env), without those by
    /// which other launchers describe their ranks.
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job or rank. [`Error::NoPort`]: [`listen`](Host::listen) has not been called for the job.
    pub fn setup_env(&self, job: JobId, rank: Rank, command: &mut Command) -> Result<(), Error> {
        set_env(command, self.port_env(job, rank)?);
        Ok(())
    }

    /// Returns the variables of a rank that connects to the port of its job, which has to be there.
    pub(crate) fn port_env(&self, job: JobId, rank: Rank) -> Result<Vec<(&'static str, String)>, Error> {
        if self.served(job)?.port.is_none() {
            return Err(Error::NoPort(job.0));
        }
        self.rank_env(job, rank)
    }

    /// Makes the connection of a rank, and returns the rank's end, whose number in the rank's process is the value of its variable
    /// `PMI_FD`. Its other variables are those of [`rank_env`](Host::rank_env). The end is closed by `exec`, so that the
    /// launcher clears that flag in the child alone, and closes its own copy after the start.
    /// [`setup_fork`](Host::setup_fork) does all that for a [`Command`].
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job or rank, the rank has a connection, or the limit of connections is reached.
    /// [`Error::System`]: no descriptor is left.
    pub fn pass_socket(&mut self, job: JobId, rank: Rank) -> Result<OwnedFd, Error> {
        self.served(job)?;
        let pair = UnixStream::pair();
        let (ours, theirs) = pair.map_err(|why| hydrant_reactor::Error { what: "socketpair", why })?;
        self.adopt_socket(job, rank, ours.into())?;
        Ok(theirs.into())
    }

    /// Serves a socket as the connection of a rank, in place of [`pass_socket`](Host::pass_socket): for a launcher that has made
    /// the pair before it could register the job. The rank inherits the other end.
    ///
    /// # Errors
    /// As [`pass_socket`](Host::pass_socket).
    pub fn adopt_socket(&mut self, job: JobId, rank: Rank, socket: OwnedFd) -> Result<(), Error> {
        let now = self.clock.now();
        self.driver.make_room(now)?;
        if self.driver.open(socket, job, rank, now, &self.poller)?.is_none() {
            return Err(Fault::Full(Limit::Conns, self.limits().conns).into());
        }
        if let Some(served) = self.jobs.get_mut(&job) {
            served.set_up(rank);
        }
        self.has_sockets = true;
        self.work()
    }

    /// Returns the variables of a rank that connects to the port of its job, wherever it runs: `PMI_RANK`, `PMI_SIZE`,
    /// `PMI_PORT`, `PMI_ID`, and the variables of PMIx. A rank that inherits its connection has `PMI_FD` in place of `PMI_PORT` and
    /// `PMI_ID`. The variables that [`is_foreign_variable`] names are removed from what the rank inherits.
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such job or rank.
    pub fn rank_env(&self, job: JobId, rank: Rank) -> Result<Vec<(&'static str, String)>, Error> {
        let served = self.served(job)?;
        served.check_rank(rank)?;
        Ok(served.variables(rank, None))
    }

    /// Returns the variables of a rank that inherits its connection as descriptor `fd`.
    pub(crate) fn inherited_env(
        &self,
        job: JobId,
        rank: Rank,
        fd: RawFd,
    ) -> Result<Vec<(&'static str, String)>, Error> {
        Ok(self.served(job)?.variables(rank, Some(fd)))
    }

    /// Listens for clients of a job, and returns the address, with the port that the system has chosen for port 0. `speaks` says
    /// which protocols they have: PMIx clients (Open MPI) always connect to a port, PMI clients (MPICH) do unless they inherit
    /// their connection.
    ///
    /// A client on this machine has to be a process of this user. At a loopback address there are no others. At another address the
    /// library accepts whoever knows it: a client of PMI says which rank it is, a client of PMIx also says the name of the job.
    ///
    /// # Errors
    /// [`Error::HasPort`]. [`Error::Wildcard`]: ranks cannot connect to such an address. [`Error::Listen`]: the address is in use
    /// or none of this machine's. [`Error::Fault`]: there is no such job.
    pub fn listen(&mut self, job: JobId, address: SocketAddr, speaks: Speaks) -> Result<SocketAddr, Error> {
        let served = self.served(job)?;
        if served.port.is_some() {
            return Err(Error::HasPort(job.0));
        }
        let port = Port::open(address, speaks)?;
        let address = port.address();
        self.adopt_port(job, port)?;
        Ok(address)
    }

    /// Serves the clients of a port as those of a job, in place of [`listen`](Host::listen).
    ///
    /// # Errors
    /// [`Error::HasPort`]. [`Error::Fault`]: there is no such job. [`Error::System`]
    pub fn adopt_port(&mut self, job: JobId, port: Port) -> Result<(), Error> {
        let served = self.jobs.get_mut(&job).ok_or(Fault::NoSuchJob)?;
        if served.port.is_some() {
            return Err(Error::HasPort(job.0));
        }
        let speaks = port.speaks();
        served.port = Some((Listener::new(port.into_tcp(), PORTS.key(0, job.0), &self.poller)?, speaks));
        self.has_sockets = true;
        self.work()
    }

    fn served(&self, job: JobId) -> Result<&Served, Fault> {
        self.jobs.get(&job).ok_or(Fault::NoSuchJob)
    }

    /// Accepts clients of a job.
    fn accept(&mut self, job: JobId) -> Result<(), Error> {
        let now = self.clock.now();
        let Some((port, _)) = self.jobs.get_mut(&job).and_then(|known| known.port.as_mut()) else {
            return Ok(());
        };
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

    /// Returns what the launcher has to do next, or none when no work is left. A turn reads once from each ready socket and accepts
    /// at most 16 clients of a port, so that no client holds up the launcher.
    ///
    /// # Errors
    /// [`Error::Plugin`], [`Error::System`]
    pub fn next_event(&mut self) -> Result<Option<Event>, Error> {
        let next = self.advance();
        self.has_work = !matches!(next, Ok(None));
        self.set_timer()?;
        next
    }

    /// Waits until [`next_event`](Host::next_event) may have work, or the time has passed. For launchers that wait for nothing
    /// else: others watch [`as_fd`](Host::as_fd). A signal handler may end the wait early.
    ///
    /// # Errors
    /// [`Error::System`]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let timeout = timeout.map(|time| Timespec::try_from(time).unwrap_or(LONG));
        match poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(hydrant_reactor::Error::during("poll")(errno).into()),
        }
    }

    /// Looks for an output: first those of calls, then those of one turn over deadlines and sockets.
    fn advance(&mut self) -> Result<Option<Event>, Error> {
        loop {
            let polled = match self.due.pop_front() {
                Some(event) => Some(event),
                None => self.driver.poll(self.clock.now(), &self.poller)?.map(Event::from),
            };
            let polled = polled.or_else(|| self.ends.pop_front());
            match polled {
                Some(event) => {
                    if let Some(event) = self.due_now(event) {
                        return Ok(Some(event));
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
                    match (PORTS.decode(key), PROCESSES.decode(key)) {
                        (Some((_, job)), _) => self.accept(JobId(job))?,
                        (None, Some((_, number))) => self.ended(number)?,
                        (None, None) => self.driver.ready(key, self.clock.now(), &self.poller)?,
                    }
                }
            }
        }
    }

    /// Returns an event, unless it waits for the end of a process.
    fn due_now(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output(OwnedOutput::RemoveFiles { job, rank, .. }) => match self.jobs.get_mut(&job) {
                Some(known) => known.keep_removal(rank, event),
                None => Some(event),
            },
            _ => Some(event),
        }
    }

    /// Handles deadlines that have passed, and looks which sockets are ready.
    fn begin_turn(&mut self) -> Result<(), Error> {
        let now = self.clock.now();
        self.driver.handle_timeout(now)?;
        let mut ready = Vec::new();
        if self.has_sockets {
            let mut ports = self.jobs.values_mut().filter_map(|job| job.port.as_mut());
            ports.try_for_each(|(port, _)| port.resume(&self.poller, now))?;
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

    /// Sets the timer to when [`next_event`](Host::next_event) has work without a ready socket.
    fn set_timer(&mut self) -> Result<(), Error> {
        let ports = self.jobs.values().filter_map(|job| job.port.as_ref()?.0.deadline());
        let due = match ports.chain(self.driver.poll_at()).min() {
            _ if self.has_work => Due::Now,
            None => Due::Never,
            Some(at) => Due::At(at),
        };
        self.timer.set(due, self.clock.now())
    }
}

/// Gives a command the variables of a rank, and none of other launchers.
fn set_env(command: &mut Command, own: Vec<(&'static str, String)>) {
    for (name, _) in env::vars_os().filter(|(name, _)| is_foreign_variable(name.as_bytes())) {
        command.env_remove(name);
    }
    command.envs(own);
}
