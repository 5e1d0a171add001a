//! Connections of a run to the name server of another process, and to runs whose jobs its own are connected to.
//!
//! Each job has its own connection, so that its names and its connections to jobs of other runs are removed when the job ends.
//! So have the run, and processes whose names end with them. Each look-up has its own connection, so that a look-up that waits
//! delays no other. No function blocks.
//!
//! The name server keeps the relation of connected jobs. The values stay where they are: a get asks the name server whether
//! the jobs are connected, then the run of the other job for the value.

use std::path::{Path, PathBuf};

use hydrant_core::{JobId, Rank};
use hydrant_reactor::{Interest, Key, KeyRange, Poller};

use crate::error::NameServiceError;
use crate::request::{Answer, Connection, Purpose, Request};
use crate::socket::{join, visit};

/// The connections of a run.
#[derive(Debug)]
pub struct NameClient {
    /// The name server's socket.
    path: PathBuf,
    keys: KeyRange,
    /// Job ids of the run's jobs, by which other runs know them.
    jobids: Vec<(JobId, String)>,
    /// Connections by number. Gaps are free.
    links: Vec<Option<Line>>,
    answers: Vec<Answer>,
    /// Messages for the user.
    news: Vec<String>,
}

#[derive(Debug)]
struct Line {
    link: Connection,
    /// Readiness that the poller reports.
    interest: Interest,
}

impl NameClient {
    /// Checks that there is a name server at `path`, and [introduces](NameClient::begin) the first job, if it has a job id already.
    ///
    /// # Errors
    /// [`NameServiceError::NoServer`], [`NameServiceError::Foreign`].
    pub fn join(
        path: &Path,
        first: Option<(JobId, &str)>,
        keys: KeyRange,
        now: u64,
        poller: &Poller,
    ) -> Result<NameClient, NameServiceError> {
        let (links, answers, news) = (Vec::new(), Vec::new(), Vec::new());
        let jobids = first.iter().map(|&(job, jobid)| (job, jobid.to_owned())).collect();
        let mut client = NameClient { path: path.to_owned(), keys, jobids, links, answers, news };
        match first {
            Some((job, _)) => {
                let number = client.open(Purpose::Names(job), poller)?;
                client.pump(number, now, poller);
            }
            // The name server would soon close a connection that says nothing.
            None => drop(join(path, None)?),
        }
        Ok(client)
    }

    /// Introduces a job to the name server, so that jobs of other runs can connect to it. Without the name server this fails
    /// silently. The requests of the job then fail, or find another name server at the path.
    pub fn begin(&mut self, job: JobId, jobid: &str, now: u64, poller: &Poller) {
        if !self.jobids.iter().any(|&(of, _)| of == job) {
            self.jobids.push((job, jobid.to_owned()));
        }
        if let Ok(number) = self.link_for(Purpose::Names(job), poller) {
            self.pump(number, now, poller);
        }
    }

    /// Queues a request. Each request with an upcall gets exactly one [answer](NameClient::answer).
    pub fn ask(&mut self, request: Request, now: u64, poller: &Poller) {
        match self.link_for(request.purpose(), poller) {
            Ok(number) => {
                self.line(number).link.push(request);
                self.pump(number, now, poller);
            }
            Err(error) => self.answers.extend(request.failed(&error.to_string())),
        }
    }

    /// A connection can be read or written to.
    pub fn ready(&mut self, key: Key, now: u64, poller: &Poller) {
        let Some((_, number)) = self.keys.decode(key) else { return };
        let number = number as usize;
        if self.links.get(number).is_some_and(Option::is_some) {
            self.pump(number, now, poller);
        }
    }

    /// Returns the earliest deadline of a request.
    pub fn deadline(&self) -> Option<u64> {
        self.links.iter().flatten().filter_map(|line| line.link.deadline()).min()
    }

    /// Fails requests whose deadline has passed.
    pub fn expire(&mut self, now: u64) {
        for number in 0..self.links.len() {
            let due = |line: &Line| line.link.deadline().is_some_and(|at| at <= now);
            if self.links[number].as_ref().is_some_and(due) {
                self.lose(number, "it does not answer");
            }
        }
    }

    /// Drops the look-ups of a process that has ended, its gets at other runs, and the names that end with it.
    pub fn process_ended(&mut self, job: JobId, rank: Rank) {
        self.drop_lookups(|request| request.job == job && request.rank == rank);
        self.close(|purpose| purpose == Purpose::Process(job, rank), "the process has ended");
    }

    fn drop_lookups(&mut self, whose: impl Fn(&Request) -> bool) {
        for line in &mut self.links {
            let over = |line: &Line| line.link.purpose().is_single() && line.link.requests().all(&whose);
            if let Some(line) = line.take_if(|line| over(line)) {
                let failed = |request: &Request| request.failed("no rank waits for it");
                self.answers.extend(line.link.requests().filter_map(failed));
            }
        }
    }

    /// Closes the connection of a job that has ended. The name server removes its names, and disconnects it from all jobs.
    pub fn forget(&mut self, job: JobId) {
        self.jobids.retain(|&(of, _)| of != job);
        self.drop_lookups(|request| request.job == job);
        self.close(|purpose| purpose.is_of(job), "the job is over");
    }

    /// Closes connections. Their requests fail.
    fn close(&mut self, which: impl Fn(Purpose) -> bool, why: &str) {
        for line in &mut self.links {
            if let Some(line) = line.take_if(|line| which(line.link.purpose())) {
                self.answers.extend(line.link.requests().filter_map(|request| request.failed(why)));
            }
        }
    }

    /// Returns the next answer.
    pub fn answer(&mut self) -> Option<Answer> {
        self.answers.pop()
    }

    /// Something that the user should know.
    pub fn news(&mut self) -> Option<String> {
        self.news.pop()
    }

    /// Returns the number of a connection for a purpose. Look-ups do not share one.
    fn link_for(&mut self, purpose: Purpose, poller: &Poller) -> Result<usize, NameServiceError> {
        let open = |line: &Option<Line>| {
            purpose != Purpose::Lookup && line.as_ref().is_some_and(|line| line.link.purpose() == purpose)
        };
        match self.links.iter().position(open) {
            Some(number) => Ok(number),
            None => self.open(purpose, poller),
        }
    }

    fn open(&mut self, purpose: Purpose, poller: &Poller) -> Result<usize, NameServiceError> {
        let jobid = self.jobids.iter().find(|&&(job, _)| purpose == Purpose::Names(job));
        let fd = join(&self.path, jobid.map(|(_, jobid)| jobid.as_str()))?;
        self.add(Connection::new(fd, purpose), poller)
    }

    fn add(&mut self, link: Connection, poller: &Poller) -> Result<usize, NameServiceError> {
        let number = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        let interest = Interest::Read;
        poller.add(link.fd(), self.keys.key(0, number as u32), interest)?;
        let line = Some(Line { link, interest });
        match self.links.get_mut(number) {
            Some(free) => *free = line,
            None => self.links.push(line),
        }
        Ok(number)
    }

    fn line(&mut self, number: usize) -> &mut Line {
        self.links[number].as_mut().expect("only open connections are numbered here")
    }

    fn pump(&mut self, number: usize, now: u64, poller: &Poller) {
        let line = self.links[number].as_mut().expect("only open connections are pumped");
        let result = line.link.pump(now, &mut self.answers);
        let gets: Vec<Request> = std::iter::from_fn(|| line.link.take_get()).collect();
        match result {
            Err(why) => self.lose(number, &why),
            Ok(()) => self.settle(number, poller),
        }
        for get in gets {
            self.get(get, now, poller);
        }
    }

    /// Closes a connection without further use, or waits for what it needs next.
    fn settle(&mut self, number: usize, poller: &Poller) {
        let line = self.links[number].as_mut().expect("the connection has not failed");
        if line.link.purpose().is_single() && line.link.requests().next().is_none() {
            self.links[number] = None;
            return;
        }
        let interest = if line.link.is_blocked() { Interest::Write } else { Interest::Read };
        if interest != std::mem::replace(&mut line.interest, interest)
            && let Err(error) = poller.modify(line.link.fd(), self.keys.key(0, number as u32), interest)
        {
            self.lose(number, &error.why.to_string());
        }
    }

    /// Passes a get to the run of the other job.
    fn get(&mut self, request: Request, now: u64, poller: &Poller) {
        let jobid = request.other_job().unwrap_or_default();
        let opened = match visit(&jobid) {
            Ok(fd) => {
                self.add(Connection::new(fd, Purpose::Value), poller).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(number) => {
                self.line(number).link.push(request);
                self.pump(number, now, poller);
            }
            Err(why) => self.answers.extend(request.failed(&unreachable_run(&jobid, &why))),
        }
    }

    /// Closes a failed connection. Its requests fail, and its names are removed.
    fn lose(&mut self, number: usize, why: &str) {
        let Some(line) = self.links[number].take() else { return };
        let text = format!("the name server at {} is lost: {why}", self.path.display());
        if !line.link.purpose().is_single() {
            self.news.push(format!("{text}; all names published there are withdrawn"));
        }
        let failed = |request: &Request| match line.link.purpose() {
            Purpose::Value => request.failed(&unreachable_run(&request.other_job().unwrap_or_default(), why)),
            _ => request.failed(&text),
        };
        self.answers.extend(line.link.requests().filter_map(failed));
    }
}

/// Returns the reason of a failed get at another run.
fn unreachable_run(jobid: &str, why: &str) -> String {
    format!("cannot reach the run of job {jobid}: {why}")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use hydrant_control::query_name;
    use hydrant_core::UpcallId;
    use hydrant_core::wire::Protocol;

    use super::*;

    const JOB: JobId = JobId(0);
    /// Time of its join.
    const JOINED: u64 = 100;

    /// Runs a test with a client of a name server that accepts no connection.
    fn with_client(test: impl FnOnce(NameClient, &str, &UnixListener, &Poller)) {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let jobid = format!("kvs_{}_{count}_client", std::process::id());
        let path = std::env::temp_dir().join(format!("hydrant-{jobid}"));
        let listener = UnixListener::bind(&path).unwrap();
        let poller = Poller::new().unwrap();
        let client = NameClient::join(&path, Some((JOB, &jobid)), KeyRange(3), JOINED, &poller);
        std::fs::remove_file(&path).unwrap();
        test(client.unwrap(), &jobid, &listener, &poller);
    }

    // Fault: The daemons of a run take more than 10 s to start, or it publishes no name within 10 s
    // Outcome: its connection to the name server stays
    // Guarantee: The connection of each job introduces itself when it opens
    #[test]
    fn the_connection_of_a_job_introduces_itself_at_once() {
        with_client(|_client, _, listener, _| {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            assert_eq!(line, "cmd=init pmi_version=2 pmi_subversion=0\n");
        });
    }

    // Fault: A run to which another one is connected is stopped
    // Outcome: a get fails after 10 s; other requests are served
    // Guarantee: Each get at another run has its own connection and deadline
    #[test]
    fn a_run_that_does_not_answer_fails_the_get() {
        with_client(|mut client, jobid, _, poller| {
            let body = format!("cmd=kvs-get;jobid={jobid};key=k;").into_bytes();
            let (upcall, rank, protocol) = (Some(UpcallId(7)), Rank(1), Protocol::V2);
            let get = Request { upcall, job: JOB, rank, protocol, body, wait: 0 };
            let failed = |client: &mut NameClient, why: &str| {
                let Answer { upcall, rc, text } = client.answer().expect("the get has failed");
                assert_eq!((upcall, rc), (UpcallId(7), -1));
                let text = String::from_utf8(text).unwrap();
                assert!(text.starts_with(&format!("cannot reach the run of job {jobid}: {why}")), "{text}");
            };
            let of_job = client.deadline();
            client.get(get.clone(), 0, poller);
            failed(&mut client, "Connection refused");
            let name = SocketAddr::from_abstract_name(query_name(jobid, 0)).unwrap();
            let _stopped = UnixListener::bind_addr(&name).unwrap();
            client.get(get.clone(), 5, poller);
            assert_eq!(client.answer(), None);
            let at = client.deadline().unwrap();
            client.expire(at - 1);
            assert_eq!(client.answer(), None);
            client.expire(at);
            failed(&mut client, "it does not answer");
            assert_eq!(client.deadline(), of_job);
            // The end of the job ends its gets.
            client.get(get, 5, poller);
            client.forget(JOB);
            assert_eq!(client.answer().unwrap().text, b"no rank waits for it");
        });
    }
}
