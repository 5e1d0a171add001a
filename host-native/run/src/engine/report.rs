//! Messages about jobs at their end.

use hydrant_control::JobSummary;

use super::Engine;
use crate::error::RunError;
use crate::json;

impl Engine<'_, '_> {
    /// Reports output of the jobs that was lost.
    pub(super) fn report_losses(&mut self) -> Result<(), RunError> {
        self.losses_reported = true;
        if let Some((sink, errno)) = self.sinks.failure() {
            self.handle_at_head(hydrant_control::Event::OutputLost)?;
            let line = format!("output was lost, cannot write {}: {errno}", self.sinks.name(sink));
            self.sinks.print(&line);
        }
        Ok(())
    }

    /// Keeps the summary of a job for the result of the run, if one is written.
    pub(super) fn record_end(&mut self, summary: JobSummary) {
        if self.plan.options.json.is_some() {
            self.ended.push(summary);
        }
    }

    /// Writes the result of the run. Returns the exit code of the command: a result that is lost is a failure.
    pub(super) fn write_result(&mut self, code: u8) -> u8 {
        let (Some(path), Some(target)) = (&self.plan.options.json, &mut self.result) else { return code };
        let text = json::result(code, None, &self.ended);
        if let Err(why) = target.write(&text) {
            self.sinks.print(&format!("cannot write {}: {why}", path.display()));
            self.flush();
            return code.max(1);
        }
        code
    }
}
