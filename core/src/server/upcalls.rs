//! Upcalls: requests that the host carries out, and their completion.

use heapless::String;

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, UpcallId};
#[cfg(feature = "pmix")]
use crate::limits::HOST_FACTS;
use crate::limits::{Limit, MESSAGE_TEXT_MAX, PORT_MAX, VALUE_MAX};
use crate::state::{ReplyState, Response};
use crate::tables::upcalls::{Stage, Task};
#[cfg(feature = "pmix")]
use crate::wire::pmix::FileState;
use crate::wire::{Frame, Op, Protocol};

/// Prefixes of PMI-1 requests that can become upcalls other than spawns.
const REQUESTS_V1: [&[u8]; 4] = [b"cmd=publish_name", b"cmd=unpublish_name", b"cmd=lookup_name", b"cmd=get"];

impl Server<'_> {
    /// Stores a request for the host as received, until its reply is taken.
    pub(super) fn upcall(
        &mut self,
        requester: Requester,
        op: Op,
        frame: &Frame<'_>,
    ) -> Result<ReplyState, Refusal> {
        let id = self.upcalls.ask(
            (requester.job, requester.rank),
            String::new(),
            requester.conn,
            Task::Name,
            frame.body,
        )?;
        self.events_pending = true;
        Ok(ReplyState::Upcall(op, id))
    }

    pub(super) fn complete_upcall(&mut self, upcall: UpcallId, rc: i32, text: &[u8]) -> Result<(), Fault> {
        let slot = self.upcalls.get(upcall).ok_or(Fault::NoSuchUpcall)?;
        match (slot.task, slot.stage) {
            #[cfg(feature = "pmix")]
            (Task::Look(monitor), Stage::Passed) if HOST_FACTS => {
                self.free_upcall(upcall);
                self.file_was_seen(monitor, FileState::read(text).filter(|_| rc == 0));
                return Ok(());
            }
            #[cfg(feature = "pmix")]
            (Task::Note, Stage::Passed) if HOST_FACTS => {
                self.free_upcall(upcall);
                return Ok(());
            }
            #[cfg(feature = "pmix")]
            (Task::Report(monitor), Stage::Passed) if HOST_FACTS => {
                if !self.report_arrived(upcall, monitor, rc, text) {
                    return Ok(());
                }
            }
            (Task::Name, Stage::Passed) =>
            {
                #[cfg(feature = "pmix")]
                if HOST_FACTS && rc == 0 {
                    self.note_hosts(upcall, text);
                }
            }
            _ => return Err(Fault::NoSuchUpcall),
        }
        let room = self.upcalls.room();
        let reply = self.reply_to_upcall(upcall);
        let op = reply.map(|(.., op)| op);
        // A PMIx client may look up several names.
        #[cfg(feature = "pmix")]
        let port_max = match reply {
            Some((conn, ..)) if HOST_FACTS && self.conns[conn.index()].pmix.is_some() => usize::MAX,
            _ => PORT_MAX,
        };
        #[cfg(not(feature = "pmix"))]
        let port_max = PORT_MAX;
        let refusal = match text.len() {
            _ if rc != 0 => None,
            len if op == Some(Op::Get) && len > VALUE_MAX as usize => Some(Refusal::ValueLength),
            len if op == Some(Op::Lookup) && len > port_max => Some(Refusal::NameLength),
            len if len > room => Some(Refusal::Full(Limit::SpawnBytes, room as u32)),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.respond_to_upcall(upcall, |op| Response::Refused(op, refusal));
            self.free_upcall(upcall);
            return Ok(());
        }
        let room = if rc == 0 { room } else { room.min(MESSAGE_TEXT_MAX) };
        let text = text.iter().take(room).map(|&byte| (byte, 1));
        self.upcalls.finish(upcall, Stage::Named(rc), text);
        #[cfg(feature = "cluster")]
        if rc == 0 && self.wait_for_releases(upcall) {
            return Ok(());
        }
        self.respond_to_upcall(upcall, |op| Response::Upcall(op, upcall));
        Ok(())
    }

    /// Makes the reply to an upcall ready. Frees the upcall if no reply is pending for it.
    pub(super) fn respond_to_upcall(&mut self, upcall: UpcallId, answer: impl Fn(Op) -> Response) {
        let Some((conn, at, op)) = self.reply_to_upcall(upcall) else {
            self.free_upcall(upcall);
            return;
        };
        self.conns[conn.index()].replies[at].state = ReplyState::Ready(answer(op));
        self.check_ready(conn);
    }

    /// Returns the pending reply to an upcall, if its client waits for it: the connection, the place among its replies, and the
    /// command.
    pub(super) fn reply_to_upcall(&self, upcall: UpcallId) -> Option<(ConnId, usize, Op)> {
        let conn = self.upcalls.get(upcall)?.conn?;
        let replies = &self.conns[conn.index()].replies;
        (0..).zip(replies).find_map(|(at, reply)| match reply.state {
            ReplyState::Upcall(op, id) if id == upcall => Some((conn, at, op)),
            _ => None,
        })
    }

    /// Drops an upcall without a pending reply.
    pub(super) fn drop_upcall(&mut self, upcall: UpcallId) {
        let Some(slot) = self.upcalls.get_mut(upcall) else { return };
        slot.conn = None;
        // The host has not seen the upcall, or has completed it.
        if slot.stage == Stage::Asked || slot.stage.is_done() {
            self.free_upcall(upcall);
        }
    }

    /// Frees an upcall. Its place may be that which others wait for.
    pub(super) fn free_upcall(&mut self, upcall: UpcallId) {
        self.upcalls.free(upcall);
        #[cfg(feature = "pmix")]
        {
            self.events_pending |= self.next_waiting().is_some();
        }
    }

    /// Returns the protocol of a request, from its first bytes.
    pub(super) fn protocol_of(&self, upcall: UpcallId) -> Protocol {
        let text = self.upcalls.text(upcall);
        match self.upcalls.get(upcall).map(|slot| slot.task) {
            Some(Task::Name) if REQUESTS_V1.iter().any(|command| text.starts_with(command)) => Protocol::V1,
            Some(Task::Spawn(_)) if text.starts_with(b"mcmd=") => Protocol::V1,
            _ => Protocol::V2,
        }
    }
}
