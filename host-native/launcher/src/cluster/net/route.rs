//! What goes over the links: messages from any node to any other, and the links' own notes.

use serde::{Deserialize, Serialize};

use super::children::Stage;
use super::{Event, Failure, Links, Up};
use crate::cluster::link::{Channel, LinkError};

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum To {
    /// One node; 0 is the head.
    Node(u32),
    /// All nodes below the sender.
    Below,
}

/// A message on its way through the tree.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope<'a> {
    pub(super) to: To,
    pub(super) from: u32,
    #[serde(borrow)]
    pub(super) body: &'a [u8],
}

/// What neighbours tell each other of themselves; nothing at all is a sign of life.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Note {
    /// I shall say nothing until I say something again.
    Hushed,
    /// So many bytes of streams have gone on from here.
    Credit(u32),
    /// All nodes from here downwards have joined.
    Complete,
    /// A node from here downwards has failed.
    Failed(Failure),
    /// All is done: end.
    End,
}

fn encode(what: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(what).expect("writing to memory fails for no type of a message")
}

impl Links {
    /// Sends bytes to a neighbour: the parent or a child. Nothing happens where that one is gone.
    ///
    /// # Errors
    /// [`LinkError::TooLong`]; anything else is an event.
    pub(crate) fn send(
        &mut self,
        now: u64,
        node: u32,
        channel: Channel,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        if bytes.len() > crate::cluster::link::MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        let sent = match &mut self.up {
            Up::Linked(parent, line) if *parent == node => line.send(now, channel, bytes),
            Up::Dialing(dial) | Up::Proving(dial, _) if dial.parent() == node => {
                self.held.push((channel, bytes.to_vec()));
                Ok(())
            }
            _ => match self
                .children
                .iter_mut()
                .find(|child| child.node() == node)
                .map(|child| &mut child.stage)
            {
                Some(Stage::Linked(line)) => line.send(now, channel, bytes),
                Some(Stage::Awaited { queue, .. }) => {
                    queue.push((channel, bytes.to_vec()));
                    Ok(())
                }
                Some(Stage::Gone) | None => Ok(()),
            },
        };
        if let Err(why) = sent {
            self.lose(now, node, why);
        }
        Ok(())
    }

    /// Sends a record to any node, or to all below this one, by way of the nodes between. What is sent to a node from
    /// one other arrives in that order, on both channels together.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] and [`LinkError::Malformed`], when there is no such node or `channel` is neither
    /// `Control` nor `Stream`.
    pub(crate) fn route(&mut self, now: u64, to: To, channel: Channel, body: &[u8]) -> Result<(), LinkError> {
        if !matches!(channel, Channel::Control | Channel::Stream) {
            return Err(LinkError::Malformed);
        }
        let envelope = encode(&Envelope { to, from: self.me, body });
        match to {
            To::Node(node) if node == self.me => {
                self.events.push_back(Event::Message {
                    via: self.me,
                    from: self.me,
                    channel,
                    body: body.to_vec(),
                });
                Ok(())
            }
            To::Node(node) => {
                let next = self.tree.towards(self.me, node).ok_or(LinkError::Malformed)?;
                self.send(now, next, channel, &envelope)
            }
            To::Below => self.send_below(now, channel, &envelope),
        }
    }

    fn send_below(&mut self, now: u64, channel: Channel, envelope: &[u8]) -> Result<(), LinkError> {
        let nodes: Vec<u32> = self.children.iter().map(|child| child.node()).collect();
        nodes.into_iter().try_for_each(|node| self.send(now, node, channel, envelope))
    }

    pub(super) fn note(&mut self, now: u64, node: u32, note: &Note) {
        // A note is short, and what else may be wrong becomes an event.
        let _ = self.send(now, node, Channel::Link, &encode(note));
    }

    pub(super) fn note_up(&mut self, now: u64, note: &Note) {
        if let Some(parent) = self.parent() {
            self.note(now, parent, note);
        }
    }

    /// Takes a message that has come from a neighbour.
    ///
    /// # Errors
    /// It is none that the neighbour may send.
    pub(super) fn take(
        &mut self,
        now: u64,
        via: u32,
        channel: Channel,
        bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        match channel {
            Channel::Link if bytes.is_empty() => Ok(()),
            Channel::Link => {
                let note = postcard::from_bytes(&bytes).map_err(|_| LinkError::Malformed)?;
                self.take_note(now, via, note)
            }
            Channel::Peer => {
                self.events.push_back(Event::Message { via, from: via, channel, body: bytes });
                Ok(())
            }
            Channel::Control | Channel::Stream => self.take_envelope(now, via, channel, &bytes),
        }
    }

    fn take_envelope(&mut self, now: u64, via: u32, channel: Channel, bytes: &[u8]) -> Result<(), LinkError> {
        let Envelope { to, from, body } = postcard::from_bytes(bytes).map_err(|_| LinkError::Malformed)?;
        let parent = self.parent() == Some(via);
        // A node speaks for itself and for what is below it, and for nobody else; a child does not speak for all.
        let honest = match parent {
            true => from < self.tree.nodes() && !self.tree.subtree(self.me).contains(&from),
            false => self.tree.subtree(via).contains(&from),
        };
        let next = match to {
            To::Node(node) => self.tree.towards(self.me, node),
            To::Below => None,
        };
        let known = match to {
            To::Node(node) => node < self.tree.nodes() && next != Some(via),
            To::Below => parent,
        };
        if !honest || !known {
            return Err(LinkError::Malformed);
        }
        // In bytes as the other end has counted them.
        let len = bytes.len() as u32;
        match (to, next) {
            (To::Node(_), Some(next)) => {
                self.send(now, next, channel, bytes)?;
                if channel == Channel::Stream {
                    self.passed_on(via, next, len);
                }
            }
            _ => {
                if to == To::Below {
                    self.send_below(now, channel, bytes)?;
                }
                if channel == Channel::Stream {
                    // The body is whoever takes the event's to give back.
                    self.owe(via, len - body.len() as u32);
                }
                self.events.push_back(Event::Message { via, from, channel, body: body.to_vec() });
            }
        }
        Ok(())
    }

    /// A piece of a stream has gone on from `via` to `next`: `via` is told so when `next` has room for more.
    fn passed_on(&mut self, via: u32, next: u32, len: u32) {
        match self.line(next) {
            Some(line) if !line.has_room() => line.wait(via, len),
            _ => self.owe(via, len),
        }
    }

    pub(super) fn owe(&mut self, node: u32, bytes: u32) {
        if let Some(line) = self.line(node) {
            line.owe(bytes);
        }
    }

    fn take_note(&mut self, now: u64, via: u32, note: Note) -> Result<(), LinkError> {
        let from_parent = self.parent() == Some(via);
        match note {
            Note::Hushed => {
                if let Some(line) = self.line(via) {
                    line.hush();
                }
            }
            Note::Credit(bytes) => {
                if let Some(waiting) = self.line(via).and_then(|line| line.grant(bytes)) {
                    for (node, bytes) in waiting {
                        self.owe(node, bytes);
                    }
                    self.events.push_back(Event::Room { neighbour: via });
                }
            }
            Note::Complete if !from_parent => {
                let child = self.children.iter_mut().find(|child| child.node() == via);
                if let Some(child) = child {
                    child.complete = true;
                }
                self.check_complete(now);
            }
            Note::Failed(failure) if !from_parent && self.tree.subtree(via).contains(&failure.node) => {
                self.fail(now, failure);
            }
            Note::End if from_parent => self.events.push_back(Event::End),
            Note::Complete | Note::Failed(_) | Note::End => return Err(LinkError::Malformed),
        }
        Ok(())
    }
}
