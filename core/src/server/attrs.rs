//! Attributes of nodes and jobs.

use super::Server;
use super::dispatch::{Requester, contiguous};
use crate::fault::Refusal;
use crate::limits::{ESCAPES_ATTR, KEY_MAX};
use crate::state::{Attr, Job, ReplyState, Response};
use crate::tables::kvs::{Before, Kind};
use crate::wire::{Op, Text};

impl Server<'_> {
    /// Returns whether an attribute of a job is `TRUE`.
    #[cold]
    pub(super) fn is_true(&self, job: &Job, key: &str) -> bool {
        let found = self.kvs.find((job.spaces, Kind::Job), key.as_bytes()).ok().flatten();
        found.and_then(|record| self.kvs.value(record)) == Some(b"TRUE")
    }

    pub(super) fn put_node_attr(
        &mut self,
        requester: Requester,
        key: Text<'_>,
        value: Text<'_>,
    ) -> Result<Response, Refusal> {
        let (record, before) = self.store(requester, Kind::Node, key, Some(value))?;
        if let Before::Wanted(wanted_record) = before {
            for index in self.jobs[requester.job.index()].slots() {
                self.respond_to_rank(index, |what| {
                    (what == ReplyState::NodeAttr(wanted_record))
                        .then_some(Response::Record(Op::GetNodeAttr, record))
                });
            }
        }
        Ok(Response::Done(Op::PutNodeAttr))
    }

    /// Returns a node attribute. With `wait`, a missing attribute is stored as a wanted record, for which the reply
    /// waits.
    pub(super) fn get_node_attr(
        &mut self,
        requester: Requester,
        key: Text<'_>,
        wait: bool,
    ) -> Result<ReplyState, Refusal> {
        let spaces = self.jobs[requester.job.index()].spaces;
        let mut room = [0; KEY_MAX as usize];
        let found = self.kvs.find((spaces, Kind::Node), contiguous(&key, &mut room)?)?;
        let wished = |record| self.kvs.record(record).is_some_and(|record| record.wanted);
        Ok(match found {
            Some(record) if !wished(record) => ReplyState::Ready(Response::Record(Op::GetNodeAttr, record)),
            None if let Some(attr) = node_attr(key) => {
                ReplyState::Ready(Response::Attr(Op::GetNodeAttr, attr))
            }
            _ if !wait => ReplyState::Ready(Response::Missing(Op::GetNodeAttr)),
            Some(wanted_record) => ReplyState::NodeAttr(wanted_record),
            None => ReplyState::NodeAttr(self.store(requester, Kind::Node, key, None)?.0),
        })
    }

    /// Returns a job attribute that the host has set, or that the server computes.
    pub(super) fn get_job_attr(
        &self,
        requester: Requester,
        op: Op,
        key: Text<'_>,
    ) -> Result<Response, Refusal> {
        let spaces = self.jobs[requester.job.index()].spaces;
        let mut room = [0; KEY_MAX as usize];
        if let Some(record) = self.kvs.find((spaces, Kind::Job), contiguous(&key, &mut room)?)? {
            return Ok(Response::Record(op, record));
        }
        let knows_universe = self.jobs[requester.job.index()].universe_size > 0;
        let attr = job_attr(key).filter(|attr| !matches!(attr, Attr::Universe) || knows_universe);
        Ok(attr.map_or(Response::Missing(op), |attr| Response::Attr(op, attr)))
    }
}

/// Returns a node attribute that the server computes. It has neither `memPoolType` nor `cartCoords` of pmi2.h.
fn node_attr(key: Text<'_>) -> Option<Attr> {
    match key.as_plain()? {
        b"localRanksCount" => Some(Attr::LocalCount),
        b"localRanks" => Some(Attr::LocalRanks),
        _ => None,
    }
}

/// Returns a job attribute that the server computes. It has neither `physTopologyLevels` nor `cartDims` of pmi2.h,
/// which a complete network does not have.
fn job_attr(key: Text<'_>) -> Option<Attr> {
    match key.as_plain()? {
        b"universeSize" => Some(Attr::Universe),
        b"PMI_dead_processes" => Some(Attr::Dead),
        b"hasNameServ" => Some(Attr::NameServ),
        name if name == ESCAPES_ATTR.as_bytes() => Some(Attr::Escapes),
        b"physTopology" => Some(Attr::Topology),
        b"isHeterogeneous" => Some(Attr::Heterogeneous),
        _ => None,
    }
}
