//! Output of the ranks: destinations, and the end of a job once its output is written.

use std::ops::Range;
use std::path::PathBuf;

use hydrant_control::protocol::PseudoTerminals;
use hydrant_core::wire::pmix::channel;
use hydrant_core::{JobId, Rank};
use hydrant_iof::{Descriptor, NamedJob, Sinks, Streams, expand};
use hydrant_reactor::{Key, WriterState};

use super::Engine;
use super::token::IOF;
use crate::error::RunError;
use crate::plan::{Options, Plan};

/// A rank, as names of its output files tell it.
pub(crate) struct NamedRank<'a> {
    pub(crate) job: NamedJob,
    pub(crate) rank: u32,
    /// Number of its process.
    pub(crate) slot: u32,
    pub(crate) appnum: u32,
    pub(crate) host: &'a str,
}

/// Returns the output files of a rank: the streams and the path of each. With a pid, only files whose names contain the
/// pid. Without a pid, only the others.
pub(crate) fn output_files(
    plan: &Plan,
    of: &NamedRank<'_>,
    pid: Option<u32>,
) -> Result<Vec<(u32, PathBuf)>, RunError> {
    let Plan { settings, options, .. } = plan;
    let mut files = Vec::new();
    let first = 2 * of.slot;
    let of_stderr = options.errfile_pattern.as_ref().filter(|_| !settings.merge_stderr);
    for (stream, pattern) in [(first, options.outfile_pattern.as_ref()), (first + 1, of_stderr)] {
        let Some(pattern) = pattern else { continue };
        let mut needs_pid = false;
        let path = expand(pattern, (of.job, of.rank), of.appnum, of.host, || {
            needs_pid = true;
            pid.unwrap_or(0)
        });
        let path =
            path.map_err(|code| RunError::Pattern { pattern: pattern.to_string_lossy().into_owned(), code })?;
        if needs_pid == pid.is_some() {
            files.push((stream, path.into()));
        }
    }
    Ok(files)
}

/// Directs streams of a rank to files.
pub(crate) fn direct(
    (streams, sinks): (&mut Streams, &mut Sinks),
    rank: u32,
    files: Vec<(u32, PathBuf)>,
    is_copied: bool,
) -> Result<(), RunError> {
    for (stream, path) in files {
        let opened = sinks.file(path.clone());
        let sink = opened.map_err(|why| RunError::OutputFile { rank, path, why })?;
        streams.direct(stream, sink, is_copied);
    }
    Ok(())
}

/// Returns which output streams of ranks are pseudo-terminals.
pub(crate) fn pseudo_terminals(options: &Options) -> Option<PseudoTerminals> {
    let files = [&options.outfile_pattern, &options.errfile_pattern];
    let files_alone = files.map(|pattern| pattern.is_some() && !options.copy_output);
    hydrant_iof::pseudo_terminals(options.pty, files_alone)
}

impl Engine<'_> {
    /// Opens the output files of a job whose names contain no pid.
    pub(super) fn open_files(&mut self, id: JobId) -> Result<(), RunError> {
        (0..self.jobs[id].size()).try_for_each(|rank| self.open_files_of(id, rank, None))
    }

    /// Opens the output files of a rank whose names contain its pid.
    pub(super) fn open_pid_files(&mut self, id: JobId, rank: u32, pid: u32) -> Result<(), RunError> {
        self.open_files_of(id, rank, Some(pid))
    }

    fn open_files_of(&mut self, id: JobId, rank: u32, pid: Option<u32>) -> Result<(), RunError> {
        let job = &self.jobs[id];
        let (appnum, slot, host) = (job.program(rank).0, job.slot(rank), job.run.hosts.of(rank));
        let named = NamedJob { ordinal: job.ordinal, task: None };
        let of = NamedRank { job: named, rank, slot, appnum, host };
        let files = output_files(self.plan, &of, pid)?;
        direct((&mut self.streams, &mut self.sinks), rank, files, self.plan.options.copy_output)
    }

    /// Writes streams of a job to their files alone, whose output a tool writes to the terminal.
    pub(super) fn divert_output(&mut self, id: JobId, channels: u32) -> Result<(), RunError> {
        for process in self.jobs[id].slots() {
            for (stream, channel) in [(2 * process, channel::STDOUT), (2 * process + 1, channel::STDERR)] {
                if channels & channel != 0 {
                    let diverted = self.streams.divert(stream, &mut self.sinks);
                    diverted.map_err(RunError::system("cannot open /dev/null"))?;
                }
            }
        }
        Ok(())
    }

    /// Handles an event of the ranks' standard streams.
    pub(super) fn stream_ready(&mut self, key: Key) {
        let now = self.now();
        match Descriptor::of(IOF, key) {
            Some(Descriptor::Stream(id)) => {
                self.streams.read(id, now, &mut self.buffer, &mut self.sinks, &self.poller)
            }
            Some(Descriptor::Sink(id)) => self.sinks.flush_one(id as usize, &self.poller),
            Some(Descriptor::Stdin) => self.stdin.pump(now, &self.poller),
            Some(Descriptor::Reader(reader)) => self.stdin.reader_ready(reader, now, &self.poller),
            Some(Descriptor::Pushed(process)) => self.pushed.ready(process, &self.poller),
            None => {}
        }
    }

    /// Writes pending output, and resumes the streams that waited for it. Output of other nodes is acknowledged.
    pub(super) fn flush(&mut self) {
        self.sinks.flush(&self.poller);
        while let Some(sink) = self.sinks.changed() {
            let now = self.now();
            if self.sinks.get(sink).state() != WriterState::Open {
                self.closed_sinks.push(sink);
            }
            self.streams.resume(sink, now, &mut self.buffer, &mut self.sinks, &self.poller);
            self.sinks.flush(&self.poller);
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.acknowledge_output(&self.sinks);
        }
    }

    /// Returns the streams that lead to sinks that accept no more output since the last call, of ranks on other nodes: those of
    /// each job, each with true for standard error. Streams of ranks here have ended.
    pub(super) fn take_closed_output(&mut self) -> Vec<(JobId, Vec<(Rank, bool)>)> {
        let mut closed = Vec::new();
        for sink in std::mem::take(&mut self.closed_sinks) {
            for job in self.jobs.iter() {
                let (slots, first) = (job.slots(), job.slots().start);
                let stream = |stream: u32| (Rank(stream / 2 - first), stream % 2 == 1);
                let streams = self.streams.to_sink(slots, sink).into_iter().map(stream);
                closed.push((job.id, streams.filter(|(rank, _)| !job.run.ranks.contains(rank.0)).collect()));
            }
        }
        closed
    }

    /// Writes the rest of the output of a job all of whose ranks have ended, as far as it is here.
    pub(super) fn finish_output(&mut self, id: JobId) {
        let now = self.now();
        let Some(job) = self.jobs.get(id) else { return };
        let (sinks, poller) = (&mut self.sinks, &self.poller);
        self.streams.finish(job.slots(), now, &mut self.buffer, sinks, poller);
        self.flush();
    }

    /// Reads what ranks that have ended have written, so that their streams end at once where nobody else writes to them.
    pub(super) fn read_ended(&mut self, slots: Range<u32>) {
        let now = self.now();
        let (sinks, poller) = (&mut self.sinks, &self.poller);
        self.streams.read_ended(slots, now, &mut self.buffer, sinks, poller);
        self.flush();
    }
}
