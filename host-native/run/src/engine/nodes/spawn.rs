//! Programs of spawned jobs, as the head reads them.

use hydrant_control::{RequestId, SpawnProgram};
use hydrant_core::wire::Protocol;
use hydrant_launch::{AvailableHosts, RequestedProgram};
use hydrant_placement::{Host, position};

use super::super::spawn::resolve;
use super::super::{Engine, open};
use crate::error::RunError;
use crate::plan::Program;

/// Hosts that a list in a message names at most.
const NAMED_MAX: usize = 8;

impl Engine<'_, '_> {
    /// Reads the programs of a spawn. Their files are looked up on the hosts that run them.
    pub(super) fn resolve_spawn(
        &mut self,
        request: RequestId,
        spawner: &Program,
        (protocol, body): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let nonce = open::random()?;
        let Some(head) = self.head() else { return Ok(()) };
        let programs: Vec<Result<SpawnProgram, _>> = with_hosts(head.control.hosts(), |available| {
            RequestedProgram::decode(protocol, body)
                .iter()
                .map(|asked| resolve(asked, spawner, available))
                .collect()
        });
        self.answer(hydrant_control::Event::SpawnResolved { request, nonce, programs })
    }
}

/// Calls a function with the hosts of the run.
fn with_hosts<T>(hosts: &[Host], call: impl FnOnce(&AvailableHosts<'_>) -> T) -> T {
    let host = |name: &[u8]| position(hosts, name).map(|at| hosts[at].name.clone());
    let names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(|host| host.name.as_str()).collect();
    let more = if hosts.len() > names.len() { ", ..." } else { "" };
    let description = format!("this run's hosts are {}{more}", names.join(", "));
    call(&AvailableHosts { find: &host, description })
}
