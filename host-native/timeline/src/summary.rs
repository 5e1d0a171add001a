//! Summary of a timeline as plain text.

use std::io::Write;

use crate::error::TimelineError;
use crate::model::{Collective, LeftOut, Millis, Protocol, Timeline};
use crate::startup::{PhaseTime, StartUp};

/// Collectives of a job that are printed: those in which the ranks waited longest.
const COLLECTIVES_SHOWN: usize = 20;
/// Nodes whose clocks are printed.
const NODES_SHOWN: usize = 20;
/// Notes that are printed.
const NOTES_SHOWN: usize = 20;
/// Missing ranks of a collective that are named.
const MISSING_SHOWN: usize = 5;

/// Prints where the time of each job went: phases with sums, maxima and the slowest ranks, collectives with their last
/// arriver, and what the recordings do not show.
///
/// # Errors
/// [`TimelineError::Write`].
pub fn write_summary(timeline: &Timeline, out: &mut dyn Write) -> Result<(), TimelineError> {
    for job in 0..timeline.jobs.len() {
        if job > 0 {
            writeln!(out)?;
        }
        write_job(timeline, job, out)?;
    }
    for line in limits_of(timeline) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn write_job(timeline: &Timeline, number: usize, out: &mut dyn Write) -> Result<(), TimelineError> {
    let job = &timeline.jobs[number];
    let start_up = timeline.start_up(number);
    let StartUp { begin, end, ranks, phases } = &start_up;
    writeln!(out, "job {}: {}", job.name.escape_debug(), headline(timeline, number, *ranks))?;
    if *ranks == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "start-up {} s, from the registration of the job at {} s",
        seconds(end - begin),
        seconds(*begin)
    )?;
    writeln!(out)?;
    writeln!(out, "{:<10}{:>10}{:>10}  slowest ranks", "phase", "sum s", "max s")?;
    for PhaseTime { name, sum, max, slowest, .. } in phases {
        // Most jobs have no spawn, name or other request.
        if *sum == 0 && matches!(*name, "other" | "name" | "spawn") {
            continue;
        }
        let named = slowest.iter().map(|&(track, time)| {
            let track = &timeline.tracks[track];
            format!("{} ({})", track.rank, seconds(time as Millis))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let line =
            format!("{name:<10}{:>10}{:>10}  {named}", seconds(*sum as Millis), seconds(*max as Millis));
        writeln!(out, "{}", line.trim_end())?;
    }
    write_collectives(timeline, number, out)
}

fn write_collectives(timeline: &Timeline, job: usize, out: &mut dyn Write) -> Result<(), TimelineError> {
    let all = || timeline.collectives.iter().enumerate().filter(|(_, collective)| collective.job == job);
    let mut shown: Vec<(usize, &Collective)> = all().collect();
    if shown.is_empty() {
        return Ok(());
    }
    shown.sort_by_key(|(at, collective)| (std::cmp::Reverse(collective.waited), *at));
    shown.truncate(COLLECTIVES_SHOWN);
    shown.sort_by_key(|&(at, _)| at);
    writeln!(out)?;
    let (first, last, after) = ("first s", "last s", "after");
    writeln!(
        out,
        "{:<16}{:>6}{first:>10}{last:>10}{:>10}{:>10}  last to arrive ({after})",
        "fence", "ranks", "sum s", "max s"
    )?;
    for (_, collective) in &shown {
        let Collective { name, number, arrived, last, lead, waited, longest, .. } = collective;
        let start = |at: usize| {
            let arrival = arrived[at];
            timeline.tracks[arrival.track].spans[arrival.span].start
        };
        let first = (0..arrived.len()).map(start).min().unwrap_or(0);
        let late = &timeline.tracks[arrived[*last].track];
        let host = match timeline.nodes.len() {
            1 => String::new(),
            _ => format!(" on {}", timeline.nodes[late.node].label.escape_debug()),
        };
        let missing = missing(timeline, collective);
        writeln!(
            out,
            "{:<16}{:>6}{:>10}{:>10}{:>10}{:>10}  rank {}{host} ({}){missing}",
            format!("{name} {number}"),
            arrived.len(),
            seconds(first),
            seconds(start(*last)),
            seconds(*waited as Millis),
            seconds(*longest as Millis),
            late.rank,
            seconds(*lead as Millis),
        )?;
    }
    let more = all().count() - shown.len();
    if more > 0 {
        writeln!(out, "and {more} more with shorter waits")?;
    }
    Ok(())
}

/// Describes the ranks that have not arrived in an open collective of a whole job.
fn missing(timeline: &Timeline, collective: &Collective) -> String {
    let Some(size) = collective.size.filter(|_| collective.open) else { return String::new() };
    let arrived: std::collections::BTreeSet<u32> =
        collective.arrived.iter().map(|at| timeline.tracks[at.track].rank).collect();
    let count = u64::from(size).saturating_sub(arrived.len() as u64);
    // Without the recordings of all nodes, ranks of the others look missing.
    if count == 0 || !has_all_nodes(timeline) {
        return "; not released".to_owned();
    }
    let named: Vec<String> = (0..size)
        .filter(|rank| !arrived.contains(rank))
        .take(MISSING_SHOWN)
        .map(|rank| rank.to_string())
        .collect();
    let dots = if count > named.len() as u64 { ", .." } else { "" };
    format!("; {count} missing: {}{dots}", named.join(", "))
}

/// Describes the ranks, hosts and protocols of a job.
pub(crate) fn headline(timeline: &Timeline, job: usize, ranks: usize) -> String {
    let size = timeline.jobs[job].size;
    let tracks = || timeline.tracks.iter().filter(|track| track.job == job);
    let hosts: std::collections::BTreeSet<usize> = tracks().map(|track| track.node).collect();
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let shown = match u64::try_from(ranks) {
        Ok(shown) if shown != u64::from(size) => format!(", {ranks} of them recorded"),
        _ => String::new(),
    };
    let all = [Protocol::Pmi1, Protocol::Pmi2, Protocol::Pmix];
    let protocols =
        all.into_iter().filter(|protocol| tracks().any(|track| track.protocol == Some(*protocol)));
    let protocols: Vec<String> = protocols.map(|protocol| format!(", {protocol}")).collect();
    let on = if hosts.is_empty() { String::new() } else { format!(" on {}", count(hosts.len(), "host")) };
    format!("{}{shown}{on}{}", count(size as usize, "rank"), protocols.concat())
}

fn has_all_nodes(timeline: &Timeline) -> bool {
    let serving = timeline.nodes.iter().filter(|node| node.number != Some(0) || node.nodes == 1).count();
    let needed = timeline.nodes.first().map_or(1, |node| if node.nodes > 1 { node.nodes - 1 } else { 1 });
    serving as u64 >= u64::from(needed)
}

/// Describes what the recordings do not show, one fact a line.
pub(crate) fn limits_of(timeline: &Timeline) -> Vec<String> {
    let mut lines = Vec::new();
    let name = |node: usize| timeline.nodes[node].label.escape_debug().to_string();
    for note in timeline.notes.iter().take(NOTES_SHOWN) {
        lines.push(format!("note: at {} s on {}: {}", seconds(note.at), name(note.node), note.text));
    }
    let more = timeline.notes.len().saturating_sub(NOTES_SHOWN);
    if more > 0 {
        lines.push(format!("note: {more} more events of jobs"));
    }
    for (at, node) in timeline.nodes.iter().enumerate() {
        if let Some(cut) = &node.cut {
            lines.push(format!("note: {} is {cut}", name(at)));
        }
    }
    if !has_all_nodes(timeline) {
        let needed = timeline.nodes.first().map_or(1, |node| node.nodes);
        let given = timeline.nodes.len();
        lines.push(format!(
            "note: recordings of {given} of {needed} nodes: ranks of the others are not shown"
        ));
    }
    clocks(timeline, &mut lines);
    let LeftOut { messages, spans, ranks, arrivals, others, connections } = timeline.left_out;
    for (count, what) in [
        (messages, "messages are left out beyond the budget for text"),
        (spans, "requests are left out beyond the budget for spans"),
        (ranks, "events of ranks are left out beyond the budget for ranks"),
        (arrivals, "arrivals in fences are left out beyond the budget for fences"),
        (others, "jobs and events of jobs are left out"),
        (connections, "connections are left out: queries, or no rank introduced itself"),
    ] {
        if count > 0 {
            lines.push(format!("note: {count} {what}"));
        }
    }
    lines.push(
        "note: times are those at which a node's server read and wrote messages, in whole milliseconds"
            .to_owned(),
    );
    let launch = "note: launch ends when the server gets the rank's connection: at the start of its process, or later for a \
                  rank that connects by itself (PMI_PORT)";
    lines.push(launch.to_owned());
    lines
}

fn clocks(timeline: &Timeline, lines: &mut Vec<String>) {
    if timeline.nodes.len() < 2 {
        return;
    }
    for node in timeline.nodes.iter().take(NODES_SHOWN) {
        let (label, offset) = (node.label.escape_debug(), seconds(node.clock.offset));
        lines.push(match node.clock.error {
            Some(0) => format!("note: times are on the clock of {label}"),
            Some(error) => {
                let error = seconds(error as Millis);
                format!("note: the clock of {label} starts at {offset} s, error at most {error} s")
            }
            None => format!(
                "note: the clock of {label} starts at about {offset} s; messages between nodes do not bound the error"
            ),
        });
    }
    let more = timeline.nodes.len().saturating_sub(NODES_SHOWN);
    let worst = timeline.nodes.iter().filter_map(|node| node.clock.error).max().unwrap_or(0);
    if more > 0 {
        lines.push(format!("note: {more} more clocks, error at most {} s", seconds(worst as Millis)));
    }
}

/// Returns milliseconds as seconds.
pub(crate) fn seconds(millis: Millis) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", millis.unsigned_abs() / 1000, millis.unsigned_abs() % 1000)
}
