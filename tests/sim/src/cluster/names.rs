//! Names and requests about them as the head sees them, beside the name service that it asks.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::wire::{Command, decode_upcall};
use hydrant_core::{JobId, UpcallId};
use hydrant_names::{Answer, Request};

/// What a request asks for.
#[derive(Clone, Debug)]
enum Ask {
    Publish(Vec<u8>),
    Unpublish,
    /// A look-up, and the ports that the name has had since the request.
    Lookup(BTreeSet<Vec<u8>>),
}

/// A request without an answer.
#[derive(Clone, Debug)]
struct Pending {
    request: Request,
    name: Vec<u8>,
    ask: Ask,
    /// Time of the request in milliseconds.
    since: u64,
    /// Its rank or its job has ended.
    is_dropped: bool,
}

/// Names that are published, and requests.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The publisher's job and the port.
    names: BTreeMap<Vec<u8>, (JobId, Vec<u8>)>,
    pending: BTreeMap<UpcallId, Pending>,
    /// Look-ups that waited: those that found the name, and those whose time passed.
    pub(super) waited: [u32; 2],
}

impl Known {
    /// A rank of any node asks.
    pub(super) fn asked(&mut self, request: &Request, now: u64) {
        let bytes =
            |text: &hydrant_core::wire::Text<'_>| text.parts().flatten().copied().collect::<Vec<u8>>();
        let (name, ask) = match decode_upcall(request.protocol, &request.body) {
            Some(Command::Publish { name, port, .. }) => (bytes(&name), Ask::Publish(bytes(&port))),
            Some(Command::Unpublish { name, .. }) => (bytes(&name), Ask::Unpublish),
            Some(Command::Lookup { name, .. }) => {
                let name = bytes(&name);
                let ports = self.names.get(&name).map(|(_, port)| port.clone());
                (name, Ask::Lookup(ports.into_iter().collect()))
            }
            other => panic!("{other:?} is not about a name"),
        };
        let pending = Pending { request: request.clone(), name, ask, since: now, is_dropped: false };
        let before = self.pending.insert(request.upcall.expect("a rank waits for the answer"), pending);
        assert!(before.is_none(), "a number of two requests: {before:?}");
    }

    /// Look-ups of a rank that has ended are dropped.
    pub(super) fn dropped(&mut self, whose: impl Fn(&Request) -> bool) {
        let pending = self.pending.values_mut().filter(|pending| whose(&pending.request));
        pending.for_each(|pending| pending.is_dropped = true);
    }

    /// A job is over: its names are withdrawn.
    pub(super) fn forget(&mut self, job: JobId) {
        self.dropped(|request| request.job == job);
        self.names.retain(|_, (of, _)| *of != job);
    }

    /// The name service gives these answers at once. A publication and the look-ups that it ends are in any order.
    ///
    /// # Panics
    /// An answer is wrong.
    pub(super) fn answered(&mut self, answers: &[Answer], now: u64) {
        let is_lookup = |answer: &&Answer| {
            self.pending.get(&answer.upcall).is_some_and(|pending| matches!(pending.ask, Ask::Lookup(_)))
        };
        let (lookups, others): (Vec<&Answer>, Vec<&Answer>) = answers.iter().partition(is_lookup);
        others.into_iter().chain(lookups).for_each(|answer| self.check(answer, now));
    }

    fn check(&mut self, answer: &Answer, now: u64) {
        let Answer { upcall, rc, text } = answer;
        let pending = self.pending.remove(upcall).expect("each request has one answer");
        let Pending { request, name, ask, since, is_dropped } = &pending;
        let (waited, done) = (now - since, *rc == 0);
        let is_full = text.starts_with(b"limit ");
        match ask {
            Ask::Publish(port) if done => {
                let known = self.names.insert(name.clone(), (request.job, port.clone()));
                assert!(known.is_none(), "a name is published twice: {pending:?}");
                for other in self.pending.values_mut().filter(|other| other.name == *name) {
                    if let Ask::Lookup(ports) = &mut other.ask {
                        ports.insert(port.clone());
                    }
                }
            }
            Ask::Publish(_) => {
                let is_taken = self.names.contains_key(name);
                assert!(is_taken || is_full || *is_dropped, "a name is free: {pending:?}, {answer:?}");
            }
            Ask::Unpublish if done => {
                assert!(self.names.remove(name).is_some(), "there is no such name: {pending:?}");
            }
            Ask::Unpublish => {
                let is_its = self.names.get(name).is_some_and(|(job, _)| *job == request.job);
                assert!(
                    !is_its || *is_dropped || is_full,
                    "a name is withdrawn by its job: {pending:?}, {answer:?}"
                );
            }
            Ask::Lookup(ports) if done => {
                assert!(ports.contains(text), "no name has this port: {pending:?}, {answer:?}");
                self.waited[0] += u32::from(waited > 0);
            }
            Ask::Lookup(ports) => {
                let is_late = waited >= request.wait.into();
                assert!(*is_dropped || is_full || is_late, "not in {waited} ms: {pending:?}, {answer:?}");
                assert!(*is_dropped || is_full || ports.is_empty(), "it was there: {pending:?}, {answer:?}");
                self.waited[1] += u32::from(is_late && request.wait > 0 && !is_dropped && !is_full);
            }
        }
    }

    /// Returns the number of requests that have no answer.
    pub(super) fn unanswered(&self) -> usize {
        self.pending.len()
    }
}
