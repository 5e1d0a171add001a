//! The head: it has daemons started, tells them of jobs, hears of their ranks, and says what has become of it all.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use hydrant_core::trace::Exit;
use hydrant_core::{Input, JobId, Limits, Rank, Time};
use hydrant_overlay::{
    Channel, DaemonFailure, DaemonSettings, Event, MESSAGE_MAX, Overlay, TreeSpec, daemon_program,
};
use hydrant_placement::{Deployment, Host, JobMap, Node, RankRange};
use hydrant_reactor::{OpenFiles, Reactor, set_close_on_exec, signals};
use rustix::process::{Pid, Signal};

use super::super::jobs::Away;
use super::super::report::{Blame, Why};
use super::super::server::PmiServer;
use super::super::sink::{SinkId, State};
use super::super::token::{LINKS, NAME_CLIENT, NAME_SERVER, Token};
use super::super::{Engine, OWN_FILES, Outlets, limits, open, record, recorded};
use super::names::Names;
use super::{Nodes, Role};
use crate::border::{Maker, PluginFile};
use crate::control::{Broken, JobRecord, Order, Piece, Place, Report, Setup, StartError, decode, encode};
use crate::error::RunError;
use crate::plan::{Plan, Plugin, Program};
use crate::universe::{Keeper, Universe};

/// Bytes of an order, so that a message has room for it and for where it goes.
const ORDER_MAX: usize = MESSAGE_MAX - 64;
/// Lines about one late fence that are shown, each of a node.
const LATE_MAX: u32 = 16;

/// What only the head knows.
pub(super) struct Head<'s> {
    /// The host of each node, from node 1 on.
    pub(super) hosts: Vec<Host>,
    /// The job that begins once all daemons are there and ready.
    first: Option<First>,
    /// Nodes that have not said yet that they are ready.
    unready: BTreeSet<u32>,
    /// The core here is of no use any more.
    pub(super) broken: bool,
    /// What cores run in, where that is a plugin.
    plugin: Option<OsString>,
    /// Bytes of output that count as under way until their sink has room.
    owed: Vec<(SinkId, u32, u32)>,
    /// The job whose late fence is being talked about, since when, and in how many lines so far.
    late: Option<(JobId, u64, u32)>,
    /// Where the rank that was placed last is.
    pub(super) last: u32,
    pub(super) names: Names<'s>,
}

/// The command line's job.
struct First {
    programs: Vec<Program>,
    places: Vec<Place>,
    mapping: String,
    /// Until the daemons have it.
    setup: Option<Setup>,
}

impl Head<'_> {
    /// The host of a node, as it was named.
    pub(super) fn host(&self, node: u32) -> Option<&str> {
        self.hosts.get((node as usize).checked_sub(1)?).map(|host| host.name.as_str())
    }

    pub(super) fn awaits_nodes(&self) -> bool {
        self.first.is_some()
    }

    pub(super) fn names_deadline(&mut self) -> Option<u64> {
        self.names.deadline()
    }
}

/// Runs a job on several hosts, as [`run`](super::super::run) does on one.
pub(in super::super) fn run(plan: &Plan, deployment: &Deployment) -> Result<u8, RunError> {
    set_close_on_exec()?;
    let reactor = Reactor::new(Token::Signals)?;
    let cluster = &plan.options.cluster;
    let job_map = &deployment.job_map;
    let tree = job_map.tree(cluster.radix);
    let plugin = plan.options.sandbox.as_ref().map(|plugin| plugin_of(plan, plugin)).transpose()?;
    let maker = Maker::new(plugin.as_ref())?;
    let file = plugin.as_ref().map(|plugin| plugin.file.clone());
    let mut setup = setup(plan, job_map);
    setup.plugin = plugin;
    let limits = Limits { conns: 1, ..setup.limits };
    let children = tree.children(0).count() as u64;
    let files = OpenFiles::reserve(OWN_FILES + Overlay::files(children) + files_for_output(plan))
        .map_err(RunError::open_files(0))?;
    let mut name_slabs = maker.slabs(&Keeper::LIMITS_OF_RUN, false)?;
    let mut slabs = maker.slabs(&limits, false)?;
    let seed = open::random()?;
    let recording = record(plan.options.record.as_deref(), &limits, seed)?;
    setup.record = for_all_nodes(plan.options.record.as_deref())?;
    let first = first(plan, job_map, setup)?;
    let mut core = recorded(maker.core(limits, seed, &mut slabs)?, recording.as_ref());
    core.handle(Time(0), Input::Node { node: 0, nodes: tree.nodes(), radix: tree.radix() })?;
    let outlets = Outlets::of_head(plan)?;
    let mut engine = Engine::new(plan, reactor, files, outlets, PmiServer::local(core))?;
    engine.recording = recording;
    let (universe, keeper) = match &plan.options.name_server {
        Some(path) => {
            let joined = Universe::join(path, JobId::default(), NAME_CLIENT, &engine.poller);
            (joined.map_err(Box::new)?, None)
        }
        None => {
            let keeper = Keeper::new(&maker, Keeper::LIMITS_OF_RUN, &mut name_slabs, NAME_SERVER)?;
            (Universe::within(NAME_CLIENT), Some(keeper))
        }
    };
    engine.universe = Some(universe);
    let hosts: Vec<Host> = job_map.nodes().iter().map(|node| node.host.clone()).collect();
    let head = TreeSpec { head: engine.host.clone(), hosts: hosts.clone(), radix: tree.radix() };
    let settings = settings(plan, deployment)?;
    let links = Overlay::head(head, settings, engine.now(), LINKS, &engine.files, &engine.poller);
    let head = Head {
        hosts,
        first: Some(first),
        unready: BTreeSet::new(),
        broken: false,
        plugin: file,
        owed: Vec::new(),
        late: None,
        last: 0,
        names: Names::new(keeper),
    };
    engine.nodes = Some(Nodes::new(links?, Role::Head(Box::new(head))));
    engine.run()
}

/// The plugin that all nodes run their cores in.
fn plugin_of(plan: &Plan, plugin: &Plugin) -> Result<PluginFile, RunError> {
    let read = PluginFile::read(plugin)?;
    // A node in a call says nothing, and is not to count as lost before it is known what it waits for.
    let deadline = read.deadline.min(plan.options.cluster.heartbeat / 2);
    Ok(PluginFile { deadline, ..read })
}

/// What daemons are told before any job.
fn setup(plan: &Plan, job_map: &JobMap) -> Setup {
    let most = job_map.nodes().iter().map(|node| node.size()).max().unwrap_or(0);
    Setup::new(&plan.options, node_limits(plan, job_map, most))
}

/// A recording's path as daemons understand it, which start somewhere else. A device or a pipe is the head's alone.
fn for_all_nodes(recording: Option<&Path>) -> Result<Option<OsString>, RunError> {
    let Some(path) = recording.filter(|path| path.is_file()) else { return Ok(None) };
    let path = std::path::absolute(path).map_err(RunError::system("cannot tell the working directory"))?;
    Ok(Some(path.into()))
}

/// The job as it is known before any daemon is there.
fn first(plan: &Plan, job_map: &JobMap, setup: Setup) -> Result<First, RunError> {
    let here = std::env::current_dir().map_err(RunError::system("cannot tell the working directory"))?;
    let mut programs = plan.programs.clone();
    for program in &mut programs {
        // Daemons start somewhere else.
        program.wdir = Some(program.wdir.as_ref().map_or_else(|| here.clone(), |wdir| here.join(wdir)));
    }
    let places = |(number, node): (u32, &Node)| -> Vec<Place> {
        let place = |range: &RankRange| Place { node: number, first: range.first, count: range.count };
        node.rank_ranges.iter().map(place).collect()
    };
    let mut places: Vec<Place> = (1..).zip(job_map.nodes()).flat_map(places).collect();
    places.sort_unstable_by_key(|place| place.first);
    Ok(First { programs, places, mapping: job_map.process_mapping()?, setup: Some(setup) })
}

/// Limits that suit all nodes, of which none has more than `most` ranks of the first job.
fn node_limits(plan: &Plan, job_map: &JobMap, most: u32) -> Limits {
    let nodes = job_map.nodes().len() as u32;
    let of_run = limits(plan, job_map.ranks());
    let mut all = Limits {
        conns: limits(plan, most).conns,
        links: plan.options.cluster.radix.min(nodes) + 1,
        // A set for each node of a job: no more than it has ranks.
        psets: of_run.psets.saturating_add(nodes).saturating_add(of_run.ranks - job_map.ranks()),
        ..of_run
    };
    for &(limit, size) in &plan.options.limits {
        all.set(limit, size);
    }
    all
}

fn files_for_output(plan: &Plan) -> u64 {
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    patterns.into_iter().flatten().count() as u64 * u64::from(plan.size())
}

fn settings(plan: &Plan, deployment: &Deployment) -> Result<DaemonSettings, RunError> {
    let cluster = &plan.options.cluster;
    let program = daemon_program(cluster.remote_hydrant.as_ref(), &deployment.bootstrap)?;
    let millis = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
    Ok(DaemonSettings {
        bootstrap: deployment.bootstrap.clone(),
        bootstrap_exec: cluster.bootstrap_exec.as_ref().map(|path| path.clone().into()),
        program,
        iface: cluster.iface.clone(),
        heartbeat_timeout: millis(cluster.heartbeat),
        join_timeout: millis(cluster.bootstrap_timeout),
    })
}

impl Engine<'_, '_> {
    pub(super) fn take_head_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Complete => self.set_up(),
            Event::Message { from, channel: Channel::Control, body, .. } => match decode(&body) {
                Some(report) => self.hear(from, report),
                None => Err(self.nonsense(from)),
            },
            Event::Message { via, from, body, .. } => self.take_piece(via, from, &body),
            Event::Failed(failure) => {
                self.lose(&failure);
                self.outputs()
            }
            Event::Joined { node } => {
                if self.plan.options.verbose {
                    let line = format!("the daemon of host {} has joined", self.host_of(node));
                    self.sinks.say(&line);
                }
                Ok(())
            }
            // Nothing is sent to one node in such numbers that room would matter, and nobody is above.
            Event::CreditAvailable { .. } | Event::LifelineLost(_) | Event::Shutdown | Event::Closed => {
                Ok(())
            }
        }
    }

    fn nonsense(&self, node: u32) -> RunError {
        RunError::links(format!(
            "host {} (node {node}) sent a report that makes no sense",
            self.host_of(node)
        ))
    }

    /// All daemons are there.
    fn set_up(&mut self) -> Result<(), RunError> {
        let Some(head) = self.head_mut() else { return Ok(()) };
        let Some(setup) = head.first.as_mut().and_then(|first| first.setup.take()) else { return Ok(()) };
        if setup.is_waited_for() {
            head.unready = (1..=head.hosts.len() as u32).collect();
        }
        self.order_all(&Order::Setup(Box::new(setup)));
        self.begin()
    }

    /// All daemons are there, and perhaps ready.
    fn begin(&mut self) -> Result<(), RunError> {
        let Some(head) = self.head_mut().filter(|head| head.unready.is_empty()) else { return Ok(()) };
        let Some(First { programs, places, mapping, .. }) = head.first.take() else { return Ok(()) };
        if self.verdict.is_interrupted() {
            return Ok(());
        }
        let record = self.record(programs, places, mapping)?;
        self.open_away(record, None)?;
        self.stdin.allow(None);
        let now = self.now();
        self.stdin.pump(now, &self.poller);
        Ok(())
    }

    /// Takes a job in whose ranks are on other nodes, and tells those of it.
    pub(super) fn open_away(
        &mut self,
        record: JobRecord,
        spawn: Option<(u32, hydrant_core::UpcallId)>,
    ) -> Result<(), RunError> {
        let mut nodes: Vec<u32> = record.places.iter().map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if let Some(head) = self.head_mut() {
            head.last = record.places.last().map_or(0, |place| place.node);
        }
        let away = Away { places: record.places.clone(), starting: nodes.clone(), busy: nodes };
        let order = encode(&Order::Job(Box::new(record.clone())));
        if order.len() > ORDER_MAX {
            return Err(RunError::links(format!(
                "what hosts have to be told of the job takes {} bytes, and may take {ORDER_MAX}: pass less of the \
                 environment on, or name fewer programs",
                order.len()
            )));
        }
        self.open(record, Vec::new(), spawn, Some(away))?;
        self.send_below(&order);
        Ok(())
    }

    /// A node has something to report.
    fn hear(&mut self, from: u32, report: Report) -> Result<(), RunError> {
        if let Some((job, rank)) = of_rank(&report)
            && self.process_at(from, job, rank)?.is_none()
        {
            // The job is over, or was never begun.
            return Ok(());
        }
        match report {
            Report::Here { .. } => {}
            Report::Ready => {
                if self.head_mut().is_some_and(|head| head.unready.remove(&from)) {
                    self.begin()?;
                }
            }
            Report::Broken(broken) => self.hear_of_broken(from, broken),
            Report::Began { job, ranks } => {
                for (rank, pid) in ranks {
                    self.began(from, job, rank, pid)?;
                }
            }
            Report::Started(job) => {
                let Some(away) = self.away_mut(job) else { return Ok(()) };
                away.starting.retain(|&node| node != from);
                if away.starting.is_empty() {
                    self.started(job)?;
                }
            }
            Report::Failed { job, why } => self.failed_away(from, job, &why),
            Report::Exited { job, rank, exit, asked } => self.ended_away(from, job, rank, exit, asked)?,
            Report::Done(job) => {
                if let Some(away) = self.away_mut(job) {
                    away.busy.retain(|&node| node != from);
                }
            }
            Report::End { job, cause, message } => {
                // It may be another node's rank that this node's wait for.
                if self.jobs.get(job).is_some_and(|job| cause.rank().0 >= job.ranks) {
                    return Err(self.nonsense(from));
                }
                self.end(job, Why::Rank(Blame { cause, message }));
            }
            Report::Late { job, missing } => self.late(from, job, &missing),
            Report::Spawn { upcall, job, rank, protocol, request } => {
                self.spawn((from, upcall), (job, rank), (protocol, &request))?;
            }
            Report::Names { upcall, job, rank, protocol, request } => {
                self.decide((from, upcall), (job, rank), (protocol, request))?;
            }
            Report::Taken(bytes) => {
                self.stdin.allow(Some(bytes));
                let now = self.now();
                self.stdin.pump(now, &self.poller);
            }
            Report::InputClosed => {
                self.stdin
                    .close(&self.poller)
                    .map_err(RunError::system("cannot let go of standard input"))?;
            }
            Report::Say(line) => self.sinks.say(&line),
        }
        self.outputs()
    }

    fn away_mut(&mut self, job: JobId) -> Option<&mut Away> {
        self.jobs.get_mut(job)?.away.as_mut()
    }

    /// The process of a rank; nothing where its job is over.
    ///
    /// # Errors
    /// It is none of those of `from`, which has nothing to say of it.
    fn process_at(&self, from: u32, job: JobId, rank: Rank) -> Result<Option<u32>, RunError> {
        let Some(job) = self.jobs.get(job) else { return Ok(None) };
        let there = job.away.as_ref().is_some_and(|away| away.node(rank.0) == from);
        if there && rank.0 < job.ranks { Ok(Some(job.first + rank.0)) } else { Err(self.nonsense(from)) }
    }

    fn began(&mut self, from: u32, job: JobId, rank: Rank, pid: u32) -> Result<(), RunError> {
        let Some(process) = self.process_at(from, job, rank)? else { return Ok(()) };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.filter(|_| self.procs.pid(process).is_none()).ok_or_else(|| self.nonsense(from))?;
        self.procs.began_elsewhere(process, pid);
        self.jobs[job].running += 1;
        self.open_files_of(job, rank.0, pid)
    }

    fn ended_away(
        &mut self,
        from: u32,
        job: JobId,
        rank: Rank,
        exit: Exit,
        asked: Option<u8>,
    ) -> Result<(), RunError> {
        let Some(process) = self.process_at(from, job, rank)? else { return Ok(()) };
        if self.procs.pid(process).is_none() {
            return Err(self.nonsense(from));
        }
        if self.procs.ended_elsewhere(process, exit, asked) {
            self.count_end(job, rank.0, exit);
            self.drop_lookups(job, rank);
        }
        Ok(())
    }

    /// A node cannot start what it should of a job: no node shall.
    fn failed_away(&mut self, from: u32, id: JobId, why: &StartError) {
        let host = self.host_of(from).to_owned();
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.undone.is_none()) else { return };
        let mut codes = vec![super::super::spawn::CANCELED; job.programs.len()];
        match why.appnum.and_then(|appnum| codes.get_mut(appnum as usize)) {
            Some(code) => *code = why.errno,
            None => codes.fill(why.errno),
        }
        job.undone = Some(codes);
        let text = &why.text;
        let line = match job.ordinal {
            0 => {
                self.verdict.failed(why.code);
                format!("host {host}: {text}")
            }
            ordinal => format!("spawned job {ordinal} is ended before it began: host {host}: {text}"),
        };
        self.sinks.say(&line);
        self.order_all(&Order::Undo(id));
    }

    /// A fence is late. Each node says whom it misses among its own ranks.
    fn late(&mut self, from: u32, id: JobId, missing: &str) {
        if self.jobs.get(id).is_none() {
            return;
        }
        let host = self.host_of(from).to_owned();
        let (now, warning) = (self.now(), self.plan.options.fence_warning.as_millis() as u64);
        let Some(head) = self.head_mut() else { return };
        let known = head.late.filter(|&(late, since, _)| late == id && now < since + warning);
        let (since, lines) = known.map_or((now, 0), |(_, since, lines)| (since, lines));
        let shown = !missing.is_empty() && lines < LATE_MAX;
        head.late = Some((id, since, lines + u32::from(shown)));
        if known.is_none() {
            // Where nobody has come, nobody knows of it.
            self.order_all(&Order::Late(id));
        }
        if !shown {
            return;
        }
        self.say_late(id, &format!("it waits for {missing} on host {host}"));
    }

    /// Some of a rank's output.
    fn take_piece(&mut self, via: u32, from: u32, body: &[u8]) -> Result<(), RunError> {
        let Some(Piece { job, rank, error, bytes }) = decode(body) else { return Err(self.nonsense(from)) };
        let now = self.now();
        let len = body.len() as u32;
        let Some(process) = self.process_at(from, job, rank)? else {
            self.consumed(via, len);
            return Ok(());
        };
        let stream = 2 * process + u32::from(error);
        let sink = self.streams.arrived(stream, now, bytes, &mut self.sinks);
        if let Some(head) = self.head_mut() {
            head.owed.push((sink, via, len));
        }
        Ok(())
    }

    /// Lets nodes send more of what goes to sinks that have room, and tells them of those that take nothing more.
    pub(in super::super) fn grant(&mut self) {
        let Some(Nodes { links, role: Role::Head(head), .. }) = &mut self.nodes else { return };
        let sinks = &self.sinks;
        head.owed.retain(|&(sink, via, len)| {
            let waits = sinks.get(sink).is_full() && sinks.get(sink).state() == State::Open;
            if !waits {
                links.consumed(via, len);
            }
            waits
        });
    }

    /// A sink takes nothing more: the ranks that write to it find out as if it were their own output.
    pub(in super::super) fn cut_sink(&mut self, sink: SinkId) {
        if self.head().is_none() || self.sinks.get(sink).state() == State::Open {
            return;
        }
        for id in self.jobs.ids(|_| true) {
            let job = &self.jobs[id];
            let rank = |stream: u32| (Rank(stream / 2 - job.first), stream % 2 == 1);
            let streams: Vec<_> = self.streams.to_sink(job.processes(), sink).into_iter().map(rank).collect();
            if !streams.is_empty() {
                self.order_all(&Order::Cut { job: id, streams });
            }
        }
    }

    /// A daemon is gone, and with it all that are below: nothing can go on without them.
    fn lose(&mut self, failure: &DaemonFailure) {
        let text = failure.to_string();
        let Some(Nodes { links, .. }) = &self.nodes else { return };
        let subtree = links.tree().subtree(failure.node);
        self.give_up(&text, subtree.clone());
        for away in self.jobs.iter_mut().filter_map(|job| job.away.as_mut()) {
            away.busy.retain(|node| !subtree.contains(node));
        }
    }

    /// A node's core is of no use: nothing can go on without it.
    pub(super) fn hear_of_broken(&mut self, from: u32, broken: Broken) {
        let host = |node: u32| format!("host {} (node {node})", self.host_of(node));
        let plugin = self.head().and_then(|head| head.plugin.as_ref());
        let (node, what) = match broken {
            Broken::Own(what) => (from, what),
            Broken::Neighbour { node, why } => {
                let whose = plugin.map_or("its core".into(), |file| format!("the plugin {}", file.display()));
                (node, format!("{whose} told {} what no core says: {why}", host(from)))
            }
        };
        let text = format!("{}: {what}", host(node));
        self.give_up(&text, node..node + 1);
    }

    /// Nothing can go on without these nodes, whose ranks count as lost, as is said in `text`.
    fn give_up(&mut self, text: &str, nodes: Range<u32>) {
        let Some(head) = self.head_mut() else { return };
        if head.first.take().is_some() {
            self.sinks.say(&format!("the job was not started: {text}"));
            self.verdict.failed(1);
            return;
        }
        if nodes.contains(&0) && self.jobs.iter().next().is_none() {
            // It could not even take the job in.
            self.sinks.say(text);
            self.verdict.failed(1);
            return;
        }
        for id in self.jobs.ids(|_| true) {
            let job = &self.jobs[id];
            let (first, ranks) = (job.first, job.ranks);
            let Some(away) = &job.away else { continue };
            let there = (0..ranks).filter(|&rank| nodes.contains(&away.node(rank)));
            let runs = |rank: u32| self.procs.pid(rank).is_some() && !self.procs.has_ended(rank);
            let gone: Vec<u32> = there.filter(|rank| runs(first + rank)).collect();
            for rank in &gone {
                self.procs.ended_elsewhere(first + rank, Exit::Lost, None);
                self.jobs[id].running -= 1;
            }
            if let Some(away) = self.away_mut(id) {
                away.starting.retain(|node| !nodes.contains(node));
            }
            let below = nodes.len() as u32 - 1;
            self.end(id, Why::Host { what: text.to_owned(), ranks: gone.len() as u32, below });
        }
    }

    /// The user wants everything to end that has not begun.
    pub(in super::super) fn give_up_waiting(&mut self, signal: Signal) {
        if self.awaits_nodes()
            && let Some(head) = self.head_mut()
        {
            head.first = None;
            let name = signals::name(signal.as_raw() as u8);
            self.sinks.say(&format!("ended by {name} before all hosts were there"));
            self.verdict.give_up();
        }
    }
}

/// The rank of the reporting node that a report is about, where it is about one.
fn of_rank(report: &Report) -> Option<(JobId, Rank)> {
    match *report {
        Report::Exited { job, rank, .. }
        | Report::Spawn { job, rank, .. }
        | Report::Names { job, rank, .. } => Some((job, rank)),
        _ => None,
    }
}
