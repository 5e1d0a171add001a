//! Jobs that ranks ask for.

use hydrant_core::wire::Protocol;
use hydrant_core::{Input, JobId, Limit, Rank, Time, UpcallId};
use rustix::process::Signal;

use super::Engine;
use crate::control::{Order, Report};
use crate::error::RunError;
use crate::launch::{AvailableHosts, PreparedProgram, RequestedProgram, SpawnInfoError, prepare};
use crate::plan::Program;

/// The code of a program that was not started because of others.
pub(super) const CANCELED: u8 = libc::ECANCELED as u8;

impl Engine<'_, '_> {
    /// Starts what a rank asks for, or says at once why that cannot be: either all of it is started or nothing.
    pub(super) fn spawn(
        &mut self,
        spawn: (u32, UpcallId),
        (job, rank): (JobId, Rank),
        (protocol, request): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let asked = RequestedProgram::decode(protocol, request);
        let spawner = self.jobs.get(job).filter(|job| !job.outcome.is_ending());
        let Some(spawner) = spawner.filter(|_| !self.verdict.is_interrupted()) else {
            // Nothing begins any more.
            return self.launched(spawn, false, None, &vec![CANCELED; asked.len()]);
        };
        let who = spawner.rank_name(rank.0);
        let by = spawner.program(rank.0).1;
        let (mut wanted, mut codes) = (Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        let mut full = None;
        for asked in &asked {
            match self.find(asked, by) {
                Ok(found) => {
                    wanted.push(found);
                    codes.push(CANCELED);
                }
                Err((code, reason)) => {
                    codes.push(code);
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            let spawner = spawner.name.clone();
            match self.open_spawned(wanted, spawn, spawner, (protocol, request)) {
                // The spawner hears of it when all ranks have been started.
                Ok(()) => return Ok(()),
                Err(error) if error.is_plugins() => return Err(error),
                Err(error) => {
                    codes.fill(error.errno());
                    full = error.limit();
                    reasons.push(error.with_hint());
                }
            }
        }
        for reason in reasons {
            self.sinks.say(&format!("nothing is spawned for {who}: {reason}"));
        }
        self.launched(spawn, false, full, &codes)
    }

    /// The program that is asked for, found and checked; otherwise its code and the reason.
    fn find(&self, asked: &RequestedProgram, spawner: &Program) -> Result<Wanted, (u8, String)> {
        let failed = |error: SpawnInfoError| (error.errno(), format!("{}: {error}", asked.command.display()));
        if self.nodes.is_some() {
            let (program, hosts) = self.there(|there| asked.program(spawner, there)).map_err(failed)?;
            // Its file is looked for where it is to run.
            return Ok(Wanted { program, hosts, checked: None });
        }
        let found = AvailableHosts::alone(&self.host, |there| asked.program(spawner, there));
        let (program, hosts) = found.map_err(failed)?;
        let checked =
            prepare(&program).map_err(RunError::from).map_err(|error| (error.errno(), error.with_hint()))?;
        Ok(Wanted { program, hosts, checked: Some(checked) })
    }

    fn open_spawned(
        &mut self,
        wanted: Vec<Wanted>,
        spawn: (u32, UpcallId),
        spawner: String,
        request: (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        if self.nodes.is_some() {
            return self.spawn_on_nodes(wanted, spawn, spawner, request);
        }
        let (programs, checked): (Vec<_>, Vec<_>) =
            wanted.into_iter().map(|wanted| (wanted.program, wanted.checked)).unzip();
        self.open_job(programs, checked.into_iter().flatten().collect(), Some(spawn.1)).map(drop)
    }

    /// All ranks of a job, or all those of this node, have been started.
    pub(super) fn started(&mut self, id: JobId) -> Result<(), RunError> {
        let job = &mut self.jobs[id];
        if job.undone.is_some() || job.outcome.is_ending() {
            return Ok(());
        }
        self.report_up(&Report::Started(id));
        let job = &mut self.jobs[id];
        let Some(spawn) = job.spawn.take() else { return Ok(()) };
        let codes = vec![0; job.programs.len()];
        self.launched(spawn, true, None, &codes)?;
        self.outputs()
    }

    /// A rank of a spawned job could not be started: those that were are ended.
    pub(super) fn undo(&mut self, id: JobId, rank: u32, error: &RunError) {
        let job = &mut self.jobs[id];
        let mut codes = vec![CANCELED; job.programs.len()];
        codes[job.program(rank).0 as usize] = error.errno();
        job.undone = Some(codes);
        job.next = job.ranks;
        let processes = job.processes();
        self.procs.signal(processes, Signal::KILL);
        self.sinks.say(&format!(
            "spawned job {} is ended before it began: {}",
            self.jobs[id].ordinal,
            error.with_hint()
        ));
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
        (node, upcall): (u32, UpcallId),
        started: bool,
        full: Option<Limit>,
        codes: &[u8],
    ) -> Result<(), RunError> {
        if node != self.node() {
            self.order(node, &Order::Launched { upcall, started, full, codes: codes.to_vec() });
            return Ok(());
        }
        let now = Time(self.now());
        self.core.handle(now, Input::SpawnComplete { spawn: upcall, started, full, codes })?;
        Ok(())
    }
}

/// A program that is to be spawned.
pub(super) struct Wanted {
    pub(super) program: Program,
    /// Where it may run; anywhere when empty.
    pub(super) hosts: Vec<String>,
    checked: Option<PreparedProgram>,
}
