//! Network between nodes: links keep the order of their messages, with delay, jitter and bandwidth.

use std::collections::HashMap;

use hydrant_core::trace::Cause;

/// Message on a link.
#[derive(Clone, Debug)]
pub enum Message {
    /// From core to core.
    Core(Vec<u8>),
    /// To the head: the server of a node aborts this job.
    Ending(usize, Cause),
    /// To the head: a node is lost.
    Missing(u32),
    /// From the head to all nodes: this job ends.
    End(usize),
    /// To the head: so many ranks have ended.
    Ended(u32),
    /// From the head to all nodes: the job is deregistered, and this next one begins, if it exists.
    Next(usize),
}

impl Message {
    /// Returns the length on the wire in bytes. Messages between hosts are short.
    pub fn len(&self) -> u64 {
        match self {
            Message::Core(bytes) => bytes.len() as u64,
            _ => 16,
        }
    }

    /// No message is empty.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Timing of links, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// The shortest time from one end to the other.
    pub delay: u64,
    /// Maximum additional delay, random for each message.
    pub jitter: u64,
    /// Time for a thousand bytes.
    pub per_kilobyte: u64,
    /// Bytes under way above which a link is full. It accepts messages again at half of them.
    pub window: u64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    /// Time at which the sender can send the next byte.
    free: u64,
    /// Time of the last message's arrival.
    last: u64,
    under_way: u64,
    blocked: bool,
    messages: u64,
    bytes: u64,
}

/// All links.
#[derive(Debug)]
pub struct Net {
    speed: Speed,
    wires: HashMap<(u32, u32), Wire>,
}

/// Result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time of arrival.
    pub at: u64,
    /// The link accepts no further messages.
    pub blocked: bool,
}

impl Net {
    /// A network without traffic.
    pub fn new(speed: Speed) -> Net {
        Net { speed, wires: HashMap::new() }
    }

    /// Sends `len` bytes.
    pub fn send(&mut self, now: u64, from: u32, to: u32, len: u64, random: &mut fastrand::Rng) -> Sent {
        let Speed { delay, jitter, per_kilobyte, window } = self.speed;
        let wire = self.wires.entry((from, to)).or_default();
        wire.free = wire.free.max(now) + len * per_kilobyte / 1000;
        let at = (wire.free + delay + random.u64(0..=jitter)).max(wire.last + 1);
        wire.last = at;
        wire.under_way += len;
        wire.messages += 1;
        wire.bytes += len;
        let fresh = !wire.blocked && wire.under_way > window;
        wire.blocked |= fresh;
        Sent { at, blocked: fresh }
    }

    /// Handles the arrival of a message. Returns whether a blocked sender may send again.
    pub fn arrived(&mut self, from: u32, to: u32, len: u64) -> bool {
        let wire = self.wires.entry((from, to)).or_default();
        wire.under_way -= len;
        let freed = wire.blocked && wire.under_way <= self.speed.window / 2;
        wire.blocked &= !freed;
        freed
    }

    /// Messages and bytes that each node has sent and received.
    pub fn traffic(&self, nodes: u32) -> Vec<Traffic> {
        let mut all = vec![Traffic::default(); nodes as usize];
        for (&(from, to), wire) in &self.wires {
            all[from as usize].sent += wire.bytes;
            all[to as usize].received += wire.bytes;
            for node in [from, to] {
                all[node as usize].messages += wire.messages;
            }
        }
        all
    }

    /// Messages of all links.
    pub fn messages(&self) -> u64 {
        self.wires.values().map(|wire| wire.messages).sum()
    }

    /// Bytes of all links.
    pub fn bytes(&self) -> u64 {
        self.wires.values().map(|wire| wire.bytes).sum()
    }
}

/// Traffic of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages in both directions.
    pub messages: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}
