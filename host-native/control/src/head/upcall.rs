//! Requests that the head decides for all nodes: names, process sets, and connections between jobs.

use hydrant_core::wire::{Command, Protocol, Text, decode_upcall};
use hydrant_core::{JobId, Rank, Refusal, UpcallId};

use super::{Action, Head, RequestId};
use crate::jobs::SpawnKey;
use crate::protocol::Order;

/// Requests to the host that have not been answered.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<Option<Request>>);

/// A request of a rank's that waits for the host.
#[derive(Debug)]
pub(super) struct Request {
    /// Node of the rank.
    pub(super) node: u32,
    /// Number of the request at that node.
    pub(super) upcall: UpcallId,
    pub(super) what: Requested,
}

#[derive(Debug)]
pub(super) enum Requested {
    Name,
    ChangeSets { job: JobId, rank: Rank, body: Vec<u8> },
    ConnectJobs { job: JobId, other: JobId, connected: bool, rank: Rank, protocol: Protocol, body: Vec<u8> },
    Spawn { job: JobId, rank: Rank, protocol: Protocol, body: Vec<u8> },
}

impl Requests {
    pub(super) fn add(&mut self, request: Request) -> RequestId {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(request);
        RequestId(free as u32)
    }

    pub(super) fn take(&mut self, id: RequestId) -> Option<Request> {
        self.0.get_mut(id.0 as usize)?.take()
    }
}

impl Head {
    /// A rank asks for something that all nodes or other runs have to know.
    pub(super) fn upcall(
        &mut self,
        (node, upcall): SpawnKey,
        (job, rank): (JobId, Rank),
        protocol: Protocol,
        body: Vec<u8>,
    ) {
        let request = |what| Request { node, upcall, what };
        match decode_upcall(protocol, &body) {
            None => self.reply(node, upcall, Err(Refusal::BadField)),
            Some(command) if command.op().changes_psets() => {
                let what = Requested::ChangeSets { job, rank, body: body.clone() };
                let request = self.requests.add(request(what));
                self.actions.push_back(Action::ChangeSets { request, job, rank, body });
            }
            Some(command) => {
                let (named, connected) = match command {
                    Command::Connect { jobid } => (Some(jobid), true),
                    Command::Disconnect { jobid } => (Some(jobid), false),
                    _ => (None, false),
                };
                if let Some(other) = named.and_then(|jobid| self.job_with_id(jobid)) {
                    let what = Requested::ConnectJobs { job, other, connected, rank, protocol, body };
                    let request = self.requests.add(request(what));
                    self.actions.push_back(Action::ConnectJobs { request, job, other, connected });
                } else {
                    // A name, or a job of another run.
                    let request = self.requests.add(request(Requested::Name));
                    self.actions.push_back(Action::CallNameService { request, job, rank, protocol, body });
                }
            }
        }
    }

    /// Returns the job of this run that has a job id.
    fn job_with_id(&self, jobid: Text<'_>) -> Option<JobId> {
        self.jobs.iter().find(|job| jobid == *job.name.as_bytes()).map(|job| job.id)
    }

    /// The head's PMI server has carried out a request or has refused it. All nodes follow before the rank is answered.
    pub(super) fn backend_replied(&mut self, id: RequestId, result: Result<(), Refusal>) {
        let Some(Request { node, upcall, what }) = self.requests.take(id) else { return };
        let order = match what {
            Requested::ChangeSets { job, rank, body } => Order::ChangeSets { job, rank, body },
            // Jobs of other runs may connect the two.
            Requested::ConnectJobs { job, rank, protocol, body, .. }
                if result == Err(Refusal::NotConnected) && self.config.shares_names =>
            {
                let request = self.requests.add(Request { node, upcall, what: Requested::Name });
                return self.actions.push_back(Action::CallNameService {
                    request,
                    job,
                    rank,
                    protocol,
                    body,
                });
            }
            Requested::ConnectJobs { job, other, connected, .. } => {
                Order::ConnectJobs { job, other, connected }
            }
            Requested::Name | Requested::Spawn { .. } => return,
        };
        if result.is_ok() {
            self.send_all_applied(order);
        }
        self.reply(node, upcall, result);
    }

    /// The name service has answered.
    pub(super) fn upcall_complete(&mut self, id: RequestId, rc: i32, text: Vec<u8>) {
        if let Some(Request { node, upcall, .. }) = self.requests.take(id) {
            self.send(node, Order::UpcallComplete { upcall, rc, text });
        }
    }

    fn reply(&mut self, node: u32, upcall: UpcallId, result: Result<(), Refusal>) {
        let (rc, text) = match result {
            Ok(()) => (0, Vec::new()),
            Err(why) => (why.rc(), why.to_string().into_bytes()),
        };
        self.send(node, Order::UpcallComplete { upcall, rc, text });
    }
}

pub(super) fn bytes(text: Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}
