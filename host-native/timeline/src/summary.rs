//! Summaries of start-ups, and their text.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::error::TimelineError;
use crate::model::{Collective, LeftOut, Millis, Protocol, Timeline};
use crate::startup::{PhaseTime, StartUp};

/// Collectives of a job that are kept: those in which the ranks waited longest.
const COLLECTIVES_SHOWN: usize = 20;
/// Nodes whose clocks are printed.
const NODES_SHOWN: usize = 20;
/// Notes that are printed.
const NOTES_SHOWN: usize = 20;
/// Missing ranks of a collective that are named.
const MISSING_SHOWN: usize = 5;
/// Slowest ranks or hosts of a part that are named.
const NAMED: usize = 3;

/// Where the time of a job's start went, at some of its nodes or at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Job id.
    pub job: String,
    /// Number of ranks of the job.
    pub size: u32,
    /// Number of ranks that are summed up.
    pub ranks: u64,
    /// Number of their hosts.
    pub hosts: u64,
    /// Protocols of the ranks.
    pub protocols: BTreeSet<Protocol>,
    /// The start-up as a whole.
    pub all: Part,
    /// Parts of a start in their order. Those that [start](Part::starts) add up to `all`.
    pub parts: Vec<Part>,
    /// Collectives by their first arrival.
    pub collectives: Vec<Fence>,
    /// Number of collectives with shorter waits, which are left out.
    pub more: u64,
    /// Ranks that asked for a topology file in vain: their number, and the milliseconds until their next requests.
    pub scans: (u64, u64),
    /// What the processes of ranks had used when they entered their first fence.
    pub usage: Usage,
}

/// Part of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Whether it is part of the start-up.
    pub starts: bool,
    /// Milliseconds of all ranks.
    pub sum: u64,
    /// Milliseconds of the slowest rank.
    pub max: u64,
    /// Slowest ranks or hosts.
    pub slowest: Vec<Slow>,
}

/// A rank or host that is among the slowest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// The rank, or none for a host.
    pub rank: Option<u32>,
    /// Its host. Empty if all ranks are on one host.
    pub host: String,
    /// Its milliseconds.
    pub millis: u64,
}

/// Collective of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Its kind and members, and its number among those of the same name.
    pub name: String,
    /// Number of ranks that have arrived.
    pub ranks: u64,
    /// First and last arrival in milliseconds from the registration of the job.
    pub arrivals: (u64, u64),
    /// Sum of the waits of all ranks in milliseconds.
    pub waited: u64,
    /// Longest wait in milliseconds.
    pub longest: u64,
    /// Shortest wait in milliseconds: that of the rank that arrived last.
    pub shortest: u64,
    /// The rank that arrived last, with the milliseconds since the one before it.
    pub last: Slow,
    /// What is to say of one that has not been released.
    pub missing: String,
}

/// What processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of processes.
    pub ranks: u64,
    /// Milliseconds since their start.
    pub elapsed: u64,
    /// Milliseconds on processors.
    pub running: u64,
    /// Milliseconds in which a process could run and had no processor.
    pub queued: u64,
    /// Bytes that were read from disks or servers.
    pub read: u64,
    /// Most shared libraries of a process.
    pub libraries: u64,
    /// Number of processes that have loaded libfabric.
    pub libfabric: u64,
    /// Number of processes that have loaded Open MPI.
    pub openmpi: u64,
}

impl Slow {
    fn text(&self) -> String {
        let (host, millis) = (self.host.escape_debug(), self.millis);
        match (self.rank, self.host.is_empty()) {
            (Some(rank), true) => format!("{rank} ({millis})"),
            (Some(rank), false) => format!("{rank} on {host} ({millis})"),
            (None, _) => format!("{host} ({millis})"),
        }
    }
}

impl Part {
    fn merge(&mut self, other: Part) {
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|slow| (Reverse(slow.millis), slow.rank));
        self.slowest.truncate(NAMED);
    }
}

impl Fence {
    fn merge(&mut self, other: Fence) {
        // All ranks are released at the same time, so that the one that arrived last has waited least.
        let apart = self.shortest.abs_diff(other.shortest);
        let (last, alone) = match other.shortest < self.shortest {
            true => (other.last, other.ranks == 1),
            false => (std::mem::take(&mut self.last), self.ranks == 1),
        };
        let millis = if alone { apart } else { last.millis.min(apart) };
        self.last = Slow { millis, ..last };
        self.ranks = self.ranks.saturating_add(other.ranks);
        self.arrivals = (self.arrivals.0.min(other.arrivals.0), self.arrivals.1.max(other.arrivals.1));
        self.waited = self.waited.saturating_add(other.waited);
        self.longest = self.longest.max(other.longest);
        self.shortest = self.shortest.min(other.shortest);
        if self.missing.is_empty() {
            self.missing = other.missing;
        }
    }
}

impl Usage {
    /// Adds what others have used.
    pub fn add(&mut self, other: &Usage) {
        let sums = [
            (&mut self.ranks, other.ranks),
            (&mut self.elapsed, other.elapsed),
            (&mut self.running, other.running),
            (&mut self.queued, other.queued),
            (&mut self.read, other.read),
            (&mut self.libfabric, other.libfabric),
            (&mut self.openmpi, other.openmpi),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.libraries = self.libraries.max(other.libraries);
    }

    /// Milliseconds in which processes waited for something else than a processor.
    pub fn waiting(&self) -> u64 {
        self.elapsed.saturating_sub(self.running).saturating_sub(self.queued)
    }
}

impl Summary {
    /// Sums up a job of a timeline, by its index in [`Timeline::jobs`].
    pub fn of(timeline: &Timeline, number: usize) -> Summary {
        let job = &timeline.jobs[number];
        let StartUp { ranks, all, phases, begin, .. } = timeline.start_up(number);
        let of_job = || timeline.tracks.iter().filter(|track| track.job == number);
        let hosts: BTreeSet<usize> = of_job().map(|track| track.node).collect();
        let slow = |track: usize, millis: u64| {
            let track = &timeline.tracks[track];
            let host = if timeline.nodes.len() > 1 {
                timeline.nodes[track.node].label.clone()
            } else {
                String::new()
            };
            Slow { rank: Some(track.rank), host, millis }
        };
        let part = |PhaseTime { name, starts, sum, max, slowest, .. }: PhaseTime| {
            let slowest = slowest.into_iter().map(|(track, millis)| slow(track, millis)).collect();
            Part { name: name.to_owned(), starts, sum, max, slowest }
        };
        let collectives = || timeline.collectives.iter().filter(|collective| collective.job == number);
        let fence = |collective: &Collective| {
            let Collective { name, number, arrived, last, lead, waited, longest, .. } = collective;
            let span = |at: usize| &timeline.tracks[arrived[at].track].spans[arrived[at].span];
            let since = |at: Millis| (at - begin).max(0) as u64;
            let first = (0..arrived.len()).map(|at| span(at).start).min().unwrap_or(begin);
            let late = arrived[*last];
            let wait = timeline.end_of(&timeline.tracks[late.track], span(*last)) - span(*last).start;
            Fence {
                name: format!("{name} {number}"),
                ranks: arrived.len() as u64,
                arrivals: (since(first), since(span(*last).start)),
                waited: *waited,
                longest: *longest,
                shortest: wait.max(0) as u64,
                last: slow(late.track, *lead),
                missing: missing(timeline, collective),
            }
        };
        let scans = of_job().filter_map(|track| track.scan);
        let mut summary = Summary {
            job: job.name.clone(),
            size: job.size,
            ranks: ranks as u64,
            hosts: hosts.len() as u64,
            protocols: of_job().filter_map(|track| track.protocol).collect(),
            all: part(all),
            parts: phases.into_iter().map(part).collect(),
            collectives: collectives().map(fence).collect(),
            more: 0,
            scans: scans.fold((0, 0), |(ranks, sum), time| (ranks + 1, sum + time)),
            usage: Usage::default(),
        };
        summary.truncate();
        summary
    }

    /// Keeps the collectives in which ranks waited longest.
    fn truncate(&mut self) {
        let mut order: Vec<usize> = (0..self.collectives.len()).collect();
        order.sort_by_key(|&at| (Reverse(self.collectives[at].waited), at));
        order.truncate(COLLECTIVES_SHOWN);
        order.sort_unstable();
        self.more = self.more.saturating_add((self.collectives.len() - order.len()) as u64);
        self.collectives = order.into_iter().map(|at| std::mem::take(&mut self.collectives[at])).collect();
    }

    /// Adds a part that comes before those of the ranks, and which each of them waits for.
    pub fn begin_with(&mut self, name: &str, millis: u64, slowest: Vec<Slow>) {
        let (name, sum) = (name.to_owned(), millis.saturating_mul(self.ranks));
        let part = Part { name, starts: true, sum, max: millis, slowest };
        self.all.sum = self.all.sum.saturating_add(sum);
        self.all.max = self.all.max.saturating_add(millis);
        self.all.slowest.iter_mut().for_each(|slow| slow.millis = slow.millis.saturating_add(millis));
        self.parts.insert(0, part);
    }

    /// Names the host of the ranks, for a job on several.
    pub fn name_host(&mut self, host: &str) {
        let of_parts = self.parts.iter_mut().chain([&mut self.all]).flat_map(|part| &mut part.slowest);
        let all = of_parts.chain(self.collectives.iter_mut().map(|fence| &mut fence.last));
        all.for_each(|slow| host.clone_into(&mut slow.host));
    }

    /// Adds the ranks of other nodes. Their parts are the same ones.
    pub fn merge(&mut self, other: Summary) {
        self.ranks = self.ranks.saturating_add(other.ranks);
        self.hosts = self.hosts.saturating_add(other.hosts);
        self.protocols.extend(other.protocols);
        self.all.merge(other.all);
        for (own, part) in self.parts.iter_mut().zip(other.parts) {
            own.merge(part);
        }
        for fence in other.collectives {
            match self.collectives.iter_mut().find(|own| own.name == fence.name) {
                Some(own) => own.merge(fence),
                None => self.collectives.push(fence),
            }
        }
        self.collectives.sort_by_key(|fence| fence.arrivals.0);
        self.more = self.more.max(other.more);
        self.truncate();
        let (ranks, time) = other.scans;
        self.scans = (self.scans.0.saturating_add(ranks), self.scans.1.saturating_add(time));
        self.usage.add(&other.usage);
    }

    /// Describes the ranks, hosts and protocols.
    pub fn headline(&self) -> String {
        let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let ranks = self.ranks;
        let shown =
            if ranks == u64::from(self.size) { String::new() } else { format!(", {ranks} of them recorded") };
        let on = if self.hosts == 0 { String::new() } else { format!(" on {}", count(self.hosts, "host")) };
        let protocols: String = self.protocols.iter().map(|protocol| format!(", {protocol}")).collect();
        format!("{}{shown}{on}{protocols}", count(self.size.into(), "rank"))
    }

    /// Returns the text that [`write`](Summary::write) prints.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        self.write(&mut text).expect("memory takes every byte");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Prints the parts of the start with their shares and slowest ranks, and the collectives with their last arrivers.
    ///
    /// # Errors
    /// [`TimelineError::Write`].
    pub fn write(&self, out: &mut dyn Write) -> Result<(), TimelineError> {
        writeln!(out, "job {}: {}", self.job.escape_debug(), self.headline())?;
        if self.ranks == 0 {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{:<10}{:>10}{:>8}{:>9}  slowest", "phase", "mean ms", "share", "max ms")?;
        let (starting, later): (Vec<_>, Vec<_>) = self.parts.iter().partition(|part| part.starts);
        // Most jobs have no spawn, name or other request.
        let rare = ["other", "name", "spawn"];
        let shown = |part: &&Part| part.sum > 0 || !rare.contains(&part.name.as_str());
        for part in
            starting.into_iter().filter(shown).chain([&self.all]).chain(later.into_iter().filter(shown))
        {
            let share = match part.starts {
                true if self.all.sum > 0 => {
                    format!("{}%", tenths(part.sum.saturating_mul(100), self.all.sum))
                }
                _ => String::new(),
            };
            let named = part.slowest.iter().map(Slow::text).collect::<Vec<_>>().join(", ");
            let (name, mean, max) = (&part.name, tenths(part.sum, self.ranks), part.max);
            let line = format!("{name:<10}{mean:>10}{share:>8}{max:>9}  {named}");
            writeln!(out, "{}", line.trim_end())?;
        }
        self.write_usage(out)?;
        self.write_collectives(out)?;
        self.hints().into_iter().try_for_each(|hint| Ok(writeln!(out, "hint: {hint}")?))
    }

    fn write_usage(&self, out: &mut dyn Write) -> Result<(), TimelineError> {
        let Usage { ranks, elapsed, running, queued, read, libraries, .. } = self.usage;
        if ranks == 0 {
            return Ok(());
        }
        let mean = |sum| tenths(sum, ranks);
        let read = match read.div_ceil(1 << 20) {
            0 => String::new(),
            mib => format!(", {mib} MiB read from disks"),
        };
        writeln!(out)?;
        writeln!(
            out,
            "until its first fence, {} ms after its start, a rank ran for {} ms, waited {} ms for a processor and {} ms \
             otherwise; {libraries} libraries{read}",
            mean(elapsed),
            mean(running),
            mean(queued),
            mean(self.usage.waiting()),
        )?;
        Ok(())
    }

    fn write_collectives(&self, out: &mut dyn Write) -> Result<(), TimelineError> {
        if self.collectives.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:<16}{:>6}{:>10}{:>9}{:>10}{:>9}  last to arrive (after)",
            "fence", "ranks", "first ms", "last ms", "mean ms", "max ms"
        )?;
        for Fence { name, ranks, arrivals: (first, last), waited, longest, last: late, missing, .. } in
            &self.collectives
        {
            let (mean, late) = (tenths(*waited, *ranks), late.text());
            writeln!(
                out,
                "{name:<16}{ranks:>6}{first:>10}{last:>9}{mean:>10}{longest:>9}  rank {late}{missing}"
            )?;
        }
        if self.more > 0 {
            writeln!(out, "and {} more with shorter waits", self.more)?;
        }
        Ok(())
    }
}

/// Returns a quotient with one decimal.
fn tenths(sum: u64, count: u64) -> String {
    let tenths = (u128::from(sum) * 10 + u128::from(count / 2)) / u128::from(count.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Prints where the time of each job went, and what the recordings do not show.
///
/// # Errors
/// [`TimelineError::Write`].
pub fn write_summary(timeline: &Timeline, out: &mut dyn Write) -> Result<(), TimelineError> {
    for job in 0..timeline.jobs.len() {
        if job > 0 {
            writeln!(out)?;
        }
        Summary::of(timeline, job).write(out)?;
    }
    for line in limits_of(timeline) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Describes the ranks that have not arrived in an open collective of a whole job.
fn missing(timeline: &Timeline, collective: &Collective) -> String {
    let Some(size) = collective.size.filter(|_| collective.open) else { return String::new() };
    let arrived: BTreeSet<u32> = collective.arrived.iter().map(|at| timeline.tracks[at.track].rank).collect();
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
