//! Connections of a run to the name server of another process.
//!
//! Each job that publishes has its own connection, so that its names are removed when the job ends. Each look-up has
//! its own connection, so that a look-up that waits delays no other. No function blocks.

use std::path::{Path, PathBuf};

use hydrant_core::JobId;
use hydrant_reactor::{Interest, Key, KeyRange, Poller};

use super::NameServiceError;
use super::request::{Answer, Connection, Purpose, Request};
use super::socket::join;

/// The connections of a run.
#[derive(Debug)]
pub struct NameClient {
    /// The daemon's socket.
    path: PathBuf,
    keys: KeyRange,
    /// Connections by number. Gaps are free.
    links: Vec<Option<Line>>,
    answers: Vec<Answer>,
    /// Messages for the user.
    news: Vec<String>,
}

#[derive(Debug)]
struct Line {
    link: Connection,
    purpose: Purpose,
    /// Readiness that the poller reports.
    interest: Interest,
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
        let (links, answers, news) = (Vec::new(), Vec::new(), Vec::new());
        let mut client = NameClient { path: path.to_owned(), keys, links, answers, news };
        client.open(Purpose::Names(first), poller)?;
        Ok(client)
    }

    /// Queues a request. Each request gets exactly one [answer](NameClient::answer).
    pub fn ask(&mut self, request: Request, now: u64, poller: &Poller) {
        let purpose = request.purpose();
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
        let link = Connection::new(join(&self.path)?);
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
        let text = format!("the name server at {} is lost: {why}", self.path.display());
        if matches!(line.purpose, Purpose::Names(_)) {
            self.news.push(format!("{text}; all names published there are withdrawn"));
        }
        self.answers.extend(line.link.requests().map(|request| request.failed(&text)));
    }
}
