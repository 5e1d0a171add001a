//! A daemon's way to its parent.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use hydrant_reactor::{Interest, Key, Poller};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, getpeername, recv, send};

use crate::cluster::bootstrap::Record;
use crate::cluster::link::{ANSWER, Channel, Link, Opening, start_connect};

/// How long one address may take to let somebody in, in milliseconds.
const ATTEMPT_TIME: u64 = 10_000;
/// How long the first pause is, in milliseconds, and the longest; each is twice as long as the one before.
const PAUSE: u64 = 50;
const PAUSE_MAX: u64 = 1_000;

/// The parent cannot be reached, by any of its addresses.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach host {host} (node {node}), which has started this daemon, at {addr}: {why}")]
pub(crate) struct DialError {
    host: String,
    node: u32,
    addr: SocketAddr,
    why: Reason,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    System(Errno),
    #[error("it does not answer")]
    Late,
    #[error("it closed the connection")]
    Closed,
    #[error("what answers there is not this job's")]
    Foreign,
}

/// Connecting, by one address after the other.
#[derive(Debug)]
pub(super) struct Dial {
    record: Record,
    key: Key,
    /// The address in use.
    at: usize,
    attempt: Option<Attempt>,
    /// When it goes on, after a round in which somebody was there at least.
    again: Option<u64>,
    pause: u64,
    /// In this round something answered.
    met: bool,
    deadline: u64,
}

#[derive(Debug)]
struct Attempt {
    fd: OwnedFd,
    give_up: u64,
    /// Made when the connection is.
    opening: Option<Opening>,
    bytes: [u8; ANSWER],
    len: usize,
}

impl Dial {
    pub(super) fn new(record: Record, key: Key, now: u64) -> Dial {
        let deadline = now + record.settings.start_time;
        let pause = PAUSE;
        Dial { record, key, at: 0, attempt: None, again: Some(now), pause, met: false, deadline }
    }

    pub(super) fn parent(&self) -> u32 {
        self.record.parent
    }

    pub(super) fn deadline(&self) -> u64 {
        let attempt = self.attempt.as_ref().map(|attempt| attempt.give_up);
        attempt.into_iter().chain(self.again).fold(self.deadline, u64::min)
    }

    /// Goes on; the link when it is made.
    pub(super) fn pump(&mut self, now: u64, poller: &Poller) -> Result<Option<Link>, DialError> {
        loop {
            if let Some(attempt) = &mut self.attempt {
                let why = match attempt.step(&self.record, self.key, poller) {
                    Ok(true) => match self.finish(now)? {
                        Some(link) => return Ok(Some(link)),
                        None => continue,
                    },
                    Ok(false) if now < attempt.give_up.min(self.deadline) => return Ok(None),
                    Ok(false) => Reason::Late,
                    Err(why) => why,
                };
                self.attempt = None;
                self.fail(now, why)?;
            }
            match self.again {
                Some(at) if at > now => return Ok(None),
                _ => self.again = None,
            }
            if let Err(errno) = self.begin(now, poller) {
                self.fail(now, Reason::System(errno))?;
            }
        }
    }

    fn begin(&mut self, now: u64, poller: &Poller) -> Result<(), Errno> {
        let fd = start_connect(self.record.addrs[self.at], self.record.settings.timeout)?;
        poller.add(&fd, self.key, Interest::Write)?;
        let give_up = (now + ATTEMPT_TIME).min(self.deadline);
        self.attempt = Some(Attempt { fd, give_up, opening: None, bytes: [0; ANSWER], len: 0 });
        Ok(())
    }

    /// An address has failed: the next one's turn. Where none of them is good for anything it ends here, because the
    /// parent listens before it starts anybody. One that was there and hung up had too many others at the door.
    fn fail(&mut self, now: u64, why: Reason) -> Result<(), DialError> {
        self.met |= matches!(why, Reason::Closed | Reason::Late);
        let addr = self.record.addrs[self.at];
        self.at = (self.at + 1) % self.record.addrs.len();
        if self.at == 0 {
            if !std::mem::take(&mut self.met) || now >= self.deadline {
                let (host, node) = (self.record.parent_host.clone(), self.record.parent);
                return Err(DialError { host, node, addr, why });
            }
            self.again = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// The parent has hung up before it had heard the proof: it had too many others at the door.
    pub(super) fn turned_away(&mut self, now: u64) -> Result<(), DialError> {
        self.fail(now, Reason::Closed)
    }

    fn finish(&mut self, now: u64) -> Result<Option<Link>, DialError> {
        let Some(Attempt { fd, opening: Some(opening), bytes, .. }) = self.attempt.take() else {
            return Ok(None);
        };
        let Ok(noise) = opening.finish(&bytes) else {
            self.fail(now, Reason::Foreign)?;
            return Ok(None);
        };
        let mut link = Link::new(fd, noise, now);
        // An empty message: the parent waits for this proof.
        let proved = link.send(now, Channel::Link, &[]).and_then(|_| link.flush());
        match proved {
            Ok(_) => Ok(Some(link)),
            Err(_) => self.fail(now, Reason::Closed).map(|()| None),
        }
    }
}

impl Attempt {
    /// Whether the answer has come.
    fn step(&mut self, record: &Record, key: Key, poller: &Poller) -> Result<bool, Reason> {
        if self.opening.is_none() {
            match socket_error(&self.fd).and_then(|failed| failed).and_then(|()| getpeername(&self.fd)) {
                Ok(_) => {}
                Err(Errno::NOTCONN) => return Ok(false),
                Err(Errno::CONNRESET) => return Err(Reason::Closed),
                Err(errno) => return Err(Reason::System(errno)),
            }
            let (opening, bytes) = Opening::new(&record.ends(), &record.secret);
            match send(&self.fd, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // A fresh socket has room for an opening.
                Ok(len) if len == bytes.len() => {}
                Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET | Errno::PIPE) => return Err(Reason::Closed),
                Err(errno) => return Err(Reason::System(errno)),
            }
            self.opening = Some(opening);
            poller.modify(&self.fd, key, Interest::Read).map_err(|error| Reason::System(error.into()))?;
        }
        while self.len < ANSWER {
            match recv(&self.fd, &mut self.bytes[self.len..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(Reason::Closed),
                Ok((len, _)) => self.len += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(Reason::System(errno)),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use hydrant_core::peer::tree::Tree;
    use hydrant_placement::Host;

    use super::*;
    use crate::cluster::bootstrap::Settings;
    use crate::cluster::link::{JobKey, OPENING, Secret, answer};

    fn record(addrs: &[SocketAddr]) -> Record {
        Record {
            job: JobKey::random().unwrap(),
            secret: Secret::random().unwrap(),
            node: 1,
            parent: 0,
            addrs: addrs.to_vec(),
            parent_host: "head".to_owned(),
            tree: Tree::new(2, 2),
            hosts: vec![Host::new("here")],
            settings: Settings {
                bootstrap: hydrant_placement::Bootstrap::Local,
                bootstrap_exec: None,
                program: "hydrant".into(),
                iface: None,
                timeout: 30_000,
                start_time: 60_000,
            },
        }
    }

    /// Goes on until it is done, with the pauses that it asks for passing at once.
    fn dial(dial: &mut Dial, mut done: impl FnMut() -> bool) -> Result<Option<Link>, DialError> {
        let poller = Poller::new().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut now = 0;
        loop {
            now = dial.again.unwrap_or(now);
            if let Some(link) = dial.pump(now, &poller)? {
                return Ok(Some(link));
            }
            if done() {
                return Ok(None);
            }
            assert!(Instant::now() < deadline, "it does not come about");
        }
    }

    fn refusing() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn where_nobody_listens_there_is_no_second_try() {
        let record = record(&[refusing(), refusing()]);
        let last = record.addrs[1];
        let error = dial(&mut Dial::new(record, Key(0), 0), || false).unwrap_err().to_string();
        let expected = format!("cannot reach host head (node 0), which has started this daemon, at {last}: ");
        assert!(error.starts_with(&expected) && error.contains("Connection refused"), "{error}");
    }

    #[test]
    fn who_is_turned_away_comes_again_and_other_addresses_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let record = record(&[refusing(), listener.local_addr().unwrap()]);
        let (ends, secret) = (record.ends(), record.secret.clone());
        let mut kept = Vec::new();
        let mut met = 0;
        let link = dial(&mut Dial::new(record, Key(0), 0), || {
            if let Ok((mut stream, _)) = listener.accept() {
                met += 1;
                if met == 3 {
                    stream.set_nonblocking(false).unwrap();
                    let mut opening = [0; OPENING];
                    stream.read_exact(&mut opening).unwrap();
                    stream.write_all(&answer(&ends, &secret, &opening).unwrap().1).unwrap();
                    kept.push(stream);
                }
            }
            false
        });
        assert!(link.unwrap().is_some() && met == 3);
    }

    #[test]
    fn an_answer_without_the_secret_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut kept = Vec::new();
        let mut dialing = Dial::new(record(&[listener.local_addr().unwrap()]), Key(0), 0);
        let error = dial(&mut dialing, || {
            if let Ok((mut stream, _)) = listener.accept() {
                stream.write_all(&[7; ANSWER]).unwrap();
                kept.push(stream);
            }
            false
        });
        assert!(error.unwrap_err().to_string().ends_with("what answers there is not this job's"));
    }
}
