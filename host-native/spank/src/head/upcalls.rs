//! Requests of ranks that concern all servers, and names.

use hydrant_core::OwnedInput;
use hydrant_core::wire::{Command, Text};
use hydrant_host::{UpcallId, decode_upcall};
use hydrant_names::{Answer, Request};

use super::Star;
use crate::message::{Call, ToNode};
use crate::server::ServerError;
use crate::servers::REQUESTS_MAX;

impl Star {
    /// A rank asks for what concerns all servers, or for a name.
    pub(super) fn upcall(&mut self, node: u32, call: Call) -> Result<(), ServerError> {
        let Call { upcall, job, rank, protocol, request } = call;
        let related = |jobid: Text<'_>, connected| {
            let named = |order: &ToNode| match order {
                ToNode::Register(known) => (jobid == *known.name.as_bytes()).then_some(known.job),
                _ => None,
            };
            let other = self.history.iter().find_map(named)?;
            Some(OwnedInput::Connected { job, other, connected })
        };
        let input = match decode_upcall(protocol, &request) {
            Some(command) if command.op().changes_psets() => {
                Some(OwnedInput::PsetRequest { job, rank, request: request.clone() })
            }
            Some(Command::Connect { jobid }) => related(jobid, true),
            Some(Command::Disconnect { jobid }) => related(jobid, false),
            _ => None,
        };
        if let Some(input) = input {
            return self.apply(node, upcall, input);
        }
        let number = self.next_name;
        self.next_name = number.wrapping_add(1);
        self.naming.insert(number, (node, upcall));
        let upcall = Some(UpcallId(number));
        let request = Request { upcall, job, rank, protocol, body: request, wait: 0 };
        Ok(self.names.ask(request, self.clock.now())?)
    }

    /// Has all servers apply a request. That of the rank's node answers it.
    fn apply(&mut self, node: u32, upcall: UpcallId, input: OwnedInput) -> Result<(), ServerError> {
        if let Some(host) = &mut self.host
            && let Err(error) = host.input(input.view())
            && error.fault().is_none()
        {
            return Err(error.into());
        }
        let order = ToNode::Input(input.clone());
        for member in self.members().into_iter().filter(|member| *member != node) {
            self.order(member, &order);
        }
        self.order(node, &ToNode::Asked { upcall, input });
        self.is_cut |=
            self.history.iter().filter(|order| matches!(order, ToNode::Input(_))).count() >= REQUESTS_MAX;
        if !self.is_cut {
            self.history.push(order);
        }
        Ok(())
    }

    /// Passes on answers about names.
    pub(super) fn pass_names(&mut self) {
        while let Some(Answer { upcall, rc, text }) = self.names.answer() {
            if let Some((node, upcall)) = self.naming.remove(&upcall.0) {
                self.order(node, &ToNode::Input(OwnedInput::UpcallComplete { upcall, rc, text }));
            }
        }
    }
}
