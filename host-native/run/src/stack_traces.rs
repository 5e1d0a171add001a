//! Stack traces of processes, taken by a debugger of this machine with a budget of time and bytes.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use hydrant_reactor::process::{DEFAULT_PATH, find_in_path, start_helper};
use hydrant_reactor::{OpenFiles, fixed_memory, read_written};
use rustix::process::{Pid, Signal, kill_process_group};

/// Milliseconds for all traces.
const TIME: u64 = 30_000;
/// Most debuggers at a time.
const AT_ONCE: usize = 4;
/// Most bytes of one trace.
const TRACE_MAX: u64 = 64 * 1024;
/// Bytes of all traces after which no other is taken.
const TOTAL_MAX: usize = 512 * 1024;
/// Most processes that are listed as left out.
const LISTED_MAX: usize = 16;

/// Debuggers and their arguments, in the order in which they are looked for. `{}` is the process id.
const DEBUGGERS: [(&str, &[&str]); 3] = [
    (
        "gdb",
        &[
            "-nx",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-p",
            "{}",
            "-ex",
            "thread apply all backtrace 64",
        ],
    ),
    ("eu-stack", &["-p", "{}"]),
    ("gstack", &["{}"]),
];

/// A debugger that prints the stack of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Debugger(Vec<OsString>);

impl Debugger {
    /// Returns the first that is in the `PATH`.
    pub(crate) fn find() -> Option<Debugger> {
        Debugger::find_in(&std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
    }

    fn find_in(path: &OsStr) -> Option<Debugger> {
        DEBUGGERS.iter().find_map(|(name, arguments)| {
            let file = find_in_path(OsStr::new(name), Path::new(""), path, &mut None)?;
            Some(Debugger(std::iter::once(file.into()).chain(arguments.iter().map(OsString::from)).collect()))
        })
    }

    fn command(&self, pid: u32) -> Vec<OsString> {
        let fill = |word: &OsString| if word == "{}" { pid.to_string().into() } else { word.clone() };
        self.0.iter().map(fill).collect()
    }
}

/// A process to trace.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its name in the report.
    pub(crate) name: String,
    /// Its process id.
    pub(crate) pid: u32,
}

/// Traces that are being taken.
#[derive(Debug)]
pub(crate) struct StackTraces {
    debugger: Debugger,
    waiting: VecDeque<Target>,
    running: Vec<Trace>,
    deadline: u64,
    bytes: usize,
}

/// A running debugger.
#[derive(Debug)]
struct Trace {
    target: Target,
    pid: Pid,
    /// Memory that the debugger writes to.
    output: OwnedFd,
}

impl StackTraces {
    /// Prepares traces, which have 30 s from `now` on.
    pub(crate) fn new(debugger: Debugger, targets: Vec<Target>, now: u64) -> StackTraces {
        StackTraces { debugger, waiting: targets.into(), running: Vec::new(), deadline: now + TIME, bytes: 0 }
    }

    /// Returns whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Time in milliseconds at which debuggers are killed.
    pub(crate) fn poll_at(&self) -> u64 {
        self.deadline
    }

    /// Starts as many debuggers as may run at a time. Returns an error message if none can be started, after which
    /// nothing is left to do.
    pub(crate) fn start_some(&mut self, null: BorrowedFd<'_>, files: &OpenFiles) -> Option<String> {
        while self.running.len() < AT_ONCE && self.bytes < TOTAL_MAX {
            let target = self.waiting.pop_front()?;
            let output = fixed_memory(c"stack trace", TRACE_MAX)
                .map_err(|errno| format!("cannot make memory for a stack trace: {errno}"));
            let started = output.and_then(|output| {
                let pid = start_helper(&self.debugger.command(target.pid), &[], null, output.as_fd(), files);
                Ok((pid.map_err(|error| error.to_string())?, output))
            });
            match started {
                Ok((pid, output)) => self.running.push(Trace { target, pid, output }),
                Err(message) => {
                    self.waiting.clear();
                    return Some(message);
                }
            }
        }
        if self.running.is_empty() {
            return self.leave_out(&format!("after {TOTAL_MAX} bytes"));
        }
        None
    }

    /// Takes the trace of a debugger that has ended. None if the process is no debugger of these.
    pub(crate) fn ended(&mut self, pid: Pid) -> Option<String> {
        let at = self.running.iter().position(|trace| trace.pid == pid)?;
        let Trace { target, output, .. } = self.running.swap_remove(at);
        let text = format(&target.name, &read(output.as_fd()));
        self.bytes += text.len();
        Some(text)
    }

    /// Kills the debuggers if the time is over. Returns a line about the processes without a trace.
    pub(crate) fn handle_timeout(&mut self, now: u64) -> Option<String> {
        if now < self.deadline {
            return None;
        }
        for trace in self.running.drain(..).rev() {
            // The debugger has not been collected, so the number is still its own.
            let _ = kill_process_group(trace.pid, Signal::KILL);
            self.waiting.push_front(trace.target);
        }
        self.leave_out(&format!("within {} s", TIME / 1000))
    }

    /// Gives up the processes that remain. Returns a line about them.
    fn leave_out(&mut self, why: &str) -> Option<String> {
        let left: Vec<Target> = self.waiting.drain(..).collect();
        let names: Vec<&str> = left.iter().take(LISTED_MAX).map(|target| target.name.as_str()).collect();
        let more = match left.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!left.is_empty()).then(|| format!("no stack trace {why} of {}{more}", names.join("; ")))
    }
}

/// Reads what a debugger has written.
fn read(memory: BorrowedFd<'_>) -> String {
    let bytes = read_written(memory, TRACE_MAX).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if bytes.len() as u64 == TRACE_MAX {
        let _ = write!(text, "\n(cut off after {TRACE_MAX} bytes)");
    }
    text
}

/// Text of a trace, without gdb's messages around the threads, and without control characters, which the process may have
/// written into its names.
fn format(name: &str, output: &str) -> String {
    let threads = output.find("\nThread ").map_or(output, |at| &output[at..]);
    let mut text = format!("stack trace of {name}:");
    for line in threads.lines().filter(|line| !line.is_empty() && !line.starts_with("[Inferior ")) {
        text += "\n  ";
        text.extend(line.chars().map(|c| if c.is_control() && c != '\t' { '?' } else { c }));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    fn targets(count: u32) -> Vec<Target> {
        (1..=count).map(|pid| Target { name: format!("rank {pid}"), pid }).collect()
    }

    fn shell(script: &str) -> Debugger {
        Debugger(["/bin/sh", "-c", script, "sh", "{}"].map(OsString::from).to_vec())
    }

    /// Runs debuggers to their ends. Returns the traces, and the last line.
    fn run(debugger: Debugger, count: u32) -> (Vec<String>, Option<String>) {
        let null = fs::File::open("/dev/null").unwrap();
        let files = OpenFiles::reserve(0).unwrap();
        let mut traces = StackTraces::new(debugger, targets(count), 0);
        let mut texts = Vec::new();
        loop {
            let last = traces.start_some(null.as_fd(), &files);
            if traces.is_over() {
                return (texts, last);
            }
            let pid = traces.running[0].pid;
            waitpid(Some(pid), WaitOptions::empty()).unwrap();
            texts.extend(traces.ended(pid));
        }
    }

    #[test]
    fn each_process_is_traced_and_messages_are_left_out() {
        let script = r#"echo noise; printf '\nThread 1 (LWP %s) "\033[m":\n#0 main ()\n' $1; echo "[Inferior 1 detached]""#;
        let (texts, last) = run(shell(script), 6);
        assert_eq!((texts.len(), last), (6, None));
        assert!(
            texts.contains(&"stack trace of rank 5:\n  Thread 1 (LWP 5) \"?[m\":\n  #0 main ()".to_owned())
        );
        let (texts, _) = run(shell("echo not permitted >&2"), 1);
        assert_eq!(texts, ["stack trace of rank 1:\n  not permitted"]);
    }

    #[test]
    fn output_is_bounded() {
        let (texts, last) = run(shell("yes \"$(head -c 1000 /dev/zero | tr '\\0' x)\" 2>/dev/null"), 40);
        assert!(texts.len() < 40 && texts[0].ends_with("(cut off after 65536 bytes)"), "{}", texts.len());
        assert!(
            texts.iter().map(String::len).sum::<usize>() < TOTAL_MAX + (AT_ONCE + 1) * TRACE_MAX as usize
        );
        assert!(last.unwrap().starts_with("no stack trace after 524288 bytes of rank "));
    }

    #[test]
    fn debuggers_are_killed_in_time() {
        let null = fs::File::open("/dev/null").unwrap();
        let files = OpenFiles::reserve(0).unwrap();
        let mut traces = StackTraces::new(shell("read line <&1"), targets(20), 100);
        traces.debugger = shell("while :; do sleep 1000; done");
        assert_eq!(traces.start_some(null.as_fd(), &files), None);
        let pids: Vec<Pid> = traces.running.iter().map(|trace| trace.pid).collect();
        assert_eq!((pids.len(), traces.handle_timeout(traces.poll_at() - 1)), (AT_ONCE, None));
        let line = traces.handle_timeout(traces.poll_at()).unwrap();
        assert!(line.starts_with("no stack trace within 30 s of rank 1; rank 2; rank 3;"), "{line}");
        assert!(line.ends_with("rank 16 and 4 more") && traces.is_over(), "{line}");
        for pid in pids {
            let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()));
        }
    }

    #[test]
    fn a_debugger_that_cannot_be_started_ends_the_traces() {
        let (texts, last) = run(Debugger(vec!["/none/gdb".into()]), 3);
        assert_eq!((texts, last), (vec![], Some("cannot start /none/gdb: not found".to_owned())));
    }

    #[test]
    fn the_first_debugger_in_the_path_is_used() {
        let dir = std::env::temp_dir().join(format!("hydrant-debugger-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["gstack", "eu-stack"] {
            fs::write(dir.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let found = Debugger::find_in(dir.as_os_str());
        fs::remove_dir_all(&dir).unwrap();
        let want = [dir.join("eu-stack").into_os_string(), "-p".into(), "7".into()];
        assert_eq!(found.map(|debugger| debugger.command(7)), Some(want.to_vec()));
        assert_eq!(Debugger::find_in(OsStr::new("/none")), None);
    }
}
