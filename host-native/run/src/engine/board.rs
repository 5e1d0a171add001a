//! A board that serves the job instead of a core in this process.

use std::iter;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use hydrant_board::{Board, NodeBoard, RECORDING_MAX};
use hydrant_core::JobId;
use hydrant_reactor::Interest;
use hydrant_record::RecordingFile;

use super::server::PmiServer;
use super::token::Token;
use super::{Engine, limits, open, record_up_to};
use crate::error::RunError;
use crate::plan::{Offload, Plan};

impl Engine<'_> {
    /// Opens the job's port on the board. Returns the host and the ports for the ranks, if a board serves the job. The ports of
    /// the command line are those of the first job.
    pub(super) fn begin_at_board(
        &mut self,
        job: JobId,
        is_first: bool,
    ) -> Result<Option<(IpAddr, Vec<u16>)>, RunError> {
        let (host, port) = match &mut self.core {
            PmiServer::Local(_) => return Ok(None),
            PmiServer::Node(board) => (board.host(), board.serve(job)?),
        };
        let ports = self.plan.options.offload.as_ref().map(|offload| offload.ports.clone());
        let ports = ports.filter(|ports| is_first && !ports.is_empty()).unwrap_or_else(|| vec![port]);
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

    /// Prints the next line of the board. Returns whether there was one.
    pub(super) fn show_board(&mut self) -> bool {
        let Some(line) = self.core.line() else { return false };
        self.sinks.print(&line);
        true
    }

    /// Ends the job on the board. Prints the counters of the board if the user asked for a summary.
    pub(super) fn part_from_board(&mut self) -> Result<(), RunError> {
        let Some(offload) = &self.plan.options.offload else { return Ok(()) };
        let counted = match &mut self.core {
            PmiServer::Local(_) => return Ok(()),
            PmiServer::Node(board) => {
                if offload.summary {
                    board.count_all()?;
                }
                let jobs: String = iter::from_fn(|| board.line()).map(|line| line + "; ").collect();
                board.end();
                if offload.summary { jobs + &connect(offload)?.counters()? } else { jobs }
            }
        };
        while self.show_board() {}
        if offload.summary {
            self.sinks.print(&counted);
        }
        self.flush();
        Ok(())
    }
}

/// Connects to the board of `hydrant offload`.
fn connect(offload: &Offload) -> Result<Board, RunError> {
    Ok(Board::connect(&offload.target, offload.secret.as_ref())?)
}

/// The board of `hydrant offload`.
pub(super) struct OffloadBoard<'s> {
    pub(super) core: PmiServer<'s>,
    /// The board in a few words.
    pub(super) described: String,
    /// The recording that the board sends.
    pub(super) recording: Option<Rc<RecordingFile>>,
}

/// Connects to the board of `hydrant offload`, which serves the run on this host as its only node.
pub(super) fn board_of<'s>(plan: &Plan, offload: &Offload) -> Result<OffloadBoard<'s>, RunError> {
    let board = connect(offload)?;
    let path = plan.options.record.as_deref();
    let (wanted, seed) = (limits(plan, open::size(&plan.programs)?), open::random()?);
    let (heartbeat, recorded) = (plan.options.cluster.heartbeat, path.map(|_| seed));
    let (mut node, described) = NodeBoard::lone(board, &wanted, heartbeat, recorded)?;
    let recording = record_up_to(RECORDING_MAX, path, node.own_limits(), seed)?;
    if let Some(file) = &recording {
        node.record(Rc::clone(file));
    }
    Ok(OffloadBoard { core: PmiServer::Node(Box::new(node)), described, recording })
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

    // Fault: A client of a board names a file to remove
    // Outcome: files that are not directly in `/dev/shm` stay
    // Guarantee: With a board, no other files are removed
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
