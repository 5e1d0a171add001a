//! Messages as clients write them.

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::wire::{
    Command, EncodeError, Group, Members, Persistence, Program, RankList, RankRanges, Spawn, Text, v1, v2,
};

use super::commands::{Ask, key, name, operation, pset, text};
use super::state::Request;

/// The message in the language of the connection; nothing where that cannot carry it. What the language does not
/// have becomes an unknown command.
pub(crate) fn request(
    ask: &Ask,
    job: Option<String>,
    counted: bool,
    thrid: Option<String>,
) -> Option<Request> {
    let job = if counted && matches!(ask, Ask::Put { .. }) { None } else { job };
    let thrid = thrid.filter(|_| counted);
    let mut ask = ask.clone();
    if let Ask::Abort { world, .. } = &mut ask {
        *world |= !counted;
    }
    match encode(&ask, job.as_deref(), counted, thrid.as_deref()) {
        Ok(bytes) => Some(Request { ask, job, thrid, bytes }),
        Err(EncodeError::Unsupported) => Some(unknown(counted, thrid)),
        Err(EncodeError::Unprintable | EncodeError::DoesNotFit) => None,
    }
}

fn unknown(counted: bool, thrid: Option<String>) -> Request {
    let thread = thrid.iter().map(|thrid| format!("thrid={thrid};")).collect::<String>();
    let body = format!("cmd=no-such-command;{thread}key=k;");
    let text = if counted { format!("{:<6}{body}", body.len()) } else { "cmd=no_such key=k\n".to_owned() };
    Request { ask: Ask::Unknown, job: None, thrid, bytes: text.into_bytes() }
}

fn list(ranks: &[u8]) -> String {
    ranks.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

fn encode(ask: &Ask, job: Option<&str>, counted: bool, thrid: Option<&str>) -> Result<Vec<u8>, EncodeError> {
    // Texts that the command borrows.
    let (a, b, ranks) = texts(ask);
    let (ta, tb) = (Text::plain(&a), Text::plain(&b));
    let job_text = job.map(Text::from);
    let named = job_text.unwrap_or(Text::plain(b"unknown"));
    let programs: Vec<Program<'_>> = match ask {
        Ask::Spawn { sizes, .. } => sizes.iter().map(|&size| program(u32::from(size))).collect(),
        _ => Vec::new(),
    };
    let pairs = [(ta, tb)];
    let command = match *ask {
        Ask::Init { .. } if counted => return Err(EncodeError::Unsupported),
        Ask::Init { version } => Command::Init { version: u32::from(version), subversion: 1 },
        Ask::InitAck { rank } => Command::InitAck { pmiid: u32::from(rank) },
        Ask::FullInit { rank, .. } => {
            Command::FullInit { rank: rank.map(u32::from), jobid: job_text, threaded: thrid.is_some() }
        }
        Ask::GetMaxes => Command::GetMaxes,
        Ask::GetUniverseSize => Command::GetUniverseSize,
        Ask::GetAppnum => Command::GetAppnum,
        Ask::GetJobId => Command::GetJobId,
        Ask::Put { .. } => Command::Put { kvs: job_text, key: ta, value: tb },
        Ask::Get { .. } => Command::Get { kvs: job_text, key: ta, source: None },
        Ask::Fence => Command::Fence { group: None },
        Ask::Group { ref members, tag } => {
            let members = match (RankList::new(ranks.as_bytes()), members.is_empty()) {
                (Some(list), false) => Members::Ranks(list),
                _ if tag == 0 => Members::Node,
                _ => Members::World,
            };
            Command::Fence { group: Some(Group { members, tag: u32::from(tag) }) }
        }
        Ask::PutNodeAttr { .. } => Command::PutNodeAttr { key: ta, value: tb },
        Ask::GetNodeAttr { wait, .. } => Command::GetNodeAttr { key: ta, wait },
        Ask::GetJobAttr { .. } => Command::GetJobAttr { key: ta },
        Ask::Publish { .. } => Command::Publish { name: ta, port: tb, persistence: Persistence::Job },
        Ask::Unpublish { .. } => Command::Unpublish { name: ta, party: None },
        Ask::Lookup { .. } => Command::Lookup { name: ta, wait: None, party: None },
        Ask::Spawn { preput, .. } => {
            Command::Spawn(Spawn::new(&programs, if preput.is_some() { &pairs } else { &[] }))
        }
        Ask::Connect { .. } => Command::Connect { jobid: named },
        Ask::Disconnect { .. } => Command::Disconnect { jobid: named },
        Ask::Ring { count, .. } => Command::Ring { count: u32::from(count), left: ta, right: tb },
        Ask::PsetCount => Command::PsetCount,
        Ask::PsetName { index } => Command::PsetName { index: u32::from(index) },
        Ask::PsetNext { after } => Command::PsetNext { after: u32::from(after) },
        Ask::PsetRetire { .. } => Command::PsetRetire { name: ta },
        Ask::PsetPrune => Command::PsetPrune,
        Ask::PsetInfo { .. } => Command::PsetInfo { name: ta },
        Ask::PsetMembers { from, .. } => Command::PsetMembers { name: ta, from: u32::from(from) },
        Ask::PsetDefine { .. } => {
            let members = RankRanges::new(ranks.as_bytes()).expect("numbers with commas between them");
            Command::PsetDefine { name: ta, members }
        }
        Ask::PsetCombine { operation, of, .. } => {
            let operands = of.map(|name| Text::from(pset(name)));
            Command::PsetCombine { name: ta, operation: self::operation(operation), operands }
        }
        Ask::Abort { code, world, .. } => Command::Abort { code: code.map(i32::from), world, message: ta },
        Ask::Finalize => Command::Finalize,
        Ask::Unknown => return Err(EncodeError::Unsupported),
    };
    let mut buf = vec![0; MESSAGE_MAX as usize];
    let bytes = match counted {
        true => v2::encode(&command, thrid.map(Text::from), &mut buf),
        false => v1::encode(&command, &mut buf),
    };
    bytes.map(<[u8]>::to_vec)
}

/// The texts and ranks of a command.
fn texts(ask: &Ask) -> (Vec<u8>, Vec<u8>, String) {
    let none = Vec::new;
    let (a, b) = match *ask {
        Ask::Put { key: k, value, .. } | Ask::PutNodeAttr { key: k, value } => (key(k), text(value)),
        Ask::Get { key: k, .. } | Ask::GetNodeAttr { key: k, .. } | Ask::GetJobAttr { key: k } => {
            (key(k), none())
        }
        Ask::Publish { name: n, port } => (name(n), text(port)),
        Ask::Unpublish { name: n } | Ask::Lookup { name: n } => (name(n), none()),
        Ask::Spawn { preput: Some((k, value)), .. } => (key(k), text(value)),
        Ask::Ring { left, right, .. } => (text(left), text(right)),
        Ask::PsetInfo { name }
        | Ask::PsetRetire { name }
        | Ask::PsetMembers { name, .. }
        | Ask::PsetCombine { name, .. }
        | Ask::PsetDefine { name, .. } => (pset(name).into(), none()),
        Ask::Abort { message, .. } => (text(message), none()),
        _ => (none(), none()),
    };
    let ranks = match ask {
        Ask::Group { members, .. } | Ask::PsetDefine { members, .. } => list(members),
        _ => String::new(),
    };
    (a, b, ranks)
}

fn program(maxprocs: u32) -> Program<'static> {
    const ARGS: &[Text<'_>] = &[Text::plain(b""), Text::plain(b"x y")];
    const INFO: &[(Text<'_>, Text<'_>)] = &[(Text::plain(b"wdir"), Text::plain(b"/tmp"))];
    Program { command: Text::plain(b"./child"), maxprocs, args: ARGS, info: INFO }
}
