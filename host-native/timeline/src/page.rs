//! Timeline as one HTML page, for people without tools.
//!
//! The page loads nothing. Its data are JSON in which `<`, `>` and `&` are escaped, so that no text of a client ends the
//! element. The script shows texts as text nodes only.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::error::TimelineError;
use crate::model::{Collective, Message, Phase, Span, Timeline, Track};
use crate::startup::{PhaseTime, StartUp};
use crate::summary::{Summary, limits_of};
use crate::trace::lanes;

/// Most spans of a page. Tracks beyond are left out, and the page says how many.
const SPANS_MAX: usize = 200_000;
/// Most collectives of a page: those in which the ranks waited longest.
const COLLECTIVES_MAX: usize = 20_000;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Writes a timeline as a page. `title` names it.
///
/// # Errors
/// [`TimelineError::Write`].
pub fn write_page(timeline: &Timeline, title: &str, out: &mut dyn Write) -> Result<(), TimelineError> {
    for part in PAGE.split("<!--") {
        let (mark, rest) = part.split_once("-->").unwrap_or(("", part));
        match mark {
            "title" => out.write_all(html(title).as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            "data" => write_data(timeline, &mut Escaped(&mut *out))?,
            _ => {}
        }
        out.write_all(rest.as_bytes())?;
    }
    Ok(())
}

/// Escapes a text of HTML.
fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writer of JSON inside an element. In JSON these characters are parts of strings only.
struct Escaped<'w>(&'w mut dyn Write);

impl Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = bytes.iter().position(|byte| b"<>&".contains(byte)).unwrap_or(bytes.len());
        if plain > 0 {
            self.0.write_all(&bytes[..plain])?;
            return Ok(plain);
        }
        match bytes.first() {
            Some(byte) => write!(self.0, "\\u{byte:04x}").map(|()| 1),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn write_data(timeline: &Timeline, out: &mut dyn Write) -> Result<(), TimelineError> {
    let mut spans = 0_usize;
    let fits = |track: &&Track| {
        spans += track.spans.len();
        spans <= SPANS_MAX
    };
    let shown = timeline.tracks.iter().take_while(fits).count();
    let kept = kept_collectives(timeline);
    let mut notes = limits_of(timeline);
    let left_out = timeline.tracks.len() - shown;
    if left_out > 0 {
        notes.insert(0, format!("note: this page leaves out {left_out} ranks, to stay small"));
    }
    let lost = timeline.collectives.len() - kept.iter().flatten().count();
    if lost > 0 {
        notes.insert(0, format!("note: this page leaves out {lost} fences with short waits, to stay small"));
    }
    let head = json!({
        "phases": Phase::ALL.map(Phase::name),
        "nodes": timeline.nodes.iter().map(|node| &node.label).collect::<Vec<_>>(),
        "program": timeline.nodes.first().map(|node| &node.program),
        "jobs": (0..timeline.jobs.len()).map(|job| job_of(timeline, job, shown)).collect::<Vec<_>>(),
        "end": timeline.end(),
        "notes": notes.iter().map(|note| note.trim_start_matches("note: ")).collect::<Vec<_>>(),
    });
    out.write_all(b"{\"head\":")?;
    serde_json::to_writer(&mut *out, &head)?;
    out.write_all(b",\"collectives\":[")?;
    let collectives = timeline.collectives.iter().zip(&kept).filter(|(_, kept)| kept.is_some());
    for (at, (collective, _)) in collectives.enumerate() {
        separate(at, out)?;
        serde_json::to_writer(&mut *out, &collective_of(timeline, collective, shown))?;
    }
    out.write_all(b"],\"tracks\":[")?;
    for (at, track) in timeline.tracks[..shown].iter().enumerate() {
        separate(at, out)?;
        serde_json::to_writer(&mut *out, &track_of(timeline, track, &kept))?;
    }
    out.write_all(b"]}")?;
    Ok(())
}

fn separate(at: usize, out: &mut dyn Write) -> io::Result<()> {
    if at > 0 { out.write_all(b",\n") } else { Ok(()) }
}

/// Returns the number that each collective has on the page.
fn kept_collectives(timeline: &Timeline) -> Vec<Option<usize>> {
    let all = &timeline.collectives;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(all[at].waited), at));
    order.truncate(COLLECTIVES_MAX);
    order.sort_unstable();
    let mut kept = vec![None; all.len()];
    for (number, at) in order.into_iter().enumerate() {
        kept[at] = Some(number);
    }
    kept
}

fn job_of(timeline: &Timeline, job: usize, shown: usize) -> Value {
    let StartUp { begin, end, phases, .. } = timeline.start_up(job);
    let phase = |PhaseTime { name, about, sum, max, slowest, .. }: &PhaseTime| {
        let slowest: Vec<_> = slowest.iter().filter(|&&(track, _)| track < shown).collect();
        json!({ "name": name, "about": about, "sum": sum, "max": max, "slowest": slowest })
    };
    json!({
        "name": timeline.jobs[job].name,
        "about": Summary::of(timeline, job).headline(),
        "begin": begin,
        "end": end,
        "phases": phases.iter().map(phase).collect::<Vec<_>>(),
    })
}

fn collective_of(timeline: &Timeline, collective: &Collective, shown: usize) -> Value {
    let start = |at: usize| {
        let arrival = collective.arrived[at];
        timeline.tracks[arrival.track].spans[arrival.span].start
    };
    let last = collective.arrived[collective.last];
    json!({
        "name": timeline.collective_name(collective),
        "job": collective.job,
        "size": collective.size,
        "arrived": collective.arrived.len(),
        "last": (last.track < shown).then_some([last.track, last.span]),
        "rank": timeline.rank_name(&timeline.tracks[last.track]),
        "first": (0..collective.arrived.len()).map(start).min(),
        "at": start(collective.last),
        "lead": collective.lead,
        "waited": collective.waited,
        "longest": collective.longest,
        "open": collective.open,
    })
}

/// A track as an array, and its spans as arrays, because there may be many.
fn track_of(timeline: &Timeline, track: &Track, kept: &[Option<usize>]) -> Value {
    let message = |Message { at, reply, text }: &Message| json!([at, u8::from(*reply), text]);
    let span = |(span, lane): (&Span, usize)| {
        let end = timeline.end_of(track, span);
        let collective = span.collective.and_then(|at| kept[at]);
        let messages: Vec<_> = span.messages.iter().map(message).collect();
        let open = u8::from(span.end.is_none());
        json!([span.phase as u8, span.start, end, open, span.requests, collective, lane, messages])
    };
    let spans: Vec<_> = track.spans.iter().zip(lanes(timeline, track)).map(span).collect();
    let exit = track.exit.map(|(at, exit)| (at, exit.to_string()));
    let failed = track.exit.is_some_and(|(_, exit)| exit != hydrant_core::Exit::Code(0));
    json!([
        track.job,
        track.rank,
        track.node,
        track.protocol.map(|protocol| protocol.to_string()),
        exit,
        failed,
        spans
    ])
}
