//! Programs that this process starts for its own purposes, such as ssh.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::lookup::DEFAULT_PATH;
use super::{Attributes, Request, check_executable, find_in_path, helper_started, spawn};
use crate::{Error, OpenFiles};

/// Error of the start of a program.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The command is empty.
    #[error("cannot start a program: the command is empty")]
    Empty,
    /// The file does not exist.
    #[error("cannot start {}: not found", .0.display())]
    NotFound(OsString),
    /// The command is not in `PATH`.
    #[error("cannot start {}: it is nowhere in PATH", .0.display())]
    NotInPath(OsString),
    /// The file must not be run.
    #[error("cannot start {}: {why}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// A string for the process holds a NUL byte.
    #[error("{what} holds a NUL byte, which no process can be given")]
    Nul {
        /// Name of the string in the message.
        what: &'static str,
    },
    /// The process was not started.
    #[error("cannot start {}: {why}", command.display())]
    Spawn {
        /// The command.
        command: OsString,
        /// The error of the system.
        why: io::Error,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
}

/// Starts the program that `words` name, looked up in this process's `PATH` and with its environment except the variables
/// `without`. The program leads a process group of its own and does not outlive this process. Its standard error is its standard
/// output.
///
/// # Errors
/// The program was not found, or could not be run.
pub fn start_helper(
    words: &[OsString],
    without: &[&str],
    stdin: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    files: &OpenFiles,
) -> Result<Pid, HelperError> {
    let (command, args) = words.split_first().ok_or(HelperError::Empty)?;
    let path = c_string(resolve(command)?.into_os_string().into_vec(), "the command")?;
    let mut argv = vec![c_string(command.as_bytes(), "the command")?];
    for arg in args {
        argv.push(c_string(arg.as_bytes(), "an argument")?);
    }
    let kept = std::env::vars_os().filter(|(variable, _)| without.iter().all(|name| variable != name));
    let variables = kept.map(|(variable, value)| {
        let mut text = variable.into_vec();
        text.reserve_exact(value.len() + 2);
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        c_string(text, "an environment variable")
    });
    let env = variables.collect::<Result<Vec<_>, _>>()?;
    let (argv, env) = (pointers(&argv), pointers(&env));
    let request = Request {
        path: &path,
        argv: &argv,
        envp: &env,
        wdir: None,
        fds: &[(stdin, 0), (output, 1), (output, 2)],
        files,
    };
    let mut attributes = Attributes::new(&[]).map_err(Error::during("cannot read signal dispositions"))?;
    // SAFETY: both lists end with a null pointer and lead to strings that live in this frame.
    let started = unsafe { spawn(&mut attributes, &request) };
    let pid = started.map_err(|why| HelperError::Spawn { command: command.clone(), why })?;
    helper_started(pid);
    Ok(pid)
}

/// Returns the file of a command: the command itself if it contains a slash, otherwise the first match in `PATH`.
fn resolve(command: &OsStr) -> Result<PathBuf, HelperError> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match check_executable(&path) {
            Ok(()) => Ok(path),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Err(HelperError::NotFound(path.into())),
            Err(why) => Err(HelperError::NotExecutable { path, why }),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut denied = None;
    find_in_path(command, Path::new(""), &path, &mut denied).ok_or_else(|| match denied {
        Some((path, why)) => HelperError::NotExecutable { path, why },
        None => HelperError::NotInPath(command.to_owned()),
    })
}

fn c_string(text: impl Into<Vec<u8>>, what: &'static str) -> Result<CString, HelperError> {
    CString::new(text).map_err(|_| HelperError::Nul { what })
}

/// The pointers to strings that outlive them, and a null pointer.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, pipe};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let null = File::open("/dev/null").unwrap();
        let files = OpenFiles::reserve(16).unwrap();
        let start = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            start_helper(&words, &[], null.as_fd(), null.as_fd(), &files).unwrap_err().to_string()
        };
        assert_eq!(start(&["hydrant-no-such"]), "cannot start hydrant-no-such: it is nowhere in PATH");
        assert_eq!(start(&["sh", "a\0b"]), "an argument holds a NUL byte, which no process can be given");
        assert!(start(&["/dev/null"]).starts_with("cannot start /dev/null: "));
        assert_eq!(start(&["./no/such"]), "cannot start ./no/such: not found");
        assert_eq!(start(&[]), "cannot start a program: the command is empty");
    }

    /// The output and the errors of a shell that starts without some variables.
    fn printed(script: &str, without: &[&str]) -> String {
        let null = File::open("/dev/null").unwrap();
        let (mut read, write) = pipe().unwrap();
        let files = OpenFiles::reserve(16).unwrap();
        let words = ["sh", "-c", script].map(OsString::from);
        start_helper(&words, without, null.as_fd(), write.as_fd(), &files).unwrap();
        drop(write);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn output_and_errors_go_to_one_descriptor() {
        assert_eq!(printed("echo out; echo error >&2", &[]), "out\nerror\n");
    }

    #[test]
    fn variables_are_kept_from_the_program() {
        let script = "echo ${CARGO_PKG_NAME-unset} ${CARGO_PKG_VERSION-unset}";
        let kept = concat!("unset ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(printed(script, &["CARGO_PKG_NAME"]), kept);
    }
}
