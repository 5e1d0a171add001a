//! Messages about jobs at their end.

use hydrant_control::EndReport;
use hydrant_core::JobId;

use super::Engine;
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Reports output of the jobs that was lost.
    pub(super) fn report_losses(&mut self) -> Result<(), RunError> {
        self.losses_reported = true;
        if let Some((sink, errno)) = self.sinks.failure() {
            self.status.record_lost_output();
            self.handle_at_head(hydrant_control::Event::OutputLost)?;
            let line = format!("output was lost, cannot write {}: {errno}", self.sinks.name(sink));
            self.sinks.print(&line);
        }
        Ok(())
    }

    /// Reports the result of a job on this machine, unless it succeeded.
    pub(super) fn report_end(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let report = job.describe_end(&self.status, self.sinks.is_cut_off(), |_| &self.host);
        let lines = match report {
            Some(EndReport::Interrupted(signal)) => self.status.interruption_line(signal),
            Some(EndReport::Lines(lines)) => Some(lines),
            None => self.describe_singletons(id),
        };
        lines.into_iter().for_each(|lines| self.sinks.print(&lines));
    }
}
