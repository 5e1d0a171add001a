//! Memory of a server's tables, calculated from the core's layout, and the limits at which the tables end.

use std::fmt::Write;

use hydrant_core::Limits;
use hydrant_core::limits::RECORD_HEADER;
use hydrant_core::storage::Layout;
use hydrant_overlay::{MESSAGE_MAX, RADIX_DEFAULT};
use hydrant_placement::{HOSTS_MAX, RANKS_MAX};

use crate::models::PART;
use crate::pattern::VALUE;

/// Ranks of the runs in the tables, and their daemons.
const RANKS: u32 = 1_000_000;
const DAEMONS: [u32; 2] = [10_000, 100_000];
/// Nodes whose pairs a daemon has after a lazy fence: its own, and those of its neighbours in three dimensions.
const NODES_LAZY: u32 = 27;
/// Unit of memory that the system provides.
const PAGE: u64 = 4096;

/// Limits of the servers of such a run. They are those of `hydrant run` with one program and without options
/// (`node_limits` of the launcher).
pub fn limits(ranks: u32, daemons: u32) -> Limits {
    let all = Limits::for_ranks(ranks);
    let spawned = all.ranks - ranks;
    Limits {
        conns: conns(ranks.div_ceil(daemons)),
        links: RADIX_DEFAULT.min(daemons) + 1,
        psets: (all.psets + 1).saturating_add(daemons).saturating_add(spawned.min((all.jobs - 1) * daemons)),
        ..all
    }
}

/// Connections of a daemon with so many ranks: each rank may have one of PMIx beside the inherited one.
fn conns(ranks: u32) -> u32 {
    let Limits { conns, ranks, .. } = Limits::for_ranks(ranks);
    conns + ranks
}

fn bytes(limits: &Limits) -> u64 {
    Layout::checked(limits).map_or(u64::MAX, |layout| layout.bytes() as u64)
}

/// Bytes that a server writes at its start.
fn written(limits: &Limits) -> u64 {
    Layout::checked(limits).map_or(u64::MAX, |layout| layout.bytes_written() as u64)
}

/// Bytes that tables take in addition with the larger limits.
fn more(with: Limits, without: Limits) -> u64 {
    bytes(&with) - bytes(&without)
}

/// Bytes of a pair in the log, with the longest key.
fn record(value: u32) -> u64 {
    let key = format!("card-{}", RANKS - 1).len() as u32;
    u64::from((RECORD_HEADER + key + value).next_multiple_of(4))
}

/// Bytes of the pages of the index that so many keys touch, at random places.
fn index_touched(limits: &Limits, keys: u64) -> u64 {
    let pages = more(*limits, Limits { keys: 0, ..*limits }).div_ceil(PAGE) as f64;
    (pages * (1.0 - (1.0 - 1.0 / pages).powf(keys as f64))) as u64 * PAGE
}

/// All tables, with their names in the page.
pub fn tables() -> [(&'static str, String); 3] {
    [("memory-each", each()), ("memory", whole()), ("ends", ends())]
}

/// Bytes that one more of something takes.
fn each() -> String {
    let none = Limits { ranks: 32, ..Limits::NONE };
    // The words of sets have 32 ranks.
    let of_word = |limits: Limits| more(Limits { ranks: 64, ..limits }, limits);
    let of_rank = (of_word(none) as f64 / 32.0).to_string();
    let sets = |with: Limits| ((of_word(with) - of_word(none)) as f64 / 32.0).to_string();
    let slot = |with: Limits| more(Limits { ranks: 0, ..with }, Limits::NONE).to_string();
    let [psets, groups] = [Limits { psets: 1, ..none }, Limits { groups: 1, ..none }];
    let links = Limits { links: 1, ..none };
    // There is room for 256 sets of any members. More have room for a run each, and all of them for a run of each rank.
    let many = Limits { psets: 1000, ranks: 3200, ..Limits::NONE };
    let set_of_run = more(Limits { psets: 1001, ..many }, many).to_string();
    let of_word = more(Limits { ranks: 3232, ..many }, many) - of_word(none);
    let runs = format!("{} for all", (of_word as f64 - 256.0 * 4.0) / 32.0);
    // The number of slots is a power of two, of which at most three quarters are used.
    let index =
        [(3 << 20) - 1, 3 << 20].map(|keys| bytes(&Limits { keys, ..Limits::NONE }) as f64 / f64::from(keys));
    let index = format!("{:.1} to {:.1}", index[0], index[1]);
    let rows = [
        ("rank of the run", of_rank, "-".to_owned()),
        ("process set, up to 256", slot(psets), sets(psets)),
        ("process set above 256: one for each host", set_of_run, runs),
        ("group collective at the same time: 64", slot(groups), sets(groups)),
        ("link to a neighbour: children and parent", slot(links), sets(links)),
        (
            "connection: up to two for each rank of the host",
            slot(Limits { conns: 1, ..none }),
            "-".to_owned(),
        ),
        ("job at the same time: 64", slot(Limits { jobs: 1, ..none }), "-".to_owned()),
        ("pair, beside key and value: as far as used", RECORD_HEADER.to_string(), "-".to_owned()),
        ("key, in the index: as far as used", index, "-".to_owned()),
    ];
    let mut text = String::from("| one more | bytes | bytes for each rank of the run |\n|---|---:|---:|\n");
    for (name, bytes, of_rank) in rows {
        let _ = writeln!(text, "| {name} | {bytes} | {of_rank} |");
    }
    text
}

/// Megabytes of all tables of a run with a million ranks.
fn whole() -> String {
    let mut text = String::from(
        "| daemons | node | fences | ranks | process sets | groups | links | others | log | index | whole |\n\
         |---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for daemons in DAEMONS {
        let lazy = u64::from(NODES_LAZY * RANKS / daemons);
        let of_daemon = limits(RANKS, daemons);
        let of_head = Limits { conns: 1, ..of_daemon };
        for (node, limits, fence, pairs) in [
            ("daemon", of_daemon, "collect", u64::from(RANKS)),
            ("daemon", of_daemon, "lazy", lazy),
            ("head", of_head, "collect", u64::from(RANKS)),
        ] {
            let ranks = bytes(&Limits { ranks: limits.ranks, ..Limits::NONE });
            let psets = more(limits, Limits { psets: 0, ..limits });
            let groups = more(limits, Limits { groups: 0, ..limits });
            let links = more(limits, Limits { links: 0, ..limits });
            let others = written(&limits) - ranks - psets - groups - links;
            let (log, index) = (pairs * record(VALUE), index_touched(&limits, pairs));
            let whole = written(&limits) + log + index;
            let _ = write!(text, "| {daemons} | {node} | {fence} |");
            for bytes in [ranks, psets, groups, links, others, log, index, whole] {
                let _ = write!(text, " {} |", megabytes(bytes));
            }
            text.push('\n');
        }
    }
    text
}

fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        megabytes if megabytes < 10.0 => format!("{megabytes:.1}"),
        megabytes => format!("{megabytes:.0}"),
    }
}

/// Returns the largest number up to `most` that fits.
fn largest(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, u64::from(most) + 1);
    while u64::from(low) + 1 < high {
        let middle = ((u64::from(low) + high) / 2) as u32;
        if fits(middle) {
            low = middle;
        } else {
            high = u64::from(middle);
        }
    }
    low
}

/// Bytes of log for the values of each rank, if a run has so many on [`DAEMONS`]\[0\]: a quota, and the host's share of the
/// half that is common.
fn log_of_rank(ranks: u32) -> u64 {
    let daemons = DAEMONS[0];
    let Limits { kvs_bytes, ranks: all, .. } = limits(ranks, daemons);
    u64::from(kvs_bytes / 2 / all) + u64::from(kvs_bytes / 2 / (daemons + 1) / ranks.div_ceil(daemons).max(1))
}

/// Numbers of ranks at which tables end, and the messages of `hydrant run` there.
fn ends() -> String {
    const BLOCK: u32 = 128;
    const MEMORY: &str = "the server's tables would take N MiB of memory, which is not there";
    const LOG: &str = "limit kvs-bytes: this rank's share (N) and the common rest are used up";
    let mut text =
        String::from("| end | ranks | hosts | bytes | message above it |\n|---|---:|---:|---:|---|\n");
    let mut row = |end: &str, ranks: u32, hosts: Option<u32>, bytes: u64, message: &str| {
        let hosts = hosts.map_or("any".to_owned(), |hosts| hosts.to_string());
        let _ = writeln!(text, "| {end} | {ranks} | {hosts} | {bytes} | `{message}` |");
    };
    for parts in [4, 1] {
        let pair = record(PART);
        let ranks = largest(i32::MAX as u32, |ranks| log_of_rank(ranks) >= parts * pair);
        let end = format!("log, {} bytes a rank", parts * u64::from(PART));
        row(&end, ranks, Some(DAEMONS[0]), limits(ranks, DAEMONS[0]).kvs_bytes.into(), LOG);
    }
    let of = |ranks: u32| written(&limits(ranks, ranks.div_ceil(BLOCK)));
    let ranks = largest(HOSTS_MAX as u32 * BLOCK, |ranks| of(ranks) <= 1 << 30);
    let end = format!("memory of 1 GiB, {BLOCK} ranks a host");
    row(&end, ranks, Some(ranks.div_ceil(BLOCK)), of(ranks), MEMORY);
    let slots = bytes(&Limits { ranks: RANKS_MAX, ..Limits::NONE });
    let message = format!("N ranks, but at most {RANKS_MAX} can run on several hosts");
    row("ranks", RANKS_MAX, None, slots, &message);
    let ranks = largest(i32::MAX as u32, |ranks| log_of_rank(ranks) >= record(VALUE));
    let end = format!("log, {VALUE} bytes a rank");
    row(&end, ranks, Some(DAEMONS[0]), limits(ranks, DAEMONS[0]).kvs_bytes.into(), LOG);
    let message = |ranks: u32| Limits { ranks, ..limits(1, 2) }.peer_message_max();
    let ranks = largest(u32::MAX - 1, |ranks| message(ranks) <= MESSAGE_MAX);
    let end = "message with the members of a group, `--limit ranks`";
    row(end, ranks, None, message(ranks) as u64, "the limit ranks of N is too large for several hosts");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_page_are_those_of_the_core() {
        let page = include_str!("../../../docs/scaling.md");
        for (name, table) in tables() {
            let written = crate::tables::replaced(page, name, &table);
            assert!(
                written.as_deref() == Some(page),
                "write {name} with: sim memory --write docs; it is\n{table}"
            );
        }
    }

    #[test]
    fn the_largest_number_that_fits_is_found() {
        for most in [0, 1, 7, 100] {
            assert_eq!(largest(100, |number| number <= most), most);
        }
        assert_eq!(largest(100, |_| true), 100);
        assert_eq!(largest(u32::MAX, |_| true), u32::MAX);
    }
}
