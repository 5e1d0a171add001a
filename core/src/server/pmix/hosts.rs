//! Hosts of a job for PMIx clients: their names (`PMIx_Resolve_nodes`), and the ranks on one of them
//! (`PMIx_Resolve_peers`). libpmix 4 gets them as attributes, libpmix 5 and later have requests of their own.

use super::super::Server;
use crate::fault::Refusal;
use crate::ids::JobId;
use crate::limits::HOST_FACTS;
use crate::state::{Job, PmixResponse, RankSlot, Response};
use crate::wire::pmix::{Infos, Writer, kind, status};
use crate::wire::{Text, decimal};

/// Key of the names of all hosts.
pub(super) const HOSTS: &[u8] = b"pmix.nlist";
/// Key of the ranks on a host.
pub(super) const RANKS: &[u8] = b"pmix.lpeers";
/// Key of the processes on a host.
pub(super) const PROCESSES: &[u8] = b"pmix.lprocs";
/// Key of the name of a host.
pub(super) const HOST: &[u8] = b"pmix.hname";
/// Key of the number of a host.
pub(super) const NUMBER: &[u8] = b"pmix.nodeid";
/// Key of the number of ranks on a host.
pub(super) const LOCAL_SIZE: &[u8] = b"pmix.local.size";
/// Key of the first rank on a host.
pub(super) const LEADER: &[u8] = b"pmix.lldr";
/// Key of the number of processes of all jobs on a host.
pub(super) const SIZE: &[u8] = b"pmix.node.size";
/// Keys of `Server::write_host_sizes`.
pub(super) const SIZES: [&[u8]; 3] = [LOCAL_SIZE, LEADER, SIZE];
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

/// Returns whether a request names a host.
pub(super) fn are_named(infos: &Infos<'_>) -> bool {
    infos.find(HOST).is_some() || HOST_FACTS && infos.find(NUMBER).is_some()
}

impl Server<'_> {
    /// Returns the node of a job whose host has the name, or the number, in the request. `None` if the request names no host, or
    /// none of the job.
    pub(super) fn requested_host(&self, id: JobId, infos: &Infos<'_>) -> Option<u32> {
        let job = &self.jobs[id.index()];
        match infos.find(HOST).and_then(|info| info.as_string()) {
            Some(name) => self.host_named(job, name),
            None if HOST_FACTS => {
                let number = infos.find(NUMBER)?.as_u32()?;
                nodes(&self.ranks[job.slots()]).find(|&node| self.host_number(node) == number)
            }
            None => None,
        }
    }

    /// Returns the node of a job whose host has a name.
    fn host_named(&self, job: &Job, wanted: &[u8]) -> Option<u32> {
        nodes(&self.ranks[job.slots()]).find(|&node| match self.host_name(job, node) {
            Some(name) => name == wanted,
            None => {
                let number = self.host_number(node);
                wanted.strip_prefix(UNNAMED) == Some(decimal(number, &mut [0; 10]))
            }
        })
    }

    /// Returns the job with a namespace, or none that stands for all jobs.
    fn job_or_all(&self, namespace: Option<&[u8]>) -> Result<Option<JobId>, Refusal> {
        let job = |name| self.named(Text::plain(name)).ok_or(Refusal::NoJob);
        namespace.map(job).transpose()
    }

    /// Returns a job, or all that are no tools.
    fn listed(&self, job: Option<JobId>) -> impl Iterator<Item = &Job> + Clone {
        let is_listed = move |at: u32, of: &Job| match job {
            Some(job) => job.0 == at,
            None => !of.name.is_empty() && !self.is_tool(of),
        };
        (0u32..).zip(&*self.jobs).filter(move |&(at, of)| is_listed(at, of)).map(|(_, of)| of)
    }

    /// Returns the response to a request for the processes on a host, of a namespace or of all. The client looks for a host that is
    /// not found in what it knows: it knows its own also by a name that the server does not.
    pub(super) fn peers_on(
        &self,
        host: Option<&[u8]>,
        namespace: Option<&[u8]>,
    ) -> Result<Response, Refusal> {
        let job = self.job_or_all(namespace)?;
        let node = match host {
            Some(name) => self.listed(job).find_map(|job| self.host_named(job, name)),
            None => Some(self.links.node()),
        };
        let peers = node.map(|node| Response::Pmix(PmixResponse::PeersOn(job, node)));
        Ok(peers.unwrap_or(Response::status(status::NOT_FOUND)))
    }

    /// Writes the processes on a node, of a job or of all.
    pub(super) fn write_peers_on(&self, job: Option<JobId>, node: u32, writer: &mut Writer<'_>) {
        if !HOST_FACTS {
            return writer.status(status::NOT_SUPPORTED);
        }
        let peers = || {
            let jobs = self.listed(job);
            jobs.flat_map(|of| ranks_on(&self.ranks[of.slots()], node).map(move |rank| (of, rank)))
        };
        writer.status(status::SUCCESS);
        writer.array(peers().count() as u32);
        for (of, rank) in peers() {
            writer.proc(of.name.as_bytes(), rank);
        }
    }

    /// Returns the response to a request for the hosts of a namespace, or of all.
    pub(super) fn hosts_of(&self, namespace: Option<&[u8]>) -> Result<Response, Refusal> {
        Ok(Response::Pmix(PmixResponse::HostsOf(self.job_or_all(namespace)?)))
    }

    /// Writes the names of the hosts of a job, or of all jobs.
    pub(super) fn write_hosts_of(&self, job: Option<JobId>, writer: &mut Writer<'_>) {
        if !HOST_FACTS {
            return writer.status(status::NOT_SUPPORTED);
        }
        let ranks = |job: &Job| &self.ranks[job.slots()];
        let hosts = || {
            self.listed(job).enumerate().flat_map(move |(at, of)| {
                let is_new = move |&node: &u32| {
                    self.listed(job).take(at).all(|before| ranks_on(ranks(before), node).next().is_none())
                };
                nodes(ranks(of)).filter(is_new).map(move |node| (of, node))
            })
        };
        writer.status(status::SUCCESS);
        writer.single();
        self.write_host_names(hosts, writer);
    }

    /// Writes the names of all hosts of a job, separated by commas.
    pub(super) fn write_hosts(&self, job: &Job, writer: &mut Writer<'_>) {
        writer.key(HOSTS, kind::STRING);
        self.write_host_names(|| nodes(&self.ranks[job.slots()]).map(|node| (job, node)), writer);
    }

    /// Writes the names of hosts of jobs as a STRING, separated by commas.
    fn write_host_names<'j, I>(&self, hosts: impl Fn() -> I, writer: &mut Writer<'_>)
    where
        I: Iterator<Item = (&'j Job, u32)>,
    {
        writer.string_of(|writer| {
            for (at, (job, node)) in hosts().enumerate() {
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

    /// Writes the number of a host, and those of the ranks of a job and of all processes on it.
    pub(super) fn write_host_sizes(&self, job: &Job, node: u32, writer: &mut Writer<'_>) {
        let ranks = || ranks_on(&self.ranks[job.slots()], node);
        let all = self.listed(None).flat_map(|of| ranks_on(&self.ranks[of.slots()], node)).count();
        writer.key(b"pmix.node.arr", kind::DATA_ARRAY);
        writer.data_type(kind::INFO);
        writer.size(5);
        writer.info(HOST, kind::STRING);
        writer.string_of(|writer| self.write_host_name(job, node, writer));
        for (key, number) in
            [(NUMBER, self.host_number(node)), (LOCAL_SIZE, ranks().count() as u32), (SIZE, all as u32)]
        {
            writer.info(key, kind::UINT32);
            writer.uint32(number);
        }
        writer.info(LEADER, kind::PROC_RANK);
        writer.uint32(ranks().next().unwrap_or_default());
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
