//! Spawned steps in srun: an srun for each, whose nodes connect to the head of the first step.
//!
//! The standard input of such a srun is a pipe, in which it says on how many nodes its step is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use hydrant_host::JobId;
use hydrant_reactor::{Interest, KeyRange, Poller};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::address::{Address, Place, SPAWNED};
use crate::message::{NotExecuted, Origin};
use crate::servers::{NODES_MAX, STEPS_MAX, Servers};
use crate::srun::{Refusal, Request, SpawnError, Srun, unblock_signals};

/// Says in standard input of this srun, a spawned step's, on how many nodes the step is.
pub(crate) fn say_nodes(nodes: u32) -> io::Result<()> {
    Ok(rustix::io::write(io::stdin(), &nodes.to_ne_bytes()).map(drop)?)
}

/// A spawned step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) request: Request,
    pub(crate) origin: Origin,
    /// Commands, for messages.
    commands: Vec<OsString>,
    srun: Child,
    /// Readable when srun has ended.
    process: OwnedFd,
    /// Number of nodes, as srun says it.
    nodes_pipe: OwnedFd,
    /// Numbers that are kept for its nodes. Their count is known from the time at which srun has placed the step.
    numbers: Range<u32>,
    nodes: Option<u32>,
    /// Time at which its nodes have to be there.
    last: Option<u64>,
    pub(crate) job: JobId,
    pub(crate) state: State,
    /// srun has ended.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The rank waits.
    Starting,
    /// Its job is registered.
    Running,
    Refused,
}

impl Step {
    /// Number of ranks.
    fn size(&self) -> u32 {
        self.origin.programs.iter().sum()
    }

    /// Numbers of its nodes, when srun has said how many there are.
    pub(crate) fn numbers(&self) -> Option<Range<u32>> {
        self.nodes.map(|nodes| self.numbers.start..self.numbers.start + nodes)
    }

    /// Numbers that are kept for its nodes.
    pub(crate) fn reserved(&self) -> Range<u32> {
        self.numbers.clone()
    }

    /// Whether its nodes should have connected by now.
    pub(crate) fn is_late(&self, now: u64) -> bool {
        self.last.is_some_and(|last| last <= now)
    }

    /// Refuses the spawn, unless that has been done.
    pub(crate) fn refuse(&mut self, why: SpawnError) -> Option<Refusal> {
        if self.state != State::Starting {
            return None;
        }
        self.state = State::Refused;
        if self.nodes.is_none() {
            // It waits for resources, and has no tasks that can be told to end.
            self.signal(Signal::TERM);
        }
        Some(match why {
            SpawnError::NotExecuted { at, .. } => self.request.refusal_of(at, why),
            _ => self.request.refusal(why),
        })
    }

    /// Refuses the spawn because a program cannot be executed.
    pub(crate) fn refuse_program(&mut self, NotExecuted { program, errno }: NotExecuted) -> Option<Refusal> {
        let at = usize::from(program);
        let command = self.commands.get(at).cloned().unwrap_or_default();
        self.refuse(SpawnError::NotExecuted { at, command, why: io::Error::from_raw_os_error(errno.into()) })
    }

    /// Signals srun, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.ended
            && let Some(pid) = Pid::from_raw(self.srun.id().cast_signed())
        {
            // It is this process's child, and has not been waited for.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The steps that ranks of a step have spawned, and those of these.
#[derive(Debug)]
pub(crate) struct SpawnedSteps {
    srun: Srun,
    servers: Servers,
    /// Address of the head.
    address: Address,
    /// Time in milliseconds for all nodes of a step to connect when it has been placed.
    join: u64,
    /// Keys of the pipes have the first kind, those of the processes the second one.
    keys: (KeyRange, u16, u16),
    steps: BTreeMap<u32, Step>,
    next: u32,
    /// Jobs that are over, and the nodes whose servers may still send of them.
    forgotten: BTreeMap<JobId, BTreeSet<u32>>,
}

impl SpawnedSteps {
    /// None so far. Their keys have two kinds.
    pub(crate) fn new(
        srun: Srun,
        servers: Servers,
        address: Address,
        join: u64,
        keys: (KeyRange, u16, u16),
    ) -> SpawnedSteps {
        let (steps, forgotten) = (BTreeMap::new(), BTreeMap::new());
        SpawnedSteps { srun, servers, address, join, keys, steps, next: 0, forgotten }
    }

    /// Whether the sruns of all steps have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.steps.values().all(|step| step.ended)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Step> {
        self.steps.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Step> {
        self.steps.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Step)> {
        self.steps.iter().map(|(&id, step)| (id, step))
    }

    /// The step that a number is kept for.
    pub(crate) fn with_number(&self, node: u32) -> Option<u32> {
        self.iter().find(|(_, step)| step.numbers.contains(&node)).map(|(id, _)| id)
    }

    /// Most connections of nodes.
    pub(crate) fn nodes_max(&self) -> usize {
        self.steps.values().map(|step| step.numbers.len()).sum()
    }

    /// Starts a step for a rank of the job of this name, beside the `first` ranks of the first step. Returns why nothing is
    /// started.
    pub(crate) fn start(
        &mut self,
        spawner: &str,
        first: u32,
        request: Request,
        poller: &Poller,
    ) -> Option<Refusal> {
        let (programs, hosts) = match self.srun.read_all(&request) {
            Ok(read) => read,
            Err(refusal) => return Some(*refusal),
        };
        let sizes: Vec<u32> = programs.iter().map(|program| program.ranks).collect();
        let size = sizes.iter().fold(0, |size: u32, ranks| size.saturating_add(*ranks));
        let used = self.steps.values().fold(first, |used, step| used.saturating_add(step.size()));
        let room = self.servers.ranks.saturating_sub(used);
        if size > room {
            return Some(request.refusal(SpawnError::Ranks { size, room }));
        }
        let Some((job, numbers)) = self.free_job().zip(self.free_numbers(size)) else {
            return Some(request.refusal(SpawnError::Full));
        };
        let origin = Origin {
            spawner: spawner.to_owned(),
            rank: request.call.rank,
            programs: sizes,
            pairs: request.pairs(),
        };
        let place = Place { servers: self.servers, first: numbers.start, spawner: spawner.to_owned() };
        let address = Address { spawned: Some(place), ..self.address.clone() };
        match self.start_srun(self.srun.command(&programs, &hosts), &address, poller) {
            Ok((srun, process, nodes_pipe)) => {
                let commands = programs.into_iter().map(|program| program.command).collect();
                let step = Step {
                    request,
                    origin,
                    commands,
                    srun,
                    process,
                    nodes_pipe,
                    numbers,
                    nodes: None,
                    last: None,
                    job,
                    state: State::Starting,
                    ended: false,
                };
                self.steps.insert(self.next, step);
                self.next = self.next.wrapping_add(1);
                None
            }
            Err(why) => Some(request.refusal(SpawnError::Start { srun: self.srun.program.clone(), why })),
        }
    }

    /// A number for the job of the next step. The first step's is 0.
    fn free_job(&self) -> Option<JobId> {
        let is_used = |job: &JobId| {
            self.forgotten.contains_key(job) || self.steps.values().any(|step| step.job == *job)
        };
        let mut jobs = (1..=2 * STEPS_MAX).map(JobId);
        jobs.find(|job| !is_used(job)).filter(|_| self.steps.len() < STEPS_MAX as usize)
    }

    /// Numbers for the nodes of the next step, whose tasks are so many.
    fn free_numbers(&self, size: u32) -> Option<Range<u32>> {
        let nodes = (self.srun.hosts.len() as u32).max(1).min(size).min(NODES_MAX);
        let all = self.servers.late();
        let is_free = |range: &Range<u32>| {
            !self.steps.values().any(|step| overlap(&step.numbers, range)) && range.end <= all.end
        };
        all.clone().map(|first| first..first + nodes).find(is_free)
    }

    /// Starts the srun of the next step. Returns it with its process and this end of its pipe.
    fn start_srun(
        &self,
        mut command: Command,
        address: &Address,
        poller: &Poller,
    ) -> io::Result<(Child, OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Ctrl-C is for the first srun, which ends the others.
        command.stdin(Stdio::from(write)).process_group(0).env(SPAWNED, address.to_text());
        unblock_signals(&mut command);
        let srun = command.spawn()?;
        let pid = Pid::from_raw(srun.id().cast_signed()).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (keys, of_pipe, of_process) = self.keys;
        poller.add(&read, keys.key(of_pipe, self.next), Interest::Read).map_err(Errno::from)?;
        poller.add(&process, keys.key(of_process, self.next), Interest::Read).map_err(Errno::from)?;
        Ok((srun, process, read))
    }

    /// Reads on how many nodes a step is. They have to connect from now on.
    pub(crate) fn placed(&mut self, id: u32, now: u64, poller: &Poller) -> Option<Refusal> {
        let step = self.steps.get_mut(&id)?;
        let mut bytes = [0; 4];
        match rustix::io::read(&step.nodes_pipe, &mut bytes) {
            Err(Errno::INTR) => return None,
            Ok(4) if step.nodes.is_none() => {
                let nodes = u32::from_ne_bytes(bytes);
                if nodes as usize > step.numbers.len() {
                    return step.refuse(SpawnError::Step(format!("Slurm has placed it on {nodes} nodes")));
                }
                (step.nodes, step.last) = (Some(nodes), Some(now + self.join));
            }
            // The end of its process follows.
            _ => poller.remove(&step.nodes_pipe),
        }
        None
    }

    /// The time at which nodes of a step have to be there.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let starting = self.steps.values().filter(|step| step.state == State::Starting);
        starting.filter_map(|step| step.last).min()
    }

    /// Takes the end of the srun of a step. Returns its status, unless it has been taken before.
    pub(crate) fn ended(&mut self, id: u32, poller: &Poller) -> Option<ExitStatus> {
        let step = self.steps.get_mut(&id).filter(|step| !step.ended)?;
        step.ended = true;
        poller.remove(&step.process);
        step.srun.wait().ok()
    }

    /// Removes a step that is over if its nodes are: it has ended, and none of them is connected.
    pub(crate) fn take_over(&mut self, is_there: impl Fn(u32) -> bool) -> Option<Step> {
        let is_over = |_: &u32, step: &mut Step| step.ended && !step.numbers.clone().any(&is_there);
        self.steps.extract_if(.., is_over).next().map(|(_, step)| step)
    }

    /// Waits until the servers of these nodes have forgotten a job, before another one has its number.
    pub(crate) fn forget(&mut self, job: JobId, nodes: BTreeSet<u32>) {
        if !nodes.is_empty() {
            self.forgotten.insert(job, nodes);
        }
    }

    /// A server has forgotten a job, or all of them if it is gone.
    pub(crate) fn forgot(&mut self, job: Option<JobId>, node: u32) {
        self.forgotten.retain(|known, nodes| {
            if job.is_none_or(|job| job == *known) {
                nodes.remove(&node);
            }
            !nodes.is_empty()
        });
    }

    /// The first step ends. Returns the spawns that are refused.
    pub(crate) fn end(&mut self) -> Vec<Refusal> {
        self.steps.values_mut().filter_map(|step| step.refuse(SpawnError::Ending)).collect()
    }

    /// Signals the sruns that run.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.steps.values_mut().for_each(|step| step.signal(signal));
    }
}

fn overlap(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use hydrant_overlay::Ticket;

    use super::*;
    use crate::srun::tests::{request, srun};

    /// Steps of a srun that ends at once.
    fn steps() -> (SpawnedSteps, Poller) {
        let srun = Srun { program: "/bin/true".into(), ..srun("") };
        let address = Address { port: 1, ticket: Ticket::random().unwrap(), spawned: None };
        let servers = Servers { nodes: 3, ranks: 20 };
        (SpawnedSteps::new(srun, servers, address, 1_000, (KeyRange(0), 5, 6)), Poller::new().unwrap())
    }

    #[test]
    fn numbers_are_free_when_a_step_is_over_and_its_job_forgotten() {
        let (mut steps, poller) = steps();
        let start = |steps: &mut SpawnedSteps| {
            assert!(steps.start("job", 3, request(&[("p", 8, "")], 0), &poller).is_none());
            let (id, step) = steps.iter().last().unwrap();
            (id, step.job, step.reserved())
        };
        let (first, job, numbers) = start(&mut steps);
        assert_eq!((job, numbers.clone()), (JobId(1), 4..7));
        let (_, _, others) = start(&mut steps);
        assert_eq!(others, 7..10);
        let refused = steps.start("job", 3, request(&[("p", 2, "")], 0), &poller).unwrap();
        assert!(matches!(refused.why, SpawnError::Ranks { size: 2, room: 1 }), "{}", refused.why);
        while steps.ended(first, &poller).is_none() {}
        assert!(steps.take_over(|node| node == 5).is_none(), "a node is still there");
        let over = steps.take_over(|node| node > 6).unwrap();
        assert_eq!(over.job, job);
        steps.forget(job, [1, 2].into());
        assert_eq!(start(&mut steps), (first + 2, JobId(3), numbers));
        steps.forgot(Some(job), 1);
        assert_eq!(steps.free_job(), Some(JobId(4)));
        steps.forgot(None, 2);
        assert_eq!(steps.free_job(), Some(job));
    }
}
