//! A program that a test starts, with its arguments, environment and input.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::outcome::Outcome;
use crate::programs::hydrant_bin;
use crate::recording::{Recording, in_sandbox};
use crate::running::{MARK, Running};
use crate::signals::reset_signals;

/// Python for `python3 -c`, with names of signals as arguments: prints `got NAME` for every one that arrives, and goes on.
pub const LISTENER: &str = "
import signal, sys
names = [signal.Signals[name] for name in sys.argv[1:]]
signal.pthread_sigmask(signal.SIG_BLOCK, names)
print('up', flush=True)
while True:
    print('got', signal.Signals(signal.sigwait(names)).name, flush=True)
";

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
    captures: [bool; 2],
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
        reset_signals(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        Job { command, input: None, hold_input: false, captures: [true; 2], mark, recording: None }
    }

    /// `hydrant ARGS`, the arguments separated by blanks. Not recorded.
    pub fn command(args: &str) -> Job {
        Job::new(hydrant_bin()).words(args)
    }

    /// `hydrant run ARGS`, the arguments separated by blanks; [`Job::arg`] adds those that hold blanks. The job is recorded, and
    /// [`Running::wait`] replays the recording.
    ///
    /// Where `HYDRANT_TESTS_SANDBOX` names a plugin, the core runs in that.
    pub fn hydrant(args: &str) -> Job {
        Job::new(hydrant_bin()).arg("run").recorded().args(in_sandbox()).words(args)
    }

    /// Has `hydrant run` record the job. [`Running::wait`] replays the recordings of all nodes.
    pub fn recorded(mut self) -> Job {
        let recording = Recording::new(&self.mark);
        self.command.arg("--record").arg(recording.path());
        self.recording = Some(recording);
        self
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

    /// Adds `-env NAME VALUE` for each of these variables.
    pub fn assign(self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Job {
        variables.into_iter().fold(self, |job, (name, value)| job.arg("-env").arg(name).arg(value))
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, key: &str) -> Job {
        self.command.env_remove(key);
        self
    }

    /// Connects standard output to that file or pipe, and does not capture it.
    pub fn stdout(mut self, file: impl Into<Stdio>) -> Job {
        self.command.stdout(file);
        self.captures[0] = false;
        self
    }

    /// Connects standard error to that file or pipe, and does not capture it.
    pub fn stderr(mut self, file: impl Into<Stdio>) -> Job {
        self.command.stderr(file);
        self.captures[1] = false;
        self
    }

    /// Starts it in that folder.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Job {
        self.command.current_dir(dir);
        self
    }

    /// Bytes for its standard input, which is empty otherwise.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Job {
        self.input = Some(bytes.into());
        self
    }

    /// Leaves its standard input open until [`Running::end_input`], for [`Running::send`] or for a rank that waits.
    pub fn hold_input(mut self) -> Job {
        self.hold_input = true;
        self.input(Vec::new())
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        self.command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        let input = self.input.filter(|_| !self.hold_input);
        Running::start(self.command, input, self.captures, self.mark, self.recording)
    }

    /// Runs it to its end.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }
}
