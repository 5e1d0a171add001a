//! Process that starts a daemon: ssh, srun, qrsh, or the daemon itself.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};

use hydrant_core::trace::SignalName;
use hydrant_reactor::process::{HelperError, fork, start_helper};
use hydrant_reactor::{Error, OpenFiles, pipe};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, waitpid};
use zeroize::Zeroizing;

/// Number of bytes kept of a process's output.
const TAIL: usize = 2048;
/// Number of lines of output in an error message.
const LINES: usize = 6;

/// A process that starts a daemon. Its process group is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct BootstrapProcess {
    pid: Pid,
    /// Pipe to its standard input, the bytes to write, and the number of written bytes.
    input: Option<(OwnedFd, Zeroizing<Vec<u8>>, usize)>,
    /// Pipe from its standard output and error.
    output: Option<OwnedFd>,
    tail: Vec<u8>,
    status: Option<WaitStatus>,
}

impl BootstrapProcess {
    /// Starts a command without some variables of the environment. `input` is written to its standard input by
    /// [`BootstrapProcess::write_input`].
    pub(crate) fn start(
        words: &[OsString],
        without: &[&str],
        input: Zeroizing<Vec<u8>>,
        files: &OpenFiles,
    ) -> Result<BootstrapProcess, HelperError> {
        let pipe = || pipe().map_err(Error::during("pipe"));
        let (child_stdin, input_end) = pipe()?;
        let (output_end, child_stdout) = pipe()?;
        for fd in [&input_end, &output_end] {
            rustix::io::ioctl_fionbio(fd, true).map_err(Error::during("pipe"))?;
        }
        let pid = start_helper(words, without, child_stdin.as_fd(), child_stdout.as_fd(), files)?;
        let input = Some((input_end, input, 0));
        Ok(BootstrapProcess { pid, input, output: Some(output_end), tail: Vec::new(), status: None })
    }

    /// Forks a process that runs `main` with the descriptor `given`.
    pub(crate) fn fork(
        given: OwnedFd,
        files: &OpenFiles,
        main: impl FnOnce(OwnedFd) -> u8,
    ) -> Result<BootstrapProcess, Error> {
        let (output_end, child_stdout) = pipe().map_err(Error::during("pipe"))?;
        rustix::io::ioctl_fionbio(&output_end, true).map_err(Error::during("pipe"))?;
        let pid = fork(child_stdout.as_fd(), given, files, main).map_err(Error::during("fork"))?;
        Ok(BootstrapProcess { pid, input: None, output: Some(output_end), tail: Vec::new(), status: None })
    }

    /// Pipe to the standard input, until everything is written.
    pub(crate) fn input(&self) -> Option<&OwnedFd> {
        self.input.as_ref().map(|(fd, ..)| fd)
    }

    /// Pipe from the standard output and error, until it is closed.
    pub(crate) fn output(&self) -> Option<&OwnedFd> {
        self.output.as_ref()
    }

    /// Whether the process runs.
    pub(crate) fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Writes as much of the input as the pipe accepts.
    pub(crate) fn write_input(&mut self) {
        while let Some((fd, bytes, written)) = &mut self.input {
            match rustix::io::write(&*fd, &bytes[*written..]) {
                Ok(len) => *written += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The exit status of the process reports the cause.
                Err(_) => *written = bytes.len(),
            }
            if *written == bytes.len() {
                self.input = None;
            }
        }
    }

    /// Reads the available output.
    pub(crate) fn read_output(&mut self) {
        let mut buffer = [0; TAIL];
        while let Some(fd) = &self.output {
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => self.output = None,
                Ok(len) => {
                    self.tail.extend_from_slice(&buffer[..len]);
                    let surplus = self.tail.len().saturating_sub(TAIL);
                    self.tail.drain(..surplus);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.output = None,
            }
        }
    }

    /// Reads the available output and returns its last lines, without control characters.
    pub(crate) fn output_tail(&mut self) -> String {
        self.read_output();
        let text = String::from_utf8_lossy(&self.tail);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        let printable = |line: &&str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        last.iter().map(printable).collect::<Vec<_>>().join("\n")
    }

    /// The end of its output, as it was written.
    pub(crate) fn output_end(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.tail)
    }

    /// Records the exit status if `pid` is this process. Returns whether it is.
    pub(crate) fn handle_exit(&mut self, pid: Pid, status: WaitStatus) -> bool {
        let is_this = self.pid == pid && self.is_running();
        if is_this {
            self.status = Some(status);
            // Its children have no other parent that would end them. The number of the group stays in use while the
            // group has members.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        is_this
    }

    /// The exit status in words.
    pub(crate) fn exit_status(&self) -> Option<String> {
        let status = self.status?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was ended by {}", SignalName(signal)),
            (None, None) => "ended".to_owned(),
        })
    }

    /// Asks the process to end.
    pub(crate) fn terminate(&self) {
        if self.is_running() {
            // An error means that the process has ended.
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }

    /// Kills the process group.
    pub(crate) fn kill(&self) {
        if self.is_running() {
            // An error means that the group has ended.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// What ssh says about a host whose name is not known yet, or whose sshd does not answer yet.
const PASSING: [&str; 6] = [
    "could not resolve hostname",
    "temporary failure in name resolution",
    "name or service not known",
    "unknown host",
    "kex_exchange_identification:",
    "ssh_exchange_identification:",
];
/// Errors of a connection to a host that may be reachable soon, at the end of a line.
const PASSING_ERRORS: [&str; 4] =
    ["connection refused", "connection timed out", "no route to host", "network is unreachable"];
/// Messages about what does not mend itself.
const LASTING: [&str; 3] =
    ["permission denied", "host key verification failed", "too many authentication failures"];

/// Whether the command of a daemon has failed for a reason that may pass. Messages of hydrant are those of a daemon that was
/// reached.
pub(crate) fn may_pass(output: &str) -> bool {
    let output = output.to_lowercase();
    let says = |messages: &[&str]| messages.iter().any(|message| output.contains(message));
    let ends = |line: &str| PASSING_ERRORS.iter().any(|error| line.ends_with(error));
    let is_daemons = |line: &str| line.starts_with("hydrant:") || line.starts_with("hydrant daemon:");
    let passes = says(&PASSING) || output.lines().map(str::trim_end).any(ends);
    passes && !says(&LASTING) && !output.lines().any(is_daemons)
}

impl Drop for BootstrapProcess {
    fn drop(&mut self) {
        self.kill();
        while self.is_running() {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => self.status = Some(status),
                // Another part of the program has collected it.
                Ok(None) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_may_pass_or_last() {
        for passing in [
            "ssh: Could not resolve hostname w-1: Name or service not known",
            "ssh: connect to host w-1 port 22: Connection refused",
            "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.7 port 22",
            "ssh: connect to host w-1 port 22: No route to host",
            "hydrant-worker-0: Connection refused",
        ] {
            assert!(may_pass(passing), "{passing}");
        }
        for lasting in [
            "",
            "w-1: Permission denied (publickey).",
            "Host key verification failed.",
            "Connection closed by 10.0.0.7 port 22",
            "sh: 1: /opt/bin/run: not found",
            "no route to host4",
            "hydrant: cannot reach host n0 (node 0), the parent of this daemon, at 10.0.0.1:4000: Connection refused",
        ] {
            assert!(!may_pass(lasting), "{lasting}");
        }
    }
}
