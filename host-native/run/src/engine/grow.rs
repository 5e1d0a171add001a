//! Hosts that join the run, at the request of a client of the status socket.

use hydrant_control::Event;
use hydrant_placement::{Host, Hosts};
use hydrant_status::{ClientId, Reply};

use super::{Engine, Head};
use crate::error::RunError;

/// Requests under way.
#[derive(Default)]
pub(super) struct Growths {
    pending: Vec<Growth>,
    /// Number of the latest request.
    latest: u64,
}

/// Hosts of one request.
struct Growth {
    number: u64,
    client: ClientId,
    /// Number of hosts without an answer.
    awaited: usize,
    /// Hosts that have not joined, with the reasons.
    refused: Vec<String>,
}

impl Head<'_> {
    /// Starts the daemons of hosts. The client is answered when all have joined or have failed.
    pub(super) fn grow(
        &mut self,
        engine: &mut Engine<'_>,
        client: ClientId,
        list: &str,
    ) -> Result<(), RunError> {
        let hosts = match Hosts::parse(list) {
            Ok(hosts) => hosts,
            Err(why) => {
                self.reply(engine, client, &Reply::Refused(why.to_string()));
                return Ok(());
            }
        };
        self.growths.latest += 1;
        let number = self.growths.latest;
        self.growths.pending.push(Growth { number, client, awaited: hosts.len(), refused: Vec::new() });
        for host in hosts.iter() {
            self.handle(engine, Event::HostNamed { request: number, host: host.clone() })?;
        }
        Ok(())
    }

    /// Starts the daemon of a host that is to join.
    pub(super) fn start_daemon(
        &mut self,
        engine: &mut Engine<'_>,
        node: u32,
        host: &Host,
    ) -> Result<(), RunError> {
        let now = engine.now();
        let started = match (&mut engine.nodes, self.bootstrap.check_user(host)) {
            (Some(nodes), Ok(())) => {
                nodes.grow(node, (&engine.host, host), now, &engine.files, &engine.poller)
            }
            (None, _) => return Ok(()),
            (_, Err(why)) => Err(RunError::from(why)),
        };
        match started {
            Ok(()) => Ok(()),
            Err(why) => {
                let reason = why.with_hint();
                self.answer(engine, Event::NodesLost { nodes: node..node + 1, reason })
            }
        }
    }

    /// A host of the request with this number has joined, or has not.
    pub(super) fn host_joined(
        &mut self,
        engine: &Engine<'_>,
        number: u64,
        host: &str,
        result: Result<u32, String>,
    ) {
        let pending = &mut self.growths.pending;
        let Some(at) = pending.iter().position(|growth| growth.number == number) else { return };
        let growth = &mut pending[at];
        growth.awaited -= 1;
        // The failure of a daemon names its host.
        let is_named = |why: &str| why.starts_with(&format!("host {host} "));
        growth.refused.extend(result.err().map(|why| match is_named(&why) {
            true => why,
            false => format!("host {host}: {why}"),
        }));
        if growth.awaited == 0 {
            let Growth { client, refused, .. } = pending.swap_remove(at);
            let reply = if refused.is_empty() { Reply::Done } else { Reply::Refused(refused.join("; ")) };
            self.reply(engine, client, &reply);
        }
    }
}
