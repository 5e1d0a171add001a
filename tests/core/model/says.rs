//! Replies, as the model expects them and as a client reads them.

use hydrant_core::Refusal;
use hydrant_core::wire::frame::{self, Kind};
use hydrant_core::wire::{Codes, Failure, Framing, Op, Reply, Text, v1, v2};

/// The servers of hydrant send no -1.
const KNOWN: &str = "hydrant's servers know the number";

/// Records that a reply is made of, by their numbers in the model. A client does not see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<u64>);

impl PartialEq for Records {
    fn eq(&self, _: &Records) -> bool {
        true
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Say {
    Init {
        version: u32,
        subversion: u32,
    },
    InitAck {
        rank: u32,
        size: u32,
        appnum: u32,
    },
    FullInit {
        rank: u32,
        size: u32,
        appnum: u32,
        spawner: Option<String>,
    },
    Maxes,
    Number(Op, u32),
    Text(Op, Vec<u8>, Records),
    Missing(Op),
    Spawned {
        job: String,
        codes: Vec<i32>,
    },
    NotSpawned {
        codes: Vec<i32>,
    },
    Ring {
        count: u32,
        left: Vec<u8>,
        right: Vec<u8>,
        from: Records,
    },
    /// Name of a set.
    SetName(String),
    /// Name and serial number of a set.
    NextSet(String, u32),
    /// Members of a set, whose name a client does not get.
    Members(String, String),
    Fence(Option<u32>),
    Done(Op),
    Refused(Op, Refusal),
    /// A refusal as a client reads it.
    Failed(Op, i32, String),
    /// Known when it is said: who is dead.
    Dead(Op),
    /// Known when it is said: the port of that publication, if it has not been withdrawn.
    Port(u64),
    /// Kept with the spawn until it is said.
    Launched(u64),
}

/// Members of one job in a reply.
pub(crate) fn listed(ranks: &str, jobid: Option<&str>, next: Option<u32>) -> String {
    format!("{ranks} of {jobid:?}, next {next:?}")
}

/// Ranks in rising order as `0-3,7`.
pub(crate) fn ranges(ranks: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

impl Say {
    /// What of an expected reply reaches a client of that protocol.
    pub(crate) fn heard(self, v2: bool) -> Say {
        let carries = |text: &[u8]| v2 || !(text.contains(&b'\n') || text.contains(&0));
        match self {
            Say::Text(op, text, _) if !carries(&text) => Say::Refused(op, Refusal::Unprintable).heard(v2),
            Say::Members(_, members) => Say::Members(String::new(), members),
            Say::Refused(op, why) => Say::Failed(known(op, v2), why.rc(), why.to_string()),
            Say::Spawned { codes, .. } if !v2 => Say::Spawned { job: String::new(), codes },
            other => other,
        }
    }
}

/// The name of a reply that the protocol does not have is that to an unknown command.
fn known(op: Op, v2: bool) -> Op {
    match op {
        Op::Init | Op::InitAck => op,
        Op::GetMaxes | Op::GetUniverseSize | Op::GetAppnum if v2 => Op::Unknown,
        _ => op,
    }
}

/// Reads a whole reply, and whose thread's it is.
pub(crate) fn hear(bytes: &[u8]) -> (Option<String>, Say) {
    let shown = bytes.escape_ascii();
    let framing = if bytes.starts_with(b"cmd=") { Framing::Line } else { Framing::Counted };
    let frame =
        frame::next_reply(bytes, framing).ok().flatten().unwrap_or_else(|| panic!("no reply: {shown}"));
    assert_eq!(frame.len as usize, bytes.len(), "more than one reply: {shown}");
    if frame.kind == Kind::Counted {
        let answer = v2::decode_reply(&frame).unwrap_or_else(|why| panic!("{why}: {shown}"));
        let thrid =
            answer.thrid.map(|thrid| String::from_utf8(bytes_of(thrid)).expect("the test's are ASCII"));
        return (thrid, owned(&answer.reply));
    }
    (None, owned(&v1::decode_reply(&frame).unwrap_or_else(|why| panic!("{why}: {shown}"))))
}

fn bytes_of(text: Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}

fn string(text: Text<'_>) -> String {
    String::from_utf8(bytes_of(text)).expect("the server's own words are ASCII")
}

fn codes_of(codes: Codes<'_>) -> Vec<i32> {
    codes.iter().collect()
}

fn owned(reply: &Reply<'_>) -> Say {
    match *reply {
        Reply::Init { version, subversion } => Say::Init { version, subversion },
        Reply::InitAck { rank, size, appnum } => Say::InitAck { rank, size, appnum },
        Reply::FullInit { rank, size, appnum, spawner, .. } => {
            Say::FullInit { rank, size, appnum, spawner: spawner.map(string) }
        }
        Reply::Maxes { kvsname, key, value } => {
            assert_eq!((kvsname, key, value), (256, 64, 1024));
            Say::Maxes
        }
        Reply::UniverseSize(size) => Say::Number(Op::GetUniverseSize, size.unwrap_or(0)),
        Reply::Appnum(appnum) => Say::Number(Op::GetAppnum, appnum.expect(KNOWN)),
        Reply::JobId(jobid) => Say::Text(Op::GetJobId, bytes_of(jobid), Records::default()),
        Reply::Found(op, value) => Say::Text(op, bytes_of(value), Records::default()),
        Reply::Missing(op) => Say::Missing(op),
        Reply::Port(port) => Say::Text(Op::Lookup, bytes_of(port), Records::default()),
        Reply::Spawned { jobid, codes } => Say::Spawned { job: string(jobid), codes: codes_of(codes) },
        Reply::NotSpawned { why: Failure::Remote(rc, why), codes } => {
            assert_eq!((rc, plain(why)), (14, Refusal::NotStarted.to_string()));
            Say::NotSpawned { codes: codes_of(codes) }
        }
        Reply::Ring { count, left, right } => {
            Say::Ring { count, left: bytes_of(left), right: bytes_of(right), from: Records::default() }
        }
        Reply::PsetCount(count) => Say::Number(Op::PsetCount, count),
        Reply::PsetName(name) => Say::SetName(string(name)),
        Reply::PsetNext { name, serial } => Say::NextSet(string(name), serial),
        Reply::PsetInfo { size, .. } => Say::Number(Op::PsetInfo, size),
        Reply::PsetMembers { members, jobid, next } => {
            let jobid = jobid.map(string);
            Say::Members(String::new(), listed(&string(members), jobid.as_deref(), next))
        }
        Reply::Fence { tag } => Say::Fence(tag),
        Reply::Done(op) => Say::Done(op),
        Reply::Refused(op, Failure::Remote(rc, why)) => Say::Failed(op, rc, plain(why)),
        Reply::Refused(_, Failure::Refusal(_)) | Reply::NotSpawned { .. } => {
            unreachable!("what is read is remote")
        }
    }
}

/// PMI-1 writes underscores for blanks, and no refusal has one of its own.
fn plain(why: Text<'_>) -> String {
    string(why).replace('_', " ")
}
