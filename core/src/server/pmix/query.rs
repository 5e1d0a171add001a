//! Queries of PMIx clients: process sets, and those that the host answers.

use core::ops::Range;

use heapless::String;

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::psets::slots;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{HOST_FACTS, QUERIES_ATTR};
use crate::state::{Job, PmixResponse, ReplyState, Response};
use crate::tables::psets::{Asker, Which};
use crate::tables::upcalls::Task;
use crate::wire::pmix::{HostCall, HostQuery, Infos, Queries, Writer, keys, kind, status};
use crate::wire::{Integers, Op};

/// Key of the names of the process sets that a rank is in.
pub(super) const SETS_OF: &[u8] = b"pmix.pset.nms";
/// Qualifier with the name of a process set.
const PSET: &[u8] = b"pmix.pset.nm";

impl Server<'_> {
    /// Answers queries about process sets: the members of one set, or the names and the number of all. The host answers
    /// queries of which any has another key or is about another job, if it can.
    pub(super) fn pmix_query(
        &mut self,
        requester: Requester,
        integers: Integers,
        queries: &Queries<'_>,
    ) -> Result<ReplyState, Refusal> {
        let (mut names, mut count, mut members, mut set, mut others) = (false, false, false, None, false);
        for (key, infos) in queries.asked() {
            let scope = self.scope(requester, &infos);
            let own = self.asker(requester).job;
            others |= HOST_FACTS && scope.as_ref().is_none_or(|scope| scope.job != own);
            match key {
                keys::QUERY_PSET_NAMES => names = true,
                keys::QUERY_NUM_PSETS => count = true,
                keys::QUERY_PSET_MEMBERSHIP => {
                    (members, set) = (true, set.or(self.set_of(scope.as_ref(), &infos)))
                }
                _ => others = true,
            }
        }
        if others {
            self.check_host(requester)?;
            return self.ask_host(requester, Op::GetJobAttr, |server, room| {
                server.write_query(requester, integers, queries, room)
            });
        }
        Ok(ReplyState::Ready(if members {
            Response::PsetMembers(set.ok_or(Refusal::NoPset)?, 0)
        } else {
            Response::Pmix(PmixResponse::Psets { names, count })
        }))
    }

    /// Returns whether the host answers requests of a job's clients.
    pub(super) fn host_answers(&self, requester: Requester) -> bool {
        HOST_FACTS && self.is_true(&self.jobs[requester.job.index()], QUERIES_ATTR)
    }

    /// Checks that the host answers requests of a job's clients.
    fn check_host(&self, requester: Requester) -> Result<(), Refusal> {
        if self.host_answers(requester) { Ok(()) } else { Err(Refusal::Unsupported) }
    }

    /// Has the host carry out a request, of which `body` is the body.
    pub(super) fn pass_to_host(
        &mut self,
        requester: Requester,
        integers: Integers,
        body: &[u8],
    ) -> Result<ReplyState, Refusal> {
        self.check_host(requester)?;
        self.ask_host(requester, Op::GetJobAttr, |_, room| HostCall::write_command(integers, body, room))
    }

    /// Returns a client that waits for a debugger, which the host has not been told.
    pub(in super::super) fn next_waiting(&self) -> Option<ConnId> {
        let waits = |conn: &ConnId| self.conns[conn.index()].events.waits;
        if HOST_FACTS { (0..self.conns_end).map(ConnId).find(waits) } else { None }
    }

    /// Tells the host of the ranks that wait for a debugger, as far as there is room for requests. It is told of the others when it
    /// has answered some.
    pub(in super::super) fn tell_of_waiting(&mut self) {
        while let Some(conn) = self.next_waiting() {
            let integers = self.conns[conn.index()].pmix.map(|dialect| dialect.integers).unwrap_or_default();
            if let Some(Requester { job, rank, .. }) = self.requester(conn) {
                let asked = self.upcalls.ask((job, rank), String::new(), conn, Task::Note, b"");
                let Ok(upcall) = asked else { return };
                if let Some(slot) = self.upcalls.get_mut(upcall) {
                    slot.conn = None;
                }
                self.upcalls.fill(upcall, |room| HostCall::write_waits(integers, room));
            }
            self.conns[conn.index()].events.waits = false;
        }
    }

    /// Returns whose sets a query is about: those of the job that qualifiers name, of all jobs if a tool names none, or of
    /// the client's job.
    fn scope(&self, requester: Requester, infos: &Infos<'_>) -> Option<Asker> {
        let own = self.asker(requester);
        if !HOST_FACTS {
            return Some(own);
        }
        if let Some(name) = infos.find(b"pmix.nspace").and_then(|info| info.as_string()) {
            let named = |job: &&Job| !name.is_empty() && job.name.as_bytes() == name;
            return self.jobs.iter().find(named).map(|job| Asker { job: slots(job), ..own });
        }
        Some(Asker { job: self.seen_by(requester), ..own })
    }

    /// Returns the slots of the ranks whose sets a client is told of: those of its job, and all for a tool.
    pub(super) fn seen_by(&self, requester: Requester) -> Range<u32> {
        let job = &self.jobs[requester.job.index()];
        if self.is_tool(job) { 0..self.limits.ranks } else { slots(job) }
    }

    /// Returns the set that qualifiers name, of those that the query is about.
    fn set_of(&self, scope: Option<&Asker>, infos: &Infos<'_>) -> Option<Which> {
        let name = infos.find(PSET)?.as_string()?;
        self.psets.named_of(scope?.job.clone(), core::str::from_utf8(name).ok()?)
    }

    /// Writes queries for the host, with the answers that this server has: those about process sets, and attributes of the job.
    fn write_query(
        &self,
        requester: Requester,
        integers: Integers,
        queries: &Queries<'_>,
        room: &mut [u8],
    ) -> Option<usize> {
        let job = &self.jobs[requester.job.index()];
        let write = |writer: &mut Writer<'_>| {
            let mut answers = 0;
            for (key, infos) in queries.asked() {
                match (key, self.scope(requester, &infos), self.text(job, key, None)) {
                    (keys::QUERY_PSET_NAMES, Some(scope), _) => self.write_names(&scope, writer),
                    (keys::QUERY_NUM_PSETS, Some(scope), _) => self.write_count(&scope, writer),
                    (keys::QUERY_PSET_MEMBERSHIP, Some(scope), _) => {
                        match self.set_of(Some(&scope), &infos) {
                            Some(which) => self.write_set(&scope, which, writer),
                            None => continue,
                        }
                    }
                    (_, _, Some(_)) => {
                        writer.info(key, kind::STRING);
                        self.write_text(job, key, writer);
                    }
                    _ => continue,
                }
                answers += 1;
            }
            answers
        };
        let answers = write(&mut Writer::new(integers, &mut []));
        let mut writer = HostQuery::begin(integers, answers, room);
        write(&mut writer);
        HostQuery::finish(&mut writer, queries)
    }

    /// Writes the names of the process sets of the client's job that users and programs defined, and their number, as
    /// requested.
    ///
    /// Open MPI 5.0 requests the number alone and cannot read it. Names in front of the number would make it offer sets in
    /// sessions whose size and group it does not find.
    pub(super) fn write_psets(&self, id: ConnId, (named, count): (bool, bool), writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return writer.status(status::ERROR) };
        writer.status(status::SUCCESS);
        writer.array(u32::from(named) + u32::from(count));
        if named {
            self.write_names(&self.asker(requester), writer);
        }
        if count {
            self.write_count(&self.asker(requester), writer);
        }
    }

    /// Returns the names of the sets with members in a range of slots.
    fn names(&self, ranks: Range<u32>) -> impl Iterator<Item = &str> + Clone {
        self.psets.with_any(ranks).filter(|name| !is_of_host(name))
    }

    /// Returns the names of the sets that a rank is in, or of all of its job if it has no such rank.
    pub(super) fn sets_of(&self, job: JobId, rank: Rank) -> impl Iterator<Item = &str> + Clone {
        let job = &self.jobs[job.index()];
        let slot = job.slot(rank).map(|slot| slot as u32);
        self.names(slot.map_or(slots(job), |slot| slot..slot + 1))
    }

    /// Writes the names of the sets that a rank is in.
    pub(super) fn write_sets_of(&self, job: JobId, rank: Rank, writer: &mut Writer<'_>) {
        writer.key(SETS_OF, kind::STRING);
        write_list(self.sets_of(job, rank), writer);
    }

    fn write_names(&self, scope: &Asker, writer: &mut Writer<'_>) {
        writer.info(keys::QUERY_PSET_NAMES, kind::STRING);
        write_list(self.names(scope.job.clone()), writer);
    }

    fn write_count(&self, scope: &Asker, writer: &mut Writer<'_>) {
        writer.info(keys::QUERY_NUM_PSETS, kind::SIZE);
        writer.size(self.names(scope.job.clone()).count() as u64);
    }

    /// Writes the members of a process set.
    pub(super) fn write_members(&self, id: ConnId, which: Which, writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return writer.status(status::ERROR) };
        writer.status(status::SUCCESS);
        writer.array(1);
        self.write_set(&self.asker(requester), which, writer);
    }

    fn write_set(&self, scope: &Asker, which: Which, writer: &mut Writer<'_>) {
        let members = || self.members(scope.clone(), which);
        writer.info(keys::QUERY_PSET_MEMBERSHIP, kind::DATA_ARRAY);
        writer.data_type(kind::PROC);
        writer.size(members().count() as u64);
        for (job, rank) in members() {
            writer.proc(self.jobs[job.index()].name.as_bytes(), rank.0);
        }
    }
}

/// Returns whether a set is one that hosts define for every job. These are not listed, because they are no sets of users.
pub(super) fn is_of_host(name: &str) -> bool {
    name.starts_with("hydrant://")
}

/// Writes names as one STRING, separated by commas, or none.
fn write_list<'a>(names: impl Iterator<Item = &'a str> + Clone, writer: &mut Writer<'_>) {
    if names.clone().next().is_none() {
        return writer.null_string();
    }
    writer.string_of(|writer| {
        for (at, name) in names.clone().enumerate() {
            if at > 0 {
                writer.byte(b',');
            }
            writer.raw(name.as_bytes());
        }
    });
}
