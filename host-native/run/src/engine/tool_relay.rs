//! Relays: connections of tools on the hosts of daemons, which the head serves.
//!
//! A relay has two ends. The daemon's has the socket of the tool, which has connected to the port of ranks. The head's has one of a
//! pair, whose other socket is a client of the head's PMI server as any tool is. Each end has at most one piece of bytes on the way
//! to the other, and reads more when that one is taken, so a tool that does not read holds up nobody but itself.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use hydrant_control::protocol::{Order, Relayed, Report};
use hydrant_driver::Client;
use hydrant_overlay::Destination;
use hydrant_reactor::{Interest, NO_SIGPIPE};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::token::Token;
use super::{Engine, Head};
use crate::error::RunError;

/// Most tools of a run at the same time.
pub(super) const TOOLS_MAX: u32 = 32;
/// Most bytes of a piece.
const PIECE_MAX: usize = 32 << 10;

/// Relays of a process.
#[derive(Default)]
pub(super) struct Relays {
    slots: [Option<Relay>; TOOLS_MAX as usize],
    /// Number of relays that this daemon has begun.
    begun: u32,
}

/// One end of a relay.
struct Relay {
    /// Node of the other end, and number of the relay at its daemon.
    id: (u32, u32),
    socket: OwnedFd,
    /// The piece that the socket has not taken.
    unsent: Vec<u8>,
    /// The other end has taken the last piece.
    may_read: bool,
    /// The other end is closed.
    is_over: bool,
}

/// What an end does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Waits.
    Waits,
    /// Tells the other end, and goes on.
    Tells(Relayed),
    /// Closes its socket.
    Closes,
}

impl Relay {
    /// Readiness that the socket is watched for.
    fn interest(&self) -> Option<Interest> {
        match (self.may_read, self.unsent.is_empty()) {
            (true, true) => Some(Interest::Read),
            (true, false) => Some(Interest::ReadWrite),
            (false, false) => Some(Interest::Write),
            (false, true) => None,
        }
    }

    /// Takes what the other end tells.
    fn take(&mut self, relayed: Relayed) -> Next {
        match relayed {
            Relayed::Bytes(bytes) if self.unsent.is_empty() => {
                self.unsent = bytes;
                self.write()
            }
            Relayed::Taken => {
                self.may_read = true;
                Next::Waits
            }
            Relayed::Ends => {
                self.is_over = true;
                if self.unsent.is_empty() { Next::Closes } else { Next::Waits }
            }
            // The other end does not keep the rule.
            Relayed::Begins(_) | Relayed::Bytes(_) => Next::Closes,
        }
    }

    /// Writes to the socket.
    fn write(&mut self) -> Next {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match send(&self.socket, &self.unsent[sent..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Next::Closes,
            }
        }
        self.unsent.drain(..sent);
        match self.unsent.is_empty() {
            true if self.is_over => Next::Closes,
            true if sent > 0 => Next::Tells(Relayed::Taken),
            _ => Next::Waits,
        }
    }

    /// Reads once from the socket, if the other end takes a piece.
    fn read(&mut self) -> Next {
        if !self.may_read {
            return Next::Waits;
        }
        let mut piece = vec![0; PIECE_MAX];
        match recv(&self.socket, &mut piece[..], RecvFlags::DONTWAIT) {
            Ok((len @ 1.., _)) => {
                piece.truncate(len);
                self.may_read = false;
                Next::Tells(Relayed::Bytes(piece))
            }
            Err(Errno::AGAIN | Errno::INTR) => Next::Waits,
            Ok(_) | Err(_) => Next::Closes,
        }
    }
}

impl Relays {
    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }

    fn slot_of(&self, id: (u32, u32)) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|relay| relay.id == id))
    }
}

impl Engine<'_> {
    /// Relays a tool that has connected to the port of ranks of this daemon to the head.
    pub(super) fn relay_tool(&mut self, client: Client, said: Vec<u8>) -> Result<(), RunError> {
        let Some(slot) = self.tools.relays.free_slot() else {
            self.refuse_tool();
            return Ok(());
        };
        self.tools.relays.begun = self.tools.relays.begun.wrapping_add(1);
        let id = (0, self.tools.relays.begun);
        self.begin_relay(slot, id, client.into(), false)?;
        self.tell_other_end(id, Relayed::Begins(said));
        Ok(())
    }

    /// Begins an end of a relay.
    fn begin_relay(
        &mut self,
        slot: usize,
        id: (u32, u32),
        socket: OwnedFd,
        may_read: bool,
    ) -> Result<(), RunError> {
        let relay = Relay { id, socket, unsent: Vec::new(), may_read, is_over: false };
        self.tools.relays.slots[slot] = Some(relay);
        self.watch_relay(slot)
    }

    /// Tells the other end of a relay something.
    fn tell_other_end(&mut self, (node, number): (u32, u32), relayed: Relayed) {
        match node {
            0 => self.send_report(&Report::RelayTool { number, relayed }),
            _ => self.send_order(Destination::Node(node), Order::RelayTool { number, relayed }),
        }
    }

    /// The other end of a relay, which may be gone here, tells something.
    pub(super) fn take_relayed(&mut self, id: (u32, u32), relayed: Relayed) -> Result<(), RunError> {
        let Some(slot) = self.tools.relays.slot_of(id) else { return Ok(()) };
        self.go_on(slot, |relay| relay.take(relayed))
    }

    /// The socket of a relay is ready.
    pub(super) fn relay_ready(&mut self, slot: u32) -> Result<(), RunError> {
        let slot = slot as usize;
        self.go_on(slot, Relay::write)?;
        self.go_on(slot, Relay::read)
    }

    fn go_on(&mut self, slot: usize, step: impl FnOnce(&mut Relay) -> Next) -> Result<(), RunError> {
        let Some(relay) = self.tools.relays.slots.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(());
        };
        let id = relay.id;
        match step(relay) {
            Next::Waits => {}
            Next::Tells(relayed) => self.tell_other_end(id, relayed),
            Next::Closes => {
                let closed = self.tools.relays.slots[slot].take();
                if closed.is_some_and(|relay| !relay.is_over) {
                    self.tell_other_end(id, Relayed::Ends);
                }
            }
        }
        self.watch_relay(slot)
    }

    fn watch_relay(&mut self, slot: usize) -> Result<(), RunError> {
        let Some(relay) = &self.tools.relays.slots[slot] else { return Ok(()) };
        self.poller.remove(&relay.socket);
        match relay.interest() {
            Some(interest) => Ok(self.poller.add(&relay.socket, Token::Relay(slot as u32), interest)?),
            None => Ok(()),
        }
    }

    /// Closes the relays of nodes that are lost or have left.
    pub(super) fn relays_gone(&mut self, nodes: &Range<u32>) {
        for slot in &mut self.tools.relays.slots {
            slot.take_if(|relay| nodes.contains(&relay.id.0));
        }
    }
}

impl Head {
    /// The end of a relay at a daemon tells something.
    pub(super) fn take_relayed(
        &mut self,
        engine: &mut Engine<'_>,
        id: (u32, u32),
        relayed: Relayed,
    ) -> Result<(), RunError> {
        let Relayed::Begins(said) = relayed else { return engine.take_relayed(id, relayed) };
        let answer = if self.begin_relay(engine, id, said)? { Relayed::Taken } else { Relayed::Ends };
        engine.tell_other_end(id, answer);
        Ok(())
    }

    /// Begins the head's end of a relay. Returns false if the tool is refused.
    fn begin_relay(
        &mut self,
        engine: &mut Engine<'_>,
        id: (u32, u32),
        said: Vec<u8>,
    ) -> Result<bool, RunError> {
        let Some(slot) = engine.tools.relays.free_slot().filter(|_| said.len() <= PIECE_MAX) else {
            engine.refuse_tool();
            return Ok(false);
        };
        let Ok((socket, client)) = UnixStream::pair() else { return Ok(false) };
        // The daemon has asked its kernel for the user.
        let client = Client::own(client.into());
        if !self.admit_tool(engine, client, &said)? {
            return Ok(false);
        }
        engine.begin_relay(slot, id, socket.into(), true)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// An end, and the process at its socket.
    fn end(may_read: bool) -> (Relay, UnixStream) {
        let (socket, process) = UnixStream::pair().unwrap();
        process.set_nonblocking(true).unwrap();
        let relay = Relay { id: (0, 1), socket: socket.into(), unsent: Vec::new(), may_read, is_over: false };
        (relay, process)
    }

    #[test]
    fn a_piece_is_on_the_way_until_it_is_taken() {
        let (mut relay, mut process) = end(false);
        process.write_all(&[7; PIECE_MAX + 5]).unwrap();
        assert_eq!((relay.read(), relay.interest()), (Next::Waits, None));
        assert_eq!((relay.take(Relayed::Taken), relay.interest()), (Next::Waits, Some(Interest::Read)));
        let Next::Tells(Relayed::Bytes(piece)) = relay.read() else { panic!("the other end takes a piece") };
        assert!(piece.len() <= PIECE_MAX);
        assert_eq!((relay.read(), relay.interest()), (Next::Waits, None), "the first is not taken");
    }

    #[test]
    fn bytes_count_as_taken_when_the_process_has_room_for_all() {
        let (mut relay, mut process) = end(false);
        let piece = vec![7; 1 << 20];
        assert_eq!(relay.take(Relayed::Bytes(piece.clone())), Next::Waits);
        assert_eq!(relay.interest(), Some(Interest::Write));
        // The rest is written before the end counts.
        assert_eq!(relay.take(Relayed::Ends), Next::Waits);
        let mut received = Vec::new();
        loop {
            let _ = process.read_to_end(&mut received);
            match relay.write() {
                Next::Closes => break,
                next => assert_eq!(next, Next::Waits),
            }
        }
        let _ = process.read_to_end(&mut received);
        assert!(received == piece);
    }

    #[test]
    fn an_end_closes_with_its_process_and_if_the_other_breaks_the_rule() {
        let (mut relay, process) = end(true);
        drop(process);
        assert_eq!(relay.read(), Next::Closes);
        let (mut relay, _process) = end(true);
        assert_eq!(relay.take(Relayed::Begins(Vec::new())), Next::Closes);
        assert_eq!(relay.take(Relayed::Bytes(vec![7; 1 << 20])), Next::Waits);
        assert_eq!(relay.take(Relayed::Bytes(vec![7])), Next::Closes, "the first waits");
        let (mut relay, _process) = end(true);
        assert_eq!(relay.take(Relayed::Bytes(vec![7])), Next::Tells(Relayed::Taken));
        assert_eq!(relay.take(Relayed::Ends), Next::Closes);
    }
}
