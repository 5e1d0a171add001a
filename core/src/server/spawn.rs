//! Spawn requests.

use heapless::{String, Vec};

use super::Server;
use super::dispatch::{Requester, contiguous};
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, UpcallId};
use crate::limits::{JOBID_MAX, KEY_MAX, Limit, SPAWN_PROGRAMS_MAX};
use crate::state::{ReplyState, Response};
use crate::tables::kvs::{Kind, Usage};
use crate::tables::upcalls::{Stage, Task};
use crate::wire::{self, Frame, Op, Protocol, Spawn};

/// Bytes of the reply to a PMI-1 spawn without its codes, at most.
const SPAWN_REPLY: usize = 64;

impl Server<'_> {
    /// Stores the request as received for the host, until its reply is taken.
    pub(super) fn spawn(
        &mut self,
        requester: Requester,
        spawn: &Spawn<'_>,
        frame: &Frame<'_>,
    ) -> Result<ReplyState, Refusal> {
        if spawn.count() > SPAWN_PROGRAMS_MAX {
            return Err(Refusal::Programs);
        }
        self.check_codes(requester.conn, spawn)?;
        let task = Task::Spawn(spawn.count());
        let spawner = self.jobs[requester.job.index()].name.clone();
        let id =
            self.upcalls.ask((requester.job, requester.rank), spawner, requester.conn, task, frame.body)?;
        self.events_pending = true;
        Ok(ReplyState::Upcall(Op::Spawn, id))
    }

    /// Checks that the reply to a spawn that succeeds fits. A PMI-1 reply has a code of two bytes for each process.
    fn check_codes(&self, conn: ConnId, spawn: &Spawn<'_>) -> Result<(), Refusal> {
        let processes: u64 = spawn.programs().map(|program| u64::from(program.maxprocs())).sum();
        let codes = (self.limits.reply_max() - SPAWN_REPLY) / 2;
        let is_v1 = self.conn(conn).is_ok_and(|conn| conn.protocol == Protocol::V1);
        if is_v1 && self.upcalls.take_spawns() && processes > codes.min(self.upcalls.room()) as u64 {
            return Err(Refusal::Full(Limit::SpawnBytes, self.limits.spawn_bytes));
        }
        Ok(())
    }

    /// Checks that a job of `size` ranks and the pairs of the spawn fit. Returns the job id of the requesting job, and the cost of
    /// the pairs.
    pub(super) fn check_spawned(
        &self,
        spawn: UpcallId,
        size: u32,
    ) -> Result<(String<JOBID_MAX, u8>, Usage), Fault> {
        let slot = self.upcalls.get(spawn).filter(|slot| slot.stage == Stage::Passed);
        let spawner = slot.map(|slot| slot.spawner.clone()).ok_or(Fault::NoSuchUpcall)?;
        let request = self.request(spawn).ok_or(Fault::NoSuchUpcall)?;
        let lengths = request.preput().map(|(key, value)| (key.len(), value.len()));
        let pairs = self.kvs.check(size, lengths).map_err(|why| self.fault(why, Fault::BadAttribute))?;
        Ok((spawner, pairs))
    }

    /// Stores the pairs of the spawn in the new job's key-value space.
    pub(super) fn begin_spawned(&mut self, spawn: UpcallId, job: JobId) {
        let protocol = self.protocol_of(spawn);
        let state = &self.jobs[job.index()];
        if let Some(slot) = self.upcalls.get_mut(spawn) {
            slot.stage = Stage::Begun(job);
            slot.name = state.name.clone();
        }
        let Some(request) = wire::decode_spawn(protocol, self.upcalls.text(spawn)) else { return };
        for (key, value) in request.preput() {
            let mut room = [0; KEY_MAX as usize];
            // `check_spawned` has checked both.
            if let Ok(key) = contiguous(&key, &mut room) {
                let _ = self.kvs.put((state.spaces, Kind::Kvs), None, key, Some(value.parts()));
            }
        }
    }

    // As a part of the caller, the counts would take stack from every input.
    #[inline(never)]
    pub(super) fn complete_spawn(
        &mut self,
        spawn: UpcallId,
        started: bool,
        full: Option<Limit>,
        codes: &[u8],
    ) -> Result<(), Fault> {
        let slot = self.upcalls.get(spawn).ok_or(Fault::NoSuchUpcall)?;
        let programs = match slot.task {
            Task::Spawn(programs) => programs,
            _ => return Err(Fault::NoSuchUpcall),
        };
        let in_order = match slot.stage {
            Stage::Begun(_) => true,
            Stage::Passed => !started,
            _ => false,
        };
        if !in_order || codes.len() != programs as usize {
            return Err(Fault::NoSuchUpcall);
        }
        let mut times = Vec::new();
        self.count_codes(spawn, &mut times);
        if let Some(slot) = self.upcalls.get_mut(spawn) {
            slot.full = full;
        }
        self.upcalls.finish(
            spawn,
            Stage::Launched(started),
            codes.iter().copied().zip(times.iter().copied()),
        );
        self.respond_to_upcall(spawn, |op| Response::Upcall(op, spawn));
        Ok(())
    }

    /// Counts how often each program's code occurs in the reply: once for PMI-2 clients, once per process for PMI-1
    /// clients.
    fn count_codes(&self, spawn: UpcallId, counts: &mut Vec<u32, { SPAWN_PROGRAMS_MAX as usize }, u16>) {
        let by_process = self.protocol_of(spawn) == Protocol::V1;
        let count = |maxprocs| if by_process { maxprocs } else { 1 };
        for program in self.request(spawn).iter().flat_map(Spawn::programs) {
            // `spawn` refuses requests with more programs.
            let _ = counts.push(count(program.maxprocs()));
        }
    }

    pub(super) fn request(&self, spawn: UpcallId) -> Option<Spawn<'_>> {
        wire::decode_spawn(self.protocol_of(spawn), self.upcalls.text(spawn))
    }
}
