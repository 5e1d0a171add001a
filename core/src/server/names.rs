//! Name service of one server.

use super::Server;
use super::dispatch::Requester;
#[cfg(feature = "pmix")]
use super::pmix::{reach_of, remote, terms};
use crate::fault::Refusal;
use crate::ids::ConnId;
#[cfg(feature = "pmix")]
use crate::ids::Rank;
#[cfg(feature = "pmix")]
use crate::limits::HOST_FACTS;
use crate::state::{ReplyState, Response};
#[cfg(feature = "pmix")]
use crate::tables::kvs::Spaces;
use crate::tables::names::NameRef;
#[cfg(not(feature = "pmix"))]
use crate::tables::names::Terms;
#[cfg(feature = "pmix")]
use crate::tables::names::{Party, Reach};
use crate::time::Time;
#[cfg(feature = "pmix")]
use crate::wire::pmix;
use crate::wire::{Op, Persistence, Text};

impl Server<'_> {
    pub(super) fn publish(
        &mut self,
        requester: Requester,
        name: Text<'_>,
        port: Text<'_>,
        persistence: Persistence,
    ) -> Result<Response, Refusal> {
        let owner = (self.jobs[requester.job.index()].spaces, requester.rank);
        #[cfg(feature = "pmix")]
        if HOST_FACTS && name.parts().flatten().next() == Some(&pmix::SHARED) {
            return self.publish_shared(owner, name, port, persistence);
        }
        #[cfg(feature = "pmix")]
        let terms = terms(persistence, Reach::All);
        #[cfg(not(feature = "pmix"))]
        let (terms, _) = (Terms::JOB, persistence);
        let published = self.names.publish(owner, name.parts(), port.parts(), terms)?;
        self.answer_lookups(published);
        Ok(Response::Done(Op::Publish))
    }

    /// Publishes data of a process of another server, which say in which range. They are under some keys.
    #[cfg(feature = "pmix")]
    #[inline(never)]
    fn publish_shared(
        &mut self,
        owner: (Spaces, Rank),
        names: Text<'_>,
        ports: Text<'_>,
        persistence: Persistence,
    ) -> Result<Response, Refusal> {
        let (names, ports) = (names.parts().flatten(), ports.parts().flatten());
        let range = pmix::range_of(ports.clone());
        let terms = terms(persistence, range.map_or(Reach::All, reach_of));
        let (names, ports) = (pmix::names_of(names), pmix::data_of(ports));
        let are_shared = names.clone().all(|mut name| name.next() == Some(&pmix::SHARED));
        if !are_shared || names.clone().count() != ports.clone().count() {
            return Err(Refusal::BadField);
        }
        let names = names.map(|name| name.map(core::slice::from_ref));
        let ports = ports.map(|port| port.map(core::slice::from_ref));
        let data = names.clone().zip(ports);
        let first = self.names.publish_all(
            data,
            |(name, _)| name.clone(),
            |table, (name, port)| table.publish(owner, name, port, terms),
        )?;
        self.answer_lookups_of_all(first, names);
        Ok(Response::Done(Op::Publish))
    }

    /// Answers the look-ups that wait for a name and may read it.
    pub(super) fn answer_lookups(&mut self, published: NameRef) {
        if self.names.is_awaited(published) {
            self.end_lookups(Some(published), None);
        }
    }

    pub(super) fn unpublish(&mut self, name: Text<'_>, party: Option<Text<'_>>) -> Result<Response, Refusal> {
        match party {
            #[cfg(feature = "pmix")]
            Some(party) if HOST_FACTS => {
                let (party, _) = remote(plain(party)?)?;
                self.withdraw_for(name, party)?;
            }
            _ => self.names.unpublish(name.parts())?,
        }
        Ok(Response::Done(Op::Unpublish))
    }

    /// Withdraws names for a process of another server: some of them, or all of the process.
    #[cfg(feature = "pmix")]
    #[inline(never)]
    fn withdraw_for(&mut self, names: Text<'_>, party: Party<'_>) -> Result<(), Refusal> {
        let bytes = names.parts().flatten();
        if bytes.clone().eq([&pmix::SHARED]) {
            self.names.forget_process(&[pmix::SHARED], party);
            return Ok(());
        }
        let mut result = Err(Refusal::NoName);
        for name in pmix::names_of(bytes) {
            let name = name.map(core::slice::from_ref);
            result = self.names.unpublish_for(name, party).or(result);
        }
        result
    }

    /// Looks up a name. `wait` is the timeout in milliseconds that the request contains.
    pub(super) fn lookup(
        &mut self,
        now: Time,
        requester: Requester,
        (name, party): (Text<'_>, Option<Text<'_>>),
        wait: Option<u32>,
    ) -> Result<ReplyState, Refusal> {
        let (published, alike) = match party {
            #[cfg(feature = "pmix")]
            Some(party) if HOST_FACTS => {
                let party = plain(party)?;
                (self.names.find_for(name.parts(), remote(party)?), party)
            }
            _ => (self.names.lookup(name.parts()), &[][..]),
        };
        if let Some(published) = published {
            #[cfg(feature = "pmix")]
            self.names.take(published);
            return Ok(ReplyState::Ready(Response::Port(published)));
        }
        let wait = wait.map_or(self.jobs[requester.job.index()].lookup_wait, u64::from);
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        let at = self.names.wait(name.parts(), alike)?;
        self.schedule(now, wait);
        Ok(ReplyState::Lookup { at, until: now.after(wait) })
    }

    /// Ends look-ups that have timed out. Returns the time of the next timeout.
    pub(super) fn expire_lookups(&mut self, now: Time) -> Option<Time> {
        self.end_lookups(None, Some(now))
    }

    /// Ends the look-ups that a name answers that has just been `published`, and those that have timed out. Returns the earliest
    /// deadline of the others.
    fn end_lookups(&mut self, published: Option<NameRef>, now: Option<Time>) -> Option<Time> {
        let mut next: Option<Time> = None;
        for conn in (0..self.conns_end).map(ConnId) {
            let mut changed = false;
            for at in 0..self.conns[conn.index()].replies.len() {
                let state = self.conns[conn.index()].replies[at].state;
                let (ReplyState::Lookup { until, .. } | ReplyState::LookupAll { until, .. }) = state else {
                    continue;
                };
                let expired = now.is_some_and(|now| until <= now);
                match self.end_lookup(conn, state, published, expired) {
                    Some(answer) => {
                        self.conns[conn.index()].replies[at].state = ReplyState::Ready(answer);
                        changed = true;
                    }
                    None => next = Some(next.map_or(until, |next| next.min(until))),
                }
            }
            if changed {
                self.check_ready(conn);
            }
        }
        next
    }

    /// Returns the answer to a look-up that waits, if it can be answered or has `expired`. It does not wait any longer then.
    fn end_lookup(
        &mut self,
        conn: ConnId,
        waits: ReplyState,
        published: Option<NameRef>,
        expired: bool,
    ) -> Option<Response> {
        #[cfg(not(feature = "pmix"))]
        let _ = conn;
        let refused = Response::Refused(Op::Lookup, Refusal::NoName);
        match waits {
            #[cfg(feature = "pmix")]
            ReplyState::LookupAll { slots, .. } => {
                self.end_lookup_of_several(conn, slots, expired).map(|found| found.unwrap_or(refused))
            }
            ReplyState::Lookup { at, .. } => {
                let found = published.filter(|name| self.names.are_named_alike(name.at, at));
                #[cfg(feature = "pmix")]
                let found = found.filter(|name| self.may_read(conn, at, name.at));
                let answer = found.map(Response::Port).or(expired.then_some(refused))?;
                self.names.leave(at);
                #[cfg(feature = "pmix")]
                found.into_iter().for_each(|name| self.names.take(name));
                Some(answer)
            }
            _ => None,
        }
    }
}

#[cfg(feature = "pmix")]
fn plain<'a>(text: Text<'a>) -> Result<&'a [u8], Refusal> {
    text.as_plain().ok_or(Refusal::BadField)
}
