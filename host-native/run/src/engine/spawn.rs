//! Programs of spawned jobs, as the head reads them.

use std::ffi::OsStr;

use hydrant_control::{Event as HeadEvent, RequestId, SpawnProgram, Stopped};
use hydrant_core::wire::Protocol;
use hydrant_placement::{Host, Hosts, position};
use hydrant_start::{AvailableHosts, RequestedProgram, SpawnInfoError, WantedProgram, prepare};

use super::grow::Refused;
use super::{Engine, Head, open};
use crate::error::RunError;
use crate::plan::Program;

/// Hosts that a list in a message names at most.
const NAMED_MAX: usize = 8;
/// The code for a rank that spawns on a host that is refused.
const UNREACHABLE: u8 = libc::EHOSTUNREACH as u8;

/// A program of a spawn that has been read, or the code for its rank and the reason why it cannot be started.
pub(super) type Wanted = Result<WantedProgram, (u8, String)>;

impl Head {
    /// Reads the programs of a spawn. The request is answered when the hosts that they add have joined.
    pub(super) fn resolve_spawn(
        &mut self,
        engine: &mut Engine<'_>,
        request: RequestId,
        spawner: &Program,
        (protocol, body): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let (programs, added) =
            self.read_programs(engine, &RequestedProgram::decode(protocol, body), spawner);
        self.spawn_with_hosts(engine, added.as_slice(), move |head, engine, refused| {
            let nonce = open::nonce()?;
            let programs = head.find_programs(engine, programs, refused);
            head.answer(engine, HeadEvent::SpawnResolved { request, nonce, programs })
        })
    }

    /// Reads programs, each as `spawner` in what the request leaves open. Returns also the hosts that are to join before they are
    /// started: none if one of the programs cannot be started anyway.
    pub(super) fn read_programs(
        &self,
        engine: &Engine<'_>,
        asked: &[RequestedProgram],
        spawner: &Program,
    ) -> (Vec<Wanted>, Hosts) {
        let mut added = Hosts::default();
        let mut read = |asked: &RequestedProgram| {
            let wanted = asked.read(spawner)?;
            let own = self.with_hosts(engine, &[], |available| wanted.added(available))?;
            added.add_of_program(&own).map_err(SpawnInfoError::Added)?;
            Ok(wanted)
        };
        let read: Vec<_> = asked.iter().map(|asked| (&asked.command, read(asked))).collect();
        let programs: Vec<Wanted> = self.with_hosts(engine, added.as_slice(), |available| {
            let check = |wanted: WantedProgram| wanted.hosts(available).map(|_| wanted);
            read.into_iter()
                .map(|(command, read)| read.and_then(check).map_err(|why| failure(command, &why)))
                .collect()
        });
        if programs.iter().any(Result::is_err) {
            added = Hosts::default();
        }
        (programs, added)
    }

    /// Finds the hosts of programs. Those that add a host that is refused cannot be started.
    pub(super) fn find_programs(
        &self,
        engine: &Engine<'_>,
        programs: Vec<Wanted>,
        refused: &[Refused],
    ) -> Vec<Result<SpawnProgram, (u8, String)>> {
        let is_alone = engine.is_alone();
        self.with_hosts(engine, &[], |available| {
            programs.into_iter().map(|wanted| find(wanted?, available, refused, is_alone)).collect()
        })
    }

    /// Calls a function with the hosts of the run and those that are to join.
    fn with_hosts<T>(
        &self,
        engine: &Engine<'_>,
        added: &[Host],
        call: impl FnOnce(&AvailableHosts<'_>) -> T,
    ) -> T {
        let name = |hosts: &[Host], name: &[u8]| position(hosts, name).map(|at| hosts[at].name.clone());
        if engine.is_alone() {
            return AvailableHosts::alone(&engine.host, |here| {
                let find = |host: &[u8]| (here.find)(host).or_else(|| name(added, host));
                call(&AvailableHosts { find: &find, description: here.description.clone() })
            });
        }
        let hosts = self.control.hosts();
        let find = |host: &[u8]| name(hosts, host).or_else(|| name(added, host));
        let names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(|host| host.name.as_str()).collect();
        let more = if hosts.len() > names.len() { ", ..." } else { "" };
        let description = format!("this run's hosts are {}{more}", names.join(", "));
        call(&AvailableHosts { find: &find, description })
    }
}

/// The code for the rank that spawns a program which cannot be started, and the reason.
fn failure(command: &OsStr, why: &SpawnInfoError) -> (u8, String) {
    (why.errno(), format!("{}: {why}", command.display()))
}

/// Finds the hosts of a program. If it runs on this machine alone, checks its file, so that a failure is that of this program.
fn find(
    wanted: WantedProgram,
    available: &AvailableHosts<'_>,
    refused: &[Refused],
    is_alone: bool,
) -> Result<SpawnProgram, (u8, String)> {
    let failed = |why: SpawnInfoError| failure(&wanted.program.command, &why);
    let added = wanted.added(available).map_err(failed)?;
    if let Some(host) = refused.iter().find(|refused| added.iter().any(|host| host.name == refused.host)) {
        let why = format!("{}: {}", wanted.program.command.display(), host.why);
        return Err((UNREACHABLE, why));
    }
    let hosts = wanted.hosts(available).map_err(failed)?;
    if is_alone {
        let failed = |error: RunError| (error.errno(), error.with_hint());
        prepare(&wanted.program).map_err(|error| failed(error.into()))?;
    }
    Ok(SpawnProgram { program: wanted.program, hosts, spread: None, stopped: Stopped::No })
}
