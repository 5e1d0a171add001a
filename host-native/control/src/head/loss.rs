//! Lost nodes, failed PMI servers, and signals of the user.

use std::ops::Range;

use hydrant_core::trace::{Exit, SignalName};
use hydrant_core::{JobId, Rank};

use super::Head;
use crate::job_result::AbortReason;
use crate::jobs::lost_line;
use crate::protocol::{BackendFailure, Order};

impl Head {
    /// Daemons are lost: one, and all below it. Jobs end, or go on without the ranks there.
    pub(super) fn nodes_lost(&mut self, nodes: Range<u32>, reason: &str) {
        if nodes.clone().all(|node| self.lost.contains(&node)) {
            // Their servers have failed before.
            return;
        }
        self.lost.extend(nodes.clone());
        nodes.clone().for_each(|node| self.leaver_lost(node, reason));
        match self.ends_with_a_node() {
            true => self.abort_all(reason, nodes.clone()),
            false => self.go_on_without(nodes.clone(), reason),
        }
        for job in self.jobs.iter_mut() {
            job.run.busy.retain(|node| !nodes.contains(node));
        }
    }

    /// Whether all jobs end when nodes are lost.
    fn ends_with_a_node(&self) -> bool {
        // The server of a lost host's board may run on.
        self.config.cleanup && !self.config.stays || self.has_boards || self.first.is_some()
    }

    /// The PMI server of a node has failed. The node is lost and its daemon ends, or all jobs end and the daemon stays until then.
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
        // Neighbours have no servers any more. One of them is above the other, unless the head's own has failed.
        let upper = node.min(culprit);
        if self.is_newcomer(node) {
            self.newcomer_is_unfit(node, text);
        } else if upper > 0 && !self.ends_with_a_node() {
            self.send(upper, Order::End);
            self.nodes_lost(self.newcomers.subtree(upper), &text);
        } else {
            self.abort_all(&text, culprit..culprit + 1);
        }
    }

    /// Aborts all jobs because of nodes whose ranks count as lost.
    fn abort_all(&mut self, text: &str, nodes: Range<u32>) {
        if self.first.take().is_some() {
            self.print(format!("the job was not started: {text}"));
            self.statuses.run().record_failure(1);
            return;
        }
        if nodes.contains(&0) && self.jobs.is_empty() {
            self.print(text.to_owned());
            self.statuses.run().record_failure(1);
            return;
        }
        self.jobs.ids(|_| true).into_iter().for_each(|id| self.abort_on(id, text, &nodes));
    }

    /// Aborts a job because of nodes whose ranks count as lost.
    fn abort_on(&mut self, id: JobId, text: &str, nodes: &Range<u32>) {
        let lost = self.running_on(id, nodes);
        let job = &mut self.jobs[id];
        lost.iter().for_each(|&rank| job.rank_lost(rank));
        job.run.starting.retain(|node| !nodes.contains(node));
        let (ranks, below) = (lost.len() as u32, nodes.len() as u32 - 1);
        self.abort(id, AbortReason::Host { what: text.to_owned(), ranks, below });
    }

    /// Ranks of a job that run on these nodes.
    fn running_on(&self, id: JobId, nodes: &Range<u32>) -> Vec<u32> {
        let job = &self.jobs[id];
        let is_there = |rank: &u32| nodes.contains(&job.run.node(*rank)) && job.is_running(*rank);
        (0..job.size()).filter(is_there).collect()
    }

    /// Lost nodes are a change of membership: all servers count their ranks as dead. A job that has not started there as a whole
    /// ends.
    fn go_on_without(&mut self, nodes: Range<u32>, reason: &str) {
        self.part_with(nodes.start);
        let mut ranks = 0;
        let mut goes_on = false;
        for id in self.jobs.ids(|_| true) {
            let job = &self.jobs[id];
            let ends = job.run.cleanup && !self.running_on(id, &nodes).is_empty();
            if ends || job.run.starting.iter().any(|node| nodes.contains(node)) {
                self.abort_on(id, reason, &nodes);
                continue;
            }
            let is_ending = job.is_ending();
            for rank in self.running_on(id, &nodes) {
                ranks += u32::from(!is_ending);
                self.rank_ended(id, Rank(rank), Exit::Lost, None);
            }
            goes_on |= !is_ending && self.jobs[id].running() > 0;
        }
        if self.config.stays {
            self.print(reason.to_owned());
            self.refuse_large();
        } else if ranks > 0 || goes_on {
            self.print(lost_line(reason, ranks, nodes.len() as u32 - 1, goes_on));
        }
        nodes.for_each(|node| self.stdin_closed(node));
    }

    /// Passes a signal of the user on.
    pub(super) fn signal(&mut self, signal: i32) {
        let repeated = self.statuses.run().record_signal(signal);
        if self.config.verbose {
            self.print(format!("passing {} on", SignalName(signal)));
        }
        if matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
            return self.send_all(Order::Signal(signal));
        }
        if let Some(first) = self.first.take() {
            let awaited = match first.awaits_debugger && self.setup_sent && self.unready.is_empty() {
                true => "the debugger released the job",
                false => "all hosts were there",
            };
            self.print(format!("ended by {} before {awaited}", SignalName(signal)));
            self.statuses.run().give_up();
        }
        self.send_all(Order::Signal(if repeated { libc::SIGKILL } else { signal }));
        if self.jobs.iter().all(|job| job.running() == 0) {
            // The output has a reader that does not read, or nodes have not reported yet which ranks they have started.
            if self.jobs.iter().any(|job| !job.run.starting.is_empty()) {
                let line = self.statuses.run().interruption_line(signal);
                line.into_iter().for_each(|line| self.print(line));
            }
            self.statuses.run().give_up();
        }
    }
}
