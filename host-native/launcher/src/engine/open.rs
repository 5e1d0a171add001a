//! How a job begins: what the core, the ranks and the launcher itself know of it before its first process.

use hydrant_core::limits::JOBID_MAX;
use hydrant_core::server::JobSpec;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time, UpcallId};
use hydrant_placement::{node_pset, process_mapping};
use hydrant_reactor::{Interest, Listener};
use rustix::rand::{GetRandomFlags, getrandom};

use super::jobs::{Away, Job, Ranks};
use super::query::Query;
use super::report::Outcome;
use super::token::Token;
use super::{Engine, needed_files};
use crate::border::BackendError;
use crate::control::{JobRecord, Place};
use crate::error::RunError;
use crate::launch::{JobEnvironment, Launcher, PmiAddress, PreparedProgram};
use crate::plan::Program;
use hydrant_driver::TcpPort;

/// The only node's number.
pub(super) const ALONE: u32 = 0;

/// What ranks here need before they are started.
type Ready = (Option<Launcher>, Option<Listener<TcpPort>>, Option<Query>);

impl Engine<'_, '_> {
    /// Takes a job in whose ranks are all of this process, for them to be started. Where that fails, nothing of it is
    /// left.
    pub(super) fn open_job(
        &mut self,
        programs: Vec<Program>,
        checked: Vec<PreparedProgram>,
        spawn: Option<UpcallId>,
    ) -> Result<JobId, RunError> {
        let ranks = size(&programs)?;
        let places = vec![Place { node: ALONE, first: 0, count: ranks }];
        let mapping = process_mapping(&[(0, ranks)])?;
        let record = self.record(programs, places, mapping)?;
        let id = record.id;
        self.open(record, checked.into_iter().map(Some).collect(), spawn.map(|spawn| (ALONE, spawn)), None)?;
        Ok(id)
    }

    /// What there is to know of a job that begins.
    pub(super) fn record(
        &self,
        programs: Vec<Program>,
        places: Vec<Place>,
        mapping: String,
    ) -> Result<JobRecord, RunError> {
        let ordinal = self.jobs.count;
        let name = job_name(&self.host, ordinal)?;
        let mut psets = self.psets_of_nodes(&places);
        psets.extend(self::psets(ordinal, &name, &programs));
        let id = self.jobs.free_id();
        Ok(JobRecord { id, ordinal, name, programs, places, mapping, psets, spawned: None })
    }

    /// Takes a job in, for those of its ranks to be started that are of this process. Where that fails, nothing of it is
    /// left. `checked` says of each program what it was found to be, unless none of its ranks is here.
    pub(super) fn open(
        &mut self,
        record: JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        spawn: Option<(u32, UpcallId)>,
        away: Option<Away>,
    ) -> Result<(), RunError> {
        let JobRecord { id, ordinal, .. } = record;
        let ranks = size(&record.programs)?;
        let here = Ranks::of_node(&record.places, self.node());
        self.check_room(here.count())?;
        let begins = (here.count() > 0).then(|| self.prepare(&record, checked, &here)).transpose()?;
        let (mut launcher, port, query) = begins.unwrap_or_default();
        self.tell(&record, ranks, spawn)?;
        if let Some(launcher) = &mut launcher {
            self.direct(launcher, id, &record.name)?;
        }
        let first_here = here.from(0);
        let job = Job {
            id,
            ordinal,
            name: record.name,
            first: self.jobs.free_stretch(ranks),
            ranks,
            programs: record.programs,
            next: first_here.unwrap_or(ranks),
            here,
            launcher,
            running: 0,
            away,
            port,
            query,
            outcome: Outcome::default(),
            kill_at: None,
            spawn,
            undone: None,
            draining: false,
            done: self.is_daemon() && first_here.is_none(),
        };
        self.jobs.insert(job);
        match self.make_room(id) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.drop_job(id)?;
                Err(error)
            }
        }
    }

    /// What ranks here need before they are started.
    fn prepare(
        &mut self,
        record: &JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        here: &Ranks,
    ) -> Result<Ready, RunError> {
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

    /// Adds what ranks can be told of their server only once it knows the job.
    fn direct(&mut self, launcher: &mut Launcher, id: JobId, name: &str) -> Result<(), RunError> {
        if let Some((host, ports)) = self.begin_at_board()? {
            launcher.set_pmi_ports(&host, &ports);
        }
        let space = self.sharing.as_ref().zip(self.core.kvs_space(id));
        if let Some(variable) = space.and_then(|(sharing, space)| sharing.variable(space, name)) {
            launcher.add_variable(&variable);
        }
        Ok(())
    }

    /// Whether connections and descriptors suffice for so many more ranks.
    fn check_room(&mut self, ranks: u32) -> Result<(), RunError> {
        let limits = *self.core.limits();
        let all = self.jobs.ranks() + u64::from(ranks);
        if self.jobs.free_id().0 >= limits.jobs {
            return Err(Fault::Full(Limit::Jobs, limits.jobs).into());
        }
        // A board has connections of its own, and says itself when they do not suffice.
        if all > u64::from(limits.conns) && self.core.board().is_none() {
            return Err(Fault::Full(Limit::Conns, limits.conns).into());
        }
        let jobs = self.jobs.iter().count() as u64 + 1;
        let needed = needed_files(self.plan, all, jobs) + self.link_files();
        self.files.grow(needed).map_err(RunError::open_files(ranks))
    }

    /// Tells the core what it is to serve.
    fn tell(
        &mut self,
        record: &JobRecord,
        ranks: u32,
        spawn: Option<(u32, UpcallId)>,
    ) -> Result<(), RunError> {
        let now = Time(self.now());
        let options = &self.plan.options;
        let millis = |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let spawned = record.spawned.as_ref();
        let asked_here = spawned.map(|spawned| (spawned.node, spawned.upcall)).or(spawn);
        let asked_here = asked_here.filter(|&(node, _)| node == self.node()).map(|(_, upcall)| upcall);
        let elsewhere = spawned.filter(|_| asked_here.is_none());
        let spec = JobSpec {
            universe: options.universe_size,
            cleanup: options.cleanup,
            pmi1_subversion: options.pmi1_subversion,
            spawn: asked_here,
            spawner: elsewhere.map_or("", |spawned| &spawned.spawner),
            lookup_wait: millis(options.lookup_wait),
            remote_names: self.universe.is_some() || self.nodes.is_some(),
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
        for &Place { node, first, count } in record.places.iter().filter(|_| self.nodes.is_some()) {
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
                    members = members_of(ranges);
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

    /// The sets of the ranks of each node.
    fn psets_of_nodes(&self, places: &[Place]) -> Vec<(String, Vec<(u32, u32)>)> {
        let mut nodes: Vec<u32> = places.iter().map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let ranges = |node| {
            let there = places.iter().filter(move |place| place.node == node);
            there.map(|place| (place.first, place.count)).collect()
        };
        nodes.into_iter().map(|node| (node_pset(self.host_of(node)), ranges(node))).collect()
    }

    /// Makes room for the job's processes where they are kept track of.
    fn make_room(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let processes = job.processes();
        self.procs.make_room(processes.clone());
        self.streams.make_room(processes, job.ordinal, &self.sinks);
        if let Some(query) = &job.query {
            let token = Token::Queries(id.0);
            self.poller.add(query, token, Interest::Read)?;
        }
        self.open_files(id)
    }

    /// Lets go of a job that has no processes.
    pub(super) fn drop_job(&mut self, id: JobId) -> Result<(), RunError> {
        let Some(job) = self.jobs.remove(id) else { return Ok(()) };
        self.streams.clear(job.processes(), &mut self.sinks);
        self.forget(id)
    }

    /// Has the core forget a job, with its connections.
    pub(super) fn forget(&mut self, id: JobId) -> Result<(), RunError> {
        let now = self.now();
        if let Some(driver) = self.core.driver() {
            driver.close_job(id, now)?;
            self.outputs()?;
        }
        if let Some(universe) = &mut self.universe {
            universe.forget(id);
        }
        let now = Time(self.now());
        self.core.handle(now, Input::DeregisterJob { job: id })?;
        Ok(())
    }
}

/// The process sets that the ranks of a job know from the start beside those of nodes.
fn psets(ordinal: u32, name: &str, programs: &[Program]) -> Vec<(String, Vec<(u32, u32)>)> {
    let mut sets = Vec::new();
    if ordinal > 0 {
        let ranks = programs.iter().map(|program| program.ranks).sum();
        sets.push((format!("hydrant://job/{name}"), vec![(0, ranks)]));
    }
    let starts = |first: &mut u32, program: &Program| {
        let start = *first;
        *first += program.ranks;
        Some(start)
    };
    let starts: Vec<u32> = programs.iter().scan(0, starts).collect();
    for (appnum, (program, &first)) in programs.iter().zip(&starts).enumerate() {
        sets.push((format!("hydrant://app/{appnum}"), vec![(first, program.ranks)]));
    }
    let own = sets.len();
    for (program, &first) in programs.iter().zip(&starts) {
        for name in &program.psets {
            // The same name at the next program makes the set longer.
            let ends = |(start, len): (u32, u32)| start + len == first;
            match sets[own..].iter_mut().find(|(known, ranges)| known == name && ends(ranges[0])) {
                Some((_, ranges)) => ranges[0].1 += program.ranks,
                None => sets.push((name.clone(), vec![(first, program.ranks)])),
            }
        }
    }
    sets
}

/// Ranges of ranks as `0-3,7`.
pub(super) fn members_of(ranges: &[(u32, u32)]) -> String {
    let range = |&(first, count): &(u32, u32)| match count {
        1 => first.to_string(),
        _ => format!("{first}-{}", first + count - 1),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// The number of ranks of all programs.
pub(super) fn size(programs: &[Program]) -> Result<u32, RunError> {
    let size: u64 = programs.iter().map(|program| u64::from(program.ranks)).sum();
    let ranks = u32::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as u32);
    ranks.ok_or(RunError::Size(size))
}

/// A name that no other job has: `kvs_PID_N_RANDOM_HOST`, cut to what the core takes.
pub(crate) fn job_name(host: &str, ordinal: u32) -> Result<String, RunError> {
    let mut name = format!("kvs_{}_{ordinal}_{:08x}_", std::process::id(), random()?);
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    Ok(name)
}

/// A number that nobody can foresee.
pub(crate) fn random() -> Result<u32, RunError> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(RunError::system("getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
