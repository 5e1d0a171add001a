//! Requests of ranks that concern all servers, and names.

use hydrant_control::protocol::shared_request;
use hydrant_core::OwnedInput;
use hydrant_core::wire::Text;
use hydrant_host::UpcallId;
use hydrant_names::{Answer, Request};

use super::Star;
use crate::message::{Call, ToNode};
use crate::server::ServerError;

impl Star {
    /// A rank asks for what concerns all servers, or for a name.
    pub(super) fn upcall(&mut self, node: u32, call: Call) -> Result<(), ServerError> {
        let Call { upcall, job, rank, protocol, request } = call;
        let with_id = |jobid: Text<'_>| {
            self.registered().find(|known| jobid == *known.name.as_bytes()).map(|known| known.job)
        };
        // The name service refuses what nobody can read.
        let input = shared_request((job, rank), (protocol, &request), with_id).unwrap_or_default();
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
        self.history.push_input(&input);
        self.order(node, &ToNode::Asked { upcall, input });
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
