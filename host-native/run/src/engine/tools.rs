//! Tools of PMIx: processes of this user that are no ranks and connect to the run, such as `pps` or a debugger.
//!
//! A tool is a client of a job of its own, which has one rank and no process. All nodes have the job, so that events of a tool
//! reach ranks of other nodes. Its number is one from the end of the table of jobs. The server keeps the job for the next tool:
//! its attributes stay in the log, and events and published data outlive the tool, as with other managers.
//!
//! A tool in the environment of a rank connects to the port of the rank's job. There the driver finds out what it is.
//!
//! What only a host can do is done by the head, which the tools are connected to, whatever the node.

use std::fmt::Display;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use hydrant_control::Upcall;
use hydrant_control::protocol::Order;
use hydrant_core::limits::{QUERIES_ATTR, TEXT_ATTR_PREFIX, TOOL_ATTR};
use hydrant_core::server::{JobSpec, JobSpecOf};
use hydrant_core::wire::pmix::HostCall;
use hydrant_core::{
    ConnId, Fault, Input, JobId, Limit, Limits, OwnedInput, OwnedOutput, Rank, Refusal, Time, UpcallId,
};
use hydrant_driver::{
    BackendError, Client, Driver, PMIX_VERSION_FOR_TOOLS, PORT_FILES, Speaks, TcpPort, is_out_of_files,
};
use hydrant_overlay::Destination;
use hydrant_placement::host_attributes;
use hydrant_reactor::process::Guardian;
use hydrant_reactor::{Listener, Poller};

use super::names::Names;
use super::open::ALONE;
use super::status::Asker;
use super::token::Token;
use super::tool_jobs::Release;
use super::tool_output::Pull;
use super::tool_relay::{Relays, TOOLS_MAX};
use super::{Engine, Head, open::nonce};
use crate::backend::RunBackend;
use crate::error::RunError;
use crate::plan::{Plan, UriTarget};
use crate::rendezvous::{Rendezvous, new_folder};

/// Milliseconds from the first job on after which a run can be found by tools. Shorter ones are spared the files.
const DELAY: u64 = 100;
/// Set in numbers of upcalls that the name service has from tools.
const OF_TOOL: u32 = 1 << 31;

/// Tools of a run.
#[derive(Default)]
pub(super) struct Tools {
    /// The process is a head to which tools may connect.
    are_expected: bool,
    /// Time at which the run can be found, once there is a job.
    opens_at: Option<u64>,
    /// The run can be found, or not at all.
    is_settled: bool,
    /// Folder for rendezvous files that a guardian knows already.
    folder: Option<PathBuf>,
    /// That guardian, if it is not that of this process's ranks.
    guardian: Option<Guardian>,
    port: Option<Port>,
    slots: [Slot; TOOLS_MAX as usize],
    /// Tools on the hosts of other nodes, or at a daemon those of its own.
    pub(super) relays: Relays,
    /// Copies of output that tools get.
    pub(super) pulls: Vec<Pull>,
    /// Job of the debugger that has started this launcher, once it is a tool.
    pub(super) debugger: Option<JobId>,
    /// Jobs whose tools have left.
    left: Vec<JobId>,
    /// Ranks that debuggers have left waiting.
    pub(super) releases: Vec<Release>,
    /// Number of names that have been given.
    named: u32,
    /// The limit has been reported.
    reported: bool,
}

/// Where tools connect.
struct Port {
    listener: Listener<TcpPort>,
    /// Name of the server for tools.
    server: String,
    uri: String,
    _files: Option<Rendezvous>,
}

/// Job for one tool at a time.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Job id that the job was registered with.
    name: String,
    /// The servers have the job.
    is_registered: bool,
    /// A tool is connected.
    is_taken: bool,
    /// Number of tools that have left it.
    left: u32,
}

impl Tools {
    /// Has the rendezvous files in a folder that this guardian removes, or that of this process's ranks.
    pub(super) fn use_folder(&mut self, folder: PathBuf, guardian: Option<Guardian>) {
        (self.folder, self.guardian) = (Some(folder), guardian);
    }

    /// A job is there: tools find the run after a while.
    pub(super) fn job_opened(&mut self, now: u64) {
        if self.are_expected && !self.is_settled {
            self.opens_at.get_or_insert(now + DELAY);
        }
    }

    /// Returns the name of the server for tools.
    pub(super) fn server(&self) -> &str {
        self.port.as_ref().map_or("", |port| &port.server)
    }

    /// Returns the next time at which there is something to do.
    pub(super) fn poll_at(&self) -> Option<u64> {
        let port = self.port.as_ref().and_then(|port| port.listener.deadline());
        let releases = self.releases.iter().map(|release| release.at);
        self.opens_at.into_iter().chain(port).chain(releases).min()
    }
}

/// Returns the entries of tables that are added for tools. Boards have tables of their own.
pub(super) fn entries(plan: &Plan, limits: &Limits) -> u32 {
    let boards = plan.options.offload.is_some() || plan.options.cluster.boards.are_any();
    if TcpPort::SERVES_THIS_MACHINE && limits.commit_bytes > 0 && !boards { TOOLS_MAX } else { 0 }
}

impl Engine<'_> {
    /// Has tools find this run when it has a job, or at once if the user has asked for the address.
    ///
    /// # Errors
    /// The address cannot be written.
    pub(super) fn expect_tools(&mut self) -> Result<(), RunError> {
        if entries(self.plan, self.core.limits()) == 0 || self.core.is_board() {
            let why = RunError::NoTools;
            if self.plan.options.report_uri.is_some() {
                return Err(why);
            }
            self.note_no_tools(why);
            return Ok(());
        }
        self.tools.are_expected = true;
        match &self.plan.options.report_uri {
            Some(target) => {
                let opened = self.listen_for_tools()?;
                self.tools.port = Some(opened);
                self.report_uri(target)
            }
            None => Ok(()),
        }
    }

    /// Returns the maximum number of jobs beside tools. A limit that the user has set is for both.
    pub(super) fn jobs_max(&self) -> u32 {
        let limits = self.core.limits();
        let is_set = self.plan.options.limits.iter().any(|(limit, _)| *limit == Limit::Jobs);
        let others = if is_set || !self.tools.are_expected { 0 } else { entries(self.plan, limits) };
        limits.jobs.saturating_sub(others)
    }

    fn report_uri(&mut self, target: &UriTarget) -> Result<(), RunError> {
        let Some(uri) = self.tools.port.as_ref().map(|port| port.uri.clone()) else { return Ok(()) };
        let result = match target {
            UriTarget::Stdout => {
                use std::io::Write as _;
                let mut out = std::io::stdout().lock();
                writeln!(out, "{uri}").and_then(|()| out.flush())
            }
            UriTarget::Stderr => {
                eprintln!("{uri}");
                Ok(())
            }
            // As OpenPMIx writes it, for tools that read it.
            UriTarget::File(path) => fs::write(path, format!("{uri}\nv{PMIX_VERSION_FOR_TOOLS}\n")),
        };
        result.map_err(|why| RunError::UriFile { target: target.clone(), why })
    }

    fn listen_for_tools(&mut self) -> Result<Port, RunError> {
        let relays = if self.nodes.is_some() { TOOLS_MAX } else { 0 };
        self.files.add(PORT_FILES + u64::from(TOOLS_MAX + relays))?;
        let port = TcpPort::open((Ipv4Addr::LOCALHOST, 0).into())?.for_clients_of(Speaks::Pmix);
        // libpmix takes the first dot of an address that a user names for the end of the namespace.
        let server = format!("hydrant-{}", std::process::id());
        let uri = format!("{server}.0;tcp4://{}", port.addr());
        Ok(Port { listener: Listener::new(port, Token::Tools, &self.poller)?, server, uri, _files: None })
    }

    /// Returns whether tools may connect to the ports of ranks here. The head refuses them if it serves none.
    pub(super) fn takes_tools(&self) -> bool {
        self.tools.are_expected || self.nodes.is_some()
    }

    /// Opens the port of tools, if it is not open.
    ///
    /// # Errors
    /// [`RunError::NoTools`]: tools cannot connect to this run.
    pub(super) fn await_tools(&mut self) -> Result<(), RunError> {
        if !self.tools.are_expected {
            return Err(RunError::NoTools);
        }
        if self.tools.port.is_none() {
            self.tools.port = Some(self.listen_for_tools()?);
        }
        Ok(())
    }

    /// Opens the connection of a tool. Returns false at the limit of connections.
    pub(super) fn open_tool(
        &mut self,
        job: JobId,
        open: impl FnOnce(
            &mut Driver<RunBackend<'_>>,
            u64,
            &Poller,
        ) -> Result<Option<ConnId>, hydrant_driver::Error>,
    ) -> Result<bool, RunError> {
        let now = self.now();
        let Some(driver) = self.core.driver() else { return Ok(false) };
        driver.make_room(now)?;
        let opened = open(driver, now, &self.poller)?;
        // A tool may push input faster than ranks read it.
        opened.into_iter().for_each(|conn| driver.let_pause(conn));
        if let Some(slot) = self.tool_of(job) {
            self.tools.slots[slot].is_taken = opened.is_some();
        }
        Ok(opened.is_some())
    }

    /// Says once that there are too many tools.
    pub(super) fn refuse_tool(&mut self) {
        if !std::mem::replace(&mut self.tools.reported, true) {
            self.sinks.print(&format!("refused a tool of PMIx: {TOOLS_MAX} of them are connected"));
        }
    }

    fn note_no_tools(&mut self, why: impl Display) {
        if self.plan.settings.verbose {
            self.sinks.print(&format!("tools of PMIx do not find this run: {why}"));
        }
    }

    /// Number of the job for tools in a slot. None if the table is too short.
    fn tool_job(&self, slot: usize) -> Option<JobId> {
        self.core.limits().jobs.checked_sub(1 + slot as u32).map(JobId)
    }

    /// Returns the slot whose job this is.
    fn tool_of(&self, job: JobId) -> Option<usize> {
        let of_job = |&slot: &usize| self.tools.slots[slot].is_registered && self.tool_job(slot) == Some(job);
        (0..self.tools.slots.len()).find(of_job)
    }

    /// Returns the job id that the job of a tool was registered with.
    pub(super) fn name_of_tool(&self, job: JobId) -> String {
        self.tool_of(job).map_or(String::new(), |slot| self.tools.slots[slot].name.clone())
    }

    /// Number of tools that have had the job of a tool before: another tool gets it as it is.
    pub(super) fn tools_before(&self, job: JobId) -> Option<u32> {
        self.tool_of(job).map(|slot| self.tools.slots[slot].left)
    }

    /// Returns whether a job is that of a tool.
    pub(super) fn is_tool(&self, job: JobId) -> bool {
        self.tool_of(job).is_some()
    }

    /// The connection of a tool is closed.
    pub(super) fn tool_left(&mut self, job: JobId) {
        if let Some(slot) = self.tool_of(job) {
            self.tools.slots[slot].is_taken = false;
            let left = &mut self.tools.slots[slot].left;
            *left = left.wrapping_add(1);
        }
        self.tools.pulls.retain(|pull| pull.tool != job);
        self.tools.debugger.take_if(|debugger| *debugger == job);
        self.tools.left.push(job);
    }

    /// Passes an answer of the name service on, if it is for a tool. Returns whether it is.
    pub(super) fn pass_name_to_tool(
        &mut self,
        upcall: UpcallId,
        rc: i32,
        text: &[u8],
    ) -> Result<bool, RunError> {
        let is_for_tool = upcall.0 & OF_TOOL != 0;
        if is_for_tool {
            self.answer_tool(UpcallId(upcall.0 & !OF_TOOL), rc, text)?;
        }
        Ok(is_for_tool)
    }

    /// Answers a request of a tool, which may be gone.
    pub(super) fn answer_tool(&mut self, upcall: UpcallId, rc: i32, text: &[u8]) -> Result<(), RunError> {
        let now = Time(self.now());
        match self.core.handle(now, Input::UpcallComplete { upcall, rc, text }) {
            Ok(()) | Err(BackendError::Fault(Fault::NoSuchUpcall)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Head {
    /// Opens the port of tools, once a job is there for a while. Without it the run goes on.
    pub(super) fn keep_tools(&mut self, engine: &mut Engine<'_>, now: u64) -> Result<(), RunError> {
        if let Some(port) = &mut engine.tools.port {
            port.listener.resume(&engine.poller, now)?;
        }
        for job in std::mem::take(&mut engine.tools.left) {
            if let Some(names) = &mut self.names {
                names.process_ended(job, Rank(0), now)?;
            }
            self.debugger_left(engine, job);
            self.check_debugger(job)?;
        }
        self.release_due(engine, now);
        if engine.tools.opens_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        engine.tools.opens_at = None;
        let Some(jobid) = self.control.jobs().iter().next().map(|job| job.name.clone()) else {
            // The next one counts.
            return Ok(());
        };
        engine.tools.is_settled = true;
        let mut port = match engine.tools.port.take().map_or_else(|| engine.listen_for_tools(), Ok) {
            Ok(port) => port,
            Err(error) => {
                engine.note_no_tools(error);
                return Ok(());
            }
        };
        let Tools { folder, guardian, .. } = &mut engine.tools;
        let (guardian, folder) = match folder.take() {
            Some(folder) => (Ok(guardian.take()), folder),
            None => {
                let folder = new_folder();
                (Guardian::start(&[&folder]).map(Some), folder)
            }
        };
        let pid = std::process::id().to_string();
        let files = guardian.and_then(|guardian| {
            Rendezvous::create(folder.clone(), guardian, (&engine.host, &port.uri), &[&pid, &jobid])
        });
        match files {
            Ok(files) => port._files = Some(files),
            Err(why) => engine.note_no_tools(format_args!("{}: {why}", folder.display())),
        }
        engine.tools.port = Some(port);
        Ok(())
    }

    /// Accepts tools.
    pub(super) fn accept_tools(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let mut admitted = Vec::new();
        let Some(port) = &engine.tools.port else { return Ok(()) };
        let accepted = port.listener.socket().accept(&mut admitted);
        for client in admitted {
            let Some(job) = self.room_for_tool(engine)? else { continue };
            engine.open_tool(job, |driver, now, poller| driver.open_client(client, job, now, poller))?;
        }
        if let Err(error) = accepted
            && !(is_out_of_files(&error) && engine.displace(&error)?)
        {
            engine.sinks.print(&format!("warning: paused accepting tools: {error}"));
            let now = engine.now();
            if let Some(port) = &mut engine.tools.port {
                port.listener.pause(&engine.poller, now);
            }
        }
        Ok(())
    }

    /// Makes a client that has connected to the port of ranks a tool. Returns false if it is refused.
    pub(super) fn admit_tool(
        &mut self,
        engine: &mut Engine<'_>,
        client: Client,
        said: &[u8],
    ) -> Result<bool, RunError> {
        if let Err(why) = engine.await_tools() {
            engine.note_no_tools(why);
            return Ok(false);
        }
        let Some(job) = self.room_for_tool(engine)? else { return Ok(false) };
        engine.open_tool(job, |driver, now, poller| driver.open_called(client, job, (said, 0), now, poller))
    }

    /// Returns a job for another tool, or none and says so once: libpmix reports a server that cannot be reached.
    fn room_for_tool(&mut self, engine: &mut Engine<'_>) -> Result<Option<JobId>, RunError> {
        let job = self.job_for_tool(engine)?;
        if job.is_none() {
            engine.refuse_tool();
        }
        Ok(job)
    }

    /// Returns a job for another tool, which all nodes get if they do not have it. None if there is no room.
    pub(super) fn job_for_tool(&mut self, engine: &mut Engine<'_>) -> Result<Option<JobId>, RunError> {
        let free = |slot: &Slot| !slot.is_taken;
        let registered = engine.tools.slots.iter().position(|slot| free(slot) && slot.is_registered);
        if let Some(slot) = registered {
            return Ok(engine.tool_job(slot));
        }
        let Some(slot) = engine.tools.slots.iter().position(free) else { return Ok(None) };
        let Some(job) = engine.tool_job(slot) else { return Ok(None) };
        if engine.jobs.get(job).is_some() {
            return Ok(None);
        }
        let Some(name) = self.register_tool(engine, job)? else { return Ok(None) };
        let left = engine.tools.slots[slot].left;
        engine.tools.slots[slot] = Slot { name, is_registered: true, is_taken: false, left };
        Ok(Some(job))
    }

    /// Registers the job of a tool at the servers of all nodes. Returns its job id, or none if it does not fit.
    fn register_tool(&mut self, engine: &mut Engine<'_>, job: JobId) -> Result<Option<String>, RunError> {
        let Some((server, uri)) =
            engine.tools.port.as_ref().map(|port| (port.server.clone(), port.uri.clone()))
        else {
            return Ok(None);
        };
        engine.tools.named += 1;
        let name = format!("tool_{}_{}_{:016x}", std::process::id(), engine.tools.named, nonce()?);
        let attr = |key: String, value: &str| OwnedInput::Attr { job, key: key.into(), value: value.into() };
        let everywhere = [
            OwnedInput::RegisterJob(JobSpecOf {
                lookup_wait: engine.plan.settings.lookup_wait.as_millis().try_into().unwrap_or(u64::MAX),
                remote_names: self.names.is_some() || engine.nodes.is_some(),
                ..JobSpec::new(job, &name, 1).map(|text| (*text).to_owned())
            }),
            attr(TOOL_ATTR.to_owned(), &name),
        ];
        let hosts = host_attributes([(ALONE, &*engine.host)]).map(|(key, value)| attr(key, &value));
        let hosts: Vec<_> = hosts.collect();
        let own = [
            attr(QUERIES_ATTR.to_owned(), "TRUE"),
            attr(format!("{TEXT_ATTR_PREFIX}pmix.srv.nspace"), &server),
            attr(format!("{TEXT_ATTR_PREFIX}pmix.srvr.uri"), &uri),
        ];
        // The nodes apply the orders before messages of this server about the job.
        let now = engine.now();
        everywhere.iter().for_each(|input| self.tell_other_servers(engine, input.clone()));
        for input in everywhere.iter().chain(&own).chain(&hosts) {
            match engine.core.handle(Time(now), input.view()) {
                Ok(()) => {}
                Err(BackendError::Fault(_)) => {
                    self.deregister_tool(engine, job)?;
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(Names::Shared(client)) = &mut self.names {
            client.begin(job, &name, now, &engine.poller);
        }
        Ok(Some(name))
    }

    /// Tells the servers of all other nodes something about the job of a tool, also of those that join later.
    fn tell_other_servers(&mut self, engine: &mut Engine<'_>, input: OwnedInput) {
        if engine.nodes.is_some() {
            let order = Order::Input(input);
            self.control.note_sent(&order);
            engine.send_order(Destination::Descendants, order);
        }
    }

    /// Deregisters the job of a tool at the servers of all nodes, as far as they have it.
    fn deregister_tool(&mut self, engine: &mut Engine<'_>, job: JobId) -> Result<(), RunError> {
        let now = engine.now();
        self.tell_other_servers(engine, OwnedInput::DeregisterJob { job });
        if let Some(names) = &mut self.names {
            names.forget(job, now)?;
        }
        match engine.core.handle(Time(now), Input::DeregisterJob { job }) {
            Ok(()) | Err(BackendError::Fault(Fault::NoSuchJob)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles an output of the server about a tool.
    pub(super) fn take_tool_output(
        &mut self,
        engine: &mut Engine<'_>,
        job: JobId,
        output: OwnedOutput,
    ) -> Result<(), RunError> {
        match output {
            OwnedOutput::Upcall { upcall, rank, protocol, request, .. } => {
                let node = self.node_here(engine);
                self.tool_asks(engine, Upcall { node, id: upcall, job, rank, protocol, request })
            }
            // The tool aborts itself.
            OwnedOutput::AbortJob { .. } | OwnedOutput::KillRank { .. } => {
                let now = engine.now();
                if let Some(driver) = engine.core.driver() {
                    driver.close_job(job, now)?;
                }
                engine.tool_left(job);
                self.deregister_tool(engine, job)?;
                if let Some(slot) = engine.tool_of(job) {
                    engine.tools.slots[slot].is_registered = false;
                }
                Ok(())
            }
            OwnedOutput::Log { text, .. } => {
                String::from_utf8_lossy(&text).lines().for_each(|line| engine.sinks.print(line));
                Ok(())
            }
            OwnedOutput::Joined { .. } => {
                if engine.plan.settings.verbose {
                    engine.sinks.print("a tool of PMIx has connected");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Number of the node whose ranks are on the host of this process; 0 if there is none.
    fn node_here(&self, engine: &Engine<'_>) -> u32 {
        self.control.members().find(|&node| self.control.host(node) == engine.host).unwrap_or(0)
    }

    /// A tool asks for something that only the host can do.
    fn tool_asks(&mut self, engine: &mut Engine<'_>, upcall: Upcall) -> Result<(), RunError> {
        if HostCall::is(&upcall.request) {
            return self.take_host_call(engine, Asker::Tool(upcall.id), upcall);
        }
        if self.names.is_none() {
            let refusal = Refusal::Unsupported;
            return engine.answer_tool(upcall.id, refusal.rc(), refusal.to_string().as_bytes());
        }
        let Upcall { id, job, rank, protocol, request, .. } = upcall;
        self.ask_name_service(engine, Some(UpcallId(id.0 | OF_TOOL)), (job, rank), (protocol, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_job_has_no_deadline_for_tools() {
        let mut tools = Tools { are_expected: true, ..Tools::default() };
        assert_eq!(tools.poll_at(), None);
        tools.job_opened(5);
        tools.job_opened(50);
        assert_eq!(tools.poll_at(), Some(5 + DELAY));
        (tools.opens_at, tools.is_settled) = (None, true);
        tools.job_opened(500);
        assert_eq!(tools.poll_at(), None);
        let mut closed = Tools::default();
        closed.job_opened(5);
        assert_eq!(closed.poll_at(), None);
    }
}
