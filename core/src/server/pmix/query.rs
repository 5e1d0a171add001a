//! Queries of PMIx clients: process sets.

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::ConnId;
use crate::state::{PmixResponse, Response};
use crate::tables::psets::Which;
use crate::wire::pmix::{Queries, Writer, kind, status};

/// Query of the names of all process sets.
const NAMES: &[u8] = b"pmix.qry.psets";
/// Query of the number of process sets.
const COUNT: &[u8] = b"pmix.qry.psetnum";
/// Query of the members of a process set.
const MEMBERS: &[u8] = b"pmix.qry.pmems";
/// Qualifier with the name of a process set.
const PSET: &[u8] = b"pmix.pset.nm";
/// Beginning of the names of sets that hosts define for every job. They are not listed, because they are no sets of users.
const OF_HOST: &str = "hydrant://";

impl Server<'_> {
    /// Answers queries about process sets: the members of one set, or the names and the number of all.
    pub(super) fn pmix_query(
        &self,
        requester: Requester,
        queries: &Queries<'_>,
    ) -> Result<Response, Refusal> {
        let keys = || queries.iter().flat_map(|query| query.keys.iter());
        let asks = |wanted: &[u8]| keys().any(|key| key == wanted);
        if asks(MEMBERS) {
            let mut names = queries.iter().filter_map(|query| query.qualifiers.find(PSET)?.as_string());
            let name =
                names.next().and_then(|name| core::str::from_utf8(name).ok()).ok_or(Refusal::NoPset)?;
            let which = self.psets.named_of(self.asker(requester).job, name).ok_or(Refusal::NoPset)?;
            return Ok(Response::PsetMembers(which, 0));
        }
        match (asks(NAMES), asks(COUNT)) {
            (false, false) => Err(Refusal::NoPset),
            (names, count) => Ok(Response::Pmix(PmixResponse::Psets { names, count })),
        }
    }

    /// Writes the names of the process sets of the client's job that users and programs defined, and their number, as
    /// requested.
    ///
    /// Open MPI 5.0 requests the number alone and cannot read it. Names in front of the number would make it offer sets in
    /// sessions whose size and group it does not find.
    pub(super) fn write_psets(&self, id: ConnId, (named, count): (bool, bool), writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return writer.status(status::ERROR) };
        let of_job = || self.psets.of_job(self.asker(requester).job);
        let names = || of_job().filter(|name| !name.starts_with(OF_HOST));
        writer.status(status::SUCCESS);
        writer.array(u32::from(named) + u32::from(count));
        if named {
            writer.info(NAMES, kind::STRING);
        }
        if named && names().next().is_none() {
            writer.null_string();
        } else if named {
            writer.string_of(|writer| {
                for (at, name) in names().enumerate() {
                    if at > 0 {
                        writer.byte(b',');
                    }
                    writer.raw(name.as_bytes());
                }
            });
        }
        if count {
            writer.info(COUNT, kind::SIZE);
            writer.size(names().count() as u64);
        }
    }

    /// Writes the members of a process set.
    pub(super) fn write_members(&self, id: ConnId, which: Which, writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return writer.status(status::ERROR) };
        let members = || self.members(self.asker(requester), which);
        writer.status(status::SUCCESS);
        writer.array(1);
        writer.info(MEMBERS, kind::DATA_ARRAY);
        writer.data_type(kind::PROC);
        writer.size(members().count() as u64);
        for (job, rank) in members() {
            writer.proc(self.jobs[job.index()].name.as_bytes(), rank.0);
        }
    }
}
