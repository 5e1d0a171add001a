//! Connection of a daemon to its parent.

use std::os::fd::OwnedFd;

use hydrant_reactor::{Error, Interest, Key, NO_SIGPIPE, Poller};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, getpeername, recv, send};

use crate::bootstrap::{ANSWER_LEN, DaemonSpec, QUESTION_LEN, Question};
use crate::error::{AttemptError, ConnectError};
use crate::link::{Channel, Initiator, Link, RESPONSE_LEN, start_connect};

/// Number of the head.
const HEAD: u32 = 0;
/// Time limit of one attempt in milliseconds.
const ATTEMPT_TIMEOUT: u64 = 10_000;
/// First and longest delay between rounds in milliseconds. The delay doubles with each round.
const DELAY_MIN: u64 = 50;
const DELAY_MAX: u64 = 1_000;

/// Connects to the parent, by one address after the other.
#[derive(Debug)]
pub(super) struct Connector {
    spec: DaemonSpec,
    /// Question to the head for the parent's addresses, with its bytes. `spec.addrs` are the head's until the answer.
    question: Option<(Question, [u8; QUESTION_LEN])>,
    /// Message behind the proof.
    says: Option<Vec<u8>>,
    key: Key,
    /// Index of the current address.
    address: usize,
    attempt: Option<Attempt>,
    /// Time of the next round.
    next_round: Option<u64>,
    delay: u64,
    /// The parent was reached at an address in this round, but did not accept.
    reached: bool,
    deadline: u64,
}

/// Connection attempt at one address.
#[derive(Debug)]
struct Attempt {
    fd: OwnedFd,
    deadline: u64,
    /// Set after the connection is made.
    sent: Option<Sent>,
    response: [u8; ANSWER_LEN],
    len: usize,
}

/// First message of a connection.
#[derive(Debug)]
enum Sent {
    /// To the parent.
    Initiation(Box<Initiator>),
    /// To the head.
    Question,
}

impl Sent {
    /// Bytes of the response.
    fn response_len(&self) -> usize {
        match self {
            Sent::Initiation(_) => RESPONSE_LEN,
            Sent::Question => ANSWER_LEN,
        }
    }
}

impl Connector {
    /// `says` is a message on [`Channel::Link`] that the parent gets with the proof.
    pub(super) fn new(
        spec: DaemonSpec,
        says: Option<Vec<u8>>,
        key: Key,
        now: u64,
    ) -> Result<Connector, Error> {
        let deadline = now + spec.settings.join_timeout;
        let question = spec.step.as_ref();
        let question =
            question.map(|step| Question::new(&step.question, spec.node, &step.own)).transpose()?;
        Ok(Connector {
            spec,
            question,
            says,
            key,
            address: 0,
            attempt: None,
            next_round: Some(now),
            delay: DELAY_MIN,
            reached: false,
            deadline,
        })
    }

    pub(super) fn parent(&self) -> u32 {
        self.spec.parent
    }

    /// Whether the parent has got a message with the proof.
    pub(super) fn says_something(&self) -> bool {
        self.says.is_some()
    }

    pub(super) fn deadline(&self) -> u64 {
        let attempt = self.attempt.as_ref().map(|attempt| attempt.deadline);
        attempt.into_iter().chain(self.next_round).fold(self.deadline, u64::min)
    }

    /// Continues until it would block. Returns the link when the handshake is complete.
    ///
    /// # Errors
    /// No address leads to the parent, or the time limit for joining has ended.
    pub(super) fn advance(&mut self, now: u64, poller: &Poller) -> Result<Option<Link>, ConnectError> {
        loop {
            if let Some(attempt) = &mut self.attempt {
                let question = self.question.as_ref().map(|(_, bytes)| &bytes[..]);
                let error = match attempt.advance(&self.spec, question, self.key, poller) {
                    Ok(true) if self.question.is_some() => {
                        self.learn(now)?;
                        continue;
                    }
                    Ok(true) => match self.finish(now)? {
                        Some(link) => return Ok(Some(link)),
                        None => continue,
                    },
                    Ok(false) if now < attempt.deadline.min(self.deadline) => return Ok(None),
                    Ok(false) => AttemptError::Timeout,
                    Err(error) => error,
                };
                self.attempt = None;
                self.attempt_failed(now, error)?;
            }
            match self.next_round {
                Some(at) if at > now => return Ok(None),
                _ => self.next_round = None,
            }
            if let Err(errno) = self.start_attempt(now, poller) {
                self.attempt_failed(now, AttemptError::System(errno))?;
            }
        }
    }

    fn start_attempt(&mut self, now: u64, poller: &Poller) -> Result<(), Errno> {
        let fd = start_connect(self.spec.addrs[self.address], self.spec.settings.heartbeat_timeout)?;
        poller.add(&fd, self.key, Interest::Write)?;
        let deadline = (now + ATTEMPT_TIMEOUT).min(self.deadline);
        self.attempt = Some(Attempt { fd, deadline, sent: None, response: [0; ANSWER_LEN], len: 0 });
        Ok(())
    }

    /// Moves on to the next address. After a round in which no address led to the parent, connecting fails, because the
    /// parent listens before it starts a daemon. If the parent closed a connection or did not respond, it had too many
    /// incoming connections, and another round follows.
    fn attempt_failed(&mut self, now: u64, error: AttemptError) -> Result<(), ConnectError> {
        self.reached |= matches!(error, AttemptError::Closed | AttemptError::Timeout);
        let addr = self.spec.addrs[self.address];
        self.address = (self.address + 1) % self.spec.addrs.len();
        if self.address == 0 {
            if !std::mem::take(&mut self.reached) || now >= self.deadline {
                let head = self.spec.step.as_ref().filter(|_| self.question.is_some());
                let (host, node) = match head {
                    Some(step) => (step.head.clone(), 0),
                    None => (self.spec.parent_host.clone(), self.spec.parent),
                };
                return Err(ConnectError { host, node, addr, error });
            }
            self.next_round = Some(now + self.delay);
            self.delay = (self.delay * 2).min(DELAY_MAX);
        }
        Ok(())
    }

    /// The parent closed the connection before it had read the proof: it had too many incoming connections.
    pub(super) fn refused(&mut self, now: u64) -> Result<(), ConnectError> {
        self.attempt_failed(now, AttemptError::Closed)
    }

    /// Takes the head's answer. Without addresses of the parent, which has not asked yet itself, another round follows.
    fn learn(&mut self, now: u64) -> Result<(), ConnectError> {
        let answer = self.attempt.take().map(|attempt| attempt.response);
        let known =
            answer.zip(self.question.as_ref()).map(|(answer, (question, _))| question.answered(&answer));
        match known.flatten() {
            Some(addrs) if addrs.is_empty() => self.attempt_failed(now, AttemptError::Closed),
            Some(addrs) => {
                // The head is there where it has answered. It may call itself otherwise.
                if self.spec.parent != HEAD {
                    self.spec.addrs = addrs;
                }
                (self.question, self.address, self.delay) = (None, 0, DELAY_MIN);
                self.next_round = Some(now);
                Ok(())
            }
            None => self.attempt_failed(now, AttemptError::Foreign),
        }
    }

    fn finish(&mut self, now: u64) -> Result<Option<Link>, ConnectError> {
        let Some(Attempt { fd, sent: Some(Sent::Initiation(initiator)), response, .. }) = self.attempt.take()
        else {
            return Ok(None);
        };
        let response = response.first_chunk().expect("a response is shorter than an answer");
        let Ok(noise) = initiator.finish(response) else {
            self.attempt_failed(now, AttemptError::Foreign)?;
            return Ok(None);
        };
        let mut link = Link::new(fd, noise, now);
        // The empty message is the proof that the parent waits for.
        let mut messages = std::iter::once(&[][..]).chain(self.says.as_deref());
        let proved = messages.try_for_each(|message| link.send(now, Channel::Link, message).map(drop));
        match proved.and_then(|()| link.flush()) {
            Ok(_) => Ok(Some(link)),
            Err(_) => self.attempt_failed(now, AttemptError::Closed).map(|()| None),
        }
    }
}

impl Attempt {
    /// Continues until it would block. Returns whether the response is complete.
    fn advance(
        &mut self,
        spec: &DaemonSpec,
        question: Option<&[u8]>,
        key: Key,
        poller: &Poller,
    ) -> Result<bool, AttemptError> {
        if self.sent.is_none() {
            match socket_error(&self.fd).and_then(|failed| failed).and_then(|()| getpeername(&self.fd)) {
                Ok(_) => {}
                Err(Errno::NOTCONN) => return Ok(false),
                Err(Errno::CONNRESET) => return Err(AttemptError::Closed),
                Err(errno) => return Err(AttemptError::System(errno)),
            }
            let initiation;
            let (sent, bytes) = match question {
                Some(bytes) => (Sent::Question, bytes),
                None => {
                    let (initiator, bytes) = Initiator::new(&spec.link_identity(), &spec.secret);
                    initiation = bytes;
                    (Sent::Initiation(Box::new(initiator)), &initiation[..])
                }
            };
            match send(&self.fd, bytes, SendFlags::DONTWAIT | NO_SIGPIPE) {
                // The send buffer of a new socket has space for the message.
                Ok(len) if len == bytes.len() => {}
                Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET | Errno::PIPE) => {
                    return Err(AttemptError::Closed);
                }
                Err(errno) => return Err(AttemptError::System(errno)),
            }
            self.sent = Some(sent);
            poller
                .modify(&self.fd, key, Interest::Read)
                .map_err(|error| AttemptError::System(error.into()))?;
        }
        // Bytes behind a response belong to the link.
        let size = self.sent.as_ref().map_or(0, Sent::response_len);
        while self.len < size {
            match recv(&self.fd, &mut self.response[self.len..size], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(AttemptError::Closed),
                Ok((len, _)) => self.len += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(AttemptError::System(errno)),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::time::{Duration, Instant};

    use hydrant_core::peer::tree::Tree;
    use hydrant_placement::Host;
    use hydrant_reactor::stream_socket;
    use rustix::net::{AddressFamily, bind, getsockname};

    use super::*;
    use crate::bootstrap::DaemonSettings;
    use crate::link::{INITIATION_LEN, OverlayId, Secret, respond};

    fn spec(addrs: &[SocketAddr]) -> DaemonSpec {
        DaemonSpec {
            overlay: OverlayId::random().unwrap(),
            secret: Secret::random().unwrap(),
            node: 1,
            parent: 0,
            addrs: addrs.to_vec(),
            parent_host: "head".to_owned(),
            tree: Tree::new(2, 2),
            hosts: vec![Host::new("here")],
            settings: DaemonSettings {
                bootstrap: hydrant_placement::Bootstrap::Local,
                bootstrap_exec: None,
                bootstrap_args: Vec::new(),
                program: "hydrant".into(),
                iface: None,
                heartbeat_timeout: 30_000,
                join_timeout: 60_000,
            },
            step: None,
            inherited: None,
        }
    }

    /// Continues until the connector is done. Delays pass at once.
    fn connect(
        connector: &mut Connector,
        mut done: impl FnMut() -> bool,
    ) -> Result<Option<Link>, ConnectError> {
        let poller = Poller::new().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut now = 0;
        loop {
            now = connector.next_round.unwrap_or(now);
            if let Some(link) = connector.advance(now, &poller)? {
                return Ok(Some(link));
            }
            if done() {
                return Ok(None);
            }
            assert!(Instant::now() < deadline, "timeout");
        }
    }

    /// An address that refuses connections. The socket keeps its port from others, and does not listen.
    fn closed_address() -> (OwnedFd, SocketAddr) {
        let socket = stream_socket(AddressFamily::INET).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = getsockname(&socket).unwrap().try_into().unwrap();
        (socket, addr)
    }

    #[test]
    fn closed_addresses_are_tried_once() {
        let (_first, first) = closed_address();
        let (_second, second) = closed_address();
        let spec = spec(&[first, second]);
        let last = spec.addrs[1];
        let error =
            connect(&mut Connector::new(spec, None, Key(0), 0).unwrap(), || false).unwrap_err().to_string();
        let expected = format!("cannot reach host head (node 0), the parent of this daemon, at {last}: ");
        assert!(error.starts_with(&expected) && error.contains("Connection refused"), "{error}");
    }

    #[test]
    fn a_refused_daemon_connects_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (_closed, closed) = closed_address();
        let spec = spec(&[closed, listener.local_addr().unwrap()]);
        let (identity, secret) = (spec.link_identity(), spec.secret.clone());
        let mut kept = Vec::new();
        let mut accepted = 0;
        let link = connect(&mut Connector::new(spec, None, Key(0), 0).unwrap(), || {
            if let Ok((mut stream, _)) = listener.accept() {
                accepted += 1;
                if accepted == 3 {
                    stream.set_nonblocking(false).unwrap();
                    let mut initiation = [0; INITIATION_LEN];
                    stream.read_exact(&mut initiation).unwrap();
                    stream.write_all(&respond(&identity, &secret, &initiation).unwrap().1).unwrap();
                    kept.push(stream);
                }
            }
            false
        });
        assert!(link.unwrap().is_some() && accepted == 3);
    }

    #[test]
    fn a_response_without_the_secret_is_rejected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut kept = Vec::new();
        let mut connector = Connector::new(spec(&[listener.local_addr().unwrap()]), None, Key(0), 0).unwrap();
        let error = connect(&mut connector, || {
            if let Ok((mut stream, _)) = listener.accept() {
                stream.write_all(&[7; RESPONSE_LEN]).unwrap();
                kept.push(stream);
            }
            false
        });
        assert!(error.unwrap_err().to_string().ends_with("the response is not from this job"));
    }
}
