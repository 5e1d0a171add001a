//! Enrolment at a host.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use hydrant_core::trace::SignalName;
use hydrant_reactor::{Error, Interest, Key, NO_SIGPIPE, Reactor, signals};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Signal;

use super::hello::{HELLO_LEN, MAGIC, VERDICT_LEN, VERSION_LEN, Verdict, version_field, version_text};
use super::{Application, Decision, EnrolError, identity};
use crate::HEARTBEAT_DEFAULT;
use crate::bootstrap::DaemonSpec;
use crate::error::{AttemptError, LinkError};
use crate::link::{Channel, Initiator, Link, RECEIVE_BUFFER_MIN, Secret, start_connect};

const SIGNALS: Key = Key(0);
const CONNECTION: Key = Key(1);
/// Time limit of one attempt in milliseconds.
const ATTEMPT_TIMEOUT: u64 = 10_000;
/// First and longest delay between rounds in milliseconds. The delay doubles with each round.
const DELAY_MIN: u64 = 50;
const DELAY_MAX: u64 = 1_000;

/// A host that joins a run.
#[derive(Clone)]
pub struct Applicant {
    /// Where the head listens: a name or an address, and a port.
    pub address: String,
    /// Secret of the run, or of this host.
    pub secret: [u8; 32],
    /// Number of the host, from 0.
    pub index: Option<u32>,
    /// What the host offers.
    pub application: Application,
    /// Milliseconds until the head has to answer. It may not run yet.
    pub timeout: u64,
}

/// Without the secret.
impl fmt::Debug for Applicant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Applicant { address, index, application, timeout, .. } = self;
        f.debug_struct("Applicant")
            .field("address", address)
            .field("index", index)
            .field("application", application)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// Why there is no connection.
enum Failed {
    /// The head may not run yet.
    Passing(String),
    /// The run has all its hosts. Another one may follow at the address.
    Full,
    /// Another attempt fails likewise.
    Final(EnrolError),
}

impl From<EnrolError> for Failed {
    fn from(error: EnrolError) -> Failed {
        Failed::Final(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Final(error.into())
    }
}

impl From<AttemptError> for Failed {
    fn from(error: AttemptError) -> Failed {
        Failed::Passing(error.to_string())
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        match errno {
            Errno::CONNRESET | Errno::PIPE => AttemptError::Closed.into(),
            errno => AttemptError::System(errno).into(),
        }
    }
}

impl Applicant {
    /// Enrols this host, and waits until the run has all its hosts. Returns what the daemon of this host needs.
    ///
    /// Signals are blocked in the calling thread meanwhile. One that is to end the process is returned as an error.
    ///
    /// # Errors
    /// No head answers in time, or it does not take this host.
    pub fn enrol(&self) -> Result<DaemonSpec, EnrolError> {
        let mut reactor = Reactor::new(SIGNALS)?;
        let deadline = reactor.clock.now() + self.timeout;
        let mut delay = DELAY_MIN;
        let (link, addr) = loop {
            let why = match self.connect(&mut reactor, deadline) {
                Ok(connected) => break connected,
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(why)) => Some(why),
                Err(Failed::Full) => None,
            };
            let next = reactor.clock.now() + delay;
            wait(&mut reactor, Some(next.min(deadline)))?;
            if next >= deadline {
                let (address, millis) = (self.address.clone(), self.timeout);
                return Err(match why {
                    Some(why) => EnrolError::Unreachable { address, millis, why },
                    None => EnrolError::Full { address, millis },
                });
            }
            delay = (delay * 2).min(DELAY_MAX);
        };
        self.await_decision(&mut reactor, link, addr)
    }

    /// Tries each address once.
    fn connect(&self, reactor: &mut Reactor, deadline: u64) -> Result<(Link, SocketAddr), Failed> {
        let passing = |error: std::io::Error| Failed::Passing(error.to_string());
        let addrs: Vec<SocketAddr> = self.address.to_socket_addrs().map_err(passing)?.collect();
        let mut failed = Failed::Passing("the name has no address".to_owned());
        for addr in addrs {
            let deadline = (reactor.clock.now() + ATTEMPT_TIMEOUT).min(deadline);
            match self.attempt(reactor, addr, deadline) {
                Ok(link) => return Ok((link, addr)),
                Err(Failed::Final(error)) => return Err(Failed::Final(error)),
                Err(Failed::Full) => return Err(Failed::Full),
                Err(passing) => failed = passing,
            }
        }
        Err(failed)
    }

    fn attempt(&self, reactor: &mut Reactor, addr: SocketAddr, deadline: u64) -> Result<Link, Failed> {
        let fd = start_connect(addr, HEARTBEAT_DEFAULT.as_millis() as u64)?;
        reactor.poller.add(&fd, CONNECTION, Interest::Write)?;
        let in_time = |waited: bool| if waited { Ok(()) } else { Err(AttemptError::Timeout) };
        in_time(wait(reactor, Some(deadline))?)?;
        socket_error(&fd).and_then(|failed| failed)?;
        let secret = Secret::of(self.secret);
        let (initiator, initiation) = Initiator::new(&identity(self.index), &secret);
        let hello: [u8; HELLO_LEN] = [&MAGIC[..], &version_field(), &initiation]
            .concat()
            .try_into()
            .expect("the parts have this length");
        // The send buffer of a new socket has space for the message.
        if send(&fd, &hello, SendFlags::DONTWAIT | NO_SIGPIPE)? != HELLO_LEN {
            return Err(AttemptError::Closed.into());
        }
        reactor.poller.modify(&fd, CONNECTION, Interest::Read)?;
        let mut verdict = [0; VERDICT_LEN];
        let mut len = 0;
        while len < VERDICT_LEN {
            in_time(wait(reactor, Some(deadline))?)?;
            match recv(&fd, &mut verdict[len..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(AttemptError::Closed.into()),
                Ok((read, _)) => len += read,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.read_verdict(fd, initiator, &verdict, reactor.clock.now())
    }

    fn read_verdict(
        &self,
        fd: OwnedFd,
        initiator: Initiator,
        bytes: &[u8; VERDICT_LEN],
        now: u64,
    ) -> Result<Link, Failed> {
        let address = self.address.clone();
        let (version, response) = bytes[1..].split_at(VERSION_LEN);
        match Verdict::from_byte(bytes[0]) {
            Some(Verdict::Welcome) => {}
            Some(Verdict::Version) => {
                return Err(EnrolError::Version { address, theirs: version_text(version) }.into());
            }
            // Another run may follow at this address.
            Some(Verdict::Full) => return Err(Failed::Full),
            Some(Verdict::Secret) => return Err(EnrolError::Secret(address).into()),
            Some(Verdict::NoIndex) => return Err(EnrolError::NoIndex(address).into()),
            Some(Verdict::NoSecret) => {
                let index = self.index.unwrap_or_default();
                return Err(EnrolError::NoSecret { address, index }.into());
            }
            None => return Err(EnrolError::Foreign(address).into()),
        }
        let response = response.first_chunk().expect("a response is the rest of a verdict");
        let noise = initiator.finish(response).map_err(|_| EnrolError::Foreign(address))?;
        Ok(Link::new(fd, noise, now))
    }

    /// Sends the application, and waits for what becomes of it.
    fn await_decision(
        &self,
        reactor: &mut Reactor,
        mut link: Link,
        addr: SocketAddr,
    ) -> Result<DaemonSpec, EnrolError> {
        let ended = |error| EnrolError::Ended { address: self.address.clone(), error };
        let application = postcard::to_stdvec(&self.application);
        let application = application.expect("postcard encodes every field of an application");
        link.send(reactor.clock.now(), Channel::Control, &application).map_err(ended)?;
        while link.is_blocked() {
            link.flush().map_err(ended)?;
            if link.is_blocked() {
                reactor.poller.modify(link.fd(), CONNECTION, Interest::Write)?;
                wait(reactor, None)?;
            }
        }
        reactor.poller.modify(link.fd(), CONNECTION, Interest::Read)?;
        let (mut buffer, mut messages) = (vec![0; RECEIVE_BUFFER_MIN], Vec::new());
        while messages.is_empty() {
            wait(reactor, None)?;
            let received =
                link.receive(reactor.clock.now(), &mut buffer, |_, message| messages.push(message));
            received.map_err(ended)?;
        }
        match postcard::from_bytes(&messages[0]) {
            Ok(Decision::Record(record)) => Ok(DaemonSpec::of_record(&record)?.with_head_at(addr)),
            Ok(Decision::Refused(why)) => Err(EnrolError::Refused { address: self.address.clone(), why }),
            Err(_) => Err(ended(LinkError::Malformed)),
        }
    }
}

/// Waits for the connection, or for the deadline. Returns whether the connection is ready.
fn wait(reactor: &mut Reactor, deadline: Option<u64>) -> Result<bool, EnrolError> {
    let mut keys = Vec::new();
    loop {
        let timeout = reactor.clock.timeout([deadline]);
        reactor.poller.wait(timeout, &mut keys)?;
        if keys.contains(&SIGNALS)
            && let Some(signal) = end_signal(reactor)?
        {
            return Err(EnrolError::Signal(SignalName(signal.as_raw())));
        }
        if keys.contains(&CONNECTION) {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| deadline <= reactor.clock.now()) {
            return Ok(false);
        }
    }
}

/// Handles pending signals. Returns one that is to end the process.
pub(super) fn end_signal(reactor: &Reactor) -> Result<Option<Signal>, Error> {
    let mut events = Vec::new();
    reactor.signals.read(&mut events)?;
    let mut signal = None;
    for event in events {
        match event {
            signals::Event::Stop => reactor.signals.stop_process(),
            signals::Event::Child | signals::Event::Continue | signals::Event::WindowResized => {}
            signals::Event::Forward(Signal::USR1 | Signal::USR2) => {}
            signals::Event::Forward(other) => signal = Some(other),
        }
    }
    Ok(signal)
}
