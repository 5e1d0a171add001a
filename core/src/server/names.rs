//! Name service of one server.

use super::Server;
use super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::ConnId;
use crate::state::{ReplyState, Response};
use crate::tables::names::NameRef;
#[cfg(feature = "pmix")]
use crate::tables::names::{Reach, Terms};
use crate::time::Time;
use crate::wire::{Op, Text};

impl Server<'_> {
    pub(super) fn publish(
        &mut self,
        requester: Requester,
        name: Text<'_>,
        port: Text<'_>,
        once: bool,
    ) -> Result<Response, Refusal> {
        let owner = self.jobs[requester.job.index()].spaces;
        let published = self.names.publish(owner, name.parts(), port.parts())?;
        #[cfg(feature = "pmix")]
        self.names.describe(published, requester.rank, Terms { once, of_process: false, reach: Reach::All });
        #[cfg(not(feature = "pmix"))]
        let _ = once;
        self.answer_lookups(published);
        Ok(Response::Done(Op::Publish))
    }

    /// Answers the look-ups that wait for a name.
    pub(super) fn answer_lookups(&mut self, published: NameRef) {
        if !self.names.is_awaited(published) {
            return;
        }
        let answer = Response::Port(published);
        #[cfg(not(feature = "pmix"))]
        self.end_lookups(|at, _| (at == published.at).then_some(answer));
        #[cfg(feature = "pmix")]
        {
            let waiting = self.names.waiting(published.at);
            self.end_lookups_for(published.at, answer);
            if self.names.waiting(published.at) < waiting {
                self.names.take(published);
            }
            self.end_lookups_of_several(None);
        }
    }

    /// Answers the look-ups that wait for the name in a slot alone and may read it.
    #[cfg(feature = "pmix")]
    fn end_lookups_for(&mut self, name: u32, answer: Response) {
        for conn in (0..self.conns_end).map(ConnId) {
            let Some(requester) = self.requester(conn) else { continue };
            let who = (self.jobs[requester.job.index()].spaces, requester.rank);
            if !self.names.is_readable_by(who, name) {
                continue;
            }
            for reply in &mut self.conns[conn.index()].replies {
                if matches!(reply.state, ReplyState::Lookup { at, .. } if at == name) {
                    reply.state = ReplyState::Ready(answer);
                    self.names.leave(name);
                }
            }
            self.check_ready(conn);
        }
    }

    pub(super) fn unpublish(&mut self, name: Text<'_>) -> Result<Response, Refusal> {
        self.names.unpublish(name.parts()).map(|()| Response::Done(Op::Unpublish))
    }

    /// Looks up a name. `wait` is the timeout in milliseconds that the request contains.
    pub(super) fn lookup(
        &mut self,
        now: Time,
        requester: Requester,
        name: Text<'_>,
        wait: Option<u32>,
    ) -> Result<ReplyState, Refusal> {
        if let Some(published) = self.names.lookup(name.parts()) {
            #[cfg(feature = "pmix")]
            self.names.take(published);
            return Ok(ReplyState::Ready(Response::Port(published)));
        }
        let wait = wait.map_or(self.jobs[requester.job.index()].lookup_wait, u64::from);
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        let at = self.names.wait(name.parts())?;
        self.schedule(now, wait);
        Ok(ReplyState::Lookup { at, until: now.after(wait) })
    }

    /// Refuses look-ups that have timed out. Returns the time of the next timeout.
    pub(super) fn expire_lookups(&mut self, now: Time) -> Option<Time> {
        let refused = Response::Refused(Op::Lookup, Refusal::NoName);
        let next = self.end_lookups(|_, until| (until <= now).then_some(refused));
        #[cfg(feature = "pmix")]
        let next = [next, self.end_lookups_of_several(Some(now))].into_iter().flatten().min();
        next
    }

    /// Ends the look-ups for which `answer` returns a response, given their slot and their deadline. Returns the
    /// earliest deadline of the others.
    fn end_lookups(&mut self, answer: impl Fn(u32, Time) -> Option<Response>) -> Option<Time> {
        let mut next: Option<Time> = None;
        for conn in 0..self.conns_end {
            let mut changed = false;
            for reply in &mut self.conns[conn as usize].replies {
                let ReplyState::Lookup { at, until } = reply.state else { continue };
                match answer(at, until) {
                    Some(answer) => {
                        reply.state = ReplyState::Ready(answer);
                        self.names.leave(at);
                        changed = true;
                    }
                    None => next = Some(next.map_or(until, |next| next.min(until))),
                }
            }
            if changed {
                self.check_ready(ConnId(conn));
            }
        }
        next
    }
}
