//! Echo: what makes a head that is a leaf know what was released before another run reads there.
//!
//! With [`ROOT_ONE`](crate::peer::tree::ROOT_ONE) node 1 releases fences, and the head may learn of a release later than ranks
//! that have left the fence. A rank of another run that has heard of one of these, by a published name for example, reads
//! over a query connection at the head. The values must be there.
//!
//! 1. The handshake of the connection waits ([`Server::ask_for_echo`]), and the head sends the root a number.
//! 2. The root sends it back ([`Server::write_echo`]) when nothing that it has released is left to send over this link.
//! 3. Links keep their order, so the head has all of that when the number returns, and completes the handshake
//!    ([`Server::receive_echo`]).
//!
//! Pairs of a lazy job that the head has not asked for come by a fetch, which waits for its answer. Those that it has are
//! sent before each release.

use super::Server;
use crate::fault::Fault;
use crate::ids::ConnId;
use crate::peer::message::{Head, Writer};
use crate::state::{Phase, ReplyState, Response};

/// Returns whether an echo has the number `newest`, or is an earlier one. Numbers wrap around.
fn is_up_to(number: u32, newest: u32) -> bool {
    newest.wrapping_sub(number) < 1 << 31
}

impl Server<'_> {
    /// Asks the parent for an echo if the client of a connection, which has introduced itself, reads for another run. Returns the
    /// reply that waits for it.
    #[inline]
    pub(super) fn ask_for_echo(&mut self, conn: ConnId) -> Option<ReplyState> {
        if !self.is_behind_root() || !self.conns[conn.index()].query {
            return None;
        }
        let number = self.links.get(0)?.echo.wrapping_add(1);
        self.want_echo(0, number);
        self.conns[conn.index()].phase = Phase::Negotiated;
        Some(ReplyState::Echo(number))
    }

    fn want_echo(&mut self, at: usize, number: u32) {
        if let Some(link) = self.links.get_mut(at) {
            link.echo = number;
        }
        self.links.wake(1 << at);
    }

    /// Writes the newest echo that is wanted, unless it has been sent.
    #[cold]
    pub(super) fn write_echo(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let link = self.links.get_mut(at)?;
        if link.echo == link.echo_sent {
            return None;
        }
        link.echo_sent = link.echo;
        Some(Writer::new(buf, Head::Echo { number: link.echo })?.finish().len())
    }

    /// The head asks for an echo, or the root answers the head.
    #[cold]
    pub(super) fn receive_echo(&mut self, at: usize, number: u32) -> Result<(), Fault> {
        let link = self.links.get(at).ok_or(Fault::BadPeer)?;
        if !link.up && link.node == 0 {
            self.want_echo(at, number);
            return Ok(());
        }
        if !self.is_behind_root() || !is_up_to(number, link.echo_sent) {
            return Err(Fault::BadPeer);
        }
        for conn in (0..self.conns_end).map(ConnId) {
            let slot = &mut self.conns[conn.index()];
            let mut answered = false;
            for reply in &mut slot.replies {
                if matches!(reply.state, ReplyState::Echo(asked) if is_up_to(asked, number)) {
                    reply.state = ReplyState::Ready(Response::FullInit);
                    answered = true;
                }
            }
            if answered {
                // The client may repeat its handshake, or say goodbye, meanwhile.
                if slot.phase == Phase::Negotiated {
                    slot.phase = Phase::Ready;
                }
                self.check_ready(conn);
            }
        }
        Ok(())
    }
}
