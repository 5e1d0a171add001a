//! Messages between servers, and inputs that the head gives them.

use hydrant_core::OwnedInput;
use hydrant_overlay::Channel;

use super::{Connection, ROOT, Star};
use crate::message::ToNode;
use crate::server::ServerError;
use crate::uplink::HIGH_WATER;

impl Star {
    /// Takes a message of a node's server to another one. An invalid one ends the step.
    pub(super) fn take_peer(&mut self, node: u32, bytes: &[u8]) -> Result<(), ServerError> {
        if node != ROOT {
            return self.pass_peer(node, ROOT, bytes);
        }
        match bytes.split_first_chunk() {
            Some((to, bytes)) if self.servers.late().contains(&u32::from_le_bytes(*to)) => {
                self.pass_peer(ROOT, u32::from_le_bytes(*to), bytes)
            }
            _ => {
                self.invalid(node);
                Ok(())
            }
        }
    }

    /// Passes a message on between servers that are neighbours: one of them is the root.
    pub(super) fn pass_peer(&mut self, from: u32, to: u32, bytes: &[u8]) -> Result<(), ServerError> {
        let is_full = match &mut self.host {
            Some(host) if to == ROOT => match host.peer(from, bytes) {
                Err(error) if error.fault().is_none() => return Err(error.into()),
                Err(_) => {
                    self.invalid(from);
                    false
                }
                Ok(()) => false,
            },
            None if to == ROOT && self.servers.has_root_in_srun() => {
                self.invalid(from);
                false
            }
            _ if to == ROOT => self.send(to, Channel::Peer, &[&from.to_le_bytes(), bytes].concat()),
            _ => self.send(to, Channel::Peer, bytes),
        };
        if is_full && self.nodes.get_mut(&to).is_some_and(|node| node.blocked.insert(from)) {
            self.tell_server(from, OwnedInput::PeerBlocked { node: to })?;
        }
        Ok(())
    }

    /// Lets servers send to nodes whose queues have drained.
    pub(super) fn unblock(&mut self) -> Result<(), ServerError> {
        let mut drained = Vec::new();
        for (&number, node) in self.nodes.iter_mut().filter(|(_, node)| !node.blocked.is_empty()) {
            let link = node.connection.and_then(|id| self.connections.get(&id));
            let queued = if let Some(Connection::Link(_, link)) = link { link.queued() } else { 0 };
            if queued <= HIGH_WATER / 2 {
                drained.extend(std::mem::take(&mut node.blocked).into_iter().map(|from| (from, number)));
            }
        }
        for (from, node) in drained {
            self.tell_server(from, OwnedInput::PeerWritable { node })?;
        }
        Ok(())
    }

    /// Gives an input to the server of one node.
    fn tell_server(&mut self, node: u32, input: OwnedInput) -> Result<(), ServerError> {
        match &mut self.host {
            Some(host) if node == ROOT => Ok(host.input(input.view())?),
            _ => {
                self.order(node, &ToNode::Input(input));
                Ok(())
            }
        }
    }

    /// Gives a change of membership to the servers of all members.
    pub(super) fn change_membership(&mut self, change: &OwnedInput) -> Result<(), ServerError> {
        if let Some(host) = &mut self.host {
            host.input(change.view())?;
        }
        for node in self.members() {
            self.order(node, &ToNode::Input(change.clone()));
        }
        Ok(())
    }
}
