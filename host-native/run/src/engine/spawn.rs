//! Jobs that ranks of this machine spawn.

use hydrant_control::SpawnProgram;
use hydrant_control::protocol::{CANCELED, Program, SpawnOrigin};
use hydrant_core::wire::Protocol;
use hydrant_core::{Input, JobId, Limit, Rank, Time, UpcallId};
use hydrant_launch::{AvailableHosts, PreparedProgram, RequestedProgram, SpawnInfoError, prepare};
use rustix::process::Signal;

use super::Engine;
use super::open::ALONE;
use crate::error::RunError;

/// Resolves the program of a spawn. On failure returns the code for its rank and the reason.
pub(super) fn resolve(
    asked: &RequestedProgram,
    spawner: &Program,
    available: &AvailableHosts<'_>,
) -> Result<SpawnProgram, (u8, String)> {
    let failed = |error: SpawnInfoError| (error.errno(), format!("{}: {error}", asked.command.display()));
    let (program, hosts) = asked.program(spawner, available).map_err(failed)?;
    Ok(SpawnProgram { program, hosts })
}

impl Engine<'_, '_> {
    /// Starts a spawn on this machine, or refuses all of it.
    pub(super) fn spawn(
        &mut self,
        spawn: UpcallId,
        (job, rank): (JobId, Rank),
        (protocol, request): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let asked = RequestedProgram::decode(protocol, request);
        let spawner = self.jobs.get(job).filter(|job| !job.is_ending());
        let Some(spawner) = spawner.filter(|_| !self.status.is_interrupted()) else {
            // No further job starts.
            return self.spawn_complete(spawn, false, None, &vec![CANCELED; asked.len()]);
        };
        let (ranks, jobid) = (spawner.size(), spawner.name.clone());
        let origin =
            SpawnOrigin { node: ALONE, upcall: spawn, job, ranks, rank, spawner: jobid, preput: Vec::new() };
        let name = spawner.rank_name(rank.0);
        let by = spawner.program(rank.0).1;
        let (mut programs, mut checked, mut codes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        let mut full = None;
        for asked in &asked {
            match self.find(asked, by) {
                Ok((program, file)) => {
                    programs.push(program);
                    checked.push(file);
                    codes.push(CANCELED);
                }
                Err((code, reason)) => {
                    codes.push(code);
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            let jobid = self.next_job_name()?;
            match self.open_job(jobid, (programs, checked), Some(origin)) {
                // Answered once all ranks have been started.
                Ok(_) => return Ok(()),
                Err(error) if error.is_plugins() => return Err(error),
                Err(error) => {
                    codes.fill(error.errno());
                    full = error.limit();
                    reasons.push(error.with_hint());
                }
            }
        }
        for reason in reasons {
            self.sinks.print(&format!("nothing is spawned for {name}: {reason}"));
        }
        self.spawn_complete(spawn, false, full, &codes)
    }

    /// Finds and checks the requested program. On failure returns its code and the reason.
    fn find(
        &self,
        asked: &RequestedProgram,
        spawner: &Program,
    ) -> Result<(Program, PreparedProgram), (u8, String)> {
        let found = AvailableHosts::alone(&self.host, |available| resolve(asked, spawner, available))?;
        let prepared = prepare(&found.program).map_err(RunError::from);
        let prepared = prepared.map_err(|error| (error.errno(), error.with_hint()))?;
        Ok((found.program, prepared))
    }

    /// Handles the start of all ranks of a job on this machine.
    pub(super) fn job_started(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        if job.is_ending() {
            return Ok(());
        }
        let Some(((_, spawn), failed)) = job.all_started() else { return Ok(()) };
        let codes = vec![0; job.programs.len()];
        failed.into_iter().for_each(|code| self.status.record_failure(code));
        self.spawn_complete(spawn, true, None, &codes)?;
        self.outputs()
    }

    /// Handles a failed start of a rank of a spawned job. The started ranks are killed.
    pub(super) fn cancel(&mut self, id: JobId, rank: u32, error: &RunError) {
        let job = &mut self.jobs[id];
        let (appnum, ordinal) = (job.program(rank).0, job.ordinal);
        job.cancel(Some(appnum), error.errno());
        job.run.stop_starting();
        self.procs.signal(job.slots(), Signal::KILL);
        self.sinks.print(&format!("spawned job {ordinal} is ended before it began: {}", error.with_hint()));
    }

    /// Refuses the spawn of a job that has ended before it started.
    pub(super) fn refuse_spawn(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        if let Some((_, spawn)) = job.spawn.take() {
            let codes = job.codes();
            self.spawn_complete(spawn, false, None, &codes)?;
        }
        self.outputs()
    }

    fn spawn_complete(
        &mut self,
        spawn: UpcallId,
        started: bool,
        full: Option<Limit>,
        codes: &[u8],
    ) -> Result<(), RunError> {
        let now = Time(self.now());
        self.core.handle(now, Input::SpawnComplete { spawn, started, full, codes })?;
        Ok(())
    }
}
