//! Requests that the head decides for all nodes: names, queries, process sets, and connections between jobs.

use hydrant_core::wire::Text;
use hydrant_core::wire::pmix::HostCall;
use hydrant_core::{JobId, OwnedInput, Refusal};

use super::{Action, Head, RequestId, Upcall};
use crate::protocol::{Order, shared_request};

/// Requests to the host that have not been answered.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<Option<Request>>);

/// A request of a rank's that waits for the host.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) upcall: Upcall,
    /// What all PMI servers apply, the head's first, if the request changes process sets or connects jobs.
    pub(super) input: Option<OwnedInput>,
    /// Name of the job of a spawn: another job may have its number when the host answers, because hosts may have to join first.
    pub(super) job: Option<String>,
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
    pub(super) fn upcall(&mut self, upcall: Upcall) {
        let job = upcall.job;
        if HostCall::is(&upcall.request) {
            let request = self.requests.add(Request { upcall: upcall.clone(), input: None, job: None });
            return self.actions.push_back(Action::AnswerQuery { request, upcall });
        }
        let call = (upcall.protocol, &upcall.request[..]);
        match shared_request((job, upcall.rank), call, |jobid| self.job_with_id(jobid)) {
            Ok(Some(input)) => self.apply_here(upcall, input),
            // A name, or a job of another run.
            Ok(None) => self.call_name_service(upcall),
            Err(refusal) => self.reply(&upcall, Err(refusal)),
        }
    }

    /// Has the head's PMI server apply a request.
    fn apply_here(&mut self, upcall: Upcall, input: OwnedInput) {
        let request = self.requests.add(Request { upcall, input: Some(input.clone()), job: None });
        self.actions.push_back(Action::Apply { request, input });
    }

    fn call_name_service(&mut self, upcall: Upcall) {
        let request = self.requests.add(Request { upcall: upcall.clone(), input: None, job: None });
        self.actions.push_back(Action::CallNameService { request, upcall });
    }

    /// Returns the job of this run that has a job id.
    fn job_with_id(&self, jobid: Text<'_>) -> Option<JobId> {
        self.jobs.iter().find(|job| jobid == *job.name.as_bytes()).map(|job| job.id)
    }

    /// The head's PMI server has carried out a request or has refused it. All nodes follow before the rank is answered.
    pub(super) fn backend_replied(&mut self, id: RequestId, result: Result<(), Refusal>) {
        let Some(Request { upcall, input: Some(input), .. }) = self.requests.take(id) else { return };
        let related = match input {
            OwnedInput::Connected { job, other, connected } => Some((job, other, connected)),
            _ => None,
        };
        if related.is_some() && result == Err(Refusal::NotConnected) && self.config.shares_names {
            // Jobs of other runs may connect the two.
            return self.call_name_service(upcall);
        }
        if result.is_ok() {
            if let Some((job, other, connected)) = related {
                self.jobs.relate(job, other, connected);
            }
            self.tell_applied(input);
        }
        self.reply(&upcall, result);
    }

    /// All nodes apply what the head's PMI server has applied.
    pub(super) fn tell_applied(&mut self, input: OwnedInput) {
        if !self.config.is_alone {
            self.send_all_applied(Order::Input(input));
        }
    }

    /// The host has answered.
    pub(super) fn upcall_complete(&mut self, id: RequestId, rc: i32, text: Vec<u8>) {
        if let Some(Request { upcall, .. }) = self.requests.take(id) {
            self.complete(&upcall, rc, text);
        }
    }

    fn reply(&mut self, upcall: &Upcall, result: Result<(), Refusal>) {
        let (rc, text) = match result {
            Ok(()) => (0, Vec::new()),
            Err(why) => (why.rc(), why.to_string().into_bytes()),
        };
        self.complete(upcall, rc, text);
    }

    fn complete(&mut self, upcall: &Upcall, rc: i32, text: Vec<u8>) {
        let input = OwnedInput::UpcallComplete { upcall: upcall.id, rc, text };
        self.send(upcall.node, Order::Input(input));
    }
}

pub(super) fn bytes(text: Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}
