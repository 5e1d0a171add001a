//! Spawns in the making: requests that the host has to carry out, and what became of them.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, SpawnId};
use crate::limits::{JOBID_MAX, Limit};

/// A spawn's slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawning {
    /// Who asked; a slot without is free.
    pub parent: Option<(JobId, Rank)>,
    /// The name of the job that asked, which may be over before the spawn is.
    pub spawner: String<JOBID_MAX, u8>,
    /// Where the reply goes, as long as that connection is open.
    pub conn: Option<ConnId>,
    /// How far it is.
    pub stage: Stage,
    /// How many bytes of the slot's text are in use: the request, later the codes.
    len: u32,
    /// How many programs it asks for.
    pub programs: u32,
    /// The name of its job, once that is known.
    pub name: String<JOBID_MAX, u8>,
}

/// How far a spawn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The host has to be told.
    #[default]
    Asked,
    /// The host is at it.
    Told,
    /// Its job is known, and its processes are being started.
    Begun(JobId),
    /// The host is done, and whether anything was started.
    Done(bool),
}

/// All spawns of a server, each with room for one request.
#[derive(Debug)]
pub struct Spawns<'s> {
    slots: &'s mut [Spawning],
    text: &'s mut [u8],
    room: usize,
}

impl<'s> Spawns<'s> {
    /// No spawns; nothing when `text` has less than `room` bytes a slot.
    pub fn new(slots: &'s mut [Spawning], text: &'s mut [u8], room: u32) -> Option<Spawns<'s>> {
        let text = text.get_mut(..slots.len().checked_mul(room as usize)?)?;
        slots.fill(Spawning::default());
        Some(Spawns { slots, text, room: room as usize })
    }

    /// Keeps a request.
    ///
    /// # Errors
    /// [`Refusal::NoSpawn`] where there is no slot at all, [`Refusal::Full`]; nothing is changed.
    pub fn ask(
        &mut self,
        parent: (JobId, Rank),
        spawner: String<JOBID_MAX, u8>,
        conn: ConnId,
        programs: u32,
        request: &[u8],
    ) -> Result<SpawnId, Refusal> {
        if self.slots.is_empty() {
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
        self.slots[at] = Spawning { parent, spawner, conn, stage, len, programs, name };
        Ok(SpawnId(at as u32))
    }

    /// A spawn that is in the making.
    pub fn get(&self, spawn: SpawnId) -> Option<&Spawning> {
        self.slots.get(spawn.index()).filter(|slot| slot.parent.is_some())
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, spawn: SpawnId) -> Option<&mut Spawning> {
        self.slots.get_mut(spawn.index()).filter(|slot| slot.parent.is_some())
    }

    /// A spawn that the host has not been told of.
    pub fn untold(&self) -> Option<SpawnId> {
        let asked = |slot: &Spawning| slot.parent.is_some() && slot.stage == Stage::Asked;
        self.slots.iter().position(asked).map(|at| SpawnId(at as u32))
    }

    /// Its request; once it is done, codes instead.
    pub fn text(&self, spawn: SpawnId) -> &[u8] {
        let len = self.get(spawn).map_or(0, |slot| slot.len as usize);
        self.text.get(spawn.index() * self.room..).and_then(|text| text.get(..len)).unwrap_or_default()
    }

    /// Puts codes in the place of the request, each as often as it says, as far as there is room.
    pub fn finish(&mut self, spawn: SpawnId, started: bool, codes: impl Iterator<Item = (u8, u32)>) {
        let room = self.room;
        let Some(slot) = self.slots.get_mut(spawn.index()) else { return };
        let Some(mut rest) = self.text.get_mut(spawn.index() * room..).and_then(|text| text.get_mut(..room))
        else {
            return;
        };
        for (code, times) in codes {
            let (front, back) = rest.split_at_mut(rest.len().min(times as usize));
            front.fill(code);
            rest = back;
        }
        slot.len = (room - rest.len()) as u32;
        slot.stage = Stage::Done(started);
    }

    /// Frees the slot.
    pub fn free(&mut self, spawn: SpawnId) {
        if let Some(slot) = self.slots.get_mut(spawn.index()) {
            *slot = Spawning::default();
        }
    }

    /// The slots, and the text of each in use, for saving.
    pub fn state(&self) -> (&[Spawning], &[u8]) {
        let used = self.slots.iter().rposition(|slot| slot.parent.is_some()).map_or(0, |at| at + 1);
        (self.slots, &self.text[..used * self.room])
    }
}
