//! Where each rank's output goes, and the end of it.

use hydrant_core::JobId;
use rustix::process::Pid;

use super::Engine;
use super::sink::expand;
use crate::control::Order;
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Opens the files for output whose names are known before any rank is.
    pub(super) fn open_files(&mut self, id: JobId) -> Result<(), RunError> {
        (0..self.jobs[id].ranks).try_for_each(|rank| self.open_files_for(id, rank, None))
    }

    /// Opens the files whose names hold a pid.
    pub(super) fn open_files_of(&mut self, id: JobId, rank: u32, pid: Pid) -> Result<(), RunError> {
        self.open_files_for(id, rank, Some(pid))
    }

    fn open_files_for(&mut self, id: JobId, rank: u32, pid: Option<Pid>) -> Result<(), RunError> {
        let (options, job) = (&self.plan.options, &self.jobs[id]);
        let first = 2 * (job.first + rank);
        for (stream, pattern) in [(first, &options.outfile_pattern), (first + 1, &options.errfile_pattern)] {
            let Some(pattern) = pattern else { continue };
            let mut needs_pid = false;
            let number = pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
            let appnum = job.program(rank).0;
            let path = expand(pattern, (job.ordinal, rank), appnum, self.host_of_rank(job, rank), || {
                needs_pid = true;
                number
            });
            let path = path.map_err(|code| RunError::Pattern { pattern: pattern.clone(), code })?;
            if needs_pid == pid.is_some() {
                let opened = self.sinks.file(path.clone());
                let sink = opened.map_err(|why| RunError::OutputFile { rank, path, why })?;
                self.streams.direct(stream, sink);
            }
        }
        Ok(())
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
            self.cut_sink(sink);
            self.streams.resume(sink, now, &mut self.buffer, &mut self.sinks, &self.poller);
            self.sinks.flush(&self.poller);
        }
        self.grant();
    }

    /// Lets go of the jobs whose ranks are all gone, once what they wrote last has been passed on. Whether nothing is
    /// left to do.
    pub(super) fn settle(&mut self) -> Result<bool, RunError> {
        if self.is_quiet() {
            for id in self.jobs.ids(|job| job.is_over()) {
                self.drain(id)?;
            }
        }
        if self.is_daemon() {
            return Ok(self.are_links_over());
        }
        let over = self.jobs.iter().next().is_none() && !self.awaits_nodes();
        if over && !self.verdict.is_reported() {
            self.report_losses();
            self.flush();
        }
        let over = over && self.sinks.are_empty() || self.verdict.gave_up();
        Ok(over && self.end_links())
    }

    /// Passes on what a job's ranks wrote last, then says how it ended.
    fn drain(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        let processes = job.processes();
        if !std::mem::replace(&mut job.draining, true) {
            let now = self.now();
            let (sinks, poller) = (&mut self.sinks, &self.poller);
            self.streams.finish(processes.clone(), now, &mut self.buffer, sinks, poller);
            self.flush();
            // Nobody comes any more.
            self.jobs[id].port = None;
            self.order_all(&Order::Forget(id));
            // With the last job the core goes as well.
            if self.jobs.iter().count() > 1 && !self.is_daemon() {
                self.forget(id)?;
            }
            self.tell_undone(id)?;
        }
        if self.streams.are_closed(processes.clone()) {
            if self.is_daemon() {
                // Its end is for the head to say.
                self.tell_done(id);
                return Ok(());
            }
            self.report(id);
            self.jobs.remove(id);
            self.streams.clear(processes, &mut self.sinks);
            self.flush();
        }
        Ok(())
    }
}
