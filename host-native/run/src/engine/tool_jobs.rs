//! Jobs that tools of PMIx spawn, and what debuggers among these tools ask for.
//!
//! Ranks stop where the tool wants: at their first instruction, by the system, or in `PMIx_Init` or the program, by libpmix, which
//! finds an attribute of the job, says that it is ready, and waits for an event of release. When all of them have stopped, the tool
//! gets one event about the job. When the tool leaves before a release, the ranks go on as without it.

use std::collections::BTreeSet;

use hydrant_control::protocol::{JobRecord, Order, StdinTarget, Stop, StopAt, Target, ToolOptions};
use hydrant_control::{Event as HeadEvent, Per, SpawnProgram, Spread, Stopped};
use hydrant_core::wire::Protocol;
use hydrant_core::wire::pmix::{
    Apps, HEADER_LEN, Info, Infos, Integers, Reader, WILDCARD, Writer, channel, event, keys, kind, status,
    translate_spawn, write_header,
};
use hydrant_core::{JobId, Limit, Rank, UpcallId};
use hydrant_overlay::Destination;
use hydrant_placement::Hosts;
use hydrant_start::RequestedProgram;
use rustix::process::Signal;

use super::grow::Refused;
use super::spawn::Wanted;
use super::status::Asker;
use super::tool_output::{Pull, WAITING_MAX};
use super::{Engine, Head, open};
use crate::error::RunError;

/// Most programs and options of a spawn, in bytes as a message of PMI-2.
const REQUEST_MAX: usize = 256 * 1024;
/// Number of the spawn of the first job, which a debugger lets start. No request has it.
pub(super) const FIRST_JOB: UpcallId = UpcallId(u32::MAX);
/// Tag of messages with events.
const EVENT_TAG: u32 = 0;
/// Number of the copies of output that a tool asks for with a spawn.
const OF_SPAWN: u64 = 0;
/// Bytes of an event that are not the names of the server and the job.
const EVENT_REST: usize = 128;
/// Name of the server for ranks.
const SERVER_OF_RANKS: &str = "hydrant";
/// Options by which ranks stop, in the order in which they count.
const STOPS: [(&[u8], StopAt); 3] = [
    (keys::DEBUG_STOP_ON_EXEC, StopAt::Exec),
    (keys::DEBUG_STOP_IN_INIT, StopAt::Init),
    (keys::DEBUG_STOP_IN_APP, StopAt::App),
];

/// Rank of no process: `PMIX_RANK_INVALID`.
const INVALID: u32 = u32::MAX - 3;

/// Milliseconds from the end of a debugger to the release of ranks that wait for it. Ranks on libpmix 4.2.2 may miss a release that
/// follows at once on their own event; daemons of PRRTE's examples wait as long.
const RELEASE_DELAY: u64 = 1000;

/// Ranks whose debugger has left.
pub(super) struct Release {
    /// Time of their release.
    pub(super) at: u64,
    job: JobId,
    name: String,
    integers: Integers,
}

/// A job that a tool has spawned.
pub(super) struct ToolJob {
    /// Job of the tool. `None` once the tool has left.
    tool: Option<JobId>,
    /// Encoding of the tool's integers.
    integers: Integers,
    /// The spawn, until it is answered.
    upcall: Option<UpcallId>,
    /// The job, once it has a number, and its name.
    job: Option<(JobId, String)>,
    /// Streams whose output the tool gets.
    channels: u32,
    /// Ranks read what tools push.
    takes_input: bool,
    /// Where ranks wait for a debugger that has not released all of them.
    stop: Option<Stop>,
    /// Ranks that have said that they wait, and the encoding of their integers.
    waiting: BTreeSet<u32>,
    of_ranks: Integers,
    /// Ranks that have been released.
    released: BTreeSet<u32>,
}

impl ToolJob {
    /// Returns whether this is a job.
    fn is(&self, id: JobId) -> bool {
        self.job.as_ref().is_some_and(|(job, _)| *job == id)
    }

    /// Returns whether some ranks are all that stop.
    fn are_all(&self, ranks: &BTreeSet<u32>) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.ranks().all(|rank| ranks.contains(&rank)))
    }
}

/// What the infos of a spawn say.
pub(super) struct Wishes {
    pub(super) channels: u32,
    pub(super) options: ToolOptions,
    /// Ranks of each program that wait for a debugger.
    pub(super) stopped: Vec<Stopped>,
}

/// A job of a tool that has not been started.
struct ToolSpawn {
    upcall: UpcallId,
    /// Job of the tool at the PMI servers, its name, and the number of tools that had the job before.
    job: JobId,
    tool: String,
    before: Option<u32>,
    integers: Integers,
    wishes: Wishes,
    programs: Vec<ToolProgram>,
}

/// A program, and how many of its ranks are on each host, if the spawn says so.
type ToolProgram = (Wanted, Option<Spread>);

impl Wishes {
    /// Reads the infos of a job and its programs. Returns the status of a refusal if one cannot be carried out.
    pub(super) fn read(infos: &Infos<'_>, of_programs: &[Infos<'_>]) -> Result<Wishes, i32> {
        let all = || infos.iter().chain(of_programs.iter().flat_map(Infos::iter));
        let is_set = |key: &[u8]| all().any(|info| info.key == key && info.as_bool() == Some(true));
        let mut channels = 0;
        for (key, stream) in [(keys::FWD_STDOUT, channel::STDOUT), (keys::FWD_STDERR, channel::STDERR)] {
            channels |= if is_set(key) { stream } else { 0 };
        }
        let (mut stop, mut stopped) = (None, vec![Stopped::No; of_programs.len()]);
        for (key, at) in STOPS {
            // What is said of the job is not meant for daemons.
            let of_job = infos.find(key).map_or(Ok(Stopped::No), |info| stopped_by(&info))?;
            let mut of_apps = Vec::new();
            for of_program in of_programs {
                of_apps.push(match of_program.find(key) {
                    Some(info) => stopped_by(&info)?,
                    None if of_program.is_set(keys::DEBUGGER_DAEMONS) => Stopped::No,
                    None => of_job.clone(),
                });
            }
            if of_apps.iter().all(|stopped| *stopped == Stopped::No) {
                continue;
            }
            if at == StopAt::Exec && cfg!(not(target_os = "linux")) {
                return Err(status::NOT_SUPPORTED);
            }
            if stop.is_none() {
                (stop, stopped) = (Some(Stop { at, ranks: Vec::new() }), of_apps);
            }
        }
        let target = all().find_map(|info| target(&info));
        let stdin = match all().find(|info| info.key == keys::STDIN_TGT) {
            Some(info) => Some(stdin_target(&info).ok_or(status::BAD_PARAM)?),
            // As with other managers.
            None => is_set(keys::FWD_STDIN).then_some(StdinTarget::Rank(0)),
        };
        Ok(Wishes { channels, options: ToolOptions { stop, target, stdin }, stopped })
    }
}

/// Returns the ranks that an info has wait for a debugger: all, one, or those of an array.
fn stopped_by(info: &Info<'_>) -> Result<Stopped, i32> {
    match (info.as_bool(), info.as_u32()) {
        (Some(is_set), _) => return Ok(if is_set { Stopped::All } else { Stopped::No }),
        (_, Some(WILDCARD)) => return Ok(Stopped::All),
        (_, Some(rank)) => return Ok(Stopped::Some(BTreeSet::from([rank]))),
        (None, None) => {}
    }
    // The job of these processes has no name yet.
    let procs = info.as_proc().map(|proc| BTreeSet::from([proc.rank]));
    let procs = procs.or_else(|| Some(info.array(kind::PROC, Reader::proc)?.map(|proc| proc.rank).collect()));
    let listed = procs.or_else(|| Some(info.array(kind::PROC_RANK, Reader::uint32)?.collect()));
    match listed.ok_or(status::NOT_SUPPORTED)? {
        listed if listed.contains(&WILDCARD) => Ok(Stopped::All),
        listed => Ok(Stopped::Some(listed)),
    }
}

/// Returns the ranks that an info names as the readers of standard input. It is a process, its rank, or a text as PRRTE has it.
fn stdin_target(info: &Info<'_>) -> Option<StdinTarget> {
    let rank = match info.as_string() {
        Some(b"all") => WILDCARD,
        Some(b"none") => INVALID,
        Some(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        None => info.as_proc().map(|proc| proc.rank).or(info.as_u32())?,
    };
    Some(match rank {
        WILDCARD => StdinTarget::All,
        INVALID => StdinTarget::None,
        rank => StdinTarget::Rank(rank),
    })
}

/// Returns the processes that an info names as those to debug.
fn target(info: &Info<'_>) -> Option<Target> {
    let (name, rank) = match info.key {
        keys::DEBUG_TARGET => {
            let proc = info.as_proc()?;
            (proc.namespace, (proc.rank != WILDCARD).then_some(Rank(proc.rank)))
        }
        // Of libpmix 3.
        b"pmix.dbg.job" => (info.as_string()?, None),
        _ => return None,
    };
    Some(Target { job: String::from_utf8_lossy(name).into_owned(), rank })
}

/// Returns how many ranks of a program go to each host, if an info says so.
fn spread(
    infos: &Infos<'_>,
    of_app: &Infos<'_>,
    processes: u32,
    target: Option<&Target>,
) -> Result<Option<Spread>, i32> {
    let all = || of_app.iter().chain(infos.iter());
    let most = (processes > 0).then_some(processes);
    let find = |key: &[u8]| all().find(|info| info.key == key);
    for (key, per) in [(keys::DEBUG_DAEMONS_PER_NODE, Per::Host), (keys::DEBUG_DAEMONS_PER_PROC, Per::Rank)] {
        if let Some(info) = find(key) {
            let count = info.as_u32().filter(|&count| count > 0).ok_or(status::BAD_PARAM)?;
            let beside = Some(target.cloned().ok_or(status::BAD_PARAM)?);
            // The places are as many as there are hosts or ranks, whatever the number of processes.
            return Ok(Some(Spread { count, per, beside, most: None }));
        }
    }
    let per_host = |text: &[u8]| {
        let (count, resource) = std::str::from_utf8(text).ok()?.split_once(':')?;
        let count = count.parse().ok().filter(|&count: &u32| count > 0)?;
        matches!(resource.split(':').next(), Some("node")).then_some(count)
    };
    let mapped = find(keys::MAPBY).and_then(|info| info.as_string()?.strip_prefix(b"ppr:"));
    let mapped = mapped.or_else(|| find(keys::PPR)?.as_string());
    let Some(text) = mapped else { return Ok(None) };
    let count = per_host(text).ok_or(status::NOT_SUPPORTED)?;
    Ok(Some(Spread { count, per: Per::Host, beside: target.cloned(), most }))
}

impl Head {
    /// Starts a job for a tool, when the hosts that it adds have joined. The reply follows when all of its ranks run.
    pub(super) fn spawn_for_tool(
        &mut self,
        engine: &mut Engine<'_>,
        (upcall, job): (UpcallId, JobId),
        integers: Integers,
        (infos, apps): (&Infos<'_>, &Apps<'_>),
    ) -> Result<(), RunError> {
        let of_programs: Vec<_> = apps.iter().map(|app| app.infos).collect();
        let read = Wishes::read(infos, &of_programs).and_then(|wishes| {
            let (programs, added) = self.read_for_tool(engine, (infos, apps), &wishes)?;
            Ok((wishes, programs, added))
        });
        let (wishes, programs, added) = match read {
            Ok(read) => read,
            Err(code) => {
                let body = spawn_body(integers, code, None);
                return self.answer_asker(engine, Asker::Tool(upcall), 0, body);
            }
        };
        let (tool, before) = (engine.name_of_tool(job), engine.tools_before(job));
        let spawn = ToolSpawn { upcall, job, tool, before, integers, wishes, programs };
        self.spawn_with_hosts(engine, added.as_slice(), |head, engine, refused| {
            head.start_spawn_of_tool(engine, spawn, refused)
        })
    }

    /// Starts the job of a tool whose hosts have joined, unless hosts are refused or the tool has left.
    fn start_spawn_of_tool(
        &mut self,
        engine: &mut Engine<'_>,
        spawn: ToolSpawn,
        refused: &[Refused],
    ) -> Result<(), RunError> {
        let ToolSpawn { upcall, job, tool, before, integers, wishes, programs } = spawn;
        let Wishes { channels, options, stopped } = wishes;
        if engine.tools_before(job) != before {
            // The server keeps the request until it is answered.
            let body = spawn_body(integers, status::ERROR, None);
            return self.answer_asker(engine, Asker::Tool(upcall), 0, body);
        }
        let (programs, places): (Vec<_>, Vec<_>) = programs.into_iter().unzip();
        let (mut found, mut failed) = (Vec::new(), None);
        let all = self.find_programs(engine, programs, refused);
        for ((program, spread), stopped) in all.into_iter().zip(places).zip(stopped) {
            match program {
                Ok(program) => found.push(SpawnProgram { spread, stopped, ..program }),
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        if let Some((code, reason)) = failed {
            engine.sinks.print(&format!("nothing is spawned for a tool of PMIx: {reason}"));
            let code = refused.first().map_or_else(|| status::of_spawn(&[code]), Refused::status);
            let body = spawn_body(integers, code, None);
            return self.answer_asker(engine, Asker::Tool(upcall), 0, body);
        }
        self.add_tool_job((upcall, job), integers, channels, &options);
        let nonce = open::nonce()?;
        self.handle(engine, HeadEvent::ToolSpawns { upcall, job, tool, nonce, programs: found, options })
    }

    /// Notes a job that a tool spawns, with the streams that the tool gets.
    pub(super) fn add_tool_job(
        &mut self,
        (upcall, tool): (UpcallId, JobId),
        integers: Integers,
        channels: u32,
        options: &ToolOptions,
    ) {
        self.tool_jobs.push(ToolJob {
            tool: Some(tool),
            integers,
            upcall: Some(upcall),
            job: None,
            channels,
            takes_input: options.stdin.is_some(),
            stop: None,
            waiting: BTreeSet::new(),
            of_ranks: Integers::default(),
            released: BTreeSet::new(),
        });
    }

    /// Reads the programs of a spawn and the places of their ranks. Returns also the hosts that are to join.
    fn read_for_tool(
        &self,
        engine: &Engine<'_>,
        (infos, apps): (&Infos<'_>, &Apps<'_>),
        wishes: &Wishes,
    ) -> Result<(Vec<ToolProgram>, Hosts), i32> {
        let mut room = vec![0; REQUEST_MAX];
        let len = translate_spawn(infos, apps, &mut room).ok_or(status::OUT_OF_RESOURCE)?;
        let requested = RequestedProgram::decode(Protocol::V2, &room[..len]);
        if requested.is_empty() || requested.len() != apps.len() as usize {
            return Err(status::BAD_PARAM);
        }
        // What a spawn leaves open is as for the first program of the run.
        let spawner = engine.plan.programs.first().ok_or(status::ERROR)?;
        let target = wishes.options.target.as_ref();
        let mut places = Vec::new();
        for app in apps.iter() {
            let spread = spread(infos, &app.infos, app.processes, target)?;
            if app.processes == 0 && spread.is_none() {
                return Err(status::BAD_PARAM);
            }
            places.push(spread);
        }
        let (programs, added) = self.read_programs(engine, &requested, spawner);
        Ok((programs.into_iter().zip(places).collect(), added))
    }

    /// The job of a tool's spawn has a number and a name.
    pub(super) fn name_tool_job(&mut self, upcall: UpcallId, record: &JobRecord) {
        let mut jobs = self.tool_jobs.iter_mut();
        if let Some(of_tool) = jobs.find(|of_tool| of_tool.upcall == Some(upcall) && of_tool.job.is_none()) {
            of_tool.job = Some((record.id, record.name.clone()));
            let options = record.spawned.as_ref().and_then(|spawned| spawned.tool.as_ref());
            of_tool.stop = options.and_then(|options| options.stop.clone());
        }
    }

    /// Returns whether ranks of a job that a tool has spawned read what tools push.
    pub(super) fn takes_input(&self, job: JobId) -> bool {
        self.tool_jobs.iter().any(|of_tool| of_tool.is(job) && of_tool.takes_input)
    }

    /// Copies the output of a job to the tool that has spawned it, if the tool has asked for that.
    pub(super) fn forward_output(&mut self, engine: &mut Engine<'_>, job: JobId) -> Result<(), RunError> {
        let jobs = self.control.jobs();
        let Some(of_tool) = self.tool_jobs.iter().find(|of_tool| of_tool.is(job)) else { return Ok(()) };
        if engine.tools.debugger.is_some() && of_tool.tool == engine.tools.debugger {
            // It has the terminal of the launcher, which would write all twice.
            engine.divert_output(job, of_tool.channels)?;
        }
        if of_tool.channels != 0
            && let Some((tool, job)) = of_tool.tool.zip(jobs.get(job))
        {
            let pull = Pull::new(tool, of_tool.integers, of_tool.channels, OF_SPAWN);
            engine.tools.pulls.push(pull.of_job(job.id, &job.name));
            self.copy_output(engine);
        }
        Ok(())
    }

    /// All ranks of a tool's job run, or it is not started.
    pub(super) fn answer_spawn_of_tool(
        &mut self,
        engine: &mut Engine<'_>,
        upcall: UpcallId,
        started: bool,
        (limit, codes): (Option<Limit>, &[u8]),
    ) -> Result<(), RunError> {
        let Some(at) = self.tool_jobs.iter().position(|of_tool| of_tool.upcall == Some(upcall)) else {
            return Ok(());
        };
        let of_tool = &mut self.tool_jobs[at];
        of_tool.upcall = None;
        let code = match limit {
            _ if started => status::SUCCESS,
            Some(_) => status::OUT_OF_RESOURCE,
            None => status::of_spawn(codes),
        };
        let name = of_tool.job.as_ref().filter(|_| started).map(|(_, name)| &**name);
        let body = spawn_body(of_tool.integers, code, name);
        if !started {
            self.tool_jobs.remove(at);
        }
        if upcall != FIRST_JOB {
            self.answer_asker(engine, Asker::Tool(upcall), 0, body)?;
        }
        let of_tool = &self.tool_jobs;
        if started && let Some(stop) = of_tool[at].stop.as_ref().filter(|stop| stop.at == StopAt::Exec) {
            match (of_tool[at].tool, &of_tool[at].job) {
                (Some(_), _) => self.tell_debugger(engine, at),
                (None, &Some((job, _))) => engine.continue_ranks(job, stop),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// A job of a tool is over.
    pub(super) fn tool_job_ended(&mut self, engine: &mut Engine<'_>, job: JobId) {
        if let Some(at) = self.tool_jobs.iter().position(|of_tool| of_tool.is(job)) {
            self.copy_output(engine);
            let ended = self.tool_jobs.remove(at);
            let name = ended.job.map(|(_, name)| name).unwrap_or_default();
            engine.tools.pulls.retain(|pull| !pull.is_of_job(&name, OF_SPAWN));
        }
    }

    /// A process lets ranks go on that wait for a debugger.
    pub(super) fn note_release(&mut self, infos: &Infos<'_>) {
        let jobs = self.control.jobs();
        let listed = infos.find(keys::EVENT_CUSTOM_RANGE);
        for of_tool in &mut self.tool_jobs {
            let Some((job, name)) = &of_tool.job else { continue };
            let size = jobs.get(*job).map_or(0, |job| job.size());
            let is_released =
                |rank: &u32| listed.is_none_or(|listed| listed.contains(name.as_bytes(), *rank));
            of_tool.released.extend((0..size).filter(is_released));
            // The event does not continue processes that the system has stopped.
            let is_event = of_tool.stop.as_ref().is_some_and(|stop| stop.at != StopAt::Exec);
            if is_event && of_tool.are_all(&of_tool.released) {
                of_tool.stop = None;
            }
        }
    }

    /// A rank waits for a debugger.
    pub(super) fn note_waiting(
        &mut self,
        engine: &mut Engine<'_>,
        (job, rank): (JobId, Rank),
        integers: Integers,
    ) {
        let Some(at) = self.tool_jobs.iter().position(|of_tool| of_tool.is(job)) else { return };
        let of_tool = &mut self.tool_jobs[at];
        of_tool.waiting.insert(rank.0);
        of_tool.of_ranks = integers;
        if of_tool.tool.is_none() {
            engine.release_later(of_tool);
        } else if of_tool.are_all(&of_tool.waiting) {
            self.tell_debugger(engine, at);
        }
    }

    /// Tells a tool that the ranks of its job wait for it.
    fn tell_debugger(&self, engine: &mut Engine<'_>, at: usize) {
        let of_tool = &self.tool_jobs[at];
        let Some((tool, (_, name))) = of_tool.tool.zip(of_tool.job.as_ref()) else { return };
        let message = event_message(of_tool.integers, event::READY_FOR_DEBUG, engine.tools.server(), name);
        engine.send_event((tool, Rank(0)), &message);
    }

    /// A tool has left: ranks that wait for it go on.
    pub(super) fn debugger_left(&mut self, engine: &mut Engine<'_>, tool: JobId) {
        for of_tool in self.tool_jobs.iter_mut().filter(|of_tool| of_tool.tool == Some(tool)) {
            of_tool.tool = None;
            let Some((job, _)) = of_tool.job else { continue };
            match &of_tool.stop {
                Some(stop) if stop.at == StopAt::Exec => engine.continue_ranks(job, stop),
                Some(_) => engine.release_later(of_tool),
                None => {}
            }
        }
    }

    /// Lets ranks go on whose debuggers have left a while ago.
    pub(super) fn release_due(&self, engine: &mut Engine<'_>, now: u64) {
        let due = engine.tools.releases.extract_if(.., |release| release.at <= now);
        for Release { job, name, integers, .. } in due.collect::<Vec<_>>() {
            // Another job may have the number by now.
            if self.control.jobs().get(job).is_some_and(|job| job.name == name) {
                engine.send_order(Destination::Descendants, Order::ReleaseRanks { job, integers });
            }
        }
    }
}

impl Engine<'_> {
    /// Continues ranks of a job that the system has stopped.
    fn continue_ranks(&mut self, job: JobId, stop: &Stop) {
        let signal = Signal::CONT.as_raw();
        for rank in stop.ranks().map(Rank) {
            self.send_order(Destination::Descendants, Order::SignalRanks { job, rank: Some(rank), signal });
        }
    }

    /// Lets the ranks of a job go on in a while.
    fn release_later(&mut self, of_tool: &ToolJob) {
        let Some((job, name)) = of_tool.job.clone() else { return };
        let (at, integers) = (self.now() + RELEASE_DELAY, of_tool.of_ranks);
        self.tools.releases.retain(|release| release.name != name);
        self.tools.releases.push(Release { at, job, name, integers });
    }

    /// Lets ranks of a job on this node go on that wait for a debugger.
    pub(super) fn release_ranks(&mut self, id: JobId, integers: Integers) {
        let Some(job) = self.jobs.get(id) else { return };
        let message = event_message(integers, event::DEBUGGER_RELEASE, SERVER_OF_RANKS, &job.name);
        let ranks = std::iter::successors(job.run.ranks.from(0), |rank| job.run.ranks.from(rank + 1));
        for rank in ranks.collect::<Vec<_>>() {
            self.send_event((id, Rank(rank)), &message);
        }
    }

    /// Sends an event to a client, if it is connected.
    fn send_event(&mut self, client: (JobId, Rank), message: &[u8]) {
        let now = self.now();
        if let Some(driver) = self.core.driver() {
            // A backend that fails is reported at its next call.
            let _ = driver.send_aside(client, message, WAITING_MAX, now, &self.poller);
        }
    }
}

/// Returns the message with an event about a job, which handlers get that are registered for its code.
fn event_message(integers: Integers, code: i32, server: &str, job: &str) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN + EVENT_REST + server.len() + job.len()];
    let (header, body) = message.split_at_mut(HEADER_LEN);
    let mut writer = Writer::new(integers, body);
    writer.event(code, server.as_bytes(), 0);
    writer.array(2);
    writer.not_default();
    writer.info(b"pmix.nspace", kind::STRING);
    writer.string(job.as_bytes());
    let len = writer.len();
    header.copy_from_slice(&write_header(EVENT_TAG, len as u32));
    message.truncate(HEADER_LEN + len);
    message
}

/// Returns the body of the reply to a spawn.
fn spawn_body(integers: Integers, code: i32, job: Option<&str>) -> Vec<u8> {
    let mut body = vec![0; EVENT_REST + job.map_or(0, str::len)];
    let mut writer = Writer::new(integers, &mut body);
    writer.status(code);
    writer.single();
    match job {
        Some(job) => writer.string(job.as_bytes()),
        None => writer.null_string(),
    }
    let len = writer.len();
    body.truncate(len);
    body
}
