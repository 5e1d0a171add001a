//! Process sets.

use std::collections::BTreeSet;

use hydrant_core::Refusal;
use hydrant_core::limits::Limit;

use super::state::Model;

impl Model {
    /// Names and members of the sets that a rank is in, in the order in which they came.
    pub(crate) fn psets(&self, job: u32, rank: u32) -> Vec<(String, BTreeSet<u32>)> {
        let state = &self.jobs[&job];
        let world = ("mpi://WORLD".to_owned(), (0..state.size()).collect());
        let alone = ("mpi://SELF".to_owned(), BTreeSet::from([rank]));
        let stored = state.psets.iter().filter(|(_, members)| members.contains(&rank)).cloned();
        [world, alone].into_iter().chain(stored).collect()
    }

    /// A set that contains the requesting rank and no dead member.
    pub(crate) fn pset(&self, (_, job, rank): (u32, u32, u32), name: &str) -> Result<BTreeSet<u32>, Refusal> {
        let mpi = |known: &str| known.starts_with("mpi://") && known.eq_ignore_ascii_case(name);
        let name = uri(name);
        let sets = self.psets(job, rank);
        let (_, members) =
            sets.into_iter().find(|(known, _)| *known == name || mpi(known)).ok_or(Refusal::NoPset)?;
        let dead = members.iter().any(|&rank| self.jobs[&job].ranks[rank as usize].dead);
        if dead { Err(Refusal::PsetDead) } else { Ok(members) }
    }

    pub(crate) fn define(&mut self, job: u32, name: &str, members: BTreeSet<u32>) -> Result<(), Refusal> {
        let all: usize = self.jobs.values().map(|job| job.psets.len()).sum();
        let limit = self.limits.psets;
        let state = self.job(job);
        let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        if name.is_empty() || !printable || name.to_ascii_lowercase().starts_with("mpi://") {
            return Err(Refusal::PsetName);
        }
        if members.is_empty() || members.iter().any(|&member| member >= state.size()) {
            return Err(Refusal::BadGroup);
        }
        let name = uri(name);
        match state.psets.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known == members => Ok(()),
            Some(_) => Err(Refusal::PsetTaken),
            None if all >= limit as usize => Err(Refusal::Full(Limit::Psets, limit)),
            None => {
                state.psets.push((name, members));
                Ok(())
            }
        }
    }
}

/// A name without a scheme is that of an application.
fn uri(name: &str) -> String {
    if name.contains("://") { name.to_owned() } else { format!("app://{name}") }
}
