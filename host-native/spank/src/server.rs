//! Server of a node: a thread with an event loop, which carries out what the server requires.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};

use hydrant_core::trace::{Closing, Exit};
use hydrant_core::{Backend, ConnId, Input, JobId, JobSpec, Limits, OwnedOutput, Rank};
use hydrant_driver::{BackendError, CloseReason, Driver, Event, OVERRUN};
use hydrant_overlay::{Channel, LinkError};
use hydrant_placement::process_mapping;
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller, random_u32};
use rustix::process::Signal;

use crate::engine::Engine;
use crate::message::{ToHead, ToNode, decode};
use crate::tasks::{Tasks, exit_of};
use crate::uplink::{LINK, Place, Uplink};

/// Time in milliseconds between SIGTERM and SIGKILL.
pub(crate) const KILL_TIMEOUT: u64 = 5_000;
/// Time in milliseconds between the reason and SIGTERM: srun drops output that arrives after the first task that a signal
/// ended.
const REASON_TIME: u64 = 300;
/// The only job.
pub(crate) const JOB: JobId = JobId(0);
const NOTICES: Key = KeyRange(0).key(0, 0);
const CLIENTS: KeyRange = KeyRange(1);

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
    Backend(#[from] BackendError),
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    #[error(transparent)]
    Mapping(#[from] hydrant_placement::PlacementError),
    #[error("the link to srun: {0}")]
    Link(#[from] LinkError),
    #[error("the head in srun sent an invalid message")]
    Head,
}

impl From<hydrant_driver::Error> for ServerError {
    fn from(error: hydrant_driver::Error) -> ServerError {
        match error {
            hydrant_driver::Error::Backend(error) => ServerError::Backend(error),
            hydrant_driver::Error::System(error) => ServerError::System(error),
        }
    }
}

/// Limits of the server of a step: one job, names and process sets of its own, no spawns, no PMIx. `nodes` is the number of
/// nodes if there are several, otherwise 0.
pub(crate) fn limits(size: u32, nodes: u32) -> Limits {
    let kvs_bytes = (u64::from(size) << 16).min(u64::from(u32::MAX) / 4 * 3) as u32;
    Limits {
        jobs: 1,
        ranks: size,
        conns: size,
        keys: size.saturating_mul(64),
        kvs_bytes,
        groups: 64,
        names: 64,
        psets: 64,
        links: nodes,
        ..Limits::NONE
    }
}

/// Passes the job to a server. `runs` holds all ranks in order: number of the node and number of consecutive ranks on it.
pub(crate) fn describe(
    name: &str,
    runs: &[(u32, u32)],
    is_cluster: bool,
    mut handle: impl FnMut(Input<'_>) -> Result<(), BackendError>,
) -> Result<(), ServerError> {
    let size = runs.iter().fold(0, |size: u32, &(_, count)| size.saturating_add(count));
    // As Slurm says of a step: it cannot grow.
    handle(Input::RegisterJob(JobSpec { universe_size: Some(size), ..JobSpec::new(JOB, name, size) }))?;
    let mut first = 0;
    for &(node, count) in runs.iter().filter(|_| is_cluster) {
        handle(Input::MapRanks { job: JOB, first: Rank(first), count, node })?;
        first = first.saturating_add(count);
    }
    // MPI libraries count nodes from 0, and node 0 has no ranks here.
    let hosts: Vec<(u32, u32)> = runs.iter().map(|&(node, count)| (node.saturating_sub(1), count)).collect();
    let mapping = process_mapping(&hosts)?;
    handle(Input::Attr { job: JOB, key: b"PMI_process_mapping", value: mapping.as_bytes() })?;
    Ok(())
}

/// What a node has of a step when its tasks have been forked.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) step: Step,
    pub(crate) tasks: Tasks,
    /// Server's ends of the connections, in the order of the tasks.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Ends of tasks come here. The other end is closed when the step is over.
    pub(crate) notices: OwnedFd,
    pub(crate) print: Print,
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
    /// Server's ends of the connections, until the server knows the job.
    sockets: Vec<OwnedFd>,
    begun: bool,
    /// Tasks that have ended before the server knew them.
    early: Vec<(u32, Exit)>,
}

/// Serves a node until the step is over.
pub(crate) fn serve(node: Node, engine: &Engine) {
    let Node { step, tasks, sockets, notices, print } = node;
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
        sockets: Vec::new(),
        begun: false,
        early: Vec::new(),
    };
    let served = panic::catch_unwind(AssertUnwindSafe(|| watch.run(sockets, engine)));
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
    fn run(&mut self, sockets: Vec<OwnedFd>, engine: &Engine) -> Result<(), ServerError> {
        let nodes = self.step.place.as_ref().map_or(0, |place| place.nodes);
        let limits = limits(self.step.size, nodes);
        let mut driver = Driver::new(engine.server(limits, random_u32()?)?, CLIENTS);
        self.sockets = sockets;
        match &self.step.place {
            None => self.begin(&mut driver, &[(1, self.step.size)])?,
            Some(place) => {
                let (node, nodes) = (place.node, place.nodes + 1);
                let mut link = Uplink::connect(place, self.clock, &self.poller)?;
                let ranks = self.tasks.0.iter().map(|task| task.rank).collect();
                link.send(&ToHead::Ready { name: self.step.node.clone(), ranks });
                self.link = Some(link);
                driver.handle(self.now(), Input::Node { node, nodes, radix: nodes - 1 })?;
            }
        }
        let mut keys = Vec::new();
        loop {
            self.outputs(&mut driver)?;
            self.flush(&mut driver)?;
            let timeout = self.clock.timeout([driver.poll_at(), self.signal_at()]);
            self.poller.wait(timeout, &mut keys)?;
            for &key in keys.iter().filter(|&&key| key != NOTICES) {
                if key == LINK {
                    self.receive(&mut driver)?
                } else {
                    driver.ready(key, self.now(), &self.poller)?
                }
                self.outputs(&mut driver)?;
            }
            driver.handle_timeout(self.now())?;
            self.handle_timeout();
            // Last, after the bytes that a task sent before its end.
            if keys.contains(&NOTICES) {
                let Some(ended) = self.read_notices()? else { return self.close() };
                for (rank, exit) in ended {
                    self.ended(&mut driver, rank, exit)?;
                }
            }
        }
    }

    /// Starts the job when the nodes of all ranks are known.
    fn begin(&mut self, driver: &mut Driver<dyn Backend>, runs: &[(u32, u32)]) -> Result<(), ServerError> {
        let now = self.now();
        describe(&self.step.name, runs, self.step.place.is_some(), |input| driver.handle(now, input))?;
        let sockets = std::mem::take(&mut self.sockets);
        for (socket, task) in sockets.into_iter().zip(&self.tasks.0) {
            driver.open(socket, JOB, Rank(task.rank), now, &self.poller)?;
        }
        self.begun = true;
        for (rank, exit) in std::mem::take(&mut self.early) {
            self.ended(driver, rank, exit)?;
        }
        Ok(())
    }

    /// Takes messages of the head.
    fn receive(&mut self, driver: &mut Driver<dyn Backend>) -> Result<(), ServerError> {
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
                    let taken = driver.handle(self.now(), Input::Peer { node: 0, bytes: &bytes });
                    taken.map_err(
                        |error| if error.fault().is_some() { ServerError::Head } else { error.into() },
                    )?;
                    self.outputs(driver)?;
                }
                (Channel::Control, Some(ToNode::Ranks(runs))) if !self.begun => self.begin(driver, &runs)?,
                (Channel::Control, Some(ToNode::End)) => {
                    self.ending.get_or_insert((Signal::TERM, self.clock.now()));
                }
                _ => return Err(ServerError::Head),
            }
        }
        Ok(())
    }

    /// Writes to the head.
    fn flush(&mut self, driver: &mut Driver<dyn Backend>) -> Result<(), ServerError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.flush(&self.poller)? {
            driver.handle(self.now(), Input::PeerWritable { node: 0 })?;
            self.outputs(driver)?;
        }
        if let Some(link) = &mut self.link {
            link.flush(&self.poller)?;
        }
        Ok(())
    }

    /// Reports the end of a task, behind its last bytes.
    fn ended(&mut self, driver: &mut Driver<dyn Backend>, rank: u32, exit: Exit) -> Result<(), ServerError> {
        if !self.begun {
            self.early.push((rank, exit));
            return Ok(());
        }
        driver.exited(JOB, Rank(rank), exit, self.now())?;
        self.outputs(driver)
    }

    /// Carries out all that the server requires.
    fn outputs(&mut self, driver: &mut Driver<dyn Backend>) -> Result<(), ServerError> {
        while let Some(event) = driver.poll(self.now(), &self.poller)? {
            match event {
                Event::Output(OwnedOutput::KillRank { rank, code, message, .. }) => {
                    let code = code.map_or(String::new(), |code| format!(" with code {code}"));
                    (self.print)(&format!("hydrant: rank {rank} ends itself{code}{}", behind(&message)));
                    self.tasks.signal(Some(rank.0), Signal::KILL);
                }
                Event::Output(OwnedOutput::AbortJob { cause, message, .. }) => {
                    self.end(&format!("{cause}{}", behind(&message)));
                }
                Event::Closed { conn, rank, why, .. } => self.closed(conn, rank, why),
                Event::Output(OwnedOutput::Peer { bytes, .. }) => {
                    if let Some(link) = &mut self.link
                        && link.send_peer(&bytes)?
                    {
                        driver.handle(self.clock.now(), Input::PeerBlocked { node: 0 })?;
                    }
                }
                // The limits have none of the others, and who has joined is of no interest.
                Event::Output(_) => {}
            }
        }
        Ok(())
    }

    /// Reports a connection that the server has closed for a reason that its rank does not know.
    fn closed(&self, conn: ConnId, rank: Option<Rank>, why: CloseReason) {
        let why = match why {
            CloseReason::Overrun => OVERRUN.to_owned(),
            CloseReason::Backend(Closing::Unserved) => {
                "it asks for PMIx, and srun --hydrant serves PMI-1 and PMI-2".to_owned()
            }
            CloseReason::Backend(why @ (Closing::Malformed(_) | Closing::Refused)) => why.to_string(),
            _ => return,
        };
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
