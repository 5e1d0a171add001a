//! Text of `ps` and `status`.

use std::fmt::Write;

use hydrant_control::{format_ranges, ranges_of};
use hydrant_status::record::{Job, Rank, Run, State, Wait, seconds};
use hydrant_status::words::state_text;

use super::JobWithRanks;

/// Table of running jobs.
pub(super) fn runs(runs: &[(u32, Option<Run>)]) -> String {
    if runs.is_empty() {
        return "no running jobs\n".to_owned();
    }
    let head = ["PID", "TIME", "HOSTS", "RANKS", "JOBS", "PROGRAM"].map(str::to_owned);
    let line = |(pid, run): &(u32, Option<Run>)| match run {
        Some(run) => [
            pid.to_string(),
            seconds(run.elapsed_ms),
            run.hosts.to_string(),
            ranks_of(run),
            run.jobs.to_string(),
            program_of(run),
        ],
        None => [&pid.to_string(), "-", "-", "-", "-", "(does not answer)"].map(str::to_owned),
    };
    table(std::iter::once(head).chain(runs.iter().map(line)).collect(), [true, true, true, true, true, false])
}

fn program_of(run: &Run) -> String {
    match &run.address {
        Some(address) => format!("{} at {address}", run.program),
        None => run.program.to_string(),
    }
}

fn ranks_of(run: &Run) -> String {
    match run.ranks - run.running.min(run.ranks) {
        0 => run.ranks.to_string(),
        _ => format!("{} of {}", run.running, run.ranks),
    }
}

/// The run, and a table of ranks for each job.
pub(super) fn status(run: &Run, jobs: &[JobWithRanks]) -> String {
    let (time, hosts) = (seconds(run.elapsed_ms), plural(run.hosts, "host"));
    let activity = match &run.address {
        None => format!("running for {time}, {} on {hosts}", plural(run.ranks, "rank")),
        Some(address) => {
            let ranks = plural(run.ranks, "rank");
            format!("serving at {address} for {time}, {} of {ranks} connected from {hosts}", run.running)
        }
    };
    let mut text = format!("job {} on {}, hydrant {}, {activity}\n", run.pid, run.host, run.version);
    for JobWithRanks { job, late, rank_states } in jobs {
        text.push('\n');
        text += &title(job);
        if let Some(line) = late_line(rank_states, late) {
            let _ = writeln!(text, "{line}");
        }
        text += &ranks(job, rank_states);
    }
    text
}

fn title(job: &Job) -> String {
    let mut title = match job.ordinal {
        0 => plural(job.ranks, "rank"),
        ordinal => format!("spawned job {ordinal}: {}", plural(job.ranks, "rank")),
    };
    if let Some(spawner) = &job.spawned_by {
        let _ = write!(title, ", spawned by {spawner}");
    }
    let programs: Vec<String> = job.programs.iter().map(|program| program.command.to_string()).collect();
    let programs = if programs.is_empty() { String::new() } else { format!(": {}", programs.join(" : ")) };
    let ending = if job.ending { ", being ended" } else { "" };
    format!("{title}{ending}, {}{programs}\n", job.name)
}

fn ranks(job: &Job, ranks: &[Rank]) -> String {
    let head = ["RANK", "HOST", "PID", "STATE", "WAITS FOR", "PROGRAM"].map(str::to_owned);
    let line = |rank: &Rank| {
        let program = job.programs.get(rank.program as usize);
        [
            rank.rank.to_string(),
            rank.host.clone().unwrap_or_else(|| "-".to_owned()),
            rank.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            state_text(rank),
            rank.waits_for.as_ref().map_or("-".to_owned(), Wait::to_string),
            program.map_or("-".to_owned(), |program| program.command.to_string()),
        ]
    };
    table(
        std::iter::once(head).chain(ranks.iter().map(line)).collect(),
        [true, false, true, false, false, false],
    )
}

/// Ranks that others wait for: those outside of a fence in which another rank is, and those without init while another rank is
/// initialized.
pub(super) fn late(ranks: &[Rank]) -> Vec<u32> {
    let in_fence = |rank: &&Rank| matches!(rank.waits_for, Some(Wait::Fence { .. }));
    let some_in_fence = ranks.iter().any(|rank| in_fence(&rank));
    let some_initialized = ranks.iter().any(|rank| rank.state == State::Initialized);
    let is_late = |rank: &&Rank| match rank.state {
        State::Started | State::NotStarted | State::NotConnected => some_in_fence || some_initialized,
        State::Initialized => some_in_fence && !in_fence(rank),
        _ => false,
    };
    ranks.iter().filter(is_late).map(|rank| rank.rank).collect()
}

/// Names the ranks that others wait for.
fn late_line(ranks: &[Rank], late: &[u32]) -> Option<String> {
    if late.is_empty() {
        return None;
    }
    let list = format_ranges(&ranges_of(late.iter().copied()));
    let noun = if late.len() == 1 { "rank" } else { "ranks" };
    let fences = ranks.iter().filter_map(|rank| match rank.waits_for {
        Some(Wait::Fence { number, since_ms }) => Some((since_ms, number)),
        _ => None,
    });
    let count = fences.clone().count() as u32;
    Some(match fences.max() {
        Some((since, number)) => {
            format!(
                "{} in fence {number} for {}, missing: {noun} {list}",
                plural(count, "rank"),
                seconds(since)
            )
        }
        None => format!("not initialized: {noun} {list}"),
    })
}

fn plural(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Lines with aligned columns. Columns of numbers are aligned `right`.
fn table<const N: usize>(lines: Vec<[String; N]>, right: [bool; N]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for ((cell, width), right) in line.iter().zip(widths).zip(right) {
            let _ = if right { write!(row, "{cell:>width$}  ") } else { write!(row, "{cell:<width$}  ") };
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

#[cfg(test)]
mod tests;
