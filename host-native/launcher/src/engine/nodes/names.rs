//! What one node decides for all: names, process sets of running jobs, and connections between jobs.

use hydrant_core::wire::{Command, Protocol, Text, decode_upcall};
use hydrant_core::{Fault, Input, JobId, Rank, Refusal, Time, UpcallId};

use hydrant_reactor::Key;

use super::super::open::members_of;
use super::{Engine, Nodes, Role};
use crate::border::BackendError;
use crate::control::Order;
use crate::error::RunError;
use crate::universe::Keeper;

/// Names at the head.
pub(super) struct Names<'s> {
    /// Where they are kept, unless that is in another process.
    keeper: Option<Keeper<'s>>,
    /// Requests that have not been answered: who asks, and by which number there. Gaps are free.
    asked: Vec<Option<(u32, UpcallId)>>,
}

impl<'s> Names<'s> {
    pub(super) fn new(keeper: Option<Keeper<'s>>) -> Names<'s> {
        Names { keeper, asked: Vec::new() }
    }

    /// No names are kept any more.
    pub(super) fn close(&mut self) {
        self.keeper = None;
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        self.keeper.as_mut().and_then(Keeper::deadline)
    }

    /// A number for a request, by which its answer finds its way.
    fn number(&mut self, asker: (u32, UpcallId)) -> UpcallId {
        let free = self.asked.iter().position(Option::is_none).unwrap_or(self.asked.len());
        if free == self.asked.len() {
            self.asked.push(None);
        }
        self.asked[free] = Some(asker);
        UpcallId(free as u32)
    }
}

impl<'s> Engine<'_, 's> {
    fn names_mut(&mut self) -> Option<&mut Names<'s>> {
        match &mut self.nodes {
            Some(Nodes { role: Role::Head(head), .. }) => Some(&mut head.names),
            _ => None,
        }
    }

    /// A rank of some node asks for something that is not that node's to decide.
    pub(super) fn decide(
        &mut self,
        asker: (u32, UpcallId),
        (job, rank): (JobId, Rank),
        (protocol, request): (Protocol, Vec<u8>),
    ) -> Result<(), RunError> {
        let refused = match decode_upcall(protocol, &request) {
            None => Err(Refusal::BadField),
            Some(Command::PsetDefine { name, members }) => self.define(job, name, members.iter())?,
            Some(Command::Connect { jobid }) => self.connect(job, jobid, true)?,
            Some(Command::Disconnect { jobid }) => self.connect(job, jobid, false)?,
            Some(_) => {
                let Some(names) = self.names_mut() else { return Ok(()) };
                let upcall = names.number(asker);
                self.ask_universe(upcall, (job, rank), (protocol, request));
                return self.take_in_names();
            }
        };
        let (rc, text) = match refused {
            Ok(()) => (0, Vec::new()),
            Err(why) => (why.rc(), why.to_string().into_bytes()),
        };
        self.order(asker.0, &Order::Named { upcall: asker.1, rc, text });
        Ok(())
    }

    /// Has all nodes define a process set, if this one can.
    fn define(
        &mut self,
        job: JobId,
        name: Text<'_>,
        members: impl Iterator<Item = u32>,
    ) -> Result<Result<(), Refusal>, RunError> {
        let now = Time(self.now());
        let name = String::from_utf8_lossy(&bytes(name)).into_owned();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for member in members {
            match ranges.last_mut() {
                Some((first, count)) if *first + *count == member => *count += 1,
                _ => ranges.push((member, 1)),
            }
        }
        let members = members_of(&ranges);
        let define = Input::Define { job, name: &name, members: members.as_bytes() };
        let defined = refusal(self.core.handle(now, define))?;
        if defined.is_ok() {
            self.order_all(&Order::Define { job, name, members });
        }
        Ok(defined)
    }

    /// Has all nodes connect or part two jobs, if this one can.
    fn connect(
        &mut self,
        job: JobId,
        jobid: Text<'_>,
        connected: bool,
    ) -> Result<Result<(), Refusal>, RunError> {
        let now = Time(self.now());
        let other = self.jobs.iter().find(|other| jobid == *other.name.as_bytes()).map(|other| other.id);
        let Some(other) = other else { return Ok(Err(Refusal::NoJob)) };
        let done = refusal(self.core.handle(now, Input::Connected { job, other, connected }))?;
        if done.is_ok() {
            self.order_all(&Order::Connected { job, other, connected });
        }
        Ok(done)
    }

    /// What has become of a request about a name.
    pub(in super::super) fn answer_names(&mut self, upcall: UpcallId, rc: i32, text: Vec<u8>) {
        let asker = self.names_mut().and_then(|names| names.asked.get_mut(upcall.index())?.take());
        if let Some((node, upcall)) = asker {
            self.order(node, &Order::Named { upcall, rc, text });
        }
    }

    pub(in super::super) fn names_conn_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        if let Some(Nodes { role: Role::Head(head), .. }) = &mut self.nodes
            && let Some(keeper) = &mut head.names.keeper
        {
            keeper.ready(key, &self.poller, now)?;
        }
        Ok(())
    }

    /// Gives the keeper its ends of connections.
    fn take_in_names(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let fresh = self.universe.as_mut().map(|universe| universe.take_fresh()).unwrap_or_default();
        if let Some(Nodes { role: Role::Head(head), .. }) = &mut self.nodes
            && let Some(keeper) = &mut head.names.keeper
        {
            for fd in fresh {
                keeper.open(fd, &self.poller, now)?;
            }
        }
        Ok(())
    }

    pub(super) fn keep_names_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if let Some(Nodes { role: Role::Head(head), .. }) = &mut self.nodes
            && let Some(keeper) = &mut head.names.keeper
        {
            keeper.keep_time(&self.poller, now)?;
            while let Some(line) = keeper.news() {
                self.sinks.say(&line);
            }
        }
        Ok(())
    }
}

fn bytes(text: Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}

/// What the core does not do because a rank should not have asked for it.
fn refusal<T>(done: Result<T, BackendError>) -> Result<Result<(), Refusal>, RunError> {
    match done {
        Ok(_) => Ok(Ok(())),
        Err(BackendError::Fault(Fault::Refused(why))) => Ok(Err(why)),
        Err(BackendError::Fault(Fault::BadPset)) => Ok(Err(Refusal::BadGroup)),
        Err(BackendError::Fault(Fault::NoSuchJob)) => Ok(Err(Refusal::NoJob)),
        Err(error) => Err(error.into()),
    }
}
