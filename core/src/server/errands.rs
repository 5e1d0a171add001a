//! What the host is asked to see to: how its answers reach who asked. Spawns, and names that several servers share.

use heapless::String;

use super::Server;
use super::dispatch::Asker;
use crate::fault::{Fault, Refusal};
use crate::ids::ErrandId;
use crate::limits::{Limit, MESSAGE_TEXT_MAX, PORT_MAX};
use crate::slabs::{Answer, What};
use crate::tables::errands::{Stage, Task};
use crate::wire::{Frame, Op, Protocol};

/// How PMI-1's requests begin that may be the host's business.
const NAMES_V1: [&[u8]; 3] = [b"cmd=publish_name", b"cmd=unpublish_name", b"cmd=lookup_name"];

impl Server<'_> {
    /// Keeps a request that is the host's business as it came, so that the host can read it, until the reply is taken.
    pub(super) fn errand(&mut self, asker: Asker, op: Op, frame: &Frame<'_>) -> Result<What, Refusal> {
        let id =
            self.errands.ask((asker.job, asker.rank), String::new(), asker.conn, Task::Name, frame.body)?;
        self.news = true;
        Ok(What::Errand(op, id))
    }

    pub(super) fn seen_to(&mut self, errand: ErrandId, rc: i32, text: &[u8]) -> Result<(), Fault> {
        let slot = self.errands.get(errand).ok_or(Fault::NoSuchErrand)?;
        if slot.task != Task::Name || slot.stage != Stage::Told {
            return Err(Fault::NoSuchErrand);
        }
        let room = self.errands.room();
        let refusal = match text.len() {
            _ if rc != 0 => None,
            len if len > PORT_MAX => Some(Refusal::NameLength),
            len if len > room => Some(Refusal::Full(Limit::SpawnBytes, room as u32)),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.answer_errand(errand, |op| Answer::Refused(op, refusal));
            self.errands.free(errand);
            return Ok(());
        }
        let room = if rc == 0 { room } else { room.min(MESSAGE_TEXT_MAX) };
        let text = text.iter().take(room).map(|&byte| (byte, 1));
        self.errands.finish(errand, Stage::Named(rc), text);
        self.answer_errand(errand, |op| Answer::Errand(op, errand));
        Ok(())
    }

    /// Gives who asked the answer, made from what was asked; where nobody waits for it any more, the errand is over.
    pub(super) fn answer_errand(&mut self, errand: ErrandId, answer: impl Fn(Op) -> Answer) {
        let Some(conn) = self.errands.get(errand).and_then(|slot| slot.conn) else {
            self.errands.free(errand);
            return;
        };
        for owed in &mut self.conns[conn.index()].owed {
            if let What::Errand(op, waited) = owed.what
                && waited == errand
            {
                owed.what = What::Answer(answer(op));
            }
        }
        self.check_ready(conn);
    }

    /// Nobody waits for the errand's reply any more.
    pub(super) fn drop_errand(&mut self, errand: ErrandId) {
        let Some(slot) = self.errands.get_mut(errand) else { return };
        slot.conn = None;
        // What the host does not know of, or is done with, is over.
        if slot.stage == Stage::Asked || slot.stage.is_done() {
            self.errands.free(errand);
        }
    }

    /// The language of a request, which its first bytes tell.
    pub(super) fn protocol_of(&self, errand: ErrandId) -> Protocol {
        let text = self.errands.text(errand);
        match self.errands.get(errand).map(|slot| slot.task) {
            Some(Task::Name) if NAMES_V1.iter().any(|command| text.starts_with(command)) => Protocol::V1,
            Some(Task::Spawn(_)) if text.starts_with(b"mcmd=") => Protocol::V1,
            _ => Protocol::V2,
        }
    }
}
