//! A board that serves the job instead of a core in this process.

use std::net::IpAddr;
use std::path::Path;

use hydrant_core::JobId;
use hydrant_driver::Event;
use hydrant_reactor::Interest;
use hydrant_services::board::NodeEvent;

use super::Engine;
use super::token::Token;
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Opens the job's port on the board. Returns the host and the ports for the ranks, if a board serves the job.
    pub(super) fn begin_at_board(&mut self, job: JobId) -> Result<Option<(IpAddr, Vec<u16>)>, RunError> {
        if let Some(board) = self.core.node() {
            return Ok(Some((board.host(), vec![board.serve(job)?])));
        }
        let Some(board) = self.core.board() else { return Ok(None) };
        board.serve()?;
        let (host, port) = board.address();
        let ports = self.plan.options.offload.as_ref().map(|offload| offload.ports.clone());
        let ports = ports.filter(|ports| !ports.is_empty()).unwrap_or_else(|| vec![port]);
        if self.plan.options.verbose {
            let line = board.describe();
            self.sinks.print(&line);
        }
        Ok(Some((host, ports)))
    }

    /// Polls the connection to this node's board for writing while bytes wait for it.
    pub(super) fn watch_board(&mut self) -> Result<(), RunError> {
        let Some(board) = self.core.node() else { return Ok(()) };
        let blocked = board.is_blocked();
        if blocked != self.board_blocked {
            let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
            self.poller.modify(board.stream(), Token::Board, interest)?;
            self.board_blocked = blocked;
        }
        Ok(())
    }

    /// Handles an event of this node's board.
    pub(super) fn take_node_event(&mut self, event: NodeEvent) -> Result<(), RunError> {
        match event {
            NodeEvent::BadPeer { node, why } => Err(RunError::Peer { node, why }),
            NodeEvent::Linked(_) => {
                self.report_link(Ok(()));
                Ok(())
            }
            NodeEvent::Unlinked { node, why } => self.link_lost(node, why),
            NodeEvent::Server(Event::RemoveFiles { job, rank, paths }) => {
                if let Some(job) = self.jobs.get_mut(job) {
                    job.run.add_leftovers(rank.0, &paths, is_shared_memory);
                }
                Ok(())
            }
            NodeEvent::Ranks { query, ranks } => {
                self.report_rank_states(query, &ranks);
                Ok(())
            }
            NodeEvent::Server(event) => self.take_server_event(event),
        }
    }

    /// Prints the next line of the board. Returns whether there was one.
    pub(super) fn show_board(&mut self) -> bool {
        let Some(line) = self.core.board().and_then(|board| board.line()) else { return false };
        self.sinks.print(&line);
        true
    }

    /// Returns whether no event is expected from the board. True without a board.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.core.board().is_none_or(|board| board.is_quiet())
    }

    /// Ends the job on the board. Prints the counters of the board if the user asked for a summary.
    pub(super) fn part_from_board(&mut self) -> Result<(), RunError> {
        let Some(board) = self.core.board() else { return Ok(()) };
        let counted = board.finish()?;
        while self.show_board() {}
        if self.plan.options.offload.as_ref().is_some_and(|offload| offload.summary) {
            self.sinks.print(&counted);
        }
        self.flush();
        Ok(())
    }
}

/// Folder of shared memory segments.
const SHARED_MEMORY: &str = "/dev/shm";

/// Returns whether a path names a file directly in the folder of shared memory segments. Clients of a board have no
/// credentials, so any of them can name a file of this machine, and only such files are removed.
pub(super) fn is_shared_memory(path: &Path) -> bool {
    path.parent() == Some(Path::new(SHARED_MEMORY)) && path.file_name().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_removes_shared_memory_only() {
        assert!(is_shared_memory(Path::new("/dev/shm/sm_segment.host.0.1.2")));
        for path in
            ["/home/user/file", "/dev/shm", "/dev/shm/..", "/dev/shm/../sda", "/dev/shm/x/y", "dev/shm/x"]
        {
            assert!(!is_shared_memory(Path::new(path)), "{path}");
        }
    }
}
