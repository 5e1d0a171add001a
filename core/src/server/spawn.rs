//! Spawns: a rank asks, the host starts, the rank is told.

use heapless::{String, Vec};

use super::Server;
use super::dispatch::{Asker, contiguous};
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, SpawnId};
use crate::limits::{JOBID_MAX, KEY_MAX, SPAWN_PROGRAMS_MAX};
use crate::slabs::{Answer, What};
use crate::tables::kvs::Kind;
use crate::tables::spawn::Stage;
use crate::wire::{self, Frame, Protocol, Spawn};

impl Server<'_> {
    /// Keeps the request as it came, so that the host can read it, until the reply is taken.
    pub(super) fn spawn(
        &mut self,
        asker: Asker,
        spawn: &Spawn<'_>,
        frame: &Frame<'_>,
    ) -> Result<What, Refusal> {
        if spawn.count() > SPAWN_PROGRAMS_MAX {
            return Err(Refusal::Programs);
        }
        let spawner = self.jobs[asker.job.index()].name.clone();
        let id = self.spawns.ask((asker.job, asker.rank), spawner, asker.conn, spawn.count(), frame.body)?;
        self.news = true;
        Ok(What::Spawn(id))
    }

    /// Whether a job of `size` ranks can come from that spawn, with its pairs; the name of the job that asked.
    pub(super) fn check_spawned(&self, spawn: SpawnId, size: u32) -> Result<String<JOBID_MAX, u8>, Fault> {
        let slot = self.spawns.get(spawn).filter(|slot| slot.stage == Stage::Told);
        let spawner = slot.map(|slot| slot.spawner.clone()).ok_or(Fault::NoSuchSpawn)?;
        let request = self.request(spawn).ok_or(Fault::NoSuchSpawn)?;
        let lengths = request.preput().map(|(key, value)| (key.len(), value.len()));
        self.kvs.check(size, lengths).map_err(|why| match why {
            Refusal::Full(limit, size) => Fault::Full(limit, size),
            _ => Fault::BadAttribute,
        })?;
        Ok(spawner)
    }

    /// Puts the spawn's pairs into its job's space.
    pub(super) fn begin_spawned(&mut self, spawn: SpawnId, job: JobId) {
        let protocol = self.protocol_of(spawn);
        let state = &self.jobs[job.index()];
        if let Some(slot) = self.spawns.get_mut(spawn) {
            slot.stage = Stage::Begun(job);
            slot.name = state.name.clone();
        }
        let Some(request) = wire::decode_spawn(protocol, self.spawns.text(spawn)) else { return };
        for (key, value) in request.preput() {
            let mut room = [0; KEY_MAX as usize];
            // Both were checked before the job was made.
            if let Ok(key) = contiguous(&key, &mut room) {
                let _ = self.kvs.put((state.spaces, Kind::Kvs), None, key, Some(value.parts()));
            }
        }
    }

    pub(super) fn launched(&mut self, spawn: SpawnId, started: bool, codes: &[u8]) -> Result<(), Fault> {
        let slot = self.spawns.get(spawn).ok_or(Fault::NoSuchSpawn)?;
        let conn = slot.conn;
        let in_order = match slot.stage {
            Stage::Begun(_) => true,
            Stage::Told => !started,
            Stage::Asked | Stage::Done(_) => false,
        };
        if !in_order || codes.len() != slot.programs as usize {
            return Err(Fault::NoSuchSpawn);
        }
        let times = self.code_counts(spawn);
        self.spawns.finish(spawn, started, codes.iter().copied().zip(times));
        match conn {
            Some(conn) => {
                for owed in &mut self.conns[conn.index()].owed {
                    if owed.what == What::Spawn(spawn) {
                        owed.what = What::Answer(Answer::Spawned(spawn));
                    }
                }
                self.check_ready(conn);
            }
            None => self.spawns.free(spawn),
        }
        Ok(())
    }

    /// How often each program's code is said: PMI-2 clients want one a program, those of PMI-1 one a process.
    fn code_counts(&self, spawn: SpawnId) -> Vec<u32, { SPAWN_PROGRAMS_MAX as usize }, u16> {
        let by_process = self.protocol_of(spawn) == Protocol::V1;
        let count = |maxprocs| if by_process { maxprocs } else { 1 };
        let mut counts = Vec::new();
        for program in self.request(spawn).iter().flat_map(Spawn::programs) {
            // No more programs than that are taken.
            let _ = counts.push(count(program.maxprocs()));
        }
        counts
    }

    /// Nobody waits for the spawn's reply any more.
    pub(super) fn drop_spawn(&mut self, spawn: SpawnId) {
        let Some(slot) = self.spawns.get_mut(spawn) else { return };
        slot.conn = None;
        // What the host does not know of, or is done with, is over.
        if matches!(slot.stage, Stage::Asked | Stage::Done(_)) {
            self.spawns.free(spawn);
        }
    }

    /// The language of a request, which its first bytes tell.
    pub(super) fn protocol_of(&self, spawn: SpawnId) -> Protocol {
        if self.spawns.text(spawn).starts_with(b"mcmd=") { Protocol::V1 } else { Protocol::V2 }
    }

    fn request(&self, spawn: SpawnId) -> Option<Spawn<'_>> {
        wire::decode_spawn(self.protocol_of(spawn), self.spawns.text(spawn))
    }
}
