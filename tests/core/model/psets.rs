//! Process sets.

use std::collections::BTreeSet;

use hydrant_core::Refusal;
use hydrant_core::limits::Limit;
use hydrant_core::wire::Op;

use super::says::Say;
use super::state::{Model, Set, Wait};

impl Model {
    /// The sets that a rank is in and that are not retired, in the order in which they came.
    pub(crate) fn psets(&self, job: u32, rank: u32) -> Vec<Set> {
        self.all_psets(job, rank).into_iter().filter(|set| !set.retired).collect()
    }

    fn all_psets(&self, job: u32, rank: u32) -> Vec<Set> {
        let state = &self.jobs[&job];
        let set = |name: &str, members| Set { name: name.to_owned(), members, serial: 0, retired: false };
        let world = set("mpi://WORLD", (0..state.size()).collect());
        let alone = set("mpi://SELF", BTreeSet::from([rank]));
        let stored = state.psets.iter().filter(|set| set.members.contains(&rank)).cloned();
        [world, alone].into_iter().chain(stored).collect()
    }

    /// A set that contains the requesting rank and no dead member.
    pub(crate) fn pset(&self, (_, job, rank): (u32, u32, u32), name: &str) -> Result<Set, Refusal> {
        let mpi = |known: &str| known.starts_with("mpi://") && known.eq_ignore_ascii_case(name);
        let name = uri(name);
        let sets = self.all_psets(job, rank);
        let set = sets.into_iter().find(|set| set.name == name || mpi(&set.name)).ok_or(Refusal::NoPset)?;
        let dead = set.members.iter().any(|&rank| self.jobs[&job].ranks[rank as usize].dead);
        if dead { Err(Refusal::PsetDead) } else { Ok(set) }
    }

    pub(crate) fn define(&mut self, job: u32, name: &str, members: BTreeSet<u32>) -> Result<(), Refusal> {
        let all: usize = self.jobs.values().map(|job| job.psets.len()).sum();
        let (limit, serial) = (self.limits.psets, self.psets_changed + 1);
        let state = self.job(job);
        let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        if name.is_empty() || !printable || is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        if members.is_empty() || members.iter().any(|&member| member >= state.size()) {
            return Err(Refusal::BadGroup);
        }
        let name = uri(name);
        match state.psets.iter().find(|set| set.name == name) {
            Some(set) if set.retired => Err(Refusal::PsetRetired),
            Some(set) if set.members == members => Ok(()),
            Some(_) => Err(Refusal::PsetTaken),
            None if all >= limit as usize => Err(Refusal::Full(Limit::Psets, limit)),
            None => {
                state.psets.push(Set { name, members, serial, retired: false });
                self.psets_changed = serial;
                Ok(())
            }
        }
    }

    pub(crate) fn retire(&mut self, (_, job, rank): (u32, u32, u32), name: &str) -> Result<(), Refusal> {
        if is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        let name = uri(name);
        let mut sets = self.job(job).psets.iter_mut();
        let set = sets.find(|set| set.name == name && set.members.contains(&rank)).ok_or(Refusal::NoPset)?;
        if !std::mem::replace(&mut set.retired, true) {
            self.psets_changed += 1;
        }
        Ok(())
    }

    /// Removes the retired sets that a rank is in. What is to be said about them becomes a refusal.
    pub(crate) fn prune(&mut self, (_, job, rank): (u32, u32, u32)) {
        let sets = &mut self.job(job).psets;
        let (gone, kept) = sets.drain(..).partition(|set| set.retired && set.members.contains(&rank));
        *sets = kept;
        let gone: Vec<Set> = gone;
        for conn in self.conns.values_mut().filter(|conn| conn.job == job) {
            for (_, wait) in &mut conn.owed {
                let (op, name) = match wait {
                    Wait::Say(Say::SetName(name)) => (Op::PsetName, &*name),
                    Wait::Say(Say::NextSet(name, _)) => (Op::PsetNext, &*name),
                    Wait::Say(Say::Members(name, _)) => (Op::PsetMembers, &*name),
                    _ => continue,
                };
                if gone.iter().any(|set| set.name == *name) {
                    *wait = Wait::Say(Say::Refused(op, Refusal::NoPset));
                }
            }
        }
    }
}

/// A name without a scheme is that of an application.
fn uri(name: &str) -> String {
    if name.contains("://") { name.to_owned() } else { format!("app://{name}") }
}

fn is_reserved(name: &str) -> bool {
    name.to_ascii_lowercase().starts_with("mpi://")
}
