//! Spawned jobs: which nodes their ranks go to.

use std::borrow::Cow;
use std::collections::BTreeSet;

use hydrant_core::limits::VALUE_MAX;
use hydrant_core::wire::{Protocol, decode_spawn};
use hydrant_core::{JobId, Rank, UpcallId};
use hydrant_placement::{Host, JobMap, MappingPolicy, candidates, process_mapping};

use super::spread::spread;
use super::upcall::{Request, bytes};
use super::{Action, HEAD, Head, NodeProgress, RequestId, SpawnProgram, Stopped, Upcall};
use crate::error::Error;
use crate::jobs::Job;
use crate::protocol::{CANCELED, RankBlock, SpawnOrigin, ToolOptions};
use crate::psets::{RankRanges, format_ranges, ranges_of};

/// A spawn of a rank whose programs have been read, one result a program.
#[derive(Debug)]
struct RankSpawn {
    request: RequestId,
    nonce: u64,
    programs: Vec<Result<SpawnProgram, (u8, String)>>,
}

/// A spawn of a tool: [`Event::ToolSpawns`](super::Event::ToolSpawns).
#[derive(Debug)]
pub(super) struct ToolSpawn {
    pub(super) upcall: UpcallId,
    pub(super) job: JobId,
    pub(super) tool: String,
    pub(super) nonce: u64,
    pub(super) programs: Vec<SpawnProgram>,
    pub(super) options: ToolOptions,
}

#[derive(Debug)]
enum Spawn {
    OfRank(RankSpawn),
    OfTool(ToolSpawn),
}

/// A spawn that goes on when the daemons of its hosts have joined.
#[derive(Debug)]
pub(super) struct WaitingSpawn {
    spawn: Spawn,
    /// Nodes whose daemons have neither joined nor failed.
    awaited: BTreeSet<u32>,
    /// Why the first of them that has failed has not joined.
    refused: Option<String>,
}

impl Head {
    /// A rank asks for a spawn: all of it is started or nothing.
    pub(super) fn spawn(&mut self, upcall: Upcall) {
        let spawner =
            self.jobs.get(upcall.job).filter(|job| !job.is_ending() && !self.statuses.ends(job.submission));
        let Some(spawner) = spawner else {
            let programs =
                decode_spawn(upcall.protocol, &upcall.request).map_or(0, |spawn| spawn.programs().count());
            let codes = vec![CANCELED; programs];
            return self.spawn_complete((upcall.node, upcall.id), false, None, codes);
        };
        let job = Some(spawner.name.clone());
        let spawner = Box::new(spawner.program(upcall.rank.0).1.clone());
        let request = self.requests.add(Request { upcall: upcall.clone(), input: None, job });
        self.actions.push_back(Action::ResolveSpawn { request, spawner, upcall });
    }

    /// The host has read the programs of a spawn.
    pub(super) fn spawn_resolved(
        &mut self,
        id: RequestId,
        nonce: u64,
        results: Vec<Result<SpawnProgram, (u8, String)>>,
    ) {
        let Some(Request { upcall, job: name, .. }) = self.requests.take(id) else { return };
        let key = (upcall.node, upcall.id);
        let is_spawner = |job: &&Job<NodeProgress>| {
            name.as_ref() == Some(&job.name) && !job.is_ending() && !self.statuses.ends(job.submission)
        };
        let Some(spawner) = self.jobs.get(upcall.job).filter(is_spawner) else {
            // The server keeps the request of a job that is over, too, until it is answered.
            let codes = vec![CANCELED; results.len()];
            return self.spawn_complete(key, false, None, codes);
        };
        let submission = spawner.submission;
        let (asker, ranks, spawner) =
            (spawner.rank_name(upcall.rank.0), spawner.size(), spawner.name.clone());
        let (mut programs, mut codes, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(program) => {
                    programs.push(program);
                    codes.push(CANCELED);
                }
                Err((code, reason)) => {
                    codes.push(code);
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            let absent = self.absent_nodes(&programs);
            let opened = match absent {
                Ok(nodes) if !nodes.is_empty() => self.await_daemons(&nodes).map(|()| {
                    let request = self.requests.add(Request { upcall, input: None, job: name });
                    let programs = programs.into_iter().map(Ok).collect();
                    self.wait(Spawn::OfRank(RankSpawn { request, nonce, programs }), nodes);
                }),
                Ok(_) => {
                    let Upcall { node, id, job, rank, protocol, request } = upcall;
                    let (preput, tool) = (preput(protocol, &request), None);
                    let origin = SpawnOrigin { node, upcall: id, job, ranks, rank, spawner, preput, tool };
                    self.open_spawned(programs, origin, nonce, asker.clone())
                }
                Err(error) => Err(error),
            };
            match opened {
                // Answered once all ranks have been started.
                Ok(()) => return,
                Err(error) => {
                    codes.fill(libc::EINVAL as u8);
                    reasons.push(error.to_string());
                }
            }
        }
        for reason in reasons {
            self.tell(submission, format!("nothing is spawned for {asker}: {reason}"));
        }
        self.spawn_complete(key, false, None, codes);
    }

    /// A tool spawns a job.
    pub(super) fn spawn_for_tool(&mut self, spawn: ToolSpawn) {
        let (upcall, asker, count) = (spawn.upcall, asker(&spawn), spawn.programs.len());
        if self.statuses.run().is_interrupted() {
            return self.spawn_complete((HEAD, upcall), false, None, vec![CANCELED; count]);
        }
        let opened = match self.absent_nodes(&spawn.programs) {
            Ok(nodes) if !nodes.is_empty() => {
                self.await_daemons(&nodes).map(|()| self.wait(Spawn::OfTool(spawn), nodes))
            }
            Ok(_) => {
                let ToolSpawn { upcall, job, tool, nonce, programs, options } = spawn;
                let origin = origin_of_tool(upcall, job, tool, options);
                self.open_spawned(programs, origin, nonce, asker.clone())
            }
            Err(error) => Err(error),
        };
        if let Err(why) = opened {
            self.refuse_tool(upcall, &asker, &why.to_string(), vec![libc::EINVAL as u8; count]);
        }
    }

    /// `codes` has the `errno` of each program.
    fn refuse_tool(&mut self, upcall: UpcallId, asker: &str, why: &str, codes: Vec<u8>) {
        self.print(format!("nothing is spawned for {asker}: {why}"));
        self.spawn_complete((HEAD, upcall), false, None, codes);
    }

    /// Nodes on which programs get ranks and whose daemons have not joined.
    fn absent_nodes(&self, programs: &[SpawnProgram]) -> Result<BTreeSet<u32>, Error> {
        if self.lost.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (blocks, _) = self.place(&mut programs.to_vec(), self.policy())?;
        Ok(blocks.iter().map(|block| block.node).filter(|node| self.lost.contains(node)).collect())
    }

    fn policy(&self) -> MappingPolicy {
        MappingPolicy { map_by: self.config.map_by, ..MappingPolicy::default() }
    }

    fn wait(&mut self, spawn: Spawn, awaited: BTreeSet<u32>) {
        self.spawns.push(WaitingSpawn { spawn, awaited, refused: None });
    }

    /// The daemon of a node has joined, or has failed for a reason.
    pub(super) fn tell_spawns(&mut self, node: u32, refused: Option<&str>) {
        for waiting in &mut self.spawns {
            if waiting.awaited.remove(&node) && waiting.refused.is_none() {
                waiting.refused = refused.map(str::to_owned);
            }
        }
    }

    /// Goes on with the spawns that wait for no daemon any more. Ranks are placed anew: others may have come or gone meanwhile.
    pub(super) fn resume_spawns(&mut self) {
        let ready: Vec<_> = self.spawns.extract_if(.., |waiting| waiting.awaited.is_empty()).collect();
        for WaitingSpawn { spawn, refused, .. } in ready {
            match (spawn, refused) {
                (Spawn::OfRank(RankSpawn { request, nonce, mut programs }), refused) => {
                    if let (Some(why), Some(first)) = (refused, programs.first_mut()) {
                        *first = Err((libc::EHOSTUNREACH as u8, why));
                    }
                    self.spawn_resolved(request, nonce, programs);
                }
                (Spawn::OfTool(spawn), None) => self.spawn_for_tool(spawn),
                (Spawn::OfTool(spawn), Some(why)) => {
                    let codes = vec![libc::EHOSTUNREACH as u8; spawn.programs.len()];
                    self.refuse_tool(spawn.upcall, &asker(&spawn), &why, codes);
                }
            }
        }
    }

    fn open_spawned(
        &mut self,
        mut programs: Vec<SpawnProgram>,
        mut origin: SpawnOrigin,
        nonce: u64,
        asker: String,
    ) -> Result<(), Error> {
        let placed = self.place(&mut programs, self.policy())?;
        if let Some(stop) = origin.tool.as_mut().and_then(|options| options.stop.as_mut()) {
            let of_programs = programs.iter().map(|program| (program.program.ranks, &program.stopped));
            stop.ranks = stopped_of(of_programs)?;
        }
        let programs = programs.into_iter().map(|program| program.program).collect();
        let key = (origin.node, origin.upcall);
        let spawner = self.jobs.get(origin.job);
        let submitted = spawner.and_then(|spawner| self.submissions.get(spawner.submission?));
        let submitted = submitted.map(|started| started.submitted.clone());
        let mut record = self.describe_job(programs, placed, nonce, submitted);
        record.spawned = Some(origin);
        self.open(record, Some(key), asker)
    }

    /// Maps the ranks of programs to nodes. Returns also the value of `PMI_process_mapping`.
    pub(super) fn place(
        &self,
        programs: &mut [SpawnProgram],
        policy: MappingPolicy,
    ) -> Result<(Vec<RankBlock>, String), Error> {
        let mut blocks = Vec::new();
        let living: Vec<u32> = self.usable_nodes().collect();
        let all: Vec<Host> =
            living.iter().map(|&node| self.config.hosts[node as usize - 1].clone()).collect();
        let mut used = self.used_slots(&living);
        let mut start: u32 = 0;
        for SpawnProgram { program, hosts, spread: wanted, .. } in programs {
            if let Some(wanted) = wanted {
                let first = start;
                for (node, count) in spread(&self.places(wanted, hosts)?, wanted)? {
                    if let Ok(at) = living.binary_search(&node) {
                        used[at] += count;
                    }
                    blocks.push(RankBlock { node, first: start, count });
                    start =
                        start.checked_add(count).ok_or(Error::Size(u64::from(start) + u64::from(count)))?;
                }
                program.ranks = start - first;
                continue;
            }
            let place_of = |name: &String| {
                let at = all.iter().position(|host| host.name == *name);
                at.ok_or_else(|| Error::HostGone(name.clone()))
            };
            let named = |host: &Host| Ok((place_of(&host.name)?, host.slots));
            let named: Vec<_> = hosts.iter().map(named).collect::<Result<_, Error>>()?;
            let mut limited = Cow::Borrowed(&all);
            for (host, &(at, _)) in hosts.iter().zip(&named) {
                if let Some(most) = host.max_slots {
                    let known = &mut limited.to_mut()[at].max_slots;
                    *known = Some(known.map_or(most, |known| known.min(most)));
                }
            }
            let last = living.iter().rposition(|&node| node <= self.last_node.max(1)).unwrap_or(0);
            let candidates = candidates(&limited, &used, &named, Some(last), program.ranks);
            let map = JobMap::new(&candidates, &[program.ranks], policy)?;
            for mapped in map.nodes() {
                let at = place_of(&mapped.host.name)?;
                let node = living[at];
                for range in &mapped.rank_ranges {
                    used[at] += range.count;
                    blocks.push(RankBlock { node, first: start + range.first, count: range.count });
                }
            }
            start += program.ranks;
        }
        blocks.sort_unstable_by_key(|block| block.first);
        let mapping = process_mapping(&node_runs(&blocks))?;
        Ok((blocks, mapping))
    }

    /// Number of ranks on each of these nodes.
    pub(super) fn used_slots(&self, nodes: &[u32]) -> Vec<u32> {
        let mut used = vec![0; self.config.hosts.len() + 1];
        for block in self.jobs.iter().flat_map(|job| &job.run.blocks) {
            used[block.node as usize] += block.count;
        }
        nodes.iter().map(|&node| used[node as usize]).collect()
    }
}

/// A tool as messages name it.
fn asker(spawn: &ToolSpawn) -> String {
    format!("the tool {}", spawn.tool)
}

/// Returns the origin of a job that a tool spawns.
pub(super) fn origin_of_tool(
    upcall: UpcallId,
    job: JobId,
    spawner: String,
    options: ToolOptions,
) -> SpawnOrigin {
    let (node, ranks, rank, preput) = (HEAD, 1, Rank(0), Vec::new());
    SpawnOrigin { node, upcall, job, ranks, rank, spawner, preput, tool: Some(options) }
}

/// Returns the ranks of a job that wait for a debugger: of its programs, each with the number of its ranks.
pub(super) fn stopped_of<'p>(
    programs: impl Iterator<Item = (u32, &'p Stopped)> + Clone,
) -> Result<RankRanges, Error> {
    let mut stopped = Vec::new();
    let mut size = 0;
    for (count, of_program) in programs.clone() {
        let ranks = size..size + count;
        size = ranks.end;
        match of_program {
            Stopped::No => {}
            Stopped::All => stopped.extend(ranks),
            Stopped::Some(listed) => stopped.extend(listed.range(ranks)),
        }
    }
    let listed = programs.filter_map(|(_, stopped)| match stopped {
        Stopped::Some(listed) => listed.last(),
        Stopped::No | Stopped::All => None,
    });
    if let Some(&rank) = listed.max().filter(|&&rank| rank >= size) {
        return Err(Error::NoRankToStop { rank, size });
    }
    let ranges = ranges_of(stopped.into_iter());
    let len = format_ranges(&ranges).len();
    if len <= VALUE_MAX as usize { Ok(ranges) } else { Err(Error::TooManyToStop { ranges: ranges.len() }) }
}

/// Pairs that a spawn puts into the key-value space of its job.
fn preput(protocol: Protocol, body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let spawn = decode_spawn(protocol, body);
    let pairs = spawn.iter().flat_map(|spawn| spawn.preput());
    pairs.map(|(key, value)| (bytes(key), bytes(value))).collect()
}

/// All ranks in runs on one node, with nodes numbered from 0 in the order of their first rank.
fn node_runs(blocks: &[RankBlock]) -> Vec<(u32, u32)> {
    let mut order: Vec<u32> = Vec::new();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for block in blocks {
        let known = order.iter().position(|&node| node == block.node);
        let at = known.unwrap_or_else(|| {
            order.push(block.node);
            order.len() - 1
        }) as u32;
        match runs.last_mut() {
            Some((last, run)) if *last == at => *run += block.count,
            _ => runs.push((at, block.count)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_spawned_job_are_numbered_by_their_first_rank() {
        let block = |node, first, count| RankBlock { node, first, count };
        assert_eq!(
            node_runs(&[block(3, 0, 2), block(3, 2, 1), block(1, 3, 1), block(3, 4, 1)]),
            [(0, 3), (1, 1), (0, 1)]
        );
    }
}
