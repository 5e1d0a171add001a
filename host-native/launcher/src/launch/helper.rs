//! Programs that the launcher starts for its own purposes, such as ssh.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;

use hydrant_reactor::OpenFiles;
use rustix::process::Pid;

use super::cstrings::CStrings;
use super::spawn::{Attributes, Request, spawn};
use super::{Checked, check, variable};
use crate::error::RunError;
use crate::plan::Program;

/// Starts the program that `words` name, looked up in the launcher's own `PATH` and with the launcher's environment.
/// It leads a process group of its own and does not outlive the launcher. Its standard output goes where its standard
/// error goes.
pub(crate) fn start_helper(
    words: &[OsString],
    stdin: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    files: &OpenFiles,
) -> Result<Pid, RunError> {
    let (command, args) = words.split_first().ok_or(RunError::Size(0))?;
    let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let variables = env.iter().map(|(name, value)| variable(OsStr::new(name), value));
    let envp = CStrings::new(variables.collect::<Result<_, _>>()?);
    let program = Program {
        ranks: 1,
        command: command.clone(),
        args: args.to_vec(),
        env,
        wdir: None,
        path: None,
        psets: Vec::new(),
    };
    let missing = |error| match error {
        // The launcher's own PATH, and not for ranks.
        RunError::NotFound { command, searched: Some(_) } => RunError::Helper {
            command,
            why: io::Error::new(io::ErrorKind::NotFound, "it is nowhere in PATH"),
        },
        error => error,
    };
    let Checked { path, argv, .. } = check(&program).map_err(missing)?;
    let argv = CStrings::new(argv);
    let request = Request {
        path: &path,
        argv: argv.pointers(),
        envp: envp.pointers(),
        wdir: None,
        fds: &[(stdin, 0), (output, 1), (output, 2)],
        files,
    };
    let mut attributes = Attributes::new(&[]).map_err(RunError::system("cannot read signal dispositions"))?;
    // SAFETY: both lists end with a null pointer and lead to strings that live in this frame.
    unsafe { spawn(&mut attributes, &request) }
        .map_err(|why| RunError::Helper { command: command.clone(), why })
}
