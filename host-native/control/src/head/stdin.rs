//! Standard input at the head: recipients of its bytes, and the pace at which it is read.

use std::collections::BTreeMap;

use hydrant_core::JobId;

use super::{Action, Head};
use crate::protocol::{Order, StdinTarget};

/// Nodes whose ranks read standard input.
///
/// Each of them may be sent as many bytes as it has room for. The slowest sets the pace.
#[derive(Debug, Default)]
pub(super) struct StdinReaders {
    target: StdinTarget,
    /// Nodes with ranks that have not closed their input, and the number of bytes that these ranks have read.
    consumed: BTreeMap<u32, u64>,
    /// Bytes that all of them have read.
    reported: u64,
    /// Bytes that they were sent.
    sent: u64,
}

impl StdinReaders {
    pub(super) fn new(target: StdinTarget) -> StdinReaders {
        StdinReaders { target, ..StdinReaders::default() }
    }
}

impl Head {
    /// The first job is being started: its input may be read.
    pub(super) fn open_stdin(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let nodes: Vec<u32> = match self.stdin.target {
            StdinTarget::All => job.run.blocks.iter().map(|block| block.node).collect(),
            StdinTarget::Rank(rank) => vec![job.run.node(rank)],
            StdinTarget::None | StdinTarget::Tools => return,
        };
        self.stdin.consumed = nodes.into_iter().map(|node| (node, 0)).collect();
        self.actions.push_back(Action::AllowStdin(None));
    }

    /// Sends input to the nodes of its readers. The link to a node delivers it behind the start of the job.
    pub(super) fn stdin_read(&mut self, bytes: Vec<u8>) {
        let Some(job) = self.jobs.iter().find(|job| job.is_of_command_line()) else { return };
        self.stdin.sent += bytes.len() as u64;
        match self.stdin.target {
            // One message for all nodes: the tree copies it. Nodes without readers drop it.
            StdinTarget::All => self.send_all(Order::Stdin(bytes)),
            StdinTarget::Rank(rank) => self.send(job.run.node(rank), Order::Stdin(bytes)),
            StdinTarget::None | StdinTarget::Tools => {}
        }
    }

    /// Returns whether ranks of a node read input. `None` once the first job is over.
    pub(super) fn is_stdin_node(&self, node: u32) -> Option<bool> {
        let job = self.jobs.iter().find(|job| job.is_of_command_line())?;
        Some(match self.stdin.target {
            StdinTarget::All => job.run.has_ranks_on(node),
            StdinTarget::Rank(rank) => job.run.node(rank) == node,
            StdinTarget::None | StdinTarget::Tools => false,
        })
    }

    /// Returns whether ranks of a node can have read so many more bytes.
    pub(super) fn can_consume(&self, node: u32, bytes: u32) -> bool {
        self.stdin.consumed.get(&node).is_none_or(|consumed| consumed + u64::from(bytes) <= self.stdin.sent)
    }

    pub(super) fn stdin_consumed(&mut self, node: u32, bytes: u32) {
        if let Some(consumed) = self.stdin.consumed.get_mut(&node) {
            *consumed += u64::from(bytes);
            self.allow_stdin();
        }
    }

    /// The readers of a node need no more input. The others may have waited for them.
    pub(super) fn stdin_closed(&mut self, node: u32) {
        if self.stdin.consumed.remove(&node).is_none() {
            return;
        }
        match self.stdin.consumed.is_empty() {
            true => self.actions.push_back(Action::CloseStdin),
            false => self.allow_stdin(),
        }
    }

    /// Lets the host read as many bytes as the slowest node has room for.
    fn allow_stdin(&mut self) {
        let slowest = self.stdin.consumed.values().copied().min().unwrap_or(0);
        let more = slowest.saturating_sub(self.stdin.reported);
        self.stdin.reported += more;
        if let Some(more) = u32::try_from(more).ok().filter(|&more| more > 0) {
            self.actions.push_back(Action::AllowStdin(Some(more)));
        }
    }
}
