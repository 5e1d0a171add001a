//! Where each rank's output goes, and the end of it.

use std::path::PathBuf;

use rustix::process::Pid;

use super::Engine;
use super::sink::{SinkId, expand};
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Opens the files for output whose names are known before any rank is.
    pub(super) fn open_files(&mut self) -> Result<(), RunError> {
        for rank in 0..self.ranks {
            self.open_files_for(rank, None)?;
        }
        Ok(())
    }

    /// Opens the files whose names hold a pid.
    pub(super) fn open_files_of(&mut self, rank: u32, pid: Pid) -> Result<(), RunError> {
        self.open_files_for(rank, Some(pid))
    }

    fn open_files_for(&mut self, rank: u32, pid: Option<Pid>) -> Result<(), RunError> {
        let options = &self.plan.options;
        for (stream, pattern) in
            [(2 * rank, &options.outfile_pattern), (2 * rank + 1, &options.errfile_pattern)]
        {
            let Some(pattern) = pattern else { continue };
            let mut needs_pid = false;
            let number = pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
            let appnum = self.launcher.program(rank).0;
            let path = expand(pattern, rank, appnum, &self.host, || {
                needs_pid = true;
                number
            });
            let path = path.map_err(|code| RunError::Pattern { pattern: pattern.clone(), code })?;
            if needs_pid == pid.is_some() {
                let sink = self.open_file(rank, path)?;
                self.streams.direct(stream, sink);
            }
        }
        Ok(())
    }

    fn open_file(&mut self, rank: u32, path: PathBuf) -> Result<SinkId, RunError> {
        self.sinks.file(path.clone()).map_err(|why| RunError::OutputFile { rank, path, why })
    }

    /// A rank has written something.
    pub(super) fn stream_ready(&mut self, id: u32) {
        let now = self.now();
        self.streams.read(id, now, &mut self.buffer, &mut self.sinks, &self.poller);
    }

    /// Writes out what has come in, and lets those go on who had to wait.
    pub(super) fn flush(&mut self) {
        let now = self.now();
        self.sinks.flush(&self.poller);
        while let Some(sink) = self.sinks.changed() {
            self.streams.resume(sink, now, &mut self.buffer, &mut self.sinks, &self.poller);
            self.sinks.flush(&self.poller);
        }
    }

    /// All ranks are gone: passes on what they wrote last, then says how it ended. Whether all is done.
    pub(super) fn drain(&mut self) -> bool {
        if !std::mem::replace(&mut self.draining, true) {
            let now = self.now();
            self.streams.finish(now, &mut self.buffer, &mut self.sinks, &self.poller);
            self.flush();
        }
        if self.streams.are_closed() && !self.outcome.is_reported() {
            self.report();
            self.flush();
        }
        self.outcome.is_reported() && self.sinks.are_empty() || self.outcome.gave_up()
    }
}
