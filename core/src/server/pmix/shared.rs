//! Requests of PMIx ranks that the host answers: queries, and data that ranks publish where the host keeps names, which is on
//! several nodes and with a name server.

use heapless::String;

use super::super::Server;
use super::super::dispatch::Requester;
use super::events::range;
use super::names::{data_of, range_of, terms_of, wait_of};
use crate::fault::Refusal;
use crate::ids::{JobId, UpcallId};
use crate::limits::{HOST_FACTS, Limit};
use crate::state::ReplyState;
use crate::store::log::hash;
use crate::tables::names::Reach;
use crate::tables::upcalls::{Stage, Task};
use crate::wire::Op;
use crate::wire::pmix::{self, Infos, Keys, Party, Published, Writer, status};

impl Server<'_> {
    /// Returns whether the host keeps the names of a job.
    pub(super) fn has_shared_names(&self, job: JobId) -> bool {
        self.jobs[job.index()].remote_names
    }

    /// Publishes data at the host.
    pub(super) fn share(
        &mut self,
        requester: Requester,
        (user, infos): (u32, &Infos<'_>),
    ) -> Result<ReplyState, Refusal> {
        let keys = data_of(infos).map(|info| info.key);
        if !can_name(keys.clone()) || keys.count() == 0 {
            return Err(Refusal::Unsupported);
        }
        let (persistence, reach) = terms_of(user, infos)?;
        // The lists of users of a custom range have been read here.
        let range = match reach {
            Reach::All => range::GLOBAL,
            Reach::Host => range::LOCAL,
            Reach::Job => range::JOB,
            Reach::Process => range::SENDER,
            Reach::Nobody => range::MANAGER,
        };
        self.ask_host(requester, Op::Publish, |server, room| {
            let data = data_of(infos).take(most_named());
            pmix::translate_publish(data, server.party(requester), (range, persistence), room)
        })
    }

    /// Looks up data under some keys at the host.
    pub(super) fn lookup_shared(
        &mut self,
        requester: Requester,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        if !can_name(keys.iter()) || keys.is_empty() {
            return Err(Refusal::Unsupported);
        }
        self.ask_host(requester, Op::Lookup, |server, room| {
            let (party, wait) = ((server.party(requester), range_of(infos)), wait_of(infos));
            pmix::translate_lookup(&mut keys.iter().take(most_named()), party, wait, room)
        })
    }

    /// Withdraws data under some keys at the host, or all data of the process without keys.
    pub(super) fn unshare(&mut self, requester: Requester, keys: &Keys<'_>) -> Result<ReplyState, Refusal> {
        if !can_name(keys.iter()) {
            return Err(Refusal::Unsupported);
        }
        self.ask_host(requester, Op::Unpublish, |server, room| {
            pmix::translate_unpublish(&mut keys.iter().take(most_named()), server.party(requester), room)
        })
    }

    /// Returns a rank of this server as a name service knows it.
    fn party(&self, requester: Requester) -> Party<'_> {
        let (job, node) = (&self.jobs[requester.job.index()], self.links.node());
        let host = self.host_name(job, node).map_or(self.host_number(node), |name| hash(0, name));
        Party { namespace: job.name.as_bytes(), rank: requester.rank.0, host }
    }

    /// Stores a request for the host, which `write` writes.
    pub(super) fn ask_host(
        &mut self,
        requester: Requester,
        op: Op,
        write: impl Fn(&Server<'_>, &mut [u8]) -> Option<usize>,
    ) -> Result<ReplyState, Refusal> {
        let parent = (requester.job, requester.rank);
        let id = self.upcalls.ask(parent, String::new(), requester.conn, Task::Name, b"")?;
        let mut upcalls = core::mem::take(&mut self.upcalls);
        let fits = upcalls.fill(id, |room| write(self, room));
        self.upcalls = upcalls;
        if !fits {
            let room = self.upcalls.room();
            self.upcalls.free(id);
            return Err(Refusal::Full(Limit::SpawnBytes, room as u32));
        }
        self.events_pending = true;
        Ok(ReplyState::Upcall(op, id))
    }

    /// Writes the reply to a request that the host has carried out.
    pub(super) fn write_shared(&self, op: Op, upcall: UpcallId, writer: &mut Writer<'_>) {
        let stage = self.upcalls.get(upcall).map(|slot| slot.stage);
        match (stage, op) {
            (Some(Stage::Named(0)), Op::GetJobAttr) => writer.raw(self.upcalls.text(upcall)),
            (_, Op::GetJobAttr) => writer.status(status::NOT_SUPPORTED),
            (Some(Stage::Named(0)), Op::Lookup) => write_found(self.upcalls.text(upcall), writer),
            (Some(Stage::Named(0)), _) => writer.status(status::SUCCESS),
            // Codes of pmi2.h.
            (Some(Stage::Named(i32::MIN..=-1)), _) => writer.status(status::NOT_AVAILABLE),
            (Some(Stage::Named(2)), _) => writer.status(status::OUT_OF_RESOURCE),
            (Some(Stage::Named(8)), _) => writer.status(status::BAD_PARAM),
            (_, Op::Publish) => writer.status(status::DUPLICATE_KEY),
            _ => writer.status(status::NOT_FOUND),
        }
    }
}

/// Writes the reply to a look-up with the data in the host's answer, unless the encoding of their integers is another one.
fn write_found(answer: &[u8], writer: &mut Writer<'_>) {
    let integers = writer.integers();
    let data = answer.split(|&byte| byte == pmix::DATA_SEPARATOR).take(most_named());
    let found = data.filter_map(Published::read).filter(|found| found.integers == integers);
    let count = found.clone().count() as u32;
    if count == 0 {
        return writer.status(status::NOT_FOUND);
    }
    writer.status(status::SUCCESS);
    writer.array(count);
    for found in found {
        writer.string_of(|writer| found.namespace().for_each(|byte| writer.byte(byte)));
        writer.uint32(found.publisher.rank);
        writer.string_of(|writer| found.key().for_each(|byte| writer.byte(byte)));
        writer.data_type(found.kind);
        found.value().for_each(|byte| writer.byte(byte));
    }
}

/// Returns whether a request to the host can name these keys. A board saves the code for several.
fn can_name<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    if HOST_FACTS { pmix::can_name(keys) } else { keys.count() == 1 }
}

/// Returns how many keys a request to the host names at most.
const fn most_named() -> usize {
    if HOST_FACTS { usize::MAX } else { 1 }
}
