//! Server of a node: a thread with an event loop, which carries out what the server requires.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};

use hydrant_host::{CloseReason, Closing, ConnId, Event, Exit, Host, Input, JobId, Output, Port, Rank};
use hydrant_host::{Limits, Settings};
use hydrant_overlay::{Channel, LinkError};
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller};
use rustix::process::Signal;

use crate::message::{Layout, ToHead, ToNode, decode};
use crate::tasks::{Tasks, User, exit_of};
use crate::uplink::{LINK, Place, Uplink};

/// Time in milliseconds between SIGTERM and SIGKILL.
pub(crate) const KILL_TIMEOUT: u64 = 5_000;
/// Time in milliseconds between the reason and SIGTERM: srun drops output that arrives after the first task that a signal
/// ended.
const REASON_TIME: u64 = 300;
/// The only job.
const JOB: JobId = JobId(0);
const NOTICES: Key = KeyRange(0).key(0, 0);
/// Key of the library's descriptor.
const HOST: Key = KeyRange(0).key(2, 0);

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
    /// User of the tasks.
    pub(crate) user: User,
    /// The other nodes, if there are any.
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

/// Settings of a server of a step: one job, names and process sets of its own, no spawns. Nodes with tasks are counted from 1.
pub(crate) fn settings(size: u32, node: Option<(u32, u32)>) -> Settings {
    let settings = Settings::for_ranks(size);
    let limits = Limits { groups: 64, names: 64, psets: 64, ..settings.limits };
    let settings = Settings { limits, ..settings };
    match node {
        Some((number, nodes)) => settings.on_node(number, nodes + 1),
        None => settings,
    }
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
    /// None when the server knows the job.
    connections: Option<Connections>,
    /// Tasks that have ended before the server knew them.
    early: Vec<(u32, Exit)>,
}

/// Serves a node until the step is over.
pub(crate) fn serve(node: Node) {
    let Node { step, tasks, host, connections, notices, print } = node;
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
        match &self.step.place {
            None => {
                let Step { size, ref node, processors, .. } = self.step;
                self.begin(&mut host, &Layout::alone(size, node, processors))?;
            }
            Some(place) => {
                let mut link = Uplink::connect(place, self.clock, &self.poller)?;
                let ranks = self.tasks.0.iter().map(|task| task.rank).collect();
                let processors = self.step.processors;
                link.send(&ToHead::Ready { name: self.step.node.clone(), ranks, processors });
                self.link = Some(link);
            }
        }
        let mut keys = Vec::new();
        loop {
            self.events(&mut host)?;
            self.flush(&mut host)?;
            let timeout = self.clock.timeout([self.signal_at()]);
            self.poller.wait(timeout, &mut keys)?;
            if keys.contains(&LINK) {
                self.receive(&mut host)?;
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

    /// Starts the job when the nodes of all ranks are known.
    fn begin(&mut self, host: &mut Host, layout: &Layout) -> Result<(), ServerError> {
        let Some(Connections { sockets, port }) = self.connections.take() else {
            return Err(ServerError::Head);
        };
        host.register_job_as(JOB, &layout.job(&self.step.name))?;
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
