//! Hosts of a job for PMIx clients: their names (`PMIx_Resolve_nodes`), and the ranks on one of them
//! (`PMIx_Resolve_peers`).

use super::super::Server;
use crate::ids::JobId;
use crate::state::{Job, RankSlot};
use crate::wire::decimal;
use crate::wire::pmix::{Infos, Writer, kind};

/// Key of the names of all hosts.
pub(super) const HOSTS: &[u8] = b"pmix.nlist";
/// Key of the ranks on a host.
pub(super) const RANKS: &[u8] = b"pmix.lpeers";
/// Key of the processes on a host.
pub(super) const PROCESSES: &[u8] = b"pmix.lprocs";
/// Key of the name of a host.
pub(super) const HOST: &[u8] = b"pmix.hname";
/// Start of the name of a host whose name is not known. The number of the host follows.
const UNNAMED: &[u8] = b"node";

/// Returns the nodes with ranks of a job, in the order of their first ranks.
pub(super) fn nodes(ranks: &[RankSlot]) -> impl Iterator<Item = u32> {
    let is_first = |&at: &usize| {
        let node = ranks[at].node;
        // The rank before is mostly on the same node.
        at == 0 || ranks[at - 1].node != node && ranks[..at].iter().all(|rank| rank.node != node)
    };
    (0..ranks.len()).filter(is_first).map(|at| ranks[at].node)
}

/// Returns the ranks of a job on a node, of the slots of its ranks.
pub(super) fn ranks_on(ranks: &[RankSlot], node: u32) -> impl Iterator<Item = u32> {
    (0u32..).zip(ranks).filter(move |(_, slot)| slot.node == node).map(|(rank, _)| rank)
}

impl Server<'_> {
    /// Returns the node of a job whose host has the name in the request. `None` if the request names no host, or none of
    /// the job.
    pub(super) fn requested_host(&self, id: JobId, infos: &Infos<'_>) -> Option<u32> {
        let wanted = infos.find(HOST)?.as_string()?;
        let job = &self.jobs[id.index()];
        nodes(&self.ranks[job.slots()]).find(|&node| match self.host_name(job, node) {
            Some(name) => name == wanted,
            None => {
                let number = self.host_number(node);
                wanted.strip_prefix(UNNAMED) == Some(decimal(number, &mut [0; 10]))
            }
        })
    }

    /// Writes the names of all hosts of a job, separated by commas.
    pub(super) fn write_hosts(&self, job: &Job, writer: &mut Writer<'_>) {
        writer.key(HOSTS, kind::STRING);
        writer.string_of(|writer| {
            for (at, node) in nodes(&self.ranks[job.slots()]).enumerate() {
                if at > 0 {
                    writer.byte(b',');
                }
                self.write_host_name(job, node, writer);
            }
        });
    }

    /// Writes the ranks of a job on one host.
    pub(super) fn write_host(&self, job: &Job, node: u32, writer: &mut Writer<'_>) {
        writer.key(b"pmix.node.arr", kind::DATA_ARRAY);
        writer.data_type(kind::INFO);
        writer.size(3);
        writer.info(HOST, kind::STRING);
        writer.string_of(|writer| self.write_host_name(job, node, writer));
        writer.info(RANKS, kind::STRING);
        self.write_ranks_on(job, node, writer);
        writer.info(PROCESSES, kind::DATA_ARRAY);
        self.write_processes_on(job, node, writer);
    }

    /// Writes the processes of a job on this host.
    pub(super) fn write_processes(&self, job: &Job, writer: &mut Writer<'_>) {
        writer.key(PROCESSES, kind::DATA_ARRAY);
        self.write_processes_on(job, self.links.node(), writer);
    }

    /// Writes the processes of a job on a node as a DATA_ARRAY.
    fn write_processes_on(&self, job: &Job, node: u32, writer: &mut Writer<'_>) {
        let ranks = || ranks_on(&self.ranks[job.slots()], node);
        writer.data_type(kind::PROC);
        writer.size(ranks().count() as u64);
        for rank in ranks() {
            writer.proc(job.name.as_bytes(), rank);
        }
    }

    /// Writes the ranks of a job on a node as a STRING, separated by commas.
    pub(super) fn write_ranks_on(&self, job: &Job, node: u32, writer: &mut Writer<'_>) {
        writer.string_of(|writer| {
            for (at, rank) in ranks_on(&self.ranks[job.slots()], node).enumerate() {
                if at > 0 {
                    writer.byte(b',');
                }
                writer.raw(decimal(rank, &mut [0; 10]));
            }
        });
    }

    fn write_host_name(&self, job: &Job, node: u32, writer: &mut Writer<'_>) {
        match self.host_name(job, node) {
            Some(name) => writer.raw(name),
            None => {
                writer.raw(UNNAMED);
                writer.raw(decimal(self.host_number(node), &mut [0; 10]));
            }
        }
    }
}
