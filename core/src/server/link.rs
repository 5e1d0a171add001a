//! Link between the PMI servers of two nodes on different boards: its records.
//!
//! A connection carries them after [`Request::Link`](crate::manage::Request::Link), framed as
//! [records of a node](crate::server::remote). Each is a message, as in [`Output::Peer`](super::Output::Peer). The node that was
//! asked, the parent, sends [`GREETING`] first. It shows the child that the parent uses the link.
//!
//! Messages are about jobs. Hosts start no rank before all nodes have registered its job, so no message comes before its job.

use super::remote::next_node_record;
use crate::limits::Limits;
use crate::manage::{BadRecord, decode};

/// Bytes of a record beside its message: the message's length.
const HEAD_MAX: usize = 5;

/// First record of the parent. No message is empty.
pub const GREETING: &[u8] = &[];

/// Returns the maximum length of a record in bytes between servers with these limits, without its prefix.
pub const fn link_record_max(limits: &Limits) -> usize {
    HEAD_MAX + limits.output_room()
}

/// What the received bytes of a link begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'b> {
    /// An incomplete record.
    Part,
    /// The parent's first record, of this length.
    Greeting(usize),
    /// A message, and the length of its record.
    Message(&'b [u8], usize),
}

/// Looks at the received bytes of a link, whose records have at most `max` bytes. `is_awaited` says that the parent has not
/// greeted.
///
/// # Errors
/// The bytes are no record of a link.
pub fn next_arrival(bytes: &[u8], max: usize, is_awaited: bool) -> Result<Arrived<'_>, BadRecord> {
    let Some((record, len)) = next_node_record(bytes, max)? else { return Ok(Arrived::Part) };
    let message: &[u8] = decode(record)?;
    match is_awaited {
        true if message == GREETING => Ok(Arrived::Greeting(len)),
        true => Err(BadRecord::Malformed),
        false => Ok(Arrived::Message(message, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::remote::{NODE_PREFIX, encode_node_record};
    use super::*;

    #[test]
    fn a_parent_greets_before_its_messages() {
        let mut buf = [0; 64];
        let said = encode_node_record(&GREETING, &mut buf).expect("it fits");
        assert_eq!(next_arrival(said, 64, true), Ok(Arrived::Greeting(said.len())));
        let said = encode_node_record(&&b"arrival"[..], &mut buf).expect("it fits");
        assert_eq!(next_arrival(said, 64, true), Err(BadRecord::Malformed));
        assert_eq!(next_arrival(said, 64, false), Ok(Arrived::Message(b"arrival", said.len())));
        assert_eq!(next_arrival(&said[..9], 64, false), Ok(Arrived::Part));
        assert_eq!(next_arrival(said, 4, false), Err(BadRecord::TooLong));
        assert_eq!(next_arrival(&[1, 0, 0, 0, 0xff], 64, false), Err(BadRecord::Malformed));
    }

    #[test]
    fn the_longest_message_fits_into_the_longest_record() {
        let limits = Limits { ranks: 64, kvs_bytes: 1 << 20, links: 3, ..Limits::NONE };
        let message = std::vec![0; limits.output_room()];
        let mut buf = std::vec![0; NODE_PREFIX + link_record_max(&limits)];
        assert!(encode_node_record(&&message[..], &mut buf).is_ok());
    }
}
