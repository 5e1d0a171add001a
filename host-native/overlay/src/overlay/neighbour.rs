//! Link to a neighbour with heartbeats and flow control.

use hydrant_reactor::{Error, Interest, Key, Poller, Sent};
use rustix::io::Errno;

use crate::error::LinkError;
use crate::link::{Channel, Link};

/// Flow control window: number of bytes of streams that a node may have sent to a neighbour without credit for them.
pub(super) const WINDOW: u32 = 1 << 20;
/// Credit is returned in portions of at least this many bytes.
const CREDIT_MIN: u32 = WINDOW / 4;
/// Number of bytes of streams that a node may send beyond its credit: it has read them before its credit was used up.
pub const BEYOND_CREDIT_MAX: u32 = 1 << 20;

/// An authenticated link to a neighbour.
#[derive(Debug)]
pub(super) struct Neighbour {
    link: Link,
    key: Key,
    /// Number of bytes of streams that may be sent. Negative if more was sent.
    credit: i64,
    /// Number of bytes of received streams that have been passed on, but not returned as credit yet.
    credit_to_return: u32,
    /// Number of bytes of received streams for which no credit has been returned.
    unreturned: u64,
    /// Maximum of `unreturned`. A node forwards what the nodes behind it send, also without credit.
    unreturned_max: u64,
    /// Credit of other neighbours that is held back until this one has credit: node and number of bytes.
    held_credit: Vec<(u32, u32)>,
    /// The other end has announced that it will send nothing.
    paused: bool,
    /// The poller watches for space to write.
    watches_write: bool,
}

impl Neighbour {
    /// A link to one of `nodes` nodes, all of which are reached over it.
    pub(super) fn new(link: Link, key: Key, nodes: u32) -> Neighbour {
        Neighbour {
            link,
            key,
            credit: i64::from(WINDOW),
            credit_to_return: 0,
            unreturned: 0,
            unreturned_max: u64::from(nodes) * u64::from(WINDOW + BEYOND_CREDIT_MAX),
            held_credit: Vec::new(),
            paused: false,
            watches_write: false,
        }
    }

    /// Number of bytes to be written.
    pub(super) fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Whether streams may be sent.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Queues a message. Bytes of streams use up credit.
    pub(super) fn send(&mut self, now: u64, channel: Channel, message: &[u8]) -> Result<(), LinkError> {
        if channel == Channel::Stream {
            self.credit -= message.len() as i64;
        }
        self.link.send(now, channel, message).map(drop)
    }

    /// Reads once and appends the complete messages. Returns whether bytes were received.
    ///
    /// # Errors
    /// Errors of the link, and [`LinkError::NoCredit`].
    pub(super) fn receive(
        &mut self,
        now: u64,
        buffer: &mut [u8],
        messages: &mut Vec<(Channel, Vec<u8>)>,
    ) -> Result<bool, LinkError> {
        let unreturned = &mut self.unreturned;
        let received = self.link.receive(now, buffer, |channel, message| {
            if channel == Channel::Stream {
                *unreturned += message.len() as u64;
            }
            messages.push((channel, message));
        })?;
        self.paused &= !received;
        if self.unreturned > self.unreturned_max {
            return Err(LinkError::NoCredit);
        }
        Ok(received)
    }

    /// The other end has announced a pause without messages. The next received bytes end the pause.
    pub(super) fn set_paused(&mut self) {
        self.paused = true;
    }

    /// Adds credit for bytes of received streams that have been passed on.
    pub(super) fn return_credit(&mut self, bytes: u32) {
        self.credit_to_return = self.credit_to_return.saturating_add(bytes);
    }

    /// Takes the credit to be sent to the other end, if it is large enough.
    pub(super) fn take_credit_to_return(&mut self) -> Option<u32> {
        if self.credit_to_return < CREDIT_MIN {
            return None;
        }
        self.unreturned = self.unreturned.saturating_sub(self.credit_to_return.into());
        Some(std::mem::take(&mut self.credit_to_return))
    }

    /// Holds back credit of the neighbour `from` until this one has credit.
    pub(super) fn hold_credit(&mut self, from: u32, bytes: u32) {
        self.held_credit.push((from, bytes));
    }

    /// Adds credit from the other end. If there was none before, returns the credit that was held back.
    pub(super) fn receive_credit(&mut self, bytes: u32) -> Option<Vec<(u32, u32)>> {
        let had_credit = self.has_credit();
        self.credit = (self.credit + i64::from(bytes)).min(i64::from(WINDOW));
        (!had_credit && self.has_credit()).then(|| std::mem::take(&mut self.held_credit))
    }

    /// Writes what the socket accepts, and watches the socket for the rest.
    pub(super) fn flush(&mut self, poller: &Poller) -> Result<(), LinkError> {
        let is_blocked = self.link.flush()? == Sent::Blocked;
        if is_blocked != self.watches_write {
            let interest = if is_blocked { Interest::ReadWrite } else { Interest::Read };
            poller.modify(self.link.fd(), self.key, interest).map_err(Errno::from)?;
            self.watches_write = is_blocked;
        }
        Ok(())
    }

    /// Sends a heartbeat if one is due.
    pub(super) fn send_heartbeat(&mut self, now: u64, timeout: u64) -> Result<(), LinkError> {
        if self.next_heartbeat(timeout) <= now {
            self.send(now, Channel::Link, &[])?;
        }
        Ok(())
    }

    /// Whether the other end has sent nothing for the heartbeat timeout.
    pub(super) fn is_overdue(&self, now: u64, timeout: u64) -> bool {
        !self.paused && self.link.last_received() + timeout <= now
    }

    /// Time of the next heartbeat or timeout.
    pub(super) fn deadline(&self, timeout: u64) -> u64 {
        let overdue = if self.paused { u64::MAX } else { self.link.last_received() + timeout };
        self.next_heartbeat(timeout).min(overdue)
    }

    /// Heartbeats are sent four times as often as the timeout, so a busy machine may delay three of them.
    fn next_heartbeat(&self, timeout: u64) -> u64 {
        self.link.last_sent() + (timeout / 4).max(1)
    }

    /// Stops to watch the socket.
    pub(super) fn unwatch(&self, poller: &Poller) {
        poller.remove(self.link.fd());
    }

    /// Watches the socket for received bytes. The poller knows the socket already.
    pub(super) fn watch(&self, poller: &Poller) -> Result<(), Error> {
        poller.modify(self.link.fd(), self.key, Interest::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::RECEIVE_BUFFER_MIN;
    use crate::link::tests::pair;

    #[test]
    fn credit_is_returned_in_portions_and_held_back_without_own_credit() {
        let mut neighbour = Neighbour::new(pair().0, Key(0), 1);
        neighbour.return_credit(CREDIT_MIN - 1);
        assert_eq!(neighbour.take_credit_to_return(), None);
        neighbour.return_credit(1);
        let taken = (neighbour.take_credit_to_return(), neighbour.take_credit_to_return());
        assert_eq!(taken, (Some(CREDIT_MIN), None));
        neighbour.send(0, Channel::Control, &[0; 4096]).unwrap();
        neighbour.send(0, Channel::Stream, &vec![0; WINDOW as usize - 1]).unwrap();
        assert!(neighbour.has_credit());
        neighbour.send(0, Channel::Stream, &[0; 11]).unwrap();
        assert!(!neighbour.has_credit());
        neighbour.hold_credit(7, 11);
        assert_eq!(neighbour.receive_credit(10), None);
        assert_eq!((neighbour.receive_credit(10), neighbour.has_credit()), (Some(vec![(7, 11)]), true));
        assert_eq!(neighbour.receive_credit(u32::MAX), None);
        assert_eq!(neighbour.credit, i64::from(WINDOW));
    }

    #[test]
    fn streams_without_credit_are_an_error() {
        let (a, mut other) = pair();
        let mut neighbour = Neighbour::new(a, Key(0), 2);
        let (piece, limit) = (64 * 1024, 2 * (WINDOW + BEYOND_CREDIT_MAX) as usize);
        let mut buffer = vec![0; RECEIVE_BUFFER_MIN];
        let mut exchange = |neighbour: &mut Neighbour, channel| {
            other.send(0, channel, &vec![0; piece]).unwrap();
            let mut messages = Vec::new();
            while messages.is_empty() {
                other.flush().unwrap();
                neighbour.receive(0, &mut buffer, &mut messages)?;
            }
            Ok::<_, LinkError>(())
        };
        // Other messages need no credit, and returned credit is credit again.
        for _ in 0..limit / piece {
            exchange(&mut neighbour, Channel::Stream).unwrap();
            exchange(&mut neighbour, Channel::Control).unwrap();
        }
        neighbour.return_credit(CREDIT_MIN);
        assert_eq!(neighbour.take_credit_to_return(), Some(CREDIT_MIN));
        for _ in 0..CREDIT_MIN as usize / piece {
            exchange(&mut neighbour, Channel::Stream).unwrap();
        }
        assert!(matches!(exchange(&mut neighbour, Channel::Stream), Err(LinkError::NoCredit)));
    }

    #[test]
    fn an_unannounced_pause_is_overdue() {
        let (a, mut other) = pair();
        let mut neighbour = Neighbour::new(a, Key(0), 1);
        assert_eq!((neighbour.deadline(1000), neighbour.is_overdue(999, 1000)), (250, false));
        assert!(neighbour.is_overdue(1000, 1000));
        neighbour.set_paused();
        assert!(!neighbour.is_overdue(5000, 1000));
        other.send(0, Channel::Link, &[]).unwrap();
        other.flush().unwrap();
        let mut buffer = vec![0; RECEIVE_BUFFER_MIN];
        assert!(neighbour.receive(6000, &mut buffer, &mut Vec::new()).unwrap());
        assert!(!neighbour.is_overdue(6999, 1000) && neighbour.is_overdue(7000, 1000));
        neighbour.send_heartbeat(7000, 1000).unwrap();
        assert!(neighbour.queued() > 0);
    }
}
