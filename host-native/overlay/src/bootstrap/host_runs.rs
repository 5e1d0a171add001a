//! Short form of the hosts in a specification: names of hosts that differ in nothing else as one list.

use hydrant_placement::{HOSTS_MAX, Host, hostlist};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Hosts of the same user and with the same slots.
#[derive(Serialize, Deserialize)]
struct Run {
    names: String,
    user: Option<String>,
    slots: Option<u32>,
    max_slots: Option<u32>,
}

pub(super) fn serialize<S: Serializer>(hosts: &[Host], to: S) -> Result<S::Ok, S::Error> {
    let like = |a: &Host, b: &Host| (&a.user, a.slots, a.max_slots) == (&b.user, b.slots, b.max_slots);
    let run = |hosts: &[Host]| Run {
        names: hostlist::compress(hosts.iter().map(|host| host.name.as_str())),
        user: hosts[0].user.clone(),
        slots: hosts[0].slots,
        max_slots: hosts[0].max_slots,
    };
    hosts.chunk_by(like).map(run).collect::<Vec<_>>().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Host>, D::Error> {
    let mut hosts = Vec::new();
    for Run { names, user, slots, max_slots } in Vec::<Run>::deserialize(from)? {
        let names = hostlist::expand(&names).map_err(D::Error::custom)?;
        if hosts.len() + names.len() > HOSTS_MAX {
            return Err(D::Error::custom("too many hosts"));
        }
        hosts.extend(names.into_iter().map(|name| Host { name, user: user.clone(), slots, max_slots }));
    }
    Ok(hosts)
}
