//! A program under a watchdog: started in a process group of its own, its output read while it runs, and ended, with
//! everything that it started, when it takes too long or the test fails. Jobs of `hydrant run` are recorded, and each is
//! replayed once it has ended: the core must say the same again, on every node.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hydrant_record::Summary;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::recording::{Recording, in_sandbox};

/// Marks every process that comes of a job, by its environment.
const MARK: &str = "HYDRANT_TESTS_JOB";

/// Python for `python3 -c`, with names of signals as arguments: says `got NAME` for every one that comes, and goes on.
pub const LISTENER: &str = "
import signal, sys
names = [signal.Signals[name] for name in sys.argv[1:]]
signal.pthread_sigmask(signal.SIG_BLOCK, names)
print('up', flush=True)
while True:
    print('got', signal.Signals(signal.sigwait(names)).name, flush=True)
";

/// How long a job may take before it counts as hung. Generous: machines have two cores and MPI libraries spin.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The build directory, from where the test itself lies: `target/debug/deps/test`.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the system tells a process its program");
    let deps = exe.parent().expect("a program lies in a folder");
    let profile =
        if deps.ends_with("deps") { deps.parent().expect("deps lies in a profile's folder") } else { deps };
    profile.parent().expect("a profile's folder lies in the build directory").to_path_buf()
}

/// The `hydrant` command: `HYDRANT_BIN`, or built here, once.
pub fn hydrant_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("HYDRANT_BIN") {
            return PathBuf::from(bin);
        }
        let target = target_dir();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "hydrant", "--bin", "hydrant", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs, since it runs this test");
        assert!(status.success(), "building the hydrant command failed");
        target.join("debug/hydrant")
    })
}

/// Has `tests/cross` build something of the workspace of that `Cargo.toml` for another machine: a command of cargo's and
/// its arguments. Where it puts what it builds, in a folder for each profile.
pub fn cross(target: &str, manifest: &Path, args: &[&str]) -> PathBuf {
    let (verb, args) = args.split_first().expect("a command of cargo's");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("cross"))
        .args([target, verb, "--locked", "--manifest-path"])
        .arg(manifest)
        .args(args)
        .env("CARGO_TARGET_DIR", target_dir())
        // What cargo set for this test is not for another cargo.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .stdin(Stdio::null())
        .output()
        .expect("tests/cross is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target_dir().join("cross").join(target)
}

/// The core as a plugin, `hydrant.wasm`: `HYDRANT_WASM`, or built here, once.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        if let Some(plugin) = std::env::var_os("HYDRANT_WASM") {
            return PathBuf::from(plugin);
        }
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-wasm/build");
        let mut command = Command::new(build);
        command.env("CARGO_TARGET_DIR", target_dir()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "building hydrant.wasm failed");
        let path = String::from_utf8(output.stdout).expect("it prints a path");
        PathBuf::from(path.trim_end())
    })
}

/// The options of `hydrant run` for hosts `n1` and so on, all of them daemons on this machine, each with that many slots, in
/// a tree of that radix.
pub fn nodes(hosts: u32, slots: u32, radix: u32) -> String {
    format!("-hosts n[1-{hosts}]:{slots} --bootstrap local --radix {radix}")
}

/// Hosts and radix of trees of one daemon, of two, of two levels, and of many.
pub const SHAPES: [(u32, u32); 4] = [(1, 2), (2, 2), (4, 2), (16, 3)];

/// A program to be started.
#[derive(Debug)]
pub struct Job {
    command: Command,
    input: Option<Vec<u8>>,
    hold_input: bool,
    patience: Duration,
    mark: String,
    recording: Option<Recording>,
}

impl Job {
    /// Any program.
    pub fn new(program: impl AsRef<OsStr>) -> Job {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(program);
        // Cargo's own library path would lead MPI libraries astray.
        command.env_remove("LD_LIBRARY_PATH").env(MARK, &mark).process_group(0);
        Job { command, input: None, hold_input: false, patience: PATIENCE, mark, recording: None }
    }

    /// `hydrant run ARGS`, the arguments separated by blanks; [`Job::arg`] adds those that hold blanks.
    ///
    /// Where `HYDRANT_TESTS_SANDBOX` names a plugin, the core runs in that.
    pub fn hydrant(args: &str) -> Job {
        let mut job = Job::new(hydrant_bin()).arg("run");
        let recording = Recording::new(&job.mark);
        job.command.arg("--record").arg(recording.path());
        job.recording = Some(recording);
        job.args(in_sandbox()).words(args)
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Job {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Job {
        self.command.args(args);
        self
    }

    /// Adds the blank-separated words of `args`.
    pub fn words(mut self, args: &str) -> Job {
        self.command.args(args.split_whitespace());
        self
    }

    /// Adds the steps of a raw client: separated by line ends, a step from its text by the first blank.
    pub fn steps(self, steps: &str) -> Job {
        let lines = steps.lines().map(str::trim_start).filter(|line| !line.is_empty());
        lines.fold(self, |job, line| match line.split_once(' ') {
            Some((step, text)) => job.arg(step).arg(text),
            None => job.arg(line),
        })
    }

    /// The program and its arguments, for another program to start.
    pub fn command_line(&self) -> Vec<OsString> {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_owned).collect()
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.command.env(key, value);
        self
    }

    /// Starts it in that folder.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Job {
        self.command.current_dir(dir);
        self
    }

    /// What stands on its standard input; nothing otherwise.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Job {
        self.input = Some(bytes.into());
        self
    }

    /// Leaves its standard input open until [`Running::end_input`]: what a rank may wait for.
    pub fn hold_input(mut self) -> Job {
        self.hold_input = true;
        self.input(Vec::new())
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        let shown = format!("{:?}", self.command);
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("starting {shown}: {e}"));
        let input = self.input.filter(|_| !self.hold_input);
        let writer = input.map(|bytes| {
            let mut pipe = child.stdin.take().expect("standard input is piped");
            // A job that ends without reading everything is no failure of the test.
            thread::spawn(move || drop(pipe.write_all(&bytes)))
        });
        let stdout = Capture::of(child.stdout.take().expect("standard output is piped"));
        let stderr = Capture::of(child.stderr.take().expect("standard error is piped"));
        let deadline = Instant::now() + self.patience;
        let (mark, recording) = (self.mark, self.recording);
        Running { child, stdout, stderr, writer, mark, recording, deadline, shown, reaped: false }
    }

    /// Runs it to its end.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }
}

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
    fn of(mut pipe: impl Read + Send + 'static) -> Capture {
        let shared = Arc::new((Mutex::new(Captured::default()), Condvar::new()));
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

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.shared.0).bytes).into_owned()
    }
}

/// A program that was started. Dropping it ends the program and whatever came of it.
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
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
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

    /// Waits for its end, and sees that nothing of it is left.
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
        let mut outcome = Outcome { status, stdout, stderr, shown, replayed: None };
        outcome.replayed = self.recording.take().and_then(|recording| recording.replay(&outcome));
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

    /// What came of this job and does not end by itself: who was killed a moment ago may still be on the way out.
    fn leftovers(&self) -> Vec<(Pid, String)> {
        let soon = Instant::now() + Duration::from_secs(2);
        self.marked().into_iter().filter(|(pid, _)| !ended(*pid, soon)).collect()
    }

    /// The living processes that came of this job, with their names.
    fn marked(&self) -> Vec<(Pid, String)> {
        let wanted = format!("{MARK}={}", self.mark).into_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("Linux has /proc").flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(pid) = pid else { continue };
            // Processes come and go while this reads; what cannot be read is gone or somebody else's.
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

/// Waits until the process has ended or the deadline has passed; whether it has ended.
fn ended(pid: Pid, deadline: Instant) -> bool {
    // Nobody there any more is an end, too.
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

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How much was replayed of a job of `hydrant run`, which was all the same.
    pub replayed: Option<Summary>,
    shown: String,
}

impl Outcome {
    /// Asserts that it exited with that code.
    #[track_caller]
    pub fn code(&self, code: i32) -> &Outcome {
        let signal = self.status.signal();
        assert_eq!((self.status.code(), signal), (Some(code), None), "{self}");
        self
    }

    /// Asserts that a signal ended it.
    #[track_caller]
    pub fn signaled(&self, signal: Signal) -> &Outcome {
        assert_eq!(self.status.signal(), Some(signal.as_raw()), "{self}");
        self
    }

    /// Asserts that standard output holds `text` exactly `times` times.
    #[track_caller]
    pub fn says(&self, text: &str, times: usize) -> &Outcome {
        assert_eq!(self.stdout.matches(text).count(), times, "{text:?} in the output of {self}");
        self
    }

    /// Asserts that standard error holds `text`.
    #[track_caller]
    pub fn warns(&self, text: &str) -> &Outcome {
        assert!(self.stderr.contains(text), "{text:?} in the errors of {self}");
        self
    }

    /// Asserts that standard error is empty.
    #[track_caller]
    pub fn quiet(&self) -> &Outcome {
        assert!(self.stderr.is_empty(), "nothing in the errors of {self}");
        self
    }

    /// The lines of standard output, sorted.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { status, stdout, stderr, shown, .. } = self;
        write!(f, "{shown}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
