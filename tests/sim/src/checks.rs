//! Checks of the guarantees to ranks, based on requests and replies only.

use std::collections::{BTreeMap, BTreeSet};

use crate::rank::{KEYS, Kind, Meeting, field};

/// Rounds of each of a rank's keys: the last one put, 0 for none.
pub type Rounds = [u32; KEYS as usize];

/// State of a meeting.
#[derive(Clone, Debug, Default)]
struct Course {
    arrived: BTreeSet<u32>,
    released: BTreeSet<u32>,
    /// For each member, the rounds of all keys that it could rely on when it arrived, its own puts included.
    known: BTreeMap<u32, Vec<Rounds>>,
}

/// State of all checks.
#[derive(Clone, Debug)]
pub struct Checks {
    size: u32,
    /// Dead ranks are excluded from meetings.
    survive: bool,
    meetings: Vec<Meeting>,
    courses: Vec<Course>,
    dead: BTreeSet<u32>,
    /// Ranks whose values may be lost.
    gone: BTreeSet<u32>,
    /// Ranks that leave alone, and those of a host that lies.
    excused: BTreeSet<u32>,
    /// Rounds that each rank has asked to put, with or without a reply.
    asked: Vec<Rounds>,
    /// Minimum rounds that each rank must find, for all keys: those that its meetings made visible.
    floors: Vec<Vec<Rounds>>,
}

impl Checks {
    /// Creates the checks before the first request.
    pub fn new(size: u32, survive: bool, meetings: &[Meeting]) -> Checks {
        Checks {
            size,
            survive,
            meetings: meetings.to_vec(),
            courses: vec![Course::default(); meetings.len()],
            dead: BTreeSet::new(),
            gone: BTreeSet::new(),
            excused: BTreeSet::new(),
            asked: vec![Rounds::default(); size as usize],
            floors: vec![vec![Rounds::default(); size as usize]; size as usize],
        }
    }

    /// Records a request to put a value.
    pub fn ask_put(&mut self, rank: u32, key: u32, round: u32) {
        self.asked[rank as usize][key as usize] = round;
    }

    /// Records the acceptance of a put.
    pub fn put(&mut self, rank: u32, key: u32, round: u32) {
        // A rank's own puts are visible at once.
        self.floors[rank as usize][rank as usize][key as usize] = round;
    }

    /// A rank's process has ended.
    pub fn died(&mut self, rank: u32) {
        self.dead.insert(rank);
    }

    /// A rank is lost with its host. The values that nobody has asked for are lost with it if fences are `lazy`.
    pub fn lost(&mut self, rank: u32, lazy: bool) {
        self.dead.insert(rank);
        if lazy {
            self.gone.insert(rank);
        }
    }

    /// Excludes a rank from meetings, and its values from the checks.
    pub fn excuse(&mut self, rank: u32) {
        self.excused.insert(rank);
    }

    /// Records the arrival of a rank at a meeting.
    pub fn arrive(&mut self, rank: u32, meeting: usize) {
        let course = &mut self.courses[meeting];
        assert!(course.arrived.insert(rank), "rank {rank} comes twice to meeting {meeting}: a broken script");
        // A meeting also passes on what the rank got from other ranks.
        course.known.insert(rank, self.floors[rank as usize].clone());
    }

    /// Checks and records the release of a rank from a meeting.
    ///
    /// # Panics
    /// The rank must not be released.
    pub fn release(&mut self, rank: u32, meeting: usize, reply: &str) {
        let Meeting { members, kind } = &self.meetings[meeting];
        let course = &mut self.courses[meeting];
        assert_eq!(field(reply, "rc"), Some("0"), "rank {rank} is refused at meeting {meeting}: {reply}");
        assert!(course.arrived.contains(&rank), "rank {rank} is let go of meeting {meeting} where it is not");
        assert!(course.released.insert(rank), "rank {rank} is let go twice of meeting {meeting}");
        for member in members {
            let excused = self.survive && self.dead.contains(member) || self.excused.contains(member);
            assert!(
                excused || course.arrived.contains(member),
                "rank {rank} is let go of meeting {meeting}, to which rank {member} has not come"
            );
        }
        let floor = &mut self.floors[rank as usize];
        for (member, known) in &course.known {
            // A dead rank may have died before its node received the request.
            let left = self.dead.contains(member) || self.excused.contains(member);
            if left && !course.released.contains(member) {
                continue;
            }
            for (floor, known) in floor.iter_mut().flatten().zip(known.iter().flatten()) {
                *floor = (*floor).max(*known);
            }
        }
        if *kind == Kind::Ring {
            self.check_ring(rank, meeting, reply);
        }
    }

    fn check_ring(&self, rank: u32, meeting: usize, reply: &str) {
        // The arrival of a dead rank is not always visible from outside.
        if !self.dead.is_empty() || !self.excused.is_empty() {
            return;
        }
        let size = self.size;
        let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
        let expected = [("ring-count", rank.to_string()), ("ring-left", format!("r{before}.{meeting}"))];
        for (name, value) in expected {
            assert_eq!(field(reply, name), Some(value.as_str()), "rank {rank} in a ring: {reply}");
        }
        assert_eq!(field(reply, "ring-right"), Some(format!("l{after}.{meeting}").as_str()), "{reply}");
    }

    /// A rank has read a key.
    ///
    /// # Panics
    /// The value is older than the minimum, or newer than any requested put.
    pub fn got(&self, rank: u32, of: u32, key: u32, round: Option<u32>) {
        self.found(&format!("rank {rank}"), &self.floors[rank as usize], (of, key), round);
    }

    /// Returns the minimum rounds that a rank must find.
    pub fn known_to(&self, rank: u32) -> Vec<Rounds> {
        self.floors[rank as usize].clone()
    }

    /// A client that must find at least these rounds has read a key of a rank.
    ///
    /// # Panics
    /// As [`got`](Checks::got).
    pub fn found(&self, who: &str, known: &[Rounds], (of, key): (u32, u32), round: Option<u32>) {
        if self.excused.contains(&of) {
            return;
        }
        let least = if self.gone.contains(&of) { 0 } else { known[of as usize][key as usize] };
        let most = self.asked[of as usize][key as usize];
        let found = round.unwrap_or(0);
        assert!(
            (least..=most).contains(&found),
            "{who} finds round {found} of key {key} of rank {of}, which must be {least} to {most}"
        );
    }

    /// Checks that all ranks that arrived at meetings were released.
    ///
    /// # Panics
    /// A rank was not released.
    pub fn check_end(&self) {
        for (meeting, course) in self.courses.iter().enumerate() {
            let left: Vec<&u32> = course
                .arrived
                .difference(&course.released)
                .filter(|rank| !self.dead.contains(rank))
                .collect();
            assert!(left.is_empty(), "{left:?} wait at meeting {meeting} for ever");
        }
    }
}
