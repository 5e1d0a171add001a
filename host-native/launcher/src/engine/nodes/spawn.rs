//! Where spawned ranks go: to the hosts that are named, or to the next free slots, by the daemons that are there.

use hydrant_core::UpcallId;
use hydrant_core::wire::{Protocol, Text, decode_spawn};
use hydrant_placement::{Host, Hosts, JobMap, MappingPolicy, is_name_of, process_mapping};

use super::super::Engine;
use super::super::spawn::Wanted;
use crate::control::{Place, Spawned};
use crate::error::RunError;
use crate::launch::AvailableHosts;

impl Engine<'_, '_> {
    /// With the hosts that can be started on: those of this run.
    pub(in super::super) fn there<T>(&self, with: impl FnOnce(&AvailableHosts<'_>) -> T) -> T {
        let hosts = self.head().map_or(&[][..], |head| &head.hosts);
        let host = |name: &[u8]| {
            let known = |host: &&Host| host.name.as_bytes() == name;
            // Shorter names, and this machine's, where nothing is called that.
            let meant = |host: &&Host| is_name_of(name, &host.name) && !is_loopback(name);
            hosts.iter().find(known).or_else(|| hosts.iter().find(meant)).map(|host| host.name.clone())
        };
        let names: Vec<&str> = hosts.iter().take(8).map(|host| host.name.as_str()).collect();
        let more = if hosts.len() > names.len() { ", ..." } else { "" };
        let text = format!("this run's hosts are {}{more}", names.join(", "));
        with(&AvailableHosts { find: &host, description: text })
    }

    /// Begins a spawned job on the nodes.
    pub(in super::super) fn spawn_on_nodes(
        &mut self,
        wanted: Vec<Wanted>,
        (node, upcall): (u32, UpcallId),
        spawner: String,
        (protocol, request): (Protocol, &[u8]),
    ) -> Result<(), RunError> {
        let places = self.place(&wanted)?;
        let mapping = process_mapping(&runs(&places))?;
        let programs = wanted.into_iter().map(|wanted| wanted.program).collect();
        let text = |text: Text<'_>| text.parts().flatten().copied().collect::<Vec<u8>>();
        let spawn = decode_spawn(protocol, request);
        let preput = spawn.iter().flat_map(|spawn| spawn.preput());
        let preput = preput.map(|(key, value)| (text(key), text(value))).collect();
        let mut record = self.record(programs, places, mapping)?;
        record.spawned = Some(Spawned { node, upcall, spawner, preput });
        self.open_away(record, Some((node, upcall)))
    }

    /// A place for each rank of programs that are to be spawned.
    fn place(&self, wanted: &[Wanted]) -> Result<Vec<Place>, RunError> {
        let mut places = Vec::new();
        let mut used = self.used();
        let mut start = 0;
        for Wanted { program, hosts, .. } in wanted {
            let candidates = self.candidates(hosts, &used, program.ranks);
            let map_by = self.plan.options.cluster.placement.policy.map_by;
            let policy = MappingPolicy { map_by, ..MappingPolicy::default() };
            let job_map = JobMap::new(&candidates, &[program.ranks], policy)?;
            for node in job_map.nodes() {
                let number = self.number(&node.host.name);
                for range in &node.rank_ranges {
                    used[number as usize] += range.count;
                    places.push(Place { node: number, first: start + range.first, count: range.count });
                }
            }
            start += program.ranks;
        }
        places.sort_unstable_by_key(|place| place.first);
        Ok(places)
    }

    /// How many ranks there are on each node.
    fn used(&self) -> Vec<u32> {
        let mut used = vec![0; self.head().map_or(0, |head| head.hosts.len()) + 1];
        for away in self.jobs.iter().filter_map(|job| job.away.as_ref()) {
            for place in &away.places {
                used[place.node as usize] += place.count;
            }
        }
        used
    }

    /// The hosts for so many ranks, in the order in which they get some, with the slots that they have to give: those
    /// named; otherwise all with free slots, from where the last rank went; otherwise, all in turn behind that.
    fn candidates(&self, named: &[String], used: &[u32], ranks: u32) -> Hosts {
        let Some(head) = self.head() else { return Hosts::default() };
        let nodes = head.hosts.len() as u32;
        let left = |node: u32| {
            let host = &head.hosts[node as usize - 1];
            let used = used[node as usize];
            let room = host.max_slots.map(|max| max.saturating_sub(used));
            (host, host.ranks_per_turn().saturating_sub(used), room)
        };
        let from = |first: u32| (0..nodes).map(move |at| (first + at) % nodes + 1);
        let last = head.last.max(1) - 1;
        let free: u64 = from(0).map(|node| u64::from(left(node).1)).sum();
        let free_slots = named.is_empty() && free >= u64::from(ranks);
        let order: Vec<u32> = match (named.is_empty(), free_slots) {
            (false, _) => named.iter().map(|name| self.number(name)).collect(),
            (true, true) => from(last).filter(|&node| left(node).1 > 0).collect(),
            (true, false) => from(last + 1).collect(),
        };
        let mut hosts = Hosts::default();
        for node in order {
            let (host, free, room) = left(node);
            let slots = if free_slots { Some(free) } else { host.slots };
            let slots = slots.map(|slots| room.map_or(slots, |room| slots.min(room)));
            if room == Some(0) {
                continue;
            }
            // The name was good before; one that is named twice has its slots twice.
            let _ = hosts.add(Host { slots, max_slots: room, ..host.clone() });
        }
        hosts
    }

    /// The node of a host.
    fn number(&self, name: &str) -> u32 {
        let at = self.head().and_then(|head| head.hosts.iter().position(|host| host.name == name));
        at.map_or(1, |at| at as u32 + 1)
    }
}

fn is_loopback(name: &[u8]) -> bool {
    [&b"localhost"[..], b"127.0.0.1", b"::1"].contains(&name)
}

/// All ranks in runs, with nodes counted from 0 in the order in which they come.
fn runs(places: &[Place]) -> Vec<(u32, u32)> {
    let mut order: Vec<u32> = Vec::new();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for place in places {
        let known = order.iter().position(|&node| node == place.node);
        let at = known.unwrap_or_else(|| {
            order.push(place.node);
            order.len() - 1
        }) as u32;
        match runs.last_mut() {
            Some((last, run)) if *last == at => *run += place.count,
            _ => runs.push((at, place.count)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_spawned_job_are_counted_as_they_come() {
        let place = |node, first, count| Place { node, first, count };
        assert_eq!(
            runs(&[place(3, 0, 2), place(3, 2, 1), place(1, 3, 1), place(3, 4, 1)]),
            [(0, 3), (1, 1), (0, 1)]
        );
    }
}
