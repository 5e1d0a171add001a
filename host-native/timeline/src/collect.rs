//! Records of one node, read into connections, tracks and links.

use std::collections::BTreeMap;
use std::io::Read;

use hydrant_core::server::{Consumed, Input, JobSpec, Output, Record};
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, JobId};
use hydrant_record::{Reader, describe};

use crate::clock::{Links, TIME_MAX};
use crate::conn::{Conn, Room};
use crate::error::TimelineError;
use crate::model::{Clock, LeftOut, Millis, Node, Note, Protocol, Span};
use crate::requests::Participants;
use crate::{Budget, JOBS_MAX, NOTES_MAX};

/// All recordings of a run, before their clocks are tied.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) budget: Budget,
    pub(crate) room: Room,
    pub(crate) nodes: Vec<Node>,
    /// Messages between nodes, by index of the node.
    pub(crate) links: Vec<Links>,
    pub(crate) jobs: Vec<JobDraft>,
    /// Indices of jobs by job id.
    names: BTreeMap<String, usize>,
    /// Drafts by job and rank.
    pub(crate) tracks: BTreeMap<(usize, u32), TrackDraft>,
    /// Numbers of collectives, by job, node and members, and by occurrence.
    numbers: BTreeMap<CollectiveKey, usize>,
    pub(crate) collectives: Vec<CollectiveDraft>,
    pub(crate) notes: Vec<Note>,
    pub(crate) left_out: LeftOut,
}

/// Job, with its registration at each node.
#[derive(Debug)]
pub(crate) struct JobDraft {
    pub(crate) name: String,
    pub(crate) size: u32,
    /// Index of the node, and its time.
    pub(crate) registered: Vec<(usize, u64)>,
}

/// Track whose times are those of its node's recording.
#[derive(Debug, Default)]
pub(crate) struct TrackDraft {
    pub(crate) node: usize,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) opened: Option<u64>,
    pub(crate) first: Option<u64>,
    pub(crate) exit: Option<(u64, Exit)>,
    /// Milliseconds between the answer that there is no topology file and the next request.
    pub(crate) scan: Option<u64>,
    pub(crate) spans: Vec<Span>,
    /// Number of collectives with the same members so far.
    counts: BTreeMap<usize, u32>,
}

/// Members of a collective: one number for all of its occurrences.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CollectiveKey {
    /// Job, node if it matters, and members.
    Members(Option<usize>, Option<usize>, Participants),
    /// Number of the members, and occurrence.
    Occurrence(usize, u32),
}

#[derive(Debug)]
pub(crate) struct CollectiveDraft {
    pub(crate) name: String,
    pub(crate) number: u32,
    /// Whether all ranks of the job take part.
    pub(crate) whole: bool,
}

impl Collection {
    pub(crate) fn new(budget: Budget) -> Collection {
        let Budget { spans, text, .. } = budget;
        Collection {
            budget,
            room: Room { spans, text: (text > 0).then_some(text), spans_lost: 0, messages_lost: 0 },
            nodes: Vec::new(),
            links: Vec::new(),
            jobs: Vec::new(),
            names: BTreeMap::new(),
            tracks: BTreeMap::new(),
            numbers: BTreeMap::new(),
            collectives: Vec::new(),
            notes: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Reads a recording to its end, or to the record that cannot be read.
    pub(crate) fn read(self, label: &str, from: impl Read) -> Result<Collection, TimelineError> {
        let record = |source| TimelineError::Record { label: label.to_owned(), source };
        let mut reader = Reader::new(from).map_err(record)?;
        let mut node = NodeReader::new(self, label, &reader.begin().program);
        let cut = loop {
            match reader.next_record() {
                Ok(Some(entry)) => node.record(&entry.record),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        Ok(node.finish(cut))
    }

    /// Returns the draft of a rank, if there is room for it.
    fn track(&mut self, node: usize, job: usize, rank: u32) -> Option<&mut TrackDraft> {
        let key = (job, rank);
        if self.tracks.len() >= self.budget.ranks && !self.tracks.contains_key(&key) {
            self.left_out.ranks += 1;
            return None;
        }
        let new = || TrackDraft { node, ..TrackDraft::default() };
        Some(self.tracks.entry(key).or_insert_with(new))
    }

    /// Returns the collective at which a rank arrives.
    fn arrive(&mut self, node: usize, job: usize, rank: u32, participants: Participants) -> Option<usize> {
        self.track(node, job, rank)?;
        let room = self.numbers.len() < self.budget.collectives;
        let (name, whole) = (participants.name.clone(), participants.members.is_empty());
        let key = CollectiveKey::Members(
            (!participants.crosses_jobs).then_some(job),
            participants.on_node.then_some(node),
            participants,
        );
        let next = self.numbers.len();
        let members = match self.numbers.get(&key) {
            Some(&members) => members,
            None if !room => return self.no_room(),
            None => *self.numbers.entry(key).or_insert(next),
        };
        let count = self.tracks.get_mut(&(job, rank))?.counts.entry(members).or_insert(0);
        *count = count.saturating_add(1);
        let occurrence = CollectiveKey::Occurrence(members, *count);
        if let Some(&at) = self.numbers.get(&occurrence) {
            return Some(at);
        }
        if !room {
            return self.no_room();
        }
        let number = *count;
        self.numbers.insert(occurrence, self.collectives.len());
        self.collectives.push(CollectiveDraft { name, number, whole });
        Some(self.collectives.len() - 1)
    }

    fn no_room(&mut self) -> Option<usize> {
        self.left_out.arrivals += 1;
        None
    }
}

/// Reader of one node's records.
#[derive(Debug)]
pub(crate) struct NodeReader {
    all: Collection,
    /// Index of the node.
    at: usize,
    conns: BTreeMap<ConnId, Conn>,
    /// Indices of jobs by their present number.
    jobs: BTreeMap<JobId, usize>,
    now: u64,
    sequence: u64,
    /// Connection of the last input if that was `Bytes`, and its bytes.
    sender: Option<ConnId>,
    bytes: Vec<u8>,
    /// Ranks that have entered their first fence, with the times at which their connections were opened.
    arrivals: Vec<(u32, u64)>,
}

impl NodeReader {
    /// A reader of the records of another node, which `program` writes.
    pub(crate) fn new(mut all: Collection, label: &str, program: &str) -> NodeReader {
        all.nodes.push(Node {
            label: label.to_owned(),
            program: program.escape_debug().to_string(),
            number: None,
            nodes: 1,
            clock: Clock::default(),
            end: 0,
            cut: None,
        });
        all.links.push(Links::default());
        NodeReader {
            at: all.nodes.len() - 1,
            all,
            conns: BTreeMap::new(),
            jobs: BTreeMap::new(),
            now: 0,
            sequence: 0,
            sender: None,
            bytes: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    pub(crate) fn record(&mut self, record: &Record<'_>) {
        self.sequence += 1;
        match record {
            Record::Input { now, input } => {
                self.now = now.0.min(TIME_MAX as u64);
                self.input(input);
            }
            Record::Took { consumed, .. } => self.consumed(consumed),
            Record::Output(output) => self.output(output, record),
            Record::Broke { .. } => self.note(describe(record)),
            Record::Begin { .. } | Record::Refused(_) | Record::Silence | Record::End { .. } => {}
        }
    }

    fn input(&mut self, input: &Input<'_>) {
        self.sender = None;
        match *input {
            Input::Node { node, nodes, .. } => {
                let own = &mut self.all.nodes[self.at];
                (own.number, own.nodes) = (Some(node), nodes);
            }
            Input::RegisterJob(spec) => self.register(&spec),
            Input::Opened { conn, job, rank } => {
                let rank = rank.map(|rank| rank.0);
                self.open(conn, job, rank);
            }
            Input::OpenedQuery { .. } => self.all.left_out.connections += 1,
            Input::Bytes { conn, bytes, .. } => {
                self.sender = Some(conn);
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
            }
            Input::Closed { conn } => self.close(conn),
            Input::Exited { job, rank, exit } => {
                let (at, now) = (self.at, self.now);
                let track = self.jobs.get(&job).and_then(|&job| self.all.track(at, job, rank.0));
                if let Some(track) = track {
                    track.exit.get_or_insert((now, exit));
                }
            }
            Input::Peer { node, bytes } => self.all.links[self.at].received(node, self.now, bytes),
            _ => {}
        }
    }

    fn register(&mut self, spec: &JobSpec<'_>) {
        let job = match self.all.names.get(spec.name) {
            Some(&job) => job,
            None if self.all.jobs.len() >= JOBS_MAX => {
                self.all.left_out.others += 1;
                self.jobs.remove(&spec.job);
                return;
            }
            None => {
                let name = spec.name.to_owned();
                self.all.names.insert(name.clone(), self.all.jobs.len());
                self.all.jobs.push(JobDraft { name, size: spec.size, registered: Vec::new() });
                self.all.jobs.len() - 1
            }
        };
        self.jobs.insert(spec.job, job);
        let registered = &mut self.all.jobs[job].registered;
        if registered.last().is_none_or(|&(node, _)| node != self.at) {
            registered.push((self.at, self.now));
        }
    }

    fn open(&mut self, conn: ConnId, job: JobId, rank: Option<u32>) {
        // Each rank may have several connections. A recording with more is not one of a server.
        let full = self.conns.len() >= self.all.budget.ranks.saturating_mul(2);
        let Some(&job) = self.jobs.get(&job).filter(|_| !full) else {
            self.all.left_out.connections += 1;
            return;
        };
        let name = self.all.jobs[job].name.clone();
        self.conns.insert(conn, Conn::new(job, name, rank, self.now));
        let (at, now) = (self.at, self.now);
        if let Some(track) = rank.and_then(|rank| self.all.track(at, job, rank)) {
            track.opened.get_or_insert(now);
        }
    }

    /// Takes the bytes of a client when the server has consumed them.
    fn consumed(&mut self, consumed: &Consumed) {
        let Some(id) = self.sender.take() else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let bytes = &self.bytes[..self.bytes.len().min(consumed.bytes as usize)];
        let none = Room { spans: 0, text: None, spans_lost: 0, messages_lost: 0 };
        let mut room = std::mem::replace(&mut self.all.room, none);
        conn.requests(self.now, self.sequence, bytes, &mut room, |job, rank, participants| {
            let track = rank.and_then(|rank| self.all.tracks.get(&(job, rank)));
            if let Some((rank, track)) = rank.zip(track).filter(|(_, track)| track.counts.is_empty()) {
                self.arrivals.push((rank, track.opened.unwrap_or(self.now)));
            }
            rank.and_then(|rank| self.all.arrive(self.at, job, rank, participants))
        });
        self.all.room = room;
    }

    fn output(&mut self, output: &Output<'_>, record: &Record<'_>) {
        match *output {
            Output::Bytes { conn, bytes } => {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.reply(self.now, bytes, &mut self.all.room);
                }
            }
            Output::Joined { conn, rank, .. } => {
                let Some(conn) = self.conns.get_mut(&conn) else { return };
                conn.rank = Some(rank.0);
                let (job, opened, protocol) = (conn.job, conn.opened, conn.decoder.protocol);
                let Some(track) = self.all.track(self.at, job, rank.0) else { return };
                track.opened.get_or_insert(opened);
                track.protocol = track.protocol.or(protocol);
            }
            Output::Peer { node, bytes } => self.all.links[self.at].sent(node, self.now, bytes),
            Output::KillRank { .. } | Output::AbortJob { .. } | Output::StalledFence { .. } => {
                self.note(describe(record));
            }
            _ => {}
        }
    }

    fn note(&mut self, mut text: String) {
        if self.all.notes.len() >= NOTES_MAX {
            self.all.left_out.others += 1;
            return;
        }
        let end = text.char_indices().nth(crate::TEXT_MAX).map_or(text.len(), |(at, _)| at);
        text.truncate(end);
        self.all.notes.push(Note { at: self.now as Millis, node: self.at, text });
    }

    /// Moves the spans of a connection to the track of its rank.
    fn close(&mut self, id: ConnId) {
        let Some(conn) = self.conns.remove(&id) else { return };
        let Some(rank) = conn.rank else {
            self.all.left_out.connections += 1;
            return;
        };
        let Some(track) = self.all.track(self.at, conn.job, rank) else { return };
        track.first = track.first.into_iter().chain(conn.first).min();
        track.scan = track.scan.or(conn.scan.time());
        track.spans.extend(conn.spans);
    }

    /// Returns the ranks that have entered their first fence since the last call, with the times at which their connections were
    /// opened.
    pub(crate) fn take_arrivals(&mut self) -> impl Iterator<Item = (u32, u64)> {
        std::mem::take(&mut self.arrivals).into_iter()
    }

    /// Ends the reading. `cut` is the error of a recording that cannot be read to its end.
    pub(crate) fn finish(mut self, cut: Option<String>) -> Collection {
        while let Some((&id, _)) = self.conns.first_key_value() {
            self.close(id);
        }
        let own = &mut self.all.nodes[self.at];
        (own.end, own.cut) = (self.now as Millis, cut);
        self.all
    }
}
