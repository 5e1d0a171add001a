//! Topology file for MPICH: its ranks read it in place of a scan of the machine each.
//!
//! MPICH asks for the path as the job attribute `PMI_hwloc_xmlfile`. The program `lstopo-no-graphics` of hwloc writes the file when
//! a rank asks for the first time, so that other jobs wait for nothing.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hydrant_core::server::{Consumed, RankStatus};
use hydrant_core::{Backend, Input, JobId, Limits, Output, Rank, Time};
use hydrant_driver::{AnyBackend, BackendError};
use hydrant_reactor::fixed_memory;
use hydrant_reactor::process::{DEFAULT_PATH, find_in_path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, dup2, fcntl_setfd};

/// The job attribute that holds the path.
pub(crate) const ATTRIBUTE: &str = "PMI_hwloc_xmlfile";
/// Fewest ranks of a job on this machine for which the file saves more than it costs.
pub(crate) const RANKS_MIN: u32 = 8;

/// Program of hwloc that prints the topology. `lstopo` may be linked with a window system.
const PROGRAM: &str = "lstopo-no-graphics";
/// As MPICH's own scan, with all devices.
const ARGUMENTS: [&str; 3] = ["--of", "xml", "--whole-io"];
/// Most time that ranks wait for the program. The server answers nothing meanwhile.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of a topology. A machine of 512 hardware threads has some 500 KiB.
const SIZE_MAX: usize = 16 << 20;
/// Most bytes of a request for the attribute.
const REQUEST_MAX: usize = 512;

/// Topology file in memory, which ranks open by the descriptor of this process. It is empty until a rank asks for it, and
/// remains empty if it cannot be written. MPICH then scans the machine itself.
#[derive(Debug)]
pub(crate) struct TopologyFile {
    command: Vec<OsString>,
    memory: RefCell<OwnedFd>,
    /// A job has the attribute, and no rank has asked for it.
    is_due: Cell<bool>,
    is_written: Cell<bool>,
}

impl TopologyFile {
    /// Prepares a file, if hwloc's program is in the `PATH` and the system has paths of descriptors of other processes.
    pub(crate) fn find() -> Option<Rc<TopologyFile>> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let program = find_in_path(PROGRAM.as_ref(), Path::new(""), &path, &mut None)?;
        let command = std::iter::once(program.into()).chain(ARGUMENTS.map(OsString::from));
        TopologyFile::new(command.collect()).ok().map(Rc::new)
    }

    fn new(command: Vec<OsString>) -> io::Result<TopologyFile> {
        let memory = RefCell::new(fixed_memory(c"topology", 0)?);
        Ok(TopologyFile { command, memory, is_due: Cell::new(false), is_written: Cell::new(false) })
    }

    /// Returns the path for a job, whose ranks may ask from now on.
    pub(crate) fn offer(&self) -> String {
        self.is_due.set(!self.is_written.get());
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.borrow().as_raw_fd())
    }

    /// Writes the file, once.
    fn write(&self, time: Duration) {
        self.is_due.set(false);
        if self.is_written.replace(true) {
            return;
        }
        if let Ok(text) = output_of(&self.command, time)
            && text.trim_ascii_end().ends_with(b"</topology>")
        {
            // Ranks scan the machine themselves if there is no memory for it.
            let _ = self.store(&text);
        }
    }

    /// Puts memory with this content behind the descriptor.
    fn store(&self, text: &[u8]) -> io::Result<()> {
        let memory = fixed_memory(c"topology", text.len() as u64)?;
        let mut file = File::from(memory.try_clone()?);
        file.write_all(text)?;
        let mut kept = self.memory.borrow_mut();
        dup2(&memory, &mut kept)?;
        Ok(fcntl_setfd(&*kept, FdFlags::CLOEXEC)?)
    }
}

/// Runs hwloc's program. Returns what it prints within this time.
fn output_of(command: &[OsString], time: Duration) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + time;
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let pipe = child.stdout.take().expect("standard output is a pipe");
    let result = read_until(deadline, pipe);
    // It has closed its output, or its time is over.
    let _ = child.kill();
    child.wait()?;
    result
}

/// Reads a pipe to its end.
fn read_until(deadline: Instant, mut pipe: ChildStdout) -> io::Result<Vec<u8>> {
    let (mut text, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match pipe.read(&mut buffer)? {
            0 => return Ok(text),
            len if text.len() + len > SIZE_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
            len => text.extend_from_slice(&buffer[..len]),
        }
    }
}

/// Backend that writes the topology file when a client asks for its path. The core has no attributes whose values the host makes.
struct WritesTopology<'s> {
    backend: Box<AnyBackend<'s>>,
    file: Rc<TopologyFile>,
}

/// Wraps a backend, if there may be a topology file.
pub(crate) fn with_topology<'s>(
    backend: Box<AnyBackend<'s>>,
    file: Option<&Rc<TopologyFile>>,
) -> Box<AnyBackend<'s>> {
    match file {
        Some(file) => Box::new(WritesTopology { backend, file: Rc::clone(file) }),
        None => backend,
    }
}

impl Backend for WritesTopology<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        if self.file.is_due.get()
            && let Input::Bytes { bytes, .. } = input
            && bytes.len() <= REQUEST_MAX
            && bytes.windows(ATTRIBUTE.len()).any(|part| part == ATTRIBUTE.as_bytes())
        {
            self.file.write(TIME_MAX);
        }
        self.backend.handle(now, input)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        self.backend.poll(buf)
    }

    fn poll_at(&self) -> Option<Time> {
        self.backend.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.backend.limits()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.backend.kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.backend.rank_status(job, rank)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// Writes a file by a shell with this script. Returns its content.
    fn written_by(script: &str, time: Duration) -> String {
        let words = ["/bin/sh", "-c", script].map(OsString::from);
        let file = TopologyFile::new(words.into()).unwrap();
        let path = file.offer();
        assert_eq!(fs::read(&path).unwrap(), b"");
        file.write(time);
        assert_eq!(file.offer(), path);
        assert!(!file.is_due.get());
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn only_a_whole_topology_is_kept() {
        let long = Duration::from_secs(60);
        let whole = "echo noise >&2; echo '<topology>'; echo '</topology>'";
        assert_eq!(written_by(whole, long), "<topology>\n</topology>\n");
        assert_eq!(written_by("echo '<topology>'", long), "");
        assert_eq!(written_by("exit 3", long), "");
        assert_eq!(written_by("exec /nowhere/lstopo", long), "");
        assert_eq!(written_by("exec sleep 1000", Duration::from_millis(1)), "");
        assert_eq!(written_by("exec yes", long), "");
    }
}
