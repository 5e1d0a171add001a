//! Lines about fences that follow the gets of clients, for `--fence auto` with `-v`.

use hydrant_core::limits::AUTO_NODES_MAX;
use hydrant_core::server::{FenceMode, FenceReport};

use super::super::Engine;

/// Fences after which a host that asks few others is said to do so. Gets between the first two fences are learned from.
const LEARNED: u32 = 2;

impl Engine<'_> {
    /// Prints what this host has learned of the gets of its ranks, once for each decision.
    pub(in super::super) fn print_fences(&mut self) {
        let settings = &self.plan.settings;
        if !settings.verbose || settings.fence != FenceMode::Auto || self.nodes.is_none() {
            return;
        }
        let Some(server) = self.core.inspect() else { return };
        let mut lines = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job.run.ranks.count() > 0) {
            let Some(report) = server.fence_report(job.id) else { continue };
            let is_learned = report.collects || report.fences >= LEARNED;
            if is_learned && job.run.fences_collect != Some(report.collects) {
                job.run.fences_collect = Some(report.collects);
                lines.push(learned(&self.host, report));
            }
        }
        lines.iter().for_each(|line| self.sinks.print(line));
    }
}

fn learned(host: &str, report: FenceReport) -> String {
    let FenceReport { asked, others, collects, without_hint, .. } = report;
    match (collects, without_hint) {
        (true, true) => format!("host {host} gets values without their ranks: fences bring it all values"),
        (true, false) => {
            format!("host {host} gets values of {asked} of {others} other hosts: fences bring it all values")
        }
        (false, _) => {
            format!("host {host} gets values of {asked} of {others} other hosts: fences bring it only these")
        }
    }
}

/// Returns how fences of a job on so many hosts begin.
pub(super) fn beginning(hosts: u32) -> String {
    match hosts {
        ..=AUTO_NODES_MAX => format!("fences collect all values: {hosts} hosts, of at most {AUTO_NODES_MAX}"),
        _ => format!("the first fence moves no values: {hosts} hosts, more than {AUTO_NODES_MAX}"),
    }
}
