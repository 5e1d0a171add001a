//! Table of timings that rank 0 prints.

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::time::Duration;

use hydrant_run::json;
use serde::Serialize;

use super::Options;
use super::card::Card;

/// Durations of a rank's steps, each summed over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) init: Duration,
    pub(super) put: Duration,
    pub(super) fence: Duration,
    pub(super) get: Duration,
}

impl Times {
    /// Parses the output of `to_string`: microseconds.
    pub(super) fn parse(text: &str) -> Option<Times> {
        let mut parts = text.split(',').map(|part| part.parse().map(Duration::from_micros));
        let mut next = || parts.next()?.ok();
        Some(Times { init: next()?, put: next()?, fence: next()?, get: next()? })
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [init, put, fence, get] =
            [self.init, self.put, self.fence, self.get].map(|time| time.as_micros());
        write!(f, "{init},{put},{fence},{get}")
    }
}

/// A rank's row in the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) rank: u32,
    pub(super) card: Card,
    pub(super) times: Times,
}

/// Returns the table of all ranks and a summary line.
pub(super) fn table(rows: &[Row], options: &Options) -> String {
    let mut cells =
        vec![["rank", "host", "pid", "init us", "put us", "fence us", "get us"].map(str::to_owned).to_vec()];
    for Row { rank, card, times } in rows {
        let mut line = vec![rank.to_string(), card.host.clone(), card.pid.to_string()];
        line.extend([times.init, times.put, times.fence, times.get].map(|time| time.as_micros().to_string()));
        cells.push(line);
    }
    let widths: Vec<usize> = (0..7)
        .map(|column| cells.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &cells {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            // Names are left-aligned, numbers right-aligned.
            let _ = match column {
                0 => write!(text, "{cell:>width$}"),
                1 => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text.push_str(&summary(rows, options));
    text
}

#[derive(Serialize)]
struct ProbeDocument {
    rounds: u32,
    keys: u32,
    bytes: u32,
    ranks: Vec<ProbedRank>,
}

#[derive(Serialize)]
struct ProbedRank {
    rank: u32,
    host: String,
    pid: u32,
    init_us: u64,
    put_us: u64,
    fence_us: u64,
    get_us: u64,
}

/// Returns the table as JSON.
pub(super) fn document(rows: &[Row], options: &Options) -> String {
    let micros = |time: Duration| time.as_micros() as u64;
    let ranks = rows.iter().map(|Row { rank, card, times }| ProbedRank {
        rank: *rank,
        host: card.host.clone(),
        pid: card.pid,
        init_us: micros(times.init),
        put_us: micros(times.put),
        fence_us: micros(times.fence),
        get_us: micros(times.get),
    });
    let Options { rounds, keys, bytes, .. } = *options;
    json::document("probe", &ProbeDocument { rounds, keys, bytes, ranks: ranks.collect() })
}

fn summary(rows: &[Row], options: &Options) -> String {
    let ranks = rows.len();
    let hosts = rows.iter().map(|row| &row.card.host).collect::<HashSet<_>>().len();
    let cards = (ranks as u64).pow(2) * u64::from(options.rounds);
    let values = cards * u64::from(options.keys);
    let bytes = options.bytes;
    format!(
        "{ranks} {} on {hosts} {} exchanged {cards} {} and {values} {} of {bytes} bytes, all right\n",
        plural("rank", ranks as u64),
        plural("host", hosts as u64),
        plural("card", cards),
        plural("value", values),
    )
}

fn plural(word: &str, count: u64) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
