//! Upcalls: requests that the host carries out, and their results.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{JOBID_MAX, Limit, SPAWN_BYTES_MIN};
use crate::tables::names::NameRef;
use crate::trace::Stream;

/// Slot of an upcall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upcall {
    /// Requesting rank. `None` marks a free slot.
    pub(crate) parent: Option<(JobId, Rank)>,
    /// Job id of the job that requested a spawn. That job may be deregistered before the spawn completes.
    pub(crate) spawner: String<JOBID_MAX, u8>,
    /// Connection of the reply, while it is open.
    pub(crate) conn: Option<ConnId>,
    /// Task of the host.
    pub(crate) task: Task,
    /// Progress.
    pub(crate) stage: Stage,
    /// Bytes in use of the slot's text: the request, or later its result.
    len: u32,
    /// Job id of a spawned job, once it is registered.
    pub(crate) name: String<JOBID_MAX, u8>,
    /// Limit that a spawn exhausted.
    pub(crate) full: Option<Limit>,
}

impl Upcall {
    /// Unused slot. It consists of zero bytes, for a `static` in `.bss`.
    pub(crate) const EMPTY: Upcall = Upcall {
        parent: None,
        spawner: String::new(),
        conn: None,
        task: Task::Spawn(0),
        stage: Stage::Asked,
        len: 0,
        name: String::new(),
        full: None,
    };
}

/// Task of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Start this number of programs.
    Spawn(u32),
    /// Carry out a request other than a spawn, such as publishing a name.
    Name,
    /// Remove files after the exit of the requesting rank. The host does not answer.
    RemoveFiles,
    /// Print text as output of the requesting rank. The host does not answer.
    Log(Stream),
    /// Look at the file of a monitor. No client waits for the answer.
    Look(NameRef),
    /// Take note of a rank that waits for a debugger. The rank does not wait for the answer.
    Note,
    /// Tell what processes or hosts use, for a monitor. The first answer is a reply. The others are events.
    Report(NameRef),
}

impl Default for Task {
    fn default() -> Task {
        Task::Spawn(0)
    }
}

/// Progress of an upcall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The output is pending.
    #[default]
    Asked,
    /// The host has got the output.
    Passed,
    /// The spawned job is registered, and the host starts its processes.
    Begun(JobId),
    /// A spawn is complete. The flag is true if its processes run.
    Launched(bool),
    /// Another upcall is complete with this code. 0 is success.
    Named(i32),
}

impl Stage {
    /// Returns whether the upcall is complete.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Stage::Launched(_) | Stage::Named(_))
    }
}

/// Upcalls of a server, each with room for one request.
#[derive(Debug, Default)]
pub(crate) struct Upcalls<'s> {
    slots: &'s mut [Upcall],
    text: &'s mut [u8],
    room: usize,
}

impl<'s> Upcalls<'s> {
    /// Creates a table in unused slots. Returns `None` if `text` has fewer than `room` bytes per slot.
    pub(crate) fn new(slots: &'s mut [Upcall], text: &'s mut [u8], room: u32) -> Option<Upcalls<'s>> {
        let text = text.get_mut(..slots.len().checked_mul(room as usize)?)?;
        Some(Upcalls { slots, text, room: room as usize })
    }

    /// Stores a request. Returns its upcall.
    ///
    /// # Errors
    /// [`Refusal::NoSpawn`] for a spawn on a host that starts no processes, [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn ask(
        &mut self,
        parent: (JobId, Rank),
        spawner: String<JOBID_MAX, u8>,
        conn: ConnId,
        task: Task,
        request: &[u8],
    ) -> Result<UpcallId, Refusal> {
        if matches!(task, Task::Spawn(_)) && !self.take_spawns() {
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

    /// Returns whether the host starts processes.
    pub(crate) fn take_spawns(&self) -> bool {
        !self.slots.is_empty() && self.room >= SPAWN_BYTES_MIN as usize
    }

    /// Returns an upcall in use.
    pub(crate) fn get(&self, upcall: UpcallId) -> Option<&Upcall> {
        self.slots.get(upcall.index()).filter(|slot| slot.parent.is_some())
    }

    /// Returns an upcall in use, mutably.
    pub(crate) fn get_mut(&mut self, upcall: UpcallId) -> Option<&mut Upcall> {
        self.slots.get_mut(upcall.index()).filter(|slot| slot.parent.is_some())
    }

    /// Returns an upcall whose output is pending.
    pub(crate) fn unsent(&self) -> Option<UpcallId> {
        let asked = |slot: &Upcall| slot.parent.is_some() && slot.stage == Stage::Asked;
        self.slots.iter().position(asked).map(|at| UpcallId(at as u32))
    }

    /// Returns the request, or the result of a complete upcall: the codes of a spawn, the port of a name, or the
    /// reason of a failure.
    pub(crate) fn text(&self, upcall: UpcallId) -> &[u8] {
        let len = self.get(upcall).map_or(0, |slot| slot.len as usize);
        self.text.get(upcall.index() * self.room..).and_then(|text| text.get(..len)).unwrap_or_default()
    }

    /// Returns the maximum number of bytes that [`finish`](Upcalls::finish) stores.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Replaces the request by the result, as far as there is room. `text` is pairs of a byte and its number of
    /// repetitions.
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

    /// Returns the number of requests with such a task, without a client that waits for the answer.
    #[cfg(feature = "pmix")]
    pub(crate) fn unawaited(&self, is_it: impl Fn(Task) -> bool) -> usize {
        let unawaited = |slot: &&Upcall| slot.parent.is_some() && slot.conn.is_none() && is_it(slot.task);
        self.slots.iter().filter(unawaited).count()
    }

    /// Writes the request by `write`, which returns its length. Returns false if it does not fit.
    #[cfg(feature = "pmix")]
    pub(crate) fn fill(&mut self, upcall: UpcallId, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let start = upcall.index() * self.room;
        let Some(room) = self.text.get_mut(start..).and_then(|text| text.get_mut(..self.room)) else {
            return false;
        };
        let (Some(len), Some(slot)) = (write(room), self.slots.get_mut(upcall.index())) else { return false };
        slot.len = len as u32;
        true
    }

    /// Frees the slot.
    pub(crate) fn free(&mut self, upcall: UpcallId) {
        if let Some(slot) = self.slots.get_mut(upcall.index()) {
            *slot = Upcall::EMPTY;
        }
    }

    /// Returns the slots, and the texts of those in use, for a snapshot.
    pub(crate) fn state(&self) -> (&[Upcall], &[u8]) {
        let used = self.slots.iter().rposition(|slot| slot.parent.is_some()).map_or(0, |at| at + 1);
        (self.slots, &self.text[..used * self.room])
    }

    /// Returns the slots for restoring a snapshot.
    pub(crate) fn slots_mut(&mut self) -> &mut [Upcall] {
        self.slots
    }

    /// Restores the texts of the slots. Returns false if the lengths do not match, or exceed the room.
    pub(crate) fn load(&mut self, text: &[u8]) -> bool {
        let (_, place) = self.state();
        if place.len() != text.len() {
            return false;
        }
        self.text[..text.len()].copy_from_slice(text);
        self.slots.iter().all(|slot| slot.len as usize <= self.room)
    }
}
