//! Start of a job: registration at the PMI server, sockets, and tables, before its first process.

use std::net::Ipv4Addr;

use hydrant_control::protocol::{JobRecord, Program, RankBlock};
use hydrant_control::{NodeRanks, SpawnKey, format_ranges, process_sets};
use hydrant_core::server::JobSpec;
use hydrant_core::{Fault, Input, JobId, Limit, Rank, Time, UpcallId};
use hydrant_driver::{BackendError, TcpPort};
use hydrant_placement::process_mapping;
use hydrant_reactor::Listener;

use super::jobs::{Job, LocalRanks, count_ranks};
use super::query::query_address;
use super::token::Token;
use super::{Engine, needed_files};
use crate::error::RunError;
use crate::launch::{JobEnvironment, Launcher, MemoryPool, PmiAddress, PmixAddress, PreparedProgram};

/// The only node's number.
pub(super) const ALONE: u32 = 0;

/// Resources of the ranks on this machine.
#[derive(Default)]
struct Prepared {
    launcher: Option<Launcher>,
    port: Option<Listener<TcpPort>>,
    pmix: Option<Listener<TcpPort>>,
    pool: Option<MemoryPool>,
}

impl Engine<'_, '_> {
    /// Opens a job whose ranks all run on this machine. After an error nothing of the job remains.
    pub(super) fn open_job(
        &mut self,
        name: String,
        (programs, checked): (Vec<Program>, Vec<PreparedProgram>),
        spawn: Option<UpcallId>,
    ) -> Result<JobId, RunError> {
        let ranks = size(&programs)?;
        let blocks = vec![RankBlock { node: ALONE, first: 0, count: ranks }];
        let mapping = process_mapping(&[(0, ranks)])?;
        let (id, ordinal) = (self.jobs.free_id(), self.jobs.count());
        let psets = process_sets(ordinal, &name, &programs, &blocks, |_| &self.host);
        let (hosts, spawned) = (Vec::new(), None);
        let record = JobRecord { id, ordinal, name, programs, blocks, mapping, hosts, psets, spawned };
        self.open(record, checked.into_iter().map(Some).collect(), spawn.map(|spawn| (ALONE, spawn)))?;
        self.jobs[id].run.next = Some(0);
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
        let ranks = NodeRanks::of_node(&record.blocks, self.node());
        let all = count_ranks(&self.jobs) + u64::from(ranks.count());
        self.check_room(id, all, self.jobs.len() as u64 + 1)?;
        let prepared = (ranks.count() > 0).then(|| self.prepare(&record, checked, &ranks)).transpose()?;
        let Prepared { mut launcher, port, pmix, pool } = prepared.unwrap_or_default();
        self.register(&record, spawn)?;
        if let Some(launcher) = &mut launcher {
            self.direct_clients(launcher, id, &record.name)?;
        }
        if record.ordinal == 0 {
            self.stdin.expect(std::iter::successors(ranks.from(0), |rank| ranks.from(rank + 1)));
        }
        let run = LocalRanks { ranks, launcher, port, pmix, pool, ..LocalRanks::default() };
        let first = self.jobs.free_slots(size);
        self.jobs.insert(Job::new(record, first, spawn, run));
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

    /// Prepares the resources of the ranks on this machine.
    fn prepare(
        &mut self,
        record: &JobRecord,
        checked: Vec<Option<PreparedProgram>>,
        here: &NodeRanks,
    ) -> Result<Prepared, RunError> {
        let JobRecord { id, ordinal, name, programs, .. } = record;
        let options = &self.plan.options;
        let port = options.pmi_port.map(|addr| {
            // Only the first job can have the very port that was asked for.
            let addr = if *ordinal == 0 { addr } else { (addr.ip(), 0).into() };
            TcpPort::open(addr)
        });
        let port = port.transpose()?;
        let at_board = self.core.board().is_some();
        let serves_pmix = self.serves_pmix();
        let pmix = serves_pmix && !at_board;
        let pmix = pmix.then(|| TcpPort::open((Ipv4Addr::LOCALHOST, 0).into())).transpose()?;
        let preload = self.preload.as_deref().filter(|_| options.mpi_psets);
        let psets = preload.map(|library| (query_address(name, self.node()), library.as_os_str()));
        let pmi = match &port {
            _ if at_board => PmiAddress::PortPerRank,
            Some(port) => PmiAddress::Port(port.for_ranks(&self.host)),
            None => PmiAddress::Inherited,
        };
        let pool = options.mem_pool.map(MemoryPool::new).transpose()?;
        let setting = JobEnvironment {
            jobid: name,
            host: self.host.as_ref(),
            pmi,
            pmix: match &pmix {
                Some(port) => Some(PmixAddress::Port(port.addr())),
                None => serves_pmix.then_some(PmixAddress::PortPerRank),
            },
            spawned: *ordinal > 0,
            psets,
            size: (size(programs)?, here.count()),
            gpus: options.gpus_per_rank,
        };
        let ends = programs.iter().scan(0, |end, program| {
            *end += program.ranks;
            Some(*end)
        });
        let found = programs.iter().zip(ends).zip(checked);
        let found = found.filter_map(|((program, end), checked)| Some((program, end, checked?))).collect();
        let mut launcher = Launcher::new(found, &options.bind, &setting, self.signals.ignored())?;
        if options.stack_traces {
            launcher.allow_tracing();
        }
        let port = port.map(|port| Listener::new(port, Token::Listener(id.0), &self.poller)).transpose()?;
        let pmix = pmix.map(|port| Listener::new(port, Token::Pmix(id.0), &self.poller)).transpose()?;
        Ok(Prepared { launcher: Some(launcher), port, pmix, pool })
    }

    /// Returns whether ranks may be PMIx clients. They reach a board by IPv4 only.
    pub(super) fn serves_pmix(&mut self) -> bool {
        // Ranks reach this process by a TCP port, and a board only if they are on other machines.
        (TcpPort::SERVES_THIS_MACHINE || self.core.board().is_some())
            && self.core.limits().commit_bytes > 0
            && self.core.board().is_none_or(|board| board.address().0.is_ipv4())
    }

    /// Adds the client variables that depend on the registered job.
    fn direct_clients(&mut self, launcher: &mut Launcher, id: JobId, name: &str) -> Result<(), RunError> {
        if let Some((host, ports)) = self.begin_at_board()? {
            launcher.set_ports(host, &ports, self.serves_pmix());
        }
        let space = self.sharing.as_ref().zip(self.core.kvs_space(id));
        if let Some(variable) = space.and_then(|(sharing, space)| sharing.variable(space, name)) {
            launcher.add_variable(&variable);
        }
        Ok(())
    }

    /// Checks that jobs, connections and descriptors suffice for another job. Its ranks here make `all` ranks of `jobs`
    /// jobs.
    pub(super) fn check_room(&mut self, id: JobId, all: u64, jobs: u64) -> Result<(), RunError> {
        let limits = *self.core.limits();
        if id.0 >= limits.jobs {
            return Err(Fault::Full(Limit::Jobs, limits.jobs).into());
        }
        // A board has connections of its own, and reports itself when they do not suffice.
        if all > u64::from(limits.conns) && self.core.board().is_none() {
            return Err(Fault::Full(Limit::Conns, limits.conns).into());
        }
        let needed = needed_files(self.plan, all, jobs) + self.link_files();
        Ok(self.files.grow(needed)?)
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
            remote_names: self.names.is_some() || self.nodes.is_some(),
            fence_warning: millis(options.fence_warning),
            ..JobSpec::new(record.id, &record.name, ranks)
        };
        let query = self.open_query(record)?;
        self.core.handle(now, Input::RegisterJob(spec))?;
        let (node, is_cluster) = (self.node(), self.nodes.is_some());
        let job = record.id;
        let kinds = self.plan.options.memory_alloc_kinds.as_deref().map(str::as_bytes);
        let kinds = kinds.map(|value| (b"PMI_mpi_memory_alloc_kinds".to_vec(), value));
        let given = self.plan.options.attributes.iter();
        let given = given.filter_map(|attribute| Some((attribute.key(node)?, attribute.value.as_bytes())));
        let mut attributes = kinds.into_iter().chain(given);
        let result = describe_job(record, node, is_cluster, |input| self.core.handle(now, input));
        let result = result.and_then(|()| {
            attributes.try_for_each(|(key, value)| {
                Ok(self.core.handle(now, Input::Attr { job, key: &key, value })?)
            })
        });
        if result.is_err() {
            self.core.handle(now, Input::DeregisterJob { job: record.id })?;
            return result;
        }
        self.queries.extend(query.map(|query| (record.id, query)));
        self.introduce(record);
        Ok(())
    }

    /// Prints a note if ranks of the job share processors that they are bound to.
    fn note_shared_processors(&mut self, id: JobId) {
        let job = &self.jobs[id];
        let Some(bindings) = job.run.launcher.as_ref().and_then(Launcher::bindings) else { return };
        let ranks = &job.run.ranks;
        let ranks: Vec<u32> = std::iter::successors(ranks.from(0), |rank| ranks.from(rank + 1)).collect();
        if let Some(shared) = bindings.shared(&ranks) {
            let host = if self.is_daemon() { format!("host {}: ", self.host) } else { String::new() };
            self.sinks.print(&format!("note: {host}{shared}"));
        }
    }

    /// Makes room for the job's ranks in all tables.
    fn make_room(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let slots = job.slots();
        self.procs.make_room(slots.clone());
        self.streams.make_room(slots, job.ordinal, &self.sinks, |_| &self.host);
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
        self.queries.remove(&id);
        if let Some(names) = &mut self.names {
            names.forget(id, now)?;
        }
        let now = Time(self.now());
        self.core.handle(now, Input::DeregisterJob { job: id })?;
        Ok(())
    }
}

/// Passes the inputs to `handle` that follow the registration of a job at the server of node `node`, until one is refused.
/// Only a run on several nodes (`is_cluster`) needs the placement of ranks.
fn describe_job(
    record: &JobRecord,
    node: u32,
    is_cluster: bool,
    mut handle: impl FnMut(Input<'_>) -> Result<(), BackendError>,
) -> Result<(), RunError> {
    let job = record.id;
    let mut first = 0;
    for (appnum, program) in (0..).zip(&record.programs) {
        let count = program.ranks;
        handle(Input::Program { job, first: Rank(first), count, appnum })?;
        first += count;
    }
    for &RankBlock { node, first, count } in record.blocks.iter().filter(|_| is_cluster) {
        handle(Input::MapRanks { job, first: Rank(first), count, node })?;
    }
    let elsewhere = record.spawned.as_ref().filter(|spawned| spawned.node != node);
    for (key, value) in elsewhere.iter().flat_map(|spawned| &spawned.preput) {
        handle(Input::Preput { job, key, value })?;
    }
    let value = record.mapping.as_bytes();
    handle(Input::Attr { job, key: b"PMI_process_mapping", value })?;
    for (node, host) in &record.hosts {
        let key = format!("pmix.hname.{node}");
        handle(Input::Attr { job, key: key.as_bytes(), value: host.as_bytes() })?;
    }
    for (name, ranges) in &record.psets {
        let members;
        let pset = match ranges[..] {
            [(first, count)] => Input::Pset { job, name, first: Rank(first), count },
            _ => {
                members = format_ranges(ranges);
                Input::Define { job, name, members: members.as_bytes() }
            }
        };
        handle(pset).map_err(|error| match error {
            BackendError::Fault(why) => RunError::Pset { name: name.clone(), why },
            error => error.into(),
        })?;
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::OsString;
    use std::rc::Rc;

    use hydrant_control::protocol::SpawnOrigin;
    use hydrant_core::server::Consumed;
    use hydrant_core::{Backend, Limits, Output};
    use hydrant_reactor::{OpenFiles, Reactor};

    use super::super::server::PmiServer;
    use super::super::sink::Sinks;
    use super::super::stdin::Stdin;
    use super::super::streams::Streams;
    use super::super::{Outlets, Token};
    use super::*;
    use crate::cli::{Action, parse};
    use crate::launch::prepare;
    use crate::plan::Plan;

    const JOB: JobId = JobId(0);

    /// Backend that records its inputs and refuses the one that begins with `refused`.
    struct FakeBackend {
        limits: Limits,
        refused: &'static str,
        inputs: Rc<RefCell<Vec<String>>>,
    }

    impl Backend for FakeBackend {
        type Error = BackendError;

        fn handle(&mut self, _: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
            let line = line(&input);
            let refused = !self.refused.is_empty() && line.starts_with(self.refused);
            self.inputs.borrow_mut().push(line);
            if refused { Err(Fault::Full(Limit::Psets, 3).into()) } else { Ok(Consumed::default()) }
        }

        fn poll<'b>(&mut self, _: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
            Ok(None)
        }

        fn poll_at(&self) -> Option<Time> {
            None
        }

        fn limits(&self) -> &Limits {
            &self.limits
        }
    }

    /// An input of an opened job as a line of text.
    fn line(input: &Input<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match *input {
            Input::RegisterJob(spec) => format!("register {} of {} ranks", spec.job, spec.size),
            Input::Program { first, count, appnum, .. } => format!("program {appnum} {first}+{count}"),
            Input::MapRanks { first, count, node, .. } => format!("node {node} {first}+{count}"),
            Input::Preput { key, value, .. } => format!("preput {}={}", text(key), text(value)),
            Input::Attr { key, value, .. } => format!("attr {}={}", text(key), text(value)),
            Input::Pset { name, first, count, .. } => format!("pset {name} {first}+{count}"),
            Input::Define { name, members, .. } => format!("define {name} {}", text(members)),
            Input::DeregisterJob { job } => format!("deregister {job}"),
            ref other => format!("{other:?}"),
        }
    }

    fn plan(line: &str) -> Plan {
        match parse(line.split(' ').map(OsString::from).collect(), Vec::new()) {
            Ok(Action::Run(plan)) => *plan,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// A job of the plan's programs on nodes 0 and 1, spawned by a rank of node 1.
    fn record(plan: &Plan) -> JobRecord {
        JobRecord {
            id: JOB,
            ordinal: 1,
            name: "kvs_1".to_owned(),
            programs: plan.programs.clone(),
            blocks: vec![
                RankBlock { node: 0, first: 0, count: 2 },
                RankBlock { node: 1, first: 2, count: 1 },
            ],
            mapping: "(vector,(0,1,2),(1,1,1))".to_owned(),
            hosts: vec![(0, "a".to_owned()), (1, "b".to_owned())],
            psets: vec![("whole".to_owned(), vec![(0, 3)]), ("ends".to_owned(), vec![(0, 1), (2, 1)])],
            spawned: Some(SpawnOrigin {
                node: 1,
                upcall: UpcallId(4),
                spawner: "kvs_0".to_owned(),
                preput: vec![(b"k".to_vec(), b"v".to_vec())],
            }),
        }
    }

    /// The inputs that describe a job at a node, and the result.
    fn described(
        record: &JobRecord,
        node: u32,
        is_cluster: bool,
        refused: &str,
    ) -> (Vec<String>, Result<(), RunError>) {
        let mut inputs = Vec::new();
        let result = describe_job(record, node, is_cluster, |input| {
            inputs.push(line(&input));
            let full = || BackendError::Fault(Fault::Full(Limit::Psets, 3));
            if inputs.last().is_some_and(|line| line == refused) { Err(full()) } else { Ok(()) }
        });
        (inputs, result)
    }

    /// Runs `body` with an engine on this machine, and returns the inputs that the backend got.
    fn with_engine(
        plan: &Plan,
        limits: Limits,
        refused: &'static str,
        body: impl FnOnce(&mut Engine<'_, '_>),
    ) -> Vec<String> {
        let inputs = Rc::default();
        let backend = FakeBackend { limits, refused, inputs: Rc::clone(&inputs) };
        let reactor = Reactor::new(Token::Signals).unwrap();
        let outlets = Outlets { stdin: Stdin::sent(), streams: Streams::raw(None), sinks: Sinks::uplink() };
        let core = PmiServer::local(Box::new(backend));
        let mut engine = Engine::new(plan, reactor, OpenFiles::reserve(0).unwrap(), outlets, core).unwrap();
        engine.host = "here".to_owned();
        body(&mut engine);
        drop(engine);
        inputs.take()
    }

    fn open(engine: &mut Engine<'_, '_>) -> Result<JobId, RunError> {
        let programs = engine.plan.programs.clone();
        let prepared = programs.iter().map(prepare).collect::<Result<_, _>>()?;
        let name = engine.next_job_name()?;
        engine.open_job(name, (programs, prepared), None)
    }

    #[test]
    fn a_job_is_registered_before_its_programs_attributes_and_sets() {
        let plan = plan("hydrant run -n 2 --pset both /bin/true : -n 1 --pset both /bin/true");
        let inputs = with_engine(&plan, Limits::for_ranks(3), "", |engine| {
            assert_eq!(open(engine).unwrap(), JOB);
            let job = &engine.jobs[JOB];
            assert_eq!((job.run.ranks.count(), job.run.next, job.ordinal), (3, Some(0), 0));
            assert!(job.run.launcher.is_some() && job.run.port.is_none());
        });
        let expected = [
            "register 0 of 3 ranks",
            "program 0 0+2",
            "program 1 2+1",
            "attr PMI_process_mapping=(vector,(0,1,3))",
            "pset hydrant://node/here 0+3",
            "pset hydrant://app/0 0+2",
            "pset hydrant://app/1 2+1",
            "pset app://both 0+3",
        ];
        assert_eq!(inputs, expected);
    }

    #[test]
    fn a_refused_set_is_named_and_the_job_is_deregistered() {
        let plan = plan("hydrant run -n 2 /bin/true");
        let inputs = with_engine(&plan, Limits::for_ranks(2), "pset hydrant://app/0", |engine| {
            match open(engine).unwrap_err() {
                RunError::Pset { name, why: Fault::Full(Limit::Psets, 3) } => {
                    assert_eq!(name, "hydrant://app/0");
                }
                error => panic!("{error:?}"),
            }
            assert_eq!((engine.jobs.len(), engine.jobs.free_id()), (0, JOB));
        });
        assert_eq!(inputs[inputs.len() - 2..], ["pset hydrant://app/0 0+2", "deregister 0"]);
    }

    /// The server's reason for refusing an input.
    fn fault<T>(result: Result<T, RunError>) -> Fault {
        match result.map(drop) {
            Err(RunError::Driver(error)) => error.fault().expect("a refused input"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refused_registration_is_not_undone() {
        let plan = plan("hydrant run -n 2 /bin/true");
        let inputs = with_engine(&plan, Limits::for_ranks(2), "register", |engine| {
            assert_eq!(fault(open(engine)), Fault::Full(Limit::Psets, 3));
        });
        assert_eq!(inputs, ["register 0 of 2 ranks"]);
    }

    #[test]
    fn a_dropped_job_is_deregistered_once() {
        let plan = plan("hydrant run -n 1 /bin/true");
        let inputs = with_engine(&plan, Limits::for_ranks(1), "", |engine| {
            open(engine).unwrap();
            engine.drop_job(JOB).unwrap();
            engine.drop_job(JOB).unwrap();
            assert_eq!(engine.jobs.len(), 0);
        });
        assert_eq!(inputs.iter().filter(|line| *line == "deregister 0").count(), 1);
        assert_eq!(inputs.last().unwrap(), "deregister 0");
    }

    #[test]
    fn limits_refuse_a_job_before_it_is_registered() {
        let plan = plan("hydrant run -n 2 /bin/true");
        let no_jobs = Limits { jobs: 0, ..Limits::for_ranks(2) };
        let inputs = with_engine(&plan, no_jobs, "", |engine| {
            assert_eq!(fault(open(engine)), Fault::Full(Limit::Jobs, 0));
        });
        assert!(inputs.is_empty(), "{inputs:?}");
        // The ranks of the first job count too.
        let three = Limits { jobs: 2, conns: 3, ..Limits::for_ranks(4) };
        let inputs = with_engine(&plan, three, "", |engine| {
            open(engine).unwrap();
            assert_eq!(fault(open(engine)), Fault::Full(Limit::Conns, 3));
            assert_eq!(engine.jobs.len(), 1);
        });
        assert_eq!(inputs.iter().filter(|line| line.starts_with("register")).count(), 1);
    }

    #[test]
    fn placement_and_preput_follow_the_programs_on_several_nodes() {
        let record = record(&plan("hydrant run -n 3 /bin/true"));
        let (inputs, result) = described(&record, 0, true, "");
        result.unwrap();
        let expected = [
            "program 0 0+3",
            "node 0 0+2",
            "node 1 2+1",
            "preput k=v",
            "attr PMI_process_mapping=(vector,(0,1,2),(1,1,1))",
            "attr pmix.hname.0=a",
            "attr pmix.hname.1=b",
            "pset whole 0+3",
            "define ends 0,2",
        ];
        assert_eq!(inputs, expected);
    }

    #[test]
    fn the_spawner_s_node_has_the_preput_already() {
        let record = record(&plan("hydrant run -n 3 /bin/true"));
        let preput = |inputs: &[String]| inputs.iter().filter(|line| line.starts_with("preput")).count();
        assert_eq!(preput(&described(&record, 1, true, "").0), 0);
        assert_eq!(preput(&described(&record, 2, true, "").0), 1);
    }

    #[test]
    fn nothing_follows_a_refused_input() {
        let record = record(&plan("hydrant run -n 3 /bin/true"));
        let (inputs, result) = described(&record, 0, false, "preput k=v");
        assert_eq!(inputs, ["program 0 0+3", "preput k=v"]);
        assert_eq!(fault(result), Fault::Full(Limit::Psets, 3));
        let (_, result) = described(&record, 0, true, "define ends 0,2");
        assert!(matches!(result, Err(RunError::Pset { name, .. }) if name == "ends"));
    }

    #[test]
    fn a_job_has_between_one_and_two_to_the_31_ranks() {
        let sized = |ranks: &[u32]| {
            let program = plan("hydrant run /bin/true").programs.remove(0);
            let programs: Vec<_> = ranks.iter().map(|&ranks| Program { ranks, ..program.clone() }).collect();
            size(&programs).map_err(|error| error.to_string())
        };
        assert_eq!(sized(&[i32::MAX as u32 - 1, 1]), Ok(i32::MAX as u32));
        assert_eq!(sized(&[]).unwrap_err(), "cannot run a job of 0 ranks");
        assert_eq!(sized(&[u32::MAX, 1]).unwrap_err(), "cannot run a job of 4294967296 ranks");
        assert!(sized(&[i32::MAX as u32, 1]).is_err());
    }
}
