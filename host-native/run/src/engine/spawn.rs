//! Programs of spawned jobs, as the head reads them.

use hydrant_control::{Event as HeadEvent, RequestId, SpawnProgram, Stopped};
use hydrant_core::wire::Protocol;
use hydrant_placement::{Host, position};
use hydrant_start::{AvailableHosts, RequestedProgram, SpawnInfoError, prepare};

use super::{Engine, Head, open};
use crate::error::RunError;
use crate::plan::Program;

/// Hosts that a list in a message names at most.
const NAMED_MAX: usize = 8;

impl Head<'_> {
    /// Reads the programs of a spawn. Their files are looked up on the hosts that run them.
    pub(super) fn resolve_spawn(
        &mut self,
        engine: &Engine<'_>,
        request: RequestId,
        spawner: &Program,
        (protocol, body): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let nonce = open::nonce()?;
        let asked = RequestedProgram::decode(protocol, body);
        let programs = self.find_programs(engine, &asked, spawner);
        self.answer(engine, HeadEvent::SpawnResolved { request, nonce, programs })
    }

    /// Finds programs, each as `spawner` in what the request leaves open.
    pub(super) fn find_programs(
        &self,
        engine: &Engine<'_>,
        asked: &[RequestedProgram],
        spawner: &Program,
    ) -> Vec<Result<SpawnProgram, (u8, String)>> {
        if engine.is_alone() {
            AvailableHosts::alone(&engine.host, |available| {
                asked.iter().map(|asked| find(asked, spawner, available)).collect()
            })
        } else {
            with_hosts(self.control.hosts(), |available| {
                asked.iter().map(|asked| resolve(asked, spawner, available)).collect()
            })
        }
    }
}

/// Resolves the program of a spawn. On failure returns the code for its rank and the reason.
fn resolve(
    asked: &RequestedProgram,
    spawner: &Program,
    available: &AvailableHosts<'_>,
) -> Result<SpawnProgram, (u8, String)> {
    let failed = |error: SpawnInfoError| (error.errno(), format!("{}: {error}", asked.command.display()));
    let (program, hosts) = asked.program(spawner, available).map_err(failed)?;
    Ok(SpawnProgram { program, hosts, spread: None, stopped: Stopped::No })
}

/// Resolves a program that runs on this machine, and checks its file, so that a failure is that of this program.
fn find(
    asked: &RequestedProgram,
    spawner: &Program,
    available: &AvailableHosts<'_>,
) -> Result<SpawnProgram, (u8, String)> {
    let found = resolve(asked, spawner, available)?;
    let failed = |error: RunError| (error.errno(), error.with_hint());
    prepare(&found.program).map_err(|error| failed(error.into()))?;
    Ok(found)
}

/// Calls a function with the hosts of the run.
fn with_hosts<T>(hosts: &[Host], call: impl FnOnce(&AvailableHosts<'_>) -> T) -> T {
    let host = |name: &[u8]| position(hosts, name).map(|at| hosts[at].name.clone());
    let names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(|host| host.name.as_str()).collect();
    let more = if hosts.len() > names.len() { ", ..." } else { "" };
    let description = format!("this run's hosts are {}{more}", names.join(", "));
    call(&AvailableHosts { find: &host, description })
}
