//! Exit status and output of a program, and assertions on them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use hydrant_record::Summary;
use rustix::process::Signal;

use crate::recording::Recording;

/// The exit status and the output of a program. A failed assertion prints all of both.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard output, as it was written.
    pub bytes: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// What the replay of its recording counted, if it was recorded.
    pub replayed: Option<Summary>,
    pub(crate) shown: String,
    /// Its recording. A failed assertion keeps the files.
    pub(crate) recording: Option<Recording>,
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

    /// Asserts the whole of standard output.
    #[track_caller]
    pub fn stdout_is(&self, text: &str) -> &Outcome {
        assert_eq!(self.stdout, text, "standard output of {self}");
        self
    }

    /// Asserts the whole of standard error.
    #[track_caller]
    pub fn stderr_is(&self, text: &str) -> &Outcome {
        assert_eq!(self.stderr, text, "standard error of {self}");
        self
    }

    /// Asserts how standard error begins.
    #[track_caller]
    pub fn stderr_starts(&self, text: &str) -> &Outcome {
        assert!(self.stderr.starts_with(text), "{text:?} at the start of the errors of {self}");
        self
    }

    /// Asserts how standard error ends, line ends apart.
    #[track_caller]
    pub fn stderr_ends(&self, text: &str) -> &Outcome {
        assert!(self.stderr.trim_end().ends_with(text), "{text:?} at the end of the errors of {self}");
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
