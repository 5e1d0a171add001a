//! Attributes of nodes and jobs.

use super::Server;
use super::dispatch::Asker;
use crate::fault::Refusal;
use crate::slabs::{Answer, What};
use crate::tables::kvs::{Before, Kind};
use crate::wire::{Op, Text};

impl Server<'_> {
    pub(super) fn put_node_attr(
        &mut self,
        asker: Asker,
        key: Text<'_>,
        value: Text<'_>,
    ) -> Result<Answer, Refusal> {
        let (record, before) = self.store(asker, Kind::Node, key, Some(value))?;
        if let Before::Wanted(wish) = before {
            for index in self.jobs[asker.job.index()].slots() {
                self.answer_rank(index, |what| {
                    (what == What::NodeAttr(wish)).then_some(Answer::Record(Op::GetNodeAttr, record))
                });
            }
        }
        Ok(Answer::Done(Op::PutNodeAttr))
    }

    /// With `wait`, an attribute that nobody has put is stored as a wish, for which the reply waits.
    pub(super) fn get_node_attr(&mut self, asker: Asker, key: Text<'_>, wait: bool) -> Result<What, Refusal> {
        let spaces = self.jobs[asker.job.index()].spaces;
        let found = self.kvs.find((spaces, Kind::Node), key.parts())?;
        let wished = |record| self.kvs.record(record).is_some_and(|record| record.wanted);
        Ok(match found {
            Some(record) if !wished(record) => What::Answer(Answer::Record(Op::GetNodeAttr, record)),
            _ if !wait => What::Answer(Answer::Missing(Op::GetNodeAttr)),
            Some(wish) => What::NodeAttr(wish),
            None => What::NodeAttr(self.store(asker, Kind::Node, key, None)?.0),
        })
    }

    /// Job attributes are what the host said and what the server knows itself.
    pub(super) fn get_job_attr(&self, asker: Asker, op: Op, key: Text<'_>) -> Result<Answer, Refusal> {
        let spaces = self.jobs[asker.job.index()].spaces;
        if let Some(record) = self.kvs.find((spaces, Kind::Job), key.parts())? {
            return Ok(Answer::Record(op, record));
        }
        Ok(match key.as_plain() {
            Some(b"universeSize") => Answer::Universe(op),
            Some(b"PMI_dead_processes") => Answer::Dead(op),
            _ => Answer::Missing(op),
        })
    }
}
