//! Process sets.

use std::collections::BTreeSet;

use hydrant_core::Refusal;
use hydrant_core::limits::Limit;
use hydrant_core::trace::Exit;
use hydrant_core::wire::{Op, SetOperation};

use super::commands::operation;
use super::says::{Say, listed, ranges};
use super::state::{Model, Phase, Set, Wait};

/// Ranks with their jobs.
type Members = BTreeSet<(u32, u32)>;

impl Model {
    /// The sets that a rank is in and that are not retired, in the order in which they came.
    pub(crate) fn psets(&self, job: u32, rank: u32) -> Vec<Set> {
        self.all_psets(job, rank).into_iter().filter(|set| !set.retired).collect()
    }

    fn all_psets(&self, job: u32, rank: u32) -> Vec<Set> {
        let set = |name: &str, members| Set { name: name.to_owned(), members, serial: 0, retired: false };
        let world = set("mpi://WORLD", (0..self.jobs[&job].size()).map(|rank| (job, rank)).collect());
        let alone = set("mpi://SELF", BTreeSet::from([(job, rank)]));
        let stored = self.psets.iter().filter(|set| set.members.contains(&(job, rank))).cloned();
        [world, alone].into_iter().chain(stored).collect()
    }

    fn named_pset(&self, (_, job, rank): (u32, u32, u32), name: &str) -> Result<Set, Refusal> {
        let mpi = |known: &str| known.starts_with("mpi://") && known.eq_ignore_ascii_case(name);
        let name = uri(name);
        let mut sets = self.all_psets(job, rank).into_iter();
        sets.find(|set| set.name == name || mpi(&set.name)).ok_or(Refusal::NoPset)
    }

    /// A set that contains the requesting rank and no dead member.
    pub(crate) fn pset(&self, asker: (u32, u32, u32), name: &str) -> Result<Set, Refusal> {
        let set = self.named_pset(asker, name)?;
        let dead = set.members.iter().any(|&(job, rank)| {
            let process = &self.jobs[&job].ranks[rank as usize];
            let failed = process.exit.is_some_and(|exit| exit != Exit::Code(0));
            process.dead || process.phase == Phase::New && failed
        });
        if dead { Err(Refusal::PsetDead) } else { Ok(set) }
    }

    /// The members of a set from a position on, of one job, for a client of job `own`.
    pub(crate) fn members(&self, own: u32, set: &Set, from: u32) -> String {
        let jobs: BTreeSet<u32> = set.members.iter().map(|&(job, _)| job).collect();
        let mut start = 0;
        for &job in &jobs {
            let end = start + self.jobs[&job].size();
            if from < end {
                let ranks = set.members.iter().filter(|&&(of, rank)| of == job && start + rank >= from);
                let jobid = (job != own).then(|| self.jobs[&job].name.as_str());
                let next = jobs.last().filter(|&&last| last != job).map(|_| end);
                return listed(&ranges(ranks.map(|&(_, rank)| rank)), jobid, next);
            }
            start = end;
        }
        listed("", None, None)
    }

    pub(crate) fn define(&mut self, name: &str, members: Members) -> Result<(), Refusal> {
        let (limit, serial) = (self.limits.psets, self.psets_changed + 1);
        let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        if name.is_empty() || !printable || is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        if members.iter().any(|&(job, rank)| rank >= self.jobs[&job].size()) {
            return Err(Refusal::BadGroup);
        }
        if members.is_empty() {
            return Err(Refusal::PsetEmpty);
        }
        let name = uri(name);
        let shares = |set: &&Set| set.members.iter().any(|(job, _)| members.iter().any(|(of, _)| of == job));
        // Two sets of that name can each share another job with the new one.
        let mut known: Vec<&Set> = self.psets.iter().filter(|set| set.name == name).filter(shares).collect();
        known.sort_by_key(|set| {
            let shared = set.members.iter().filter(|(job, _)| members.iter().any(|(of, _)| of == job));
            shared.map(|&(job, _)| job).min()
        });
        match known.first() {
            Some(set) if set.retired => Err(Refusal::PsetRetired),
            Some(set) if set.members == members => Ok(()),
            Some(_) => Err(Refusal::PsetTaken),
            None if self.psets.len() >= limit as usize => Err(Refusal::Full(Limit::Psets, limit)),
            None => {
                self.psets.push(Set { name, members, serial, retired: false });
                self.psets_changed = serial;
                Ok(())
            }
        }
    }

    pub(crate) fn combine(
        &mut self,
        asker: (u32, u32, u32),
        name: &str,
        which: u8,
        [one, other]: [&str; 2],
    ) -> Result<(), Refusal> {
        let (one, other) = (self.named_pset(asker, one)?.members, self.named_pset(asker, other)?.members);
        let members = match operation(which) {
            SetOperation::Union => &one | &other,
            SetOperation::Intersection => &one & &other,
            SetOperation::Difference => &one - &other,
        };
        self.define(name, members)
    }

    pub(crate) fn retire(&mut self, (_, job, rank): (u32, u32, u32), name: &str) -> Result<(), Refusal> {
        if is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        let name = uri(name);
        let mut sets = self.psets.iter_mut();
        let set =
            sets.find(|set| set.name == name && set.members.contains(&(job, rank))).ok_or(Refusal::NoPset)?;
        if !std::mem::replace(&mut set.retired, true) {
            self.psets_changed += 1;
        }
        Ok(())
    }

    /// Removes the retired sets that a rank is in. What is to be said about them becomes a refusal.
    pub(crate) fn prune(&mut self, (_, job, rank): (u32, u32, u32)) {
        self.remove_psets(|set| set.retired && set.members.contains(&(job, rank)));
    }

    /// Ends the sets with ranks of a job that is over. What is to be said about them becomes a refusal.
    pub(crate) fn end_psets(&mut self, job: u32) {
        let gone = self.remove_psets(|set| set.members.iter().any(|&(of, _)| of == job));
        let remain = |set: &&Set| !set.retired && set.members.iter().any(|&(of, _)| of != job);
        self.psets_changed += gone.iter().filter(remain).count() as u32;
    }

    fn remove_psets(&mut self, is_gone: impl Fn(&Set) -> bool) -> Vec<Set> {
        let (gone, kept): (Vec<Set>, Vec<Set>) = self.psets.drain(..).partition(is_gone);
        self.psets = kept;
        for conn in self.conns.values_mut() {
            let Some(rank) = conn.rank else { continue };
            for (_, wait) in &mut conn.owed {
                let (op, name) = match wait {
                    Wait::Say(Say::SetName(name)) => (Op::PsetName, &*name),
                    Wait::Say(Say::NextSet(name, _)) => (Op::PsetNext, &*name),
                    Wait::Say(Say::Members(name, _)) => (Op::PsetMembers, &*name),
                    _ => continue,
                };
                if gone.iter().any(|set| set.name == *name && set.members.contains(&(conn.job, rank))) {
                    *wait = Wait::Say(Say::Refused(op, Refusal::NoPset));
                }
            }
        }
        gone
    }
}

/// A name without a scheme is that of an application.
fn uri(name: &str) -> String {
    if name.contains("://") { name.to_owned() } else { format!("app://{name}") }
}

fn is_reserved(name: &str) -> bool {
    name.to_ascii_lowercase().starts_with("mpi://")
}
