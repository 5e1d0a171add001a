//! Link between the PMI servers of two nodes on different boards: its records, and when their messages may be handled.
//!
//! A connection carries them after [`Request::Link`](crate::manage::Request::Link), framed as
//! [records of a node](crate::server::remote). The node that was asked, the parent, sends a record without bytes first. It
//! shows the child that the parent uses the link. All others are messages.
//!
//! Orders of the head reach a node by its host, and may be behind messages of neighbours. Each message therefore names the last
//! order that its sender had begun, and waits until the receiver has got it ([`Orders`]). A side that holds a message reads no
//! more of its link, so what waits is bounded by the buffers of the connection.

use serde::{Deserialize, Serialize};

use super::remote::next_node_record;
use crate::limits::Limits;
use crate::manage::{BadRecord, decode};

/// Bytes of a record beside its message.
const HEAD_MAX: usize = 16;

/// Returns the maximum length of a record in bytes between servers with these limits, without its prefix.
pub const fn link_record_max(limits: &Limits) -> usize {
    HEAD_MAX + limits.output_room()
}

/// Message between the servers of two nodes that are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord<'a> {
    /// Number of the last [order](super::remote::NodeRequest::Order) that the sender had begun.
    pub orders: u64,
    /// The message, as in [`Output::Peer`](super::Output::Peer).
    pub bytes: &'a [u8],
}

impl LinkRecord<'_> {
    /// First record of the parent.
    pub const GREETING: LinkRecord<'static> = LinkRecord { orders: 0, bytes: &[] };
}

/// Orders of the head that a node's server has got. They order what comes by the host and what comes by links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    begun: u64,
    done: u64,
}

impl Orders {
    /// No order yet.
    pub const NONE: Orders = Orders { begun: 0, done: 0 };

    /// The host begins order `number`, or has ended it.
    pub fn note(&mut self, number: u64, is_done: bool) {
        match is_done {
            false => self.begun = number,
            true => (self.begun, self.done) = (self.begun.max(number), number),
        }
    }

    /// Returns the record of a message that is sent now.
    pub fn record<'a>(&self, bytes: &'a [u8]) -> LinkRecord<'a> {
        LinkRecord { orders: self.begun, bytes }
    }
}

/// What the received bytes of a link begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'b> {
    /// An incomplete record.
    Part,
    /// A message that waits for orders. It stays where it is, and no more bytes are received.
    Held,
    /// The parent's first record, of this length.
    Greeting(usize),
    /// A message, and the length of its record.
    Message(&'b [u8], usize),
}

/// State of a link's receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The parent has not greeted.
    Awaited,
    /// The node is in no tree yet, so messages wait.
    Unformed,
    /// Messages wait for these orders only.
    Formed(Orders),
}

/// Looks at the received bytes of a link, whose records have at most `max` bytes.
///
/// # Errors
/// The bytes are no record of a link.
pub fn next_arrival(bytes: &[u8], max: usize, stage: Stage) -> Result<Arrived<'_>, BadRecord> {
    let Some((record, len)) = next_node_record(bytes, max)? else { return Ok(Arrived::Part) };
    let record: LinkRecord<'_> = decode(record)?;
    Ok(match stage {
        Stage::Awaited if record == LinkRecord::GREETING => Arrived::Greeting(len),
        Stage::Awaited => return Err(BadRecord::Malformed),
        Stage::Formed(orders) if record.orders <= orders.done => Arrived::Message(record.bytes, len),
        Stage::Formed(_) | Stage::Unformed => Arrived::Held,
    })
}

#[cfg(test)]
mod tests {
    use super::super::remote::{NODE_PREFIX, encode_node_record};
    use super::*;

    #[test]
    fn a_message_waits_for_the_tree_and_for_the_orders_of_its_sender() {
        let mut sender = Orders::NONE;
        sender.note(4, true);
        sender.note(5, false);
        let mut buf = [0; 64];
        let said = encode_node_record(&sender.record(b"arrival"), &mut buf).expect("it fits");
        let next = |stage| next_arrival(said, 64, stage);
        assert_eq!(next_arrival(&said[..9], 64, Stage::Unformed), Ok(Arrived::Part));
        assert_eq!(next(Stage::Unformed), Ok(Arrived::Held));
        let mut orders = Orders::NONE;
        for (number, is_done) in [(4, true), (5, false)] {
            orders.note(number, is_done);
            assert_eq!(next(Stage::Formed(orders)), Ok(Arrived::Held));
        }
        orders.note(5, true);
        assert_eq!(next(Stage::Formed(orders)), Ok(Arrived::Message(b"arrival", said.len())));
        assert_eq!(next(Stage::Awaited), Err(BadRecord::Malformed));
        assert_eq!(next_arrival(said, 4, Stage::Unformed), Err(BadRecord::TooLong));
    }

    #[test]
    fn a_parent_greets_before_its_messages() {
        let mut buf = [0; 64];
        let said = encode_node_record(&LinkRecord::GREETING, &mut buf).expect("it fits");
        assert_eq!(next_arrival(said, 64, Stage::Awaited), Ok(Arrived::Greeting(said.len())));
        assert_eq!(next_arrival(&[1, 0, 0, 0, 0xff], 64, Stage::Awaited), Err(BadRecord::Malformed));
    }

    #[test]
    fn the_longest_message_fits_into_the_longest_record() {
        let limits = Limits { ranks: 64, kvs_bytes: 1 << 20, links: 3, ..Limits::NONE };
        let message = std::vec![0; limits.output_room()];
        let record = LinkRecord { orders: u64::MAX, bytes: &message };
        let mut buf = std::vec![0; NODE_PREFIX + link_record_max(&limits)];
        assert!(encode_node_record(&record, &mut buf).is_ok());
    }
}
