//! What the tests of `hydrant run` share.

#![allow(missing_docs, reason = "it is merged into the harness of the other tests next")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::job::{hydrant_bin, target_dir};

/// `hydrant run` with these arguments, its input empty and its output captured.
pub fn hydrant(args: &[&str]) -> Command {
    let mut command = Command::new(hydrant_bin());
    command.arg("run").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a job of `sh -c script` to its end.
pub fn run(options: &[&str], script: &str) -> Output {
    hydrant(&[options, &["sh", "-c", script]].concat()).output().expect("hydrant starts")
}

/// The path of the `hydrant` command, as text for command lines.
pub fn hydrant_path() -> &'static str {
    hydrant_bin().to_str().expect("the build directory is text")
}

/// Text of an output.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

/// The lines of an output, sorted, because ranks write in any order.
pub fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A job that runs; it is ended, ranks and all, when a test fails.
pub struct Job {
    pub child: Child,
    pub stdout: BufReader<std::process::ChildStdout>,
}

impl Job {
    pub fn start(options: &[&str], script: &str) -> Job {
        Job::spawn(&mut hydrant(&[options, &["sh", "-c", script]].concat()))
    }

    pub fn spawn(command: &mut Command) -> Job {
        let mut child = command.spawn().expect("hydrant starts");
        let stdout = BufReader::new(child.stdout.take().expect("its output is captured"));
        Job { child, stdout }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("hydrant runs");
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the output is text");
        line.trim_end().to_owned()
    }

    /// The end of it: exit status, and what it wrote since.
    pub fn end(mut self) -> (ExitStatus, String, String) {
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
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = target_dir().join("tmp").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the target directory is writable");
        Scratch(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
