//! Routing of messages between any two nodes, and the messages of the links themselves.

use serde::{Deserialize, Serialize, Serializer};

use super::child::ChildState;
use super::{Event, Overlay, ParentLink};
use crate::MESSAGE_MAX;
use crate::error::{DaemonFailure, LinkError};
use crate::link::Channel;

/// Destination of a routed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// One node. Node 0 is the head.
    Node(u32),
    /// All nodes below the sender.
    Descendants,
}

/// A routed message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope<'a> {
    pub(super) to: Destination,
    pub(super) from: u32,
    #[serde(borrow, serialize_with = "in_one_piece")]
    pub(super) body: &'a [u8],
}

/// Serializes bytes at once, which gives the same record as one by one.
fn in_one_piece<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Message of a link itself. An empty message is a heartbeat.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LinkMessage {
    /// The sender pauses all messages, heartbeats included.
    Paused,
    /// The sender has passed on that many bytes of streams.
    Credit(u32),
    /// All nodes of the sender's subtree have joined.
    Complete,
    /// A node of the sender's subtree has failed.
    Failed(DaemonFailure),
    /// The receiver and its subtree shall end.
    Shutdown,
    /// The start of a daemon of the sender's subtree is tried again.
    Retrying(DaemonFailure),
}

pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("postcard encodes every field of a message")
}

impl Overlay {
    /// Sends a message to a neighbour. A message to a neighbour that has not joined yet is queued. A message to a
    /// neighbour that is gone or [leaves](Overlay::dismiss) is dropped.
    ///
    /// # Errors
    /// [`LinkError::TooLong`]. All other errors are reported as events.
    pub fn send(&mut self, now: u64, node: u32, channel: Channel, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        let leaves = self.child(node).is_some_and(|child| child.dismissed.is_some());
        let sent = match &mut self.parent_link {
            ParentLink::Established(parent, neighbour) if *parent == node => {
                neighbour.send(now, channel, bytes)
            }
            ParentLink::Connecting(connector) | ParentLink::Authenticating(connector, _)
                if connector.parent() == node =>
            {
                self.parent_queue.push((channel, bytes.to_vec()));
                Ok(())
            }
            _ => match self.child(node).map(|child| &mut child.state) {
                Some(ChildState::Joined(neighbour)) if !leaves => neighbour.send(now, channel, bytes),
                Some(ChildState::Starting { queue, .. }) => {
                    queue.push((channel, bytes.to_vec()));
                    Ok(())
                }
                Some(ChildState::Joined(_) | ChildState::Gone) | None => Ok(()),
            },
        };
        if let Err(error) = sent {
            self.disconnect(now, node, error);
        }
        Ok(())
    }

    /// Sends a message to any node, or to all nodes below this one, along the tree. Messages from one node to
    /// another arrive in the order of sending, over all channels together.
    ///
    /// # Errors
    /// [`LinkError::TooLong`]. [`LinkError::Malformed`] if the node does not exist, or if `channel` is
    /// [`Channel::Link`] or [`Channel::Peer`].
    pub fn route(
        &mut self,
        now: u64,
        to: Destination,
        channel: Channel,
        body: &[u8],
    ) -> Result<(), LinkError> {
        if !matches!(channel, Channel::Control | Channel::Stream | Channel::Routed) {
            return Err(LinkError::Malformed);
        }
        let envelope = encode(&Envelope { to, from: self.node, body });
        match to {
            Destination::Node(node) if node == self.node => {
                self.events.push_back(Event::Message {
                    via: self.node,
                    from: self.node,
                    channel,
                    body: body.to_vec(),
                });
                Ok(())
            }
            Destination::Node(node) => {
                let next = self.towards(node).ok_or(LinkError::Malformed)?;
                self.send(now, next, channel, &envelope)
            }
            Destination::Descendants => self.send_to_children(now, channel, &envelope),
        }
    }

    fn send_to_children(&mut self, now: u64, channel: Channel, envelope: &[u8]) -> Result<(), LinkError> {
        let included = self.children.iter().filter(|child| child.is_included);
        let nodes: Vec<u32> = included.map(|child| child.node()).collect();
        nodes.into_iter().try_for_each(|node| self.send(now, node, channel, envelope))
    }

    pub(super) fn send_link_message(&mut self, now: u64, node: u32, message: &LinkMessage) {
        // These messages are short. Other errors are reported as events.
        let _ = self.send(now, node, Channel::Link, &encode(message));
    }

    pub(super) fn send_to_parent(&mut self, now: u64, message: &LinkMessage) {
        if let Some(parent) = self.parent() {
            self.send_link_message(now, parent, message);
        }
    }

    /// Handles a message from a neighbour.
    ///
    /// # Errors
    /// The message is invalid, or the neighbour may not send it.
    pub(super) fn handle_message(
        &mut self,
        now: u64,
        via: u32,
        channel: Channel,
        bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        match channel {
            Channel::Link if bytes.is_empty() => Ok(()),
            Channel::Link => {
                let message = postcard::from_bytes(&bytes).map_err(|_| LinkError::Malformed)?;
                self.handle_link_message(now, via, message)
            }
            Channel::Peer => {
                self.events.push_back(Event::Message { via, from: via, channel, body: bytes });
                Ok(())
            }
            Channel::Control | Channel::Stream | Channel::Routed => {
                self.handle_envelope(now, via, channel, &bytes)
            }
        }
    }

    fn handle_envelope(
        &mut self,
        now: u64,
        via: u32,
        channel: Channel,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        let Envelope { to, from, body } = postcard::from_bytes(bytes).map_err(|_| LinkError::Malformed)?;
        let is_from_parent = self.parent() == Some(via);
        // A neighbour may send in the name of the nodes on its side of the link only. Only a parent may send to all
        // descendants.
        let is_valid_sender = match is_from_parent {
            true => from < self.tree.nodes() && !self.place.subtree.contains(&from),
            false => self.is_below(via, from),
        };
        let next = match to {
            Destination::Node(node) => self.towards(node),
            Destination::Descendants => None,
        };
        let is_valid_destination = match to {
            Destination::Node(node) => node < self.tree.nodes() && next != Some(via),
            Destination::Descendants => is_from_parent,
        };
        if !is_valid_sender || !is_valid_destination {
            return Err(LinkError::Malformed);
        }
        // Credit counts the bytes that the neighbour has sent, with the envelope.
        let len = bytes.len() as u32;
        match (to, next) {
            (Destination::Node(_), Some(next)) => {
                self.send(now, next, channel, bytes)?;
                if channel == Channel::Stream {
                    self.credit_forwarded(via, next, len);
                }
            }
            _ => {
                if to == Destination::Descendants {
                    self.send_to_children(now, channel, bytes)?;
                }
                if channel == Channel::Stream {
                    // The receiver of the event returns the credit of the body.
                    self.return_credit(via, len - body.len() as u32);
                }
                self.events.push_back(Event::Message { via, from, channel, body: body.to_vec() });
            }
        }
        Ok(())
    }

    /// Returns credit to `via` for bytes that were forwarded to `next`, as soon as there is credit for `next`.
    fn credit_forwarded(&mut self, via: u32, next: u32, len: u32) {
        match self.neighbour(next) {
            Some(neighbour) if !neighbour.has_credit() => neighbour.hold_credit(via, len),
            _ => self.return_credit(via, len),
        }
    }

    pub(super) fn return_credit(&mut self, node: u32, bytes: u32) {
        if let Some(neighbour) = self.neighbour(node) {
            neighbour.return_credit(bytes);
        }
    }

    fn handle_link_message(&mut self, now: u64, via: u32, message: LinkMessage) -> Result<(), LinkError> {
        let is_from_parent = self.parent() == Some(via);
        match message {
            LinkMessage::Paused => {
                if let Some(neighbour) = self.neighbour(via) {
                    neighbour.set_paused();
                }
            }
            LinkMessage::Credit(bytes) => {
                let held = self.neighbour(via).and_then(|neighbour| neighbour.receive_credit(bytes));
                if let Some(held) = held {
                    for (node, bytes) in held {
                        self.return_credit(node, bytes);
                    }
                    self.events.push_back(Event::CreditAvailable { neighbour: via });
                }
            }
            LinkMessage::Complete if !is_from_parent => {
                if let Some(child) = self.child(via) {
                    child.complete = true;
                }
                self.check_complete(now);
            }
            LinkMessage::Failed(failure) if !is_from_parent && self.is_below(via, failure.node) => {
                self.report_failure(now, failure);
            }
            LinkMessage::Retrying(failure) if !is_from_parent && self.is_below(via, failure.node) => {
                self.report_retry(now, failure);
            }
            LinkMessage::Shutdown if is_from_parent => self.events.push_back(Event::Shutdown),
            LinkMessage::Complete
            | LinkMessage::Failed(_)
            | LinkMessage::Retrying(_)
            | LinkMessage::Shutdown => {
                return Err(LinkError::Malformed);
            }
        }
        Ok(())
    }
}
