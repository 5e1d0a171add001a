//! Result of a run for `--json`: its jobs as they ended.

use std::path::{Path, PathBuf};

use hydrant_control::JobSummary;
use hydrant_timeline::Summary;

use crate::error::RunError;
use crate::json::{self, Target};

/// Result of a run, if one is written.
pub(crate) struct RunResult(Option<Document>);

struct Document {
    path: PathBuf,
    target: Target,
    /// Jobs that have ended, each with the task of an array that it belongs to.
    ended: Vec<(Option<u32>, JobSummary)>,
    profiles: Vec<Summary>,
}

impl RunResult {
    /// Opens the file of the result before any rank starts, so that no job is lost for a result that cannot be written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(path: Option<&Path>) -> Result<RunResult, RunError> {
        let Some(path) = path.map(Path::to_owned) else { return Ok(RunResult(None)) };
        match Target::open(&path) {
            Ok(target) => {
                Ok(RunResult(Some(Document { path, target, ended: Vec::new(), profiles: Vec::new() })))
            }
            Err(why) => Err(RunError::ResultFile { path, why }),
        }
    }

    /// Keeps the summary of a job that has ended, or of a task of an array.
    pub(crate) fn job_ended(&mut self, task: Option<u32>, summary: JobSummary) {
        if let Some(document) = &mut self.0 {
            document.ended.push((task, summary));
        }
    }

    /// Keeps the profile of a job.
    pub(crate) fn add_profile(&mut self, profile: Summary) {
        if let Some(document) = &mut self.0 {
            document.profiles.push(profile);
        }
    }

    /// Writes the result of a run with this exit code.
    ///
    /// # Errors
    /// A line for the user: the result is lost.
    pub(crate) fn write(&mut self, code: u8) -> Result<(), String> {
        let Some(Document { path, target, ended, profiles }) = &mut self.0 else { return Ok(()) };
        let text = json::result(code, None, ended, profiles);
        target.write(&text).map_err(|why| format!("cannot write {}: {why}", path.display()))
    }
}
