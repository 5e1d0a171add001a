//! Queries of PMIx clients about the run: its jobs, their processes, and what is supported. Notes on what is not.
//!
//! The head knows the jobs, and the host, process and exit of each rank. For tables of processes it asks the nodes what their
//! ranks do, as for the status socket. A reply is limited by [`Limits::spawn_bytes`](hydrant_core::Limits::spawn_bytes).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hydrant_control::protocol::{Program, UsageParts, decode};
use hydrant_control::{Event as HeadEvent, Job, NodeProgress, Upcall};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::wire::pmix::{
    HostCall, HostQuery, Info, Infos, NodePid, Reader, WILDCARD, Writer, keys, kind, status,
};
use hydrant_core::{JobId, Limit, Refusal, Server};
use hydrant_placement::Host;
use hydrant_reactor::process::{DEFAULT_PATH, find_in_path};
use hydrant_status::record::{RANKS_MAX, Rank, State};

use super::pmix_support::{self, OF_DEBUGGERS, OF_SPAWNS, OF_TRACERS, SUPPORTED, array, list, text};
use super::status::{Asker, QUERY_TIMEOUT, Recipient};
use super::usage::{self, NodeUsage, Usages};
use super::{Engine, Head};
use crate::error::RunError;

/// Most ranks of a job that a table can have. Each takes more than 16 bytes of the reply.
const TABLE_MAX: u32 = MESSAGE_MAX / 16;
/// Bytes of a reply in addition to its answers: header, status and number of answers.
const REPLY_REST: usize = 64;

/// Queries of PMIx clients under way.
#[derive(Default)]
pub(super) struct PmixQueries {
    pending: Vec<PmixQuery>,
    /// Number of the latest query.
    latest: u64,
}

impl PmixQueries {
    /// Returns whether queries wait for nodes.
    pub(super) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Keeps ranks that have arrived.
    pub(super) fn ranks_arrived(&mut self, asker: Asker, job: JobId, arrived: Vec<Rank>) {
        for query in self.pending.iter_mut().filter(|query| query.asker == asker) {
            query.pages = query.pages.saturating_sub(1);
            query.ranks.entry(job).or_default().extend(arrived.iter().cloned());
        }
    }

    /// Keeps what a node uses.
    pub(super) fn usage_arrived(&mut self, node: u32, number: u64, body: &[u8]) {
        let mut queries = self.pending.iter_mut();
        if let Some(query) = queries.find(|query| query.number == number)
            && query.nodes.remove(&node)
        {
            query.usage.insert(node, decode(body).unwrap_or_default());
        }
    }

    /// Nodes are lost or have left. Nothing is awaited from them.
    pub(super) fn nodes_gone(&mut self, nodes: &Range<u32>) {
        for query in &mut self.pending {
            query.nodes.retain(|node| !nodes.contains(node));
        }
    }

    /// Time of the next deadline in milliseconds.
    pub(super) fn poll_at(&self) -> Option<u64> {
        let waiting = self.pending.iter().filter(|query| !query.nodes.is_empty());
        waiting.map(|query| query.deadline).min()
    }

    /// Nodes that are late are not awaited any longer.
    pub(super) fn handle_timeout(&mut self, now: u64) {
        self.pending.iter_mut().filter(|query| query.deadline <= now).for_each(|query| query.nodes.clear());
    }

    /// Takes the queries for which all nodes have answered.
    fn take_complete(&mut self) -> Vec<PmixQuery> {
        let is_complete = |query: &mut PmixQuery| query.pages == 0 && query.nodes.is_empty();
        let mut complete: Vec<PmixQuery> = self.pending.extract_if(.., is_complete).collect();
        for ranks in complete.iter_mut().flat_map(|query| query.ranks.values_mut()) {
            ranks.sort_unstable_by_key(|rank| rank.rank);
        }
        complete
    }
}

/// Queries of one request that wait for nodes.
struct PmixQuery {
    /// Number in orders to nodes.
    number: u64,
    asker: Asker,
    upcall: Upcall,
    /// Answers about ranks that have not arrived.
    pages: usize,
    /// Nodes that have not told what they use.
    nodes: BTreeSet<u32>,
    /// When these nodes are late. Answers about ranks have a deadline of their own.
    deadline: u64,
    /// Ranks of each job, as far as they have arrived.
    ranks: BTreeMap<JobId, Vec<Rank>>,
    /// What nodes use, as far as they have answered.
    usage: Usages,
}

/// Qualifier that asks for the qualifiers of a key in the place of its value, in libpmix from 5 on and before.
const QUALIFIERS: [&[u8]; 2] = [b"pmix.qry.supqual", b"pmix.qry.quals"];

/// Why a key has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Unsupported,
    /// What the qualifiers name does not exist, or the value is not known.
    Missing,
    /// A qualifier is missing.
    Incomplete,
    /// The answer exceeds the limit.
    Full,
}

/// What answers are made from.
struct Facts<'a> {
    jobs: &'a hydrant_control::Jobs<NodeProgress>,
    hosts: &'a [Host],
    /// Processors, if all ranks are on this machine and it has no number of slots.
    processors: Option<u32>,
    universe: Option<u32>,
    asker: &'a Upcall,
    ranks: &'a BTreeMap<JobId, Vec<Rank>>,
    usage: &'a Usages,
}

type RunJob = Job<NodeProgress>;

impl Facts<'_> {
    /// The job that qualifiers name, or that of the client.
    fn job(&self, infos: &Infos<'_>) -> Result<&RunJob, Lack> {
        let Some(name) = job_name(infos) else { return self.jobs.get(self.asker.job).ok_or(Lack::Missing) };
        self.jobs.named(name).ok_or(Lack::Missing)
    }

    fn host(&self, job: &RunJob, rank: u32) -> &str {
        self.host_of_node(job.run.node(rank))
    }

    fn host_of_node(&self, node: u32) -> &str {
        let at = (node as usize).checked_sub(1);
        at.and_then(|at| self.hosts.get(at)).map_or("", |host| &host.name)
    }

    /// Slots of a host, or of all.
    fn slots(&self, host: Option<&[u8]>) -> Result<u32, Lack> {
        let mut hosts =
            self.hosts.iter().filter(|it| host.is_none_or(|name| it.name.as_bytes() == name)).peekable();
        hosts.peek().ok_or(Lack::Missing)?;
        let known: Option<u32> = hosts.map(|host| host.slots.or(self.processors)).sum();
        known.ok_or(Lack::Missing)
    }

    /// Writes the answers to a key as INFOs. Returns their number.
    fn answers(&self, name: &[u8], infos: &Infos<'_>, writer: &mut Writer<'_>) -> Result<u32, Lack> {
        if usage::is_monitor(name) {
            return self.write_usage(name, infos, writer);
        }
        self.answer(name, infos, writer).map(|()| 1)
    }

    /// Writes the answer to a key as an INFO.
    fn answer(&self, name: &[u8], infos: &Infos<'_>, writer: &mut Writer<'_>) -> Result<(), Lack> {
        let known = SUPPORTED.iter().find(|key| key.name == name).ok_or(Lack::Unsupported)?;
        if asks_qualifiers(infos) {
            text(name, known.qualifiers.as_bytes(), writer);
            return Ok(());
        }
        let number = |number: u32, writer: &mut Writer<'_>| {
            writer.info(name, kind::UINT32);
            writer.uint32(number);
        };
        match known.name {
            keys::QUERY_NAMESPACES => {
                text(name, joined(self.jobs.iter().map(|job| &*job.name)).as_bytes(), writer)
            }
            keys::QUERY_NAMESPACE_INFO => {
                let named = job_name(infos).map(|_| self.job(infos)).transpose()?;
                let jobs = || self.jobs.iter().filter(|job| named.is_none_or(|named| named.id == job.id));
                array(name, kind::INFO, jobs().count(), writer);
                jobs().for_each(|job| self.write_job(job, writer));
            }
            keys::QUERY_PROC_TABLE | keys::QUERY_LOCAL_PROC_TABLE => {
                self.write_table(known.name, infos, writer)?
            }
            keys::QUERY_MEMORY_USAGE => self.write_memory(infos, wanted_rank(infos), writer)?,
            keys::JOB_SIZE => number(self.job(infos)?.size(), writer),
            keys::UNIV_SIZE => number(self.universe.ok_or(Lack::Missing)?, writer),
            keys::NUM_SLOTS => number(self.slots(host_name(infos))?, writer),
            keys::QUERY_AVAILABLE_SLOTS => {
                let running = self.jobs.iter().map(Job::running).sum();
                number(self.slots(None)?.saturating_sub(running), writer);
            }
            keys::QUERY_SPAWN_SUPPORT => text(name, &list(OF_SPAWNS.iter()), writer),
            keys::QUERY_DEBUG_SUPPORT => text(name, &list(OF_TRACERS.iter().chain(OF_DEBUGGERS)), writer),
            keys::QUERY_RESOLVE_NODE => {
                let job = self.job(infos)?;
                let nodes: BTreeSet<u32> = (0..job.size()).map(|rank| job.run.node(rank)).collect();
                let names = nodes.iter().filter_map(|&node| self.hosts.get((node as usize).checked_sub(1)?));
                text(name, joined(names.map(|host| &*host.name)).as_bytes(), writer);
            }
            keys::QUERY_RESOLVE_PEERS => {
                let host = host_name(infos).ok_or(Lack::Incomplete)?;
                let job = self.job(infos)?;
                let ranks = || (0..job.size()).filter(|&rank| self.host(job, rank).as_bytes() == host);
                array(name, kind::PROC, ranks().count(), writer);
                ranks().for_each(|rank| writer.proc(job.name.as_bytes(), rank));
            }
            keys::QUERY_SUPPORTED_KEYS => text(name, &list(SUPPORTED.iter()), writer),
            keys::QUERY_ATTRIBUTE_SUPPORT if pmix_support::write(name, infos, writer) => {}
            // The server has not answered it.
            _ => return Err(Lack::Missing),
        }
        Ok(())
    }

    /// Writes a job with its processes.
    fn write_job(&self, job: &RunJob, writer: &mut Writer<'_>) {
        array(b"pmix.job.arr", kind::INFO, 3 + job.size() as usize, writer);
        text(b"pmix.nspace", job.name.as_bytes(), writer);
        let words = job
            .programs
            .first()
            .into_iter()
            .flat_map(|program| [&program.command].into_iter().chain(&program.args));
        text(b"pmix.cmd.line", &words.map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' '), writer);
        writer.info(keys::JOB_SIZE, kind::UINT32);
        writer.uint32(job.size());
        let mut local = BTreeMap::<u32, u16>::new();
        for rank in 0..job.size() {
            array(b"pmix.pdata", kind::INFO, 3, writer);
            writer.info(b"pmix.rank", kind::PROC_RANK);
            writer.uint32(rank);
            text(b"pmix.hname", self.host(job, rank).as_bytes(), writer);
            let next = local.entry(job.run.node(rank)).or_default();
            writer.info(b"pmix.lrank", kind::UINT16);
            writer.uint16(*next);
            *next = next.saturating_add(1);
        }
    }

    /// Writes a table of processes: those of a job, or those of them on the client's host.
    fn write_table(&self, name: &[u8], infos: &Infos<'_>, writer: &mut Writer<'_>) -> Result<(), Lack> {
        let job = self.job(infos)?;
        if job.size() > TABLE_MAX {
            return Err(Lack::Full);
        }
        let paths: Vec<PathBuf> = job.programs.iter().map(path).collect();
        let wanted = wanted_rank(infos);
        let all = self.ranks.get(&job.id).map(Vec::as_slice).unwrap_or_default();
        let ranks = || {
            all.iter().filter(|rank| {
                wanted.is_none_or(|wanted| wanted == rank.rank)
                    && (name == keys::QUERY_PROC_TABLE || job.run.node(rank.rank) == self.asker.node)
            })
        };
        ranks().next().ok_or(Lack::Missing)?;
        array(name, kind::PROC_INFO, ranks().count(), writer);
        for rank in ranks() {
            writer.proc(job.name.as_bytes(), rank.rank);
            writer.string(rank.host.as_deref().unwrap_or_default().as_bytes());
            let path = paths.get(rank.program as usize);
            writer.string(path.map(|path| path.as_os_str().as_bytes()).unwrap_or_default());
            writer.pid(rank.pid.unwrap_or(0));
            writer.byte(state_of(rank));
        }
        Ok(())
    }
}

impl Facts<'_> {
    /// Returns whether a monitor, or a query of memory, is about a node. Disks and networks are those of the client's host
    /// unless hosts are named.
    fn is_about(&self, node: u32, key: &[u8], infos: &Infos<'_>) -> bool {
        let is_here = node == self.asker.node;
        if !usage::is_monitor(key) || infos.is_set(keys::MONITOR_LOCAL_ONLY) {
            return is_here || !usage::is_monitor(key);
        }
        let names: Vec<&[u8]> = strings(infos.find(keys::MONITOR_TARGET_NODES)).collect();
        let numbers = infos.find(keys::MONITOR_TARGET_NODEIDS);
        let numbers = numbers.and_then(|info| info.array(kind::UINT32, Reader::uint32));
        let numbers: Vec<u32> = numbers.into_iter().flatten().collect();
        if names.is_empty() && numbers.is_empty() {
            return is_here
                || ![keys::MONITOR_DISK_RESOURCE_USAGE, keys::MONITOR_NET_RESOURCE_USAGE].contains(&key);
        }
        names.contains(&self.host_of_node(node).as_bytes()) || numbers.contains(&host_number(node))
    }

    /// Writes the answer to a monitor, an INFO for each process, host or device. Returns their number.
    fn write_usage(&self, key: &[u8], infos: &Infos<'_>, writer: &mut Writer<'_>) -> Result<u32, Lack> {
        let pids = match infos.find(keys::MONITOR_TARGET_PIDS) {
            None => Vec::new(),
            Some(info) => {
                info.array(kind::NODE_PID, Reader::node_pid).ok_or(Lack::Unsupported)?.collect::<Vec<_>>()
            }
        };
        let mut filter = usage::Filter::of(infos.find(key));
        filter.add_devices(strings(infos.find(usage::DISK.targets)));
        filter.add_devices(strings(infos.find(usage::NET.targets)));
        let procs = infos.find(keys::MONITOR_TARGET_PROCS);
        let any = procs.is_none_or(|info| {
            info.array(kind::PROC, Reader::proc).is_none_or(|mut procs| procs.next().is_none())
        }) && pids.is_empty();
        let mut count = 0;
        for (&node, used) in self.usage.iter().filter(|(node, _)| self.is_about(**node, key, infos)) {
            let host = self.host_of_node(node);
            let has_pid = |own: u32| {
                pids.iter().any(|&NodePid { host: named, number, pid }| {
                    (named == Some(host.as_bytes()) || number == host_number(node))
                        && (pid == own || pid == u32::MAX)
                })
            };
            match key {
                keys::MONITOR_NODE_RESOURCE_USAGE => {
                    used.write((host, host_number(node)), &filter, writer);
                    count += 1;
                }
                keys::MONITOR_DISK_RESOURCE_USAGE | keys::MONITOR_NET_RESOURCE_USAGE => {
                    let (keys, all) = if key == keys::MONITOR_DISK_RESOURCE_USAGE {
                        (&usage::DISK, &used.disks)
                    } else {
                        (&usage::NET, &used.nets)
                    };
                    for device in all.iter().filter(|device| filter.wants_device(device)) {
                        device.write(keys, (host, used.time), &filter, writer);
                        count += 1;
                    }
                }
                _ => {
                    for rank in &used.ranks {
                        let Some(job) = self.jobs.get(JobId(rank.job)) else { continue };
                        let name = job.name.as_bytes();
                        let is_named = || procs.is_some_and(|procs| procs.contains(name, rank.rank));
                        if any || is_named() || has_pid(rank.pid) {
                            rank.write(name, used.time, &filter, writer);
                            count += 1;
                        }
                    }
                }
            }
        }
        if count == 0 { Err(Lack::Missing) } else { Ok(count) }
    }

    /// Writes the memory of each host's daemon, and the average of the ranks there that qualifiers name.
    fn write_memory(
        &self,
        infos: &Infos<'_>,
        wanted: Option<u32>,
        writer: &mut Writer<'_>,
    ) -> Result<(), Lack> {
        let job = self.job(infos)?;
        let of = |used: &NodeUsage| -> Option<f32> {
            let ranks = used.ranks.iter().filter(|rank| rank.job == job.id.0);
            let ranks: Vec<u64> = ranks
                .filter(|rank| wanted.is_none_or(|wanted| wanted == rank.rank))
                .map(|rank| rank.pss)
                .collect();
            (!ranks.is_empty()).then(|| ranks.iter().sum::<u64>() as f32 / ranks.len() as f32)
        };
        let hosts = || self.usage.iter().filter_map(|(node, used)| Some((*node, used, of(used)?)));
        hosts().next().ok_or(Lack::Missing)?;
        array(keys::QUERY_MEMORY_USAGE, kind::INFO, 3 * hosts().count(), writer);
        let float = |key: &[u8], bytes: f32, writer: &mut Writer<'_>| {
            writer.info(key, kind::FLOAT);
            writer.string(format!("{:.6}", bytes / usage::MEGABYTE).as_bytes());
        };
        for (node, used, ranks) in hosts() {
            text(b"pmix.hname", self.host_of_node(node).as_bytes(), writer);
            float(b"pmix.dmn.mem", used.daemon as f32, writer);
            float(b"pmix.cl.mem.avg", ranks, writer);
        }
        Ok(())
    }
}

/// Number of a host for clients (`PMIX_NODEID`).
fn host_number(node: u32) -> u32 {
    node.saturating_sub(1)
}

/// Returns the elements of an array of STRINGs.
fn strings<'a>(info: Option<Info<'a>>) -> impl Iterator<Item = &'a [u8]> {
    info.and_then(|info| info.array(kind::STRING, Reader::string)).into_iter().flatten().flatten()
}

/// Returns whether a query asks for the qualifiers of its keys.
fn asks_qualifiers(infos: &Infos<'_>) -> bool {
    QUALIFIERS.iter().any(|key| infos.is_set(key))
}

/// Job id in qualifiers.
fn job_name<'a>(infos: &Infos<'a>) -> Option<&'a [u8]> {
    let named = |key: &[u8]| infos.find(key)?.as_string();
    let of_process = || Some(infos.find(b"pmix.procid")?.as_proc()?.namespace);
    named(b"pmix.nspace").or_else(|| named(b"pmix.jobid")).or_else(of_process).filter(|name| !name.is_empty())
}

fn host_name<'a>(infos: &Infos<'a>) -> Option<&'a [u8]> {
    infos.find(b"pmix.hname")?.as_string()
}

/// Rank in qualifiers, unless all are wanted.
fn wanted_rank(infos: &Infos<'_>) -> Option<u32> {
    let of_process = || Some(infos.find(b"pmix.procid")?.as_proc()?.rank);
    let rank = infos.find(b"pmix.rank").and_then(|info| info.as_u32()).or_else(of_process);
    // From here on, numbers stand for sets of ranks.
    rank.filter(|&rank| rank < WILDCARD)
}

/// Code of a process state (`PMIX_PROC_STATE_…`).
fn state_of(rank: &Rank) -> u8 {
    match rank.state {
        State::NotStarted | State::NotConnected => 1,
        State::Started => 5,
        State::Running | State::Initialized | State::Finalized => 6,
        State::Exited if rank.exit_code == Some(0) => 20,
        State::Exited => 62,
        State::Killed => 54,
        State::Lost => 56,
    }
}

/// Path of a program, as far as this host knows it.
fn path(program: &Program) -> PathBuf {
    let here =
        std::env::current_dir().unwrap_or_default().join(program.wdir.as_deref().unwrap_or(Path::new("")));
    let command = Path::new(&program.command);
    if program.command.as_bytes().contains(&b'/') {
        return here.join(command);
    }
    let variable = program.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let path = [program.path.as_deref(), Some(variable.unwrap_or(OsStr::new(DEFAULT_PATH)))];
    let mut found =
        path.into_iter().flatten().filter_map(|path| find_in_path(&program.command, &here, path, &mut None));
    found.next().map_or_else(|| command.to_owned(), |found| here.join(found))
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(",")
}

/// Body of the reply to a request, and what there is to say about it.
#[derive(Debug, Default)]
struct Reply {
    /// A status, and the answers.
    body: Vec<u8>,
    /// Keys that are not supported.
    unsupported: Vec<String>,
    /// The answers exceed the limit.
    is_full: bool,
}

/// Answers queries, with `max` bytes at most.
fn reply(query: &HostQuery<'_>, facts: &Facts<'_>, max: usize) -> Reply {
    let mut reply = Reply::default();
    let mut infos = query.answered.as_bytes().to_vec();
    let (mut count, mut lacks) = (query.answered.len(), Vec::new());
    let by_server = query.queries.asked().filter(|(key, _)| query.answered.find(key).is_none());
    for (key, qualifiers) in by_server {
        let mut measured = Writer::new(query.integers, &mut []);
        let start = infos.len();
        match facts.answers(key, &qualifiers, &mut measured) {
            Ok(_) if start + measured.len() + REPLY_REST > max => lacks.push(Lack::Full),
            Ok(answers) => {
                infos.resize(start + measured.len(), 0);
                // It answers as it has done when it was measured.
                let _ =
                    facts.answers(key, &qualifiers, &mut Writer::new(query.integers, &mut infos[start..]));
                count += answers;
            }
            Err(lack) => {
                lacks.push(lack);
                if lack == Lack::Unsupported {
                    reply.unsupported.push(String::from_utf8_lossy(key).into_owned());
                }
            }
        }
    }
    reply.is_full = lacks.contains(&Lack::Full);
    if reply.is_full {
        (infos, count) = (Vec::new(), 0);
    }
    let code = match () {
        () if lacks.is_empty() => status::SUCCESS,
        () if count > 0 => status::PARTIAL_SUCCESS,
        () if reply.is_full => status::OUT_OF_RESOURCE,
        () if lacks.contains(&Lack::Unsupported) => status::NOT_SUPPORTED,
        () if lacks.contains(&Lack::Incomplete) => status::BAD_PARAM,
        () => status::NOT_FOUND,
    };
    reply.body = vec![0; REPLY_REST + infos.len()];
    let mut writer = Writer::new(query.integers, &mut reply.body);
    writer.status(code);
    writer.array(count);
    writer.raw(&infos);
    let len = writer.len();
    reply.body.truncate(len);
    reply
}

/// Returns the queries that a request consists of.
fn query_of(upcall: &Upcall) -> Option<HostQuery<'_>> {
    match HostCall::read(&upcall.request)? {
        HostCall::Query(query) => Some(query),
        _ => None,
    }
}

impl Head {
    /// Answers queries of a PMIx client, at once or when the nodes of ranks have answered.
    pub(super) fn answer_pmix_query(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        upcall: Upcall,
    ) -> Result<(), RunError> {
        let pages = self.pages_of(engine, &upcall);
        let (parts, nodes) = self.usage_of(engine, &upcall);
        self.pmix_queries.latest += 1;
        let number = self.pmix_queries.latest;
        engine.query_usage(number, parts, &nodes);
        let deadline = engine.now() + QUERY_TIMEOUT;
        let (ranks, usage) = (BTreeMap::new(), Usages::new());
        let query = PmixQuery { number, asker, upcall, pages: pages.len(), nodes, deadline, ranks, usage };
        self.pmix_queries.pending.push(query);
        for (job, first) in pages {
            self.query_ranks(engine, Recipient::Pmix(asker), job, first);
        }
        self.finish_pmix_queries(engine)
    }

    /// Jobs whose processes a request asks for, each with the first ranks of the answers that are needed.
    fn pages_of(&self, engine: &Engine<'_>, upcall: &Upcall) -> BTreeSet<(JobId, u32)> {
        let Some(query) = query_of(upcall) else { return BTreeSet::new() };
        let (ranks, usage) = (BTreeMap::new(), Usages::new());
        let facts = self.facts(engine, upcall, &ranks, &usage);
        let tables = query.queries.asked().filter(|(key, infos)| {
            [keys::QUERY_PROC_TABLE, keys::QUERY_LOCAL_PROC_TABLE].contains(key) && !asks_qualifiers(infos)
        });
        let jobs = tables.filter_map(|(_, infos)| facts.job(&infos).ok());
        let jobs = jobs.filter(|job| job.size() <= TABLE_MAX);
        jobs.flat_map(|job| (0..job.size()).step_by(RANKS_MAX as usize).map(|first| (job.id, first)))
            .collect()
    }

    /// Returns what a request needs to know of which nodes.
    fn usage_of(&self, engine: &Engine<'_>, upcall: &Upcall) -> (UsageParts, BTreeSet<u32>) {
        let query = query_of(upcall);
        let parts = query.as_ref().and_then(usage::parts_of);
        let (Some(query), Some(parts)) = (query, parts) else { return Default::default() };
        let (ranks, usage) = (BTreeMap::new(), Usages::new());
        let facts = self.facts(engine, upcall, &ranks, &usage);
        let asked: Vec<(&[u8], Infos<'_>)> =
            query.queries.asked().filter(|(key, _)| usage::is_about_hosts(key)).collect();
        let is_asked = |node: &u32| asked.iter().any(|(key, infos)| facts.is_about(*node, key, infos));
        (parts, self.control.members().filter(is_asked).collect())
    }

    /// Answers the queries for which all nodes have answered.
    pub(super) fn finish_pmix_queries(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        for query in self.pmix_queries.take_complete() {
            let max = engine.core.limits().spawn_bytes;
            let (rc, reply) = match query_of(&query.upcall) {
                Some(read) => {
                    let facts = self.facts(engine, &query.upcall, &query.ranks, &query.usage);
                    (0, reply(&read, &facts, max as usize))
                }
                None => (Refusal::Unsupported.rc(), Reply::default()),
            };
            if reply.is_full {
                let why = Refusal::Full(Limit::SpawnBytes, max);
                self.print_once(engine, query.upcall.job, format!("a PMIx query is refused: {why}"));
            }
            let verbose = engine.settings(query.upcall.job).verbose;
            for key in reply.unsupported.iter().filter(|_| verbose) {
                let line = format!("a PMIx query of {} is not supported", key.escape_debug());
                self.print_once(engine, query.upcall.job, line);
            }
            self.answer_asker(engine, query.asker, rc, reply.body)?;
        }
        Ok(())
    }

    /// Answers a request.
    pub(super) fn answer_asker(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        rc: i32,
        body: Vec<u8>,
    ) -> Result<(), RunError> {
        match asker {
            Asker::Rank(request) => self.answer(engine, HeadEvent::UpcallReply { request, rc, text: body }),
            Asker::Tool(upcall) => engine.answer_tool(upcall, rc, &body),
        }
    }

    fn facts<'a>(
        &'a self,
        engine: &Engine<'_>,
        asker: &'a Upcall,
        ranks: &'a BTreeMap<JobId, Vec<Rank>>,
        usage: &'a Usages,
    ) -> Facts<'a> {
        let processors = std::thread::available_parallelism().ok().filter(|_| engine.is_alone());
        Facts {
            jobs: self.control.jobs(),
            hosts: self.control.hosts(),
            processors: processors.and_then(|count| count.get().try_into().ok()),
            universe: self.control.universe_size(),
            asker,
            ranks,
            usage,
        }
    }
}

impl Engine<'_> {
    /// Names the requests of PMIx clients that this server has refused as not supported, each once.
    pub(super) fn note_unserved(&mut self) {
        if !self.plan.settings.verbose {
            return;
        }
        let refused = self.core.inspect().map_or(0, Server::unserved);
        self.name_unserved(refused);
    }

    /// Names requests of PMIx clients that are not supported, a bit set of their commands, each once.
    pub(super) fn name_unserved(&mut self, refused: u64) {
        if !self.plan.settings.verbose {
            return;
        }
        let new = refused & !self.unserved;
        self.unserved |= refused;
        for number in (0..u64::BITS).filter(|number| new >> number & 1 == 1) {
            let name = pmix_support::name_of(number as usize).unwrap_or("an unknown command");
            self.sinks.print(&format!(
                "a request of a PMIx client is not supported: {name} (command {number}) or its options"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use hydrant_core::wire::Protocol;
    use hydrant_core::wire::pmix::Integers;
    use hydrant_core::{Rank as RankId, UpcallId};

    use super::*;

    /// Returns status and number of answers for a query of a run without jobs.
    fn asked(keys: &[&[u8]]) -> (i32, u32) {
        let mut body = [0; 512];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        writer.array(0);
        writer.array(1);
        writer.count(keys.len() as u32);
        keys.iter().for_each(|key| writer.string(key));
        writer.size(0);
        let len = writer.finish().unwrap();
        let request = [b"cmd=pmix-host;\x02\x01", &body[..len]].concat();
        let (jobs, ranks) = (hydrant_control::Jobs::default(), BTreeMap::new());
        let (job, rank, protocol) = (JobId(0), RankId(0), Protocol::V2);
        let asker = &Upcall { node: 1, id: UpcallId(0), job, rank, protocol, request };
        let query = query_of(asker).unwrap();
        let hosts = &[Host { slots: Some(3), ..Host::new("a") }];
        let usage = &Usages::new();
        let facts =
            Facts { jobs: &jobs, hosts, processors: None, universe: None, asker, ranks: &ranks, usage };
        let reply = reply(&query, &facts, 2000);
        assert_eq!(reply.is_full, keys.len() > 3);
        let mut reader = Reader::new(Integers::Flexible, &reply.body);
        reader.single().unwrap();
        (reader.int32().unwrap(), reader.infos().map_or(0, |infos| infos.len()))
    }

    // Fault: A host that was asked what it uses is lost or leaves
    // Outcome: the query of a PMIx client is answered without it
    // Guarantee: No client waits for the answer of one host for ever
    // Also: libraries `interop::tools::a_query_is_answered_without_a_host_that_is_late`
    #[test]
    fn nodes_that_are_late_or_gone_are_not_awaited() {
        let query = |number: u64| PmixQuery {
            number,
            asker: Asker::Tool(UpcallId(number as u32)),
            upcall: Upcall {
                node: 0,
                id: UpcallId(number as u32),
                job: JobId(63),
                rank: RankId(0),
                protocol: Protocol::V2,
                request: Vec::new(),
            },
            pages: 0,
            nodes: BTreeSet::from([1, 2, 3]),
            deadline: 1000 * number,
            ranks: BTreeMap::new(),
            usage: Usages::new(),
        };
        let mut queries = PmixQueries { pending: vec![query(1), query(2)], ..PmixQueries::default() };
        let complete = |queries: &mut PmixQueries| {
            queries.take_complete().iter().map(|query| (query.number, query.usage.len())).collect::<Vec<_>>()
        };
        [1, 2].into_iter().for_each(|number| queries.usage_arrived(1, number, &[]));
        queries.nodes_gone(&(2..3));
        queries.handle_timeout(999);
        assert_eq!((complete(&mut queries), queries.poll_at()), (vec![], Some(1000)));
        queries.handle_timeout(1000);
        assert_eq!((complete(&mut queries), queries.poll_at()), (vec![(1, 1)], Some(2000)));
        queries.usage_arrived(3, 1, &[]);
        queries.nodes_gone(&(3..5));
        assert_eq!((complete(&mut queries), queries.poll_at()), (vec![(2, 1)], None));
    }

    #[test]
    fn a_query_without_an_answer_says_why() {
        assert_eq!(
            asked(&[keys::NUM_SLOTS, keys::QUERY_AVAILABLE_SLOTS, keys::QUERY_SUPPORTED_KEYS]),
            (status::SUCCESS, 3)
        );
        assert_eq!(asked(&[keys::NUM_SLOTS, b"pmix.unknown", keys::UNIV_SIZE]), (status::PARTIAL_SUCCESS, 1));
        assert_eq!(asked(&[b"pmix.unknown", keys::UNIV_SIZE]), (status::NOT_SUPPORTED, 0));
        assert_eq!(asked(&[keys::UNIV_SIZE, keys::QUERY_PROC_TABLE]), (status::NOT_FOUND, 0));
        assert_eq!(asked(&[keys::QUERY_RESOLVE_PEERS]), (status::BAD_PARAM, 0));
        // An answer of some 300 bytes each.
        assert_eq!(asked(&[keys::QUERY_SUPPORTED_KEYS; 10]), (status::OUT_OF_RESOURCE, 0));
    }
}
