//! Topology file for MPI libraries: ranks read it in place of a scan of the machine each.
//!
//! MPICH asks for the path as the job attribute `PMI_hwloc_xmlfile`, Open MPI for the content as `PMIX_HWLOC_XML_V2`. The program
//! `lstopo-no-graphics` of hwloc writes the file when a rank asks for the first time, so that other jobs wait for nothing.
//! Requests wait until it has ended. The content becomes a text of a job when its first PMIx client asks.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use hydrant_core::{ConnId, JobId};
use hydrant_reactor::process::{DEFAULT_PATH, find_in_path, start_helper};
use hydrant_reactor::{OpenFiles, fixed_memory, read_written};
use memchr::memmem::Finder;
use rustix::io::{FdFlags, dup2, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

/// The job attribute that holds the path.
pub(crate) const ATTRIBUTE: &str = "PMI_hwloc_xmlfile";
/// Key of the content for PMIx clients: `PMIX_HWLOC_XML_V2`.
pub(crate) const PMIX_KEY: &str = "pmix.hwlocxml2";
/// Fewest ranks of a job on this machine for which the file saves more than it costs.
pub(crate) const RANKS_MIN: u32 = 8;

/// Program of hwloc that prints the topology. `lstopo` may be linked with a window system.
const PROGRAM: &str = "lstopo-no-graphics";
/// As MPICH's own scan, with all devices.
const ARGUMENTS: [&str; 3] = ["--of", "xml", "--whole-io"];
/// A shell keeps the program's messages out of the file.
const SHELL: [&str; 3] = ["/bin/sh", "-c", r#"exec "$0" "$@" 2>/dev/null"#];
/// Most time in milliseconds that ranks wait for the program.
const TIME_MAX: u64 = 10_000;
/// Most bytes of a topology. A machine of 512 hardware threads has some 500 KiB.
const SIZE_MAX: u64 = 16 << 20;
/// Most bytes of a request for the path or the content.
const REQUEST_MAX: usize = 512;

/// Program that writes topology files.
#[derive(Clone, Debug)]
pub(crate) struct TopologyProgram {
    command: Vec<OsString>,
    /// Searches for the attribute and for the key, which every request passes while the file is not written.
    attribute: Finder<'static>,
    pmix_key: Finder<'static>,
}

/// Topology file in memory, which ranks open by the descriptor of this process. It is empty until a rank asks for it, and
/// remains empty if it cannot be written. Ranks then scan the machine themselves.
#[derive(Debug, Default)]
pub(crate) struct TopologyFile {
    /// None before the first offer, and on systems that cannot write the file.
    source: Option<Source>,
    state: State,
    /// Connections whose requests wait for the file.
    waiting: Vec<ConnId>,
    /// Jobs whose PMIx clients may ask for the content, which the server does not have yet.
    owed: Vec<JobId>,
    /// One of these clients has asked.
    is_due: bool,
}

#[derive(Debug)]
struct Source {
    program: TopologyProgram,
    memory: OwnedFd,
}

impl Source {
    fn new(program: TopologyProgram) -> Option<Source> {
        let memory = fixed_memory(c"topology", 0).ok()?;
        Some(Source { program, memory })
    }
}

#[derive(Debug, Default)]
enum State {
    /// No job has the attribute.
    #[default]
    Unused,
    /// Ranks may ask.
    Offered,
    /// A rank has asked.
    Asked,
    /// The program writes to this memory.
    Running { pid: Pid, output: OwnedFd, deadline: u64 },
    /// The program has ended, or its time is over.
    Done,
}

impl TopologyProgram {
    /// Finds hwloc's program in the `PATH`, if the system has paths of descriptors of other processes.
    pub(crate) fn find() -> Option<TopologyProgram> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let program = find_in_path(PROGRAM.as_ref(), Path::new(""), &path, &mut None)?;
        let command = SHELL.map(OsString::from).into_iter().chain([program.into()]);
        Some(TopologyProgram::new(command.chain(ARGUMENTS.map(OsString::from)).collect()))
    }

    fn new(command: Vec<OsString>) -> TopologyProgram {
        TopologyProgram { command, attribute: Finder::new(ATTRIBUTE), pmix_key: Finder::new(PMIX_KEY) }
    }
}

impl TopologyFile {
    /// Returns the path for a job, whose ranks may ask from now on. None if the system cannot write the file.
    pub(crate) fn offer(&mut self) -> Option<String> {
        if let State::Unused = self.state {
            let source = self.source.take();
            self.source = source.or_else(|| TopologyProgram::find().and_then(Source::new));
            self.state = State::Offered;
        }
        let memory = &self.source.as_ref()?.memory;
        Some(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()))
    }

    /// Lets PMIx clients of a job ask for the content of the file, which [has been offered](TopologyFile::offer).
    pub(crate) fn offer_content(&mut self, job: JobId) {
        self.owed.push(job);
    }

    /// A job has ended.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.owed.retain(|&owed| owed != job);
    }

    /// Returns whether these bytes of a connection ask for the path or the content, and have to wait.
    pub(crate) fn defer(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let Some(Source { program, .. }) = &self.source else { return false };
        if bytes.len() > REQUEST_MAX {
            return false;
        }
        let for_content = !self.owed.is_empty() && program.pmix_key.find(bytes).is_some();
        let waits = match self.state {
            State::Unused | State::Done => for_content,
            _ => for_content || program.attribute.find(bytes).is_some(),
        };
        self.is_due |= for_content;
        if waits && let State::Offered = self.state {
            self.state = State::Asked;
        }
        if waits && !self.waiting.contains(&conn) {
            self.waiting.push(conn);
        }
        waits
    }

    /// Time in milliseconds of the next [`keep_time`](TopologyFile::keep_time): the program is to be started or killed, or a
    /// job gets the content.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        match self.state {
            State::Asked => Some(0),
            State::Running { deadline, .. } => Some(deadline),
            State::Done if self.is_due => Some(0),
            State::Unused | State::Offered | State::Done => None,
        }
    }

    /// Starts the program once a rank has asked, and kills it when its time is over. Returns the connections that need
    /// not wait any longer.
    pub(crate) fn keep_time(&mut self, now: u64, null: BorrowedFd<'_>, files: &OpenFiles) -> Vec<ConnId> {
        match self.state {
            State::Asked => self.state = self.start(now, null, files).unwrap_or(State::Done),
            State::Running { pid, deadline, .. } if deadline <= now => {
                // The program has not been collected, so the number is still its own.
                let _ = kill_process_group(pid, Signal::KILL);
                self.state = State::Done;
            }
            _ => {}
        }
        if let State::Done = self.state { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }

    /// Returns the jobs whose PMIx clients get the content now, which is empty if there is none.
    pub(crate) fn take_due(&mut self) -> (Vec<JobId>, Vec<u8>) {
        if !self.is_due || !matches!(self.state, State::Done) {
            return Default::default();
        }
        self.is_due = false;
        let memory = self.source.as_ref().map(|source| source.memory.as_fd());
        // Ranks scan the machine themselves if there is no memory for a copy.
        let content = memory.and_then(|memory| read_written(memory, SIZE_MAX).ok()).unwrap_or_default();
        (std::mem::take(&mut self.owed), content)
    }

    fn start(&self, now: u64, null: BorrowedFd<'_>, files: &OpenFiles) -> Option<State> {
        let source = self.source.as_ref()?;
        let output = fixed_memory(c"topology", SIZE_MAX).ok()?;
        let pid = start_helper(&source.program.command, &[], null, output.as_fd(), files).ok()?;
        Some(State::Running { pid, output, deadline: now + TIME_MAX })
    }

    /// Keeps what the program has written, if this process was the program.
    pub(crate) fn ended(&mut self, pid: Pid) {
        if !matches!(self.state, State::Running { pid: own, .. } if own == pid) {
            return;
        }
        if let State::Running { output, .. } = std::mem::replace(&mut self.state, State::Done) {
            // Ranks scan the machine themselves if there is no memory for a copy.
            let _ = self.store(&output);
        }
    }

    /// Puts memory with the topology behind the descriptor, if it is whole.
    fn store(&mut self, output: &OwnedFd) -> io::Result<()> {
        let text = read_written(output.as_fd(), SIZE_MAX)?;
        let Some(source) = &mut self.source else { return Ok(()) };
        if !text.trim_ascii_end().ends_with(b"</topology>") {
            return Ok(());
        }
        let memory = fixed_memory(c"topology", text.len() as u64)?;
        File::from(memory.try_clone()?).write_all(&text)?;
        dup2(&memory, &mut source.memory)?;
        Ok(fcntl_setfd(&source.memory, FdFlags::CLOEXEC)?)
    }
}

/// Topology file of an engine and its backend.
pub(crate) type SharedTopologyFile = Rc<RefCell<TopologyFile>>;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    const REQUEST: &[u8] = b"cmd=get kvsname=kvs key=PMI_hwloc_xmlfile\n";
    const PMIX_REQUEST: &[u8] = b"\x02\x04\x02\x1epmix.hwlocxml2\0";

    fn file_by(script: &str) -> TopologyFile {
        file_of(["/bin/sh", "-c", script].map(OsString::from).into())
    }

    fn file_of(command: Vec<OsString>) -> TopologyFile {
        TopologyFile { source: Source::new(TopologyProgram::new(command)), ..TopologyFile::default() }
    }

    /// Starts the program of a file for one connection that asks.
    fn started(script: &str) -> (TopologyFile, String) {
        let mut file = file_by(script);
        let path = file.offer().unwrap();
        assert_eq!(file.poll_at(), None);
        assert!(file.defer(ConnId(3), REQUEST) && file.defer(ConnId(3), REQUEST));
        assert_eq!(file.poll_at(), Some(0), "the program has to be started");
        assert_eq!(keep_time(&mut file, 5), []);
        (file, path)
    }

    fn keep_time(file: &mut TopologyFile, now: u64) -> Vec<ConnId> {
        let (null, files) = (File::open("/dev/null").unwrap(), OpenFiles::reserve(0).unwrap());
        file.keep_time(now, null.as_fd(), &files)
    }

    /// Returns what a shell with this script leaves in the file.
    fn written_by(script: &str) -> String {
        let (mut file, path) = started(script);
        let State::Running { pid, .. } = file.state else { panic!("{script} was not started") };
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
        file.ended(pid);
        assert_eq!(keep_time(&mut file, 6), [ConnId(3)]);
        assert!(!file.defer(ConnId(4), REQUEST));
        assert_eq!(file.offer().as_ref(), Some(&path));
        fs::read_to_string(&path).unwrap()
    }

    // Fault: `lstopo-no-graphics` hangs, fails or prints without end
    // Outcome: ranks scan the machine themselves
    // Guarantee: Ranks wait for 10 s at most; a topology has at most 16 MiB
    // Also: hydrant-run `ranks_wait_for_a_limited_time`, launch `topology::it_is_empty_if_hwloc_fails`
    #[test]
    fn only_a_whole_topology_is_kept() {
        let whole = "echo '<topology>'; echo '</topology>'";
        assert_eq!(written_by(whole), "<topology>\n</topology>\n");
        assert_eq!(written_by("echo '<topology>'"), "");
        assert_eq!(written_by("exit 3"), "");
        assert_eq!(written_by("exec yes"), "");
    }

    #[test]
    fn jobs_get_the_content_when_a_pmix_client_asks() {
        let (mut file, _) = started("echo '<topology>'; echo '</topology>'");
        let [one, other, over] = [1, 2, 3].map(JobId);
        file.offer_content(one);
        file.offer_content(over);
        assert!(file.defer(ConnId(5), PMIX_REQUEST));
        file.forget(over);
        assert_eq!(file.take_due(), (vec![], vec![]), "it is not written");
        let State::Running { pid, .. } = file.state else { panic!("it was not started") };
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
        file.ended(pid);
        assert_eq!((file.poll_at(), keep_time(&mut file, 6)), (Some(0), vec![ConnId(3), ConnId(5)]));
        let content = b"<topology>\n</topology>\n".to_vec();
        assert_eq!(file.take_due(), (vec![one], content.clone()));
        assert_eq!((file.poll_at(), file.take_due()), (None, (vec![], vec![])));
        assert!(!file.defer(ConnId(5), PMIX_REQUEST), "the server has it");
        // Later jobs get it when they ask.
        file.offer_content(other);
        assert!(!file.defer(ConnId(6), REQUEST) && file.defer(ConnId(6), PMIX_REQUEST));
        assert_eq!((file.poll_at(), keep_time(&mut file, 7)), (Some(0), vec![ConnId(6)]));
        assert_eq!(file.take_due(), (vec![other], content));
    }

    #[test]
    fn ranks_wait_for_a_limited_time() {
        let (mut file, path) = started("exec sleep 1000");
        let State::Running { pid, .. } = file.state else { panic!("it was not started") };
        assert_eq!(file.poll_at(), Some(5 + TIME_MAX));
        assert_eq!(keep_time(&mut file, 4 + TIME_MAX), []);
        assert_eq!(keep_time(&mut file, 5 + TIME_MAX), [ConnId(3)]);
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
        file.ended(pid);
        assert_eq!(fs::read(path).unwrap(), b"");
    }

    #[test]
    fn ranks_do_not_wait_for_a_program_that_cannot_be_started() {
        let mut file = file_of(vec!["/nowhere/lstopo".into()]);
        file.offer();
        assert!(file.defer(ConnId(0), REQUEST));
        assert_eq!(keep_time(&mut file, 0), [ConnId(0)]);
    }

    #[test]
    fn other_requests_do_not_wait() {
        let mut file = file_by("exit 0");
        assert!(!file.defer(ConnId(0), REQUEST), "no job has the attribute");
        file.offer();
        assert!(!file.defer(ConnId(0), b"cmd=get kvsname=kvs key=PMI_process_mapping\n"));
        assert!(!file.defer(ConnId(0), PMIX_REQUEST), "no job gets it by PMIx");
        assert!(file.waiting.is_empty());
    }
}
