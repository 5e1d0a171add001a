//! Hosts that ask to join a run that has begun.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::door::Secrets;
use super::head::{TURNED_MAX, encode};
use super::{Application, Decision};
use crate::incoming::HANDSHAKE_TIMEOUT;
use crate::link::{Channel, Link};

/// Most of them at a time.
pub(crate) const LATE_HOSTS_MAX: usize = 64;

/// The door of a run that has begun, at its head, and the hosts behind it that have no answer.
#[derive(Debug)]
pub(crate) struct LateHosts {
    pub(crate) secrets: Secrets,
    hosts: BTreeMap<u32, LateHost>,
    /// Number of the next one.
    next: u32,
    /// How many have been turned away. The first [`TURNED_MAX`] are reported.
    turned: u32,
}

#[derive(Debug)]
struct LateHost {
    link: Link,
    addr: SocketAddr,
    /// Time by which its application has to be there. None once it has applied.
    deadline: Option<u64>,
}

/// What a host has done.
#[derive(Debug)]
pub(crate) enum Knock {
    /// It has applied.
    Applied(Application, SocketAddr),
    /// It cannot join. Only some of these are reported.
    Turned(SocketAddr, String),
}

impl LateHosts {
    pub(crate) fn new(secrets: Secrets) -> LateHosts {
        LateHosts { secrets, hosts: BTreeMap::new(), next: 0, turned: 0 }
    }

    /// Takes a host that has been greeted, unless too many wait. Returns its number and its socket.
    pub(crate) fn add(&mut self, link: Link, addr: SocketAddr, now: u64) -> Option<(u32, &OwnedFd)> {
        if self.hosts.len() >= LATE_HOSTS_MAX {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let host = LateHost { link, addr, deadline: Some(now + HANDSHAKE_TIMEOUT) };
        Some((number, self.hosts.entry(number).or_insert(host).link.fd()))
    }

    /// Reads from a host. One that breaks the protocol or has gone is forgotten.
    pub(crate) fn receive(&mut self, number: u32, now: u64, buffer: &mut [u8]) -> Option<Knock> {
        let host = self.hosts.get_mut(&number)?;
        let mut messages = Vec::new();
        let received = host.link.receive(now, buffer, |_, message| messages.push(message));
        match (received, messages.pop()) {
            (Ok(_), None) => return None,
            (Ok(_), Some(message)) if host.deadline.take().is_some() => {
                if let Some(application) = Application::decode(&message) {
                    return self.applied(number, application, now);
                }
            }
            _ => {}
        }
        self.hosts.remove(&number);
        None
    }

    fn applied(&mut self, number: u32, application: Application, now: u64) -> Option<Knock> {
        let addr = self.hosts.get(&number)?.addr;
        let checked = application.check().and_then(|()| match application.program {
            Some(_) => Err("the run has its program: join without one".to_owned()),
            None => Ok(()),
        });
        match checked {
            Ok(()) => Some(Knock::Applied(application, addr)),
            Err(why) => {
                self.refuse(number, &why, now);
                self.turns_away().then_some(Knock::Turned(addr, why))
            }
        }
    }

    /// Counts a host that is turned away. Returns whether it is to be reported, as only some are.
    pub(crate) fn turns_away(&mut self) -> bool {
        self.turned = self.turned.saturating_add(1);
        self.turned <= TURNED_MAX
    }

    /// Tells a host that it does not join. One that has gone knows.
    pub(crate) fn refuse(&mut self, number: u32, why: &str, now: u64) {
        self.decide(number, &Decision::Refused(why.to_owned()), now);
    }

    /// Sends a host what its daemon needs. Returns whether it is there.
    pub(crate) fn admit(&mut self, number: u32, record: &[u8], now: u64) -> bool {
        self.decide(number, &Decision::Record(record.to_vec()), now)
    }

    fn decide(&mut self, number: u32, decision: &Decision, now: u64) -> bool {
        let Some(LateHost { mut link, .. }) = self.hosts.remove(&number) else { return false };
        // The send buffer of a socket that has sent a verdict only has space for a decision about one host.
        let sent = link.send(now, Channel::Control, &encode(decision)).and_then(|_| link.flush());
        sent.is_ok() && !link.is_blocked()
    }

    /// Time at which the next connection is closed.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.hosts.values().filter_map(|host| host.deadline).min()
    }

    /// Closes connections that have been silent for too long.
    pub(crate) fn expire(&mut self, now: u64) {
        self.hosts.retain(|_, host| host.deadline.is_none_or(|at| at > now));
    }
}
