//! What is promised to ranks, held against what they asked and were answered.

use std::collections::{BTreeMap, BTreeSet};

use crate::rank::{KEYS, Kind, Meeting, field};

/// Rounds of each of a rank's keys: the last one put, 0 for none.
type Rounds = [u32; KEYS as usize];

/// What has happened at a meeting.
#[derive(Clone, Debug, Default)]
struct Course {
    arrived: BTreeSet<u32>,
    released: BTreeSet<u32>,
    /// What each member knew when it arrived: of everybody's keys the rounds, what it had put itself included.
    known: BTreeMap<u32, Vec<Rounds>>,
}

/// All that the checkers know.
#[derive(Clone, Debug)]
pub struct Checks {
    size: u32,
    /// Whether those who died need not come.
    survive: bool,
    meetings: Vec<Meeting>,
    courses: Vec<Course>,
    dead: BTreeSet<u32>,
    /// What each has asked to put, answered or not.
    asked: Vec<Rounds>,
    /// What each rank must find at least: of everybody's keys the rounds that its meetings made visible.
    floors: Vec<Vec<Rounds>>,
}

impl Checks {
    /// Nothing has happened yet.
    pub fn new(size: u32, survive: bool, meetings: &[Meeting]) -> Checks {
        Checks {
            size,
            survive,
            meetings: meetings.to_vec(),
            courses: vec![Course::default(); meetings.len()],
            dead: BTreeSet::new(),
            asked: vec![Rounds::default(); size as usize],
            floors: vec![vec![Rounds::default(); size as usize]; size as usize],
        }
    }

    /// A rank asks to put a value.
    pub fn ask_put(&mut self, rank: u32, key: u32, round: u32) {
        self.asked[rank as usize][key as usize] = round;
    }

    /// A rank's put has been taken.
    pub fn put(&mut self, rank: u32, key: u32, round: u32) {
        // One's own puts are visible at once.
        self.floors[rank as usize][rank as usize][key as usize] = round;
    }

    /// A rank's process has ended.
    pub fn died(&mut self, rank: u32) {
        self.dead.insert(rank);
    }

    /// A rank asks to meet others.
    pub fn arrive(&mut self, rank: u32, meeting: usize) {
        let course = &mut self.courses[meeting];
        assert!(course.arrived.insert(rank), "rank {rank} comes twice to meeting {meeting}: a broken script");
        // What it learnt from others it passes on.
        course.known.insert(rank, self.floors[rank as usize].clone());
    }

    /// A rank is let go.
    ///
    /// # Panics
    /// When it must not be.
    pub fn release(&mut self, rank: u32, meeting: usize, reply: &str) {
        let Meeting { members, kind } = &self.meetings[meeting];
        let course = &mut self.courses[meeting];
        assert_eq!(
            field(reply, "rc"),
            Some("0"),
            "rank {rank} is turned away from meeting {meeting}: {reply}"
        );
        assert!(course.arrived.contains(&rank), "rank {rank} is let go of meeting {meeting} where it is not");
        assert!(course.released.insert(rank), "rank {rank} is let go twice of meeting {meeting}");
        for member in members {
            let excused = self.survive && self.dead.contains(member);
            assert!(
                excused || course.arrived.contains(member),
                "rank {rank} is let go of meeting {meeting}, to which rank {member} has not come"
            );
        }
        let floor = &mut self.floors[rank as usize];
        for (member, known) in &course.known {
            // Who died may have done so before its node heard of it.
            if self.dead.contains(member) && !course.released.contains(member) {
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
        // Which of those who died had come is not always known from outside.
        if !self.dead.is_empty() {
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
    /// When the value is older than it may be, or from the future.
    pub fn got(&self, rank: u32, of: u32, key: u32, round: Option<u32>) {
        let least = self.floors[rank as usize][of as usize][key as usize];
        let most = self.asked[of as usize][key as usize];
        let found = round.unwrap_or(0);
        assert!(
            (least..=most).contains(&found),
            "rank {rank} finds round {found} of key {key} of rank {of}, which must be {least} to {most}"
        );
    }

    /// Everybody who came has been let go.
    ///
    /// # Panics
    /// When somebody has not.
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
