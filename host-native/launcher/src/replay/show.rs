//! A recording as a table that people read.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;

use hydrant_core::peer::message::{self, Gone, Head, Item, Whose};
use hydrant_core::server::{Consumed, Input, Output, Record};
use hydrant_core::wire::{Framing, next_frame};
use hydrant_core::{ConnId, JobId, Limit, Rank};

use super::describe::{of_input, of_output, of_peer};
use crate::recording::Begin;

/// How many bytes of a message that is not whole are shown.
const PART_MAX: usize = 200;

/// Writes one line a step.
pub(super) struct Show<'w> {
    /// Missing once nobody reads.
    out: Option<&'w mut dyn Write>,
    /// The only rank to be shown.
    only: Option<u32>,
    /// Whose connections are.
    conns: BTreeMap<ConnId, Who>,
    /// Milliseconds, of the last input.
    now: u64,
    /// Its number.
    input: u64,
    /// Who sent the bytes that the core looks at, and these.
    sender: Option<ConnId>,
    bytes: Vec<u8>,
}

/// Whom a line is about.
#[derive(Clone, Copy, Default)]
struct Who {
    conn: Option<ConnId>,
    job: Option<JobId>,
    rank: Option<Rank>,
}

impl<'w> Show<'w> {
    pub(super) fn new(out: &'w mut dyn Write, only: Option<u32>, begin: &Begin) -> Show<'w> {
        let mut show = Show {
            out: Some(out),
            only,
            conns: BTreeMap::new(),
            now: 0,
            input: 0,
            sender: None,
            bytes: Vec::new(),
        };
        let set: Vec<String> = Limit::ALL
            .into_iter()
            .filter(|limit| *limit != Limit::Owed)
            .map(|limit| format!("{}={}", limit.name(), begin.limits.of(limit)))
            .collect();
        show.write(format_args!("recorded by {}, seed {}", begin.program.escape_debug(), begin.seed));
        show.write(format_args!("limits {}", set.join(" ")));
        show.write(format_args!(
            "> a client says   < it is told   . bytes wait to be taken   + the core is told   ! it wants done"
        ));
        show.write(format_args!("{:>9} {:>6} {:>5} {:>4} {:>5}", "seconds", "input", "conn", "job", "rank"));
        show
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Begin { .. } | Record::Silence | Record::End { .. } => {}
            Record::Input { now, input } => {
                (self.now, self.input) = (now.0, self.input + 1);
                self.input(input);
            }
            Record::Took { consumed, .. } => self.took(consumed),
            Record::Refused(fault) => {
                self.line(Who::default(), '+', format_args!("which is a mistake: {fault}"))
            }
            Record::Broke { why } => {
                self.line(Who::default(), '!', format_args!("the core failed: {}", why.escape_debug()));
            }
            Record::Output(output) => self.output(output),
        }
    }

    fn input(&mut self, input: &Input<'_>) {
        self.sender = None;
        let who = match *input {
            Input::RegisterJob(spec) => Who { job: Some(spec.job), ..Who::default() },
            Input::Program { job, .. }
            | Input::MapRanks { job, .. }
            | Input::Attr { job, .. }
            | Input::Preput { job, .. }
            | Input::Define { job, .. }
            | Input::Connected { job, .. }
            | Input::StalledFence { job }
            | Input::Pset { job, .. }
            | Input::DeregisterJob { job } => Who { job: Some(job), ..Who::default() },
            Input::Exited { job, rank, .. } => Who { conn: None, job: Some(job), rank: Some(rank) },
            Input::Opened { conn, job, rank } => {
                let who = Who { conn: Some(conn), job: Some(job), rank };
                self.conns.insert(conn, who);
                who
            }
            Input::OpenedQuery { conn, job } => {
                let who = Who { conn: Some(conn), job: Some(job), rank: None };
                self.conns.insert(conn, who);
                who
            }
            Input::Bytes { conn, bytes, .. } => {
                self.sender = Some(conn);
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
                return;
            }
            Input::Blocked { conn } | Input::Writable { conn } => self.of(conn),
            Input::Closed { conn } => {
                let who = self.of(conn);
                self.conns.remove(&conn);
                who
            }
            Input::Peer { node, bytes } => return self.peer(format_args!("from node {node}"), '+', bytes),
            Input::Node { .. }
            | Input::PeerBlocked { .. }
            | Input::PeerWritable { .. }
            | Input::SpawnComplete { .. }
            | Input::UpcallComplete { .. }
            | Input::Timeout => Who::default(),
        };
        self.line(who, '+', of_input(input));
    }

    /// What a client said is shown once the core has taken it.
    fn took(&mut self, consumed: &Consumed) {
        let Some(conn) = self.sender.take() else { return };
        let who = self.of(conn);
        let bytes = std::mem::take(&mut self.bytes);
        let (mut taken, rest) = bytes.split_at(bytes.len().min(consumed.bytes as usize));
        let waits = taken.is_empty() || consumed.again;
        while !taken.is_empty() {
            let (message, others) = taken.split_at(message_len(taken));
            self.line(who, '>', message.escape_ascii());
            taken = others;
        }
        if waits && !rest.is_empty() {
            let part = &rest[..rest.len().min(PART_MAX)];
            let more = if part.len() < rest.len() { ".." } else { "" };
            self.line(who, '.', format_args!("{} bytes: {}{more}", rest.len(), part.escape_ascii()));
        }
        self.bytes = bytes;
    }

    fn output(&mut self, output: &Output<'_>) {
        let who = match *output {
            Output::Bytes { conn, bytes } => return self.line(self.of(conn), '<', bytes.escape_ascii()),
            Output::Close { conn, .. } => self.of(conn),
            Output::Joined { conn, job, rank } => {
                let who = Who { conn: Some(conn), job: Some(job), rank: Some(rank) };
                self.conns.insert(conn, who);
                who
            }
            Output::Spawn { job, rank, .. }
            | Output::Upcall { job, rank, .. }
            | Output::KillRank { job, rank, .. } => Who { conn: None, job: Some(job), rank: Some(rank) },
            Output::Peer { node, bytes } => {
                return self.peer(format_args!("tell node {node}"), '!', bytes);
            }
            Output::AbortJob { job, .. } | Output::StalledFence { job, .. } => {
                Who { job: Some(job), ..Who::default() }
            }
        };
        self.line(who, '!', of_output(output));
    }

    /// What another node says or is told: each rank that it is about has a line of its own.
    fn peer(&mut self, whom: impl Display, mark: char, bytes: &[u8]) {
        let of = |job, rank| Who { conn: None, job: Some(job), rank };
        match message::split(bytes) {
            Some((Head::Records { job: Whose { job, .. }, ring }, body)) => {
                let items = || message::parts::<Item<'_>>(body).map_while(|item| item);
                let what = if ring { "brought to the ring" } else { "put" };
                self.line(of(job, None), mark, format_args!("{whom}: {} {what}", pairs(items().count())));
                for Item { rank, key, value } in items() {
                    let pair = format_args!("  {}={}", key.escape_ascii(), value.escape_ascii());
                    self.line(of(job, Some(Rank(rank))), mark, pair);
                }
            }
            Some((Head::Gone, body)) => {
                let gone = message::parts::<Gone>(body).map_while(|gone| gone);
                for Gone { job: Whose { job, .. }, rank, exit, dead } in gone {
                    let failed = if dead { ", it failed" } else { "" };
                    self.line(of(job, Some(Rank(rank))), mark, format_args!("{whom}: {exit}{failed}"));
                }
            }
            Some((Head::Arrive { job, .. } | Head::Release { job, .. }, _)) => {
                self.line(of(job.job, None), mark, format_args!("{whom}: {}", of_peer(bytes)));
            }
            None => self.line(Who::default(), mark, format_args!("{whom}: {}", bytes.escape_ascii())),
        }
    }

    fn of(&self, conn: ConnId) -> Who {
        self.conns.get(&conn).copied().unwrap_or(Who { conn: Some(conn), ..Who::default() })
    }

    fn line(&mut self, who: Who, mark: char, text: impl Display) {
        let theirs = who.rank.map(|rank| rank.0);
        let named = theirs.is_some() || who.conn.is_some();
        if self.only.is_some_and(|only| named && theirs != Some(only)) {
            return;
        }
        let (seconds, millis) = (self.now / 1000, self.now % 1000);
        let [conn, job, rank] = [who.conn.map(|conn| conn.0), who.job.map(|job| job.0), theirs]
            .map(|number| number.map_or_else(|| "-".to_owned(), |number| number.to_string()));
        let input = self.input;
        self.write(format_args!(
            "{seconds:>5}.{millis:03} {input:>6} {conn:>5} {job:>4} {rank:>5} {mark} {text}"
        ));
    }

    fn write(&mut self, line: impl Display) {
        if self.out.as_mut().is_some_and(|out| writeln!(out, "{line}").is_err()) {
            self.out = None;
        }
    }
}

fn pairs(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}

/// How many bytes the first message has; all where that cannot be told.
fn message_len(bytes: &[u8]) -> usize {
    let framing = if bytes.starts_with(b"mcmd=") { Framing::Line } else { Framing::Counted };
    let frame = next_frame(bytes, framing).ok().flatten();
    frame.map_or(bytes.len(), |frame| frame.len as usize).clamp(1, bytes.len())
}
