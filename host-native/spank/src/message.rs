//! Messages between the head in srun and the nodes of its step and of those that ranks spawn, and what the servers know of a job.

use std::collections::BTreeMap;

use hydrant_core::OwnedInput;
use hydrant_host::{Host, Input, Job, JobId, Protocol, Rank, UpcallId, decode_spawn};
use serde::{Deserialize, Serialize};

/// The job of the first step.
pub(crate) const FIRST: JobId = JobId(0);

/// Message of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToHead {
    /// All tasks have been forked.
    Ready(Ready),
    /// A rank asks for a spawn.
    Spawn(Call),
    /// A rank asks for what concerns all nodes: names, process sets, connections of jobs.
    Upcall(Call),
    /// The process of a rank has ended.
    Exited { job: JobId, rank: Rank },
    /// The server has forgotten a job, and sends nothing of it any more.
    Deregistered(JobId),
    /// The node ends its tasks for a reason, and so must the others.
    Failed(String),
    /// All tasks have ended.
    Over,
}

/// A node whose tasks have been forked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Name of its job.
    pub(crate) job: String,
    /// Name of the node.
    pub(crate) name: String,
    /// Ranks of its tasks.
    pub(crate) ranks: Vec<u32>,
    /// Processors for them.
    pub(crate) processors: u32,
    /// In a spawned step the program that tasks here cannot execute.
    pub(crate) not_executed: Option<NotExecuted>,
    /// Why the node does not serve its tasks.
    pub(crate) refused: Option<String>,
}

/// A request of a rank that the server of its node passes to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Its number at that server.
    pub(crate) upcall: UpcallId,
    pub(crate) job: JobId,
    pub(crate) rank: Rank,
    pub(crate) protocol: Protocol,
    pub(crate) request: Vec<u8>,
}

impl Call {
    /// Number of programs of a spawn.
    pub(crate) fn programs(&self) -> usize {
        decode_spawn(self.protocol, &self.request).map_or(0, |spawn| spawn.programs().count())
    }
}

/// Message of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    /// Registers a job. The node's tasks are of the one that has their name.
    Register(Box<Registration>),
    /// Deregisters a job whose tasks have ended.
    Deregister(JobId),
    /// An input of the server.
    Input(OwnedInput),
    /// An input of all servers that a rank of this node has asked for. Its result is the answer.
    Asked { upcall: UpcallId, input: OwnedInput },
    /// All tasks are to end.
    End,
    /// A step that a rank of this node has spawned is over.
    SpawnedOver,
}

/// A job of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) job: JobId,
    /// Its name for clients.
    pub(crate) name: String,
    pub(crate) layout: Layout,
    /// The spawn at this node's server that it is started for.
    pub(crate) spawn: Option<UpcallId>,
}

impl Registration {
    /// Registers the job at a server. The head has the names that its ranks publish, if there is a head.
    pub(crate) fn apply(&self, host: &mut Host, has_head: bool) -> Result<(), hydrant_host::Error> {
        let &Registration { job, ref name, ref layout, spawn } = self;
        let mut described = layout.job(name);
        described.spec.remote_names = has_head;
        if let Some(spawn) = spawn {
            described = described.spawned_by(spawn);
        }
        host.register_job_as(job, &described)?;
        // The server that has passed the spawn has them.
        let pairs = layout.origin.iter().filter(|_| spawn.is_none()).flat_map(|origin| &origin.pairs);
        pairs.into_iter().try_for_each(|(key, value)| host.input(Input::Preput { job, key, value }))
    }
}

/// A program that cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotExecuted {
    /// Its number among those of the spawn, of which there are at most 256.
    pub(crate) program: u8,
    pub(crate) errno: u8,
}

/// Where a spawned step comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Name of the job whose rank asked.
    pub(crate) spawner: String,
    pub(crate) rank: Rank,
    /// Number of ranks of each program.
    pub(crate) programs: Vec<u32>,
    /// Pairs that the rank has put for them.
    pub(crate) pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Ranks of a step and their nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// All ranks in order: number of the node and number of consecutive ranks on it.
    pub(crate) runs: Vec<(u32, u32)>,
    /// Names of the nodes by number.
    pub(crate) hosts: BTreeMap<u32, String>,
    /// A node has more ranks than processors.
    pub(crate) oversubscribed: bool,
    /// Number of tasks for which the allocation has processors, if it is known.
    pub(crate) universe: Option<u32>,
    /// Of a spawned step.
    pub(crate) origin: Option<Origin>,
}

impl Layout {
    /// Ranks of one node.
    pub(crate) fn alone(node: u32, size: u32, host: &str, processors: u32) -> Layout {
        let hosts = [(node, host.to_owned())].into();
        Layout {
            runs: vec![(node, size)],
            hosts,
            oversubscribed: size > processors,
            universe: None,
            origin: None,
        }
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> u32 {
        self.runs.iter().fold(0, |size, &(_, count)| size.saturating_add(count))
    }

    /// The job of the step, which is the same for the servers of all nodes.
    pub(crate) fn job(&self, name: &str) -> Job {
        let size = self.size();
        // Spawned steps have the rest of the allocation.
        let job = Job::new(name, size).universe_size(self.universe.unwrap_or(0).max(size));
        let job = self.runs.iter().fold(job, |job, &(node, count)| {
            job.node(node, self.hosts.get(&node).map_or("", String::as_str), count)
        });
        let job = match &self.origin {
            Some(origin) => {
                let job = origin.programs.iter().fold(job, |job, &ranks| job.program(ranks));
                spawned_by(job, &origin.spawner).attribute("pmix.parent", origin.rank.to_string())
            }
            None => job,
        };
        if self.oversubscribed { job.oversubscribed() } else { job }
    }
}

/// A job that a rank of a job of another step has spawned.
pub(crate) fn spawned_by(mut job: Job, spawner: &str) -> Job {
    spawner.clone_into(&mut job.spec.spawner);
    job
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("these types have no map and no unknown length")
}

/// Decodes a message.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// Puts the ranks of nodes, each with its number, in order. Returns none unless each rank is there once.
pub(crate) fn runs_of<'a>(
    nodes: impl IntoIterator<Item = (u32, &'a [u32]), IntoIter: Clone>,
) -> Option<Vec<(u32, u32)>> {
    let nodes = nodes.into_iter();
    let mut node_of = vec![None; nodes.clone().map(|(_, ranks)| ranks.len()).sum()];
    for (node, ranks) in nodes {
        for &rank in ranks {
            // With as many places as ranks, each place is taken.
            let place = node_of.get_mut(rank as usize).filter(|place| place.is_none())?;
            *place = Some(node);
        }
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for node in node_of.into_iter().flatten() {
        match runs.last_mut() {
            Some((last, count)) if *last == node => *count += 1,
            _ => runs.push((node, 1)),
        }
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_all_nodes_are_put_in_order() {
        let of = |nodes: &[&[u32]]| runs_of((3..).zip(nodes.iter().copied()).collect::<Vec<_>>());
        assert_eq!(of(&[&[0, 1], &[2]]), Some(vec![(3, 2), (4, 1)]));
        assert_eq!(of(&[&[0, 2], &[1, 3]]), Some(vec![(3, 1), (4, 1), (3, 1), (4, 1)]));
        assert_eq!(of(&[&[0, 1], &[1]]), None);
        assert_eq!(of(&[&[0, 3], &[1]]), None);
    }

    #[test]
    fn messages_round_trip() {
        let ready = Ready { job: "a".into(), name: "n1".into(), ranks: vec![2, 3], ..Ready::default() };
        let ready = ToHead::Ready(ready);
        assert_eq!(decode(&encode(&ready)), Some(ready));
        let layout = Layout::alone(1, 2, "n1", 1);
        let registration = Registration { job: JobId(0), name: "a".into(), layout, spawn: None };
        let register = ToNode::Register(registration.into());
        assert_eq!(decode(&encode(&register)), Some(register));
        assert_eq!(decode::<ToHead>(&[99]), None);
    }
}
