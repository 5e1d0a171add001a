//! Recording of a job, and its replay.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use hydrant::replay::{self, ReplayError, ReplayErrorKind};
use hydrant_record::{RecordError, Summary};
use rustix::process::Signal;

use crate::patience::until;
use crate::{hydrant_bin, target_dir, tell};

/// The option that has the core run in a plugin, where `HYDRANT_TESTS_SANDBOX` names one.
pub fn in_sandbox() -> Option<String> {
    let file = std::env::var("HYDRANT_TESTS_SANDBOX").ok().filter(|file| !file.is_empty());
    file.map(|file| format!("--sandbox={file}"))
}

/// File that a job is recorded to, and those of its daemons. They are removed with this value, unless the test has failed
/// while it had it.
#[derive(Debug)]
pub(crate) struct Recording(PathBuf);

impl Recording {
    pub(crate) fn new(mark: &str) -> Recording {
        let dir = target_dir().join("recordings");
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        Recording(dir.join(format!("{mark}.rec")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Replays it on the core that is built in, and where jobs run in a sandbox there, too; nothing where the job ended
    /// before there was anything to record. A recording that is not whole or differs fails the test and is kept.
    pub(crate) fn replay(&self, status: ExitStatus, stderr: &str, outcome: &dyn Display) -> Option<Summary> {
        if !self.0.exists() {
            assert!(!status.success(), "nothing was recorded of {outcome}");
            return None;
        }
        // Who is killed cannot finish what it writes, and daemons on one machine are with their parents.
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        let lost = killed || stderr.contains("its daemon is lost");
        let played = replayed(&self.0, killed, outcome);
        for file in self.of_daemons() {
            replayed(&file, lost, outcome);
        }
        Some(played)
    }

    /// Renames the files so that no later test replaces them, and prints their names.
    fn keep(&self) {
        for file in self.of_daemons().iter().chain([&self.0]).filter(|file| file.exists()) {
            tell(&format!("the recording of the failed test is {}", kept(file).display()));
        }
    }

    fn of_daemons(&self) -> Vec<PathBuf> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let prefix = name(&self.0).map(|name| name + ".").unwrap_or_default();
        let files = self.0.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
        let files = files.map(|file| file.path());
        files.filter(|file| name(file).is_some_and(|name| name.starts_with(&prefix))).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.keep();
        }
        for file in self.of_daemons().iter().chain([&self.0]) {
            // It may never have been made.
            let _ = fs::remove_file(file);
        }
    }
}

/// How one file was replayed, which may be cut off if its writer was killed.
fn replayed(file: &Path, killed: bool, outcome: &dyn Display) -> Summary {
    let mut checked = replay::check(file);
    // The daemon of a host that has joined is no child of the run, and may still write.
    if !killed && is_cut_off(&checked) && until(|| !is_cut_off(&replay::check(file))) {
        checked = replay::check(file);
    }
    let is_cut_off = is_cut_off(&checked);
    let wrong = match checked {
        Ok(Summary { difference: Some(difference), .. }) => difference.to_string(),
        Ok(played) => match replayed_in_sandbox(file) {
            Ok(()) => return played,
            Err(wrong) => wrong,
        },
        Err(error) if killed && is_cut_off && error.summary.difference.is_none() => return error.summary,
        Err(error) => error.to_string(),
    };
    panic!("{wrong}\nthe recording is {} of {outcome}", kept(file).display());
}

fn is_cut_off(checked: &Result<Summary, ReplayError>) -> bool {
    let is_truncated =
        |error: &ReplayError| matches!(error.kind, ReplayErrorKind::Record(RecordError::Truncated { .. }));
    checked.as_ref().is_err_and(is_truncated)
}

/// Renames a recording to one that no test replaces. Returns its new path.
fn kept(file: &Path) -> PathBuf {
    let mut name = OsString::from("kept-");
    name.push(file.file_name().unwrap_or_default());
    let kept = file.with_file_name(name);
    // A file that cannot be renamed stays.
    drop(fs::rename(file, &kept));
    kept
}

fn replayed_in_sandbox(file: &Path) -> Result<(), String> {
    let Some(sandbox) = in_sandbox() else { return Ok(()) };
    let mut replay = Command::new(hydrant_bin());
    let replay = replay.args(["replay", "--quiet", &sandbox]).arg(file).output();
    let replay = replay.map_err(|e| format!("hydrant replay: {e}"))?;
    let said = format!("{}{}", replay.stdout.escape_ascii(), replay.stderr.escape_ascii());
    if replay.status.success() { Ok(()) } else { Err(said) }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_failed_test_keeps_its_recording() {
        for fails in [false, true] {
            let mark = format!("{}-unit-{fails}", std::process::id());
            let recording = Recording::new(&mark);
            let file = recording.path().to_owned();
            fs::write(&file, "a recording").expect("the folder is there");
            let test = catch_unwind(move || {
                let _held = recording;
                assert!(!fails, "the assertion of a test");
            });
            assert_eq!(test.is_err(), fails);
            let kept = file.with_file_name(format!("kept-{mark}.rec"));
            assert_eq!((file.exists(), kept.exists()), (false, fails));
            drop(fs::remove_file(kept));
        }
    }
}
