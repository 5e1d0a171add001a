//! A step in slurmstepd, from its options to its end.

use std::ffi::{CStr, CString, OsStr};
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hydrant_host::{Host, Plugin, Port, Rank, Settings, Speaks, is_foreign_variable};
use hydrant_overlay::Ticket;
use hydrant_placement::hostlist;
use hydrant_reactor::process::{check_executable, find_in_path};
use hydrant_reactor::signals::with_all_blocked;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::address::{Address, SPAWNED};
use crate::arguments::{ArgumentError, Arguments};
use crate::head::{self, Head};
use crate::message::{Layout, spawned_by};
use crate::server::{self, Connections, Node, notices, send_notice, serve};
use crate::servers::{NODES_MAX, Servers};
use crate::spank::{self, Item, SlurmError, Spank};
use crate::spawned::{SpawnedSteps, say_nodes};
use crate::srun::{PROGRAMS, Srun, program_of};
use crate::tasks::{Pair, Task, Tasks, User, keep_on_exec};
use crate::uplink::{self, Place};

/// Why a step is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    #[error(transparent)]
    Host(#[from] hydrant_host::Error),
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    #[error("--hydrant serves steps on up to {NODES_MAX} nodes, and this one is on {0}")]
    Nodes(u32),
    #[error(
        "--hydrant serves no heterogeneous steps: give srun one component, or use `hydrant run` in the allocation"
    )]
    Heterogeneous,
    #[error("srun has passed no address of its head; it needs the same line in plugstack.conf as the nodes")]
    NoHead,
    #[error(transparent)]
    Random(#[from] hydrant_reactor::Error),
    #[error("{SPAWNED} is for sruns that hydrant starts")]
    Spawned,
    #[error("the step is not served")]
    Refused,
    #[error("task {0} is unknown")]
    Task(u32),
}

/// Variable that srun passes to slurmstepd, and slurmstepd not to tasks: the [`Address`] of the head.
const HEAD: &CStr = c"HYDRANT_STEP_HEAD";

/// What is known of the step so far. Only the main thread of slurmstepd locks it, so it is free after each fork.
static STATE: Mutex<State> = Mutex::new(State::Unused);

/// Value of `--hydrant`.
static CHOSEN: Mutex<Option<String>> = Mutex::new(None);

enum State {
    /// The step has no `--hydrant`.
    Unused,
    /// The step cannot be served. The error is there until it has been printed.
    Refused(Option<StepError>),
    /// Tasks are being started.
    Starting(Box<Starting>),
    /// The server's thread runs.
    Serving { thread: JoinHandle<()>, notices: OwnedFd, held: OwnedFd, running: usize },
    /// srun has the port of the head.
    Listening(Listening),
    /// srun has the head.
    Leading { thread: JoinHandle<()>, stop: OwnedFd },
    /// srun of a spawned step, whose head is that of the first step.
    Led,
}

struct Listening {
    /// Value of `--hydrant`.
    server: String,
    listener: TcpListener,
    address: Address,
    join: Duration,
}

struct Starting {
    step: server::Step,
    host: Host,
    port: Port,
    /// Ranks and connections by number of the task.
    ranks: Vec<u32>,
    pairs: Vec<Pair>,
    tasks: Vec<Task>,
    /// Both ends of the pipe that tells whether tasks of a spawned step can execute the program. Exec closes it.
    execs: Option<(OwnedFd, OwnedFd)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records `--hydrant` with its value.
pub(crate) fn choose(value: &str) {
    *lock(&CHOSEN) = Some(value.to_owned());
}

/// Checks the value of `--hydrant` in srun, where a mistake costs least. Opens the port of the head, because Slurm copies the
/// environment for the nodes before it knows their number.
pub(crate) fn check(arguments: &Arguments) -> Result<(), StepError> {
    let Some(value) = lock(&CHOSEN).clone() else { return Ok(()) };
    arguments.server(&value)?;
    let (state, address) = match std::env::var(SPAWNED) {
        Ok(text) => (State::Led, Address::from_text(&text).ok_or(StepError::Spawned)?),
        Err(_) => {
            let ticket = Ticket::random()?;
            let (listener, port) = head::listen().map_err(|error| StepError::System("listen", error))?;
            let address = Address { port, ticket, spawned: None };
            let listening =
                Listening { server: value, listener, address: address.clone(), join: arguments.join };
            (State::Listening(listening), address)
        }
    };
    // SAFETY: Slurm itself sets variables in this phase, on this thread, and reads them for the nodes.
    unsafe {
        std::env::remove_var(SPAWNED);
        std::env::set_var(OsStr::from_bytes(HEAD.to_bytes()), address.to_text());
    }
    *lock(&STATE) = state;
    Ok(())
}

/// Prepares a step with `--hydrant`, before Slurm gives up its rights and forks. Slurm would write an error of this call to
/// slurmd's log only: [`report`] prints it.
pub(crate) fn prepare(spank: Spank, arguments: &Arguments) {
    let Some(value) = lock(&CHOSEN).clone() else { return };
    *lock(&STATE) = match starting(spank, arguments, &value) {
        Ok(starting) => State::Starting(Box::new(starting)),
        Err(error) => State::Refused(Some(error)),
    };
}

/// Says why a step cannot be served, now that its standard error is srun's: to the head, which ends the tasks of the other nodes,
/// or without one on standard error. The tasks here fail, because srun exits with 0 after an error of this call.
pub(crate) fn report(spank: Spank) {
    if let State::Refused(error) = &mut *lock(&STATE)
        && let Some(error) = error.take()
        && (matches!(error, StepError::Heterogeneous) || !tell_head(spank, &error))
    {
        spank::print(&format!("hydrant: {error}"));
    }
}

/// Tells the head why this node does not serve its tasks. Returns false if it does not wait for the node.
fn tell_head(spank: Spank, error: &StepError) -> bool {
    let (Ok(Some(place)), Ok(count)) = (place(spank), spank.item(Item::LocalTasks)) else { return false };
    if !place.is_led() {
        return false;
    }
    let Ok(ranks) = (0..count).map(|task| spank.rank(task)).collect() else { return false };
    let name = node_name(spank);
    let why = format!("{name} does not serve its tasks: {error}");
    uplink::refuse(&place, name, ranks, why).is_ok()
}

/// Starts the head of a step, in srun before the tasks start. Slurm calls this once for each component of a heterogeneous step.
pub(crate) fn lead(spank: Spank) -> Result<(), StepError> {
    let mut state = lock(&STATE);
    let listening = match std::mem::replace(&mut *state, State::Unused) {
        State::Unused => return Ok(()),
        State::Led => {
            return say_nodes(nodes(spank)?).map_err(|error| StepError::System("standard input", error));
        }
        State::Listening(listening) => listening,
        other => {
            *state = other;
            return Err(StepError::Heterogeneous);
        }
    };
    let Listening { server, listener, address, join } = listening;
    let nodes = nodes(spank)?;
    let (read, write) = notices().map_err(|errno| StepError::System("pipe", errno.into()))?;
    let ticket = address.ticket.clone();
    let name = job_name(spank, &ticket.id())?;
    let variable = |name: &CStr| std::env::var_os(OsStr::from_bytes(name.to_bytes()))?.into_string().ok();
    let (hosts, universe) = (step_hosts(variable), universe(variable));
    let system = |call| move |error| StepError::System(call, error);
    let srun = Srun {
        program: std::env::current_exe().map_err(system("the program file of srun"))?,
        job: spank.item(Item::JobId)?,
        server,
        env: std::env::vars_os().filter(|(name, _)| !is_foreign_variable(name.as_bytes())).collect(),
        directory: std::env::current_dir().map_err(system("getcwd"))?,
        hosts: allocation(variable),
    };
    let servers = Servers::of(nodes, spank.item(Item::TotalTasks)?, universe);
    let millis = u64::try_from(join.as_millis()).unwrap_or(u64::MAX);
    let spawned = SpawnedSteps::new(srun, servers, address, millis, (head::KEYS, head::SPAWNED, head::SRUN));
    let stop_srun = || {
        // What a user does who waits for srun. A process can signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let (stop, print) = (read, spank::print);
    let head =
        Head { name, servers, hosts, universe, ticket, listener, join, stop, print, stop_srun, spawned };
    let builder = thread::Builder::new().name("hydrant".to_owned());
    let thread = with_all_blocked(|| builder.spawn(move || head::lead(head)));
    let thread = thread.map_err(system("cannot start a thread"))?;
    *state = State::Leading { thread, stop: write };
    Ok(())
}

/// Returns the name of the job for clients. MPI libraries name shared memory after it, which may be left over from a step of
/// the same numbers, so `unique` is part of it.
fn job_name(spank: Spank, unique: &str) -> Result<String, StepError> {
    Ok(format!("slurm_{}_{}_{unique}", spank.item(Item::JobId)?, spank.item(Item::StepId)?))
}

/// Returns the number of nodes of the step, if it is served.
fn nodes(spank: Spank) -> Result<u32, StepError> {
    match spank.item(Item::Nodes)? {
        nodes @ 1..=NODES_MAX => Ok(nodes),
        nodes => Err(StepError::Nodes(nodes)),
    }
}

/// Returns the place of this node. A step on one node without a head has none.
fn place(spank: Spank) -> Result<Option<Place>, StepError> {
    let nodes = nodes(spank)?;
    let Some(head) = spank.variable(HEAD) else {
        return if nodes == 1 { Ok(None) } else { Err(StepError::NoHead) };
    };
    let Address { port, ticket, spawned } = Address::from_text(&head).ok_or(StepError::NoHead)?;
    // The address at which Slurm itself reaches srun, mostly a number.
    let host = spank.variable(c"SLURM_SRUN_COMM_HOST").ok_or(StepError::NoHead)?;
    let addresses = (host.as_str(), port).to_socket_addrs();
    let head = addresses.map_err(|error| StepError::System("the address of srun", error))?.next();
    let (head, node) = (head.ok_or(StepError::NoHead)?, spank.item(Item::Node)?);
    let (servers, number, spawner) = match spawned {
        Some(place) => (place.servers, place.first.saturating_add(node), Some(place.spawner)),
        None => {
            let servers = first_servers(spank, nodes)?;
            (servers, servers.number(node), None)
        }
    };
    Ok(Some(Place { servers, number, nodes, head, ticket, spawner }))
}

/// All servers, as a node of the first step knows them.
fn first_servers(spank: Spank, nodes: u32) -> Result<Servers, StepError> {
    Ok(Servers::of(nodes, spank.item(Item::TotalTasks)?, universe(|name| spank.variable(name))))
}

/// Loads the plugin and makes the connections of all tasks.
fn starting(spank: Spank, arguments: &Arguments, value: &str) -> Result<Starting, StepError> {
    let size = spank.item(Item::TotalTasks)?;
    // The items are those of a component, and the variable is that of the step.
    if spank.variable(c"SLURM_STEP_NUM_TASKS").is_some_and(|all| all != size.to_string()) {
        return Err(StepError::Heterogeneous);
    }
    let place = place(spank)?;
    let unique = match &place {
        Some(place) => place.ticket.id(),
        None => Ticket::random()?.id(),
    };
    let count = spank.item(Item::LocalTasks)?;
    let user = User { user: spank.item(Item::User)?, group: spank.item(Item::Group)? };
    let step = server::Step {
        name: job_name(spank, &unique)?,
        node: node_name(spank),
        size,
        processors: processors(spank),
        universe: universe(|name| spank.variable(name)),
        user,
        place,
    };
    // Compiled code is loaded with the rights of root, so neither file nor folder is the user's choice. Signals are Slurm's in
    // this process.
    let plugin = arguments.server(value)?.map(|file| Plugin {
        cache: arguments.cache.clone(),
        call: arguments.call,
        signal_handlers: false,
        ..Plugin::new(file)
    });
    let (servers, number) = match &step.place {
        Some(place) => (place.servers, place.number),
        None => (first_servers(spank, 1)?, 0),
    };
    let host = Host::open(&Settings { plugin, ..servers.settings(number, step.size) })?;
    let port = Port::open((Ipv4Addr::LOCALHOST, 0).into(), Speaks::Pmix)?.for_user(user.user);
    let ranks = (0..count).map(|task| spank.rank(task)).collect::<Result<_, _>>()?;
    let pairs = (0..count).map(|_| Pair::new()).collect::<Result<_, _>>();
    let pairs = pairs.map_err(|errno| StepError::System("socketpair", errno.into()))?;
    let is_spawned = step.place.as_ref().is_some_and(|place| place.spawner.is_some());
    let execs = is_spawned.then(hydrant_reactor::pipe).transpose();
    let execs = execs.map_err(|errno| StepError::System("pipe", errno.into()))?;
    Ok(Starting { step, host, port, ranks, pairs, tasks: Vec::new(), execs })
}

/// Returns the number of processors for the step on this node.
fn processors(spank: Spank) -> u32 {
    let installed = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let allocated = spank.variable(c"SLURM_CPUS_ON_NODE").and_then(|number| number.parse().ok());
    allocated.map_or(installed, |allocated: u32| allocated.min(installed))
}

/// Returns the name of this node, or its number if Slurm does not say the name.
fn node_name(spank: Spank) -> String {
    let Ok(node) = spank.item(Item::Node) else { return "this node".to_owned() };
    let names = step_hosts(|name| spank.variable(name));
    names.get(node as usize).cloned().unwrap_or_else(|| format!("node {node}"))
}

/// Returns the names of the step's nodes in order, none if the variables do not say them.
fn step_hosts(variable: impl Fn(&CStr) -> Option<String>) -> Vec<String> {
    let list = [c"SLURM_STEP_NODELIST", c"SLURM_NODELIST"].into_iter().find_map(variable);
    list.and_then(|list| hostlist::expand(&list).ok()).unwrap_or_default()
}

/// Returns the number of tasks for which the allocation has processors, none if the variables do not say it.
fn universe(variable: impl Fn(&CStr) -> Option<String>) -> Option<u32> {
    let processors = hostlist::expand_counts(&variable(c"SLURM_JOB_CPUS_PER_NODE")?).ok()?;
    let of_task = variable(c"SLURM_CPUS_PER_TASK").and_then(|number| number.parse().ok()).unwrap_or(1).max(1);
    Some(processors.iter().fold(0, |tasks: u32, processors| tasks.saturating_add(processors / of_task)))
}

/// Returns the nodes of the allocation, none if the variables do not say them.
fn allocation(variable: impl Fn(&CStr) -> Option<String>) -> Vec<hydrant_placement::Host> {
    let list = [c"SLURM_JOB_NODELIST", c"SLURM_NODELIST"].into_iter().find_map(variable);
    let names = list.and_then(|list| hostlist::expand(&list).ok()).unwrap_or_default();
    names.iter().map(|name| hydrant_placement::Host::new(name)).collect()
}

/// Tells the server if this task cannot execute its program. Slurm or a shell reports that, too.
fn check_program(spank: Spank, rank: u32, execs: &OwnedFd) -> Result<(), StepError> {
    let command = spank.command()?;
    let table = spank.variable(PROGRAMS);
    let (program, directory, command) = match table.as_ref().and_then(|table| program_of(rank, table)) {
        Some((program, directory, command)) => (program, directory, OsStr::new(command)),
        None => (0, "", OsStr::from_bytes(command.to_bytes())),
    };
    let missing = if command.as_bytes().contains(&b'/') {
        check_executable(&Path::new(directory).join(command)).err()
    } else {
        // A longer list of folders is left to Slurm.
        let search = spank.variable(c"PATH");
        let mut denied = None;
        let find = |search: &String| find_in_path(command, directory.as_ref(), search.as_ref(), &mut denied);
        match search.as_ref().map(find) {
            Some(None) => Some(denied.map_or_else(|| Errno::NOENT.into(), |(_, why)| why)),
            Some(Some(_)) | None => None,
        }
    };
    if let Some(why) = missing {
        let errno = why.raw_os_error().and_then(|errno| u8::try_from(errno).ok());
        let bytes = [program, errno.unwrap_or(libc::EACCES as u8)];
        rustix::io::write(execs, &bytes).map_err(|errno| StepError::System("write", errno.into()))?;
    }
    Ok(())
}

/// Sets the environment of a task, in its process before exec.
pub(crate) fn task_init(spank: Spank) -> Result<(), StepError> {
    let state = lock(&STATE);
    let starting = match &*state {
        State::Starting(starting) => starting,
        State::Refused(_) => return Err(StepError::Refused),
        _ => return Ok(()),
    };
    let task = spank.item(Item::Task)?;
    let (Some(rank), Some(pair)) = (starting.ranks.get(task as usize), starting.pairs.get(task as usize))
    else {
        return Err(StepError::Task(task));
    };
    keep_on_exec(&pair.task).map_err(|errno| StepError::System("fcntl", errno.into()))?;
    let Starting { step, port, execs, .. } = &**starting;
    let spawner = step.place.as_ref().and_then(|place| place.spawner.as_deref());
    // Those of a spawned step are what its spawner has assigned.
    let is_foreign = |name: &&CString| spawner.is_none() && is_foreign_variable(name.to_bytes());
    for name in spank.variable_names()?.iter().filter(is_foreign) {
        spank.remove_variable(name);
    }
    spank.remove_variable(HEAD);
    // The layout of all nodes is not known yet, and matters to none of these variables.
    let job = Layout::alone(0, step.size, &step.node, step.processors).job(&step.name);
    let job = spawned_by(job, spawner.unwrap_or_default());
    for (name, value) in job.rank_env(Rank(*rank), Some(pair.task.as_raw_fd()), Some(port))? {
        spank.set_variable(name, &value)?;
    }
    if let Some((_, write)) = execs {
        check_program(spank, *rank, write)?;
        spank.remove_variable(PROGRAMS);
    }
    Ok(())
}

/// Takes a task that has been forked. The server starts with the last one: a thread before that would be lost in the tasks.
pub(crate) fn forked(spank: Spank) -> Result<(), StepError> {
    let mut state = lock(&STATE);
    let State::Starting(starting) = &mut *state else { return Ok(()) };
    let task = spank.item(Item::Task)?;
    if task as usize != starting.tasks.len() {
        return Err(StepError::Task(task));
    }
    let rank = *starting.ranks.get(task as usize).ok_or(StepError::Task(task))?;
    let pid = spank.item(Item::TaskPid)?.cast_signed();
    let system = |call| move |errno: Errno| StepError::System(call, errno.into());
    starting.tasks.push(Task::new(rank, pid).map_err(system("pidfd_open"))?);
    if starting.tasks.len() < starting.ranks.len() {
        return Ok(());
    }
    let (read, write) = notices().map_err(system("pipe"))?;
    let (held, hold) = hydrant_reactor::pipe().map_err(system("pipe"))?;
    let State::Starting(starting) = std::mem::replace(&mut *state, State::Unused) else { return Ok(()) };
    let Starting { step, host, port, pairs, tasks, execs, .. } = *starting;
    let running = tasks.len();
    // The tasks' ends are closed here, so that the server notices when a task closes its own.
    let sockets = pairs.into_iter().map(|pair| pair.server).collect();
    let connections = Connections { sockets, port };
    // So is the other end of the pipe for exec.
    let execs = execs.map(|(read, _)| read);
    let (tasks, notices, print) = (Tasks(tasks), read, spank::print);
    let node = Node { step, tasks, host, connections, notices, execs, held: hold, print };
    let builder = thread::Builder::new().name("hydrant".to_owned());
    let started = with_all_blocked(|| builder.spawn(move || serve(node)));
    let thread = started.map_err(|error| StepError::System("cannot start a thread", error))?;
    *state = State::Serving { thread, notices: write, held, running };
    Ok(())
}

/// Reports the end of a task to the server. Slurm reports that of the last task when no spawned step runs any more.
pub(crate) fn task_exit(spank: Spank) -> Result<(), StepError> {
    if let State::Serving { notices, held, running, .. } = &mut *lock(&STATE) {
        let status = spank.item(Item::ExitStatus)?.cast_signed();
        send_notice(&*notices, spank.item(Item::Task)?, status);
        *running = running.saturating_sub(1);
        if *running == 0 {
            while rustix::io::read(&*held, &mut [0; 1]) == Err(Errno::INTR) {}
        }
    }
    Ok(())
}

/// Ends the server.
pub(crate) fn end() {
    let state = std::mem::replace(&mut *lock(&STATE), State::Unused);
    if let State::Serving { thread, notices: end, .. } | State::Leading { thread, stop: end } = state {
        drop(end);
        // A panic has been reported by the thread.
        let _ = thread.join();
    }
}
