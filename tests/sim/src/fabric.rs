//! Daemons and links between them, under the assumptions of the measurements.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::net::{Net, Speed, Traffic};

/// A network as clusters have it: 5 microseconds, and 100 Gbit/s.
pub(crate) const SPEED: Speed = Speed { delay: 5_000, jitter: 0, per_kilobyte: 80, window: u64::MAX };
/// Cost of a message and of each byte at a daemon, in nanoseconds: system calls, encryption and the log.
pub(crate) const PER_MESSAGE: u64 = 4_000;
pub(crate) const PER_BYTE: u64 = 2;

/// Daemons that pay for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// The receiver. Sending takes the time of the link only.
    Receiver,
    /// The sender and the receiver.
    Both,
}

impl Charge {
    /// Both ways to charge.
    pub const ALL: [Charge; 2] = [Charge::Receiver, Charge::Both];

    /// Time of the sender for a message.
    pub(crate) fn sending(self, bytes: u64) -> u64 {
        match self {
            Charge::Receiver => 0,
            Charge::Both => handling(bytes),
        }
    }
}

/// Time of the receiver for a message.
pub(crate) fn handling(bytes: u64) -> u64 {
    PER_MESSAGE + PER_BYTE * bytes
}

/// Message on its way.
#[derive(Debug)]
pub(crate) struct Message<T> {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Time that the receiver needs for it, and the earliest time at which it is done.
    work: u64,
    done: u64,
    pub(crate) body: T,
}

/// Daemons, each of which handles one message at a time, and the messages between them.
#[derive(Debug)]
pub(crate) struct Fabric<T> {
    net: Net,
    charge: Charge,
    random: fastrand::Rng,
    /// Time until which each daemon is busy.
    busy: Vec<u64>,
    /// Time of arrival, order of sending, and place in `under_way`.
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    under_way: Vec<Option<Message<T>>>,
    free: Vec<usize>,
    count: u64,
}

impl<T> Fabric<T> {
    /// So many daemons without messages.
    pub(crate) fn new(daemons: u32, charge: Charge) -> Fabric<T> {
        Fabric {
            net: Net::new(SPEED),
            charge,
            random: fastrand::Rng::with_seed(0),
            busy: vec![0; daemons as usize],
            queue: BinaryHeap::new(),
            under_way: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }

    /// Time at which a daemon can act.
    pub(crate) fn now(&self, daemon: u32) -> u64 {
        self.busy[daemon as usize]
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, from: u32, to: u32, bytes: u64, body: T) {
        self.send_all(from, to, [bytes], body);
    }

    /// Sends messages of these lengths, which the receiver handles at the arrival of the last one. It has no other
    /// neighbour, so no message comes between them.
    pub(crate) fn send_all(&mut self, from: u32, to: u32, lens: impl IntoIterator<Item = u64>, body: T) {
        let (mut at, mut work, mut done) = (0, 0, 0);
        for bytes in lens {
            let busy = &mut self.busy[from as usize];
            *busy += self.charge.sending(bytes);
            at = self.net.send(*busy, from, to, bytes, &mut self.random).at;
            work += handling(bytes);
            done = at.max(done) + handling(bytes);
        }
        let message = Some(Message { from, to, work, done, body });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.under_way.push(None);
                self.under_way.len() - 1
            }
        };
        self.under_way[place] = message;
        self.queue.push(Reverse((at, self.count, place)));
        self.count += 1;
    }

    /// Hands the next message to its receiver, which is then busy with it until [`Fabric::now`].
    pub(crate) fn receive(&mut self) -> Option<Message<T>> {
        let Reverse((_, _, place)) = self.queue.pop()?;
        let message = self.under_way[place].take().expect("each message arrives once");
        self.free.push(place);
        let busy = &mut self.busy[message.to as usize];
        *busy = (*busy + message.work).max(message.done);
        Some(message)
    }

    /// Messages and bytes of all links.
    pub(crate) fn total(&self) -> (u64, u64) {
        (self.net.messages(), self.net.bytes())
    }

    /// Messages and bytes of each daemon.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        self.net.traffic(self.busy.len() as u32)
    }
}
