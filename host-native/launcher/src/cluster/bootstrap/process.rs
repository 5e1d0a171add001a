//! The process that starts a daemon: ssh, srun, qrsh, or the daemon itself.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use hydrant_reactor::process::{HelperError, start_helper};
use hydrant_reactor::{Error, OpenFiles};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, waitpid};
use zeroize::Zeroizing;

/// Bytes that are kept of what a process said.
const TAIL: usize = 2048;
/// Lines that are told of them.
const LINES: usize = 6;

/// A running one; with its whole process group it is ended when dropped.
#[derive(Debug)]
pub(in crate::cluster) struct Process {
    pid: Pid,
    /// The way to its standard input, what goes there, and how much of that is gone.
    input: Option<(OwnedFd, Zeroizing<Vec<u8>>, usize)>,
    /// What it says on standard output and error.
    output: Option<OwnedFd>,
    tail: Vec<u8>,
    ended: Option<WaitStatus>,
}

impl Process {
    /// Starts one and hands it `input`.
    pub(in crate::cluster) fn start(
        words: &[OsString],
        input: Zeroizing<Vec<u8>>,
        files: &OpenFiles,
    ) -> Result<Process, HelperError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(Error::during("pipe"));
        let (theirs_in, ours_in) = pipe()?;
        let (ours_out, theirs_out) = pipe()?;
        for fd in [&ours_in, &ours_out] {
            rustix::io::ioctl_fionbio(fd, true).map_err(Error::during("pipe"))?;
        }
        use std::os::fd::AsFd;
        let pid = start_helper(words, theirs_in.as_fd(), theirs_out.as_fd(), files)?;
        let input = Some((ours_in, input, 0));
        Ok(Process { pid, input, output: Some(ours_out), tail: Vec::new(), ended: None })
    }

    /// Where its input goes, as long as there is some.
    pub(in crate::cluster) fn input(&self) -> Option<&OwnedFd> {
        self.input.as_ref().map(|(fd, ..)| fd)
    }

    /// Where its output comes from, as long as it is open.
    pub(in crate::cluster) fn output(&self) -> Option<&OwnedFd> {
        self.output.as_ref()
    }

    /// Whether it runs.
    pub(in crate::cluster) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// Writes as much of its input as it takes.
    pub(in crate::cluster) fn feed(&mut self) {
        while let Some((fd, bytes, at)) = &mut self.input {
            match rustix::io::write(&*fd, &bytes[*at..]) {
                Ok(len) => *at += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Why it reads no more is told by its end.
                Err(_) => *at = bytes.len(),
            }
            if *at == bytes.len() {
                self.input = None;
            }
        }
    }

    /// Takes what it has said.
    pub(in crate::cluster) fn hear(&mut self) {
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

    /// The last lines that it said, without what could disturb a terminal.
    pub(in crate::cluster) fn last_words(&mut self) -> String {
        self.hear();
        let text = String::from_utf8_lossy(&self.tail);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        let clean = |line: &&str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        last.iter().map(clean).collect::<Vec<_>>().join("\n")
    }

    /// Whoever collects ended processes has met this one, if it is `pid`.
    pub(in crate::cluster) fn ended(&mut self, pid: Pid, status: WaitStatus) -> bool {
        let mine = self.pid == pid && self.is_running();
        if mine {
            self.ended = Some(status);
            // What it leaves behind has nobody who would end it; the group has its number for as long as it has members.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        mine
    }

    /// How it ended.
    pub(in crate::cluster) fn how(&self) -> Option<String> {
        let status = self.ended?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => {
                format!("was ended by {}", hydrant_reactor::signals::name(signal.try_into().unwrap_or(0)))
            }
            (None, None) => "ended".to_owned(),
        })
    }

    /// Ends it and what it started.
    pub(in crate::cluster) fn kill(&self) {
        if self.is_running() {
            // Gone already, which is as well.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        while self.is_running() {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => self.ended = Some(status),
                // Somebody else has collected it.
                Ok(None) | Err(_) => return,
            }
        }
    }
}
