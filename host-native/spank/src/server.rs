//! Server of a node: a thread with an event loop, which carries out what the server requires.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};

use hydrant_host::{CloseReason, Closing, ConnId, Event, Exit, Host, Input, Job, JobId, Output, Port, Rank};
use hydrant_host::{Limits, Protocol, Settings, UpcallId, decode_spawn};
use hydrant_overlay::{Channel, LinkError};
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller};
use rustix::process::Signal;

use crate::message::{Layout, NotExecuted, ToHead, ToNode, decode};
use crate::tasks::{Tasks, User, exit_of};
use crate::uplink::{LINK, Place, Uplink};

/// Time in milliseconds between SIGTERM and SIGKILL.
pub(crate) const KILL_TIMEOUT: u64 = 5_000;
/// Time in milliseconds between the reason and SIGTERM: srun drops output that arrives after the first task that a signal
/// ended.
const REASON_TIME: u64 = 300;
/// The job of the step.
const JOB: JobId = JobId(0);
/// The job in place of one that a rank has spawned, and that has servers of its own. It is there for a moment, because the reply to
/// the rank has the name of a registered job.
const SPAWNED: JobId = JobId(1);
/// Most bytes of the request for a spawn.
const SPAWN_BYTES: u32 = 1 << 16;
const NOTICES: Key = KeyRange(0).key(0, 0);
/// Key of the library's descriptor.
const HOST: Key = KeyRange(0).key(2, 0);
const EXECS: Key = KeyRange(0).key(3, 0);

/// Prints a line on the step's standard error.
pub(crate) type Print = fn(&str);

/// What a server is told of its step.
#[derive(Debug)]
pub(crate) struct Step {
    /// Name of the job for clients.
    pub(crate) name: String,
    /// Name of the node for messages.
    pub(crate) node: String,
    /// Number of ranks.
    pub(crate) size: u32,
    /// Processors of the node for the step.
    pub(crate) processors: u32,
    /// Number of tasks for which the allocation has processors, if it is known.
    pub(crate) universe: Option<u32>,
    /// User of the tasks.
    pub(crate) user: User,
    /// The head and the other nodes. None if srun has passed no address, which several nodes need.
    pub(crate) place: Option<Place>,
}

/// End of a task, in the pipe to the server: number of the task and status.
pub(crate) const NOTICE: usize = 8;

/// Encodes the end of a task.
pub(crate) fn notice(task: u32, status: i32) -> [u8; NOTICE] {
    let mut bytes = [0; NOTICE];
    bytes[..4].copy_from_slice(&task.to_ne_bytes());
    bytes[4..].copy_from_slice(&status.to_ne_bytes());
    bytes
}

fn read_notice(bytes: &[u8; NOTICE]) -> (u32, i32) {
    let [a, b, c, d, e, f, g, h] = *bytes;
    (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))
}

/// Why a server ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error(transparent)]
    Host(#[from] hydrant_host::Error),
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    #[error("the link to srun: {0}")]
    Link(#[from] LinkError),
    #[error("the head in srun sent an invalid message")]
    Head,
}

/// Settings of a server of a step: one job, names and process sets of its own, and room for the reply to a spawn. Nodes with tasks
/// are counted from 1.
pub(crate) fn settings(size: u32, node: Option<(u32, u32)>) -> Settings {
    let settings = Settings::for_ranks(size.saturating_add(1));
    let limits =
        Limits { jobs: 2, groups: 64, names: 64, psets: 64, spawn_bytes: SPAWN_BYTES, ..settings.limits };
    let settings = Settings { limits, ..settings };
    match node {
        Some((number, nodes)) => settings.on_node(number, nodes + 1),
        None => settings,
    }
}

/// Registers the job of a step.
pub(crate) fn register(host: &mut Host, name: &str, layout: &Layout) -> Result<(), hydrant_host::Error> {
    host.register_job_as(JOB, &layout.job(name))?;
    for (key, value) in layout.origin.iter().flat_map(|origin| &origin.pairs) {
        host.input(Input::Preput { job: JOB, key, value })?;
    }
    Ok(())
}

/// What a node has of a step when its tasks have been forked.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) step: Step,
    pub(crate) tasks: Tasks,
    /// The server, which has no job.
    pub(crate) host: Host,
    pub(crate) connections: Connections,
    /// Ends of tasks come here. The other end is closed when the step is over.
    pub(crate) notices: OwnedFd,
    /// In a spawned step the programs that tasks cannot execute, each with its `errno`. The other end is closed when all have
    /// tried.
    pub(crate) execs: Option<OwnedFd>,
    /// Closed when no step that ranks of this node have spawned runs after the last task here.
    pub(crate) held: OwnedFd,
    pub(crate) print: Print,
}

/// Connections of the tasks, which wait until the server knows the job.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Server's ends, in the order of the tasks.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Port of PMIx clients.
    pub(crate) port: Port,
}

/// Tasks, and what ends them.
#[derive(Debug)]
struct Watch {
    step: Step,
    tasks: Tasks,
    notices: OwnedFd,
    print: Print,
    clock: Clock,
    poller: Poller,
    /// The next signal for the tasks, and its time. None while the step goes on.
    ending: Option<(Signal, u64)>,
    link: Option<Uplink>,
    execs: Option<OwnedFd>,
    not_executed: Option<NotExecuted>,
    held: Option<OwnedFd>,
    /// Number of spawned steps of ranks of this node.
    spawned: u32,
    /// None when the server knows the job.
    connections: Option<Connections>,
    /// Tasks that have ended before the server knew them.
    early: Vec<(u32, Exit)>,
}

/// Serves a node until the step is over.
pub(crate) fn serve(node: Node) {
    let Node { step, tasks, host, connections, notices, execs, held, print } = node;
    let poller = match Poller::new().and_then(|poller| {
        poller.add(&notices, NOTICES, Interest::Read)?;
        Ok(poller)
    }) {
        Ok(poller) => poller,
        Err(error) => {
            print(&format!("hydrant: {}: {error}", step.node));
            return tasks.signal(None, Signal::KILL);
        }
    };
    let mut watch = Watch {
        step,
        tasks,
        notices,
        print,
        clock: Clock::start(),
        poller,
        ending: None,
        link: None,
        execs,
        not_executed: None,
        held: Some(held),
        spawned: 0,
        connections: Some(connections),
        early: Vec::new(),
    };
    let served = panic::catch_unwind(AssertUnwindSafe(|| watch.run(host)));
    let why = match served {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "internal error".to_owned(),
    };
    watch.end(&format!("the server on {} failed: {why}", watch.step.node));
    // A failure here leaves the end of the tasks to Slurm.
    let _ = watch.wait_for_end();
}

impl Watch {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Ends the step, and says why. On several nodes the head does both.
    fn end(&mut self, why: &str) {
        // On several nodes the tasks of the others may run.
        if self.ending.is_some() || !(self.tasks.any_running() || self.link.is_some()) {
            return;
        }
        match &mut self.link {
            Some(link) => link.send(&ToHead::Failed(why.to_owned())),
            None => (self.print)(&format!("hydrant: ending the step: {why}")),
        }
        self.ending = Some((Signal::TERM, self.now() + REASON_TIME));
    }

    /// Returns when tasks get a signal.
    fn signal_at(&self) -> Option<u64> {
        self.ending.map(|(_, at)| at)
    }

    /// Signals tasks whose time has come.
    fn handle_timeout(&mut self) {
        let now = self.now();
        let Some((signal, _)) = self.ending.filter(|&(_, at)| at <= now) else { return };
        self.tasks.signal(None, signal);
        self.ending = Some((Signal::KILL, now + KILL_TIMEOUT));
    }

    /// Reads ends of tasks. Returns none when the step is over.
    fn read_notices(&mut self) -> Result<Option<Vec<(u32, Exit)>>, ServerError> {
        let mut bytes = [0; 64 * NOTICE];
        let len = match rustix::io::read(&self.notices, &mut bytes) {
            Ok(0) => return Ok(None),
            Ok(len) => len,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(hydrant_reactor::Error::during("read")(errno).into()),
        };
        // Each write is whole, and so is each read.
        let (notices, _) = bytes[..len].as_chunks();
        let ended = notices.iter().map(read_notice);
        Ok(Some(
            ended.filter_map(|(task, status)| Some((self.tasks.ended(task)?, exit_of(status)))).collect(),
        ))
    }

    /// Waits until the step is over, without a server.
    fn wait_for_end(&mut self) -> Result<(), ServerError> {
        let mut keys = Vec::new();
        self.held = None;
        loop {
            if let Some(link) = &mut self.link {
                link.flush(&self.poller)?;
            }
            let timeout = self.clock.timeout([self.signal_at()]);
            self.poller.wait(timeout, &mut keys)?;
            self.handle_timeout();
            if keys.contains(&LINK) {
                // Another failure changes nothing.
                self.link.take_if(|link| link.receive().is_err());
            }
            if keys.contains(&NOTICES) && self.read_notices()?.is_none() {
                return self.close();
            }
        }
    }

    /// Tells the head that the step is over here.
    fn close(&mut self) -> Result<(), ServerError> {
        match self.link.take() {
            Some(link) => Ok(link.close(&mut self.poller)?),
            None => Ok(()),
        }
    }

    /// Serves until the step is over or the server fails.
    fn run(&mut self, mut host: Host) -> Result<(), ServerError> {
        if self.step.place.as_ref().is_some_and(Place::is_led) {
            self.connect()?;
            match &self.execs {
                Some(execs) => self.poller.add(execs, EXECS, Interest::Read)?,
                None => self.say_ready(),
            }
        } else {
            let Step { size, ref node, processors, universe, .. } = self.step;
            self.begin(&mut host, &Layout { universe, ..Layout::alone(size, node, processors) })?;
        }
        let mut keys = Vec::new();
        loop {
            self.events(&mut host)?;
            self.flush(&mut host)?;
            self.release();
            let timeout = self.clock.timeout([self.signal_at()]);
            self.poller.wait(timeout, &mut keys)?;
            if keys.contains(&LINK) {
                self.receive(&mut host)?;
            }
            if keys.contains(&EXECS) {
                self.read_execs()?;
            }
            self.handle_timeout();
            // Last, after the bytes that a task sent before its end.
            if keys.contains(&NOTICES) {
                self.events(&mut host)?;
                let Some(ended) = self.read_notices()? else { return self.close() };
                for (rank, exit) in ended {
                    self.ended(&mut host, rank, exit)?;
                }
            }
        }
    }

    /// Connects to the head, if there is one.
    fn connect(&mut self) -> Result<(), ServerError> {
        if let Some(place) = &self.step.place {
            self.link = Some(Uplink::connect(place, self.clock, &self.poller)?);
        }
        Ok(())
    }

    /// Tells the head which ranks are here.
    fn say_ready(&mut self) {
        let Some(link) = &mut self.link else { return };
        let ranks = self.tasks.0.iter().map(|task| task.rank).collect();
        let (name, processors) = (self.step.node.clone(), self.step.processors);
        link.send(&ToHead::Ready { name, ranks, processors, not_executed: self.not_executed });
    }

    /// Reads whether all tasks have executed the program.
    fn read_execs(&mut self) -> Result<(), ServerError> {
        let Some(execs) = &self.execs else { return Ok(()) };
        let mut bytes = [0; 64];
        match rustix::io::read(execs, &mut bytes) {
            Ok(0) => {
                self.execs = None;
                self.say_ready();
            }
            Ok(_) => self.not_executed = Some(NotExecuted { program: bytes[0], errno: bytes[1] }),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(hydrant_reactor::Error::during("read")(errno).into()),
        }
        Ok(())
    }

    /// Lets slurmstepd report the end of the last task, unless a spawned step runs: srun ends then, and with it the allocation.
    fn release(&mut self) {
        let goes_on = self.spawned > 0 && self.ending.is_none() && self.link.is_some();
        if !self.tasks.any_running() && !goes_on {
            self.held = None;
        }
    }

    /// Has the head carry out a spawn.
    fn spawn(
        &mut self,
        host: &mut Host,
        (spawn, rank): (UpcallId, Rank),
        protocol: Protocol,
        request: Vec<u8>,
    ) -> Result<(), ServerError> {
        let refusal = match (&self.link, &self.step.place) {
            _ if self.ending.is_some() => Some("the step ends".to_owned()),
            (None, None) => Some("srun has passed no address of its head".to_owned()),
            (None, Some(_)) => match self.connect() {
                Ok(()) => {
                    self.say_ready();
                    None
                }
                Err(error) => Some(error.to_string()),
            },
            (Some(_), _) => None,
        };
        if let Some(why) = refusal {
            (self.print)(&format!("hydrant: nothing is spawned for rank {rank}: {why}"));
            let programs = decode_spawn(protocol, &request).map_or(0, |spawn| spawn.programs().count());
            return Ok(host.spawn_complete(spawn, false, &vec![libc::EHOSTUNREACH as u8; programs])?);
        }
        if let Some(link) = &mut self.link {
            link.send(&ToHead::Spawn { spawn, rank: rank.0, protocol, request });
            self.spawned += 1;
        }
        Ok(())
    }

    /// Completes a spawn, with the name of the job that runs if there is one.
    fn complete(
        &mut self,
        host: &mut Host,
        spawn: UpcallId,
        started: Option<&str>,
        codes: &[u8],
    ) -> Result<(), ServerError> {
        if let Some(name) = started {
            host.register_job_as(SPAWNED, &Job::new(name, 1).spawned_by(spawn))?;
            host.spawn_complete(spawn, true, codes)?;
            host.deregister_job(SPAWNED)?;
        } else {
            self.spawned = self.spawned.saturating_sub(1);
            host.spawn_complete(spawn, false, codes)?;
        }
        self.events(host)
    }

    /// Starts the job when the nodes of all ranks are known.
    fn begin(&mut self, host: &mut Host, layout: &Layout) -> Result<(), ServerError> {
        let Some(Connections { sockets, port }) = self.connections.take() else {
            return Err(ServerError::Head);
        };
        register(host, &self.step.name, layout)?;
        host.adopt_port(JOB, port)?;
        for (socket, task) in sockets.into_iter().zip(&self.tasks.0) {
            host.adopt_socket(JOB, Rank(task.rank), socket)?;
        }
        self.poller.add(&*host, HOST, Interest::Read)?;
        for (rank, exit) in std::mem::take(&mut self.early) {
            self.ended(host, rank, exit)?;
        }
        Ok(())
    }

    /// Takes messages of the head.
    fn receive(&mut self, host: &mut Host) -> Result<(), ServerError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let messages = match link.receive() {
            Ok(messages) => messages,
            Err(error) => {
                self.link = None;
                // srun ends before its nodes, which have no tasks then.
                return if self.tasks.any_running() { Err(error.into()) } else { Ok(()) };
            }
        };
        for (channel, bytes) in messages {
            match (channel, decode(&bytes)) {
                (Channel::Peer, _) => {
                    let taken = host.peer(0, &bytes);
                    taken.map_err(|error| match error.fault() {
                        Some(_) => ServerError::Head,
                        None => error.into(),
                    })?;
                    self.events(host)?;
                }
                (Channel::Control, Some(ToNode::Begin(layout))) => self.begin(host, &layout)?,
                (Channel::Control, Some(ToNode::End)) => {
                    self.ending.get_or_insert((Signal::TERM, self.clock.now()));
                }
                (Channel::Control, Some(ToNode::Spawned { spawn, started, codes })) => {
                    self.complete(host, spawn, started.as_deref(), &codes)?;
                }
                (Channel::Control, Some(ToNode::SpawnedOver)) => {
                    self.spawned = self.spawned.saturating_sub(1);
                }
                _ => return Err(ServerError::Head),
            }
        }
        Ok(())
    }

    /// Writes to the head.
    fn flush(&mut self, host: &mut Host) -> Result<(), ServerError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.flush(&self.poller)? {
            host.input(Input::PeerWritable { node: 0 })?;
            self.events(host)?;
        }
        if let Some(link) = &mut self.link {
            link.flush(&self.poller)?;
        }
        Ok(())
    }

    /// Reports the end of a task, behind its last bytes.
    fn ended(&mut self, host: &mut Host, rank: u32, exit: Exit) -> Result<(), ServerError> {
        if self.connections.is_some() {
            self.early.push((rank, exit));
            return Ok(());
        }
        host.exited(JOB, Rank(rank), exit)?;
        self.events(host)
    }

    /// Serves the tasks, and carries out all that the server requires.
    fn events(&mut self, host: &mut Host) -> Result<(), ServerError> {
        if self.connections.is_some() {
            return Ok(());
        }
        while let Some(event) = host.next_event()? {
            match event {
                Event::Output(Output::KillRank { rank, code, message, .. }) => {
                    let code = code.map_or(String::new(), |code| format!(" with code {code}"));
                    (self.print)(&format!("hydrant: rank {rank} ends itself{code}{}", behind(&message)));
                    self.tasks.signal(Some(rank.0), Signal::KILL);
                }
                Event::Output(Output::AbortJob { cause, message, .. }) => {
                    self.end(&format!("{cause}{}", behind(&message)));
                }
                Event::Output(Output::Peer { bytes, .. }) => {
                    if let Some(link) = &mut self.link
                        && link.send_peer(&bytes)?
                    {
                        host.input(Input::PeerBlocked { node: 0 })?;
                    }
                }
                Event::Output(Output::Spawn { spawn, rank, protocol, request, .. }) => {
                    self.spawn(host, (spawn, rank), protocol, request)?;
                }
                Event::Output(Output::RemoveFiles { paths, .. }) => self.step.user.remove(&paths),
                Event::Output(Output::Log { text, .. }) => {
                    String::from_utf8_lossy(&text).lines().for_each(self.print);
                }
                Event::Closed { conn, rank, why, .. } => self.closed(conn, rank, why),
                // The limits have none of the others, and who has joined is of no interest.
                Event::Output(_) | Event::Exited { .. } => {}
            }
        }
        Ok(())
    }

    /// Reports a connection that the server has closed for a reason that its rank does not know.
    fn closed(&self, conn: ConnId, rank: Option<Rank>, why: CloseReason) {
        if let CloseReason::Ended
        | CloseReason::NoHandshake
        | CloseReason::Backend(Closing::JobOver | Closing::Replaced) = why
        {
            return;
        }
        let whose = rank.map_or_else(|| format!("connection {}", conn.0), |rank| format!("rank {rank}"));
        (self.print)(&format!("hydrant: closed the connection of {whose}: {why}"));
    }
}

/// A message of a rank, behind what is said of it.
fn behind(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", message.trim_end()) }
}

/// Makes the pipe of notices. Returns the server's end and the other one.
pub(crate) fn notices() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    hydrant_reactor::pipe()
}

/// Sends the end of a task. A server that has ended needs none.
pub(crate) fn send_notice(to: impl AsFd, task: u32, status: i32) {
    while rustix::io::write(&to, &notice(task, status)) == Err(rustix::io::Errno::INTR) {}
}
