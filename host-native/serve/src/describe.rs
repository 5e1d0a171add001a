//! Answers to `hydrant ps`, `status` and `kill` about ranks that another launcher starts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hydrant_core::server::JobPhase;
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, JobId, Rank};
use hydrant_reactor::Key;
use hydrant_status::record::{self, RANKS_MAX, State, Text, Wait};
use hydrant_status::{Reply, Request};

use crate::endpoint::Endpoint;
use crate::status::{Processes, Status};

impl Endpoint<'_> {
    /// Handles the status socket or one of its clients.
    pub(crate) fn status_ready(&mut self, key: Key) {
        let now = self.now();
        // The socket is put aside while the endpoint is read.
        let Some(mut status) = self.status.take() else { return };
        if let Some((client, request)) = status.server.ready(key, self.poller(), now) {
            let reply = match request {
                Request::Run => Some(Reply::Run(self.describe_run(&status))),
                Request::Job(from) => Some(Reply::Job(self.describe_job_from(from))),
                Request::Ranks { job, first } => Some(Reply::Ranks(self.describe_ranks(&status, job, first))),
                Request::Access { .. } => Some(Reply::Access(None)),
                Request::Signal(number) => {
                    status.server.take_signal(client, number, self.poller());
                    None
                }
                Request::Replace(_) => {
                    let why = "the server of jobs that other launchers start cannot be replaced";
                    Some(Reply::Refused(why.to_owned()))
                }
                Request::Grow(_) | Request::Shrink { .. } => {
                    let why = "another launcher starts its ranks, on hosts of its own";
                    Some(Reply::Refused(why.to_owned()))
                }
                Request::Attach => {
                    let why = "another launcher starts its ranks, and has their output";
                    Some(Reply::Refused(why.to_owned()))
                }
            };
            if let Some(reply) = reply {
                status.server.reply(client, &reply, self.poller());
            }
        }
        self.status = Some(status);
    }

    fn describe_run(&self, status: &Status) -> record::Run {
        let mut addresses = BTreeSet::new();
        let (mut jobs, mut ranks, mut running) = (0, 0, 0);
        for (job, size) in self.jobs() {
            let reports = (0..size).filter_map(|rank| self.server().rank_report(job, Rank(rank)));
            let conns: Vec<ConnId> = reports.filter_map(|report| report.conn).collect();
            addresses.extend(conns.iter().filter_map(|&conn| self.peer(conn)));
            jobs += 1;
            ranks += size;
            running += conns.len() as u32;
        }
        record::Run {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: status.host.clone(),
            elapsed_ms: self.now(),
            hosts: addresses.len() as u32,
            jobs,
            ranks,
            running,
            program: Text::from(status.command),
            fleet: None,
            bootstrap: "none".to_owned(),
            address: Some(status.address.clone()),
        }
    }

    /// The job with the lowest number from `from` on.
    fn describe_job_from(&self, from: u32) -> Option<record::Job> {
        let (id, size) = self.jobs().find(|(id, _)| id.0 >= from)?;
        let report = self.server().job_report(id)?;
        Some(record::Job {
            number: id.0,
            ordinal: 0,
            name: self.server().job_name(id)?.to_owned(),
            spawned_by: None,
            ending: matches!(report.phase, JobPhase::Ending(_) | JobPhase::Over),
            ranks: size,
            programs: Vec::new(),
        })
    }

    fn describe_ranks(&self, status: &Status, job: u32, first: u32) -> Vec<record::Rank> {
        let Some((id, size)) = self.jobs().find(|(id, _)| id.0 == job) else { return Vec::new() };
        let ranks = first.min(size)..first.saturating_add(RANKS_MAX).min(size);
        ranks.filter_map(|rank| self.describe_rank(status.processes, id, Rank(rank))).collect()
    }

    fn describe_rank(&self, processes: Processes, job: JobId, rank: Rank) -> Option<record::Rank> {
        let known = self.server().rank_status(job, rank)?;
        let report = known.report;
        let state = match report.exit {
            Some(Exit::Lost) => State::Lost,
            _ if report.conn.is_none() && !report.initialized && !report.finalized => State::NotConnected,
            _ => State::from(&report),
        };
        let mut described = record::Rank {
            rank: rank.0,
            host: report.conn.and_then(|conn| self.peer(conn)).map(|ip| ip.to_string()),
            pid: None,
            program: 0,
            state,
            exit_code: None,
            signal: None,
            waits_for: known.wait.map(|wait| Wait::new(&wait, self.now())),
        };
        if let Some(exit) = report.exit.filter(|_| processes == Processes::Reported) {
            described.set_exit(exit);
        }
        Some(described)
    }

    /// Address of the client of a connection.
    fn peer(&self, conn: ConnId) -> Option<IpAddr> {
        self.peer_addr(conn).map(|address| address.ip().to_canonical())
    }
}
