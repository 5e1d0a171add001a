//! Messages between the head in srun and the nodes of a step, and between the sruns of a step and of those that it spawns.

use hydrant_host::{Job, Protocol, UpcallId};
use serde::{Deserialize, Serialize};

/// Message of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToHead {
    /// All tasks have been forked.
    Ready {
        /// Name of the node.
        name: String,
        /// Ranks of its tasks.
        ranks: Vec<u32>,
        /// Processors for them.
        processors: u32,
        /// In a spawned step the program that tasks here cannot execute.
        not_executed: Option<NotExecuted>,
    },
    /// A rank asks for a spawn.
    Spawn {
        /// Number of the spawn at the node's server.
        spawn: UpcallId,
        rank: u32,
        protocol: Protocol,
        request: Vec<u8>,
    },
    /// The node ends its tasks for a reason, and so must the others.
    Failed(String),
    /// All tasks have ended.
    Over,
}

/// Message of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    /// All nodes are ready, and the servers can start.
    Begin(Layout),
    /// Another node has failed.
    End,
    /// A spawn has been carried out, or refused.
    Spawned {
        spawn: UpcallId,
        /// Name of the job that runs.
        started: Option<String>,
        /// A code for each program.
        codes: Vec<u8>,
    },
    /// A step that a rank of this node has spawned is over.
    SpawnedOver,
}

/// Message to the srun of a spawned step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToSpawned {
    /// The first message, which is there when srun starts.
    Begin(Origin),
    /// The step that has spawned it ends, and has said why.
    End,
}

/// Message of the srun of a spawned step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToSpawner {
    /// All tasks run, as a job of this name.
    Started(String),
    /// A program cannot be executed.
    NotExecuted(NotExecuted),
    /// The step ends for a reason.
    Ending(String),
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
    /// Names of the nodes, from node 1 on.
    pub(crate) hosts: Vec<String>,
    /// A node has more ranks than processors.
    pub(crate) oversubscribed: bool,
    /// Number of tasks for which the allocation has processors, if it is known.
    pub(crate) universe: Option<u32>,
    /// Of a spawned step.
    pub(crate) origin: Option<Origin>,
}

impl Layout {
    /// Ranks of one node.
    pub(crate) fn alone(size: u32, host: &str, processors: u32) -> Layout {
        let (runs, hosts) = (vec![(1, size)], vec![host.to_owned()]);
        Layout { runs, hosts, oversubscribed: size > processors, universe: None, origin: None }
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
            let host = self.hosts.get((node as usize).wrapping_sub(1)).map_or("", String::as_str);
            job.node(node, host, count)
        });
        let job = match &self.origin {
            Some(origin) => {
                let job = origin.programs.iter().fold(job, |job, &ranks| job.program(ranks));
                spawned_by(job, &origin.spawner)
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

/// Puts the ranks of all nodes, from node 1 on, in order. Returns none unless each rank is there once.
pub(crate) fn runs_of(nodes: &[Vec<u32>]) -> Option<Vec<(u32, u32)>> {
    let size = nodes.iter().map(Vec::len).sum();
    let mut node_of = vec![0; size];
    for (node, ranks) in (1..).zip(nodes) {
        for &rank in ranks {
            // With as many places as ranks, each place is taken.
            let place = node_of.get_mut(rank as usize).filter(|place| **place == 0)?;
            *place = node;
        }
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for node in node_of {
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
        assert_eq!(runs_of(&[vec![0, 1], vec![2]]), Some(vec![(1, 2), (2, 1)]));
        assert_eq!(runs_of(&[vec![0, 2], vec![1, 3]]), Some(vec![(1, 1), (2, 1), (1, 1), (2, 1)]));
        assert_eq!(runs_of(&[vec![0, 1], vec![1]]), None);
        assert_eq!(runs_of(&[vec![0, 3], vec![1]]), None);
    }

    #[test]
    fn messages_round_trip() {
        let ready = ToHead::Ready { name: "n1".into(), ranks: vec![2, 3], processors: 4, not_executed: None };
        assert_eq!(decode(&encode(&ready)), Some(ready));
        let begin = ToNode::Begin(Layout::alone(2, "n1", 1));
        assert_eq!(decode(&encode(&begin)), Some(begin));
        assert_eq!(decode::<ToHead>(&[9]), None);
    }
}
