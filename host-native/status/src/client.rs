//! Blocking client of status sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hydrant_reactor::local;
use rustix::process::geteuid;

use crate::address::{self, Address};
use crate::protocol::{REPLY_MAX, Reply, Request, decode, encode, message_len};
use crate::record::{Job, Rank, Run};
use crate::{Error, time_left};

/// Time for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the runs of this user, by process id.
///
/// # Errors
/// The list of sockets cannot be read.
pub fn addresses() -> Result<Vec<Address>, Error> {
    address::list(geteuid().as_raw()).map_err(Error::List)
}

/// Finds the run with this process id, or the only one whose process id begins so.
///
/// # Errors
/// No run or several runs fit.
pub fn find(job: &str) -> Result<Address, Error> {
    select(addresses()?, job)
}

fn select(all: Vec<Address>, job: &str) -> Result<Address, Error> {
    let exact = all.iter().position(|address| address.pid.to_string() == job);
    let mut fitting: Vec<Address> = match exact {
        Some(at) => vec![all[at].clone()],
        None => all.into_iter().filter(|address| address.pid.to_string().starts_with(job)).collect(),
    };
    match (fitting.pop(), fitting.is_empty()) {
        (Some(address), true) if !job.is_empty() => Ok(address),
        (Some(last), false) if !job.is_empty() => {
            let candidates = fitting.iter().chain([&last]).map(|address| address.pid).collect();
            Err(Error::Ambiguous { job: job.to_owned(), candidates })
        }
        _ => Err(Error::NoSuchRun(job.to_owned())),
    }
}

/// Asks all runs of this user at once. A run that does not answer has none.
///
/// # Errors
/// The list of sockets cannot be read.
pub fn runs() -> Result<Vec<(u32, Option<Run>)>, Error> {
    let asked = |address: Address| {
        let mut connection = Connection::open(&address).ok()?;
        connection.send(&Request::Run).ok()?;
        Some((address.pid, connection))
    };
    let asked: Vec<_> = addresses()?.into_iter().filter_map(asked).collect();
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let answer = |(pid, mut connection): (u32, Connection)| match connection.receive(Some(deadline)) {
        Ok(Reply::Run(run)) => Some((pid, Some(run))),
        Err(Error::Timeout { .. }) => Some((pid, None)),
        // It has just ended, or is not one of hydrant's.
        _ => None,
    };
    Ok(asked.into_iter().filter_map(answer).collect())
}

/// Connection to a run.
#[derive(Debug)]
pub struct Connection {
    pid: u32,
    stream: UnixStream,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects to a run without waiting.
    ///
    /// # Errors
    /// The run has ended, its queue of connections is full, or it is another user's.
    pub fn open(address: &Address) -> Result<Connection, Error> {
        let connect = || -> io::Result<UnixStream> {
            let stream = local::connect_now(address.name())?;
            stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
            Ok(stream)
        };
        let stream = connect().map_err(|why| match why.kind() {
            io::ErrorKind::WouldBlock => Error::Timeout { pid: address.pid },
            _ => Error::Connect { pid: address.pid, why },
        })?;
        Ok(Connection { pid: address.pid, stream })
    }

    /// Process id of the run.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a request and waits for the reply, for 5 s at most.
    ///
    /// # Errors
    /// No reply arrived, or the run refused the request.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        self.ask_for(request, REPLY_TIMEOUT)
    }

    /// Sends a request and waits for the reply, for a time at most.
    ///
    /// # Errors
    /// No reply arrived, or the run refused the request.
    pub fn ask_for(&mut self, request: &Request, time: Duration) -> Result<Reply, Error> {
        self.send(request)?;
        match self.receive(Some(Instant::now() + time))? {
            Reply::Refused(why) => Err(Error::Refused { pid: self.pid, why }),
            reply => Ok(reply),
        }
    }

    /// Returns the run.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn run(&mut self) -> Result<Run, Error> {
        match self.ask(&Request::Run)? {
            Reply::Run(run) => Ok(run),
            _ => Err(Error::Reply { pid: self.pid }),
        }
    }

    /// Returns all running jobs.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn jobs(&mut self) -> Result<Vec<Job>, Error> {
        let mut jobs: Vec<Job> = Vec::new();
        loop {
            let from = jobs.last().map_or(Some(0), |job| job.number.checked_add(1));
            let Some(from) = from else { return Ok(jobs) };
            match self.ask(&Request::Job(from))? {
                Reply::Job(Some(job)) if job.number >= from => jobs.push(job),
                Reply::Job(None) => return Ok(jobs),
                _ => return Err(Error::Reply { pid: self.pid }),
            }
        }
    }

    /// Returns all ranks of a job.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn ranks(&mut self, job: &Job) -> Result<Vec<Rank>, Error> {
        let mut ranks: Vec<Rank> = Vec::new();
        while (ranks.len() as u32) < job.ranks {
            let first = ranks.len() as u32;
            match self.ask(&Request::Ranks { job: job.number, first })? {
                // The job has ended.
                Reply::Ranks(more) if more.is_empty() => break,
                Reply::Ranks(more) if more[0].rank == first => ranks.extend(more),
                _ => return Err(Error::Reply { pid: self.pid }),
            }
        }
        Ok(ranks)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The run has closed the connection or does not read.
    pub fn send(&mut self, request: &Request) -> Result<(), Error> {
        self.stream.write_all(&encode(request)).map_err(|why| self.failed(&why))
    }

    /// Waits for a reply until a time, or without end.
    ///
    /// # Errors
    /// No reply arrived, or the connection closed.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Result<Reply, Error> {
        let mut message = vec![0; 4];
        self.fill(&mut message, deadline)?;
        let len = message_len(&message).unwrap_or(0);
        if len > REPLY_MAX + 4 {
            return Err(Error::Reply { pid: self.pid });
        }
        message.resize(len, 0);
        self.fill(&mut message[4..], deadline)?;
        decode(&message).ok_or(Error::Reply { pid: self.pid })
    }

    fn fill(&mut self, mut rest: &mut [u8], deadline: Option<Instant>) -> Result<(), Error> {
        while !rest.is_empty() {
            let left = deadline.map(time_left);
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::Timeout { pid: self.pid });
            }
            self.stream.set_read_timeout(left).map_err(|why| self.failed(&why))?;
            match self.stream.read(rest) {
                Ok(0) => return Err(Error::Closed { pid: self.pid }),
                Ok(len) => rest = &mut rest[len..],
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(self.failed(&why)),
            }
        }
        Ok(())
    }

    fn failed(&self, why: &io::Error) -> Error {
        match why.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout { pid: self.pid },
            _ => Error::Closed { pid: self.pid },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_its_pid_or_a_unique_prefix() {
        let all = || vec![Address::new(1, 12, 0), Address::new(1, 123, 0), Address::new(1, 45, 0)];
        let pid = |job: &str| select(all(), job).map(|address| address.pid).map_err(|e| e.to_string());
        assert_eq!(pid("12"), Ok(12));
        assert_eq!(pid("4"), Ok(45));
        assert_eq!(pid("1"), Err("1 could be each of 12, 123".to_owned()));
        assert_eq!(pid("9"), Err("no running job 9".to_owned()));
        assert_eq!(pid(""), Err("no running job ".to_owned()));
    }
}
