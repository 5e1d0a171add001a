//! Player of PMIx transcripts: each rank sends its next message once it has the replies before it.

use std::collections::{BTreeMap, VecDeque};

use hydrant_core::limits::Limits;
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::wire::pmix::{Frame, Hello, Integers, Reader, next_frame, status};
use hydrant_core::{ConnId, Exit, JobId, Time};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, Spawned};

use crate::split::Split;

/// Bytes of the longest random piece.
const LONGEST: usize = 40;

/// Message of a transcript.
#[derive(Clone, Debug)]
enum Step {
    Client(Vec<u8>),
    Server { what: String, bytes: Vec<u8> },
}

/// Captured rank.
#[derive(Debug)]
struct Rank {
    namespace: String,
    rank: u32,
    /// Whether it ends by a signal and not by finalize.
    is_killed: bool,
    steps: Vec<Step>,
    next: usize,
    /// Open connection.
    conn: Option<u32>,
    integers: Integers,
    received: Vec<Vec<u8>>,
}

/// Player of one transcript.
pub(crate) struct Player {
    ranks: Vec<Rank>,
}

impl Player {
    /// Reads a transcript.
    pub(crate) fn new(text: &str) -> Player {
        let mut ranks: Vec<Rank> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(rank) = line.strip_prefix("== ") {
                let mut words = rank.split(' ');
                let namespace = words.next().expect("a line is not empty").to_owned();
                let rank = words.nth(1).and_then(|rank| rank.parse().ok()).expect("a rank has a number");
                ranks.push(Rank {
                    namespace,
                    rank,
                    is_killed: words.next() == Some("killed"),
                    steps: Vec::new(),
                    next: 0,
                    conn: None,
                    integers: Integers::Flexible,
                    received: Vec::new(),
                });
                continue;
            }
            let (side, what) = line.split_at(2);
            let bytes = hex(lines.next().expect("a message has bytes").trim());
            let rank = ranks.last_mut().expect("a transcript begins with a rank");
            rank.steps.push(match side {
                "C>" => Step::Client(bytes),
                _ => Step::Server { what: what.trim().to_owned(), bytes },
            });
        }
        Player { ranks }
    }

    /// Plays it. Returns the first difference.
    pub(crate) fn play(mut self, mut split: Split) -> Result<(), String> {
        let limits = Limits::for_ranks(8);
        let mut memory = MappedStorage::try_new(&limits).expect("there is memory");
        let mut host = Host::new(limits, &mut memory).expect("the memory suffices");
        let mut jobs: BTreeMap<String, u32> = BTreeMap::new();
        for rank in &self.ranks {
            *jobs.entry(rank.namespace.clone()).or_default() += 1;
        }
        let job_of = |name: &str| JobId(jobs.keys().position(|job| job == name).expect("it is known") as u32);
        // The first job is started, and the others are spawned in their order.
        let mut waiting: VecDeque<(&String, u32)> = jobs.iter().map(|(name, &size)| (name, size)).collect();
        let (name, size) = waiting.pop_front().expect("a transcript has ranks");
        let cleanup = !self.ranks.iter().any(|rank| rank.is_killed);
        let spec = JobSpec { cleanup, ..JobSpec::new(JobId(0), name, size) };
        host.tell(Input::RegisterJob(spec)).expect("the job is valid");
        for (name, first) in [("even", 0), ("odd", 1)].into_iter().take(size as usize) {
            let pset = Input::Pset { job: JobId(0), name, first: hydrant_core::Rank(first), count: 1 };
            host.tell(pset).expect("the set is valid");
        }
        let mut next_conn = 0;
        let mut now = 0;
        while self.ranks.iter().any(|rank| rank.next < rank.steps.len()) {
            let mut progress = false;
            for Spawned { spawn, .. } in std::mem::take(&mut host.spawns) {
                // The ranks of some jobs are not in the transcript.
                let unseen = (JobId(jobs.len() as u32), "unseen", 1);
                let (job, name, size) =
                    waiting.pop_front().map_or(unseen, |(name, size)| (job_of(name), name, size));
                let spec = JobSpec { spawn: Some(spawn), ..JobSpec::new(job, name, size) };
                let complete = Input::SpawnComplete { spawn, started: true, full: None, codes: &[0] };
                for input in [Input::RegisterJob(spec), complete] {
                    host.tell(input).map_err(|why| format!("a spawn of {size} ranks: {why}"))?;
                }
                progress = true;
            }
            let started = |rank: &&mut Rank| waiting.iter().all(|(name, _)| **name != rank.namespace);
            for rank in self.ranks.iter_mut().filter(started) {
                // It has learned of a spawned job from the rank that has the reply to the spawn.
                let early = |rank: &Rank| waiting.iter().any(|(name, _)| rank.mentions(name));
                let job = job_of(&rank.namespace);
                while !early(rank) && rank.step(&mut host, job, &mut next_conn, &mut split)? {
                    progress = true;
                }
            }
            if !progress {
                now += 1000;
                if now > 60_000 {
                    let stuck = self.ranks.iter().map(|rank| format!("{:?}", rank.steps.get(rank.next)));
                    return Err(format!("stuck at {:?} ({:?})", stuck.collect::<Vec<_>>(), host.events));
                }
                host.server.handle(Time(now), Input::Timeout).expect("time passes");
                host.tell(Input::Timeout).expect("time passes");
            }
        }
        Ok(())
    }
}

impl Rank {
    /// Takes the next step, if it is possible.
    fn step(
        &mut self,
        host: &mut Host<'_>,
        job: JobId,
        next_conn: &mut u32,
        split: &mut Split,
    ) -> Result<bool, String> {
        if let Some(conn) = self.conn {
            self.received.extend(host.take(conn));
        }
        match self.steps.get(self.next) {
            None => return Ok(false),
            Some(Step::Client(bytes)) => {
                if let Ok(Some(Frame::Hello { body, .. })) = next_frame(bytes) {
                    if let Some(conn) = self.conn {
                        host.tell(Input::Closed { conn: ConnId(conn) }).map_err(|why| why.to_string())?;
                    }
                    self.integers = Hello::decode(body).ok_or("an invalid handshake")?.integers;
                    let conn = ConnId(*next_conn);
                    host.tell(Input::Opened { conn, job, rank: None }).map_err(|why| why.to_string())?;
                    self.conn = Some(*next_conn);
                    *next_conn += 1;
                }
                let conn = self.conn.ok_or("a message before the handshake")?;
                for piece in split.pieces(bytes, LONGEST) {
                    host.arrive(conn, piece).map_err(|why| why.to_string())?;
                }
                if host.unconsumed(conn) > 0 {
                    return Err(format!("not consumed: {}", self.describe(host)));
                }
            }
            Some(Step::Server { what, bytes }) if what.contains("event,") => {
                let Some(at) = self.received.iter().position(|got| got == bytes) else { return Ok(false) };
                self.received.remove(at);
            }
            // The rank waits until it is killed.
            Some(Step::Server { what, bytes }) if what.contains("ABORT") => {
                if self.received.iter().any(|got| tag(got) == tag(bytes)) {
                    return Err(format!("rank {}: a reply to its abort", self.rank));
                }
            }
            Some(Step::Server { what, bytes }) => {
                let Some(at) = self.received.iter().position(|got| tag(got) == tag(bytes)) else {
                    return Ok(false);
                };
                let got = self.received.remove(at);
                let agree = match self.status(&got) {
                    _ if what.contains("REQ") => true,
                    // The text of a refused LOG is printed by the client.
                    Some(status::NOT_SUPPORTED) => what.contains("LOG"),
                    Some(status::TIMEOUT) => self.status(bytes) == Some(status::NOT_FOUND),
                    status => status == self.status(bytes),
                };
                if !agree {
                    return Err(format!(
                        "rank {}: {what}: {:?} and not {:?}, after {}",
                        self.namespace,
                        self.status(&got),
                        self.status(bytes),
                        self.describe(host)
                    ));
                }
            }
        }
        self.next += 1;
        self.end(host, job)?;
        Ok(true)
    }

    /// Reports the end of the process after its last message.
    fn end(&mut self, host: &mut Host<'_>, job: JobId) -> Result<(), String> {
        if self.next < self.steps.len() || !self.is_killed {
            return Ok(());
        }
        let rank = hydrant_core::Rank(self.rank);
        let conn = self.conn.take().map(ConnId).ok_or("a rank without a connection")?;
        for input in [Input::Closed { conn }, Input::Exited { job, rank, exit: Exit::Signal(9) }] {
            host.tell(input).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// Returns whether its next message contains a name.
    fn mentions(&self, name: &str) -> bool {
        match self.steps.get(self.next) {
            Some(Step::Client(bytes)) => bytes.windows(name.len()).any(|part| part == name.as_bytes()),
            _ => false,
        }
    }

    fn describe(&self, host: &Host<'_>) -> String {
        let before = self.steps[..self.next].iter().rev().find_map(|step| match step {
            Step::Client(bytes) => Some(bytes.escape_ascii().to_string()),
            Step::Server { .. } => None,
        });
        format!("{} ({:?})", before.unwrap_or_default(), host.events)
    }

    /// Returns the status at the front of a reply.
    fn status(&self, bytes: &[u8]) -> Option<i32> {
        if bytes.len() <= 8 {
            return bytes.first_chunk::<4>().map(|status| i32::from_be_bytes(*status));
        }
        let mut reader = Reader::new(self.integers, &bytes[16..]);
        reader.single()?;
        reader.int32()
    }
}

/// Returns the tag of a message from the server. Replies to a handshake have none.
fn tag(bytes: &[u8]) -> Option<u32> {
    match next_frame(bytes) {
        Ok(Some(Frame::Message { tag, .. })) => Some(tag),
        _ => None,
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).expect("bytes are in hex") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
