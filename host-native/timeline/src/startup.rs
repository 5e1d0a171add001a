//! Start-up time of a job by phase and rank.

use std::cmp::Reverse;

use crate::model::{Millis, Phase, Span, Timeline, Track};

/// Slowest ranks that are named for each phase.
const NAMED: usize = 3;

/// Start-up of a job: from its registration to the last reply to a rank before ranks spawn, use names or finalize.
///
/// MPI libraries begin `MPI_Finalize` with a fence. When it is not the rank's only one, the last fence before finalize belongs to
/// finalize and not to the start-up, if only [other](Phase::Other) requests are between them.
///
/// Each millisecond of a rank's start-up is in one phase, so the phases add up to [`StartUp::all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartUp {
    /// Registration of the job.
    pub begin: Millis,
    /// End of the start-up of the last rank.
    pub end: Millis,
    /// Number of ranks that the recordings show.
    pub ranks: usize,
    /// Start-up as a whole.
    pub all: PhaseTime,
    /// Times by phase.
    pub phases: Vec<PhaseTime>,
}

/// Time of all ranks in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// Name of a [`Phase`], `own` for the time of a rank between its messages, or `start-up` for all phases of it.
    pub name: &'static str,
    /// What it counts.
    pub about: &'static str,
    /// Whether the phase is part of the start-up.
    pub starts: bool,
    /// Milliseconds of all ranks.
    pub sum: u64,
    /// Milliseconds of the slowest rank.
    pub max: u64,
    /// Slowest ranks: index in [`Timeline::tracks`], and milliseconds. Ranks of 0 ms are left out.
    pub slowest: Vec<(usize, u64)>,
}

/// Columns of a rank's times: those of [`Phase::ALL`], the rank's own, and its start-up.
const COLUMNS: usize = Phase::ALL.len() + 2;
const OWN: usize = Phase::ALL.len();
const ALL: usize = Phase::ALL.len() + 1;

/// Columns in the order of a start-up, with what they count.
const SHOWN: [(usize, &str); COLUMNS - 1] = [
    (Phase::Launch as usize, "registration of the job until the host has the connection"),
    (Phase::Start as usize, "from there until the first message of the rank"),
    (Phase::Init as usize, "PMI handshake"),
    (Phase::Put as usize, "puts, from the first request to the last reply"),
    (Phase::Fence as usize, "wait in fences"),
    (Phase::Get as usize, "gets, from the first request to the last reply"),
    (OWN, "between messages: the program and its MPI library"),
    (Phase::Other as usize, "other requests"),
    (Phase::Name as usize, "publications and look-ups"),
    (Phase::Spawn as usize, "spawn requests"),
    (Phase::Finalize as usize, "finalize, from the fence before it on"),
];

impl Timeline {
    /// Returns the start-up of a job, by its index in [`Timeline::jobs`].
    pub fn start_up(&self, job: usize) -> StartUp {
        let begin = self.jobs.get(job).map_or(0, |job| job.registered);
        let ranks = self.tracks.iter().enumerate().filter(|(_, track)| track.job == job);
        let times: Vec<(usize, Times)> = ranks.map(|(at, track)| (at, self.times(track))).collect();
        let end = times.iter().filter_map(|(_, times)| times.end).max().unwrap_or(begin);
        let phase = |column: usize, name, about| {
            let of = |(at, times): &(usize, Times)| (*at, times.columns[column]);
            let sum = times.iter().map(|rank| of(rank).1).fold(0, u64::saturating_add);
            let mut slowest: Vec<_> = times.iter().map(of).filter(|&(_, time)| time > 0).collect();
            slowest.sort_by_key(|&(at, time)| (Reverse(time), at));
            let max = slowest.first().map_or(0, |&(_, time)| time);
            slowest.truncate(NAMED);
            let starts = Phase::ALL.get(column).is_none_or(|phase| phase.is_start());
            PhaseTime { name, about, starts, sum, max, slowest }
        };
        let name = |column: usize| Phase::ALL.get(column).map_or("own", |phase| phase.name());
        let phases = SHOWN.iter().map(|&(column, about)| phase(column, name(column), about)).collect();
        let all = phase(ALL, "start-up", "from the registration of the job to the last reply");
        StartUp { begin, end, ranks: times.len(), all, phases }
    }

    fn times(&self, track: &Track) -> Times {
        let mut times = Times { columns: [0; COLUMNS], end: None };
        let end_fence = end_fence(&track.spans);
        let (mut starting, mut ending) = (true, None);
        for (at, span) in track.spans.iter().enumerate() {
            let end = self.end_of(track, span);
            let is_end = span.phase == Phase::Finalize || Some(at) == end_fence;
            starting &= !is_end && span.phase.is_start();
            if starting {
                // Spans of one rank may overlap.
                let covered = times.end.unwrap_or(span.start);
                add(&mut times.columns[OWN], span.start - covered);
                add(&mut times.columns[span.phase as usize], end - span.start.max(covered));
                add(&mut times.columns[ALL], end.max(span.start) - covered);
                times.end = Some(end.max(covered));
            } else if is_end {
                let from = *ending.get_or_insert(span.start);
                times.columns[Phase::Finalize as usize] = (end - from).max(0) as u64;
            } else if !span.phase.is_start() {
                add(&mut times.columns[span.phase as usize], end - span.start);
            }
        }
        times
    }
}

fn add(sum: &mut u64, time: Millis) {
    *sum = sum.saturating_add(time.max(0) as u64);
}

struct Times {
    columns: [u64; COLUMNS],
    /// End of the rank's start-up.
    end: Option<Millis>,
}

/// Returns the fence that begins the finalize, if it is not the only one.
fn end_fence(spans: &[Span]) -> Option<usize> {
    let finalize = spans.iter().position(|span| span.phase == Phase::Finalize)?;
    let before = spans[..finalize].iter().rposition(|span| span.phase != Phase::Other)?;
    let is_fence = |span: &Span| span.phase == Phase::Fence;
    let earlier = spans[..before].iter().any(is_fence);
    (is_fence(&spans[before]) && earlier).then_some(before)
}
