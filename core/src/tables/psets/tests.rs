//! Tests of the table of process sets.

use super::*;
use crate::limits::PSET_SCHEME;
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec::Vec;

/// Slots of the jobs.
const JOBS: [Range<u32>; 2] = [0..8, 8..16];

fn define(psets: &mut Psets<'_>, name: &str, ranks: impl Iterator<Item = u32>) -> Result<(), Refusal> {
    psets.define(name, ranks.map(Some), JOBS.into_iter()).map(drop)
}

fn combine(
    psets: &mut Psets<'_>,
    rank: u32,
    name: &str,
    operation: fn(u32, u32) -> u32,
    of: [&str; 2],
) -> Result<(), Refusal> {
    let job = JOBS.into_iter().find(|job| job.contains(&rank)).unwrap();
    let which = of.map(|of| psets.find(rank, of).unwrap());
    psets.combine(&Asker { slot: rank, job }, name, operation, which, JOBS.into_iter()).map(drop)
}

fn members(psets: &Psets<'_>, rank: u32, name: &str) -> Option<Vec<u32>> {
    let which = psets.find(rank, name)?;
    let job = JOBS.into_iter().find(|job| job.contains(&rank)).unwrap();
    let asker = Asker { slot: rank, job };
    Some(psets.members(which, asker, 0..16).collect())
}

fn end(psets: &mut Psets<'_>, job: Range<u32>) -> Option<(Which, bool)> {
    psets.end(&job, JOBS.into_iter())
}

fn names(psets: &Psets<'_>, rank: u32) -> Vec<String> {
    let nth = |index| psets.name(psets.nth(rank, index).unwrap()).into();
    (0..psets.count(rank)).map(nth).collect()
}

// Shows: MPI Sessions, Process sets | an index, a name | never change, and no set is removed | done: until the
// process prunes its list. A removed set that is defined again is another set, and an error until then
// Also: libraries `mpi::beside::a_set_with_a_dead_member_stays_and_is_an_error`
#[test]
fn a_rank_sees_its_own_sets_and_indices_stay() {
    let (mut slots, mut sets) = ([const { None }; 4].map(|_: Option<()>| Pset::EMPTY), [0; 5]);
    let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
    define(&mut psets, "other", 8..16).unwrap();
    define(&mut psets, "low", 0..4).unwrap();
    define(&mut psets, "odd", [1, 3, 5].into_iter()).unwrap();
    assert_eq!(names(&psets, 1), [WORLD, SELF, "app://low", "app://odd"]);
    assert_eq!(names(&psets, 5), [WORLD, SELF, "app://odd"]);
    assert_eq!(psets.nth(5, 3), None);
    assert_eq!(end(&mut psets, 8..16), Some((Which::Stored(0), true)));
    define(&mut psets, "late", 1..6).unwrap();
    let sets = [WORLD, SELF, "app://low", "app://odd", "app://late"];
    assert_eq!(names(&psets, 1), sets, "a freed slot does not reorder");
    assert_eq!(psets.find(0, "odd"), None, "a set that one is not in is not there");
    assert_eq!(psets.find(0, "MPI://self"), Some(Which::Itself));
}

// Shows: MPI Sessions, Process sets | names | URIs | done: `ocean` is `app://ocean`, and both are found
// Also: libraries `mpi::beside::every_rule_holds_for_every_set`
#[test]
fn a_name_without_a_scheme_is_that_of_an_application() {
    let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::EMPTY), [0; 3]);
    let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
    define(&mut psets, "ocean", 0..2).unwrap();
    assert_eq!(names(&psets, 1), [WORLD, SELF, "app://ocean"]);
    assert_eq!(psets.find(1, "ocean"), Some(Which::Stored(0)));
    assert_eq!(psets.find(1, "app://ocean"), Some(Which::Stored(0)));
    assert_eq!(psets.find(1, "hydrant://ocean"), None);
    assert_eq!(define(&mut psets, "app://ocean", 0..2), Ok(()), "both are the same set");
    assert_eq!(define(&mut psets, "app://ocean", 0..3), Err(Refusal::PsetTaken));
    define(&mut psets, "site://ocean", 0..3).unwrap();
    assert_eq!(names(&psets, 2), [WORLD, SELF, "site://ocean"]);
    let longest = "x".repeat(PSET_NAME_MAX - PSET_SCHEME.len());
    let full = Refusal::Full(Limit::Psets, 2);
    assert_eq!(define(&mut psets, &longest, 0..2), Err(full));
    assert_eq!(define(&mut psets, &(longest + "x"), 0..2), Err(Refusal::PsetName));
}

#[test]
fn a_retired_set_is_found_until_it_is_pruned() {
    let (mut slots, mut sets) = ([const { None }; 3].map(|_: Option<()>| Pset::EMPTY), [0; 4]);
    let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
    define(&mut psets, "a", 0..2).unwrap();
    define(&mut psets, "b", 0..4).unwrap();
    assert_eq!(psets.retire(2, "a"), Err(Refusal::NoPset), "rank 2 is not in it");
    assert_eq!(psets.retire(1, "MPI://self"), Err(Refusal::PsetName));
    assert_eq!(psets.retire(1, "mpi://WORLD"), Err(Refusal::PsetName));
    assert_eq!((psets.retire(1, "a"), psets.retire(0, "app://a")), (Ok(()), Ok(())));
    assert_eq!(names(&psets, 0), [WORLD, SELF, "app://b"]);
    assert_eq!(psets.find(0, "a"), Some(Which::Stored(0)));
    assert_eq!(define(&mut psets, "a", 0..2), Err(Refusal::PsetRetired));
    assert_eq!(psets.prune(3), None, "rank 3 is in no retired set");
    assert_eq!((psets.prune(1), psets.prune(1)), (Some(Which::Stored(0)), None));
    assert_eq!(psets.find(0, "a"), None);
    define(&mut psets, "a", 1..3).unwrap();
    assert_eq!(names(&psets, 1), [WORLD, SELF, "app://b", "app://a"], "the new set comes last");
    let next = |after| psets.next(1, after).map(|next| (psets.name(next), psets.serial(next)));
    assert_eq!([next(0), next(2), next(4)], [Some(("app://b", 2)), Some(("app://a", 4)), None]);
}

// Fault: Ranks define process sets without end
// Outcome: refused at the limit `psets`; the job goes on
// Guarantee: Retired sets that are pruned free their room
// Also: libraries `mpi::alone::retired_sets_are_pruned`
#[test]
fn sets_can_be_made_and_removed_without_end() {
    let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::EMPTY), [0; 3]);
    let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
    define(&mut psets, "kept", 0..8).unwrap();
    for round in 0..100_000u32 {
        define(&mut psets, "again", round % 4..5).unwrap();
        psets.retire(4, "again").unwrap();
        assert_eq!(define(&mut psets, "more", 0..2), Err(Refusal::Full(Limit::Psets, 2)));
        assert_eq!(psets.prune(round % 4), Some(Which::Stored(1)));
    }
    assert_eq!(names(&psets, 0), [WORLD, SELF, "app://kept"]);
    // Serial numbers are used up after four billion changes. No set gets a number twice.
    psets.serial = u32::MAX - 1;
    define(&mut psets, "last", 0..2).unwrap();
    assert_eq!(psets.retire(0, "last"), Err(Refusal::Full(Limit::Psets, u32::MAX)));
}

// Shows: MPI Sessions, Process sets | one name in two processes | disjoint or equal sets | done, also for processes
// of two jobs
// Also: hydrant-core `a_set_holds_ranks_of_two_jobs_until_one_is_over`
// Shows: MPI Forum | a change of a set | a new set, because sets do not change | done: the same name with other
// members is refused; union, intersection and difference define new sets
// Also: libraries `mpi::alone::sets_are_made_of_others`, `mpi::beside::sets_are_made_of_others`
// Shows: MPI Forum | a long list of sets | must not exhaust resources | done: a limit (`--limit psets=N`), an error
// when it is reached, and removal of retired sets
// Also: hydrant-core `sets_can_be_made_and_removed_without_end`
#[test]
fn a_name_means_one_set() {
    let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::EMPTY), [0; 3]);
    let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
    assert_eq!(define(&mut psets, "a", 0..2), Ok(()));
    assert_eq!(define(&mut psets, "a", [1, 0, 1].into_iter()), Ok(()));
    assert_eq!(define(&mut psets, "a", 0..3), Err(Refusal::PsetTaken));
    assert_eq!(define(&mut psets, "Mpi://mine", 0..3), Err(Refusal::PsetName));
    assert_eq!(define(&mut psets, "", 0..3), Err(Refusal::PsetName));
    let missing = [Some(0), None].into_iter();
    assert_eq!(psets.define("b", missing, JOBS.into_iter()), Err(Refusal::BadGroup));
    assert_eq!(define(&mut psets, "b", 0..0), Err(Refusal::PsetEmpty));
    assert_eq!(define(&mut psets, "b", 0..8), Ok(()));
    assert_eq!(define(&mut psets, "c", 0..8), Err(Refusal::Full(Limit::Psets, 2)));
}

#[test]
fn a_set_holds_ranks_of_two_jobs_until_one_is_over() {
    let (mut slots, mut sets) = ([const { None }; 4].map(|_: Option<()>| Pset::EMPTY), [0; 5]);
    let mut psets = Psets::new(&mut slots, &mut sets, 16).unwrap();
    define(&mut psets, "mine", 0..2).unwrap();
    define(&mut psets, "mine", 12..14).unwrap();
    define(&mut psets, "both", 0..16).unwrap();
    assert_eq!(define(&mut psets, "mine", 13..14), Err(Refusal::PsetTaken));
    assert_eq!(define(&mut psets, "mine", 0..14), Err(Refusal::PsetTaken), "both jobs know the name");
    assert_eq!((names(&psets, 1), names(&psets, 12)).0, [WORLD, SELF, "app://mine", "app://both"]);
    combine(&mut psets, 12, "here", |one, other| one & other, ["both", "mpi://WORLD"]).unwrap();
    assert_eq!(members(&psets, 12, "here"), Some((8..16).collect()));
    psets.retire(12, "here").unwrap();
    assert!(psets.prune(12).is_some());
    combine(&mut psets, 1, "rest", |one, other| one & !other, ["both", "mine"]).unwrap();
    assert_eq!(members(&psets, 12, "rest"), Some((2..16).collect()));
    assert_eq!(members(&psets, 1, "rest"), None);
    let nothing = combine(&mut psets, 1, "none", |one, other| one & !other, ["mine", "both"]);
    assert_eq!(nothing, Err(Refusal::PsetEmpty));
    // The second job is over. Its own set leaves its slot, the common ones end.
    let ended: Vec<_> = from_fn(|| end(&mut psets, 8..16)).collect();
    assert_eq!(ended.iter().filter(|(_, removed)| *removed).count(), 1, "{ended:?}");
    assert_eq!(
        (names(&psets, 1), members(&psets, 1, "both")),
        ([WORLD, SELF, "app://mine"].map(String::from).to_vec(), None)
    );
    assert_eq!(names(&psets, 2), [WORLD, SELF]);
    assert_eq!(psets.retire(1, "both"), Err(Refusal::NoPset));
    assert_eq!(psets.prune(1), None);
    assert!(psets.is_sound(|slots| slots.end <= 8));
    // Their slots and names are free. The one that ended first is taken first.
    let taken = |psets: &mut Psets<'_>, name| psets.define(name, (0..8).map(Some), JOBS.into_iter());
    assert_eq!(taken(&mut psets, "both"), Ok(None));
    assert_eq!(
        taken(&mut psets, "x"),
        Ok(ended.iter().find(|(_, removed)| !removed).map(|&(which, _)| which))
    );
    assert!(taken(&mut psets, "y").is_ok_and(|ended| ended.is_some()));
    assert_eq!(taken(&mut psets, "z"), Err(Refusal::Full(Limit::Psets, 4)));
}

#[test]
#[cfg(feature = "pmix")]
fn the_end_of_a_set_is_a_change_for_its_other_jobs() {
    let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::EMPTY), [0; 3]);
    let mut psets = Psets::new(&mut slots, &mut sets, 16).unwrap();
    define(&mut psets, "both", 6..10).unwrap();
    let defined = Some((1, Which::Stored(0), false));
    assert_eq!([0..8, 8..16].map(|job| psets.next_change(job, 0, |_| true, |_| true)), [defined; 2]);
    assert_eq!(end(&mut psets, 8..16), Some((Which::Stored(0), false)));
    assert_eq!(psets.next_change(0..8, 1, |_| true, |_| true), Some((2, Which::Stored(0), true)));
    assert_eq!(psets.next_change(8..16, 0, |_| true, |_| true), None);
    assert_eq!(end(&mut psets, 0..8), Some((Which::Stored(0), true)));
    assert_eq!(psets.next_change(0..8, 0, |_| true, |_| true), None);
}

#[test]
fn the_end_of_a_set_of_one_job_takes_no_serial_number() {
    let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::EMPTY), [0; 3]);
    let mut psets = Psets::new(&mut slots, &mut sets, 16).unwrap();
    define(&mut psets, "one", 0..4).unwrap();
    assert_eq!(end(&mut psets, 0..8), Some((Which::Stored(0), true)));
    define(&mut psets, "other", 8..12).unwrap();
    assert_eq!(psets.serial(psets.find(8, "other").unwrap()), 2);
}

/// Slots and words for so many sets of 320 ranks.
fn room(sets: u32) -> (Vec<Pset>, Vec<u32>) {
    ((0..sets).map(|_| Pset::EMPTY).collect(), std::vec![0; Psets::words(sets, 320) as usize])
}

/// Members in many runs.
#[cfg(feature = "cluster")]
fn scattered(from: u32) -> impl Iterator<Item = u32> {
    (from..320).step_by(2)
}

#[test]
#[cfg(feature = "cluster")]
fn members_have_the_room_of_some_sets_of_any_ranks_and_of_a_run_for_each_rank_and_set() {
    let (mut slots, mut sets) = room(1000);
    let mut psets = Psets::new(&mut slots, &mut sets, 320).unwrap();
    for set in 0..256 {
        define(&mut psets, &format!("any-{set}"), scattered(set % 2)).unwrap();
    }
    // Sets of 40 hosts, with a run for each rank.
    for host in 0..40 {
        define(&mut psets, &format!("host-{host}"), (host..320).step_by(40)).unwrap();
    }
    for set in 0..704 {
        define(&mut psets, &format!("run-{set}"), set % 16..320 - set % 16).unwrap();
    }
    assert_eq!(define(&mut psets, "more", 0..1), Err(Refusal::Full(Limit::Psets, 1000)));
    assert!(psets.is_sound(|slots| slots.end <= 320));
    let hosts = (0..40).map(|host| (host, psets.find(host, &format!("host-{host}")).unwrap()));
    for (host, which) in hosts {
        let asker = Asker { slot: host, job: 0..8 };
        let expected: Vec<_> = (host..320).step_by(40).collect();
        assert_eq!(psets.members(which, asker, 0..320).collect::<Vec<_>>(), expected);
    }
}

#[test]
#[cfg(feature = "cluster")]
fn members_without_room_are_refused_and_room_is_free_again() {
    let (mut slots, mut sets) = room(1000);
    let mut psets = Psets::new(&mut slots, &mut sets, 320).unwrap();
    let any = |psets: &mut Psets<'_>, set| define(psets, &format!("any-{set}"), scattered(0));
    let full = Err(Refusal::Full(Limit::Psets, 1000));
    let stored = (0..1000).take_while(|&set| any(&mut psets, set).is_ok()).count() as u32;
    assert_eq!(stored, (256 * 10 + 2 * 320 + 2 * 1000) / 10);
    assert_eq!(define(&mut psets, "run", 0..10), full, "no word is left");
    for set in [7, 400] {
        psets.retire(0, &format!("any-{set}")).unwrap();
        assert!(psets.prune(0).is_some());
    }
    define(&mut psets, "run", 0..10).unwrap();
    assert_eq!(any(&mut psets, 1000), Ok(()));
    // The words of a free slot are not enough.
    psets.retire(0, "run").unwrap();
    assert!(psets.prune(0).is_some());
    define(&mut psets, "run", 0..10).unwrap();
    define(&mut psets, "other", 3..5).unwrap();
    psets.retire(4, "other").unwrap();
    assert!(psets.prune(4).is_some());
    let before = (psets.state().0.to_vec(), psets.state().1.to_vec());
    assert_eq!(any(&mut psets, 1001), full);
    assert!((&before.0[..], &before.1[..]) == (psets.state().0, psets.state().1), "nothing is changed");
    assert!(psets.is_sound(|slots| slots.end <= 320));
    assert_eq!(members(&psets, 3, "run"), Some((0..10).collect()));
    assert_eq!(members(&psets, 2, "any-1000"), Some((0..16).step_by(2).collect()));
}

/// Change of the sets of two jobs.
#[derive(Clone, Debug)]
enum Change {
    Define(Vec<(u32, u32)>),
    Prune(usize),
    End(bool),
}

proptest! {
    #[test]
    fn sets_keep_their_members_while_others_come_and_go(
        changes in proptest::collection::vec(
            prop_oneof![
                4 => proptest::collection::vec((0u32..320, 1u32..40), 1..8).prop_map(Change::Define),
                2 => (0usize..4).prop_map(Change::Prune),
                1 => any::<bool>().prop_map(Change::End),
            ],
            1..40,
        ),
    ) {
        let jobs = [0..150, 150..320];
        let (mut slots, mut sets) = room(4);
        let mut psets = Psets::new(&mut slots, &mut sets, 320).unwrap();
        let mut known: Vec<(String, Vec<u32>)> = Vec::new();
        for (number, change) in changes.into_iter().enumerate() {
            match change {
                Change::Define(runs) => {
                    let name = format!("set-{number}");
                    let ranks = |(start, len)| start..u32::min(start + len, 320);
                    let mut members: Vec<u32> = runs.into_iter().flat_map(ranks).collect();
                    let mut define = || psets.define(&name, members.iter().copied().map(Some), jobs.clone().into_iter());
                    if known.len() == 4 {
                        prop_assert_eq!(define(), Err(Refusal::Full(Limit::Psets, 4)));
                        continue;
                    }
                    prop_assert!(define().is_ok());
                    prop_assert_eq!(define(), Ok(None), "it is the same set");
                    members.sort_unstable();
                    members.dedup();
                    known.push((name, members));
                }
                Change::Prune(at) if at < known.len() => {
                    let (name, members) = known.remove(at);
                    prop_assert_eq!(psets.retire(members[0], &name), Ok(()));
                    prop_assert!(psets.prune(members[0]).is_some());
                }
                Change::Prune(_) => {}
                Change::End(second) => {
                    let job = &jobs[usize::from(second)];
                    while psets.end(job, jobs.clone().into_iter()).is_some() {}
                    known.retain(|(_, members)| !members.iter().any(|member| job.contains(member)));
                }
            }
            for name in (0..=number).map(|number| format!("app://set-{number}")) {
                let has_name = |at: &usize| psets.slots[*at].is_known() && psets.slots[*at].name.as_str() == name;
                let walked: Vec<usize> = (0..4).filter(has_name).collect();
                prop_assert_eq!(psets.known(&name).collect::<Vec<_>>(), walked);
            }
            prop_assert_eq!(psets.first_free(), psets.slots.iter().position(|slot| slot.serial == 0));
            prop_assert!(psets.is_sound(|slots| slots.end <= 320));
            let (top, used) = (psets.top, psets.state().1.len());
            prop_assert!(psets.load(used) && psets.top == top);
            for (name, members) in &known {
                let which = psets.find(members[0], name).unwrap();
                let asker = Asker { slot: members[0], job: 0..150 };
                prop_assert_eq!(&psets.members(which, asker, 0..320).collect::<Vec<_>>(), members);
            }
        }
    }
}
