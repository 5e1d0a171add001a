//! Spawned steps in srun: an srun for each, and a socket between it and the srun of the step that has spawned it.
//!
//! A spawned step has servers of its own, as every step. The socket is the standard input of its srun. Each message is a packet.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use hydrant_control::protocol::{CANCELED, Program};
use hydrant_host::{Protocol, UpcallId, decode_spawn};
use hydrant_placement::{Host, position, shell_quote};
use hydrant_reactor::process::find_in_path;
use hydrant_reactor::{Interest, KeyRange, Poller};
use hydrant_start::{AvailableHosts, RequestedProgram, SpawnInfoError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{NotExecuted, Origin, ToSpawned, ToSpawner, decode, encode};

/// Variable of the srun of a spawned step: its standard input is the socket.
pub(crate) const SPAWNED: &str = "HYDRANT_STEP_SPAWNED";
/// Variable by which slurmstepd knows the programs of a spawned step, if there are several. Tasks do not have it. For each program
/// it has a line with the rank behind its last one, its directory and its command, separated by tabs.
pub(crate) const PROGRAMS: &CStr = c"HYDRANT_STEP_PROGRAMS";
/// Most spawned steps of a step at the same time.
const STEPS_MAX: usize = 16;
/// Most bytes of a message: a request of a spawn, and some more.
const MESSAGE_MAX: usize = 128 * 1024;
/// Variables by which srun describes its step, and which srun itself reads.
const STEP_VARIABLES: [&str; 6] = [
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_DISTRIBUTION",
    "SLURM_HOSTFILE",
];

/// Why nothing is spawned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("{}: {why}", .command.display())]
    Info { command: OsString, why: SpawnInfoError },
    #[error("{}: add-host: Slurm allocates the nodes", .0.display())]
    AddHost(OsString),
    #[error("the programs have different hosts, and Slurm places them as one step")]
    Hosts,
    /// The server translates requests of PMIx to PMI-2. Clients of PMI-2 put the address of the spawning ranks.
    #[error(
        "`srun --hydrant` serves no spawns by PMIx, as those of Open MPI, nor by PMI-2 without pairs: use `hydrant run` in the \
         allocation, in place of srun"
    )]
    Pmix,
    #[error("{STEPS_MAX} spawned steps run, which is the limit")]
    Full,
    #[error("cannot start {}: {why}", .srun.display())]
    Start { srun: PathBuf, why: io::Error },
    #[error("srun of the spawned step ended early: {0}")]
    Ended(ExitStatus),
    #[error("{}: {why}", .command.display())]
    NotExecuted {
        /// Number of the program.
        at: usize,
        command: OsString,
        why: io::Error,
    },
    #[error("{0}")]
    Step(String),
    #[error("the step ends")]
    Ending,
}

impl SpawnError {
    /// The code for the rank.
    fn errno(&self) -> u8 {
        let errno = match self {
            SpawnError::Info { why, .. } => return why.errno(),
            SpawnError::AddHost(_) => libc::EHOSTUNREACH,
            SpawnError::Pmix => libc::ENOTSUP,
            SpawnError::Hosts => libc::EINVAL,
            SpawnError::Start { why, .. } | SpawnError::NotExecuted { why, .. } => {
                why.raw_os_error().unwrap_or(libc::EIO)
            }
            // Slurm may have no resources now.
            SpawnError::Full | SpawnError::Ended(_) | SpawnError::Step(_) => libc::EAGAIN,
            SpawnError::Ending => return CANCELED,
        };
        errno.try_into().unwrap_or(u8::MAX)
    }
}

/// A request for a spawn.
#[derive(Debug)]
pub(crate) struct Request {
    /// Node of the rank.
    pub(crate) node: u32,
    pub(crate) spawn: UpcallId,
    pub(crate) rank: u32,
    pub(crate) protocol: Protocol,
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    /// Number of programs.
    fn programs(&self) -> usize {
        decode_spawn(self.protocol, &self.bytes).map_or(0, |spawn| spawn.programs().count())
    }

    /// Refuses the spawn as a whole.
    pub(crate) fn refusal(&self, why: SpawnError) -> News {
        let &Request { node, spawn, rank, .. } = self;
        News::Refused { node, spawn, rank, codes: vec![why.errno(); self.programs()], why }
    }

    /// Refuses the spawn for one of its programs.
    fn refusal_of(&self, at: usize, why: SpawnError) -> News {
        let mut refusal = self.refusal(why);
        if let News::Refused { codes, .. } = &mut refusal {
            let others = (0..).zip(codes).filter(|(other, _)| *other != at);
            others.for_each(|(_, code)| *code = CANCELED);
        }
        refusal
    }

    /// Pairs for the key-value space of the new job.
    fn pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let spawn = decode_spawn(self.protocol, &self.bytes);
        let pairs = spawn.iter().flat_map(|spawn| spawn.preput());
        let bytes =
            pairs.map(|(key, value)| [key, value].map(|text| text.parts().flatten().copied().collect()));
        bytes.map(|[key, value]| (key, value)).collect()
    }
}

/// How srun is started for a spawned step.
#[derive(Debug)]
pub(crate) struct Srun {
    pub(crate) program: PathBuf,
    /// Job of Slurm.
    pub(crate) job: u32,
    /// Value of `--hydrant`.
    pub(crate) server: String,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) directory: PathBuf,
    /// Nodes of the allocation.
    pub(crate) hosts: Vec<Host>,
}

impl Srun {
    /// Reads a program and the hosts that it may run on.
    fn read(&self, asked: &RequestedProgram) -> Result<(Program, Vec<Host>), SpawnError> {
        let spawner = Program {
            ranks: 0,
            command: OsString::new(),
            args: Vec::new(),
            env: self.env.clone(),
            wdir: Some(self.directory.clone()),
            path: None,
            psets: Vec::new(),
        };
        let find = |name: &[u8]| position(&self.hosts, name).map(|at| self.hosts[at].name.clone());
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        let description = format!("the nodes of the allocation are {}", names.join(", "));
        let available = AvailableHosts { find: &find, description };
        let read = asked.read(&spawner).and_then(|wanted| {
            let (hosts, added) = (wanted.hosts(&available)?, wanted.added(&available)?);
            Ok((wanted.program, hosts, added))
        });
        let (program, hosts, added) =
            read.map_err(|why| SpawnError::Info { command: asked.command.clone(), why })?;
        if added.is_empty() { Ok((program, hosts)) } else { Err(SpawnError::AddHost(program.command)) }
    }

    /// Reads the programs of a request. Those that name hosts name the same ones.
    fn read_all(&self, request: &Request) -> Result<(Vec<Program>, Vec<Host>), Box<News>> {
        let asked = RequestedProgram::decode(request.protocol, &request.bytes);
        let (mut programs, mut hosts): (Vec<Program>, Vec<Host>) = (Vec::new(), Vec::new());
        for (at, asked) in asked.iter().enumerate() {
            match self.read(asked) {
                Ok((program, own)) if own.is_empty() || hosts.is_empty() || own == hosts => {
                    if !own.is_empty() {
                        hosts = own;
                    }
                    programs.push(program);
                }
                Ok(_) => return Err(request.refusal(SpawnError::Hosts).into()),
                Err(why) => return Err(request.refusal_of(at, why).into()),
            }
        }
        Ok((programs, hosts))
    }

    /// The command of a spawned step.
    fn command(&self, programs: &[Program], hosts: &[Host]) -> Command {
        let size: u32 = programs.iter().map(|program| program.ranks).sum();
        let mut command = Command::new(&self.program);
        command.env_clear();
        command.args(["--overlap", "--mpi=none", "--input=none"]);
        command.args([format!("--jobid={}", self.job), format!("--ntasks={size}")]);
        command.arg(if self.server.is_empty() {
            "--hydrant".to_owned()
        } else {
            format!("--hydrant={}", self.server)
        });
        // srun uses each host of its list, and otherwise all nodes of the allocation. It warns of more nodes than tasks.
        let names: Vec<&str> = hosts.iter().take(size as usize).map(|host| host.name.as_str()).collect();
        if !names.is_empty() {
            command.args([format!("--nodelist={}", names.join(",")), format!("--nodes={}", names.len())]);
        } else if self.hosts.len() > size as usize {
            command.arg(format!("--nodes={size}"));
        }
        let (env, directory, words) = match programs {
            [program] => {
                let directory = program.wdir.as_ref().unwrap_or(&self.directory);
                let words = [vec![found(program)], program.args.clone()].concat();
                (&program.env, directory, words)
            }
            _ => {
                let script = script(programs, &self.env);
                if let Some(table) = table(programs, &self.env) {
                    command.env(OsStr::from_bytes(PROGRAMS.to_bytes()), table);
                }
                (&self.env, &self.directory, vec!["sh".into(), "-c".into(), script])
            }
        };
        let mut chdir = OsString::from("--chdir=");
        chdir.push(directory);
        command.arg(chdir).arg("--").args(words);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        for name in STEP_VARIABLES {
            command.env_remove(name);
        }
        command.env(SPAWNED, "1");
        command
    }
}

/// The command of a program, with the directory of info key `path` in which it is.
fn found(program: &Program) -> OsString {
    let search = program.path.as_ref().filter(|_| !program.command.as_bytes().contains(&b'/'));
    let wdir = program.wdir.as_deref().unwrap_or("".as_ref());
    let found = search.and_then(|search| find_in_path(&program.command, wdir, search, &mut None));
    found.map_or_else(|| program.command.clone(), |path| wdir.join(path).into())
}

/// A script that executes the program of its task. srun itself has one program and one environment.
fn script(programs: &[Program], env: &[(OsString, OsString)]) -> OsString {
    let (mut script, mut end) = (OsString::new(), 0);
    for program in programs {
        end += program.ranks;
        let mut words = vec![OsString::from("exec")];
        let mut own = program.env.iter().filter(|pair| !env.contains(pair)).peekable();
        if own.peek().is_some() {
            words.push("env".into());
        }
        words.extend(own.map(|(name, value)| [name.as_os_str(), "=".as_ref(), value].into_iter().collect()));
        words.push(found(program));
        words.extend_from_slice(&program.args);
        script.push(format!("if [ $SLURM_PROCID -lt {end} ]; then "));
        if let Some(wdir) = &program.wdir {
            script.push("cd ");
            script.push(shell_quote(&[wdir.into()]));
            script.push(" || exit; ");
        }
        script.push(shell_quote(&words));
        script.push("; fi\n");
    }
    script
}

/// The programs for [`PROGRAMS`]. None if one is to be found in a `PATH` of its own, or does not fit into a line.
fn table(programs: &[Program], env: &[(OsString, OsString)]) -> Option<OsString> {
    let (mut lines, mut end) = (OsString::new(), 0);
    for program in programs {
        end += program.ranks;
        let (directory, command) =
            (program.wdir.as_deref().map_or("".as_ref(), Path::as_os_str), found(program));
        let has_own_path = program.env.iter().any(|pair| pair.0 == "PATH" && !env.contains(pair));
        let words = [directory, &command].map(OsStr::as_bytes);
        if has_own_path || words.concat().iter().any(|byte| matches!(byte, b'\t' | b'\n')) {
            return None;
        }
        lines.push(format!("{end}\t"));
        lines.push(directory);
        lines.push("\t");
        lines.push(command);
        lines.push("\n");
    }
    Some(lines)
}

/// Returns the number, the directory and the command of the program of a rank.
pub(crate) fn program_of(rank: u32, table: &str) -> Option<(u8, &str, &str)> {
    (0..).zip(table.lines()).find_map(|(number, line)| {
        let mut words = line.splitn(3, '\t');
        let end: u32 = words.next()?.parse().ok()?;
        let (directory, command) = (words.next()?, words.next()?);
        (rank < end).then_some((number, directory, command))
    })
}

/// A spawned step.
#[derive(Debug)]
struct Step {
    request: Request,
    /// Commands, for messages.
    commands: Vec<OsString>,
    srun: Child,
    /// Readable when srun has ended.
    _process: OwnedFd,
    socket: OwnedFd,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The rank waits.
    Starting,
    Running,
    Refused,
    /// It has said why it ends, or has been told to end.
    Ending,
}

impl Step {
    /// Refuses the spawn, unless that has been done.
    fn refuse(&mut self, why: SpawnError) -> Option<News> {
        if self.state != State::Starting {
            return None;
        }
        self.state = State::Refused;
        Some(match why {
            SpawnError::NotExecuted { at, .. } => self.request.refusal_of(at, why),
            _ => self.request.refusal(why),
        })
    }
}

/// What has become of a spawned step.
#[derive(Debug)]
pub(crate) enum News {
    /// The job of this name runs.
    Started { node: u32, spawn: UpcallId, name: String, codes: Vec<u8> },
    /// Nothing was started. There is a code for each program.
    Refused { node: u32, spawn: UpcallId, rank: u32, codes: Vec<u8>, why: SpawnError },
    /// It ends for a reason, and this step with it.
    Ending(String),
    /// It is over.
    Over { node: u32 },
}

/// The steps that ranks of a step have spawned.
#[derive(Debug)]
pub(crate) struct SpawnedSteps {
    srun: Srun,
    /// Keys of the sockets have the first kind, those of the processes the second one.
    keys: (KeyRange, u16, u16),
    steps: BTreeMap<u32, Step>,
    next: u32,
}

impl SpawnedSteps {
    /// None so far. Their keys have two kinds.
    pub(crate) fn new(srun: Srun, keys: (KeyRange, u16, u16)) -> SpawnedSteps {
        SpawnedSteps { srun, keys, steps: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Starts a step for a rank of the job of this name. Returns why nothing is started.
    pub(crate) fn start(&mut self, spawner: &str, request: Request, poller: &Poller) -> Option<News> {
        if self.steps.len() >= STEPS_MAX {
            return Some(request.refusal(SpawnError::Full));
        }
        let pairs = request.pairs();
        if request.protocol == Protocol::V2 && pairs.is_empty() {
            return Some(request.refusal(SpawnError::Pmix));
        }
        let (programs, hosts) = match self.srun.read_all(&request) {
            Ok(read) => read,
            Err(refusal) => return Some(*refusal),
        };
        let sizes = programs.iter().map(|program| program.ranks).collect();
        let origin = Origin { spawner: spawner.to_owned(), programs: sizes, pairs };
        match self.start_srun(self.srun.command(&programs, &hosts), origin, poller) {
            Ok((srun, process, socket)) => {
                let commands = programs.into_iter().map(|program| program.command).collect();
                let step =
                    Step { request, commands, srun, _process: process, socket, state: State::Starting };
                self.steps.insert(self.next, step);
                self.next = self.next.wrapping_add(1);
                None
            }
            Err(why) => Some(request.refusal(SpawnError::Start { srun: self.srun.program.clone(), why })),
        }
    }

    /// Starts the srun of the next step. Returns it with its process and this end of its socket.
    fn start_srun(
        &self,
        mut command: Command,
        origin: Origin,
        poller: &Poller,
    ) -> io::Result<(Child, OwnedFd, OwnedFd)> {
        let (socket, theirs) = packets()?;
        send_message(&socket, &ToSpawned::Begin(origin))?;
        // Ctrl-C is for the first srun, which ends the others.
        command.stdin(Stdio::from(theirs)).process_group(0);
        unblock_signals(&mut command);
        let srun = command.spawn()?;
        let pid = Pid::from_raw(srun.id().cast_signed()).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (keys, of_socket, of_process) = self.keys;
        poller.add(&socket, keys.key(of_socket, self.next), Interest::Read).map_err(Errno::from)?;
        poller.add(&process, keys.key(of_process, self.next), Interest::Read).map_err(Errno::from)?;
        Ok((srun, process, socket))
    }

    /// Reads what the srun of a step says.
    pub(crate) fn receive(&mut self, id: u32, poller: &Poller) -> Option<News> {
        let step = self.steps.get_mut(&id)?;
        match receive_message(&step.socket) {
            Received::Message(ToSpawner::Started(name)) if step.state == State::Starting => {
                step.state = State::Running;
                let Request { node, spawn, .. } = step.request;
                Some(News::Started { node, spawn, name, codes: vec![0; step.request.programs()] })
            }
            Received::Message(ToSpawner::NotExecuted(NotExecuted { program, errno })) => {
                let at = usize::from(program);
                let command = step.commands.get(at).cloned().unwrap_or_default();
                step.refuse(SpawnError::NotExecuted {
                    at,
                    command,
                    why: io::Error::from_raw_os_error(errno.into()),
                })
            }
            Received::Message(ToSpawner::Ending(why)) if step.state == State::Running => {
                step.state = State::Ending;
                Some(News::Ending(format!("a step that rank {} has spawned ends: {why}", step.request.rank)))
            }
            Received::Message(ToSpawner::Ending(why)) => step.refuse(SpawnError::Step(why)),
            Received::Message(ToSpawner::Started(_)) | Received::Nothing => None,
            // The end of its process follows.
            Received::Lost => {
                poller.remove(&step.socket);
                None
            }
        }
    }

    /// Takes the end of the srun of a step.
    pub(crate) fn ended(&mut self, id: u32, poller: &Poller) -> Vec<News> {
        // What it has said before counts.
        let mut news = Vec::new();
        news.extend(self.receive(id, poller));
        news.extend(self.receive(id, poller));
        let Some(mut step) = self.steps.remove(&id) else { return news };
        let Ok(status) = step.srun.wait() else { return news };
        match step.state {
            State::Starting => news.extend(step.refuse(SpawnError::Ended(status))),
            State::Running => {
                if let Some(signal) = status.signal() {
                    let rank = step.request.rank;
                    let why = format!("srun of a step that rank {rank} has spawned died by signal {signal}");
                    news.push(News::Ending(why));
                }
                news.push(News::Over { node: step.request.node });
            }
            State::Ending => news.push(News::Over { node: step.request.node }),
            State::Refused => {}
        }
        news
    }

    /// Tells all steps that this one ends. Returns the spawns that are refused.
    pub(crate) fn end(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for step in self.steps.values_mut() {
            // One that has ended needs no message.
            let _ = send_message(&step.socket, &ToSpawned::End);
            match step.state {
                State::Starting => news.extend(step.refuse(SpawnError::Ending)),
                State::Running => step.state = State::Ending,
                State::Refused | State::Ending => {}
            }
        }
        news
    }

    /// Kills the sruns that run. The nodes of their steps notice that.
    pub(crate) fn kill(&mut self) {
        for step in self.steps.values_mut() {
            let _ = step.srun.kill();
        }
    }
}

/// The srun of the step that has spawned this one.
#[derive(Debug)]
pub(crate) struct Spawner {
    pub(crate) origin: Origin,
    pub(crate) socket: OwnedFd,
}

/// What the srun of the spawning step has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    End,
    /// It has ended without a word.
    Lost,
}

impl Spawner {
    /// Takes standard input as the socket.
    pub(crate) fn from_stdin() -> io::Result<Spawner> {
        let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        match receive_message(&socket) {
            Received::Message(ToSpawned::Begin(origin)) => Ok(Spawner { origin, socket }),
            _ => Err(Errno::PROTO.into()),
        }
    }

    pub(crate) fn send(&self, message: &ToSpawner) {
        // A loss is noticed when the socket is read.
        let _ = send_message(&self.socket, message);
    }

    pub(crate) fn receive(&self) -> Said {
        match receive_message(&self.socket) {
            Received::Message(ToSpawned::End) => Said::End,
            Received::Message(ToSpawned::Begin(_)) | Received::Nothing => Said::Nothing,
            Received::Lost => Said::Lost,
        }
    }
}

/// Makes a socket of packets.
fn packets() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn send_message(socket: impl AsFd, message: &impl Serialize) -> Result<(), Errno> {
    send(socket, &encode(message), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

enum Received<T> {
    Message(T),
    Nothing,
    Lost,
}

fn receive_message<T: DeserializeOwned>(socket: impl AsFd) -> Received<T> {
    let mut bytes = vec![0; MESSAGE_MAX];
    match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) | Ok((0, _)) => Received::Lost,
        Ok((len, _)) => decode(&bytes[..len]).map_or(Received::Lost, Received::Message),
    }
}

/// Has a command take signals, all of which this thread has blocked.
fn unblock_signals(command: &mut Command) {
    let unblock = || {
        // SAFETY: zero is a valid value of the set, which the call initialises.
        let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set lives for the calls, which fail only for an unknown operation.
        unsafe {
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: the closure makes two calls that are safe after a fork, and allocates nothing.
    unsafe { command.pre_exec(unblock) };
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn srun(server: &str) -> Srun {
        let env = [("PATH", "/bin"), ("SLURM_NNODES", "3"), ("A", "1")];
        Srun {
            program: "/usr/bin/srun".into(),
            job: 7,
            server: server.to_owned(),
            env: env.map(|(name, value)| (name.into(), value.into())).into(),
            directory: "/home".into(),
            hosts: ["n0", "n1", "n2"].map(Host::new).into(),
        }
    }

    /// Programs with their numbers of processes and their info keys, and the pairs of a request of PMI-1.
    fn request(programs: &[(&str, u32, &str)], pairs: u32) -> Request {
        let mut bytes = Vec::new();
        for (at, (command, count, info)) in (1..).zip(programs) {
            let mut text =
                format!("mcmd=spawn\nnprocs={count}\nexecname={command}\ntotspawns={}\n", programs.len());
            text.push_str(&format!("spawnssofar={at}\nargcnt=1\narg1=a b\npreput_num={pairs}\n"));
            (0..pairs).for_each(|pair| text.push_str(&format!("preput_key_{pair}=k\npreput_val_{pair}=v\n")));
            let info: Vec<(&str, &str)> =
                info.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
            text.push_str(&format!("info_num={}\n", info.len()));
            for (at, (key, value)) in info.iter().enumerate() {
                text.push_str(&format!("info_key_{at}={key}\ninfo_val_{at}={value}\n"));
            }
            bytes.extend_from_slice(format!("{text}endcmd\n").as_bytes());
        }
        Request { node: 1, spawn: UpcallId(0), rank: 0, protocol: Protocol::V1, bytes }
    }

    /// The words of the command for a request, and its variables.
    fn command(srun: &Srun, request: &Request) -> Result<(String, String), String> {
        let (programs, hosts) = srun.read_all(request).map_err(|news| match *news {
            News::Refused { codes, why, .. } => format!("{codes:?} {why}"),
            other => panic!("{other:?}"),
        })?;
        let command = srun.command(&programs, &hosts);
        let words: Vec<&OsStr> = command.get_args().collect();
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let variables: Vec<String> =
            set.map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        Ok((words.join("|".as_ref()).into_string().unwrap(), variables.join(" ")))
    }

    #[test]
    fn a_program_is_that_of_its_srun() {
        let one = request(&[("prog", 2, "wdir=sub host=n2,n1,n0 env=B=2")], 1);
        let (words, variables) = command(&srun(""), &one).unwrap();
        let step =
            "--overlap|--mpi=none|--input=none|--jobid=7|--ntasks=2|--hydrant|--nodelist=n2,n1|--nodes=2";
        assert_eq!(words, format!("{step}|--chdir=/home/sub|--|prog|a b"));
        assert_eq!(variables, "A=1 B=2 HYDRANT_STEP_SPAWNED=1 PATH=/bin");
        assert_eq!(one.pairs(), [(b"k".to_vec(), b"v".to_vec())]);
    }

    #[test]
    fn several_programs_are_chosen_by_a_script() {
        let two = request(&[("one", 2, "env=B=2"), ("/bin/two", 1, "host=n1 wdir=/x")], 0);
        let (words, variables) = command(&srun("next"), &two).unwrap();
        let step =
            "--overlap|--mpi=none|--input=none|--jobid=7|--ntasks=3|--hydrant=next|--nodelist=n1|--nodes=1";
        let first = "if [ $SLURM_PROCID -lt 2 ]; then cd /home || exit; exec env B=2 one 'a b'; fi\n";
        let second = "if [ $SLURM_PROCID -lt 3 ]; then cd /x || exit; exec /bin/two 'a b'; fi\n";
        assert_eq!(words, format!("{step}|--chdir=/home|--|sh|-c|{first}{second}"));
        let (programs, _) = srun("").read_all(&two).unwrap();
        let table = table(&programs, &srun("").env).unwrap().into_string().unwrap();
        assert!(variables.contains(&format!("HYDRANT_STEP_PROGRAMS={table}")), "{variables}");
        let of = |rank| program_of(rank, &table);
        assert_eq!([of(1), of(2), of(3)], [Some((0, "/home", "one")), Some((1, "/x", "/bin/two")), None]);
    }

    #[test]
    fn what_slurm_cannot_do_is_refused() {
        let refused = |programs: &[(&str, u32, &str)]| command(&srun(""), &request(programs, 0)).unwrap_err();
        assert_eq!(
            refused(&[("p", 1, ""), ("q", 1, "host=n9")]),
            "[125, 113] q: host n9: the nodes of the allocation are n0, n1, n2"
        );
        let hosts = "[22, 22] the programs have different hosts, and Slurm places them as one step";
        assert_eq!(refused(&[("p", 1, "host=n1"), ("q", 1, "host=n2")]), hosts);
        assert_eq!(refused(&[("p", 1, "add-host=n9")]), "[113] p: add-host: Slurm allocates the nodes");
    }

    /// A spawn by PMIx arrives as one of PMI-2 without pairs.
    #[test]
    fn spawns_by_pmix_are_refused() {
        let mut steps = SpawnedSteps::new(srun(""), (KeyRange(0), 5, 6));
        let bytes = b"cmd=spawn;ncmds=1;preputcount=0;subcmd=p;maxprocs=1;argc=0;infokeycount=0;".to_vec();
        let request = Request { node: 1, spawn: UpcallId(0), rank: 0, protocol: Protocol::V2, bytes };
        let news = steps.start("job", request, &Poller::new().unwrap());
        assert!(matches!(news, Some(News::Refused { codes, why: SpawnError::Pmix, .. }) if codes.len() == 1));
    }
}
