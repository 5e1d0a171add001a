//! The costs of fences as tables in Markdown.

use std::fmt::Write;

use hydrant_core::server::FenceMode;

use crate::compare::{Own, Point};
use crate::exchange;
use crate::models::{Load, VALUES};
use crate::startup::{self, SSH};

/// Numbers of nodes with a row in tables. Pictures show more.
const LISTED: [u32; 5] = [2, 16, 256, 1024, 10_000];
/// Numbers of hosts whose start is compared.
const STARTED: [u32; 3] = [16, 256, 10_000];

/// Times of fences and their bounds, a row for each number of nodes and ranks.
pub fn times(points: &[Point]) -> String {
    let mut text = String::from("| nodes | ranks a node |");
    for value in VALUES {
        let _ = write!(text, " {value} B, us | of bound |");
    }
    let _ = writeln!(text, "\n|---:|---:|{}", "---:|".repeat(2 * VALUES.len()));
    let same = |a: &Point, b: &Point| (a.load.daemons, a.load.ranks) == (b.load.daemons, b.load.ranks);
    for of_shape in points.chunk_by(same).filter(|points| LISTED.contains(&points[0].load.daemons)) {
        let Load { daemons, ranks, .. } = of_shape[0].load;
        let _ = write!(text, "| {daemons} | {ranks} |");
        for point in of_shape {
            let times = point.times().map_or("-".to_owned(), |times| format!("{times:.2}"));
            let _ = write!(text, " {} | {times} |", own(&point.own, |time| (time / 1000).to_string()));
        }
        text.push('\n');
    }
    text
}

/// Milliseconds of fences in trees of several widths, charged in both ways, and seconds of the start of many hosts.
pub fn widths(rows: &[[Point; 2]]) -> String {
    let mut text = String::from("| radix |");
    for value in VALUES {
        let _ = write!(text, " {value} B | sending charged |");
    }
    for hosts in STARTED {
        let _ = write!(text, " start of {hosts} hosts, s |");
    }
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(2 * VALUES.len() + STARTED.len()));
    for of_radix in rows.chunk_by(|a, b| a[0].radix == b[0].radix) {
        let radix = of_radix[0][0].radix;
        let _ = write!(text, "| {radix} |");
        for point in of_radix.iter().flatten() {
            let _ = write!(text, " {} |", own(&point.own, millis));
        }
        for hosts in STARTED {
            let _ = write!(text, " {:.1} |", startup::start(hosts, Some(radix), SSH).time as f64 / 1e6);
        }
        text.push('\n');
    }
    text
}

/// A cell made of the time. That of a model is in italics.
fn own(own: &Own, cell: impl Fn(u64) -> String) -> String {
    match own {
        Own::Simulated(cost) => cell(cost.time),
        Own::Modelled(cost) => format!("*{}*", cell(cost.time)),
        Own::Missing => "-".to_owned(),
    }
}

/// Costs of a fence and the gets after it, with collecting and with lazy fences.
pub fn exchanges(rows: &[exchange::Row]) -> String {
    let mut text = String::from(
        "| daemons | ranks | gets | fences | messages | received, a daemon | received, most | time, us |\n\
         |---:|---:|---|---|---:|---:|---:|---:|\n",
    );
    for exchange::Row { exchange, fence, is_modelled, cost } in rows {
        let (gets, fence) = match fence {
            FenceMode::Collect => ("any", "collect"),
            _ => (exchange.pattern.name(), "lazy"),
        };
        let _ = write!(text, "| {} | {} | {gets} | {fence} |", exchange.daemons, exchange.ranks());
        let numbers = cost.map(|cost| [cost.messages, cost.median, cost.received, cost.time / 1000]);
        for number in numbers.map_or([None; 4], |numbers| numbers.map(Some)) {
            let _ = match number {
                Some(number) if *is_modelled => write!(text, " *{number}* |"),
                Some(number) => write!(text, " {number} |"),
                None => write!(text, " - |"),
            };
        }
        text.push('\n');
    }
    text
}

fn millis(nanos: u64) -> String {
    match nanos as f64 / 1e6 {
        millis if millis < 10.0 => format!("{millis:.2}"),
        millis if millis < 100.0 => format!("{millis:.1}"),
        millis => format!("{millis:.0}"),
    }
}

/// Replaces the text between the two marks of a table.
pub fn replaced(text: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{table}\n{end}{after}"))
}
