//! A timeline from the drafts of all recordings: one clock, and the waits in collectives.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use crate::collect::{Collection, CollectiveDraft, JobDraft, TrackDraft};
use crate::error::TimelineError;
use crate::model::{Arrival, Collective, Job, LeftOut, Millis, Phase, Span, Timeline, Track};
use crate::{Budget, clock};

impl Timeline {
    /// Reads the recordings of nodes of one run, in any order, each with a name for people.
    ///
    /// A recording that is truncated or damaged is read up to there, and [`Node::cut`](crate::Node::cut) has the error.
    ///
    /// # Errors
    /// [`TimelineError`] if a file is not a recording, or if the recordings are not of one run.
    pub fn read<R: Read, L: AsRef<str>>(
        recordings: impl IntoIterator<Item = (L, R)>,
        budget: &Budget,
    ) -> Result<Timeline, TimelineError> {
        let mut all = Collection::new(*budget);
        for (label, from) in recordings {
            all = all.read(label.as_ref(), from)?;
        }
        check(&all)?;
        Ok(assemble(all))
    }
}

/// Checks that the recordings are of different nodes of one run.
fn check(all: &Collection) -> Result<(), TimelineError> {
    let mut by_number = BTreeMap::new();
    for (at, node) in all.nodes.iter().enumerate() {
        let number = node.number.unwrap_or(0);
        if let Some(first) = by_number.insert(number, at) {
            let label = |at: usize| all.nodes[at].label.clone();
            return Err(TimelineError::SameNode { first: label(first), second: label(at), node: number });
        }
    }
    // All nodes of a run have the same jobs.
    let mut jobs = vec![BTreeSet::new(); all.nodes.len()];
    for (number, job) in all.jobs.iter().enumerate() {
        for &(node, _) in &job.registered {
            jobs[node].insert(number);
        }
    }
    let mut with_jobs = all.nodes.iter().zip(&jobs).filter(|(_, jobs)| !jobs.is_empty());
    let Some((first, common)) = with_jobs.next() else { return Ok(()) };
    match with_jobs.find(|(_, jobs)| jobs.is_disjoint(common)) {
        Some((other, _)) => {
            let (first, second) = (first.label.clone(), other.label.clone());
            Err(TimelineError::Unrelated { first, second })
        }
        None => Ok(()),
    }
}

pub(crate) fn assemble(mut all: Collection) -> Timeline {
    let numbers: Vec<u32> = all.nodes.iter().map(|node| node.number.unwrap_or(0)).collect();
    // Without messages, the registration of a job is the moment that two nodes share best.
    let fallback = |root: usize, other: usize| {
        let at = |job: &JobDraft, node| {
            job.registered.iter().find(|(own, _)| *own == node).map(|&(_, at)| at as Millis)
        };
        all.jobs.iter().find_map(|job| at(job, root).zip(at(job, other))).map_or(0, |(a, b)| a - b)
    };
    let mut clocks = clock::tie(&numbers, &all.links, fallback);
    // A daemon's clock may begin before that of the lowest node which is given.
    let registered = all.jobs.iter().flat_map(|job| &job.registered);
    let earliest = registered.map(|&(node, at)| clocks[node].offset + at as Millis).min().unwrap_or(0).min(0);
    clocks.iter_mut().for_each(|clock| clock.offset -= earliest);
    for (node, clock) in all.nodes.iter_mut().zip(&clocks) {
        node.clock = *clock;
        node.end += clock.offset;
    }
    for note in &mut all.notes {
        note.at += clocks[note.node].offset;
    }
    all.notes.sort_by_key(|note| note.at);
    let jobs = all.jobs.iter().map(|job| {
        let registered = job.registered.iter().map(|&(node, at)| clocks[node].offset + at as Millis);
        Job { name: job.name.clone(), size: job.size, registered: registered.min().unwrap_or(0) }
    });
    let jobs: Vec<Job> = jobs.collect();
    let tracks = std::mem::take(&mut all.tracks).into_iter();
    let tracks = tracks
        .map(|((job, rank), draft)| {
            let offset = clocks[draft.node].offset;
            track(job, rank, draft, offset, jobs[job].registered)
        })
        .collect();
    let left_out = LeftOut { messages: all.room.messages_lost, spans: all.room.spans_lost, ..all.left_out };
    let mut timeline =
        Timeline { nodes: all.nodes, jobs, tracks, notes: all.notes, left_out, ..Timeline::default() };
    collectives(&mut timeline, all.collectives);
    sort_nodes(&mut timeline);
    timeline
}

/// Sorts the nodes by their number.
fn sort_nodes(timeline: &mut Timeline) {
    let mut order: Vec<usize> = (0..timeline.nodes.len()).collect();
    order.sort_by_key(|&at| timeline.nodes[at].number);
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
    timeline.nodes = order.into_iter().map(|old| timeline.nodes[old].clone()).collect();
    timeline.tracks.iter_mut().for_each(|track| track.node = place[track.node]);
    timeline.notes.iter_mut().for_each(|note| note.node = place[note.node]);
}

fn track(job: usize, rank: u32, draft: TrackDraft, offset: Millis, registered: Millis) -> Track {
    let TrackDraft { node, protocol, opened, first, exit, scan, mut spans, .. } = draft;
    for span in &mut spans {
        span.start += offset;
        span.end = span.end.map(|end| end + offset);
        span.messages.iter_mut().for_each(|message| message.at += offset);
    }
    let on_clock = |at: u64| at as Millis + offset;
    let own = |phase, start, end| Span {
        phase,
        start,
        end,
        sequence: 0,
        requests: 0,
        collective: None,
        messages: Vec::new(),
    };
    if let Some(opened) = opened.map(on_clock) {
        // Two clocks may disagree within their error.
        spans.push(own(Phase::Launch, registered.min(opened), Some(opened)));
        spans.push(own(Phase::Start, opened, first.map(|first| on_clock(first).max(opened))));
    }
    spans.sort_by_key(|span| (span.start, span.sequence, span.phase));
    let exit = exit.map(|(at, exit)| (on_clock(at), exit));
    Track { job, rank, node, protocol, exit, scan, spans }
}

/// Finds who arrived last in each collective, and how long the others waited.
fn collectives(timeline: &mut Timeline, drafts: Vec<CollectiveDraft>) {
    let mut arrived: Vec<Vec<Arrival>> = vec![Vec::new(); drafts.len()];
    for (at, track) in timeline.tracks.iter().enumerate() {
        for (number, span) in track.spans.iter().enumerate() {
            if let Some(collective) = span.collective {
                arrived[collective].push(Arrival { track: at, span: number });
            }
        }
    }
    let mut order = Vec::with_capacity(drafts.len());
    for (place, (draft, arrived)) in drafts.into_iter().zip(arrived).enumerate() {
        let span = |at: &Arrival| &timeline.tracks[at.track].spans[at.span];
        let of = |at: &Arrival| (span(at).start, span(at).sequence);
        let Some(last) = (0..arrived.len()).max_by_key(|&at| of(&arrived[at])) else { continue };
        let latest = of(&arrived[last]).0;
        let others = arrived.iter().enumerate().filter(|&(at, _)| at != last);
        let before = others.map(|(_, at)| of(at).0).max().unwrap_or(latest);
        let waits = arrived.iter().map(|at| {
            let (track, span) = (&timeline.tracks[at.track], span(at));
            (timeline.end_of(track, span) - span.start).max(0) as u64
        });
        let (waited, longest) =
            waits.fold((0_u64, 0), |(sum, max), wait| (sum.saturating_add(wait), wait.max(max)));
        let first = arrived.iter().map(of).min();
        let job = timeline.tracks[arrived[0].track].job;
        let open = arrived.iter().any(|at| span(at).end.is_none());
        let lead = (latest - before).max(0) as u64;
        let CollectiveDraft { name, number, whole } = draft;
        let size = whole.then(|| timeline.jobs[job].size);
        let collective = Collective { name, number, job, size, arrived, last, lead, waited, longest, open };
        order.push((first, place, collective));
    }
    order.sort_by_key(|&(first, place, _)| (first, place));
    for (at, (.., collective)) in order.into_iter().enumerate() {
        for Arrival { track, span } in &collective.arrived {
            timeline.tracks[*track].spans[*span].collective = Some(at);
        }
        timeline.collectives.push(collective);
    }
}
