//! Upcalls: requests that the host carries out, and their results.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{JOBID_MAX, Limit};

/// An upcall's slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upcall {
    /// Who asked; a slot without is free.
    pub(crate) parent: Option<(JobId, Rank)>,
    /// The name of the job that asks for a spawn, which may be over before the spawn is.
    pub(crate) spawner: String<JOBID_MAX, u8>,
    /// Where the reply goes, as long as that connection is open.
    pub(crate) conn: Option<ConnId>,
    /// What is asked.
    pub(crate) task: Task,
    /// How far it is.
    pub(crate) stage: Stage,
    /// How many bytes of the slot's text are in use: the request, later what became of it.
    len: u32,
    /// The name of a spawn's job, once that is known.
    pub(crate) name: String<JOBID_MAX, u8>,
    /// The limit that a spawn failed at.
    pub(crate) full: Option<Limit>,
}

impl Upcall {
    /// A slot of zero bytes, for a `static` in `.bss`. `Upcalls::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub(crate) const EMPTY: Upcall = Upcall {
        parent: None,
        spawner: String::new(),
        conn: None,
        task: Task::Spawn(0),
        stage: Stage::Asked,
        len: 0,
        name: String::new(),
        full: Some(Limit::Jobs),
    };
}

/// What the host is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// To start so many programs.
    Spawn(u32),
    /// To publish a name, to withdraw it, or to look it up.
    Name,
}

impl Default for Task {
    fn default() -> Task {
        Task::Spawn(0)
    }
}

/// How far an upcall is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The host has to be told.
    #[default]
    Asked,
    /// The host is at it.
    Told,
    /// A spawn's job is known, and its processes are being started.
    Begun(JobId),
    /// The host is done with a spawn, and whether anything was started.
    Launched(bool),
    /// The host is done with a name, with this code: 0, or another for a failure.
    Named(i32),
}

impl Stage {
    /// Whether the host is done.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Stage::Launched(_) | Stage::Named(_))
    }
}

/// All upcalls of a server, each with room for one request.
#[derive(Debug)]
pub(crate) struct Upcalls<'s> {
    slots: &'s mut [Upcall],
    text: &'s mut [u8],
    room: usize,
}

impl<'s> Upcalls<'s> {
    /// No upcalls; nothing when `text` has less than `room` bytes a slot.
    pub(crate) fn new(slots: &'s mut [Upcall], text: &'s mut [u8], room: u32) -> Option<Upcalls<'s>> {
        let text = text.get_mut(..slots.len().checked_mul(room as usize)?)?;
        slots.fill(Upcall::default());
        Some(Upcalls { slots, text, room: room as usize })
    }

    /// Keeps a request.
    ///
    /// # Errors
    /// [`Refusal::NoSpawn`] for a spawn where there is no slot at all, [`Refusal::Full`]; nothing is changed.
    pub(crate) fn ask(
        &mut self,
        parent: (JobId, Rank),
        spawner: String<JOBID_MAX, u8>,
        conn: ConnId,
        task: Task,
        request: &[u8],
    ) -> Result<UpcallId, Refusal> {
        if self.slots.is_empty() && matches!(task, Task::Spawn(_)) {
            return Err(Refusal::NoSpawn);
        }
        let full = Refusal::Full(Limit::Spawns, self.slots.len() as u32);
        let at = self.slots.iter().position(|slot| slot.parent.is_none()).ok_or(full)?;
        if request.len() > self.room {
            return Err(Refusal::Full(Limit::SpawnBytes, self.room as u32));
        }
        self.text[at * self.room..][..request.len()].copy_from_slice(request);
        let (parent, conn) = (Some(parent), Some(conn));
        let len = request.len() as u32;
        let (stage, name) = (Stage::Asked, String::new());
        self.slots[at] = Upcall { parent, spawner, conn, task, stage, len, name, full: None };
        Ok(UpcallId(at as u32))
    }

    /// An upcall that is not over.
    pub(crate) fn get(&self, upcall: UpcallId) -> Option<&Upcall> {
        self.slots.get(upcall.index()).filter(|slot| slot.parent.is_some())
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, upcall: UpcallId) -> Option<&mut Upcall> {
        self.slots.get_mut(upcall.index()).filter(|slot| slot.parent.is_some())
    }

    /// An upcall that the host has not been told of.
    pub(crate) fn untold(&self) -> Option<UpcallId> {
        let asked = |slot: &Upcall| slot.parent.is_some() && slot.stage == Stage::Asked;
        self.slots.iter().position(asked).map(|at| UpcallId(at as u32))
    }

    /// Its request; once it is done, what became of it instead: codes of a spawn, a name's port, or
    /// why there is none.
    pub(crate) fn text(&self, upcall: UpcallId) -> &[u8] {
        let len = self.get(upcall).map_or(0, |slot| slot.len as usize);
        self.text.get(upcall.index() * self.room..).and_then(|text| text.get(..len)).unwrap_or_default()
    }

    /// The most bytes that [`finish`](Upcalls::finish) keeps.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Puts what became of it in the place of the request: bytes, each as often as it says, as far as there is room.
    pub(crate) fn finish(&mut self, upcall: UpcallId, stage: Stage, text: impl Iterator<Item = (u8, u32)>) {
        let room = self.room;
        let Some(slot) = self.slots.get_mut(upcall.index()) else { return };
        let Some(mut rest) = self.text.get_mut(upcall.index() * room..).and_then(|text| text.get_mut(..room))
        else {
            return;
        };
        for (byte, times) in text {
            let (front, back) = rest.split_at_mut(rest.len().min(times as usize));
            front.fill(byte);
            rest = back;
        }
        slot.len = (room - rest.len()) as u32;
        slot.stage = stage;
    }

    /// Frees the slot.
    pub(crate) fn free(&mut self, upcall: UpcallId) {
        if let Some(slot) = self.slots.get_mut(upcall.index()) {
            *slot = Upcall::default();
        }
    }

    /// The slots, and the text of each in use, for saving.
    pub(crate) fn state(&self) -> (&[Upcall], &[u8]) {
        let used = self.slots.iter().rposition(|slot| slot.parent.is_some()).map_or(0, |at| at + 1);
        (self.slots, &self.text[..used * self.room])
    }

    /// The slots, for filling in what was saved.
    pub(crate) fn slots_mut(&mut self) -> &mut [Upcall] {
        self.slots
    }

    /// Fills in the texts of the slots; false when those in use have others, or more than their room.
    pub(crate) fn load(&mut self, text: &[u8]) -> bool {
        let (_, place) = self.state();
        if place.len() != text.len() {
            return false;
        }
        self.text[..text.len()].copy_from_slice(text);
        self.slots.iter().all(|slot| slot.len as usize <= self.room)
    }
}
