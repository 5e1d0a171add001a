//! Hosts that join and leave the run, at the request of a client of the status socket.

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
    /// Hosts that have not joined or left, with the reasons.
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
        let Some((request, hosts)) = self.begin_growth(engine, client, list) else { return Ok(()) };
        for host in hosts.iter() {
            self.handle(engine, Event::HostNamed { request, host: host.clone() })?;
        }
        Ok(())
    }

    /// Has hosts leave. The client is answered when the daemons of all have ended or hosts are refused.
    pub(super) fn shrink(
        &mut self,
        engine: &mut Engine<'_>,
        client: ClientId,
        list: &str,
        force: bool,
    ) -> Result<(), RunError> {
        let Some((request, hosts)) = self.begin_growth(engine, client, list) else { return Ok(()) };
        for host in hosts.iter().map(|host| host.name.clone()) {
            self.handle(engine, Event::HostLeaves { request, host, force })?;
        }
        Ok(())
    }

    /// Notes a request about hosts. Returns its number and the hosts, unless the client is refused.
    fn begin_growth(&mut self, engine: &Engine<'_>, client: ClientId, list: &str) -> Option<(u64, Hosts)> {
        match Hosts::parse(list) {
            Ok(hosts) => {
                self.growths.latest += 1;
                let (number, awaited) = (self.growths.latest, hosts.len());
                self.growths.pending.push(Growth { number, client, awaited, refused: Vec::new() });
                Some((number, hosts))
            }
            Err(why) => {
                self.reply(engine, client, &Reply::Refused(why.to_string()));
                None
            }
        }
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

    /// A host of the request with this number has joined or left, or has not.
    pub(super) fn host_changed(
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
