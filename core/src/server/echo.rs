//! Echo: what makes a node that is not the root know what was released before it reads the values of another job.
//!
//! With [`ROOT_ONE`](crate::peer::tree::ROOT_ONE) node 1 releases fences, and hosts exchange names and connections between jobs
//! past the servers. A rank that has left a fence may publish a name. A rank elsewhere that has heard of the name reads the
//! values of the first one's job. They must be there, although the release may still be on its way to that node.
//!
//! 1. A reply waits, and its node sends its parent a number. It is that to a look-up or a connection of a rank
//!    ([`Server::wait_for_releases`]), or to the handshake of a client of another run at the head ([`Server::ask_for_echo`]).
//! 2. A node passes the request on to its own parent. The root sends the number back ([`Server::write_echo`]) when nothing that
//!    it has released is left to send over this link. So does each node on the way back.
//! 3. Links keep their order, so the first node has all of that when the number returns, and makes the reply ready
//!    ([`Server::receive_echo`]).
//!
//! A node has at most one request of each child at its parent. Later ones follow together.
//!
//! Pairs of a lazy job that the node has not asked for come by a fetch, which waits for its answer. Those that it has are
//! sent before each release.

use super::Server;
use crate::fault::Fault;
use crate::ids::{ConnId, UpcallId};
use crate::peer::LINKS_MAX;
use crate::peer::message::{Head, Writer};
use crate::state::{Phase, ReplyState, Response};
use crate::wire::Op;

/// Returns whether an echo has the number `newest`, or is an earlier one. Numbers wrap around.
fn is_up_to(number: u32, newest: u32) -> bool {
    newest.wrapping_sub(number) < 1 << 31
}

impl Server<'_> {
    /// Asks for an echo if the client of a connection, which has introduced itself, reads at the head for another run. Returns
    /// the reply that waits for it.
    pub(super) fn ask_for_echo(&mut self, conn: ConnId) -> Option<ReplyState> {
        if self.links.node() != 0 || !self.conns[conn.index()].query {
            return None;
        }
        let number = self.ask_parent()?;
        self.conns[conn.index()].phase = Phase::Negotiated;
        Some(ReplyState::Echo(number))
    }

    /// Has the reply to an upcall that the host has completed wait for an echo. Returns false if the client does not read values
    /// because of it.
    pub(super) fn wait_for_releases(&mut self, upcall: UpcallId) -> bool {
        let Some((conn, at, op @ (Op::Lookup | Op::Connect))) = self.reply_to_upcall(upcall) else {
            return false;
        };
        let Some(number) = self.ask_parent() else { return false };
        self.conns[conn.index()].replies[at].state = ReplyState::UpcallEcho(number, op, upcall);
        true
    }

    /// Asks the parent for an echo. Returns its number, or `None` without a root that releases fences elsewhere.
    fn ask_parent(&mut self) -> Option<u32> {
        if !self.is_behind_root() {
            return None;
        }
        let echo = &mut self.links.get_mut(0)?.echo;
        echo.asked = echo.asked.wrapping_add(1);
        echo.due = echo.asked;
        let number = echo.asked;
        self.links.wake(0);
        Some(number)
    }

    /// Writes the newest echo that is due, unless it has been sent.
    #[cold]
    pub(super) fn write_echo(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let echo = &mut self.links.get_mut(at)?.echo;
        if echo.due == echo.sent {
            return None;
        }
        echo.sent = echo.due;
        Some(Writer::new(buf, Head::Echo { number: echo.due })?.finish().len())
    }

    /// A child asks for an echo, or the parent answers.
    #[cold]
    pub(super) fn receive_echo(&mut self, at: usize, number: u32) -> Result<(), Fault> {
        if !self.links.tree().has_root_one() {
            return Err(Fault::BadPeer);
        }
        let is_root = !self.links.have_parent();
        let link = self.links.get_mut(at).ok_or(Fault::BadPeer)?;
        if link.up {
            if !is_up_to(number, link.echo.sent) {
                return Err(Fault::BadPeer);
            }
            self.answer_children(number);
            self.answer_clients(number);
            return Ok(());
        }
        link.echo.asked = number;
        if is_root {
            link.echo.due = number;
            self.links.wake(at);
        } else {
            self.pass_request_on(at);
        }
        Ok(())
    }

    /// Passes the newest request of a child on, unless the parent has not answered the one before.
    fn pass_request_on(&mut self, at: usize) {
        let Some(echo) = self.links.get(at).map(|link| link.echo) else { return };
        if echo.asked == echo.passed || echo.passed != echo.due {
            return;
        }
        if let Some(number) = self.ask_parent()
            && let Some(link) = self.links.get_mut(at)
        {
            (link.echo.passed, link.echo.at_parent) = (echo.asked, number);
        }
    }

    fn answer_children(&mut self, number: u32) {
        let children = self.links.children();
        for at in (0..LINKS_MAX as usize).filter(|&at| children.contains(at)) {
            let Some(link) = self.links.get_mut(at) else { return };
            if link.echo.passed != link.echo.due && is_up_to(link.echo.at_parent, number) {
                link.echo.due = link.echo.passed;
                self.links.wake(at);
                self.pass_request_on(at);
            }
        }
    }

    /// Makes the replies ready that wait for an echo up to this number.
    fn answer_clients(&mut self, number: u32) {
        for conn in (0..self.conns_end).map(ConnId) {
            let slot = &mut self.conns[conn.index()];
            let mut answered = false;
            for reply in &mut slot.replies {
                let (asked, response) = match reply.state {
                    ReplyState::Echo(asked) => (asked, Response::FullInit),
                    ReplyState::UpcallEcho(asked, op, upcall) => (asked, Response::Upcall(op, upcall)),
                    _ => continue,
                };
                if is_up_to(asked, number) {
                    reply.state = ReplyState::Ready(response);
                    answered = true;
                }
            }
            if answered {
                // The client may repeat its handshake, or say goodbye, meanwhile.
                if slot.query && slot.phase == Phase::Negotiated {
                    slot.phase = Phase::Ready;
                }
                self.check_ready(conn);
            }
        }
    }
}
