//! Messages between the server of a node and those of its neighbours on other boards.

use hydrant_core::Fault;
use hydrant_core::manage::OpenNode;
use hydrant_core::peer::Tree;
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::server::Input;
use hydrant_core::server::link::{Arrived, link_record_max};
use hydrant_core::server::remote::{NodeReport, NodeRequest};

use super::Serve;
use crate::board::{Board, Sizes};
use crate::links::Bad;

impl<B: Board> Serve<'_, B> {
    /// Carries out a request about links.
    pub(crate) fn arrange_links(&mut self, net: &mut B::Net, request: &NodeRequest<'_>) -> Result<(), Fault> {
        let links = self.links.as_mut().ok_or(Fault::BadNode)?;
        match *request {
            NodeRequest::Link { node, addr } => {
                if let Err(why) = links.connect(net, node, addr) {
                    self.report(net, &NodeReport::Unlinked { node, why });
                }
            }
            NodeRequest::Tree { linked, silence } => {
                let OpenNode { node, nodes, radix, .. } = links.unformed().ok_or(Fault::BadNode)?;
                let radix = if linked { radix | ROOT_ONE } else { radix };
                self.try_handle(net, Input::Node { node, nodes, radix })?;
                if let Some(links) = &mut self.links {
                    links.form(net, (node, Tree::new(nodes, radix)), linked, silence);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes on with links that come up, handles messages, and reports links that are lost.
    // As a part of the caller, it would take stack from every input.
    #[inline(never)]
    pub(crate) fn run_links(&mut self, net: &mut B::Net) {
        for at in 0..B::BOARD_LINKS {
            let Some(links) = &mut self.links else { return };
            let mut passed = links.open(net, at);
            if passed.is_ok() {
                // Handling a message needs all of the server, with its other links.
                let inbox = links.lend(at);
                passed = self.pass_messages(net, at, inbox);
                if let Some(links) = &mut self.links {
                    links.get_back(at, inbox);
                }
            }
            let has_jobs = !self.jobs.is_empty();
            let report = self.links.as_mut().and_then(|links| links.settle(net, at, passed, has_jobs));
            if let Some(report) = report {
                self.report(net, &report);
            }
        }
    }

    /// Handles the messages of a link, while there is room for their outputs.
    fn pass_messages(&mut self, net: &mut B::Net, at: usize, inbox: &mut [u8]) -> Result<(), Bad> {
        let limits = *self.server().limits();
        let unblocked = self.links.as_mut().and_then(|links| links.unblock(net, at, &limits));
        if let Some(node) = unblocked {
            self.try_handle(net, Input::PeerWritable { node })?;
        }
        loop {
            let Some(links) = &mut self.links else { return Ok(()) };
            let Some(received) = links.receive(net, at, inbox)? else { return Ok(()) };
            let (mut taken, mut is_held) = (0, true);
            while self.is_free(net)
                && let Some(links) = &mut self.links
                && let Some(node) = links.node(at)
            {
                match links.next_arrival(at, &inbox[taken..received.len], link_record_max(&limits))? {
                    Arrived::Part => {
                        is_held = false;
                        break;
                    }
                    Arrived::Greeting(len) => {
                        taken += len;
                        links.greeted(at);
                        self.report(net, &NodeReport::Linked { node });
                    }
                    Arrived::Message(bytes, len) => {
                        taken += len;
                        self.try_handle(net, Input::Peer { node, bytes })?;
                    }
                }
            }
            self.links.iter_mut().for_each(|links| links.consume(at, inbox, taken));
            match received {
                _ if is_held => return Ok(()),
                received if received.are_new => {}
                received if received.are_last => return Err(Bad::Lost("it closed the connection")),
                _ => return Ok(()),
            }
        }
    }
}
