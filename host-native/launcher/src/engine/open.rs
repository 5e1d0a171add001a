//! Start of a job: registration at the PMI server, sockets, and tables, before its first process.

use hydrant_control::protocol::{JobRecord, Program, RankBlock};
use hydrant_control::{SpawnKey, format_ranges, job_name, process_sets};
use hydrant_core::server::JobSpec;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time, UpcallId};
use hydrant_driver::TcpPort;
use hydrant_placement::process_mapping;
use hydrant_reactor::{Interest, Listener};

use super::jobs::{Job, LocalRanks, Ranks, count_ranks};
use super::query::Query;
use super::token::Token;
use super::{Engine, needed_files};
use crate::backend::BackendError;
use crate::error::RunError;
use crate::launch::{JobEnvironment, Launcher, PmiAddress, PreparedProgram};

/// The only node's number.
pub(super) const ALONE: u32 = 0;

/// Resources of the ranks on this machine: launcher, port and query socket.
type Prepared = (Option<Launcher>, Option<Listener<TcpPort>>, Option<Query>);

impl Engine<'_, '_> {
    /// Opens a job whose ranks all run on this machine. After an error nothing of the job remains.
    pub(super) fn open_job(
        &mut self,
        programs: Vec<Program>,
        checked: Vec<PreparedProgram>,
        spawn: Option<UpcallId>,
    ) -> Result<JobId, RunError> {
        let ranks = size(&programs)?;
        let blocks = vec![RankBlock { node: ALONE, first: 0, count: ranks }];
        let mapping = process_mapping(&[(0, ranks)])?;
        let (id, ordinal) = (self.jobs.free_id(), self.jobs.count());
        let name = job_name(std::process::id(), ordinal, random()?, &self.host);
        let psets = process_sets(ordinal, &name, &programs, &blocks, |_| &self.host);
        let record = JobRecord { id, ordinal, name, programs, blocks, mapping, psets, spawned: None };
        self.open(record, checked.into_iter().map(Some).collect(), spawn.map(|spawn| (ALONE, spawn)))?;
        Ok(id)
    }

    /// Opens a job that has some of its ranks on this machine. After an error nothing of the job remains. `checked`
    /// holds the files of the programs that have ranks here.
    pub(super) fn open(
        &mut self,
        record: JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        spawn: Option<SpawnKey>,
    ) -> Result<(), RunError> {
        let id = record.id;
        let size = size(&record.programs)?;
        let ranks = Ranks::of_node(&record.blocks, self.node());
        let all = count_ranks(&self.jobs) + u64::from(ranks.count());
        self.check_room(id, ranks.count(), all, self.jobs.len() as u64 + 1)?;
        let prepared = (ranks.count() > 0).then(|| self.prepare(&record, checked, &ranks)).transpose()?;
        let (mut launcher, port, query) = prepared.unwrap_or_default();
        self.register(&record, spawn)?;
        if let Some(launcher) = &mut launcher {
            self.direct_clients(launcher, id, &record.name)?;
        }
        let next = ranks.from(0);
        let done = self.is_daemon() && next.is_none();
        let run = LocalRanks { ranks, launcher, next, port, query, draining: false, done };
        let first = self.jobs.free_slots(size);
        self.jobs.insert(Job::new(record, first, spawn, run));
        match self.make_room(id) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.drop_job(id)?;
                Err(error)
            }
        }
    }

    /// Prepares the resources of the ranks on this machine.
    fn prepare(
        &mut self,
        record: &JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        here: &Ranks,
    ) -> Result<Prepared, RunError> {
        let JobRecord { id, ordinal, name, programs, .. } = record;
        let options = &self.plan.options;
        let port = options.pmi_port.map(|addr| {
            // Only the first job can have the very port that was asked for.
            let addr = if *ordinal == 0 { addr } else { (addr.ip(), 0).into() };
            TcpPort::open(addr)
        });
        let port = port.transpose()?;
        let query = options.mpi_psets.then(|| Query::open(name, self.node())).transpose()?;
        let psets = query.as_ref().zip(self.preload.as_deref());
        let psets = psets.map(|(query, library)| (query.address(), library.as_os_str()));
        let pmi = match &port {
            _ if self.core.board().is_some() => PmiAddress::PortPerRank,
            Some(port) => PmiAddress::Port(port.for_ranks(&self.host)),
            None => PmiAddress::Inherited,
        };
        let setting = JobEnvironment {
            jobid: name,
            host: self.host.as_ref(),
            pmi,
            spawned: *ordinal > 0,
            psets,
            size: (size(programs)?, here.count()),
        };
        let ends = programs.iter().scan(0, |end, program| {
            *end += program.ranks;
            Some(*end)
        });
        let found = programs.iter().zip(ends).zip(checked);
        let found = found.filter_map(|((program, end), checked)| Some((program, end, checked?))).collect();
        let launcher = Launcher::new(found, &options.bind, &setting, self.signals.ignored())?;
        let port = port.map(|port| Listener::new(port, Token::Listener(id.0), &self.poller)).transpose()?;
        Ok((Some(launcher), port, query))
    }

    /// Adds the client variables that depend on the registered job.
    fn direct_clients(&mut self, launcher: &mut Launcher, id: JobId, name: &str) -> Result<(), RunError> {
        if let Some((host, ports)) = self.begin_at_board()? {
            launcher.set_pmi_ports(&host, &ports);
        }
        let space = self.sharing.as_ref().zip(self.core.kvs_space(id));
        if let Some(variable) = space.and_then(|(sharing, space)| sharing.variable(space, name)) {
            launcher.add_variable(&variable);
        }
        Ok(())
    }

    /// Checks that jobs, connections and descriptors suffice for a job with `ranks` ranks here, which makes `all` ranks
    /// of `jobs` jobs.
    pub(super) fn check_room(&mut self, id: JobId, ranks: u32, all: u64, jobs: u64) -> Result<(), RunError> {
        let limits = *self.core.limits();
        if id.0 >= limits.jobs {
            return Err(Fault::Full(Limit::Jobs, limits.jobs).into());
        }
        // A board has connections of its own, and reports itself when they do not suffice.
        if all > u64::from(limits.conns) && self.core.board().is_none() {
            return Err(Fault::Full(Limit::Conns, limits.conns).into());
        }
        let needed = needed_files(self.plan, all, jobs) + self.link_files();
        self.files.grow(needed).map_err(RunError::open_files(ranks))
    }

    /// Registers a job at the PMI server. After an error it is not registered.
    pub(super) fn register(&mut self, record: &JobRecord, spawn: Option<SpawnKey>) -> Result<(), RunError> {
        let now = Time(self.now());
        let ranks = size(&record.programs)?;
        let options = &self.plan.options;
        let millis = |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let spawned = record.spawned.as_ref();
        let asked_here = spawned.map(|spawned| (spawned.node, spawned.upcall)).or(spawn);
        let asked_here = asked_here.filter(|&(node, _)| node == self.node()).map(|(_, upcall)| upcall);
        let elsewhere = spawned.filter(|_| asked_here.is_none());
        let spec = JobSpec {
            universe_size: options.universe_size,
            cleanup: options.cleanup,
            pmi1_subversion: options.pmi1_subversion,
            spawn: asked_here,
            spawner: elsewhere.map_or("", |spawned| &spawned.spawner),
            lookup_wait: millis(options.lookup_wait),
            remote_names: self.name_client.is_some() || self.nodes.is_some(),
            fence_warning: millis(options.fence_warning),
            ..JobSpec::new(record.id, &record.name, ranks)
        };
        self.core.handle(now, Input::RegisterJob(spec))?;
        let result = self.describe_job(record, now);
        if result.is_err() {
            self.core.handle(now, Input::DeregisterJob { job: record.id })?;
        }
        result
    }

    fn describe_job(&mut self, record: &JobRecord, now: Time) -> Result<(), RunError> {
        let job = record.id;
        let mut first = 0;
        for (appnum, program) in (0..).zip(&record.programs) {
            let count = program.ranks;
            self.core.handle(now, Input::Program { job, first: Rank(first), count, appnum })?;
            first += count;
        }
        for &RankBlock { node, first, count } in record.blocks.iter().filter(|_| self.nodes.is_some()) {
            self.core.handle(now, Input::MapRanks { job, first: Rank(first), count, node })?;
        }
        let elsewhere = record.spawned.as_ref().filter(|spawned| spawned.node != self.node());
        for (key, value) in elsewhere.iter().flat_map(|spawned| &spawned.preput) {
            self.core.handle(now, Input::Preput { job, key, value })?;
        }
        let value = record.mapping.as_bytes();
        self.core.handle(now, Input::Attr { job, key: b"PMI_process_mapping", value })?;
        for (name, ranges) in &record.psets {
            let members;
            let pset = match ranges[..] {
                [(first, count)] => Input::Pset { job, name, first: Rank(first), count },
                _ => {
                    members = format_ranges(ranges);
                    Input::Define { job, name, members: members.as_bytes() }
                }
            };
            self.core.handle(now, pset).map_err(|error| match error {
                BackendError::Fault(why) => RunError::Pset { name: name.clone(), why },
                error => error.into(),
            })?;
        }
        Ok(())
    }

    /// Makes room for the job's ranks in all tables.
    fn make_room(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let slots = job.slots();
        self.procs.make_room(slots.clone());
        self.streams.make_room(slots, job.ordinal, &self.sinks);
        if let Some(query) = &job.run.query {
            let token = Token::Queries(id.0);
            self.poller.add(query, token, Interest::Read)?;
        }
        self.open_files(id)
    }

    /// Drops a job that has no processes.
    pub(super) fn drop_job(&mut self, id: JobId) -> Result<(), RunError> {
        let Some(job) = self.jobs.remove(id) else { return Ok(()) };
        self.kills.forget_job(id);
        self.streams.clear(job.slots(), &mut self.sinks);
        self.forget(id)
    }

    /// Deregisters a job at the PMI server, with its connections.
    pub(super) fn forget(&mut self, id: JobId) -> Result<(), RunError> {
        let now = self.now();
        if let Some(driver) = self.core.driver() {
            driver.close_job(id, now)?;
            self.outputs()?;
        }
        if let Some(name_client) = &mut self.name_client {
            name_client.forget(id);
        }
        let now = Time(self.now());
        self.core.handle(now, Input::DeregisterJob { job: id })?;
        Ok(())
    }
}

/// Number of ranks of all programs.
pub(super) fn size(programs: &[Program]) -> Result<u32, RunError> {
    let size: u64 = programs.iter().map(|program| u64::from(program.ranks)).sum();
    let ranks = u32::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as u32);
    ranks.ok_or(RunError::Size(size))
}

/// An unpredictable number.
pub(crate) fn random() -> Result<u32, RunError> {
    Ok(hydrant_reactor::random_u32()?)
}
