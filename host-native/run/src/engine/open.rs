//! Start of a job: registration at the PMI server, sockets, and tables, before its first process.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hydrant_control::protocol::{
    JobRecord, Program, RankBlock, SharedMemory, SpawnOrigin, StdinTarget, StopAt, Target, ToolOptions,
};
use hydrant_control::{NodeRanks, format_ranges, job_pset, process_sets, pset_with_parent};
use hydrant_core::limits::{
    KEY_MAX, OVERSUBSCRIBED_ATTR, QUERIES_ATTR, RECORD_HEADER, STOP_ATTRS, TARGET_ATTR, TEXT_ATTR_PREFIX,
    VALUE_MAX,
};
use hydrant_core::server::JobSpec;
use hydrant_core::wire::pmix::WILDCARD;
use hydrant_core::{Fault, Input, JobId, Limit, Limits, Rank, Time};
use hydrant_driver::{BackendError, PMIX_SERVER, Speaks, TcpPort};
use hydrant_iof::NamedJob;
use hydrant_placement::{HOST_NAME_MAX, NodeGrouping, attribute_part, host_attributes, is_oversubscribed};
use hydrant_reactor::Listener;
use hydrant_start::{
    FileReceiver, JobEnvironment, Launcher, MemoryPool, PMIX_HOSTNAME, PmiAddress, PmixAddress,
    PreparedProgram, find_mpi_library, prepare_file,
};

use super::jobs::{Job, LocalRanks, RankHosts, count_pushed, count_ranks};
use super::query::query_address;
use super::token::Token;
use super::{Engine, needed_files};
use crate::error::RunError;
use crate::plan::Plan;
use crate::topology_file;

/// Number of the PMI server that is the only one.
pub(super) const ALONE: u32 = 0;

/// Returns the name of this machine in a job that has no other: libpmix looks for data of its host by the name that the user
/// has assigned to it. `None` if programs have different names.
fn name_for_ranks(programs: &[Program], host: &str) -> Option<String> {
    let name = |program: &Program| {
        let assigned = program.env.iter().rfind(|(variable, _)| variable == PMIX_HOSTNAME);
        assigned.map_or(Some(host.to_owned()), |(_, name)| name.clone().into_string().ok())
    };
    let first = programs.first().and_then(name).filter(|name| (1..=HOST_NAME_MAX).contains(&name.len()));
    first.filter(|first| programs.iter().all(|program| name(program).as_ref() == Some(first)))
}

/// Program that cannot be started, or none for the whole job, and the reason.
pub(super) type ProgramError = (Option<u32>, RunError);

/// Resources of the ranks on this machine.
#[derive(Default)]
struct Prepared {
    launcher: Option<Launcher>,
    port: Option<Listener<TcpPort>>,
    pmix: Option<Listener<TcpPort>>,
    pool: Option<MemoryPool>,
}

impl Engine<'_> {
    /// Opens a job, which may have ranks here. On failure returns an error for each program that cannot be started, or one
    /// about the whole job. `files` are those that the head has sent for the first job.
    pub(super) fn open_here(
        &mut self,
        record: JobRecord,
        files: Option<&FileReceiver>,
    ) -> Result<(), Vec<ProgramError>> {
        let checked = self.check_here(&record, files)?;
        self.open(record, checked).map_err(|error| vec![(None, error)])
    }

    /// Finds the programs that have ranks on this node.
    fn check_here(
        &mut self,
        record: &JobRecord,
        files: Option<&FileReceiver>,
    ) -> Result<Vec<Option<PreparedProgram>>, Vec<ProgramError>> {
        let here = NodeRanks::of_node(&record.blocks, self.node());
        let plan = self.plan;
        if plan.settings_of(record).mpi_psets && self.preload.is_none() && here.count() > 0 {
            match find_mpi_library() {
                Ok(library) => self.preload = Some(library),
                Err(error) => return Err(vec![(None, error.into())]),
            }
        }
        let mut first = 0;
        let files = files.filter(|_| record.is_of_command_line());
        let (mut checked, mut errors) = (Vec::new(), Vec::new());
        for (appnum, program) in (0..).zip(&*record.programs) {
            let file = files.and_then(|files| files.of_program(appnum));
            let libraries = files.map(|files| files.libraries(appnum)).unwrap_or_default();
            let ranks = first..first + program.ranks;
            first = ranks.end;
            let any = here.from(ranks.start).is_some_and(|rank| ranks.contains(&rank));
            match any.then(|| prepare_file(program, file, libraries)).transpose() {
                Ok(file) => checked.push(file),
                Err(error) => errors.push((Some(appnum), error.into())),
            }
        }
        if errors.is_empty() { Ok(checked) } else { Err(errors) }
    }

    /// Opens a job, which may have ranks on this machine. After an error nothing of the job remains. `checked` holds the files
    /// of the programs that have ranks here.
    fn open(&mut self, mut record: JobRecord, checked: Vec<Option<PreparedProgram>>) -> Result<(), RunError> {
        let id = record.id;
        let size = size(&record.programs)?;
        let ranks = NodeRanks::of_node(&record.blocks, self.node());
        let all = count_ranks(&self.jobs) + u64::from(ranks.count());
        let tool = record.spawned.as_ref().and_then(|spawned| spawned.tool.as_ref());
        let pushed_to = match tool {
            Some(options) if record.ordinal > 0 || options.stdin.is_some() => options.stdin,
            _ if record.ordinal > 0 => None,
            _ => match (self.plan.settings_of(&record).stdin, &record.submitted) {
                (StdinTarget::Tools, _) => Some(StdinTarget::All),
                // The client of a fleet pushes the input.
                (target, Some(_)) => Some(target),
                (_, None) => None,
            },
        };
        let of_job = pushed_to.filter(|_| record.ordinal > 0).map_or(0, |_| u64::from(ranks.count()));
        self.check_room(id, all, self.jobs.len() as u64 + 1, count_pushed(&self.jobs) + of_job)?;
        let prepared = (ranks.count() > 0).then(|| self.prepare(&record, checked, &ranks)).transpose()?;
        let Prepared { mut launcher, port, pmix, pool } = prepared.unwrap_or_default();
        let oversubscribed = self.is_oversubscribed(launcher.as_ref(), &ranks);
        if let Some(launcher) = launcher.as_mut().filter(|_| oversubscribed) {
            launcher.schedule_as_oversubscribed();
            if self.serves_pmix() {
                launcher.let_waiting_ranks_yield(&record.programs);
            }
        }
        let uri = pmix.as_ref().map(|port| format!("{PMIX_SERVER}{}", port.socket().addr()));
        let places = places(launcher.as_ref(), &ranks);
        let wdir = std::env::current_dir().unwrap_or_default();
        let local = LocalFacts { oversubscribed, uri, places, wdir };
        let queries = self.open_query(&record)?;
        self.register(&record, local)?;
        if let Some(launcher) = &mut launcher
            && let Err(error) = self.direct_clients(launcher, &record)
        {
            self.deregister(id)?;
            return Err(error);
        }
        if record.is_of_command_line() {
            self.stdin.expect(std::iter::successors(ranks.from(0), |rank| ranks.from(rank + 1)));
        }
        let (hosts, submitted) = (RankHosts::take(&mut record), record.submitted.take());
        let submission = submitted.as_ref().map(|submitted| submitted.id);
        let run = LocalRanks {
            ranks,
            hosts,
            launcher,
            port,
            pmix,
            pool,
            queries,
            pushed_to,
            submitted,
            ..LocalRanks::default()
        };
        let first = self.jobs.free_slots(size);
        let mut job = Job::new(record, first, None, run);
        job.submission = submission;
        self.jobs.insert(job);
        match self.make_room(id) {
            Ok(()) => {
                self.note_shared_processors(id);
                Ok(())
            }
            Err(error) => {
                self.drop_job(id)?;
                Err(error)
            }
        }
    }

    /// The processors that ranks here are bound to.
    fn bound_processors(&self) -> Vec<u32> {
        let mut bound = Vec::new();
        for job in self.jobs.iter().filter(|job| job.running() > 0 || job.started() < job.run.ranks.count()) {
            let Some(bindings) = job.run.launcher.as_ref().and_then(Launcher::bindings) else { continue };
            let sets = (0..job.run.ranks.count()).filter_map(|local| bindings.bound_to(local));
            sets.for_each(|set| bound.extend_from_slice(set));
        }
        bound
    }

    /// Returns whether the ranks of a new job here, together with those of the other jobs, exceed the processors that they may
    /// use. Their number is not read for a job without ranks here.
    fn is_oversubscribed(&self, launcher: Option<&Launcher>, ranks: &NodeRanks) -> bool {
        if launcher.is_none() {
            return false;
        }
        let (mut sets, mut unbound) = (Vec::new(), 0);
        let others = self.jobs.iter().map(|job| (job.run.launcher.as_ref(), &job.run.ranks));
        for (launcher, ranks) in others.chain([(launcher, ranks)]) {
            let bindings = launcher.and_then(Launcher::bindings);
            for local in 0..ranks.count() {
                match bindings.and_then(|bindings| bindings.bound_to(local)) {
                    Some(set) => sets.push(set),
                    None => unbound += 1,
                }
            }
        }
        // One rank fits on any machine, which need not be asked.
        if sets.len() + unbound <= 1 {
            return false;
        }
        // Affinity and control groups of this process, which ranks inherit.
        std::thread::available_parallelism()
            .is_ok_and(|processors| is_oversubscribed(&sets, unbound, processors.get()))
    }

    /// Prepares the resources of the ranks on this machine.
    fn prepare(
        &mut self,
        record: &JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        here: &NodeRanks,
    ) -> Result<Prepared, RunError> {
        let JobRecord { id, name, programs, spawned, .. } = record;
        let (settings, options) = (self.plan.settings_of(record), &self.plan.options);
        let at_board = self.core.is_board();
        let port = options.pmi_port.filter(|_| !at_board).map(|addr| {
            // Only the first job can have the very port that was asked for.
            let addr = if record.is_of_command_line() { addr } else { (addr.ip(), 0).into() };
            TcpPort::open(addr).map(|port| port.for_clients_of(Speaks::Pmi))
        });
        let port = port.transpose()?;
        let serves_pmix = self.serves_pmix();
        let pmix = serves_pmix && !at_board;
        let pmix = pmix.then(|| TcpPort::open((Ipv4Addr::LOCALHOST, 0).into())).transpose()?;
        let pmix = pmix.map(|port| port.for_clients_of(Speaks::Pmix));
        let preload = self.preload.as_deref().filter(|_| settings.mpi_psets);
        let psets = preload.map(|library| (query_address(name, self.server_node()), library.as_os_str()));
        let pmi = match &port {
            _ if at_board => PmiAddress::PortPerRank,
            Some(port) => PmiAddress::Port(port.for_ranks(&self.host)),
            None => PmiAddress::Inherited,
        };
        let pool = settings.mem_pool.map(MemoryPool::new).transpose()?;
        let setting = JobEnvironment {
            jobid: name,
            host: self.host.as_ref(),
            pmi,
            pmix: match &pmix {
                Some(port) => Some(PmixAddress::Port(port.addr())),
                None => serves_pmix.then_some(PmixAddress::PortPerRank),
            },
            spawned: record.spawned.as_ref().is_some_and(|spawned| spawned.tool.is_none()),
            psets,
            size: (size(programs)?, here.count()),
            gpus: settings.gpus_per_rank,
            inherited: &self.inherited,
        };
        let ends = programs.iter().scan(0, |end, program| {
            *end += program.ranks;
            Some(*end)
        });
        let found = programs.iter().zip(ends).zip(checked);
        let found = found.filter_map(|((program, end), checked)| Some((program, end, checked?))).collect();
        let taken = if record.submitted.is_some() { self.bound_processors() } else { Vec::new() };
        let mut launcher = Launcher::new(found, (&settings.bind, &taken), &setting, self.signals.ignored())?;
        if let Some(mark) = self.procs.mark() {
            launcher.add_variable(mark);
        }
        if let Some(folder) = &self.files_folder {
            launcher.name_files(folder)?;
        }
        if options.stack_traces {
            launcher.allow_tracing();
        }
        if let Some(name) = self.interface() {
            launcher.prefer_interface(name, programs);
        }
        launcher.limit_shared_memory(settings.shared_memory, programs);
        let options = spawned.as_ref().and_then(|spawned| spawned.tool.as_ref());
        let stop = options.and_then(|options| options.stop.as_ref());
        if let Some(stop) = stop.filter(|stop| stop.at == StopAt::Exec) {
            launcher.stop_at_exec(stop.ranks());
        }
        let port = port.map(|port| Listener::new(port, Token::Listener(id.0), &self.poller)).transpose()?;
        let pmix = pmix.map(|port| Listener::new(port, Token::Pmix(id.0), &self.poller)).transpose()?;
        Ok(Prepared { launcher: Some(launcher), port, pmix, pool })
    }

    /// Returns whether ranks may be PMIx clients. They reach a board by IPv4 only.
    pub(super) fn serves_pmix(&mut self) -> bool {
        // Ranks reach this process by a TCP port, and a board only if they are on other machines.
        (TcpPort::SERVES_THIS_MACHINE || self.core.is_board())
            && self.core.limits().commit_bytes > 0
            && self.core.host().is_none_or(|host| host.is_ipv4())
    }

    /// Adds the client variables that depend on the registered job.
    fn direct_clients(&mut self, launcher: &mut Launcher, record: &JobRecord) -> Result<(), RunError> {
        let (id, name) = (record.id, &record.name);
        if let Some((host, ports)) = self.begin_at_board(id, record.is_of_command_line())? {
            launcher.set_ports(host, &ports, self.serves_pmix());
        }
        let space_of = |sharing| Some((sharing, self.core.inspect()?.kvs_space(id)?));
        let space = self.sharing.as_ref().and_then(space_of);
        if let Some(variable) = space.and_then(|(sharing, space)| sharing.variable(space, name)) {
            launcher.add_variable(&variable);
        }
        Ok(())
    }

    /// Checks that jobs, connections and descriptors suffice for another job. Its ranks here make `all` ranks of `jobs`
    /// jobs.
    fn check_room(&mut self, id: JobId, all: u64, jobs: u64, pipes: u64) -> Result<(), RunError> {
        let limits = *self.core.limits();
        let most = self.jobs_max();
        if id.0 >= most || self.is_tool(id) {
            return Err(Fault::Full(Limit::Jobs, most).into());
        }
        if all > u64::from(limits.conns) {
            return Err(Fault::Full(Limit::Conns, limits.conns).into());
        }
        let needed = needed_files(self.plan, all, jobs) + pipes + self.link_files();
        Ok(self.files.grow(needed)?)
    }

    /// Registers a job at the PMI server. After an error it is not registered.
    fn register(&mut self, record: &JobRecord, local: LocalFacts) -> Result<(), RunError> {
        let now = Time(self.now());
        let ranks = size(&record.programs)?;
        let (settings, options) = (self.plan.settings_of(record), &self.plan.options);
        let millis = |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let spawned = record.spawned.as_ref();
        let asked_here = spawned.filter(|spawned| spawned.tool.is_none() && spawned.node == self.node());
        let asked_here = asked_here.map(|spawned| spawned.upcall);
        let elsewhere = spawned.filter(|_| asked_here.is_none());
        let spec = JobSpec {
            universe_size: record.universe_size,
            cleanup: settings.cleanup,
            pmi1_subversion: settings.pmi1_subversion,
            spawn: asked_here,
            spawner: elsewhere.map_or("", |spawned| &spawned.spawner),
            lookup_wait: millis(settings.lookup_wait),
            // Ranks of the only server share its own, unless there are others with names, or it has room for few.
            remote_names: !self.is_alone() || options.name_server.is_some() || self.core.is_board(),
            fence_warning: millis(settings.fence_warning),
            fence: settings.fence,
            ..JobSpec::new(record.id, &record.name, ranks)
        };
        self.core.handle(now, Input::RegisterJob(spec))?;
        let node = self.server_node();
        let job = record.id;
        let kinds = settings.memory_alloc_kinds.as_deref().map(str::as_bytes);
        let kinds = kinds.map(|value| (b"PMI_mpi_memory_alloc_kinds".to_vec(), value));
        let ranks = size(&record.programs)?;
        let apart = settings.shared_memory == SharedMemory::None;
        let apart = apart.then(|| NodeGrouping::Apart.process_mapping(ranks));
        let apart = apart.iter().map(|mapping| (b"PMI_process_mapping".to_vec(), mapping.as_bytes()));
        let given = settings.attributes.iter();
        let given = given.filter_map(|attribute| Some((attribute.key(node)?, attribute.value.as_bytes())));
        let path = self.topology_path(record);
        let file = path.iter().map(|path| (topology_file::ATTRIBUTE.as_bytes().to_vec(), path.as_bytes()));
        let asks = self.core.limits().commit_bytes > 0;
        let flags = [(OVERSUBSCRIBED_ATTR, local.oversubscribed), (QUERIES_ATTR, asks)];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let flags = flags.map(|(name, _)| (name.into(), b"TRUE".as_slice()));
        let of_tool = spawned.and_then(|spawned| spawned.tool.as_ref());
        let of_tool = of_tool.map_or(Vec::new(), |options| tool_attributes(options, ranks));
        let of_tool = of_tool.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes()));
        let attributes = kinds.into_iter().chain(apart).chain(file).chain(flags).chain(of_tool).chain(given);
        let limits = self.core.limits();
        let texts = if limits.commit_bytes > 0 { texts(&record.programs, local, limits) } else { Vec::new() };
        let place = match self.nodes {
            Some(_) => Place::Node(node),
            None => Place::Alone(name_for_ranks(&record.programs, &self.host)),
        };
        let result = describe_job(record, &place, |input| self.core.handle(now, input));
        let texts = texts.iter().map(|(key, value)| (key.clone(), value.as_slice()));
        let mut attributes = attributes.chain(texts);
        let result = result.and_then(|()| {
            attributes.try_for_each(|(key, value)| {
                Ok(self.core.handle(now, Input::Attr { job, key: &key, value })?)
            })
        });
        if result.is_err() {
            self.core.handle(now, Input::DeregisterJob { job: record.id })?;
        } else if path.is_some()
            && self.serves_pmix()
            && let Some(file) = &self.topology_file
        {
            file.borrow_mut().offer_content(job);
        }
        result
    }

    /// Returns the path of the topology file, if enough ranks of the job run here and the user has named no other.
    fn topology_path(&self, record: &JobRecord) -> Option<String> {
        let file = self.topology_file.as_ref()?;
        let here = NodeRanks::of_node(&record.blocks, self.node()).count();
        let is_given = self
            .plan
            .settings_of(record)
            .attributes
            .iter()
            .any(|given| given.name == topology_file::ATTRIBUTE);
        (here >= topology_file::RANKS_MIN && !is_given).then(|| file.borrow_mut().offer()).flatten()
    }

    /// Has the topology file written once a rank has asked for it, and passes the requests that waited for it.
    pub(super) fn keep_topology_file(&mut self, now: u64) -> Result<(), RunError> {
        let Some(file) = &self.topology_file else { return Ok(()) };
        let resumed = file.borrow_mut().keep_time(now, self.null.as_fd(), &self.files);
        let (jobs, topology) = file.borrow_mut().take_due();
        for job in jobs {
            self.give_topology(job, &topology, now)?;
        }
        if let Some(driver) = self.core.driver() {
            resumed.into_iter().for_each(|conn| driver.resume(conn));
        }
        Ok(())
    }

    /// Makes the topology a text of a job if there is room for it. Else its PMIx clients scan the machine.
    fn give_topology(&mut self, job: JobId, topology: &[u8], now: u64) -> Result<(), RunError> {
        let limits = self.core.limits();
        let parts = in_parts(&format!("{TEXT_ATTR_PREFIX}{}", topology_file::PMIX_KEY), topology);
        if topology.len() > limits.text_max() || !TextRoom::of(limits).take(&parts) {
            return Ok(());
        }
        // The first part comes last: without it there is no text.
        for (key, value) in parts.iter().rev() {
            match self.core.handle(Time(now), Input::Attr { job, key: key.as_bytes(), value }) {
                Err(error) if matches!(error.fault(), Some(Fault::Full(..))) => break,
                result => result?,
            }
        }
        Ok(())
    }

    /// Prints a note if ranks of the job share processors that they are bound to.
    fn note_shared_processors(&mut self, id: JobId) {
        let job = &self.jobs[id];
        let Some(bindings) = job.run.launcher.as_ref().and_then(Launcher::bindings) else { return };
        let ranks = &job.run.ranks;
        let ranks: Vec<u32> = std::iter::successors(ranks.from(0), |rank| ranks.from(rank + 1)).collect();
        if let Some(shared) = bindings.shared(&ranks) {
            let line = format!("note: {}{shared}", self.host_prefix());
            self.print_about(id, &line);
        }
    }

    /// Makes room for the job's ranks in all tables.
    fn make_room(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let slots = job.slots();
        self.procs.make_room(slots.clone());
        let of = (job.id.0, NamedJob { ordinal: job.ordinal, task: None });
        self.streams.make_room(slots.clone(), of, &self.sinks, |rank| job.run.hosts.of(rank));
        if let Some(submitted) = &job.run.submitted {
            let own = [self.sinks.stdout(), self.sinks.stderr()];
            let to = self.outlets.get(&submitted.id).copied().unwrap_or(own);
            self.streams.forward(slots, to, submitted.pseudo_terminals);
        }
        self.open_files(id)
    }

    /// Drops a job that has no processes, with its connections.
    pub(super) fn drop_job(&mut self, id: JobId) -> Result<(), RunError> {
        let Some(job) = self.jobs.remove(id) else { return Ok(()) };
        self.streams.clear(job.slots(), &mut self.sinks);
        self.pushed.close(job.slots());
        self.report_pushed();
        self.deregister(id)
    }

    fn deregister(&mut self, id: JobId) -> Result<(), RunError> {
        if let Some(file) = &self.topology_file {
            file.borrow_mut().forget(id);
        }
        self.core.deregister_job(self.now(), id)
    }
}

/// Maximum length in bytes of a command line that the ranks of its program get by PMIx.
const ARGV_MAX: usize = 8192;
/// Maximum length in bytes of the place of a rank.
const PLACE_MAX: usize = 400;

/// What the host of a PMI server knows of a job's ranks on this machine.
#[derive(Debug, Default)]
struct LocalFacts {
    /// The ranks exceed their processors.
    oversubscribed: bool,
    /// Address of the server for PMIx clients.
    uri: Option<String>,
    /// Ranks that are bound, each with its processors and their place in the machine.
    places: Vec<(u32, [String; 2])>,
    /// Working directory of the launcher or daemon.
    wdir: PathBuf,
}

/// Returns the places of bound ranks.
fn places(launcher: Option<&Launcher>, ranks: &NodeRanks) -> Vec<(u32, [String; 2])> {
    let Some(bindings) = launcher.and_then(Launcher::bindings) else { return Vec::new() };
    let ranks = std::iter::successors(ranks.from(0), |rank| ranks.from(rank + 1));
    (0..).zip(ranks).map_while(|(local, rank)| Some((rank, bindings.place(local)?))).collect()
}

/// Returns the job attributes for PMIx clients: the command line of each program, in parts that fit into an attribute, the address
/// of the server, the places of ranks, and the working directory of each program. What there is too little room for is left out:
/// the first command line that is too long and all behind it, and the same of places and directories.
fn texts(programs: &[Program], local: LocalFacts, limits: &Limits) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut room = TextRoom::of(limits);
    let mut attributes = Vec::new();
    let mut add = |of: Vec<(String, &[u8])>| {
        let fits = room.take(&of);
        if fits {
            attributes.extend(of.into_iter().map(|(key, value)| (key.into_bytes(), value.to_vec())));
        }
        fits
    };
    for (appnum, program) in programs.iter().enumerate() {
        let words = std::iter::once(&program.command).chain(&program.args);
        let line = words.map(|word| word.as_bytes()).collect::<Vec<_>>().join(&b' ');
        if line.len() > ARGV_MAX || !add(in_parts(&format!("pmix.argv.{appnum}"), &line)) {
            break;
        }
    }
    if let Some(uri) = &local.uri {
        add(vec![(format!("{TEXT_ATTR_PREFIX}pmix.srvr.uri"), uri.as_bytes())]);
    }
    for (rank, [processors, place]) in &local.places {
        let key = |name| format!("{TEXT_ATTR_PREFIX}pmix.{name}@{rank}");
        let of = vec![(key("cpuset"), processors.as_bytes()), (key("locstr"), place.as_bytes())];
        if processors.len() + place.len() > PLACE_MAX || !add(of) {
            break;
        }
    }
    for (appnum, program) in programs.iter().enumerate() {
        let wdir = program.wdir.as_ref().map_or_else(|| local.wdir.clone(), |wdir| local.wdir.join(wdir));
        let wdir = wdir.as_os_str().as_bytes();
        if wdir.len() > VALUE_MAX as usize || !add(vec![(format!("pmix.wdir.{appnum}"), wdir)]) {
            break;
        }
    }
    attributes
}

/// Room for attributes of a job that its PMIx clients get.
struct TextRoom {
    bytes: usize,
    keys: usize,
}

impl TextRoom {
    /// Small tables are for the data of ranks.
    fn of(limits: &Limits) -> TextRoom {
        TextRoom { bytes: limits.kvs_bytes as usize / 64, keys: limits.keys as usize / 16 }
    }

    /// Returns whether all of these attributes fit, which then take their room.
    fn take(&mut self, attributes: &[(String, &[u8])]) -> bool {
        let cost = |(_, value): &(String, &[u8])| value.len() + (KEY_MAX + RECORD_HEADER) as usize;
        let left = self.bytes.checked_sub(attributes.iter().map(cost).sum());
        let Some((bytes, keys)) = left.zip(self.keys.checked_sub(attributes.len())) else { return false };
        *self = TextRoom { bytes, keys };
        true
    }
}

/// Returns an attribute in parts of at most a value, the first under its name.
fn in_parts<'t>(name: &str, text: &'t [u8]) -> Vec<(String, &'t [u8])> {
    let parts = text.chunks(VALUE_MAX as usize).enumerate();
    parts.map(|(part, text)| (attribute_part(name, part), text)).collect()
}

/// Returns the attributes of a job for what the tool that has spawned it wants.
fn tool_attributes(options: &ToolOptions, size: u32) -> Vec<(String, String)> {
    let [init, app] = STOP_ATTRS;
    let stop = options.stop.as_ref().and_then(|stop| {
        let name = match stop.at {
            StopAt::Init => init,
            StopAt::App => app,
            StopAt::Exec => return None,
        };
        let ranks = if stop.ranks == [(0, size)] { "TRUE".to_owned() } else { format_ranges(&stop.ranks) };
        (!ranks.is_empty()).then(|| (name.to_owned(), ranks))
    });
    let target = options.target.iter().flat_map(|Target { job, rank }| {
        let rank = rank.map_or(WILDCARD, |rank| rank.0);
        // Under this key it is the job id alone.
        let older = (format!("{TEXT_ATTR_PREFIX}pmix.dbg.job"), job.clone());
        [(TARGET_ATTR.to_owned(), format!("{rank} {job}")), older]
    });
    stop.into_iter().chain(target).collect()
}

/// Place of a PMI server among those of a run.
enum Place {
    /// It is the only one. The host has this name for ranks, or none that a reply has room for.
    Alone(Option<String>),
    /// This node of several.
    Node(u32),
}

/// Passes the inputs to `handle` that follow the registration of a job at the server, until one is refused. Only one server of
/// several needs the placement of ranks.
fn describe_job(
    record: &JobRecord,
    place: &Place,
    mut handle: impl FnMut(Input<'_>) -> Result<(), BackendError>,
) -> Result<(), RunError> {
    let job = record.id;
    let mut first = 0;
    for (appnum, program) in (0..).zip(&*record.programs) {
        let count = program.ranks;
        handle(Input::Program { job, first: Rank(first), count, appnum })?;
        first += count;
    }
    if let Place::Node(this) = *place {
        for &RankBlock { node, first, count } in &record.blocks {
            handle(Input::MapRanks { job, first: Rank(first), count, node })?;
        }
        let elsewhere = record.spawned.as_ref().filter(|spawned| spawned.node != this);
        for (key, value) in elsewhere.iter().flat_map(|spawned| &spawned.preput) {
            handle(Input::Preput { job, key, value })?;
        }
    }
    let value = record.mapping.as_bytes();
    handle(Input::Attr { job, key: b"PMI_process_mapping", value })?;
    let hosts: Vec<(u32, &str)> = match place {
        Place::Alone(name) => name.iter().map(|name| (ALONE, &**name)).collect(),
        Place::Node(_) => record.hosts.iter().map(|(node, host)| (*node, &**host)).collect(),
    };
    for (key, value) in host_attributes(hosts) {
        handle(Input::Attr { job, key: key.as_bytes(), value: value.as_bytes() })?;
    }
    if let Some(spawned) = &record.spawned {
        let rank = spawned.rank.0.to_string();
        handle(Input::Attr { job, key: b"pmix.parent", value: rank.as_bytes() })?;
    }
    process_sets(record, |name, ranges| {
        let members;
        let pset = match *ranges {
            [(first, count)] => Input::Pset { job, name, first: Rank(first), count },
            _ => {
                members = format_ranges(ranges);
                Input::Define { job, name, members: members.as_bytes(), other: None }
            }
        };
        handle(pset).map_err(|error| pset_error(name, error))
    })?;
    // A tool has no sets.
    let parent = record.spawned.as_ref().filter(|spawned| spawned.tool.is_none());
    parent.map_or(Ok(()), |spawned| define_parent_psets(record, spawned, handle))
}

/// Defines the set of the ranks of a spawned job's parent, and the set of the ranks of both jobs. A parent that is over has
/// no sets.
fn define_parent_psets(
    record: &JobRecord,
    spawned: &SpawnOrigin,
    mut handle: impl FnMut(Input<'_>) -> Result<(), BackendError>,
) -> Result<(), RunError> {
    let &SpawnOrigin { job: parent, ranks, .. } = spawned;
    let name = job_pset(&spawned.spawner);
    match handle(Input::Pset { job: parent, name: &name, first: Rank(0), count: ranks }) {
        // A rank may have retired the set since an earlier spawn.
        Ok(()) | Err(BackendError::Fault(Fault::BadPset)) => {}
        Err(BackendError::Fault(Fault::NoSuchJob)) => return Ok(()),
        Err(error) => return Err(pset_error(&name, error)),
    }
    let name = pset_with_parent(&record.name);
    let members = format_ranges(&[(0, size(&record.programs)?)]);
    let pset =
        Input::Define { job: record.id, name: &name, members: members.as_bytes(), other: Some(parent) };
    handle(pset).map_err(|error| pset_error(&name, error))
}

fn pset_error(name: &str, error: BackendError) -> RunError {
    match error {
        BackendError::Fault(why) => RunError::Pset { name: name.to_owned(), why },
        error => error.into(),
    }
}

/// Checks that the rank that reads standard input is one of so many.
pub(crate) fn check_stdin(plan: &Plan, ranks: u32) -> Result<(), RunError> {
    match plan.settings.stdin {
        StdinTarget::Rank(rank) if rank >= ranks => Err(RunError::StdinRank { rank, ranks }),
        _ => Ok(()),
    }
}

/// Has programs start below the working directory of this process: their daemons have another one.
pub(crate) fn start_from_here<'p>(programs: impl Iterator<Item = &'p mut Program>) -> Result<(), RunError> {
    let here = std::env::current_dir().map_err(RunError::system("cannot tell the working directory"))?;
    for program in programs {
        program.wdir = Some(program.wdir.as_ref().map_or_else(|| here.clone(), |wdir| here.join(wdir)));
    }
    Ok(())
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

/// An unpredictable number for the name of a job.
pub(super) fn nonce() -> Result<u64, RunError> {
    Ok(hydrant_reactor::random_u64()?)
}

#[cfg(test)]
mod tests;
