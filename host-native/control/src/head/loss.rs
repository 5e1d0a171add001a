//! Lost nodes, failed PMI servers, and signals of the user.

use std::ops::Range;

use hydrant_core::trace::SignalName;

use super::Head;
use crate::job_result::AbortReason;
use crate::protocol::{BackendFailure, Order};

impl Head {
    /// Daemons are lost. The run cannot go on without them.
    pub(super) fn nodes_lost(&mut self, nodes: Range<u32>, reason: &str) {
        self.lost.extend(nodes.clone());
        self.abort_all(reason, nodes.clone());
        for job in self.jobs.iter_mut() {
            job.run.busy.retain(|node| !nodes.contains(node));
        }
    }

    /// The PMI server of a node has failed. The run cannot go on without it. The node's daemon stays.
    pub(super) fn backend_failed(&mut self, node: u32, failure: BackendFailure) {
        if node == 0 {
            // Jobs that the head's own server was to register have no answer, and no node knows them.
            for record in std::mem::take(&mut self.opening) {
                self.jobs.remove_unopened(record.id);
            }
        }
        let host = |node: u32| format!("host {} (node {node})", self.host(node));
        let (culprit, what) = match failure {
            BackendFailure::Own(what) => (node, what),
            BackendFailure::Neighbour { node: neighbour, why } => {
                let sender = match &self.config.plugin {
                    Some(file) => format!("plugin {}", file.display()),
                    None => "its PMI server".to_owned(),
                };
                (neighbour, format!("{sender} sent {} an invalid message: {why}", host(node)))
            }
        };
        let text = format!("{}: {what}", host(culprit));
        self.abort_all(&text, culprit..culprit + 1);
    }

    /// Aborts all jobs because of nodes whose ranks count as lost.
    fn abort_all(&mut self, text: &str, nodes: Range<u32>) {
        if self.first.take().is_some() {
            self.print(format!("the job was not started: {text}"));
            self.status.record_failure(1);
            return;
        }
        if nodes.contains(&0) && self.jobs.is_empty() {
            self.print(text.to_owned());
            self.status.record_failure(1);
            return;
        }
        for id in self.jobs.ids(|_| true) {
            let job = &mut self.jobs[id];
            let is_lost = |rank: &u32| nodes.contains(&job.run.node(*rank)) && job.is_running(*rank);
            let lost: Vec<u32> = (0..job.size()).filter(is_lost).collect();
            lost.iter().for_each(|&rank| job.rank_lost(rank));
            job.run.starting.retain(|node| !nodes.contains(node));
            let (ranks, below) = (lost.len() as u32, nodes.len() as u32 - 1);
            self.abort(id, AbortReason::Host { what: text.to_owned(), ranks, below });
        }
    }

    /// Passes a signal of the user on.
    pub(super) fn signal(&mut self, signal: i32) {
        let repeated = self.status.record_signal(signal);
        if self.config.verbose {
            self.print(format!("passing {} on", SignalName(signal)));
        }
        if matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
            return self.send_all(Order::Signal(signal));
        }
        if self.first.take().is_some() {
            self.print(format!("ended by {} before all hosts were there", SignalName(signal)));
            self.status.give_up();
        }
        self.send_all(Order::Signal(if repeated { libc::SIGKILL } else { signal }));
        if self.jobs.iter().all(|job| job.running() == 0) {
            // The output has a reader that does not read, or nodes have not reported yet which ranks they have started.
            if self.jobs.iter().any(|job| !job.run.starting.is_empty()) {
                let line = self.status.interruption_line(signal);
                line.into_iter().for_each(|line| self.print(line));
            }
            self.status.give_up();
        }
    }
}
