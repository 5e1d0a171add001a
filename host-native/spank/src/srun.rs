//! srun of a spawned step: what a rank asks for as a command, or why not.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use hydrant_control::protocol::{CANCELED, Program, REQUESTS_MAX};
use hydrant_host::{UpcallId, decode_spawn};
use hydrant_placement::{Host, position, shell_quote};
use hydrant_reactor::process::find_in_path;
use hydrant_start::{AvailableHosts, RequestedProgram, SpawnInfoError};

use crate::message::Call;
use crate::servers::STEPS_MAX;

/// Variable by which slurmstepd knows the programs of a spawned step, if there are several. Tasks do not have it. For each program
/// it has a line with the rank behind its last one, its directory and its command, separated by tabs.
pub(crate) const PROGRAMS: &CStr = c"HYDRANT_STEP_PROGRAMS";
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
    #[error("{STEPS_MAX} spawned steps run, or they are on too many nodes")]
    Full,
    #[error("{size} processes are wanted, and the servers of the step have room for {room} more")]
    Ranks { size: u32, room: u32 },
    #[error(
        "ranks have changed process sets and connections too often for more nodes to be told: {REQUESTS_MAX} times"
    )]
    Requests,
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
            SpawnError::Hosts => libc::EINVAL,
            SpawnError::Start { why, .. } | SpawnError::NotExecuted { why, .. } => {
                why.raw_os_error().unwrap_or(libc::EIO)
            }
            // Slurm may have no resources now.
            SpawnError::Full
            | SpawnError::Ranks { .. }
            | SpawnError::Requests
            | SpawnError::Ended(_)
            | SpawnError::Step(_) => libc::EAGAIN,
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
    pub(crate) call: Call,
}

impl Request {
    /// Refuses the spawn as a whole.
    pub(crate) fn refusal(&self, why: SpawnError) -> Refusal {
        let Request { node, call } = self;
        let codes = vec![why.errno(); call.programs()];
        Refusal { node: *node, spawn: call.upcall, rank: call.rank.0, codes, why }
    }

    /// Refuses the spawn for one of its programs.
    pub(crate) fn refusal_of(&self, at: usize, why: SpawnError) -> Refusal {
        let mut refusal = self.refusal(why);
        let others = (0..).zip(&mut refusal.codes).filter(|(other, _)| *other != at);
        others.for_each(|(_, code)| *code = CANCELED);
        refusal
    }

    /// Pairs for the key-value space of the new job.
    pub(crate) fn pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let spawn = decode_spawn(self.call.protocol, &self.call.request);
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
    pub(crate) fn read_all(&self, request: &Request) -> Result<(Vec<Program>, Vec<Host>), Box<Refusal>> {
        let asked = RequestedProgram::decode(request.call.protocol, &request.call.request);
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
    pub(crate) fn command(&self, programs: &[Program], hosts: &[Host]) -> Command {
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

/// A spawn that has not been carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) node: u32,
    pub(crate) spawn: UpcallId,
    pub(crate) rank: u32,
    /// A code for each program.
    pub(crate) codes: Vec<u8>,
    pub(crate) why: SpawnError,
}

/// Has a command take signals, all of which this thread has blocked.
pub(crate) fn unblock_signals(command: &mut Command) {
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
pub(crate) mod tests {
    use std::ffi::OsStr;

    use hydrant_host::{JobId, Protocol, Rank};

    use super::*;

    pub(crate) fn srun(server: &str) -> Srun {
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
    pub(crate) fn request(programs: &[(&str, u32, &str)], pairs: u32) -> Request {
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
        let (upcall, job, rank) = (UpcallId(0), JobId(0), Rank(0));
        Request { node: 1, call: Call { upcall, job, rank, protocol: Protocol::V1, request: bytes } }
    }

    /// The words of the command for a request, and its variables.
    fn command(srun: &Srun, request: &Request) -> Result<(String, String), String> {
        let refused = |refusal: Box<Refusal>| format!("{:?} {}", refusal.codes, refusal.why);
        let (programs, hosts) = srun.read_all(request).map_err(refused)?;
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
        assert_eq!(variables, "A=1 B=2 PATH=/bin");
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
}
