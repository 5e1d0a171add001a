//! `--profile`: where the time of each job's start went.
//!
//! Each node has a reader of its server's inputs and outputs, the same one that reads recordings, and sends the summary of a job
//! before it reports the end of the job. The head adds what it has waited for before the first job.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::rc::Rc;

use hydrant_control::protocol::{Report, decode, encode};
use hydrant_control::{Head, JobSummary};
use hydrant_core::JobId;
use hydrant_timeline::{Live, Slow, Summary, Usage};

use super::Engine;
use crate::backend::SharedLive;

/// Hosts that are named as the last ones to join.
const NAMED: usize = 3;

/// A reader for the server on this host.
pub(super) fn live_of(host: &str) -> SharedLive {
    Rc::new(RefCell::new(Live::new(host.to_owned())))
}

/// Times of the ranks of this process.
pub(super) struct NodeProfile {
    live: SharedLive,
    /// What ranks had used when they entered their first fence.
    usage: BTreeMap<JobId, Usage>,
}

impl NodeProfile {
    pub(super) fn new(live: SharedLive) -> NodeProfile {
        NodeProfile { live, usage: BTreeMap::new() }
    }
}

/// What the head knows of starts.
#[derive(Default)]
pub(super) struct Profile {
    /// Last daemons that joined, with their times.
    joined: Vec<(u64, u32)>,
    all_joined: Option<u64>,
    first_opened: u64,
    /// Summaries of jobs that run, by job id.
    jobs: BTreeMap<String, Summary>,
}

impl Profile {
    pub(super) fn host_joined(&mut self, now: u64, node: u32) {
        self.joined.insert(0, (now, node));
        self.joined.truncate(NAMED);
    }

    pub(super) fn all_joined(&mut self, now: u64) {
        self.all_joined.get_or_insert(now);
    }

    /// The job of the command line is registered, and started.
    pub(super) fn first_job_opened(&mut self, now: u64) {
        self.first_opened = now;
    }

    /// Takes the summary of a node's ranks.
    pub(super) fn take(&mut self, control: &Head, (node, job): (u32, JobId), body: &[u8]) {
        let Some(mut summary) = decode::<Summary>(body) else { return };
        if control.jobs().get(job).is_none_or(|job| job.name != summary.job) {
            return;
        }
        if control.hosts().len() > 1 {
            summary.name_host(control.host(node));
        }
        match self.jobs.get_mut(&summary.job) {
            Some(all) => all.merge(summary),
            None => drop(self.jobs.insert(summary.job.clone(), summary)),
        }
    }

    /// Returns the summary of a job that has ended. None if no node has sent one.
    pub(super) fn job_ended(&mut self, control: &Head, job: &JobSummary) -> Option<Summary> {
        let mut summary = self.jobs.remove(&job.name)?;
        if job.ordinal == 0 {
            let joined = self.all_joined.unwrap_or(0);
            summary.begin_with("setup", self.first_opened.saturating_sub(joined), Vec::new());
            let slow = |&(millis, node): &(u64, u32)| Slow {
                rank: None,
                host: control.host(node).to_owned(),
                millis,
            };
            if self.all_joined.is_some() {
                summary.begin_with("daemons", joined, self.joined.iter().map(slow).collect());
            }
        }
        Some(summary)
    }
}

impl Engine<'_> {
    /// Looks at the processes of ranks that have entered their first fence, if there is a profile.
    pub(super) fn look_at_ranks(&mut self) {
        let now = self.now();
        let Some(profile) = &mut self.profile else { return };
        for (id, rank, opened) in profile.live.borrow_mut().take_arrivals() {
            let pid = self.jobs.get(id).and_then(|job| job.pid(rank));
            if let Some(usage) = pid.and_then(|pid| usage_of(pid, now.saturating_sub(opened))) {
                profile.usage.entry(id).or_default().add(&usage);
            }
        }
    }

    /// Sends the summary of the ranks of this process, if there is a profile.
    pub(super) fn report_profile(&mut self, job: JobId) {
        let Some(profile) = &mut self.profile else { return };
        let usage = profile.usage.remove(&job).unwrap_or_default();
        let summary = profile.live.borrow_mut().take_job(job);
        if let Some(summary) = summary {
            let body = encode(&Summary { usage, ..summary });
            self.send_report(&Report::Profile { job, body });
        }
    }
}

/// Returns what a process has used since its start, so many milliseconds ago. None if the system does not tell.
fn usage_of(pid: u32, elapsed: u64) -> Option<Usage> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    // Nanoseconds on a processor, and in a queue for one.
    let times = read("schedstat")?;
    let mut times = times.split_whitespace().map(|nanos| nanos.parse::<u64>().map(|nanos| nanos / 1_000_000));
    let (running, queued) = (times.next()?.ok()?, times.next()?.ok()?);
    let bytes =
        read("io").and_then(|io| io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()));
    let maps = read("maps").unwrap_or_default();
    let files: BTreeSet<&str> = maps.lines().filter_map(library).collect();
    let has = |name: &str| u64::from(files.iter().any(|file| file.starts_with(name)));
    Some(Usage {
        ranks: 1,
        elapsed,
        running,
        queued,
        read: bytes.unwrap_or(0),
        libraries: files.len() as u64,
        libfabric: has("libfabric.so"),
        openmpi: has("libopen-pal.so"),
    })
}

/// Returns the name of the shared library of a line of `/proc/PID/maps`.
fn library(line: &str) -> Option<&str> {
    let (_, name) = line.rsplit_once('/')?;
    (name.ends_with(".so") || name.contains(".so.")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_run_and_loaded_libraries() {
        let usage = usage_of(std::process::id(), 5000).unwrap();
        assert!(usage.libraries > 1 && usage.ranks == 1 && usage.openmpi == 0, "{usage:?}");
        assert_eq!(usage_of(u32::MAX, 5), None);
    }

    #[test]
    fn libraries_are_found_among_mappings() {
        let line = "7f0 r-xp 0 fe:01 12    /usr/lib/libfabric.so.1";
        assert_eq!(library(line), Some("libfabric.so.1"));
        assert_eq!(library("7f0 r-xp 0 fe:01 12    /usr/bin/cat"), None);
        assert_eq!(library("7f0 rw-p 0 00:00 0 [heap]"), None);
    }
}
