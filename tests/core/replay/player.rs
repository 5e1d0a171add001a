//! Plays the clients of one run against a server of its own.

use std::collections::BTreeMap;

use hydrant_core::limits::Limits;
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, JobId, Rank};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, JOB, counted};
use hydrant_tests::message::Message;
use hydrant_tests::transcript::{Side, Transcript};

use crate::split::Split;

/// Bytes of the longest random piece.
const LONGEST: usize = 12;

/// What was said in a replay.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Per captured rank: `C` and what it said, `P` and what it was told, in order.
    pub(crate) steps: BTreeMap<u32, Vec<(char, Vec<u8>)>>,
    /// What the server told its host.
    pub(crate) events: Vec<String>,
    /// Whether a captured rank broke off in the middle.
    pub(crate) broken_off: bool,
    /// How many ranks the job had.
    pub(crate) size: u32,
    /// The job id that the clients were told.
    pub(crate) jobid: String,
    /// What ranks that were not captured put.
    pub(crate) put_by_others: Vec<(String, Vec<u8>)>,
}

/// One rank's part.
struct Player {
    rank: u32,
    captured: bool,
    messages: Vec<(f64, Vec<u8>)>,
    next: usize,
    waiting: bool,
    done: Vec<(char, Vec<u8>)>,
}

/// The job id, from what the captured server said; clients repeat it.
pub(crate) fn jobid(transcripts: &[Transcript]) -> String {
    let replies = transcripts.iter().flat_map(replies);
    let named = replies.filter_map(|reply| {
        let name = reply.get("jobid").or_else(|| reply.get("kvsname"))?;
        (reply.name() != "spawn-response").then(|| String::from_utf8_lossy(name).into_owned())
    });
    named.into_iter().next().unwrap_or_else(|| "kvs_0".to_owned())
}

fn size(transcripts: &[Transcript]) -> u32 {
    let from_env = transcripts.iter().find_map(|transcript| transcript.env("PMI_SIZE")?.parse().ok());
    let told = || transcripts.iter().flat_map(replies).find_map(|reply| reply.text("size").parse().ok());
    from_env.or_else(told).unwrap_or_else(|| panic!("no size in {:?}", transcripts[0].name))
}

/// The captured server's replies, as far as they can be read: some came in two pieces.
fn replies(transcript: &Transcript) -> Vec<Message> {
    let mut found = Vec::new();
    let mut held: Vec<u8> = Vec::new();
    for step in &transcript.steps {
        let Some(bytes) = step.bytes.as_ref().filter(|_| step.from == Side::Manager) else { continue };
        held.extend_from_slice(bytes);
        if let Ok(message) = Message::parse(&held) {
            found.push(message);
            held.clear();
        }
    }
    found
}

/// A captured client's message.
pub(crate) fn captured(bytes: &[u8]) -> Message {
    match Message::captured(bytes) {
        Ok((message, _)) => message,
        Err(e) => panic!("{}: {e}", bytes.escape_ascii()),
    }
}

/// A captured client's messages with their times.
fn messages(transcript: &Transcript) -> Vec<(f64, Vec<u8>)> {
    let mine = transcript.steps.iter().filter(|step| step.from == Side::Client);
    mine.filter_map(|step| Some((step.time.unwrap_or(0.0), step.bytes.clone()?))).collect()
}

/// What captured ranks were told and none of them put: the ranks that were not captured must have.
fn put_by_others(transcripts: &[Transcript]) -> Vec<(String, Vec<u8>)> {
    let said: Vec<Message> =
        transcripts.iter().flat_map(messages).map(|(_, bytes)| captured(&bytes)).collect();
    let keys = |name: &str| {
        let of_name = said.iter().filter(move |message| message.name().ends_with(name));
        of_name.map(|message| message.text("key")).collect::<Vec<_>>()
    };
    let put = keys("put");
    let mut others = Vec::new();
    for transcript in transcripts {
        let asked = messages(transcript);
        let asked = asked.iter().map(|(_, bytes)| captured(bytes));
        let asked = asked.filter(|message| matches!(message.name(), "kvs-get" | "get"));
        let told = replies(transcript);
        let told = told.iter().filter(|reply| matches!(reply.name(), "kvs-get-response" | "get_result"));
        for (question, answer) in asked.zip(told) {
            let key = question.text("key");
            let hit = answer.text("rc") == "0" && answer.get("value").is_some();
            if hit && !put.contains(&key) && !key.starts_with("PMI_") {
                others.push((key, answer.get("value").unwrap_or_default().to_vec()));
            }
        }
    }
    others
}

/// A rank that was not captured: it joins, puts what others are told, and takes part in every fence.
fn stand_in(rank: u32, like: &Transcript, puts: &[(String, Vec<u8>)]) -> Vec<(f64, Vec<u8>)> {
    let said = messages(like);
    let parsed: Vec<Message> = said.iter().map(|(_, bytes)| captured(bytes)).collect();
    let fences = parsed.iter().filter(|message| matches!(message.name(), "kvs-fence" | "barrier_in")).count();
    let ends = parsed.iter().any(|message| message.name() == "finalize");
    let counts = parsed.iter().any(|message| message.counted);
    let put = |(key, value): &(String, Vec<u8>)| {
        let value = String::from_utf8_lossy(value);
        if counts {
            counted(&format!("cmd=kvs-put;key={key};value={value};"))
        } else {
            format!("cmd=put kvsname= key={key} value={value}\n").into_bytes()
        }
    };
    let mut all: Vec<Vec<u8>> = Vec::new();
    if counts {
        all.push(b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec());
        all.push(counted(&format!("cmd=fullinit;pmirank={rank};")));
    } else {
        if parsed.first().is_some_and(|message| message.name() == "initack") {
            all.push(format!("cmd=initack pmiid={rank}\n").into_bytes());
        }
        all.push(b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec());
    }
    all.extend(puts.iter().map(put));
    let (fence, end) = if counts {
        (counted("cmd=kvs-fence;"), counted("cmd=finalize;"))
    } else {
        (b"cmd=barrier_in\n".to_vec(), b"cmd=finalize\n".to_vec())
    };
    all.extend(std::iter::repeat_n(fence, fences));
    if ends {
        all.push(end);
    }
    all.into_iter().map(|bytes| (0.0, bytes)).collect()
}

fn players(transcripts: &[Transcript], size: u32, puts: &[(String, Vec<u8>)]) -> Vec<Player> {
    let player = |rank| {
        let captured = transcripts.iter().find(|transcript| transcript.rank() == rank);
        let messages = match captured {
            Some(transcript) => messages(transcript),
            None => stand_in(rank, &transcripts[0], puts),
        };
        let captured = captured.is_some();
        Player { rank, captured, messages, next: 0, waiting: false, done: Vec::new() }
    };
    (0..size).map(player).collect()
}

/// Plays a run: each rank says its next message once it has the reply to the one before, the earliest in the capture
/// first. Ends when all is said or the server wants the job to end.
pub(crate) fn play(family: &str, transcripts: &[Transcript], mut split: Split) -> Exchange {
    let (size, jobid) = (size(transcripts), jobid(transcripts));
    let all_captured = transcripts.len() == size as usize;
    let puts = if all_captured { Vec::new() } else { put_by_others(transcripts) };
    let mut players = players(transcripts, size, &puts);
    let limits = Limits {
        jobs: 2,
        ranks: size + 8,
        conns: size + 1,
        keys: 64,
        kvs_bytes: 1 << 16,
        groups: 2,
        names: 4,
        spawns: 2,
        spawn_bytes: 4096,
        psets: 4,
        links: 0,
        commit_bytes: 0,
    };
    let mut memory = MappedStorage::new(&limits);
    let mut host = Host::new(limits, &mut memory).expect("the memory is as large as the limits say");
    host.job(&jobid, size).expect("the limits have room for the job");
    for player in &players {
        let known = transcripts.iter().all(|transcript| !transcript.name.contains(".port."));
        host.open(player.rank, known.then_some(player.rank)).expect("the limits have room for each rank");
    }
    while host.events.is_empty() {
        let ready =
            players.iter_mut().filter(|player| !player.waiting && player.next < player.messages.len());
        let Some(player) = ready.min_by(|a, b| a.time().total_cmp(&b.time())) else { break };
        let (_, bytes) = player.messages[player.next].clone();
        player.next += 1;
        player.waiting = true;
        player.done.push(('C', bytes.clone()));
        let rank = player.rank;
        for piece in split.pieces(&bytes, LONGEST) {
            host.arrive(rank, piece).expect("the connection is open");
        }
        launch(&mut host);
        assert_eq!(host.unconsumed(rank), 0, "{family} rank {rank}: {} is not whole?", bytes.escape_ascii());
        for player in &mut players {
            for reply in host.take(player.rank) {
                player.waiting = false;
                player.done.push(('P', reply));
            }
        }
    }
    let over = !host.events.is_empty();
    // Where a captured rank broke off in the middle, others may have waited for it there as well.
    let broken_off = players.iter().any(|player| player.captured && !player.has_left());
    let over = over || broken_off;
    let stuck: Vec<u32> = players.iter().filter(|player| player.waiting).map(|player| player.rank).collect();
    assert!(over || stuck.is_empty(), "{family}: ranks {stuck:?} wait for ever");
    for player in players.iter().filter(|player| !player.waiting || !over) {
        close(&mut host, player);
    }
    let events = std::mem::take(&mut host.events);
    let captured = players.into_iter().filter(|player| player.captured);
    let steps = captured.map(|player| (player.rank, player.done)).collect();
    Exchange { steps, events, broken_off, size, jobid, put_by_others: puts }
}

/// The job that a spawn makes.
pub(crate) const CHILD: &str = "kvs_child";

/// Starts what the server wants started, as far as the server can tell.
fn launch(host: &mut Host<'_>) {
    for spawned in std::mem::take(&mut host.spawns) {
        let size = spawned.ranks.iter().sum();
        let universe_size = Some(size);
        let child =
            JobSpec { spawn: Some(spawned.spawn), universe_size, ..JobSpec::new(JobId(1), CHILD, size) };
        host.tell(Input::RegisterJob(child)).expect("the limits have room for the spawned job");
        let codes = vec![0; spawned.ranks.len()];
        let launched =
            Input::SpawnComplete { spawn: spawned.spawn, started: true, full: None, codes: &codes };
        host.tell(launched).expect("the server asked for it");
    }
}

fn close(host: &mut Host<'_>, player: &Player) {
    host.tell(Input::Closed { conn: ConnId(player.rank) }).expect("the connection is open");
    let exit = Input::Exited { job: JOB, rank: Rank(player.rank), exit: Exit::Code(0) };
    host.tell(exit).expect("the rank has not exited before");
}

impl Player {
    /// Whether its last words are those of a rank that leaves.
    fn has_left(&self) -> bool {
        let last = self.messages.last().map(|(_, bytes)| captured(bytes));
        last.is_some_and(|message| matches!(message.name(), "finalize" | "abort"))
    }

    /// When its next message was sent.
    fn time(&self) -> f64 {
        self.messages[self.next].0
    }
}
