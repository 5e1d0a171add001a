//! Recording printed as a table, one line for each step.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;

use hydrant_core::peer::message::{self, Collective, ExitReport, Head, Item, JobRef, RecordKind};
use hydrant_core::server::{Consumed, Input, Output, Record};
use hydrant_core::wire::{Framing, next_frame};
use hydrant_core::{ConnId, JobId, Limit, Rank};

use crate::Begin;
use crate::describe::{of_input, of_output, of_peer};
use crate::pmix::Dialect;

/// Maximum number of bytes printed of an incomplete message.
const PART_MAX: usize = 200;

/// Prints a recording as a table. Output stops at the first write error.
pub struct Table<'w> {
    /// `None` after a write error.
    out: Option<&'w mut dyn Write>,
    /// If set, the only rank to print.
    only: Option<u32>,
    /// Job and rank of each open connection.
    conns: BTreeMap<ConnId, Subject>,
    /// PMIx connections.
    pmix: BTreeMap<ConnId, Dialect>,
    /// Time of the last input in milliseconds.
    now: u64,
    /// Number of the last input.
    input: u64,
    /// Connection of the last input if that was `Bytes`, and its bytes.
    sender: Option<ConnId>,
    bytes: Vec<u8>,
}

/// Connection, job and rank of a line.
#[derive(Clone, Copy, Default)]
struct Subject {
    conn: Option<ConnId>,
    job: Option<JobId>,
    rank: Option<Rank>,
}

impl<'w> Table<'w> {
    /// Prints the head of the table. With `only`, lines of other ranks are left out.
    pub fn new(out: &'w mut dyn Write, only: Option<u32>, begin: &Begin) -> Table<'w> {
        let mut table = Table {
            out: Some(out),
            only,
            conns: BTreeMap::new(),
            pmix: BTreeMap::new(),
            now: 0,
            input: 0,
            sender: None,
            bytes: Vec::new(),
        };
        let limits: Vec<String> = Limit::ALL
            .into_iter()
            .filter(|limit| *limit != Limit::Owed)
            .map(|limit| format!("{}={}", limit.name(), begin.limits.of(limit)))
            .collect();
        table.write(format_args!("recorded by {}, seed {}", begin.program.escape_debug(), begin.seed));
        table.write(format_args!("limits {}", limits.join(" ")));
        table.write(format_args!("> from client   < to client   . bytes not consumed   + input   ! output"));
        table.write(format_args!("{:>9} {:>6} {:>5} {:>4} {:>5}", "seconds", "input", "conn", "job", "rank"));
        table
    }

    /// Prints a record.
    pub fn print(&mut self, record: &Record<'_>) {
        match record {
            Record::Begin { .. } | Record::Silence | Record::End { .. } => {}
            Record::Input { now, input } => {
                (self.now, self.input) = (now.0, self.input + 1);
                self.input(input);
            }
            Record::Took { consumed, .. } => self.consumed(consumed),
            Record::Refused(fault) => self.line(Subject::default(), '+', format_args!("refused: {fault}")),
            Record::Broke { why } => {
                self.line(Subject::default(), '!', format_args!("server failed: {}", why.escape_debug()));
            }
            Record::Output(output) => self.output(output),
        }
    }

    fn input(&mut self, input: &Input<'_>) {
        self.sender = None;
        let subject = match *input {
            Input::RegisterJob(spec) => Subject { job: Some(spec.job), ..Subject::default() },
            Input::Program { job, .. }
            | Input::MapRanks { job, .. }
            | Input::Attr { job, .. }
            | Input::Preput { job, .. }
            | Input::Define { job, .. }
            | Input::Connected { job, .. }
            | Input::StalledFence { job }
            | Input::Pset { job, .. }
            | Input::DeregisterJob { job } => Subject { job: Some(job), ..Subject::default() },
            Input::Exited { job, rank, .. } | Input::PsetRequest { job, rank, .. } => {
                Subject { conn: None, job: Some(job), rank: Some(rank) }
            }
            Input::Opened { conn, job, rank } => {
                let subject = Subject { conn: Some(conn), job: Some(job), rank };
                self.conns.insert(conn, subject);
                subject
            }
            Input::OpenedQuery { conn, job } => {
                let subject = Subject { conn: Some(conn), job: Some(job), rank: None };
                self.conns.insert(conn, subject);
                subject
            }
            Input::Bytes { conn, bytes, .. } => {
                self.sender = Some(conn);
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
                return;
            }
            Input::Blocked { conn } | Input::Writable { conn } | Input::Verified { conn } => self.of(conn),
            Input::Closed { conn } => {
                let subject = self.of(conn);
                self.conns.remove(&conn);
                self.pmix.remove(&conn);
                subject
            }
            Input::Peer { node, bytes } => return self.peer(format_args!("from node {node}"), '+', bytes),
            Input::Node { .. }
            | Input::PeerBlocked { .. }
            | Input::PeerWritable { .. }
            | Input::SpawnComplete { .. }
            | Input::UpcallComplete { .. }
            | Input::NodeLost { .. }
            | Input::NodeJoined { .. }
            | Input::Timeout => Subject::default(),
        };
        self.line(subject, '+', of_input(input));
    }

    /// Prints the bytes of a client when the server has consumed them.
    fn consumed(&mut self, consumed: &Consumed) {
        let Some(conn) = self.sender.take() else { return };
        let subject = self.of(conn);
        let bytes = std::mem::take(&mut self.bytes);
        let (mut consumed_bytes, rest) = bytes.split_at(bytes.len().min(consumed.bytes as usize));
        let waits = consumed_bytes.is_empty() || consumed.again;
        if let Some(dialect) = Dialect::of(consumed_bytes) {
            self.pmix.entry(conn).or_insert(dialect);
        }
        while let Some(dialect) = self.pmix.get_mut(&conn).filter(|_| !consumed_bytes.is_empty()) {
            let (len, text) = dialect.request(consumed_bytes);
            self.line(subject, '>', text);
            consumed_bytes = &consumed_bytes[len..];
        }
        while !consumed_bytes.is_empty() {
            let (message, others) = consumed_bytes.split_at(message_len(consumed_bytes));
            self.line(subject, '>', message.escape_ascii());
            consumed_bytes = others;
        }
        if waits && !rest.is_empty() {
            let part = &rest[..rest.len().min(PART_MAX)];
            let ellipsis = if part.len() < rest.len() { ".." } else { "" };
            self.line(subject, '.', format_args!("{} bytes: {}{ellipsis}", rest.len(), part.escape_ascii()));
        }
        self.bytes = bytes;
    }

    fn output(&mut self, output: &Output<'_>) {
        let subject = match *output {
            Output::Bytes { conn, bytes } => {
                let subject = self.of(conn);
                return match self.pmix.get_mut(&conn) {
                    Some(dialect) => {
                        let text = dialect.reply(bytes);
                        self.line(subject, '<', text);
                    }
                    None => self.line(subject, '<', bytes.escape_ascii()),
                };
            }
            Output::Close { conn, .. } => self.of(conn),
            Output::Joined { conn, job, rank } => {
                let subject = Subject { conn: Some(conn), job: Some(job), rank: Some(rank) };
                self.conns.insert(conn, subject);
                subject
            }
            Output::Peer { node, bytes } => {
                return self.peer(format_args!("to node {node}"), '!', bytes);
            }
            // The cause names its rank.
            Output::AbortJob { job, .. } => Subject { job: Some(job), ..Subject::default() },
            output => Subject { conn: None, job: output.job(), rank: output.rank() },
        };
        self.line(subject, '!', of_output(output));
    }

    /// Prints a message from or to another node, with a line for each rank in it.
    fn peer(&mut self, node: impl Display, mark: char, bytes: &[u8]) {
        let of = |job, rank| Subject { conn: None, job: Some(job), rank };
        match message::split(bytes) {
            Some((Head::Records { job: JobRef { job, .. }, of: kind }, body)) => {
                self.records(&node, mark, (job, kind), body);
            }
            Some((Head::Exits, body)) => {
                let gone = message::parts::<ExitReport>(body).map_while(|gone| gone);
                for ExitReport { job: JobRef { job, .. }, rank, exit, dead, .. } in gone {
                    let failed = if dead { ", failed" } else { "" };
                    self.line(of(job, Some(Rank(rank))), mark, format_args!("{node}: {exit}{failed}"));
                }
            }
            Some((Head::Get { job, rank } | Head::Renew { job, rank } | Head::Notice { job, rank }, _)) => {
                self.line(of(job.job, Some(rank)), mark, format_args!("{node}: {}", of_peer(bytes)));
            }
            Some((Head::Arrive { job, at, .. } | Head::Release { job, at, .. }, body)) => {
                // The last pairs before a fence are in its message.
                if at == Collective::Fence && !body.is_empty() {
                    self.records(&node, mark, (job.job, RecordKind::Pair), body);
                }
                self.line(of(job.job, None), mark, format_args!("{node}: {}", of_peer(bytes)));
            }
            Some((Head::End { job, .. } | Head::Fetch { job } | Head::Fetched { job }, _)) => {
                self.line(of(job.job, None), mark, format_args!("{node}: {}", of_peer(bytes)));
            }
            Some((Head::Echo { .. }, _)) | None => {
                self.line(Subject::default(), mark, format_args!("{node}: {}", of_peer(bytes)));
            }
        }
    }

    /// Prints records from or to another node, with a line for each.
    fn records(&mut self, node: &impl Display, mark: char, (job, kind): (JobId, RecordKind), body: &[u8]) {
        let of = |rank| Subject { conn: None, job: Some(job), rank };
        let items = || message::parts::<Item<'_>>(body).map_while(|item| item);
        let what = match kind {
            RecordKind::Pair => "put",
            RecordKind::Ring => "for the ring",
            RecordKind::Commit | RecordKind::Newest => "of PMIx data",
        };
        self.line(of(None), mark, format_args!("{node}: {} {what}", pairs(items().count())));
        for Item { rank, key, value } in items() {
            // Keys of PMIx data are a rank and a scope.
            let key = if matches!(kind, RecordKind::Commit | RecordKind::Newest) { &[][..] } else { key };
            let pair = format_args!("  {}={}", key.escape_ascii(), value.escape_ascii());
            self.line(of(Some(Rank(rank))), mark, pair);
        }
    }

    fn of(&self, conn: ConnId) -> Subject {
        self.conns.get(&conn).copied().unwrap_or(Subject { conn: Some(conn), ..Subject::default() })
    }

    fn line(&mut self, subject: Subject, mark: char, text: impl Display) {
        let theirs = subject.rank.map(|rank| rank.0);
        let named = theirs.is_some() || subject.conn.is_some();
        if self.only.is_some_and(|only| named && theirs != Some(only)) {
            return;
        }
        let (seconds, millis) = (self.now / 1000, self.now % 1000);
        let [conn, job, rank] = [subject.conn.map(|conn| conn.0), subject.job.map(|job| job.0), theirs]
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

/// Returns the length of the first message, or of all bytes if the message is malformed.
fn message_len(bytes: &[u8]) -> usize {
    let framing = if bytes.starts_with(b"mcmd=") { Framing::Line } else { Framing::Counted };
    let frame = next_frame(bytes, framing).ok().flatten();
    frame.map_or(bytes.len(), |frame| frame.len as usize).clamp(1, bytes.len())
}
