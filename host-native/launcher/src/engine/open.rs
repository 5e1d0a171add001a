//! How a job begins: what the core, the ranks and the launcher itself know of it before its first process.

use hydrant_core::limits::{JOBID_MAX, VALUE_MAX};
use hydrant_core::server::JobSpec;
use hydrant_core::{ErrandId, Fault, Input, JobId, Limit, Rank, Time};
use rustix::rand::{GetRandomFlags, getrandom};

use super::jobs::Job;
use super::poller::{Interest, Token};
use super::port::Port;
use super::query::Query;
use super::report::Outcome;
use super::{Engine, needed_files};
use crate::error::RunError;
use crate::launch::{Checked, Launcher, Service, Setting};
use crate::plan::Program;

impl Engine<'_, '_> {
    /// Takes a job in, for its ranks to be started. Where that fails, nothing of it is left.
    pub(super) fn open_job(
        &mut self,
        programs: Vec<Program>,
        checked: Vec<Checked>,
        spawn: Option<ErrandId>,
    ) -> Result<JobId, RunError> {
        let ranks = size(&programs)?;
        let id = self.jobs.free_id();
        let ordinal = self.jobs.count;
        self.check_room(ranks)?;
        let options = &self.plan.options;
        let port = options.pmi_port.map(|addr| {
            // Only the first job can have the very port that was asked for.
            let addr = if ordinal == 0 { addr } else { (addr.ip(), 0).into() };
            Port::open(addr)
        });
        let port = port.transpose()?;
        let name = name(&self.host, ordinal)?;
        let query = options.mpi_psets.then(|| Query::open(&name)).transpose()?;
        let psets = query.as_ref().zip(self.preload.as_deref());
        let psets = psets.map(|(query, library)| (query.address(), library.as_os_str()));
        let service = port.as_ref().map_or(Service::Fd, |port| Service::Port(port.for_ranks(&self.host)));
        let host = self.host.as_ref();
        let setting = Setting { jobid: &name, host, service, spawned: ordinal > 0, psets };
        let launcher = Launcher::new(&programs, checked, &options.bind, &setting, self.signals.ignored())?;
        let first = self.jobs.free_stretch(ranks);
        let job = Job {
            id,
            ordinal,
            name,
            first,
            ranks,
            programs,
            launcher,
            next: 0,
            running: 0,
            port,
            port_pause: None,
            query,
            outcome: Outcome::default(),
            kill_at: None,
            spawn,
            undone: None,
            draining: false,
        };
        self.tell(&job)?;
        self.jobs.insert(job);
        match self.make_room(id) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.drop_job(id)?;
                Err(error)
            }
        }
    }

    /// Whether connections and descriptors suffice for so many more ranks.
    fn check_room(&mut self, ranks: u32) -> Result<(), RunError> {
        let limits = *self.server.limits();
        let all = self.jobs.ranks() + u64::from(ranks);
        if self.jobs.free_id().0 >= limits.jobs {
            return Err(Fault::Full(Limit::Jobs, limits.jobs).into());
        }
        if all > u64::from(limits.conns) {
            return Err(Fault::Full(Limit::Conns, limits.conns).into());
        }
        let jobs = self.jobs.iter().count() as u64 + 1;
        self.files.grow(ranks, needed_files(self.plan, all, jobs))
    }

    /// Tells the core what it is to serve.
    fn tell(&mut self, job: &Job) -> Result<(), RunError> {
        let now = Time(self.now());
        let options = &self.plan.options;
        let millis = |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let spec = JobSpec {
            universe: options.universe,
            cleanup: options.cleanup,
            pmi1_subversion: options.pmi1_subversion,
            spawn: job.spawn,
            lookup_wait: millis(options.lookup_wait),
            remote_names: self.universe.is_some(),
            fence_warning: millis(options.fence_warning),
            ..JobSpec::new(job.id, &job.name, job.ranks)
        };
        self.server.handle(now, Input::Job(spec))?;
        let result = self.describe_job(job, now);
        if result.is_err() {
            self.server.handle(now, Input::Forget { job: job.id })?;
        }
        result
    }

    fn describe_job(&mut self, job: &Job, now: Time) -> Result<(), RunError> {
        let mut first = 0;
        for (appnum, program) in (0..).zip(&job.programs) {
            let count = program.ranks;
            let first_of = Rank(first);
            self.server.handle(now, Input::Program { job: job.id, first: first_of, count, appnum })?;
            first += count;
        }
        // All ranks are on one node.
        let mapping = format!("(vector,(0,1,{}))", job.ranks);
        if mapping.len() > VALUE_MAX as usize {
            return Err(RunError::Mapping { len: mapping.len() });
        }
        let attr = Input::Attr { job: job.id, key: b"PMI_process_mapping", value: mapping.as_bytes() };
        self.server.handle(now, attr)?;
        for (name, first, count) in psets(job, &self.host) {
            let pset = Input::Pset { job: job.id, name: &name, first: Rank(first), count };
            self.server.handle(now, pset).map_err(|why| RunError::Pset { name: name.clone(), why })?;
        }
        Ok(())
    }

    /// Makes room for the job's processes where they are kept track of.
    fn make_room(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let processes = job.processes();
        self.procs.make_room(processes.clone());
        self.conns.make_room(processes.end);
        self.streams.make_room(processes, job.ordinal, &self.sinks);
        if let Some(port) = &job.port {
            self.poller
                .add(port, Token::Listener(id.0), Interest::Read)
                .map_err(RunError::system("epoll"))?;
        }
        if let Some(query) = &job.query {
            let token = Token::Queries(id.0);
            self.poller.add(query, token, Interest::Read).map_err(RunError::system("epoll"))?;
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
        for conn in self.conns.of_job(id) {
            self.close_conn(conn)?;
        }
        if let Some(universe) = &mut self.universe {
            universe.forget(id);
        }
        let now = Time(self.now());
        self.server.handle(now, Input::Forget { job: id })?;
        Ok(())
    }
}

/// The process sets that the ranks of a job know from the start, with their first rank and their size.
fn psets(job: &Job, host: &str) -> Vec<(String, u32, u32)> {
    let mut sets = vec![(format!("hydrant://node/{host}"), 0, job.ranks)];
    if job.ordinal > 0 {
        sets.push((format!("hydrant://job/{}", job.name), 0, job.ranks));
    }
    let starts = |first: &mut u32, program: &Program| {
        let start = *first;
        *first += program.ranks;
        Some(start)
    };
    let starts: Vec<u32> = job.programs.iter().scan(0, starts).collect();
    for (appnum, (program, &first)) in job.programs.iter().zip(&starts).enumerate() {
        sets.push((format!("hydrant://app/{appnum}"), first, program.ranks));
    }
    let own = sets.len();
    for (program, &first) in job.programs.iter().zip(&starts) {
        for name in &program.psets {
            // The same name at the next program makes the set longer.
            match sets[own..].iter_mut().find(|(known, start, len)| known == name && start + *len == first) {
                Some((_, _, len)) => *len += program.ranks,
                None => sets.push((name.clone(), first, program.ranks)),
            }
        }
    }
    sets
}

/// The number of ranks of all programs.
pub(super) fn size(programs: &[Program]) -> Result<u32, RunError> {
    let size: u64 = programs.iter().map(|program| u64::from(program.ranks)).sum();
    let ranks = u32::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as u32);
    ranks.ok_or(RunError::Size(size))
}

/// A name that no other job has: `kvs_PID_N_RANDOM_HOST`, cut to what the core takes.
fn name(host: &str, ordinal: u32) -> Result<String, RunError> {
    let mut name = format!("kvs_{}_{ordinal}_{:08x}_", std::process::id(), random()?);
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    Ok(name)
}

/// A number that nobody can foresee.
pub(super) fn random() -> Result<u32, RunError> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(RunError::system("getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
