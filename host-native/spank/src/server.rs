//! Server of a node: a thread with an event loop, which carries out what the server requires.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};

use hydrant_control::protocol::is_shared_request;
use hydrant_core::OwnedInput;
use hydrant_host::{
    CloseReason, Closing, ConnId, Event, Exit, Fault, Host, Input, JobId, Output, Port, Rank,
};
use hydrant_overlay::{Channel, LinkError};
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller};
use rustix::process::Signal;

use crate::message::{Call, FIRST, Layout, NotExecuted, Ready, Registration, ToHead, ToNode, decode};
use crate::tasks::{Tasks, User, exit_of};
use crate::uplink::{LINK, Place, Uplink};

/// Time in milliseconds between SIGTERM and SIGKILL.
pub(crate) const KILL_TIMEOUT: u64 = 5_000;
/// Time in milliseconds between the reason and SIGTERM: srun drops output that arrives after the first task that a signal
/// ended.
const REASON_TIME: u64 = 300;
/// Code of a request that nothing has answered: `PMI2_FAIL` of pmi2.h.
const FAIL: i32 = -1;
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
    #[error("the names that ranks publish: {0}")]
    Names(#[from] hydrant_names::NameServiceError),
    #[error("the server of names: {0}")]
    NameServer(#[from] hydrant_driver::OwnedServerError),
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
    /// Number of the tasks' job.
    job: JobId,
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
        job: FIRST,
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
            let Step { ref name, size, ref node, processors, universe, .. } = self.step;
            let layout = Layout { universe, ..Layout::alone(0, size, node, processors) };
            let registration = Registration { job: FIRST, name: name.clone(), layout, spawn: None };
            self.register(&mut host, &registration)?;
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
        let Step { name: job, node: name, processors, .. } = &self.step;
        link.send(&ToHead::Ready(Ready {
            job: job.clone(),
            name: name.clone(),
            ranks,
            processors: *processors,
            not_executed: self.not_executed,
            refused: None,
        }));
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

    /// Passes a request to the head, to which this node is connected then. Returns why not, if that is so.
    fn pass_on(&mut self, message: &ToHead) -> Result<(), String> {
        match (&self.link, &self.step.place) {
            _ if self.ending.is_some() => return Err("the step ends".to_owned()),
            (None, None) => return Err("srun has passed no address of its head".to_owned()),
            (None, Some(_)) => {
                self.connect().map_err(|error| error.to_string())?;
                self.say_ready();
            }
            (Some(_), _) => {}
        }
        self.link.iter_mut().for_each(|link| link.send(message));
        Ok(())
    }

    /// Has the head carry out a spawn.
    fn spawn(&mut self, host: &mut Host, call: Call) -> Result<(), ServerError> {
        let (spawn, rank, programs) = (call.upcall, call.rank, call.programs());
        match self.pass_on(&ToHead::Spawn(call)) {
            Ok(()) => self.spawned += 1,
            Err(why) => {
                (self.print)(&format!("hydrant: nothing is spawned for rank {rank}: {why}"));
                host.spawn_complete(spawn, false, &vec![libc::EHOSTUNREACH as u8; programs])?;
            }
        }
        Ok(())
    }

    /// Has the head carry out a request.
    fn upcall(&mut self, host: &mut Host, call: Call) -> Result<(), ServerError> {
        let upcall = call.upcall;
        if let Err(why) = self.pass_on(&ToHead::Upcall(call)) {
            host.input(Input::UpcallComplete { upcall, rc: FAIL, text: why.as_bytes() })?;
        }
        Ok(())
    }

    /// Registers a job, that of the tasks among them, which it serves from now on.
    fn register(&mut self, host: &mut Host, registration: &Registration) -> Result<(), ServerError> {
        registration.apply(host, self.step.place.is_some())?;
        if registration.name != self.step.name {
            return Ok(());
        }
        let Some(Connections { sockets, port }) = self.connections.take() else {
            return Err(ServerError::Head);
        };
        self.job = registration.job;
        host.adopt_port(self.job, port)?;
        for (socket, task) in sockets.into_iter().zip(&self.tasks.0) {
            host.adopt_socket(self.job, Rank(task.rank), socket)?;
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
            match channel {
                Channel::Peer => self.take_peer(host, &bytes)?,
                Channel::Control => self.take(host, decode(&bytes).ok_or(ServerError::Head)?)?,
                _ => return Err(ServerError::Head),
            }
            self.events(host)?;
        }
        Ok(())
    }

    /// Takes a message of another node's server. The root gets those of all others, which the head passes on with their numbers.
    fn take_peer(&mut self, host: &mut Host, bytes: &[u8]) -> Result<(), ServerError> {
        let (from, bytes) = match bytes.split_first_chunk() {
            Some((from, bytes)) if self.is_root() => (u32::from_le_bytes(*from), bytes),
            _ => (0, bytes),
        };
        host.peer(from, bytes).map_err(of_head)
    }

    /// Takes an order of the head.
    fn take(&mut self, host: &mut Host, order: ToNode) -> Result<(), ServerError> {
        match order {
            ToNode::Register(registration) => self.register(host, &registration)?,
            ToNode::Deregister(job) => {
                host.deregister_job(job).map_err(of_head)?;
                self.events(host)?;
                self.link.iter_mut().for_each(|link| link.send(&ToHead::Deregistered(job)));
            }
            ToNode::Input(input) => self.apply(host, &input)?,
            ToNode::Asked { upcall, input } if is_shared_request(&input) => {
                let (rc, text) = match result_of(host.input(input.view()))? {
                    Ok(()) => (0, String::new()),
                    Err(Fault::Refused(why)) => (why.rc(), why.to_string()),
                    Err(fault) => (FAIL, fault.to_string()),
                };
                let _ = result_of(host.input(Input::UpcallComplete { upcall, rc, text: text.as_bytes() }))?;
            }
            ToNode::Asked { .. } => return Err(ServerError::Head),
            ToNode::End => {
                self.ending.get_or_insert((Signal::TERM, self.clock.now()));
            }
            ToNode::SpawnedOver => self.spawned = self.spawned.saturating_sub(1),
        }
        Ok(())
    }

    /// Applies an input of the head, which is a process of the user: one of those that a head gives.
    fn apply(&mut self, host: &mut Host, input: &OwnedInput) -> Result<(), ServerError> {
        match input {
            OwnedInput::NodeJoined { .. } | OwnedInput::NodeLost { .. } => {
                host.input(input.view()).map_err(of_head)
            }
            OwnedInput::UpcallComplete { .. }
            | OwnedInput::PeerBlocked { .. }
            | OwnedInput::PeerWritable { .. }
            | OwnedInput::SpawnComplete { .. } => {
                if matches!(input, OwnedInput::SpawnComplete { started: false, .. }) {
                    self.spawned = self.spawned.saturating_sub(1);
                }
                // What the input is about may be gone.
                result_of(host.input(input.view())).map(drop)
            }
            // A request of a rank may be refused.
            _ if is_shared_request(input) => result_of(host.input(input.view())).map(drop),
            _ => Err(ServerError::Head),
        }
    }

    /// Whether this node's server is the root.
    fn is_root(&self) -> bool {
        self.step.place.as_ref().is_some_and(|place| place.number == 0)
    }

    /// Writes to the head.
    fn flush(&mut self, host: &mut Host) -> Result<(), ServerError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        for node in link.flush(&self.poller)? {
            host.input(Input::PeerWritable { node })?;
        }
        self.events(host)?;
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
        let (job, rank) = (self.job, Rank(rank));
        host.exited(job, rank, exit)?;
        self.link.iter_mut().for_each(|link| link.send(&ToHead::Exited { job, rank }));
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
                Event::Output(Output::Peer { node, bytes }) => {
                    // The head passes messages of the root on.
                    let bytes =
                        if self.is_root() { [&node.to_le_bytes(), &bytes[..]].concat() } else { bytes };
                    if let Some(link) = &mut self.link
                        && link.send_peer(node, &bytes)?
                    {
                        host.input(Input::PeerBlocked { node })?;
                    }
                }
                Event::Output(Output::Spawn { spawn: upcall, job, rank, protocol, request }) => {
                    self.spawn(host, Call { upcall, job, rank, protocol, request })?;
                }
                Event::Output(Output::Upcall { upcall, job, rank, protocol, request }) => {
                    self.upcall(host, Call { upcall, job, rank, protocol, request })?;
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

/// Error of a server that refuses what the head has it do.
fn of_head(error: hydrant_host::Error) -> ServerError {
    match error.fault() {
        Some(_) => ServerError::Head,
        None => error.into(),
    }
}

/// Separates what a server refuses from its failure.
fn result_of(result: Result<(), hydrant_host::Error>) -> Result<Result<(), Fault>, ServerError> {
    match result {
        Ok(()) => Ok(Ok(())),
        Err(error) => error.fault().map(Err).ok_or(error.into()),
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
