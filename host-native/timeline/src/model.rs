//! A timeline: jobs, tracks of ranks with their spans, and collectives.

use std::fmt;

use hydrant_core::trace::Exit;
use serde::{Deserialize, Serialize};

/// Milliseconds on the clock of the timeline: that of the node with the lowest number, from the start of its server.
pub type Millis = i64;

/// Timeline of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The recordings by the number of their node.
    pub nodes: Vec<Node>,
    /// Jobs in the order of their registration.
    pub jobs: Vec<Job>,
    /// Tracks by job and rank.
    pub tracks: Vec<Track>,
    /// Collectives by their first arrival.
    pub collectives: Vec<Collective>,
    /// Aborts and stalled fences by time.
    pub notes: Vec<Note>,
    /// Contents of the recordings that the timeline does not hold.
    pub left_out: LeftOut,
}

/// A recording and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the recording or of the host, as the caller gave it.
    pub label: String,
    /// Program that wrote the recording.
    pub program: String,
    /// Number of the node, for a run on several.
    pub number: Option<u32>,
    /// Number of nodes of the run. 1 for a run on one host.
    pub nodes: u32,
    /// Tie to the clock of the timeline.
    pub clock: Clock,
    /// Time of the last record.
    pub end: Millis,
    /// Error at which reading ended, for a recording that is not complete.
    pub cut: Option<String>,
}

/// Tie of a node's clock to that of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Milliseconds to add to the times of the recording.
    pub offset: Millis,
    /// Largest error of the offset in milliseconds. `None` if messages do not bound it.
    pub error: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its job id.
    pub name: String,
    /// Its number of ranks.
    pub size: u32,
    /// Its registration, the earliest of all nodes.
    pub registered: Millis,
}

/// A rank, with all that its connections have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Index of its job in [`Timeline::jobs`].
    pub job: usize,
    /// The rank.
    pub rank: u32,
    /// Index of its node in [`Timeline::nodes`].
    pub node: usize,
    /// Protocol of its first connection that joined.
    pub protocol: Option<Protocol>,
    /// Exit of the process.
    pub exit: Option<(Millis, Exit)>,
    /// Milliseconds until the next request of a rank that asked for a topology file and got none: mostly its own scan of the
    /// machine.
    pub scan: Option<u64>,
    /// Spans by start.
    pub spans: Vec<Span>,
}

/// Protocol of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// PMI-1.
    Pmi1,
    /// PMI-2.
    Pmi2,
    /// PMIx.
    Pmix,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Pmi1 => "PMI-1",
            Protocol::Pmi2 => "PMI-2",
            Protocol::Pmix => "PMIx",
        })
    }
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From the registration of the job until the host has the rank's connection.
    Launch,
    /// From there until the rank's first message.
    Start,
    /// Handshake, and the questions about the job that follow it at once.
    Init,
    /// Puts and commits.
    Put,
    /// Wait in a fence, ring, or collective of a group.
    Fence,
    /// Gets and other questions.
    Get,
    /// Publications and look-ups of names.
    Name,
    /// Spawn.
    Spawn,
    /// Any other request.
    Other,
    /// Finalize.
    Finalize,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 10] = [
        Phase::Launch,
        Phase::Start,
        Phase::Init,
        Phase::Put,
        Phase::Fence,
        Phase::Get,
        Phase::Name,
        Phase::Spawn,
        Phase::Other,
        Phase::Finalize,
    ];

    /// Returns whether a start-up consists of it. The first span of another phase ends the start-up.
    pub const fn is_start(self) -> bool {
        !matches!(self, Phase::Name | Phase::Spawn | Phase::Finalize)
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Launch => "launch",
            Phase::Start => "start",
            Phase::Init => "init",
            Phase::Put => "put",
            Phase::Fence => "fence",
            Phase::Get => "get",
            Phase::Name => "name",
            Phase::Spawn => "spawn",
            Phase::Other => "other",
            Phase::Finalize => "finalize",
        }
    }
}

/// Part of a rank's time. Consecutive requests of one phase are one span, from the first request to the last reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its phase.
    pub phase: Phase,
    /// Its beginning.
    pub start: Millis,
    /// Its end. `None` if the recording ends, or the connection closes, before the reply.
    pub end: Option<Millis>,
    /// Position in the recording, which orders spans of one node that start in the same millisecond.
    pub sequence: u64,
    /// Number of requests.
    pub requests: u32,
    /// Index of its collective in [`Timeline::collectives`].
    pub collective: Option<usize>,
    /// Messages behind it. [`LeftOut::messages`] counts those that are not here.
    pub messages: Vec<Message>,
}

/// Message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Time at which the server consumed or wrote it.
    pub at: Millis,
    /// Whether it is from the server.
    pub reply: bool,
    /// The message with all but printable ASCII escaped, truncated to [`TEXT_MAX`](crate::TEXT_MAX).
    pub text: String,
}

/// Collective in which ranks wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its kind and members: `fence`, `barrier of 0,2`, `group construct ring`. A client chose a part of it.
    pub name: String,
    /// Number among the collectives of the same name, from 1.
    pub number: u32,
    /// Index of the job of its first arrival.
    pub job: usize,
    /// Number of ranks that take part, for a collective of the whole job.
    pub size: Option<u32>,
    /// Arrived ranks: track and span.
    pub arrived: Vec<Arrival>,
    /// Index in `arrived` of the rank that arrived last. With several clocks it is certain only beyond their error.
    pub last: usize,
    /// Milliseconds between the last arrival and the one before it.
    pub lead: u64,
    /// Sum of the waits of all ranks in milliseconds.
    pub waited: u64,
    /// Longest wait in milliseconds.
    pub longest: u64,
    /// Whether a rank had no reply at the end of the recording.
    pub open: bool,
}

/// Arrival of a rank in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Index in [`Timeline::tracks`].
    pub track: usize,
    /// Index in [`Track::spans`].
    pub span: usize,
}

/// Event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its time.
    pub at: Millis,
    /// Index of the node in [`Timeline::nodes`].
    pub node: usize,
    /// Text for people. A client chose a part of it.
    pub text: String,
}

/// Counts of what a timeline does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Messages beyond [`Budget::text`](crate::Budget::text).
    pub messages: u64,
    /// Spans beyond [`Budget::spans`](crate::Budget::spans).
    pub spans: u64,
    /// Ranks beyond [`Budget::ranks`](crate::Budget::ranks).
    pub ranks: u64,
    /// Collectives beyond [`Budget::collectives`](crate::Budget::collectives), by rank.
    pub arrivals: u64,
    /// Jobs and notes beyond [`JOBS_MAX`](crate::JOBS_MAX) and [`NOTES_MAX`](crate::NOTES_MAX).
    pub others: u64,
    /// Connections that never became a rank, and query connections.
    pub connections: u64,
}

impl Timeline {
    /// Returns the end of the last record.
    pub fn end(&self) -> Millis {
        self.nodes.iter().map(|node| node.end).max().unwrap_or(0)
    }

    /// Returns the end of a span: its last reply, or the end of its rank or of the recording.
    pub fn end_of(&self, track: &Track, span: &Span) -> Millis {
        let exit = track.exit.map_or_else(|| self.nodes[track.node].end, |(at, _)| at);
        span.end.unwrap_or(exit).max(span.start)
    }

    /// Returns the name of a rank: `rank 3`, with its job if there are several.
    pub fn rank_name(&self, track: &Track) -> String {
        match self.jobs.len() {
            0 | 1 => format!("rank {}", track.rank),
            _ => format!("rank {} of {}", track.rank, self.jobs[track.job].name),
        }
    }

    /// Returns the name of a collective: `fence 2`, with its job if there are several.
    pub fn collective_name(&self, collective: &Collective) -> String {
        let Collective { name, number, job, .. } = collective;
        match self.jobs.len() {
            0 | 1 => format!("{name} {number}"),
            _ => format!("{name} {number} of {}", self.jobs[*job].name),
        }
    }
}
