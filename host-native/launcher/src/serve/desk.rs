//! `hydrant serve --manage ADDR:PORT`: hosts say which jobs to serve, as they would to a board. Several may do so at the
//! same time; each has to do with the jobs that it opened.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use hydrant_core::manage::{self, Error, JobPhase, OpenJob, Report, Request, STALL_MS, VERSION, Welcome};
use hydrant_core::server::JobSpec;
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Limits, Rank, Server};
use hydrant_driver::{HANDSHAKE_TIMEOUT, TcpPort};
use hydrant_reactor::{Interest, Listener, OpenFiles, Reactor, random_u32, signals};

use super::Options;
use super::endpoint::{Endpoint, JobEvent, OWN_FILES};
use super::token::Token;
use crate::error::RunError;
use crate::manage::{Link, LinkError};
use hydrant_driver::MappedStorage;

/// Hosts at the same time.
const HOSTS: usize = 64;
/// How much of a text is passed on, so that it fits a record.
const TEXT_MAX: usize = 256;

/// Serves hosts' jobs until a signal comes; the exit code.
pub(super) fn serve(options: &Options, addr: SocketAddr) -> Result<u8, RunError> {
    let limits = options.limits_managed();
    let reactor = Reactor::new(Token::Signals)?;
    let files = OWN_FILES + u64::from(limits.conns) + u64::from(limits.jobs) + HOSTS as u64;
    let _files = OpenFiles::reserve(files).map_err(RunError::open_files(limits.conns))?;
    let mut storage = MappedStorage::try_new(&limits)?;
    let server = Server::new(limits, storage.lend(), random_u32()?)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let endpoint = Endpoint::new(&options.job.allow, &limits, server, reactor)?;
    let port = TcpPort::open(addr)?;
    let address = port.for_ranks(&host);
    let listener = Listener::new(port, Token::Manage, endpoint.poller())?;
    let (hosts, jobs) = (Vec::new(), Vec::new());
    let mut desk = Desk { options, limits, name: host, endpoint, listener, hosts, jobs };
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stdout(), "hydrant serve: managed at {address}");
    desk.run()
}

struct Desk<'o, 's> {
    options: &'o Options,
    limits: Limits,
    /// What hosts know this server as.
    name: String,
    endpoint: Endpoint<'s>,
    listener: Listener<TcpPort>,
    /// By their number, which is given out again.
    hosts: Vec<Option<Host>>,
    /// By their number for the core.
    jobs: Vec<Option<Managed>>,
}

/// Somebody who manages.
#[derive(Debug)]
struct Host {
    link: Link,
    from: SocketAddr,
    opened: u64,
    greeted: bool,
    /// Since when it has not read what it is told.
    blocked: Option<u64>,
}

impl Host {
    /// When it has had its time, for a greeting or for reading what it is told, and what it is then.
    fn deadline(&self) -> Option<(u64, LinkError)> {
        match self.blocked {
            Some(since) => Some((since + STALL_MS, LinkError::Stalled)),
            None if self.greeted => None,
            None => Some((self.opened + HANDSHAKE_TIMEOUT, LinkError::Silent)),
        }
    }
}

/// A job of a host's.
#[derive(Debug)]
struct Managed {
    /// Who opened it, as long as that connection lasts.
    host: Option<usize>,
    size: u32,
    /// Whether clients may come.
    served: bool,
    /// Whether the host tells of exits.
    exits_told: bool,
    /// Whether it outlives the host's connection.
    keep: bool,
    /// Whether it is known to be over.
    over: bool,
}

impl Desk<'_, '_> {
    /// The event loop.
    fn run(&mut self) -> Result<u8, RunError> {
        let mut tokens = Vec::new();
        loop {
            let of_hosts = self.hosts.iter().flatten().filter_map(|host| Some(host.deadline()?.0)).min();
            let deadline = [of_hosts, self.listener.deadline()];
            self.endpoint.turn(deadline.into_iter().flatten().min(), &mut tokens)?;
            self.hear()?;
            for &token in &tokens {
                match token {
                    Token::Manage => self.accept()?,
                    Token::Host(number) => self.host_ready(number as usize)?,
                    _ => {}
                }
            }
            self.hear()?;
            self.keep_time()?;
            if tokens.contains(&Token::Signals)
                && let Some(signal) = self.endpoint.take_signals()?
            {
                let number = signal.as_raw() as u8;
                let jobs = self.jobs.iter().flatten().filter(|job| !job.over).count();
                if jobs == 0 {
                    return Ok(0);
                }
                self.endpoint
                    .log(&format!("ended by {}: {jobs} jobs were being served", signals::name(number)));
                return Ok(number.saturating_add(128));
            }
        }
    }

    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.endpoint.now();
        for number in 0..self.hosts.len() {
            if let Some((at, why)) = self.hosts[number].as_ref().and_then(Host::deadline)
                && at <= now
            {
                self.drop_host(number, &why)?;
            }
        }
        Ok(self.listener.resume(self.endpoint.poller(), now)?)
    }

    fn accept(&mut self) -> Result<(), RunError> {
        let mut admitted = Vec::new();
        if let Err(error) = self.listener.socket().accept(&mut admitted) {
            self.endpoint.log(&format!("cannot take in hosts for a while: {error}"));
            let now = self.endpoint.now();
            self.listener.pause(self.endpoint.poller(), now);
        }
        admitted.into_iter().try_for_each(|stream| self.admit(stream))
    }

    fn admit(&mut self, stream: TcpStream) -> Result<(), RunError> {
        let Ok(from) = stream.peer_addr() else { return Ok(()) };
        if !self.endpoint.allows(from) {
            return Ok(());
        }
        let Ok(mut link) = Link::new(stream) else { return Ok(()) };
        let free = self.hosts.iter().position(Option::is_none).unwrap_or(self.hosts.len());
        if free == HOSTS {
            self.endpoint.log(&format!("turned away {from}: {HOSTS} hosts are here"));
            // It is gone again either way.
            let _ = link.say(&Report::Refused(Error::Busy));
            return Ok(());
        }
        self.endpoint.poller().add(link.stream(), Token::Host(free as u32), Interest::Read)?;
        if free == self.hosts.len() {
            self.hosts.push(None);
        }
        let opened = self.endpoint.now();
        self.hosts[free] = Some(Host { link, from, opened, greeted: false, blocked: None });
        Ok(())
    }

    /// A host has said something, or can be told more.
    fn host_ready(&mut self, number: usize) -> Result<(), RunError> {
        match self.serve_host(number)? {
            Ok(()) => Ok(()),
            Err(why) => self.drop_host(number, &why),
        }
    }

    fn serve_host(&mut self, number: usize) -> Result<Result<(), LinkError>, RunError> {
        let mut record = Vec::new();
        let Some(host) = self.hosts.get_mut(number).and_then(Option::as_mut) else { return Ok(Ok(())) };
        if let Err(why) = host.link.flush().and_then(|()| host.link.fill()) {
            return Ok(Err(why));
        }
        loop {
            let Some(host) = self.hosts[number].as_mut() else { return Ok(Ok(())) };
            match host.link.next(&mut record) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    if let LinkError::Record(_) = why {
                        // It is gone again either way.
                        let _ = host.link.say(&Report::Refused(Error::Garbled));
                    }
                    return Ok(Err(why));
                }
            }
            let Ok(request) = manage::decode::<Request<'_>>(&record) else {
                let _ = host.link.say(&Report::Refused(Error::Garbled));
                return Ok(Err(manage::BadRecord::Garbled.into()));
            };
            self.answer(number, &request)?;
        }
        Ok(self.watch(number))
    }

    /// Waits for a host that does not read to do so.
    fn watch(&mut self, number: usize) -> Result<(), LinkError> {
        let now = self.endpoint.now();
        let Some(host) = self.hosts[number].as_mut() else { return Ok(()) };
        let blocked = host.link.is_blocked();
        if blocked != host.blocked.is_some() {
            host.blocked = blocked.then_some(now);
            let interest = if blocked { Interest::Write } else { Interest::Read };
            let token = Token::Host(number as u32);
            let changed = self.endpoint.poller().modify(host.link.stream(), token, interest);
            changed.map_err(|error| LinkError::Io(error.why))?;
        }
        Ok(())
    }

    fn drop_host(&mut self, number: usize, why: &LinkError) -> Result<(), RunError> {
        let Some(host) = self.hosts[number].take() else { return Ok(()) };
        if !matches!(why, LinkError::Closed) {
            self.endpoint.log(&format!("closed the connection of host {}: {why}", host.from));
        }
        for at in 0..self.jobs.len() {
            let Some(job) = self.jobs[at].as_mut().filter(|job| job.host == Some(number)) else { continue };
            job.host = None;
            let (id, size) = (JobId(at as u32), job.size);
            if !job.keep || job.over {
                self.forget(id)?;
                continue;
            }
            // Nobody tells of those any more whose connection is gone already.
            job.exits_told = false;
            for rank in (0..size).map(Rank) {
                let report = self.endpoint.rank_report(id, rank);
                if let Some(report) = report.filter(|report| report.conn.is_none() && report.exit.is_none())
                    && (report.initialized || report.finalized)
                {
                    self.endpoint.exited(id, rank, exit(report.finalized))?;
                }
            }
        }
        Ok(())
    }

    /// Tells a host something.
    fn tell(&mut self, number: usize, report: &Report<'_>) -> Result<(), RunError> {
        let Some(host) = self.hosts.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        match host.link.say(report).and_then(|()| self.watch(number)) {
            Ok(()) => Ok(()),
            Err(why) => self.drop_host(number, &why),
        }
    }

    fn answer(&mut self, number: usize, request: &Request<'_>) -> Result<(), RunError> {
        let name = self.name.clone();
        let report = match self.carry_out(number, request, &name)? {
            Ok(report) => report,
            Err(why) => Report::Refused(why),
        };
        self.tell(number, &report)
    }

    /// Does what a host asks for.
    fn carry_out<'r>(
        &mut self,
        number: usize,
        request: &Request<'_>,
        name: &'r str,
    ) -> Result<Result<Report<'r>, Error>, RunError> {
        let Some(host) = self.hosts[number].as_mut() else { return Ok(Err(Error::Greeting)) };
        if host.greeted == matches!(request, Request::Hello { .. }) {
            return Ok(Err(Error::Greeting));
        }
        Ok(match *request {
            Request::Hello { version } if version == VERSION => {
                host.greeted = true;
                if self.options.verbose {
                    self.endpoint.log(&format!("host {} is here", host.from));
                }
                Ok(Report::Welcome(self.welcome(name)))
            }
            Request::Hello { .. } => Err(Error::Version { spoken: VERSION }),
            Request::Open(ref open) => return self.open(number, open),
            Request::Program { job, first, count, appnum } => {
                self.describe(number, job, Input::Program { job, first, count, appnum })
            }
            Request::Attr { job, key, value } => self.describe(number, job, Input::Attr { job, key, value }),
            Request::Pset { job, name, first, count } => {
                self.describe(number, job, Input::Pset { job, name, first, count })
            }
            Request::Serve { job } => return self.begin(number, job),
            Request::Exited { job, rank, exit } => match self.own(number, job) {
                Err(why) => Err(why),
                Ok(_) => return self.exited(job, rank, exit),
            },
            Request::Forget { job } => match self.own(number, job) {
                Err(why) => Err(why),
                Ok(_) => {
                    self.forget(job)?;
                    Ok(Report::Done)
                }
            },
            Request::Job { job } => self.job_report(job).map(Report::Job),
            Request::Rank { job, rank } => {
                let report = self.endpoint.rank_report(job, rank);
                report.map(Report::Rank).ok_or(Error::Core(Fault::NoSuchRank))
            }
            Request::Board => Ok(Report::Board(self.endpoint.report())),
            Request::Usage { limit } => {
                let (used, size) = self.endpoint.usage(limit);
                Ok(Report::Usage { limit, used, size })
            }
            Request::Record => Err(Error::NoRecording),
        })
    }

    fn welcome<'r>(&self, name: &'r str) -> Welcome<'r> {
        let report = self.endpoint.report();
        Welcome {
            version: VERSION,
            board: name,
            limits: self.limits,
            pmi_port: self.options.job.pmi_port.port(),
            sockets: report.sockets,
            free_sockets: report.free_sockets,
            message_max: hydrant_core::limits::MESSAGE_MAX,
            records: false,
        }
    }

    /// A job of that host's.
    fn own(&mut self, number: usize, job: JobId) -> Result<&mut Managed, Error> {
        let job = self.jobs.get_mut(job.index()).and_then(Option::as_mut);
        // One that its host has left may be seen to by any other.
        let own = |job: &&mut Managed| job.host.is_none_or(|host| host == number);
        job.filter(own).ok_or(Error::Core(Fault::NoSuchJob))
    }

    fn open(
        &mut self,
        number: usize,
        open: &OpenJob<'_>,
    ) -> Result<Result<Report<'static>, Error>, RunError> {
        let job = self.endpoint.free_id();
        // The port of job n is n higher, unless any will do.
        let mut addr = self.options.job.pmi_port;
        match addr.port() {
            0 => {}
            first => match u16::try_from(u32::from(first) + job.0) {
                Ok(port) => addr.set_port(port),
                Err(_) => return Ok(Err(Error::Core(Fault::Full(hydrant_core::Limit::Jobs, job.0)))),
            },
        }
        let port = match TcpPort::open(addr) {
            Ok(port) => port,
            Err(error) => {
                self.endpoint.log(&error.to_string());
                return Ok(Err(Error::Core(Fault::Full(hydrant_core::Limit::Conns, self.limits.conns))));
            }
        };
        if let Err(why) = self.endpoint.handle(Input::RegisterJob(JobSpec::managed(job, open))) {
            return Ok(Err(Error::Core(why)));
        }
        let addr = port.addr();
        self.endpoint.open(job, open.size, port)?;
        self.endpoint.pause(job, true);
        if self.jobs.len() <= job.index() {
            self.jobs.resize_with(job.index() + 1, || None);
        }
        let OpenJob { size, exits_told, keep, .. } = *open;
        let host = Some(number);
        self.jobs[job.index()] = Some(Managed { host, size, served: false, exits_told, keep, over: false });
        if self.options.verbose {
            self.endpoint.log(&format!("job {job} of {size} ranks is called {}, at {addr}", open.name));
        }
        Ok(Ok(Report::Opened { job, port: addr.port() }))
    }

    fn describe(&mut self, number: usize, job: JobId, input: Input<'_>) -> Result<Report<'static>, Error> {
        if self.own(number, job)?.served {
            return Err(Error::Order);
        }
        self.endpoint.handle(input).map(|()| Report::Done).map_err(Error::Core)
    }

    fn begin(&mut self, number: usize, id: JobId) -> Result<Result<Report<'static>, Error>, RunError> {
        match self.own(number, id) {
            Err(why) => return Ok(Err(why)),
            Ok(job) if job.served => return Ok(Err(Error::Order)),
            Ok(job) => job.served = true,
        }
        self.endpoint.pause(id, false);
        Ok(Ok(Report::Done))
    }

    fn exited(
        &mut self,
        job: JobId,
        rank: Rank,
        exit: Exit,
    ) -> Result<Result<Report<'static>, Error>, RunError> {
        match self.endpoint.exited(job, rank, exit) {
            Ok(()) => Ok(Ok(Report::Done)),
            Err(RunError::Core { why }) => Ok(Err(Error::Core(why))),
            Err(error) => Err(error),
        }
    }

    fn forget(&mut self, id: JobId) -> Result<(), RunError> {
        self.jobs[id.index()] = None;
        if self.options.verbose {
            self.endpoint.log(&format!("job {id} is over"));
        }
        self.endpoint.close(id)
    }

    fn job_report(&self, id: JobId) -> Result<manage::JobReport, Error> {
        let job = self.jobs.get(id.index()).and_then(Option::as_ref);
        let (job, report) = job.zip(self.endpoint.job_report(id)).ok_or(Error::Core(Fault::NoSuchJob))?;
        let phase = match report.phase {
            JobPhase::Opened if job.served => JobPhase::Served,
            phase => phase,
        };
        Ok(manage::JobReport { phase, ..report })
    }

    /// Passes on what has happened to the jobs.
    fn hear(&mut self) -> Result<(), RunError> {
        while let Some(event) = self.endpoint.next_event() {
            self.pass_on(event)?;
        }
        for at in 0..self.jobs.len() {
            let id = JobId(at as u32);
            let Some(job) = self.jobs[at].as_mut().filter(|job| !job.over) else { continue };
            if self.endpoint.job_report(id).is_some_and(|report| report.phase == JobPhase::Over) {
                job.over = true;
                match job.host {
                    Some(host) => self.tell(host, &Report::Over { job: id })?,
                    None => self.forget(id)?,
                }
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, event: JobEvent) -> Result<(), RunError> {
        let host = |desk: &Self, job: JobId| desk.jobs.get(job.index())?.as_ref()?.host;
        let (job, report) = match &event {
            JobEvent::Left { job, rank, finalized } => {
                let told =
                    self.jobs.get(job.index()).and_then(Option::as_ref).is_none_or(|job| job.exits_told);
                return if told { Ok(()) } else { self.endpoint.exited(*job, *rank, exit(*finalized)) };
            }
            JobEvent::Full { limit } => {
                let size = self.endpoint.usage(*limit).1;
                self.endpoint.log(&format!("limit {} of {size} is used up", limit.name()));
                let report = Report::LimitHit { limit: *limit, size };
                return (0..self.hosts.len()).try_for_each(|host| self.tell(host, &report));
            }
            &JobEvent::Joined { job, rank, conn, .. } => (job, Report::Joined { job, rank, conn }),
            JobEvent::Abort { job, cause, message } => {
                (*job, Report::End { job: *job, cause: *cause, message: cut(message) })
            }
            JobEvent::Kill { job, rank, code, message } => {
                (*job, Report::Kill { job: *job, rank: *rank, code: *code, message: cut(message) })
            }
            JobEvent::StalledFence { job, arrived, size, missing } => {
                let missing = cut(missing);
                (*job, Report::Late { job: *job, arrived: *arrived, size: *size, missing })
            }
            &JobEvent::Closed { job, conn, rank, why } => (job, Report::Closed { conn, rank, why }),
        };
        if self.options.verbose {
            self.endpoint.log(&format!("job {job}: {}", in_words(&report)));
        }
        match host(self, job) {
            Some(number) => self.tell(number, &report),
            None => Ok(()),
        }
    }
}

/// How a process ended of which only the connection is known.
fn exit(finalized: bool) -> Exit {
    if finalized { Exit::Code(0) } else { Exit::Lost }
}

/// What a host is told of a job, for the log.
fn in_words(report: &Report<'_>) -> String {
    match report {
        Report::Joined { rank, .. } => format!("rank {rank} has joined"),
        Report::End { cause, message, .. } => {
            format!("it has to end, {cause} {message}").trim_end().to_owned()
        }
        Report::Kill { rank, message, .. } => {
            format!("rank {rank} aborts itself {message}").trim_end().to_owned()
        }
        Report::Late { arrived, size, missing, .. } => {
            format!("a fence waits: {arrived} of {size} ranks have come, it waits for {missing}")
        }
        Report::Closed { rank: Some(rank), why, .. } => {
            format!("closed the connection of rank {rank}: {why}")
        }
        Report::Closed { why, .. } => format!("closed a connection that was no rank's: {why}"),
        other => format!("{other:?}"),
    }
}

/// As much of a text as is passed on.
fn cut(text: &str) -> &str {
    let fits = text.len().min(TEXT_MAX);
    let end = (0..=fits).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
