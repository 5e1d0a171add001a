//! Runs one command with a time limit.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// What a finished command leaves.
pub(crate) struct Finished {
    /// From before it was started until it was reaped.
    pub(crate) took: Duration,
    /// Its standard output.
    pub(crate) stdout: String,
}

/// Runs a command in a process group of its own and waits for it, at most `limit`; then the group is ended.
///
/// Output is read when the command has ended, so it must fit a pipe's buffer (64 KiB).
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let Some(status) = wait(&mut child, limit)? else {
        end(&mut child)?;
        bail!("{name} was not done after {} s and was ended", limit.as_secs());
    };
    let took = start.elapsed();
    let stdout = rest(child.stdout.take())?;
    if !status.success() {
        bail!("{name} failed: {status}\n{stdout}{}", rest(child.stderr.take())?);
    }
    Ok(Finished { took, stdout })
}

/// Waits for a child; `None` when it is still there after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(child.wait()?)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends the child's process group: politely, so that a process manager takes its ranks along, then for good.
fn end(child: &mut Child) -> Result<()> {
    let group = Pid::from_child(child);
    kill_process_group(group, Signal::TERM)?;
    if wait(child, Duration::from_secs(5))?.is_none() {
        kill_process_group(group, Signal::KILL)?;
        child.wait()?;
    }
    Ok(())
}

/// What is in a pipe now: a process that was left behind may hold it open for ever.
fn rest(pipe: Option<impl Read + AsFd>) -> Result<String> {
    let Some(mut pipe) = pipe else { return Ok(String::new()) };
    fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(got) => bytes.extend_from_slice(&chunk[..got]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
