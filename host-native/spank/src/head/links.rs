//! Connections of nodes.

use hydrant_overlay::{Candidate, Channel};
use hydrant_reactor::{Interest, accept_stream};

use super::{CONNECTION, Connection, Event, KEYS, STRANGERS_MAX, Star};
use crate::message::{ToHead, ToNode, decode, encode};
use crate::server::ServerError;
use crate::spawned::State;
use crate::uplink::HIGH_WATER;

impl Star {
    pub(super) fn order(&mut self, node: u32, order: &ToNode) {
        self.send(node, Channel::Control, &encode(order));
    }

    /// Sends a message to a node. Returns whether its queue is full. A lost node needs none.
    pub(super) fn send(&mut self, node: u32, channel: Channel, message: &[u8]) -> bool {
        let now = self.clock.now();
        let id = self.nodes.get(&node).and_then(|node| node.connection);
        let Some(Connection::Link(_, link)) = id.and_then(|id| self.connections.get_mut(&id)) else {
            return false;
        };
        // The loss of the link is reported when it is read.
        let _ = link.send(now, channel, message);
        link.queued() > HIGH_WATER
    }

    /// Writes to all links.
    pub(super) fn flush(&mut self) -> Result<(), ServerError> {
        for (&id, connection) in &mut self.connections {
            if let Connection::Link(_, link) = connection {
                let _ = link.flush();
                let interest = if link.is_blocked() { Interest::ReadWrite } else { Interest::Read };
                self.poller.modify(link.fd(), KEYS.key(CONNECTION, id), interest)?;
            }
        }
        Ok(())
    }

    pub(super) fn accept(&mut self) -> Result<(), ServerError> {
        // Without a descriptor the connection waits in the listener, and the next turn tries again.
        let Ok(fd) = accept_stream(&self.listener) else { return Ok(()) };
        let is_stranger = |id: &u32| !self.nodes.values().any(|node| node.connection == Some(*id));
        let strangers: Vec<u32> = self.connections.keys().copied().filter(is_stranger).collect();
        if strangers.len() >= self.servers.first().len() + self.spawned.nodes_max() + STRANGERS_MAX {
            self.connections.remove(&strangers[0]);
        }
        let Ok(candidate) = Candidate::new(fd) else { return Ok(()) };
        self.poller.add(candidate.fd(), KEYS.key(CONNECTION, self.next), Interest::Read)?;
        self.connections.insert(self.next, Connection::Candidate(candidate));
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Reads from a connection.
    pub(super) fn ready(&mut self, id: u32, events: &mut Vec<Event>) -> Result<(), ServerError> {
        let now = self.clock.now();
        match self.connections.remove(&id) {
            Some(Connection::Candidate(mut candidate)) => {
                // Strangers are closed without a word.
                let Ok(complete) = candidate.receive() else { return Ok(()) };
                let connection = if complete {
                    let Ok((node, link)) = candidate.answer(&self.ticket, now) else { return Ok(()) };
                    Connection::Link(node, link)
                } else {
                    Connection::Candidate(candidate)
                };
                self.connections.insert(id, connection);
            }
            Some(Connection::Link(node, mut link)) => {
                let mut messages = Vec::new();
                let received =
                    link.receive(now, &mut self.buffer, |channel, message| messages.push((channel, message)));
                let is_awaited = self.awaits(node);
                let is_new = is_awaited && !messages.is_empty();
                if is_new {
                    let (_, first) = messages.remove(0);
                    if !self.admit(node, id, &first) {
                        return Ok(());
                    }
                } else if self.nodes.get(&node).is_none_or(|node| node.connection != Some(id))
                    && (!is_awaited || received.is_err())
                {
                    return Ok(());
                }
                events.extend(
                    messages.into_iter().map(|(channel, bytes)| Event::Message(node, channel, bytes)),
                );
                match received {
                    Ok(_) => {
                        self.connections.insert(id, Connection::Link(node, link));
                        if is_new && self.is_to_end(node) {
                            self.order(node, &ToNode::End);
                        }
                    }
                    Err(error) => events.push(Event::Lost(node, error)),
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Whether a node of this number may connect.
    fn awaits(&self, number: u32) -> bool {
        match self.nodes.get(&number) {
            Some(node) => node.ready.is_none(),
            None => self.spawned.with_number(number).is_some(),
        }
    }

    /// Whether the tasks of a node that has connected are to end.
    fn is_to_end(&self, number: u32) -> bool {
        let step = self.spawned.with_number(number).and_then(|id| self.spawned.get(id));
        self.ended || step.is_some_and(|step| step.state == State::Refused)
    }

    /// Admits a node with its first message. Returns false if the message is no such message.
    fn admit(&mut self, number: u32, id: u32, first: &[u8]) -> bool {
        let Some(ToHead::Ready(ready)) = decode(first) else { return false };
        let node = self.nodes.entry(number).or_default();
        (node.connection, node.ready) = (Some(id), Some(ready));
        true
    }
}
