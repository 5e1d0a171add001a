//! The name service.

use super::Server;
use super::dispatch::Asker;
use crate::fault::Refusal;
use crate::ids::ConnId;
use crate::state::{Answer, What};
use crate::time::Time;
use crate::wire::{Op, Text};

impl Server<'_> {
    pub(super) fn publish(
        &mut self,
        asker: Asker,
        name: Text<'_>,
        port: Text<'_>,
    ) -> Result<Answer, Refusal> {
        let owner = self.jobs[asker.job.index()].spaces;
        let published = self.names.publish(owner, name.parts(), port.parts())?;
        if self.names.is_awaited(published) {
            let answer = Answer::Port(published);
            self.end_lookups(|at, _| (at == published.at).then_some(answer));
        }
        Ok(Answer::Done(Op::Publish))
    }

    pub(super) fn unpublish(&mut self, name: Text<'_>) -> Result<Answer, Refusal> {
        self.names.unpublish(name.parts()).map(|()| Answer::Done(Op::Unpublish))
    }

    /// `wait` is how many milliseconds the asker itself would wait.
    pub(super) fn lookup(
        &mut self,
        now: Time,
        asker: Asker,
        name: Text<'_>,
        wait: Option<u32>,
    ) -> Result<What, Refusal> {
        if let Some(published) = self.names.lookup(name.parts()) {
            return Ok(What::Answer(Answer::Port(published)));
        }
        let wait = wait.map_or(self.jobs[asker.job.index()].lookup_wait, u64::from);
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        let at = self.names.wait(name.parts())?;
        self.wake_after(now, wait);
        Ok(What::Lookup { at, until: now.after(wait) })
    }

    /// Gives up what has waited long enough; when the next look-up will have.
    pub(super) fn expire_lookups(&mut self, now: Time) -> Option<Time> {
        let refused = Answer::Refused(Op::Lookup, Refusal::NoName);
        self.end_lookups(|_, until| (until <= now).then_some(refused))
    }

    /// Ends those look-ups that `answer` has an answer for, given their slot and when they give up. When the next
    /// of the others gives up.
    fn end_lookups(&mut self, answer: impl Fn(u32, Time) -> Option<Answer>) -> Option<Time> {
        let mut next: Option<Time> = None;
        for conn in 0..self.limits.conns {
            let mut changed = false;
            for owed in &mut self.conns[conn as usize].owed {
                let What::Lookup { at, until } = owed.what else { continue };
                match answer(at, until) {
                    Some(answer) => {
                        owed.what = What::Answer(answer);
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
