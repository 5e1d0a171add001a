//! What the tests of `hydrant run` share.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// `hydrant run` with these arguments, its input empty and its output captured.
pub(crate) fn hydrant(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
    command.arg("run").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a job of `sh -c script` to its end.
pub(crate) fn run(options: &[&str], script: &str) -> Output {
    hydrant(&[options, &["sh", "-c", script]].concat()).output().expect("hydrant starts")
}

/// Text of an output.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

/// The lines of an output, sorted, because ranks write in any order.
pub(crate) fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A job that runs; it is ended, ranks and all, when a test fails.
pub(crate) struct Job {
    pub(crate) child: Child,
    pub(crate) stdout: BufReader<std::process::ChildStdout>,
}

impl Job {
    pub(crate) fn start(options: &[&str], script: &str) -> Job {
        Job::spawn(&mut hydrant(&[options, &["sh", "-c", script]].concat()))
    }

    pub(crate) fn spawn(command: &mut Command) -> Job {
        let mut child = command.spawn().expect("hydrant starts");
        let stdout = BufReader::new(child.stdout.take().expect("its output is captured"));
        Job { child, stdout }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("hydrant runs");
    }

    /// Its next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the output is text");
        line.trim_end().to_owned()
    }

    /// The end of it: exit status, and what it wrote since.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).expect("the output is text");
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).expect("the output is text");
        }
        (self.child.wait().expect("hydrant is a child"), out, err)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The second interrupt ends ranks that ignore the first.
            for _ in 0..2 {
                let _ = kill_process(self.pid(), Signal::INT);
                let _ = kill_process(self.pid(), Signal::CONT);
            }
            let _ = self.child.wait();
        }
    }
}

/// A directory of a test's own, removed at its end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the target directory is writable");
        Scratch(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
