//! A program that was started: its output is read while it runs, and it is ended, with every process that it started, when it
//! takes too long or the test fails.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::outcome::Outcome;
use crate::patience::PATIENCE;
use crate::recording::Recording;

/// Environment variable that marks every process that a job starts.
pub(crate) const MARK: &str = "HYDRANT_TESTS_JOB";

/// A pipe that is read in the background.
#[derive(Debug)]
struct Capture {
    shared: Arc<(Mutex<Captured>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    ended: bool,
}

fn lock(mutex: &Mutex<Captured>) -> MutexGuard<'_, Captured> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capture {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Capture {
        let captured = Captured { bytes: Vec::new(), ended: pipe.is_none() };
        let shared = Arc::new((Mutex::new(captured), Condvar::new()));
        let Some(mut pipe) = pipe else { return Capture { shared, thread: None } };
        let mine = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut buf = [0; 16 * 1024];
            loop {
                let n = pipe.read(&mut buf).unwrap_or(0);
                let mut captured = lock(&mine.0);
                captured.bytes.extend_from_slice(&buf[..n]);
                captured.ended = n == 0;
                mine.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Capture { shared, thread: Some(thread) }
    }

    /// Waits until `done` holds, the pipe is closed, or the deadline has passed; whether `done` holds.
    fn until(&self, deadline: Instant, done: impl Fn(&[u8]) -> bool) -> bool {
        let mut captured = lock(&self.shared.0);
        while !done(&captured.bytes) {
            let left = deadline.saturating_duration_since(Instant::now());
            if captured.ended || left.is_zero() {
                return false;
            }
            let waited = self.shared.1.wait_timeout(captured, left);
            captured = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn bytes(&self) -> Vec<u8> {
        lock(&self.shared.0).bytes.clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.shared.0).bytes).into_owned()
    }
}

/// A program that was started. Dropping it kills the program and every process that it started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Capture,
    stderr: Capture,
    writer: Option<JoinHandle<()>>,
    mark: String,
    recording: Option<Recording>,
    deadline: Instant,
    shown: String,
    reaped: bool,
    /// Bytes of standard output that [`Running::line`] has returned.
    read: usize,
}

impl Running {
    pub(crate) fn start(
        mut command: Command,
        input: Option<Vec<u8>>,
        captures: [bool; 2],
        mark: String,
        recording: Option<Recording>,
    ) -> Running {
        let shown = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|e| panic!("starting {shown}: {e}"));
        let writer = input.map(|bytes| {
            let mut pipe = child.stdin.take().expect("standard input is piped");
            // A job that ends without reading everything is no failure of the test.
            thread::spawn(move || drop(pipe.write_all(&bytes)))
        });
        let stdout = Capture::of(captures[0].then(|| child.stdout.take().expect("standard output is piped")));
        let stderr = Capture::of(captures[1].then(|| child.stderr.take().expect("standard error is piped")));
        let deadline = Instant::now() + PATIENCE;
        Running { child, stdout, stderr, writer, mark, recording, deadline, shown, reaped: false, read: 0 }
    }

    /// Lets what is awaited next take [`PATIENCE`] from now on, rather than from the start of the program.
    pub fn renew_patience(&mut self) -> &mut Running {
        self.deadline = Instant::now() + PATIENCE;
        self
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The processes that it has started itself, the oldest first. Of a launcher of local daemons those are the daemons below it,
    /// in the order of their nodes.
    pub fn children(&self) -> Vec<Pid> {
        children(self.pid())
    }

    /// Of a launcher of local daemons, those that it has started itself, in the order of their nodes. With the sandbox its first
    /// child is its guardian, which has no descriptor but one.
    pub fn daemons(&self) -> Vec<Pid> {
        let files =
            |pid: Pid| fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).map_or(0, Iterator::count);
        self.children().into_iter().filter(|&pid| files(pid) > 1).collect()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Waits until its standard output holds `text`, `times` times.
    pub fn await_stdout(&self, text: &str, times: usize) -> &Running {
        let there = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches(text).count() >= times;
        let came = self.stdout.until(self.deadline, there);
        assert!(came, "no {text:?} ({times} times) in the output of {}\n{}", self.shown, self.streams());
        self
    }

    /// Waits until its standard error holds `text`.
    pub fn await_stderr(&self, text: &str) -> &Running {
        let came = self.stderr.until(self.deadline, |bytes| String::from_utf8_lossy(bytes).contains(text));
        assert!(came, "no {text:?} in the errors of {}\n{}", self.shown, self.streams());
        self
    }

    /// Waits for the next line of its standard output and returns it without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let from = self.read;
        let came = self.stdout.until(self.deadline, |bytes| bytes[from..].contains(&b'\n'));
        assert!(came, "no further line in the output of {}\n{}", self.shown, self.streams());
        let bytes = self.stdout.bytes();
        let len = bytes[from..].iter().position(|&b| b == b'\n').expect("a line came");
        self.read += len + 1;
        String::from_utf8_lossy(&bytes[from..from + len]).trim_end().to_owned()
    }

    /// Waits for the line with which a management server begins, and returns its address.
    #[track_caller]
    pub fn managed_address(&mut self) -> String {
        let line = self.line();
        let address = line.strip_prefix("hydrant serve: managed at ");
        address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
    }

    /// The next lines of its standard output, sorted, because ranks write in any order.
    #[track_caller]
    pub fn lines<const COUNT: usize>(&mut self) -> [String; COUNT] {
        let mut lines = [(); COUNT].map(|()| self.line());
        lines.sort_unstable();
        lines
    }

    /// Writes to its standard input, which [`crate::Job::hold_input`] has left open.
    ///
    /// # Errors
    /// The system's, for example when the reader has exited.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.child.stdin.as_mut().expect("its input is held open").write_all(bytes)
    }

    /// Waits for the end of the program itself. Processes that it started may go on.
    #[track_caller]
    pub fn await_end(&self) -> &Running {
        assert!(ended(self.pid(), self.deadline), "hung: {}\n{}", self.shown, self.streams());
        self
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) -> &mut Running {
        drop(self.child.stdin.take());
        self
    }

    /// Sends it, and not what it started, a signal.
    pub fn signal(&self, signal: Signal) -> &Running {
        rustix::process::kill_process(self.pid(), signal).expect("the process is not reaped yet");
        self
    }

    /// Waits for its end. Fails when a process that it started is left, or when the replay of its recording differs.
    pub fn wait(mut self) -> Outcome {
        let status = self.reap();
        let Some(status) = status else {
            let stuck = self.marked();
            panic!("hung for {PATIENCE:?}: {} (processes {stuck:?})\n{}", self.shown, self.streams());
        };
        let left = self.leftovers();
        assert!(left.is_empty(), "left running: {left:?} by {}\n{}", self.shown, self.streams());
        for capture in [&mut self.stdout, &mut self.stderr] {
            if let Some(thread) = capture.thread.take() {
                thread.join().expect("the reader of a pipe does not panic");
            }
        }
        if let Some(writer) = self.writer.take() {
            writer.join().expect("the writer of a pipe does not panic");
        }
        let (stdout, stderr, shown) = (self.stdout(), self.stderr.text(), self.shown.clone());
        let bytes = self.stdout.bytes();
        let recording = self.recording.take();
        let mut outcome = Outcome { status, stdout, bytes, stderr, shown, replayed: None, recording };
        outcome.replayed = outcome
            .recording
            .as_ref()
            .and_then(|recording| recording.replay(status, &outcome.stderr, &outcome));
        outcome
    }

    /// Its status once it has ended, nothing when the time is up first.
    fn reap(&mut self) -> Option<ExitStatus> {
        if !ended(self.pid(), self.deadline) {
            return None;
        }
        self.reaped = true;
        Some(self.child.wait().expect("the child is this process's own"))
    }

    fn streams(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.stdout(), self.stderr.text())
    }

    /// Processes of this job that do not end by themselves within two seconds.
    fn leftovers(&self) -> Vec<(Pid, String)> {
        let soon = Instant::now() + Duration::from_secs(2);
        self.marked().into_iter().filter(|(pid, _)| !ended(*pid, soon)).collect()
    }

    /// The living processes that this job started, with their names.
    fn marked(&self) -> Vec<(Pid, String)> {
        let wanted = format!("{MARK}={}", self.mark).into_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("Linux has /proc").flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(pid) = pid else { continue };
            // Processes start and end meanwhile. One that cannot be read has ended or is another user's.
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.split(|&b| b == 0).any(|variable| variable == wanted) {
                let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                found.push((pid, comm.trim().to_owned()));
            }
        }
        found
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // Already gone is as good.
            let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
        }
        for (pid, _) in self.marked() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        if !self.reaped {
            drop(self.child.wait());
        }
    }
}

/// The processes that another one has started, the oldest first. A daemon's are the daemons below it, then its ranks.
pub fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the process runs");
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Waits until the process has ended or the deadline has passed; whether it has ended.
pub(crate) fn ended(pid: Pid, deadline: Instant) -> bool {
    // A process that is not there has ended.
    let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("minutes fit a timespec");
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(e) => panic!("polling a process: {e}"),
        }
    }
}
