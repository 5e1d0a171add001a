//! Timeline as trace events, the JSON that Perfetto and Chrome read.
//!
//! A host is a process and a rank is a thread. Spans are complete events (`X`). Requests of one rank that overlap are on
//! further threads, because the spans of a thread must nest. Recordings have whole milliseconds. Spans of less last a
//! microsecond here, one after the other. A flow (`s`, `f`) leads from the last arriver of a
//! collective to each rank that it released. Times are microseconds.

use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::TimelineError;
use crate::model::{Collective, Span, Timeline, Track};
use crate::summary::limits_of;

/// Most flows of a trace. Collectives in which the ranks waited longest come first.
const FLOWS_MAX: usize = 200_000;

/// Trace event.
#[derive(Debug, Default, Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'a str,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

/// Writes a timeline as a trace for Perfetto, without the texts of messages.
///
/// # Errors
/// [`TimelineError::Write`].
pub fn write_trace(timeline: &Timeline, out: &mut dyn Write) -> Result<(), TimelineError> {
    let mut events = Events { out, any: false };
    events.out.write_all(b"{\"traceEvents\":[")?;
    for (pid, node) in timeline.nodes.iter().enumerate() {
        events.metadata("process_name", pid + 1, 0, json!({ "name": node.label }))?;
        events.metadata(
            "process_sort_index",
            pid + 1,
            0,
            json!({ "sort_index": node.number.unwrap_or(0) }),
        )?;
    }
    let places = write_tracks(timeline, &mut events)?;
    write_flows(timeline, &places, &mut events)?;
    for note in &timeline.notes {
        let (pid, ts) = (note.node + 1, Some(note.at * 1000));
        events.write(&Event { name: &note.text, ph: "i", pid, ts, s: Some("p"), ..Event::default() })?;
    }
    let other = json!({ "recorded by": timeline.nodes.first().map(|node| &node.program), "notes": limits_of(timeline) });
    events.out.write_all(b"\n],\"displayTimeUnit\":\"ms\",\"otherData\":")?;
    serde_json::to_writer(&mut *events.out, &other)?;
    events.out.write_all(b"}\n")?;
    Ok(())
}

/// Writes the spans of all ranks. Returns the place of each span, by track.
fn write_tracks(timeline: &Timeline, events: &mut Events<'_>) -> Result<Vec<Vec<Place>>, TimelineError> {
    let mut all = Vec::with_capacity(timeline.tracks.len());
    let mut next = 1;
    for track in &timeline.tracks {
        let pid = track.node + 1;
        let places = places(timeline, track, next);
        let count = places.iter().map(|place| place.thread - next + 1).max().unwrap_or(1);
        for lane in 0..count {
            let more = if lane > 0 { format!(" ({})", lane + 1) } else { String::new() };
            let name = format!("{}{more}", timeline.rank_name(track));
            events.metadata("thread_name", pid, next + lane, json!({ "name": name }))?;
            events.metadata("thread_sort_index", pid, next + lane, json!({ "sort_index": next + lane }))?;
        }
        for (span, place) in track.spans.iter().zip(&places) {
            events.span(timeline, track, span, place)?;
        }
        if let Some((at, exit)) = track.exit {
            let (name, ts) = (exit.to_string(), Some(at * 1000));
            events.write(&Event {
                name: &name,
                ph: "i",
                pid,
                tid: next,
                ts,
                s: Some("t"),
                ..Event::default()
            })?;
        }
        all.push(places);
        next += count;
    }
    Ok(all)
}

/// Place of a span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    thread: usize,
    /// Start and end in microseconds.
    start: i64,
    end: i64,
}

/// Returns a lane for each span of a track, so that spans of one lane do not overlap.
pub(crate) fn lanes(timeline: &Timeline, track: &Track) -> Vec<usize> {
    let mut ends: Vec<i64> = Vec::new();
    let lane = |span: &Span| {
        let end = timeline.end_of(track, span);
        match ends.iter().position(|&before| before <= span.start) {
            Some(lane) => {
                ends[lane] = end;
                lane
            }
            None => {
                ends.push(end);
                ends.len() - 1
            }
        }
    };
    track.spans.iter().map(lane).collect()
}

/// Returns the places of a track's spans, the first lane of which is thread `first`.
fn places(timeline: &Timeline, track: &Track, first: usize) -> Vec<Place> {
    let mut ends: Vec<i64> = Vec::new();
    let spans = track.spans.iter().zip(lanes(timeline, track));
    let place = |(span, lane): (&Span, usize)| {
        ends.resize(ends.len().max(lane + 1), i64::MIN);
        let start = (span.start * 1000).max(ends[lane]);
        let end = (timeline.end_of(track, span) * 1000).max(start + 1);
        ends[lane] = end;
        Place { thread: first + lane, start, end }
    };
    spans.map(place).collect()
}

/// Writes a flow from the last arriver of each collective to each rank that waited for it.
fn write_flows(
    timeline: &Timeline,
    places: &[Vec<Place>],
    events: &mut Events<'_>,
) -> Result<(), TimelineError> {
    let mut order: Vec<(usize, &Collective)> = timeline.collectives.iter().enumerate().collect();
    order.sort_by_key(|(at, collective)| (std::cmp::Reverse(collective.waited), *at));
    let mut id = 0;
    for (_, collective) in order {
        let name = timeline.collective_name(collective);
        let last = collective.arrived[collective.last];
        let from = places[last.track][last.span].start;
        for arrival in &collective.arrived {
            let released = timeline.tracks[arrival.track].spans[arrival.span].end.is_some();
            if !released || *arrival == last || id == FLOWS_MAX {
                continue;
            }
            id += 1;
            let to = places[arrival.track][arrival.span];
            let flow = |ph, bp, arrival: &crate::model::Arrival, at: i64| Event {
                name: &name,
                cat: Some("released"),
                id: Some(id),
                ph,
                bp,
                pid: timeline.tracks[arrival.track].node + 1,
                tid: places[arrival.track][arrival.span].thread,
                ts: Some(at),
                ..Event::default()
            };
            events.write(&flow("s", None, &last, from))?;
            // It binds to the span around it.
            events.write(&flow("f", Some("e"), arrival, to.end - 1))?;
        }
    }
    Ok(())
}

struct Events<'w> {
    out: &'w mut dyn Write,
    any: bool,
}

impl Events<'_> {
    fn write(&mut self, event: &Event<'_>) -> Result<(), TimelineError> {
        let separator: &[u8] = if std::mem::replace(&mut self.any, true) { b",\n" } else { b"\n" };
        self.out.write_all(separator)?;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    fn metadata(&mut self, name: &str, pid: usize, tid: usize, args: Value) -> Result<(), TimelineError> {
        self.write(&Event { name, ph: "M", pid, tid, args: Some(args), ..Event::default() })
    }

    fn span(
        &mut self,
        timeline: &Timeline,
        track: &Track,
        span: &Span,
        place: &Place,
    ) -> Result<(), TimelineError> {
        let collective = span.collective.map(|at| &timeline.collectives[at]);
        let name = collective.map(|collective| timeline.collective_name(collective));
        let mut args = json!({ "requests": span.requests });
        if let Some(collective) = collective {
            let last = &timeline.tracks[collective.arrived[collective.last].track];
            args["last to arrive"] = json!(timeline.rank_name(last));
        }
        if span.end.is_none() {
            args["reply"] = json!("none");
        }
        self.write(&Event {
            name: name.as_deref().unwrap_or(span.phase.name()),
            ph: "X",
            pid: track.node + 1,
            tid: place.thread,
            ts: Some(place.start),
            dur: Some(place.end - place.start),
            cat: Some(span.phase.name()),
            args: Some(args),
            ..Event::default()
        })
    }
}
