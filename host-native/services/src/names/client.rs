//! Connections of a run to the name server.
//!
//! Each job that publishes has its own connection, so that its names are removed when the job ends. Each look-up has
//! its own connection, so that a look-up that waits delays no other. No function blocks.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hydrant_core::JobId;
use hydrant_reactor::{Error, Interest, Key, KeyRange, Poller};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::NameServiceError;
use super::request::{Answer, Connection, Request};
use super::socket::join;

/// The connections of a run.
#[derive(Debug)]
pub struct NameClient {
    service: Service,
    keys: KeyRange,
    /// Connections by number. Gaps are free.
    links: Vec<Option<Line>>,
    answers: Vec<Answer>,
    /// Messages for the user.
    news: Vec<String>,
}

/// Location of the names.
#[derive(Debug)]
enum Service {
    /// Name server with this socket.
    Server(PathBuf),
    /// In this process: ends of connections that its name service has not taken yet.
    Within(Vec<OwnedFd>),
}

impl Service {
    fn join(&mut self) -> Result<OwnedFd, NameServiceError> {
        match self {
            Service::Server(path) => join(path),
            Service::Within(fresh) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .map_err(Error::during("cannot make a socket for names"))?;
                fresh.push(theirs);
                Ok(ours)
            }
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Service::Server(path) => write!(f, "the name server at {}", path.display()),
            Service::Within(_) => f.write_str("the name server of this run"),
        }
    }
}

#[derive(Debug)]
struct Line {
    link: Connection,
    purpose: Purpose,
    /// Readiness that the poller reports.
    interest: Interest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Publish and unpublish requests of this job.
    Names(JobId),
    /// A single look-up.
    Lookup,
}

impl NameClient {
    /// Connects to the name server at `path`. The connection of the first job opens at once.
    ///
    /// # Errors
    /// [`NameServiceError::NoServer`], [`NameServiceError::Foreign`].
    pub fn join(
        path: &Path,
        first: JobId,
        keys: KeyRange,
        poller: &Poller,
    ) -> Result<NameClient, NameServiceError> {
        let mut universe = NameClient::of(Service::Server(path.to_owned()), keys);
        universe.open(Purpose::Names(first), poller)?;
        Ok(universe)
    }

    /// Names that a [`NameService`](super::NameService) in this process keeps, which is to be given its ends of connections.
    pub fn within(keys: KeyRange) -> NameClient {
        NameClient::of(Service::Within(Vec::new()), keys)
    }

    fn of(service: Service, keys: KeyRange) -> NameClient {
        NameClient { service, keys, links: Vec::new(), answers: Vec::new(), news: Vec::new() }
    }

    /// The name service's ends of connections that have been opened.
    pub fn take_fresh(&mut self) -> Vec<OwnedFd> {
        match &mut self.service {
            Service::Server(_) => Vec::new(),
            Service::Within(fresh) => std::mem::take(fresh),
        }
    }

    /// Queues a request. Each request gets exactly one [answer](NameClient::answer).
    pub fn ask(&mut self, request: Request, now: u64, poller: &Poller) {
        let purpose = if request.is_lookup() { Purpose::Lookup } else { Purpose::Names(request.job) };
        let open = |line: &Option<Line>| {
            purpose != Purpose::Lookup && line.as_ref().is_some_and(|line| line.purpose == purpose)
        };
        let number = match self.links.iter().position(open) {
            Some(number) => Ok(number),
            None => self.open(purpose, poller),
        };
        match number {
            Ok(number) => {
                self.line(number).link.push(request);
                self.pump(number, now, poller);
            }
            Err(error) => self.answers.push(request.failed(&error.to_string())),
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

    /// Drops the look-ups for which `whose` returns true.
    pub fn drop_lookups(&mut self, whose: impl Fn(&Request) -> bool) {
        for line in &mut self.links {
            let over = |line: &Line| line.purpose == Purpose::Lookup && line.link.requests().all(&whose);
            if let Some(line) = line.take_if(|line| over(line)) {
                self.answers
                    .extend(line.link.requests().map(|request| request.failed("no rank waits for it")));
            }
        }
    }

    /// Closes the connection of a job that has ended. The name server removes its names.
    pub fn forget(&mut self, job: JobId) {
        self.drop_lookups(|request| request.job == job);
        for line in &mut self.links {
            if let Some(line) = line.take_if(|line| line.purpose == Purpose::Names(job)) {
                self.answers.extend(line.link.requests().map(|request| request.failed("the job is over")));
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

    fn open(&mut self, purpose: Purpose, poller: &Poller) -> Result<usize, NameServiceError> {
        let link = Connection::new(self.service.join()?);
        let number = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        let interest = Interest::Read;
        poller.add(link.fd(), self.keys.key(0, number as u32), interest)?;
        let line = Some(Line { link, purpose, interest });
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
        if let Err(why) = line.link.pump(now, &mut self.answers) {
            return self.lose(number, &why);
        }
        if line.purpose == Purpose::Lookup && line.link.requests().next().is_none() {
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

    /// Closes a failed connection. Its requests fail, and its names are removed.
    fn lose(&mut self, number: usize, why: &str) {
        let Some(line) = self.links[number].take() else { return };
        let text = format!("{} is lost: {why}", self.service);
        if matches!(line.purpose, Purpose::Names(_)) {
            self.news.push(format!("{text}; all names published there are withdrawn"));
        }
        self.answers.extend(line.link.requests().map(|request| request.failed(&text)));
    }
}
