//! Rank processes of MPI jobs: resolution of programs, environment, binding and start.
//!
//! [`prepare`] finds the file of a program. A [`Launcher`] starts ranks one by one with the variables by which MPI libraries
//! find a PMI or PMIx server. It serves nothing and waits for nothing: the caller owns pipes, sockets and child processes.
//! [`RequestedProgram`] reads the info keys of a spawn request (MPI 4.1, 11.8.4), and [`FileSender`] and [`FileReceiver`] carry
//! program files to other hosts.
//!
//! ```
//! use std::io::Read;
//! use std::os::fd::AsFd;
//!
//! use hydrant_control::protocol::Program;
//! use hydrant_start::{JobEnvironment, Launcher, PmiAddress, Stdio, prepare};
//! use hydrant_placement::Binding;
//! use hydrant_reactor::OpenFiles;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = Program {
//!     ranks: 1,
//!     command: "sh".into(),
//!     args: vec!["-c".into(), "echo rank $PMI_RANK of $PMI_SIZE".into()],
//!     env: std::env::vars_os().collect(),
//!     wdir: None,
//!     path: None,
//!     psets: Vec::new(),
//! };
//! let job = JobEnvironment {
//!     jobid: "job",
//!     host: "localhost".as_ref(),
//!     pmi: PmiAddress::Port("127.0.0.1:7000".to_owned()),
//!     pmix: None,
//!     psets: None,
//!     spawned: false,
//!     size: (1, 1),
//!     gpus: None,
//!     inherited: &[],
//! };
//! let prepared = prepare(&program)?;
//! let mut launcher = Launcher::new(vec![(&program, 1, prepared)], (&Binding::default(), &[]), &job, &[])?;
//!
//! let (mut output, end) = std::io::pipe()?;
//! let stdio = Stdio { stdin: None, stdout: end.as_fd(), stderr: end.as_fd(), pmi: None, pool: None };
//! let pid = launcher.start(0, 0, &stdio, &OpenFiles::reserve(16)?)?;
//! drop(end);
//! let mut text = String::new();
//! output.read_to_string(&mut text)?;
//! assert_eq!(text, "rank 0 of 1\n");
//! # rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())?;
//! # Ok(())
//! # }
//! ```

mod bind;
mod cstrings;
mod error;
mod gpus;
mod interface;
mod job_folder;
mod libraries;
mod memory_pool;
mod open_mpi;
mod preload;
mod program_files;
mod resolve;
mod shared_memory;
mod soft;
mod spawn_info;
mod sys;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hydrant_control::protocol::{Program, SharedMemory};
use hydrant_doctor::NoExec;
use hydrant_driver::{PMIX_SERVER, PMIX_SERVER_URIS, pmix_variables};
use hydrant_placement::Binding;
use hydrant_reactor::OpenFiles;
use hydrant_reactor::process::{Attributes, MARK, Request, spawn};
use rustix::process::{Pid, Resource, getrlimit};

use bind::Affinity;
pub use bind::Bindings;
use cstrings::{CStrings, EnvBlock, RankNumber, c_string};
pub use error::{LaunchError, alternatives};
pub use job_folder::{is_in_job_folder, new_job_folder};
pub use memory_pool::MemoryPool;
pub use preload::find as find_mpi_library;
pub use program_files::{FileReceiver, FileSender, ProgramFileError};
use resolve::resolve;
pub use spawn_info::{AvailableHosts, RequestedProgram, SpawnInfoError, WantedProgram};

/// Variables that the launcher sets for each rank. The user cannot assign them, and those that a spawn assigns are dropped.
pub const OWN_VARIABLES: [&str; 19] = [
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_SPAWNED",
    "PMI_JOBID",
    "PMI_HOSTNAME",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "HYDRANT_QUERY",
    "HYDRANT_KVS",
    MARK,
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER_URI41",
    "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI3",
    "PMIX_SERVER_URI21",
];

/// Variables that are right on the host of a rank alone. A spawn does not set them either: ranks may spawn on another host.
const VARIABLES_OF_HOST: [&str; 2] = [PMIX_HOSTNAME, FILE_LOCATION];

/// Descriptor of the memory pool in every rank.
///
/// High, as that of the PMI socket: users name descriptors from 3 on, shells keep theirs from 10 on, bash a script at 255. Below
/// 1,024, for clients that use `select`.
pub const POOL_FD: RawFd = 201;

/// Highest descriptor of the PMI socket in a rank. The [limit of open files](pmi_fd) may make it a lower one.
const PMI_FD_MAX: RawFd = POOL_FD - 1;
/// Variable with libraries that the dynamic loader loads first.
const PRELOAD: &str = "LD_PRELOAD";
/// Variable that chooses MPICH's version of PMI, and its older names.
const MPICH_PMI_VERSION: [&str; 3] = ["MPIR_CVAR_PMI_VERSION", "MPICH_PMI_VERSION", "MPIR_PARAM_PMI_VERSION"];
/// Variable with the name of the host for libpmix. A program's environment may have it.
pub const PMIX_HOSTNAME: &str = "PMIX_HOSTNAME";
/// Variable with the folder of the files that the head has sent, as Open MPI's own launchers name it.
const FILE_LOCATION: &str = "OMPI_FILE_LOCATION";
/// Variable that disables buffering of standard output in libgfortran.
const GFORTRAN_UNBUFFERED: &str = "GFORTRAN_UNBUFFERED_PRECONNECTED";

/// Address of the PMI server for ranks.
#[derive(Clone, Debug)]
pub enum PmiAddress {
    /// Inherited socket (`PMI_FD`).
    Inherited,
    /// `host:port` (`PMI_PORT`).
    Port(String),
    /// `host:port` of each rank, set later with [`Launcher::set_ports`].
    PortPerRank,
}

/// Address of the PMIx server for ranks.
#[derive(Clone, Copy, Debug)]
pub enum PmixAddress {
    /// Port of this machine.
    Port(SocketAddr),
    /// Port of each rank, set later with [`Launcher::set_ports`].
    PortPerRank,
}

/// Starter of a job's ranks.
pub struct Launcher {
    programs: Vec<Image>,
    /// Number of the PMI socket in the ranks.
    pmi_fd: RawFd,
    inherited: Vec<RawFd>,
    affinity: Affinity,
    attributes: Attributes,
    /// Ranks that stop at their first instruction.
    stopped: BTreeSet<u32>,
}

/// One program in the form that `execve` takes.
struct Image {
    /// First rank after those of this program.
    end: u32,
    command: OsString,
    path: CString,
    argv: CStrings,
    /// Arguments of the shell that runs a script without `#!` line, as in `execvp`.
    shell: CStrings,
    env: EnvBlock,
    wdir: Option<CString>,
}

impl Image {
    /// Returns the path of the program's file for this process.
    fn file(&self) -> PathBuf {
        file(&self.path, self.wdir.as_deref())
    }
}

/// Returns a path in the working directory of a rank for this process.
fn file(path: &CStr, wdir: Option<&CStr>) -> PathBuf {
    let of = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
    wdir.map(of).unwrap_or_default().join(of(path))
}

/// Standard streams, PMI socket and memory pool of a rank.
pub struct Stdio<'a> {
    /// Standard input; `None` inherits the launcher's.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Standard output.
    pub stdout: BorrowedFd<'a>,
    /// Standard error.
    pub stderr: BorrowedFd<'a>,
    /// The rank's end of the PMI socket.
    pub pmi: Option<BorrowedFd<'a>>,
    /// Memory that the ranks of this machine share.
    pub pool: Option<BorrowedFd<'a>>,
}

/// Program whose file and working directory were found.
pub struct PreparedProgram {
    command: OsString,
    /// Libraries that the dynamic linker loads first.
    libraries: Vec<PathBuf>,
    path: CString,
    argv: Vec<CString>,
    wdir: Option<CString>,
}

/// Finds the file of a program and checks its working directory, before any rank is started.
pub fn prepare(program: &Program) -> Result<PreparedProgram, LaunchError> {
    prepare_file(program, None, Vec::new())
}

/// As [`prepare`], with the file if it is known, and the files of libraries that its dynamic linker need not find.
pub fn prepare_file(
    program: &Program,
    file: Option<PathBuf>,
    libraries: Vec<PathBuf>,
) -> Result<PreparedProgram, LaunchError> {
    if let Some(dir) = &program.wdir {
        resolve::check_wdir(dir)?;
    }
    let file = file.map_or_else(|| resolve(program), Ok)?;
    let path = c_string(file.into_os_string().into_vec(), "the command")?;
    let mut argv = vec![c_string(program.command.as_bytes(), "the command")?];
    for arg in &program.args {
        argv.push(c_string(arg.as_bytes(), "an argument")?);
    }
    let wdir = program.wdir.as_ref().map(|dir| c_string(dir.as_os_str().as_bytes(), "the working directory"));
    Ok(PreparedProgram { command: program.command.clone(), libraries, path, argv, wdir: wdir.transpose()? })
}

/// Job attributes in the environment of its ranks.
pub struct JobEnvironment<'a> {
    /// Job id.
    pub jobid: &'a str,
    /// Name of this machine.
    pub host: &'a OsStr,
    /// Address of the PMI server.
    pub pmi: PmiAddress,
    /// Address of the PMIx server, if there is one.
    pub pmix: Option<PmixAddress>,
    /// For `--mpi-psets`: address for queries, and the library to preload.
    pub psets: Option<(String, &'a OsStr)>,
    /// Whether another job spawned this one.
    pub spawned: bool,
    /// Number of ranks of the job, and of those on this machine.
    pub size: (u32, u32),
    /// Number of GPUs of each rank, if the launcher assigns them.
    pub gpus: Option<u32>,
    /// Descriptors of this process that the ranks inherit under the same numbers, beside their own. They stay open.
    pub inherited: &'a [RawFd],
}

impl Launcher {
    /// Prepares the start of `programs`, each with the first rank after its own. Programs without ranks on this machine
    /// are left out. Ranks are bound to processors that are not taken, as long as there are any.
    ///
    /// `keep_ignored` lists signals that the launcher ignores and ranks continue to ignore.
    pub fn new(
        programs: Vec<(&Program, u32, PreparedProgram)>,
        (binding, taken): (&Binding, &[u32]),
        setting: &JobEnvironment<'_>,
        keep_ignored: &[i32],
    ) -> Result<Launcher, LaunchError> {
        let pmi_fd = pmi_fd(setting.inherited);
        let images = programs.into_iter().map(|(program, end, checked)| {
            let PreparedProgram { command, libraries, path, argv, wdir } = checked;
            let mut shell = vec![c"sh".to_owned(), path.clone()];
            shell.extend(argv.iter().skip(1).cloned());
            let mut env = environment(program, &libraries, setting, pmi_fd)?;
            if let Some(prefix) = open_mpi::prefix(program, Path::new(OsStr::from_bytes(path.to_bytes()))) {
                env.push(variable(open_mpi::PREFIX.as_ref(), prefix.as_os_str())?);
            }
            let (argv, shell) = (CStrings::new(argv), CStrings::new(shell));
            Ok(Image { end, command, path, argv, shell, env, wdir })
        });
        Ok(Launcher {
            programs: images.collect::<Result<_, LaunchError>>()?,
            pmi_fd,
            inherited: setting.inherited.to_vec(),
            affinity: Affinity::new(binding, taken)?,
            attributes: Attributes::new(keep_ignored)
                .map_err(LaunchError::system("cannot read signal dispositions"))?,
            stopped: BTreeSet::new(),
        })
    }

    /// Sets the variables with the server's port, those of PMIx only if it serves PMIx: rank 0 gets the first port, rank 1
    /// the second, and so on, starting again after the last.
    pub fn set_ports(&mut self, host: IpAddr, ports: &[u16], pmix: bool) {
        let mut heads = vec![format!("PMI_PORT={host}:")];
        if pmix {
            heads.extend(PMIX_SERVER_URIS.map(|name| format!("{name}={PMIX_SERVER}{host}:")));
        }
        for image in &mut self.programs {
            heads.iter().for_each(|head| image.env.add(head, RankNumber::Cycle(ports.to_vec())));
        }
    }

    /// Adds a variable, as `NAME=VALUE`, to the environment of all ranks, which must not have it yet.
    pub fn add_variable(&mut self, variable: &CStr) {
        for image in &mut self.programs {
            image.env.push(variable.to_owned());
        }
    }

    /// Tells the ranks where the files are that the head has sent.
    pub fn name_files(&mut self, folder: &Path) -> Result<(), LaunchError> {
        self.add_variable(&variable(FILE_LOCATION.as_ref(), folder.as_os_str())?);
        Ok(())
    }

    /// Tells Open MPI 4 that the ranks exceed their processors, as its own `mpirun` does, unless the environment of a program
    /// already has the variable. Open MPI 5 asks the PMIx server.
    pub fn let_waiting_ranks_yield(&mut self, programs: &[Program]) {
        if !programs.iter().any(|program| is_assigned(&program.env, "OMPI_MCA_mpi_oversubscribe")) {
            self.add_variable(c"OMPI_MCA_mpi_oversubscribe=1");
        }
    }

    /// Has the MPI libraries of the ranks use a network interface of this machine, unless the environment of a program tells a
    /// library otherwise.
    pub fn prefer_interface(&mut self, name: &str, programs: &[Program]) {
        let is_assigned = |variable: &str| programs.iter().any(|program| is_assigned(&program.env, variable));
        for variable in interface::variables(name, is_assigned) {
            self.add_variable(&variable);
        }
    }

    /// Has the MPI libraries of the ranks share no more memory than this, unless the environment of a program tells a library
    /// otherwise.
    pub fn limit_shared_memory(&mut self, ways: SharedMemory, programs: &[Program]) {
        for &(name, value) in shared_memory::variables(ways) {
            if !programs.iter().any(|program| is_assigned(&program.env, name)) {
                let text = format!("{name}={value}");
                self.add_variable(&CString::new(text).expect("these texts have no NUL"));
            }
        }
    }

    /// Has Linux schedule ranks that are more than their processors. Each rank is a session, so that it shares the processors with
    /// other sessions, as under MPICH's launcher, and not the job as one. A rank that gets a reply preempts neither the server nor
    /// another rank: otherwise most replies cost a switch to their rank and one back.
    pub fn schedule_as_oversubscribed(&mut self) {
        if std::fs::read("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.starts_with(b"1"))
        {
            self.attributes.give_own_session();
        }
        self.attributes.schedule_as_batch();
    }

    /// Allows debuggers that this process starts to trace the ranks.
    pub fn allow_tracing(&mut self) {
        self.attributes.allow_tracing();
    }

    /// Has ranks stop at their first instruction, until a debugger continues them (`SIGCONT`).
    pub fn stop_at_exec(&mut self, ranks: impl Iterator<Item = u32>) {
        self.stopped.extend(ranks);
    }

    /// Returns the commands of the programs with their files.
    pub fn programs(&self) -> impl Iterator<Item = (&OsStr, PathBuf)> {
        self.programs.iter().map(|image| (image.command.as_os_str(), image.file()))
    }

    /// The bindings of the ranks, if they are bound or bindings are reported.
    pub fn bindings(&self) -> Option<&Bindings> {
        self.affinity.bindings()
    }

    fn image(&self, rank: u32) -> usize {
        self.programs.partition_point(|image| image.end <= rank)
    }

    /// Starts a rank. `local` is its number on this machine.
    pub fn start(
        &mut self,
        rank: u32,
        local: u32,
        stdio: &Stdio<'_>,
        files: &OpenFiles,
    ) -> Result<Pid, LaunchError> {
        self.affinity.enter(local)?;
        let result = self.spawn(rank, local, stdio, files);
        self.affinity.leave();
        let command = || self.programs[self.image(rank)].command.clone();
        result.map_err(|why| match why.raw_os_error() {
            // The file itself existed when it was resolved.
            Some(libc::ENOENT) => LaunchError::NoInterpreter { rank, command: command() },
            Some(libc::ENOEXEC) => LaunchError::Format {
                command: command(),
                kind: hydrant_doctor::kind(&self.programs[self.image(rank)].file()),
            },
            _ => LaunchError::Spawn { rank, command: command(), why },
        })
    }

    fn spawn(&mut self, rank: u32, local: u32, stdio: &Stdio<'_>, files: &OpenFiles) -> io::Result<Pid> {
        let image = self.image(rank);
        let image = &mut self.programs[image];
        self.attributes.stop_at_exec(self.stopped.contains(&rank));
        let mut fds = Vec::with_capacity(5 + self.inherited.len());
        fds.extend(stdio.stdin.map(|fd| (fd, 0)));
        fds.extend([(stdio.stdout, 1), (stdio.stderr, 2)]);
        // SAFETY: these descriptors stay open, as the caller of `new` has promised.
        fds.extend(self.inherited.iter().map(|&fd| (unsafe { BorrowedFd::borrow_raw(fd) }, fd)));
        // These come last, because their numbers may be those of the others in this process.
        fds.extend(stdio.pmi.map(|fd| (fd, self.pmi_fd)));
        fds.extend(stdio.pool.map(|fd| (fd, POOL_FD)));
        let mut request = Request {
            path: &image.path,
            argv: image.argv.pointers(),
            envp: image.env.for_rank(rank, local),
            wdir: image.wdir.as_deref(),
            fds: &fds,
            files,
        };
        // SAFETY: both lists end with a null pointer and lead to strings that `image` keeps.
        match unsafe { spawn(&mut self.attributes, &request) } {
            // As a shell does it. Programs of other architectures and data are no scripts.
            Err(error)
                if error.raw_os_error() == Some(libc::ENOEXEC)
                    && hydrant_doctor::kind(&file(request.path, request.wdir)) == NoExec::Script =>
            {
                request.path = c"/bin/sh";
                request.argv = image.shell.pointers();
                // SAFETY: as above.
                unsafe { spawn(&mut self.attributes, &request) }
            }
            result => result,
        }
    }
}

/// Returns the number of the PMI socket in ranks that inherit these descriptors.
fn pmi_fd(inherited: &[RawFd]) -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| RawFd::try_from(limit).ok());
    let highest = limit.map_or(PMI_FD_MAX, |limit| PMI_FD_MAX.min(limit - 1));
    (3..=highest).rev().find(|fd| !inherited.contains(fd)).unwrap_or(highest)
}

/// Joins a program's environment and the variables that the launcher adds for each rank.
fn environment(
    program: &Program,
    libraries: &[PathBuf],
    setting: &JobEnvironment<'_>,
    pmi_fd: RawFd,
) -> Result<EnvBlock, LaunchError> {
    let env = program.env.as_slice();
    let (size, local) = setting.size;
    let mut own: Vec<(&str, OsString)> = vec![
        ("PMI_SIZE", size.to_string().into()),
        ("PMI_JOBID", setting.jobid.into()),
        ("MPI_LOCALNRANKS", local.to_string().into()),
        ("PMI_HOSTNAME", setting.host.to_owned()),
    ];
    own.extend(resolve::working_dir(program).map(|dir| ("PWD", dir.into())));
    if setting.spawned {
        own.push(("PMI_SPAWNED", "1".into()));
    }
    // Unbuffered by default, as on a terminal. The user may override it.
    if !is_assigned(env, GFORTRAN_UNBUFFERED) {
        own.push((GFORTRAN_UNBUFFERED, "y".into()));
    }
    if let Some((address, _)) = &setting.psets {
        own.push(("HYDRANT_QUERY", address.into()));
    }
    if setting.psets.is_some() || !libraries.is_empty() {
        let assigned = env.iter().find(|(name, _)| name == PRELOAD).map(|(_, value)| value.as_os_str());
        let first = setting.psets.as_ref().map(|(_, library)| *library);
        let sent = libraries.iter().map(|library| library.as_os_str());
        let all = first.into_iter().chain(assigned).chain(sent);
        own.extend(preload::list(all).map(|value| (PRELOAD, value)));
    }
    let mut numbered = vec![("PMI_RANK", RankNumber::Rank), ("MPI_LOCALRANKID", RankNumber::Local)];
    if let Some(address) = setting.pmix {
        add_pmix_variables(env, setting.jobid, address, setting.host, &mut own);
        numbered.push(("PMIX_RANK", RankNumber::Rank));
    }
    match &setting.pmi {
        PmiAddress::Inherited => own.push(("PMI_FD", pmi_fd.to_string().into())),
        PmiAddress::Port(address) => {
            own.push(("PMI_PORT", address.into()));
            numbered.push(("PMI_ID", RankNumber::Rank));
        }
        PmiAddress::PortPerRank => numbered.push(("PMI_ID", RankNumber::Rank)),
    }
    let gpus = match setting.gpus {
        Some(each) => gpus::variables(env, local, each, gpus::count)?,
        None => Vec::new(),
    };
    let mut shared = Vec::with_capacity(env.len() + own.len());
    for (name, value) in env {
        let ours = |n: &str| OsStr::new(n) == name;
        let is_gpus = setting.gpus.is_some() && gpus::VARIABLES.iter().any(|n| ours(n));
        if !own.iter().any(|(n, _)| ours(n)) && !numbered.iter().any(|(n, _)| ours(n)) && !is_gpus {
            shared.push(variable(name, value)?);
        }
    }
    for (name, value) in &own {
        shared.push(variable(OsStr::new(name), value)?);
    }
    Ok(EnvBlock::new(shared, &numbered, gpus))
}

/// Adds the variables by which libpmix and Open MPI find the server. They choose PMIx, others choose PMI.
fn add_pmix_variables(
    env: &[(OsString, OsString)],
    jobid: &str,
    address: PmixAddress,
    host: &OsStr,
    own: &mut Vec<(&str, OsString)>,
) {
    let address = if let PmixAddress::Port(address) = address { Some(address.to_string()) } else { None };
    let variables = pmix_variables(jobid, address.as_deref());
    own.extend(variables.into_iter().map(|(name, value)| (name, value.into())));
    // The name that the server has for this host. By its own name a client would not find the ranks of its host.
    if !is_assigned(env, PMIX_HOSTNAME) {
        own.push((PMIX_HOSTNAME, host.to_owned()));
    }
    // MPICH 5 refuses to choose between PMI and PMIx.
    if !MPICH_PMI_VERSION.iter().any(|name| is_assigned(env, name)) {
        own.push((MPICH_PMI_VERSION[0], "1".into()));
    }
}

/// Returns whether a program's environment has a variable.
fn is_assigned(env: &[(OsString, OsString)], variable: &str) -> bool {
    env.iter().any(|(name, _)| name == variable)
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, LaunchError> {
    // With the NUL, so that it is allocated once.
    let mut text = Vec::with_capacity(name.len() + value.len() + 2);
    text.extend_from_slice(name.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    c_string(text, "an environment variable")
}
