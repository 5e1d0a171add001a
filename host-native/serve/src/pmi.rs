//! `hydrant serve --size N`: jobs that the command line describes, one after the other on the same port.

use std::io::Write;
use std::time::Duration;

use hydrant_control::job_name;
use hydrant_core::limits::OVERSUBSCRIBED_ATTR;
use hydrant_core::server::JobSpec;
use hydrant_core::trace::{Closing, Exit, SignalName};
use hydrant_core::{Input, JobId, Limit, OwnedOutput, Rank, Server};
use hydrant_driver::{MappedStorage, Speaks, TcpPort, pmix_variables, refused_line};
use hydrant_placement::PlacementError;
use hydrant_reactor::{OpenFiles, Reactor, announce, random_u32, random_u64};

use crate::endpoint::{Endpoint, OWN_FILES};
use crate::error::Error;
use crate::event::JobEvent;
use crate::job::Job;
use crate::options::Options;
use crate::recorded::RecordedServer;
use crate::status::Processes;
use crate::token::Token;

/// Number of the current job. Jobs run one at a time.
const JOB: JobId = JobId(0);
/// Why PMIx clients are not served. Each of their hosts needs a server of its own.
const PMIX_APART: &str = "they are served with --map together, on one host; on several hosts use 'hydrant run --bootstrap join' and 'hydrant join'";

/// Serves jobs of `size` ranks. Returns the exit code of the first that failed.
pub(crate) fn serve(options: &Options, size: u32) -> Result<u8, Error> {
    let limits = options.limits(size);
    let reactor = Reactor::new(Token::Signals)?;
    let _files = OpenFiles::reserve(OWN_FILES + u64::from(limits.conns))?;
    let mut storage = MappedStorage::try_new(&limits)?;
    let seed = random_u32()?;
    let server = Server::new(limits, storage.lend(), seed)?;
    let server = RecordedServer::new(server, seed, options.record.clone());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let endpoint = Endpoint::new(&options.job.allow, &limits, server, reactor)?;
    let job = Job::new(0, size, None);
    let mut own = PmiServer::new(options, size, host, endpoint, job);
    own.open_job()?;
    let port = TcpPort::open(options.job.pmi_port)?;
    own.address = port.for_ranks(&own.host);
    // libpmix connects to IPv4 addresses only.
    own.serves_pmix = limits.commit_bytes > 0 && port.addr().is_ipv4();
    let speaks = if own.serves_pmix { Speaks::Any } else { Speaks::Pmi };
    own.endpoint.open(JOB, size, port.for_clients_of(speaks))?;
    if let Err(error) = own.endpoint.open_status(Processes::Unseen, &own.host, &own.address) {
        own.detail(|| error.to_string());
    }
    // A closed standard output is no error.
    let _ = announce(format_args!("PMI_PORT={}", own.address));
    own.print_pmix();
    own.run()
}

struct PmiServer<'o, 's> {
    options: &'o Options,
    size: u32,
    /// This machine.
    host: String,
    /// Address for ranks.
    address: String,
    /// Job id of the current job.
    name: String,
    /// Whether ranks may be PMIx clients.
    serves_pmix: bool,
    /// Number of PMIx clients that were refused.
    refused: u64,
    endpoint: Endpoint<'s>,
    job: Job,
    /// Number of jobs that have ended.
    served: u32,
    /// Exit code of the first job that failed.
    failed: Option<u8>,
}

impl<'o, 's> PmiServer<'o, 's> {
    fn new(
        options: &'o Options,
        size: u32,
        host: String,
        endpoint: Endpoint<'s>,
        job: Job,
    ) -> PmiServer<'o, 's> {
        PmiServer {
            options,
            size,
            host,
            address: String::new(),
            name: String::new(),
            serves_pmix: false,
            refused: 0,
            endpoint,
            job,
            served: 0,
            failed: None,
        }
    }

    /// The event loop.
    fn run(&mut self) -> Result<u8, Error> {
        let mut tokens = Vec::new();
        loop {
            if let Some(code) = self.turn(&mut tokens)? {
                return Ok(code);
            }
        }
    }

    /// Waits for events and handles them. Returns the exit code when the last job or the server is over.
    fn turn(&mut self, tokens: &mut Vec<Token>) -> Result<Option<u8>, Error> {
        self.endpoint.turn(self.job.deadline, tokens)?;
        while let Some(event) = self.endpoint.next_event() {
            self.handle_event(event)?;
        }
        if self.job.deadline.is_some_and(|at| at <= self.endpoint.now()) {
            self.job.give_up(self.options.job.join_timeout.as_secs_f64());
        }
        if self.job.is_over() {
            self.close_job()?;
            if self.options.job.jobs == self.served {
                return Ok(Some(self.failed.unwrap_or(0)));
            }
            self.open_job()?;
            self.print_pmix();
        }
        if tokens.contains(&Token::Signals)
            && let Some(signal) = self.endpoint.take_signals()?
        {
            return Ok(Some(self.ended_by(signal.as_raw() as u8)));
        }
        Ok(None)
    }

    /// Returns the exit code of a server that is ended by a signal.
    fn ended_by(&mut self, signal: u8) -> u8 {
        if self.job.joined() == 0 && self.options.job.jobs == 0 {
            return self.failed.unwrap_or(0);
        }
        let (joined, size) = (self.job.joined(), self.size);
        self.endpoint.log(&format!(
            "ended by {}: {joined} of {size} ranks had joined the job",
            SignalName(signal.into())
        ));
        signal.saturating_add(128)
    }

    /// Opens the next job.
    fn open_job(&mut self) -> Result<(), Error> {
        let options = &self.options.job;
        let until = self.endpoint.now().saturating_add(millis(options.join_timeout));
        let deadline = (self.served == 0 && !options.join_timeout.is_zero()).then_some(until);
        self.job = Job::new(self.served, self.size, deadline);
        let name = match &options.jobid {
            Some(jobid) => jobid.clone(),
            None => job_name(std::process::id(), self.served, random_u64()?, &self.host),
        };
        let spec = JobSpec {
            universe_size: options.usize,
            pmi1_subversion: options.pmi1_version,
            lookup_wait: millis(options.lookup_wait),
            fence_warning: millis(options.fence_warning),
            ..JobSpec::new(JOB, &name, self.size)
        };
        self.endpoint.handle(Input::RegisterJob(spec))?;
        self.describe_job()?;
        self.endpoint.pause(JOB, false)?;
        if self.options.verbose {
            self.endpoint.log(&format!("job {} of {} ranks is called {name}", self.served, self.size));
        }
        self.name = name;
        Ok(())
    }

    /// Prints the variables of PMIx clients of the current job.
    fn print_pmix(&self) {
        if self.serves_pmix {
            let variables = pmix_variables(&self.name, Some(&self.address));
            let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            // A closed standard output is no error.
            let _ = std::io::stdout().write_all(lines.as_bytes());
        }
    }

    fn describe_job(&mut self) -> Result<(), Error> {
        let (job, options) = (JOB, &self.options.job);
        let mapping = options.map.process_mapping(self.size);
        let attr = Input::Attr { job, key: b"PMI_process_mapping", value: mapping.as_bytes() };
        self.endpoint.handle(attr).map_err(|_| PlacementError::MappingTooLong { len: mapping.len() })?;
        // A loopback port has ranks on this machine only, whose processors this process shares.
        let is_here = options.pmi_port.ip().is_loopback();
        let processors = std::thread::available_parallelism().ok().filter(|_| is_here);
        if processors.is_some_and(|processors| self.size as usize > processors.get()) {
            self.endpoint.handle(Input::Attr { job, key: OVERSUBSCRIBED_ATTR.as_bytes(), value: b"TRUE" })?;
        }
        let whole = [self.size];
        let programs = if options.programs.is_empty() { &whole[..] } else { &options.programs };
        let mut first = Rank(0);
        for (appnum, &count) in (0..).zip(programs) {
            self.endpoint.handle(Input::Program { job, first, count, appnum })?;
            self.define(&format!("hydrant://app/{appnum}"), first, count)?;
            first = Rank(first.0 + count);
        }
        options.pset.iter().try_for_each(|pset| self.define(&pset.name, Rank(pset.first), pset.count))
    }

    fn define(&mut self, name: &str, first: Rank, count: u32) -> Result<(), Error> {
        let defined = self.endpoint.handle(Input::Pset { job: JOB, name, first, count });
        defined.map_err(|why| Error::Pset { name: name.to_owned(), why })
    }

    /// Deregisters a job that has ended and reports its result.
    fn close_job(&mut self) -> Result<(), Error> {
        if let Some(report) = self.job.report() {
            self.endpoint.log(&report);
            self.failed.get_or_insert(self.job.code());
        } else if self.options.verbose {
            self.endpoint.log(&format!("job {} is over: every rank has left", self.job.ordinal));
        }
        self.endpoint.deregister(JOB)?;
        while self.endpoint.next_event().is_some() {}
        self.served = self.served.saturating_add(1);
        Ok(())
    }

    fn handle_event(&mut self, event: JobEvent) -> Result<(), Error> {
        match event {
            JobEvent::Output(output) => self.handle_output(output)?,
            // The connection is the only source of information about the process.
            JobEvent::Left { job, rank, finalized } if self.job.leave(rank) => {
                self.detail(|| format!("rank {rank} has left"));
                self.endpoint.exited(job, rank, Exit::of_connection(finalized))?;
            }
            JobEvent::Left { .. } => {}
            JobEvent::Closed { rank: Some(rank), why, .. } => {
                self.endpoint.log(&format!("closed the PMI connection of rank {rank}: {why}"));
            }
            JobEvent::Closed { why: Closing::Unserved, .. } => {
                self.refused += 1;
                let why = match self.serves_pmix {
                    true => "PMIX_NAMESPACE is of another job, or PMIX_RANK is taken",
                    false => PMIX_APART,
                };
                if let Some(line) = refused_line(self.refused, why) {
                    self.endpoint.log(&line);
                }
            }
            JobEvent::Closed { why, .. } => {
                self.detail(|| format!("closed a connection that was no rank's: {why}"));
            }
            // No option starts processes here. The rank has the reason.
            JobEvent::Full { limit: Limit::SpawnBytes } => {
                self.detail(|| "a rank was refused a spawn".to_owned())
            }
            JobEvent::Full { limit } => {
                let size = self.endpoint.usage(limit).1;
                self.endpoint.log(&format!(
                    "a rank was refused: limit {name} ({size}) is used up, raise it with --limit {name}=N",
                    name = limit.name()
                ));
            }
        }
        Ok(())
    }

    fn handle_output(&mut self, output: OwnedOutput) -> Result<(), Error> {
        match output {
            OwnedOutput::Joined { rank, conn, .. } => {
                let from = self.endpoint.peer_addr(conn);
                self.job.join(rank, from);
                let timeout = self.options.job.join_timeout;
                if self.served > 0 && self.job.joined() == 1 && !timeout.is_zero() && !self.job.is_complete()
                {
                    self.job.deadline = Some(self.endpoint.now().saturating_add(millis(timeout)));
                }
                // A client that connects after the job is complete may belong to the next job. It waits for that job.
                let more = self.options.job.jobs != self.served.saturating_add(1);
                self.endpoint.pause(JOB, more && self.job.is_complete())?;
                let from = from.map_or_else(String::new, |from| format!(" from {from}"));
                self.detail(|| format!("rank {rank} has joined{from}"));
            }
            OwnedOutput::Log { rank, text, .. } => {
                let text = String::from_utf8_lossy(&text);
                for line in text.lines() {
                    self.endpoint.log(&format!("rank {rank}: {line}"));
                }
            }
            OwnedOutput::AbortJob { cause, message, .. } => self.job.end(cause, message),
            OwnedOutput::KillRank { rank, code, message, .. } => self.job.abort_alone(rank, code, message),
            OwnedOutput::StalledFence { arrived, size, missing, .. } => {
                let seconds = self.options.job.fence_warning.as_secs_f64();
                self.endpoint.log(&format!(
                    "ranks have been waiting for {seconds} s: {arrived} of {size} have come, missing: {missing}"
                ));
            }
            // The processes are others', and so are their files.
            OwnedOutput::RemoveFiles { .. } => {}
            // There is one job.
            OwnedOutput::Connected { .. } => {}
            // The limits leave no room for spawns, the server keeps names itself, and there are no other nodes.
            OwnedOutput::Spawn { .. } | OwnedOutput::Upcall { .. } | OwnedOutput::Peer { .. } => {}
            // The endpoint's own.
            OwnedOutput::Bytes { .. } | OwnedOutput::Close { .. } => {}
        }
        Ok(())
    }

    /// Logs a line if `--verbose` is set.
    fn detail(&mut self, line: impl FnOnce() -> String) {
        if self.options.verbose {
            self.endpoint.log(&line());
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpStream};

    use hydrant_core::server::RankReport;

    use super::*;
    use crate::options::{JobOptions, JobSource, Pset};

    /// Options of a server for this number of jobs, 0 for any number.
    fn options(size: u32, jobs: u32) -> Options {
        Options {
            job: JobOptions { jobs, ..JobOptions::default() },
            ..Options::new(JobSource::Described { size })
        }
    }

    /// Opens the first job of a server, and returns the address of its port.
    fn start<'o, 's>(
        options: &'o Options,
        size: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<(PmiServer<'o, 's>, SocketAddr), Error> {
        let limits = options.limits(size);
        let server = RecordedServer::new(Server::new(limits, storage.lend(), 1).unwrap(), 1, None);
        let endpoint = Endpoint::new(&[], &limits, server, Reactor::new(Token::Signals)?)?;
        let job = Job::new(0, size, None);
        let host = "here".to_owned();
        let mut server = PmiServer::new(options, size, host, endpoint, job);
        server.open_job()?;
        let port = TcpPort::open(options.job.pmi_port)?;
        let addr = port.addr();
        server.endpoint.open(JOB, size, port)?;
        Ok((server, addr))
    }

    fn storage(options: &Options, size: u32) -> MappedStorage {
        MappedStorage::new(&options.limits(size))
    }

    /// Runs the event loop until the condition holds.
    fn turn_until(server: &mut PmiServer<'_, '_>, condition: impl Fn(&PmiServer<'_, '_>) -> bool) {
        for _ in 0..30 {
            if condition(server) {
                return;
            }
            assert_eq!(server.turn(&mut Vec::new()).unwrap(), None, "the server is over");
        }
        panic!("the condition does not hold after 30 turns");
    }

    /// Connects as a rank and starts PMI-1.
    fn connect(addr: SocketAddr, rank: u32) -> TcpStream {
        let mut stream = TcpStream::connect(addr).unwrap();
        let text = format!("cmd=initack pmiid={rank}\ncmd=init pmi_version=1 pmi_subversion=1\n");
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// Leaves the job. The caller keeps the connection open for replies.
    fn finalize(mut stream: &TcpStream) {
        stream.write_all(b"cmd=finalize\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }

    fn state(server: &PmiServer<'_, '_>, rank: u32) -> RankReport {
        server.endpoint.server().rank_report(JOB, Rank(rank)).unwrap()
    }

    #[test]
    fn a_second_job_opens_on_the_port_of_the_first() {
        let options = options(1, 2);
        let mut storage = storage(&options, 1);
        let (mut server, addr) = start(&options, 1, &mut storage).unwrap();
        for ordinal in 0..2 {
            assert_eq!((server.served, server.job.ordinal, server.job.joined()), (ordinal, ordinal, 0));
            let mut stream = connect(addr, 0);
            turn_until(&mut server, |server| server.job.joined() == 1);
            assert!(stream.read(&mut [0; 256]).unwrap() > 0);
            finalize(&stream);
            if ordinal == 0 {
                turn_until(&mut server, |server| server.served == 1);
            }
        }
        assert_eq!((server.run().unwrap(), server.served), (0, 2));
    }

    #[test]
    fn a_client_of_the_next_job_waits_while_a_job_is_complete() {
        let options = options(1, 2);
        let mut storage = storage(&options, 1);
        let (mut server, addr) = start(&options, 1, &mut storage).unwrap();
        let first = connect(addr, 0);
        turn_until(&mut server, |server| server.job.joined() == 1);
        let second = connect(addr, 0);
        let mut tokens = Vec::new();
        server.turn(&mut tokens).unwrap();
        assert_eq!((tokens.as_slice(), server.endpoint.report().accepted), (&[Token::Listener(0)][..], 1));
        finalize(&first);
        turn_until(&mut server, |server| server.served == 1 && server.job.joined() == 1);
        finalize(&second);
        assert_eq!(server.run().unwrap(), 0);
    }

    #[test]
    fn a_rank_that_leaves_without_finalize_fails_the_job() {
        let options = options(2, 1);
        let mut storage = storage(&options, 2);
        let (mut server, addr) = start(&options, 2, &mut storage).unwrap();
        let stream = connect(addr, 1);
        turn_until(&mut server, |server| server.job.joined() == 1);
        assert!(!state(&server, 1).finalized);
        drop(stream);
        assert_eq!((server.run().unwrap(), server.failed), (1, Some(1)));
        assert!(server.job.report().unwrap().starts_with("rank 1 was lost without finalizing\n"));
    }

    #[test]
    fn the_first_failure_is_the_exit_code() {
        let options = options(1, 2);
        let mut storage = storage(&options, 1);
        let (mut server, addr) = start(&options, 1, &mut storage).unwrap();
        let mut stream = connect(addr, 0);
        stream.write_all(b"cmd=abort exitcode=7\n").unwrap();
        turn_until(&mut server, |server| server.served == 1);
        assert_eq!(server.failed, Some(7));
        let second = connect(addr, 0);
        turn_until(&mut server, |server| server.job.joined() == 1);
        finalize(&second);
        assert_eq!(server.run().unwrap(), 7);
    }

    #[test]
    fn the_first_job_is_given_up_when_its_join_timeout_has_passed() {
        let mut options = options(2, 1);
        options.job.join_timeout = Duration::from_secs(3600);
        let mut storage = storage(&options, 2);
        let (mut server, addr) = start(&options, 2, &mut storage).unwrap();
        assert!(server.job.deadline.is_some_and(|at| at >= 3_600_000));
        let _stream = connect(addr, 0);
        turn_until(&mut server, |server| server.job.joined() == 1);
        // The hour has passed.
        server.job.deadline = Some(0);
        assert_eq!(server.turn(&mut Vec::new()).unwrap(), Some(1));
        let report = server.job.report().unwrap();
        assert!(report.starts_with("the job is given up: 1 of 2 ranks have come within 3600 s"), "{report}");
    }

    #[test]
    fn the_join_timeout_of_a_later_job_starts_with_its_first_rank() {
        let mut options = options(2, 2);
        options.job.join_timeout = Duration::from_secs(3600);
        let mut storage = storage(&options, 2);
        let (mut server, addr) = start(&options, 2, &mut storage).unwrap();
        let ranks = [0, 1].map(|rank| connect(addr, rank));
        ranks.iter().for_each(finalize);
        turn_until(&mut server, |server| server.served == 1);
        assert_eq!(server.job.deadline, None);
        let _first = connect(addr, 1);
        turn_until(&mut server, |server| server.job.joined() == 1);
        assert!(server.job.deadline.is_some_and(|at| at >= 3_600_000));
        let _second = connect(addr, 0);
        turn_until(&mut server, |server| server.job.joined() == 2);
        assert_eq!(server.job.deadline, None);
    }

    #[test]
    fn a_set_beyond_the_job_is_named() {
        let mut options = options(2, 1);
        options.job.pset.push(Pset { name: "wide".to_owned(), first: 1, count: 2 });
        let mut storage = storage(&options, 2);
        let result = start(&options, 2, &mut storage).map(drop);
        assert!(matches!(result, Err(Error::Pset { name, .. }) if name == "wide"));
    }

    #[test]
    fn a_signal_between_jobs_is_no_failure() {
        let options = options(1, 0);
        let mut storage = storage(&options, 1);
        let (mut server, addr) = start(&options, 1, &mut storage).unwrap();
        assert_eq!(server.ended_by(15), 0);
        let _stream = connect(addr, 0);
        turn_until(&mut server, |server| server.job.joined() == 1);
        assert_eq!(server.ended_by(15), 143);
    }
}
