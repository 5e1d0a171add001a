//! Handshakes, which make a connection that of a rank.

use super::Server;
use super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::state::{Conn, Phase, Response};
use crate::time::Time;
use crate::trace::{Closing, event};
use crate::wire::{Protocol, Text};

impl Server<'_> {
    pub(super) fn init(&mut self, now: Time, conn: ConnId, version: u32) -> Result<Response, Refusal> {
        let slot = &mut self.conns[conn.index()];
        // MPICH repeats `init` when a session is reopened, and Slurm's library at each PMI2_Init. Over PMI_PORT both
        // open another connection for it, see `claim`.
        let again = slot.phase != Phase::Opened;
        if again && version != slot.protocol.version() {
            return Err(Refusal::Initialized);
        }
        match version {
            1 if slot.rank.is_none() => {
                // Without `initack` the rank is unknown.
                self.close(conn, Closing::Refused);
                Err(Refusal::Rank)
            }
            1 => {
                slot.protocol = Protocol::V1;
                self.join(now, conn);
                let subversion = self
                    .requester(conn)
                    .map_or(1, |requester| self.jobs[requester.job.index()].pmi1_subversion);
                Ok(Response::Init { version: 1, subversion })
            }
            2 => {
                slot.protocol = Protocol::V2;
                slot.phase = Phase::Negotiated;
                Ok(Response::Init { version: 2, subversion: 0 })
            }
            _ => Err(Refusal::Version),
        }
    }

    pub(super) fn init_ack(&mut self, conn: ConnId, pmiid: u32) -> Result<Response, Refusal> {
        if self.conns[conn.index()].phase != Phase::Opened {
            return Err(Refusal::Initialized);
        }
        self.claim(conn, Rank(pmiid))?;
        Ok(Response::InitAck)
    }

    pub(super) fn full_init(
        &mut self,
        now: Time,
        conn: ConnId,
        rank: Option<u32>,
        jobid: Option<Text<'_>>,
    ) -> Result<Response, Refusal> {
        let slot = &self.conns[conn.index()];
        match slot.phase {
            Phase::Negotiated | Phase::Ready => {}
            Phase::Opened | Phase::Finalized => return Err(Refusal::NotInitialized),
        }
        // The rank of a connection is known if the host has created it. The client's number is then ignored.
        if slot.rank.is_none() {
            let job = slot.job.and_then(|job| self.jobs.get(job.index())).ok_or(Refusal::NoKvs)?;
            if jobid.is_some_and(|jobid| !jobid.is_empty() && jobid != *job.name.as_bytes()) {
                self.close(conn, Closing::Refused);
                return Err(Refusal::NoKvs);
            }
            let rank = rank.ok_or(Refusal::MissingField)?;
            self.claim(conn, Rank(rank))?;
        }
        self.join(now, conn);
        Ok(Response::FullInit)
    }

    /// Assigns a rank to a connection. A rank has one connection: a verified client replaces an idle one, and another
    /// client is refused.
    fn claim(&mut self, conn: ConnId, rank: Rank) -> Result<(), Refusal> {
        let Conn { job, rank: known, query, verified, .. } = self.conns[conn.index()];
        if known == Some(rank) {
            return Ok(());
        }
        if query {
            return self.claim_query(conn, rank);
        }
        let here = self.links.node();
        if verified && known.is_none() {
            self.replace(job, rank);
        }
        match self.rank_slot(job, Some(rank)).filter(|slot| slot.node == here) {
            Some(slot) if known.is_none() && slot.may_connect() => {
                slot.conn = Some(conn);
                let slot = &mut self.conns[conn.index()];
                slot.rank = Some(rank);
                slot.joined = true;
                slot.joined_pending = true;
                event!(debug, "conn {} is rank {}", conn, rank);
                Ok(())
            }
            _ => {
                self.close(conn, Closing::Refused);
                Err(Refusal::Rank)
            }
        }
    }

    /// Closes the connection of a rank, if it is idle.
    fn replace(&mut self, job: Option<JobId>, rank: Rank) {
        let Some(old) =
            self.rank_slot(job, Some(rank)).filter(|slot| slot.exit.is_none()).and_then(|slot| slot.conn)
        else {
            return;
        };
        if self.conns.get(old.index()).is_some_and(Conn::is_idle) {
            if let Some(slot) = self.rank_slot(job, Some(rank)) {
                slot.conn = None;
            }
            self.close(old, Closing::Replaced);
        }
    }

    fn join(&mut self, now: Time, conn: ConnId) {
        let slot = &mut self.conns[conn.index()];
        slot.phase = Phase::Ready;
        if slot.query {
            return;
        }
        slot.joined_pending |= !slot.joined;
        slot.joined = true;
        let Some(Requester { job, index, .. }) = self.requester(conn) else { return };
        self.initialize(now, job, index);
    }
}
