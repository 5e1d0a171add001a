//! Copies of the ranks' output for tools of PMIx (`PMIx_IOF_pull`).
//!
//! Output is copied as for `hydrant attach`: as the ranks wrote it, from the request on. A tool that does not read loses output.

use hydrant_core::wire::pmix::{
    HEADER_LEN, Integers, OUTPUT_TAG, Procs, WILDCARD, Writer, channel, status, write_header,
};
use hydrant_core::{JobId, Rank};
use hydrant_iof::Copy;

use super::host_call::reply_body;
use super::{Engine, Head};

/// Most requests of one tool.
const PULLS_MAX: usize = 64;
/// Bytes that wait for a tool, above which further output is dropped.
pub(super) const WAITING_MAX: usize = 1 << 20;
/// Bytes of a message beside the name of its process and the output.
const MESSAGE_REST: usize = 64;

/// Copies that a tool has asked for.
pub(super) struct Pull {
    /// Job of the tool.
    pub(super) tool: JobId,
    integers: Integers,
    /// Bit set of the streams.
    channels: u32,
    /// Number that the tool has given the request.
    handler: u64,
    sources: Vec<Source>,
}

/// A process, or all of a job.
struct Source {
    /// Number of the job.
    job: JobId,
    /// Its name, which is needed after its end too.
    name: String,
    rank: Option<u32>,
}

impl Pull {
    /// Returns a request of a tool, without processes.
    pub(super) fn new(tool: JobId, integers: Integers, channels: u32, handler: u64) -> Pull {
        Pull { tool, integers, channels, handler, sources: Vec::new() }
    }

    /// Returns the request for all processes of a job.
    pub(super) fn of_job(mut self, job: JobId, name: &str) -> Pull {
        self.sources.push(Source { job, name: name.to_owned(), rank: None });
        self
    }

    /// Returns whether this is a request about one job, with that name, and that number.
    pub(super) fn is_of_job(&self, name: &str, handler: u64) -> bool {
        self.handler == handler && matches!(&*self.sources, [source] if source.name == name)
    }

    /// Returns whether this is the request of a tool with that number.
    pub(super) fn is(&self, tool: JobId, handler: u64) -> bool {
        self.tool == tool && self.handler == handler
    }

    /// Returns the namespace of the process, if the tool wants its output.
    fn wants(&self, copy: &Copy) -> Option<&str> {
        let is_source = |source: &&Source| {
            source.job.0 == copy.number && source.rank.is_none_or(|rank| rank == copy.rank)
        };
        let source = self.sources.iter().find(is_source);
        source.filter(|_| self.channels & channel_of(copy) != 0).map(|source| &*source.name)
    }

    /// Message with output of a process.
    fn message(&self, namespace: &str, copy: &Copy) -> Vec<u8> {
        let mut message = vec![0; HEADER_LEN + MESSAGE_REST + namespace.len() + copy.bytes.len()];
        let (header, body) = message.split_at_mut(HEADER_LEN);
        let mut writer = Writer::new(self.integers, body);
        writer.single();
        writer.proc(namespace.as_bytes(), copy.rank);
        writer.single();
        writer.uint16(channel_of(copy) as u16);
        writer.single();
        writer.size(self.handler);
        writer.array(0);
        writer.single();
        writer.blob_of(|writer| writer.raw(&copy.bytes));
        let len = writer.len();
        header.copy_from_slice(&write_header(OUTPUT_TAG, len as u32));
        message.truncate(HEADER_LEN + len);
        message
    }
}

fn channel_of(copy: &Copy) -> u32 {
    if copy.stderr { channel::STDERR } else { channel::STDOUT }
}

impl Head {
    /// Copies output of processes to a tool from now on. Returns the body of the reply.
    pub(super) fn pull_output(
        &mut self,
        engine: &mut Engine<'_>,
        mut pull: Pull,
        sources: &Procs<'_>,
    ) -> Vec<u8> {
        let code = match self.sources(sources) {
            _ if pull.channels & (channel::STDOUT | channel::STDERR) == 0 => status::NOT_SUPPORTED,
            None => status::NOT_FOUND,
            Some(_)
                if engine.tools.pulls.iter().filter(|other| other.tool == pull.tool).count() >= PULLS_MAX =>
            {
                status::OUT_OF_RESOURCE
            }
            Some(sources) => {
                pull.sources = sources;
                status::SUCCESS
            }
        };
        let body = reply_body(pull.integers, |writer| {
            writer.status(code);
            if code == status::SUCCESS {
                writer.single();
                writer.size(pull.handler);
            }
        });
        if code == status::SUCCESS {
            engine.tools.pulls.push(pull);
        }
        // From here on output is copied.
        self.copy_output(engine);
        body
    }

    /// Returns what processes stand for. None if one of their jobs does not exist.
    fn sources(&self, sources: &Procs<'_>) -> Option<Vec<Source>> {
        let jobs = self.control.jobs();
        let source = |proc: hydrant_core::wire::pmix::Proc<'_>| {
            let job = jobs.named(proc.namespace)?;
            let rank = (proc.rank != WILDCARD).then_some(proc.rank);
            Some(Source { job: job.id, name: job.name.clone(), rank })
        };
        sources.iter().map(source).collect()
    }
}

impl Engine<'_> {
    /// Sends output of a rank to the tools that have asked for it.
    pub(super) fn copy_to_tools(&mut self, copy: &Copy) {
        let now = self.now();
        let Some(driver) = self.core.driver() else { return };
        for (pull, name) in self.tools.pulls.iter().filter_map(|pull| Some((pull, pull.wants(copy)?))) {
            let message = pull.message(name, copy);
            // A backend that fails is reported at its next call.
            let _ = driver.send_aside((pull.tool, Rank(0)), &message, WAITING_MAX, now, &self.poller);
        }
    }
}
