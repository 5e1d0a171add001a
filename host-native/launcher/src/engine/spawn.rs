//! Jobs that ranks ask for.

use hydrant_core::{ErrandId, Input, JobId, Limit, Rank, Time};
use rustix::process::Signal;

use super::Engine;
use crate::error::RunError;
use crate::launch::{Asked, Checked, check};
use crate::plan::Program;

/// The code of a program that was not started because of others.
const CANCELED: u8 = libc::ECANCELED as u8;

impl Engine<'_, '_> {
    /// Starts what a rank asks for, or says at once why that cannot be: either all of it is started or nothing.
    pub(super) fn spawn(
        &mut self,
        spawn: ErrandId,
        (job, rank): (JobId, Rank),
        asked: &[Asked],
    ) -> Result<(), RunError> {
        let spawner = self.jobs.get(job).filter(|job| !job.outcome.is_ending());
        let Some(spawner) = spawner.filter(|_| !self.verdict.is_interrupted()) else {
            // Nothing begins any more.
            return self.launched(spawn, false, None, &vec![CANCELED; asked.len()]);
        };
        let who = spawner.rank_name(rank.0);
        let by = &spawner.programs[spawner.launcher.program(rank.0).0 as usize];
        let (mut programs, mut checked, mut codes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        let mut full = None;
        for asked in asked {
            match prepare(asked, by, &self.host) {
                Ok((program, found)) => {
                    programs.push(program);
                    checked.push(found);
                    codes.push(CANCELED);
                }
                Err((code, reason)) => {
                    codes.push(code);
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            match self.open_job(programs, checked, Some(spawn)) {
                // The spawner hears of it when all ranks have been started.
                Ok(_) => return Ok(()),
                Err(error) => {
                    codes.fill(error.errno());
                    full = error.limit();
                    reasons.push(error.to_string());
                }
            }
        }
        for reason in reasons {
            self.sinks.say(&format!("nothing is spawned for {who}: {reason}"));
        }
        self.launched(spawn, false, full, &codes)
    }

    /// All ranks of a job have been started.
    pub(super) fn started(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        if job.undone.is_some() || job.outcome.is_ending() {
            return Ok(());
        }
        let Some(spawn) = job.spawn.take() else { return Ok(()) };
        let codes = vec![0; job.programs.len()];
        self.launched(spawn, true, None, &codes)?;
        self.outputs()
    }

    /// A rank of a spawned job could not be started: those that were are ended.
    pub(super) fn undo(&mut self, id: JobId, rank: u32, error: &RunError) {
        let job = &mut self.jobs[id];
        let mut codes = vec![CANCELED; job.programs.len()];
        codes[job.launcher.program(rank).0 as usize] = error.errno();
        job.undone = Some(codes);
        job.next = job.ranks;
        self.procs.signal(job.processes(), Signal::KILL);
        self.sinks.say(&format!("spawned job {} is ended before it began: {error}", self.jobs[id].ordinal));
    }

    /// A job is over, and whoever still waits for it to begin is told so.
    pub(super) fn tell_undone(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        if let Some(spawn) = job.spawn.take() {
            let codes = job.undone.clone().unwrap_or_else(|| vec![CANCELED; job.programs.len()]);
            self.launched(spawn, false, None, &codes)?;
        }
        self.outputs()
    }

    fn launched(
        &mut self,
        spawn: ErrandId,
        started: bool,
        full: Option<Limit>,
        codes: &[u8],
    ) -> Result<(), RunError> {
        let now = Time(self.now());
        self.server.handle(now, Input::Launched { spawn, started, full, codes })?;
        Ok(())
    }
}

/// The program that is asked for, found and checked; otherwise its code and the reason.
fn prepare(asked: &Asked, spawner: &Program, host: &str) -> Result<(Program, Checked), (u8, String)> {
    let program = asked
        .program(spawner, host)
        .map_err(|error| (error.errno(), format!("{}: {error}", asked.command.display())))?;
    let checked = check(&program).map_err(|error| (error.errno(), error.to_string()))?;
    Ok((program, checked))
}
