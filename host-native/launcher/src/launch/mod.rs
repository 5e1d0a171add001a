//! From a plan to running processes.

mod asked;
mod bind;
mod cstrings;
mod preload;
mod resolve;
mod soft;

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use hydrant_placement::CpuBinding;
use hydrant_reactor::OpenFiles;
use hydrant_reactor::process::{Attributes, Request, spawn};
use rustix::process::Pid;

use crate::error::RunError;
use crate::plan::Program;
pub(crate) use asked::{Asked, AskedError, There};
use bind::Affinity;
use cstrings::{CStrings, EnvBlock, Which, c_string};
pub(crate) use preload::find as find_mpi_library;

/// The number that every rank finds its PMI socket under.
const PMI_FD: RawFd = 3;
/// Libraries that the system loads into a program before its own.
const PRELOAD: &str = "LD_PRELOAD";
/// Has libgfortran write the preconnected units without a buffer.
const GFORTRAN_UNBUFFERED: &str = "GFORTRAN_UNBUFFERED_PRECONNECTED";

/// How ranks find their server.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// By an inherited socket.
    Fd,
    /// By TCP, at this `host:port`.
    Port(String),
    /// By TCP, where [`Launcher::direct`] says.
    Elsewhere,
}

/// A job's programs, checked and ready to start.
pub(crate) struct Launcher {
    programs: Vec<Image>,
    affinity: Affinity,
    attributes: Attributes,
}

/// One program in the form that the system takes.
struct Image {
    /// The rank after its last one.
    end: u32,
    command: OsString,
    path: CString,
    argv: CStrings,
    /// For a script without `#!` line, which the shell runs, as `execvp` does.
    shell: CStrings,
    env: EnvBlock,
    wdir: Option<CString>,
}

/// The descriptors that a rank gets.
pub(crate) struct Stdio<'a> {
    /// Its standard input; the launcher's own when missing.
    pub(crate) stdin: Option<BorrowedFd<'a>>,
    /// Its standard output.
    pub(crate) stdout: BorrowedFd<'a>,
    /// Its standard error.
    pub(crate) stderr: BorrowedFd<'a>,
    /// Its end of the PMI socket.
    pub(crate) pmi: Option<BorrowedFd<'a>>,
}

/// A program that has been checked.
pub(crate) struct Checked {
    command: OsString,
    path: CString,
    argv: Vec<CString>,
    wdir: Option<CString>,
}

/// Finds a program and checks all that can be checked before it is started.
pub(crate) fn check(program: &Program) -> Result<Checked, RunError> {
    if let Some(dir) = &program.wdir {
        resolve::check_wdir(dir)?;
    }
    let path = c_string(resolve::resolve(program)?.as_os_str(), "the command")?;
    let mut argv = vec![c_string(&program.command, "the command")?];
    for arg in &program.args {
        argv.push(c_string(arg, "an argument")?);
    }
    let wdir = program.wdir.as_ref().map(|dir| c_string(dir.as_os_str(), "the working directory"));
    Ok(Checked { command: program.command.clone(), path, argv, wdir: wdir.transpose()? })
}

/// What the ranks of a job are told of it.
pub(crate) struct Setting<'a> {
    /// The job's name.
    pub(crate) jobid: &'a str,
    /// This machine's.
    pub(crate) host: &'a OsStr,
    /// Where they find their server.
    pub(crate) service: Service,
    /// For the process sets of MPI programs: where they are asked for, and the library that asks.
    pub(crate) psets: Option<(String, &'a OsStr)>,
    /// Whether another job asked for this one.
    pub(crate) spawned: bool,
    /// How many ranks the job has, and how many of them are on this machine.
    pub(crate) size: (u32, u32),
}

impl Launcher {
    /// For programs, each with the rank behind its last one and what it was found to be, those without ranks here
    /// left out.
    ///
    /// `keep_ignored` are signals that the launcher ignores and the ranks shall go on to.
    pub(crate) fn new(
        programs: Vec<(&Program, u32, Checked)>,
        binding: &CpuBinding,
        setting: &Setting<'_>,
        keep_ignored: &[i32],
    ) -> Result<Launcher, RunError> {
        let images = programs.into_iter().map(|(program, end, checked)| {
            let Checked { command, path, argv, wdir } = checked;
            let mut shell = vec![c"sh".to_owned(), path.clone()];
            shell.extend(argv.iter().skip(1).cloned());
            let env = environment(&program.env, setting)?;
            let (argv, shell) = (CStrings::new(argv), CStrings::new(shell));
            Ok(Image { end, command, path, argv, shell, env, wdir })
        });
        Ok(Launcher {
            programs: images.collect::<Result<_, RunError>>()?,
            affinity: Affinity::new(binding)?,
            attributes: Attributes::new(keep_ignored)
                .map_err(RunError::system("cannot read signal dispositions"))?,
        })
    }

    /// Tells ranks where they are served: by these ports of a host, one after the other.
    pub(crate) fn direct(&mut self, host: &str, ports: &[u16]) {
        let head = format!("PMI_PORT={host}:");
        self.programs.iter_mut().for_each(|image| image.env.add(&head, Which::Cycle(ports.to_vec())));
    }

    /// Adds a variable, as `NAME=VALUE`, that no rank has yet.
    pub(crate) fn set(&mut self, variable: &CStr) {
        for image in &mut self.programs {
            image.env.push(variable.to_owned());
        }
    }

    fn image(&self, rank: u32) -> usize {
        self.programs.partition_point(|image| image.end <= rank)
    }

    /// Starts a rank, which is the `local`th of those on this machine.
    pub(crate) fn start(
        &mut self,
        rank: u32,
        local: u32,
        stdio: &Stdio<'_>,
        files: &OpenFiles,
    ) -> Result<Pid, RunError> {
        self.affinity.enter(local)?;
        let result = self.spawn(rank, local, stdio, files);
        self.affinity.leave();
        let command = || self.programs[self.image(rank)].command.clone();
        result.map_err(|why| match why.raw_os_error() {
            // The file itself was there a moment ago.
            Some(libc::ENOENT) => RunError::NoInterpreter { rank, command: command() },
            _ => RunError::Spawn { rank, command: command(), why },
        })
    }

    fn spawn(&mut self, rank: u32, local: u32, stdio: &Stdio<'_>, files: &OpenFiles) -> io::Result<Pid> {
        let image = self.image(rank);
        let image = &mut self.programs[image];
        let mut fds = Vec::with_capacity(4);
        fds.extend(stdio.stdin.map(|fd| (fd, 0)));
        fds.extend([(stdio.stdout, 1), (stdio.stderr, 2)]);
        // Last, because PMI_FD may be the number of any of the others here.
        fds.extend(stdio.pmi.map(|fd| (fd, PMI_FD)));
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
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                request.path = c"/bin/sh";
                request.argv = image.shell.pointers();
                // SAFETY: as above.
                unsafe { spawn(&mut self.attributes, &request) }
            }
            result => result,
        }
    }
}

/// A program's environment and what the launcher adds for each rank.
fn environment(env: &[(OsString, OsString)], setting: &Setting<'_>) -> Result<EnvBlock, RunError> {
    let (size, local) = setting.size;
    let mut own: Vec<(&str, OsString)> = vec![
        ("PMI_SIZE", size.to_string().into()),
        ("PMI_JOBID", setting.jobid.into()),
        ("MPI_LOCALNRANKS", local.to_string().into()),
        ("PMI_HOSTNAME", setting.host.to_owned()),
    ];
    if setting.spawned {
        own.push(("PMI_SPAWNED", "1".into()));
    }
    // Output through a pipe comes as it is written, as on a terminal; that is for the user to change.
    if !env.iter().any(|(name, _)| name == GFORTRAN_UNBUFFERED) {
        own.push((GFORTRAN_UNBUFFERED, "y".into()));
    }
    if let Some((address, library)) = &setting.psets {
        let others = env.iter().find(|(name, _)| name == PRELOAD).map(|(_, value)| value.as_os_str());
        own.push(("HYDRANT_QUERY", address.into()));
        own.push((PRELOAD, preload::before(library, others)));
    }
    let mut numbered = vec![("PMI_RANK", Which::Rank), ("MPI_LOCALRANKID", Which::Local)];
    match &setting.service {
        Service::Fd => own.push(("PMI_FD", PMI_FD.to_string().into())),
        Service::Port(address) => {
            own.push(("PMI_PORT", address.into()));
            numbered.push(("PMI_ID", Which::Rank));
        }
        Service::Elsewhere => numbered.push(("PMI_ID", Which::Rank)),
    }
    let mut shared = Vec::with_capacity(env.len() + own.len());
    for (name, value) in env {
        let ours = |n: &str| OsStr::new(n) == name;
        if !own.iter().any(|(n, _)| ours(n)) && !numbered.iter().any(|(n, _)| ours(n)) {
            shared.push(variable(name, value)?);
        }
    }
    for (name, value) in &own {
        shared.push(variable(OsStr::new(name), value)?);
    }
    Ok(EnvBlock::new(shared, &numbered))
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, RunError> {
    let mut text = name.as_bytes().to_vec();
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    c_string(&OsString::from_vec(text), "an environment variable")
}
