//! Daemon that lies: it sends reports and messages of its PMI server that are legal bytes and false, beside its true ones.

use hydrant_control::protocol::{BackendFailure, OutputChunk, Report, StartError, encode};
use hydrant_core::peer::message::{Collective, ExitReport, Head, Item, JobRef, RecordKind, Writer};
use hydrant_core::trace::{Cause, Exit};
use hydrant_core::wire::Protocol;
use hydrant_core::{JobId, OwnedOutput, Rank, UpcallId};

use super::head::start_error;
use super::node::{LocalJob, Packet};
use super::world::World;

/// A job and ranks that a lie is about.
struct Victim {
    job: JobId,
    size: u32,
    /// A rank of the liar, or one that the job does not have.
    own: Rank,
    /// A rank of another node, or one that the job does not have.
    other: Rank,
}

impl World<'_> {
    /// Tells one lie.
    pub(super) fn lie(&mut self, node: u32) {
        let Some(victim) = self.victim(node).filter(|_| !self.nodes[node as usize].ended) else { return };
        self.lies += 1;
        match self.random.u32(..3) {
            0 => self.lie_to_neighbour(node, &victim),
            _ => self.lie_to_head(node, &victim),
        }
    }

    fn victim(&mut self, node: u32) -> Option<Victim> {
        let jobs = &self.nodes[node as usize].jobs;
        let at = self.random.usize(..jobs.len().max(1));
        let (&job, &LocalJob { size, .. }) = jobs.iter().nth(at)?;
        let here = |rank: &u32| self.nodes[node as usize].processes.contains_key(&(job, *rank));
        let own = (0..size).find(here).unwrap_or(size);
        let others: Vec<u32> = (0..size).filter(|rank| !here(rank)).collect();
        let other = if others.is_empty() { size + 3 } else { others[self.random.usize(..others.len())] };
        Some(Victim { job, size, own: Rank(own), other: Rank(other) })
    }

    fn lie_to_head(&mut self, node: u32, victim: &Victim) {
        let &Victim { job, size, own, other } = victim;
        let either = if self.random.bool() { own } else { other };
        let exit = if self.random.bool() { Exit::Code(0) } else { Exit::Signal(9) };
        let (upcall, protocol) = (UpcallId(self.random.u32(..4)), Protocol::V2);
        let message = String::new();
        let report = match self.random.u32(..21) {
            0 => Report::Exited { job, rank: other, exit, requested: None },
            1 => Report::Exited { job, rank: own, exit, requested: Some(0) },
            2 => Report::RanksStarted { job, ranks: vec![(either, 5)] },
            3 => Report::JobDone(job),
            4 => Report::JobStarted(job),
            5 => {
                let error = StartError { code: 0, appnum: Some(9), ..start_error("no such program") };
                Report::StartFailed { job, error }
            }
            6 => {
                let cause = Cause::Abort { rank: either, code: Some(0) };
                Report::Output(OwnedOutput::AbortJob { job, cause, message })
            }
            7 => {
                let cause = Cause::Absent { rank: other, exit };
                Report::Output(OwnedOutput::AbortJob { job, cause, message })
            }
            8 => {
                let cause = Cause::Died { rank: other, exit };
                Report::Output(OwnedOutput::AbortJob { job, cause, message })
            }
            9 => Report::RanksJoined { job, ranks: 1 + self.random.u32(..2 * size) },
            10 => Report::StdinConsumed(if self.random.bool() { u32::MAX } else { self.random.u32(1..9999) }),
            11 => {
                // What it says of its own ranks it also does.
                self.cut_input(node);
                Report::StdinClosed
            }
            12 => Report::RankStates { query: self.random.u64(..4), body: vec![0xff; 9] },
            13 => Report::Ready,
            14 => {
                let missing = "0-4294967295,9-3,x".to_owned();
                Report::Output(OwnedOutput::StalledFence { job, arrived: 9, size: 3, missing })
            }
            15 => {
                let request =
                    b"cmd=spawn;ncmds=1;preputcount=0;subcmd=none;maxprocs=4294967295;argc=0;infokeycount=0;";
                let request = request.to_vec();
                Report::Output(OwnedOutput::Spawn { spawn: upcall, job, rank: either, protocol, request })
            }
            16 => {
                let request = b"cmd=pset-define;name=left;members=0-99;".to_vec();
                Report::Output(OwnedOutput::Upcall { upcall, job, rank: either, protocol, request })
            }
            17 => {
                let other = self.random.u32(..=self.plan.daemons + 1);
                Report::BackendFailed(BackendFailure::Neighbour { node: other, why: "a lie".to_owned() })
            }
            18 => {
                let rank = if self.random.bool() { other } else { Rank(size + 9999) };
                let chunk = OutputChunk { job, rank, stderr: false, bytes: b"false" };
                return self.send_output(node, encode(&chunk));
            }
            19 => Report::JobDone(JobId(self.random.u32(..4))),
            _ => Report::Identity { pid: 0 },
        };
        self.report(node, &report);
    }

    fn lie_to_neighbour(&mut self, node: u32, victim: &Victim) {
        let parent = self.tree.parent(node).expect("the head does not lie");
        let mut neighbours: Vec<u32> = self.tree.children(node).map(|child| child.start).collect();
        neighbours.push(parent);
        let to = neighbours[self.random.usize(..neighbours.len())];
        let sent = &self.nodes[node as usize].sent;
        let (to, bytes) = match self.random.u32(..3) {
            0 if !sent.is_empty() => sent[self.random.usize(..sent.len())].clone(),
            1 if !sent.is_empty() => {
                let (to, mut bytes) = sent[self.random.usize(..sent.len())].clone();
                let at = self.random.usize(..bytes.len());
                bytes[at] = self.random.u8(..);
                self.are_keys_false = true;
                (to, bytes)
            }
            _ => (to, self.false_message(node, victim)),
        };
        self.send(node, to, Packet::Peer(bytes));
    }

    /// Returns a message about a job that is not true.
    fn false_message(&mut self, node: u32, victim: &Victim) -> Vec<u8> {
        let name = self.job_hash(node, victim.job);
        let job = JobRef { job: victim.job, name };
        let at = if self.random.bool() { Collective::Fence } else { Collective::Ring };
        let rank = if self.random.bool() { victim.own } else { victim.other };
        let collects = self.random.bool();
        let head = match self.random.u32(..4) {
            0 => Head::Arrive { job, at, collects },
            1 => Head::Release { job, at, collects },
            2 => Head::Exits,
            _ => Head::Records { job, of: RecordKind::Pair },
        };
        let mut buffer = [0; 256];
        let mut writer = Writer::new(&mut buffer, head).expect("a head is short");
        match head {
            Head::Exits => {
                let (joined, dead) = (self.random.bool(), self.random.bool());
                let exit = Exit::Code(self.random.u8(..));
                writer.push(&ExitReport { job, rank: rank.0, exit, joined, dead });
            }
            Head::Records { .. } => {
                let key = format!("false{}", self.random.u32(..9));
                writer.push(&Item { rank: rank.0, key: key.as_bytes(), value: b"9_false" });
            }
            _ => {}
        }
        writer.finish().to_vec()
    }

    /// Returns the hash of a job's name, which references to it contain, from an earlier message about it.
    fn job_hash(&self, node: u32, of: JobId) -> u32 {
        let heads = self.nodes[node as usize]
            .sent
            .iter()
            .filter_map(|(_, bytes)| hydrant_core::peer::message::split(bytes).map(|(head, _)| head));
        let mut jobs = heads.filter_map(|head| match head {
            Head::Records { job, .. } | Head::Arrive { job, .. } | Head::Release { job, .. } => Some(job),
            _ => None,
        });
        jobs.find(|job| job.job == of).map_or(0, |job| job.name)
    }
}
