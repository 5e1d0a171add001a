//! Query connections, which a rank opens in addition to its own.

use super::Server;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::Limit;
use crate::state::Conn;
use crate::trace::Closing;
use crate::wire::Command;

impl Server<'_> {
    pub(super) fn open_query(&mut self, conn: ConnId, job: JobId) -> Result<(), Fault> {
        self.job(job)?;
        let full = Fault::Full(Limit::Conns, self.limits.conns);
        let slot = self.conns.get_mut(conn.index()).ok_or(full)?;
        if slot.job.is_some() {
            return Err(Fault::ConnInUse);
        }
        *slot = Conn { job: Some(job), query: true, ..Conn::EMPTY };
        self.conns_end = self.conns_end.max(conn.0 + 1);
        Ok(())
    }

    /// Checks that a command is a query. Other commands must use the rank's own connection.
    pub(super) fn check_query(&mut self, conn: ConnId, command: &Command<'_>) -> Result<(), Refusal> {
        match *command {
            Command::Init { version: 2, .. }
            | Command::FullInit { .. }
            | Command::GetJobId
            | Command::Get { .. }
            | Command::GetNodeAttr { wait: false, .. }
            | Command::GetJobAttr { .. }
            | Command::PsetCount
            | Command::PsetName { .. }
            | Command::PsetInfo { .. }
            | Command::PsetMembers { .. }
            | Command::PsetDefine { .. }
            | Command::PsetCombine { .. }
            | Command::PsetNext { .. }
            | Command::PsetRetire { .. }
            | Command::PsetPrune
            | Command::Finalize => Ok(()),
            // PMI-1 is refused, because its handshake identifies a rank by number only.
            Command::Init { .. } | Command::InitAck { .. } => {
                self.close(conn, Closing::Refused);
                Err(Refusal::Version)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Assigns a rank to a query connection. The rank need not be connected. The head, which has no ranks, accepts the
    /// ranks of all nodes.
    pub(super) fn claim_query(&mut self, conn: ConnId, rank: Rank) -> Result<(), Refusal> {
        let job = self.conns[conn.index()].job;
        let here = self.links.node();
        if self.rank_slot(job, Some(rank)).is_none_or(|slot| here != 0 && slot.node != here) {
            self.close(conn, Closing::Refused);
            return Err(Refusal::Rank);
        }
        self.conns[conn.index()].rank = Some(rank);
        Ok(())
    }
}
