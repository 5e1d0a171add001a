//! Groups of processes, and the local operations on them (MPI 5.0, 7.3).

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;

use super::Table;
use crate::abi::{Class, GROUP_EMPTY, Handle, IDENT, PROC_NULL, SESSION_NULL, SIMILAR, UNDEFINED, UNEQUAL};
use crate::error::Error;
use crate::psets::Process;

/// A group of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Session from which the group is derived. Its error handler handles errors of the group.
    pub(crate) session: Handle,
    /// Processes in the order of their ranks in the group, each at most once.
    members: Vec<Process>,
}

static EMPTY: Group = Group { session: SESSION_NULL, members: Vec::new() };

/// The groups that the user created, and `MPI_GROUP_EMPTY`.
pub(crate) struct Groups(Table<Group>);

impl Groups {
    pub(crate) const fn new() -> Groups {
        Groups(Table::new(4, Class::Group, "group"))
    }

    /// Adds a group and returns its handle. An empty group is `MPI_GROUP_EMPTY`.
    pub(crate) fn insert(&mut self, group: Group) -> Handle {
        if group.members.is_empty() { GROUP_EMPTY } else { self.0.insert(group) }
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<&Group, Error> {
        if handle == GROUP_EMPTY { Ok(&EMPTY) } else { self.0.get(handle) }
    }

    /// Removes a group. `MPI_GROUP_EMPTY` remains valid: it is the result of operations whose result is freed.
    pub(crate) fn remove(&mut self, handle: Handle) -> Result<(), Error> {
        if handle == GROUP_EMPTY { Ok(()) } else { self.0.remove(handle).map(drop) }
    }
}

impl Group {
    /// Creates a group of different processes.
    pub(crate) fn new(session: Handle, members: Vec<Process>) -> Group {
        Group { session, members }
    }

    fn with(&self, members: Vec<Process>) -> Group {
        Group { session: self.session, members }
    }

    pub(crate) fn size(&self) -> c_int {
        self.members.len() as c_int
    }

    /// Returns the rank of a process, or `MPI_UNDEFINED` if it is not a member.
    pub(crate) fn rank(&self, process: Process) -> c_int {
        self.members.iter().position(|&member| member == process).map_or(UNDEFINED, |rank| rank as c_int)
    }

    /// Returns the process with a rank.
    fn process(&self, rank: c_int) -> Result<Process, Error> {
        let process = usize::try_from(rank).ok().and_then(|rank| self.members.get(rank));
        process.copied().ok_or(Error::GroupRank { rank, size: self.size() })
    }

    /// Returns the ranks in `other` of the processes with these ranks. `MPI_PROC_NULL` stays the same.
    pub(crate) fn translate(&self, ranks: &[c_int], other: &Group) -> Result<Vec<c_int>, Error> {
        let there: HashMap<Process, c_int> = other.members.iter().copied().zip(0..).collect();
        let translate = |&rank: &c_int| match rank {
            PROC_NULL => Ok(PROC_NULL),
            rank => Ok(there.get(&self.process(rank)?).copied().unwrap_or(UNDEFINED)),
        };
        ranks.iter().map(translate).collect()
    }

    /// Returns `MPI_IDENT`, `MPI_SIMILAR` for another order, or `MPI_UNEQUAL`.
    pub(crate) fn compare(&self, other: &Group) -> c_int {
        if self.members == other.members {
            return IDENT;
        }
        let same = self.members.len() == other.members.len() && self.set() == other.set();
        if same { SIMILAR } else { UNEQUAL }
    }

    fn set(&self) -> HashSet<Process> {
        self.members.iter().copied().collect()
    }

    /// Returns all processes of this group, followed by the others of `other`.
    pub(crate) fn union(&self, other: &Group) -> Group {
        let here = self.set();
        let others = other.members.iter().filter(|member| !here.contains(member));
        self.with(self.members.iter().chain(others).copied().collect())
    }

    /// Returns the processes of this group that are in `other`.
    pub(crate) fn intersection(&self, other: &Group) -> Group {
        let there = other.set();
        self.with(self.members.iter().filter(|member| there.contains(member)).copied().collect())
    }

    /// Returns the processes of this group that are not in `other`.
    pub(crate) fn difference(&self, other: &Group) -> Group {
        let there = other.set();
        self.with(self.members.iter().filter(|member| !there.contains(member)).copied().collect())
    }

    /// Returns the processes with these ranks, in their order.
    pub(crate) fn include(&self, ranks: impl Iterator<Item = c_int>) -> Result<Group, Error> {
        Ok(self.with(self.processes(ranks)?))
    }

    /// Returns the processes without these ranks.
    pub(crate) fn exclude(&self, ranks: impl Iterator<Item = c_int>) -> Result<Group, Error> {
        let excluded = self.with(self.processes(ranks)?);
        Ok(self.difference(&excluded))
    }

    /// Returns the processes with these ranks. Each rank occurs once.
    fn processes(&self, ranks: impl Iterator<Item = c_int>) -> Result<Vec<Process>, Error> {
        let mut found = HashSet::new();
        let process = |rank| {
            let process = self.process(rank)?;
            if found.insert(process) { Ok(process) } else { Err(Error::RepeatedRank(rank)) }
        };
        ranks.map(process).collect()
    }

    /// Returns the ranks of ranges: first rank, last rank and stride.
    pub(crate) fn ranks_of(&self, ranges: &[[c_int; 3]]) -> Result<Vec<c_int>, Error> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            let invalid = Error::RankRange { first, last, stride };
            let steps = last.checked_sub(first).and_then(|span| span.checked_div(stride));
            let Some(steps) =
                steps.filter(|&steps| steps >= 0 && (first == last || (last > first) == (stride > 0)))
            else {
                return Err(invalid);
            };
            // The ends are ranks, so that a range is not longer than the group.
            self.process(first)?;
            self.process(first + steps * stride)?;
            ranks.extend((0..=steps).map(|step| first + step * stride));
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[c_int]) -> Group {
        Group::new(SESSION_NULL, members.iter().copied().map(Process::own).collect())
    }

    #[test]
    fn operations_keep_the_order_of_the_first_group() {
        let (one, other) = (group(&[5, 3, 1]), group(&[1, 2, 3]));
        assert_eq!(one.union(&other), group(&[5, 3, 1, 2]));
        assert_eq!(one.intersection(&other), group(&[3, 1]));
        assert_eq!(other.intersection(&one), group(&[1, 3]));
        assert_eq!(one.difference(&other), group(&[5]));
        assert_eq!(one.compare(&group(&[1, 3, 5])), SIMILAR);
        assert_eq!((one.compare(&one), one.compare(&other)), (IDENT, UNEQUAL));
        assert_eq!([3, 2].map(|rank| one.rank(Process::own(rank))), [1, UNDEFINED]);
    }

    #[test]
    fn ranks_are_translated_and_checked() {
        let (one, other) = (group(&[5, 3, 1]), group(&[1, 2, 3]));
        assert_eq!(one.translate(&[0, 1, PROC_NULL, 2, 2], &other).unwrap(), [UNDEFINED, 2, PROC_NULL, 0, 0]);
        for wrong in [-1, 3, c_int::MAX, UNDEFINED] {
            assert_eq!(one.translate(&[wrong], &other).unwrap_err().class(), Class::Rank);
        }
        assert_eq!(one.include([2, 0].into_iter()).unwrap(), group(&[1, 5]));
        assert_eq!(one.exclude([2, 0].into_iter()).unwrap(), group(&[3]));
        assert_eq!(one.exclude([].into_iter()).unwrap(), one);
        assert_eq!(one.include([1, 1].into_iter()).unwrap_err().class(), Class::Rank);
        assert_eq!(one.exclude([0, 3].into_iter()).unwrap_err().class(), Class::Rank);
    }

    #[test]
    fn ranges_have_a_direction_and_end_within_the_group() {
        let ten = group(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(ten.ranks_of(&[[1, 8, 3], [9, 6, -2], [0, 0, 5]]).unwrap(), [1, 4, 7, 9, 7, 0]);
        assert_eq!(ten.ranks_of(&[[1, 99, 90]]).unwrap_err().class(), Class::Rank);
        assert_eq!(ten.ranks_of(&[[-1, 3, 1]]).unwrap_err().class(), Class::Rank);
        for wrong in [[0, 3, 0], [3, 0, 1], [0, 3, -1], [c_int::MIN, c_int::MAX, 1], [c_int::MIN, 0, -1]] {
            assert_eq!(ten.ranks_of(&[wrong]).unwrap_err().class(), Class::Arg, "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_group_is_predefined() {
        let mut groups = Groups::new();
        assert_eq!(groups.insert(group(&[])), GROUP_EMPTY);
        groups.remove(GROUP_EMPTY).unwrap();
        assert_eq!(groups.get(GROUP_EMPTY).unwrap().size(), 0);
        let handle = groups.insert(group(&[1]));
        groups.remove(handle).unwrap();
        assert_eq!(groups.get(handle).unwrap_err().class(), Class::Group);
    }
}
