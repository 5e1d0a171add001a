//! Requests of clients by phase, from the bytes that the server consumed.

use hydrant_core::wire::pmix::{self, Hello, Proc, Procs, WILDCARD};
use hydrant_core::wire::{self, Command, Framing, Integers, Members, Message, next_frame};
use hydrant_record::Dialect;

use crate::model::{Phase, Protocol};

/// Longest name of a collective in bytes.
const NAME_MAX: usize = 120;
/// Longest thread id in bytes. Threads with longer ones are not told apart.
const THREAD_MAX: usize = 32;

/// Request of a client.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) phase: Phase,
    /// Distinguishes its reply from those of other requests: the tag of PMIx, or the thread id of PMI-2.
    pub(crate) key: Key,
    /// Whether the server replies.
    pub(crate) replied: bool,
    /// The collective, for [`Phase::Fence`].
    pub(crate) participants: Option<Participants>,
}

/// Distinguishes replies of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Key {
    /// In the order of requests.
    #[default]
    Order,
    /// In the order of requests of this thread.
    Thread(Vec<u8>),
    /// The request with this tag.
    Tag(u32),
}

/// Members of a collective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Participants {
    /// Kind and members, for people.
    pub(crate) name: String,
    /// All members, where the name may be truncated. Empty for all ranks of the job.
    pub(crate) members: Vec<u8>,
    /// Whether ranks of other jobs may take part.
    pub(crate) crosses_jobs: bool,
    /// Whether only ranks of one node take part.
    pub(crate) on_node: bool,
}

impl Participants {
    fn world(name: &str) -> Participants {
        Participants { name: name.to_owned(), members: Vec::new(), crosses_jobs: false, on_node: false }
    }
}

/// Decoder of one connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    framing: Framing,
    dialect: Option<Dialect>,
    integers: Integers,
    /// Job id of the client's job, which PMIx names in its requests.
    job: String,
    greeted: bool,
    pub(crate) protocol: Option<Protocol>,
}

impl Decoder {
    pub(crate) fn new(job: String) -> Decoder {
        let (framing, integers) = (Framing::Line, Integers::Flexible);
        Decoder { framing, dialect: None, integers, job, greeted: false, protocol: None }
    }

    /// Decodes the first message in `bytes`, which are not empty. Returns its length, the request, and its text.
    pub(crate) fn request(&mut self, bytes: &[u8]) -> (usize, Request, String) {
        if self.protocol.is_none() && self.dialect.is_none() {
            self.dialect = Dialect::of(bytes);
        }
        match &mut self.dialect {
            Some(dialect) => {
                let (len, text) = dialect.request(bytes);
                let request = self.pmix(bytes);
                (len.clamp(1, bytes.len()), request, text)
            }
            None => self.text(bytes),
        }
    }

    /// Returns the key of a reply and its text.
    pub(crate) fn reply(&mut self, bytes: &[u8]) -> (Key, String) {
        let Some(dialect) = &mut self.dialect else {
            let end = bytes.len().min(crate::TEXT_MAX);
            return (thread_of(bytes), bytes[..end].escape_ascii().to_string());
        };
        let text = dialect.reply(bytes);
        if !std::mem::replace(&mut self.greeted, true) {
            return (Key::Order, text);
        }
        let tag = bytes.get(4..8).and_then(|tag| tag.first_chunk()).map_or(0, |tag| u32::from_be_bytes(*tag));
        (Key::Tag(tag), text)
    }

    /// Returns whether a reply to a get has a value.
    pub(crate) fn is_found(&self, bytes: &[u8]) -> bool {
        match self.dialect {
            Some(_) => {
                let body = bytes.get(pmix::HEADER_LEN..).unwrap_or_default();
                let mut reader = pmix::Reader::new(self.integers, body);
                reader.single().and_then(|()| reader.int32()) == Some(0)
            }
            None => {
                let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
                has(b"rc=0") && !has(b"found=FALSE")
            }
        }
    }

    fn text(&mut self, bytes: &[u8]) -> (usize, Request, String) {
        let framing = if bytes.starts_with(b"mcmd=") { Framing::Line } else { self.framing };
        let frame = next_frame(bytes, framing).ok().flatten();
        let len = frame.map_or(bytes.len(), |frame| frame.len as usize).clamp(1, bytes.len());
        let text = bytes[..len.min(crate::TEXT_MAX)].escape_ascii().to_string();
        let unknown = Request { phase: Phase::Other, key: Key::Order, replied: true, participants: None };
        let Some(frame) = frame else { return (len, unknown, text) };
        let (thread, command) = match wire::decode(&frame) {
            Ok(Message { command, thrid, .. }) => (thrid, command.ok()),
            Err(_) => (None, None),
        };
        let key = match thread {
            Some(thread) => Key::Thread(thread.parts().flatten().copied().take(THREAD_MAX).collect()),
            None => Key::Order,
        };
        if let Some(Command::Init { version, .. }) = command {
            let is_v2 = version == 2;
            self.protocol = Some(if is_v2 { Protocol::Pmi2 } else { Protocol::Pmi1 });
            self.framing = if is_v2 { Framing::Counted } else { Framing::Line };
        }
        let Some(command) = command else { return (len, Request { key, ..unknown }, text) };
        let phase = phase_of(&command);
        let replied = !matches!(command, Command::Abort { .. });
        (len, Request { phase, key, replied, participants: participants_of(&command) }, text)
    }

    fn pmix(&mut self, bytes: &[u8]) -> Request {
        let request = |phase, tag| Request { phase, key: Key::Tag(tag), replied: true, participants: None };
        match pmix::next_frame(bytes) {
            Ok(Some(pmix::Frame::Hello { body, .. })) => {
                self.protocol = Some(Protocol::Pmix);
                if let Some(Hello { integers, .. }) = Hello::decode(body) {
                    self.integers = integers;
                }
                Request { key: Key::Order, ..request(Phase::Init, 0) }
            }
            Ok(Some(pmix::Frame::Message { tag, body, .. })) => match pmix::decode(self.integers, body) {
                Ok(Ok(command)) => {
                    let (phase, participants) = self.pmix_phase(&command);
                    let never =
                        matches!(command, pmix::Command::DeregisterEvents(_) | pmix::Command::Heartbeat);
                    let replied = !never;
                    Request { participants, replied, ..request(phase, tag) }
                }
                _ => request(Phase::Other, tag),
            },
            _ => Request { replied: false, ..request(Phase::Other, 0) },
        }
    }

    fn pmix_phase(&self, command: &pmix::Command<'_>) -> (Phase, Option<Participants>) {
        let fence = |what: &str, procs: &Procs<'_>| (Phase::Fence, Some(self.pmix_participants(what, procs)));
        match command {
            pmix::Command::JobInfo => (Phase::Init, None),
            pmix::Command::Commit(_) => (Phase::Put, None),
            pmix::Command::Fence { procs, .. } => fence("fence", procs),
            pmix::Command::Connect(procs, _) => fence("connect", procs),
            pmix::Command::Disconnect(procs, _) => fence("disconnect", procs),
            pmix::Command::GroupConstruct { name, procs, .. } => {
                fence(&format!("group construct {}", name.escape_ascii()), procs)
            }
            // Its members are those of the group, which the request does not repeat.
            pmix::Command::GroupDestruct { name, .. } => {
                let mut participants =
                    Participants::world(&short(format!("group destruct {}", name.escape_ascii())));
                (participants.members, participants.crosses_jobs) = (name.to_vec(), true);
                (Phase::Fence, Some(participants))
            }
            pmix::Command::Get { .. }
            | pmix::Command::Refresh(_)
            | pmix::Command::Query(_)
            | pmix::Command::ResolvePeers { .. }
            | pmix::Command::ResolveNodes(_) => (Phase::Get, None),
            pmix::Command::Publish(..) | pmix::Command::Lookup(..) | pmix::Command::Unpublish(..) => {
                (Phase::Name, None)
            }
            pmix::Command::Spawn { .. } => (Phase::Spawn, None),
            pmix::Command::Finalize => (Phase::Finalize, None),
            _ => (Phase::Other, None),
        }
    }

    fn pmix_participants(&self, what: &str, procs: &Procs<'_>) -> Participants {
        if procs.is_whole(self.job.as_bytes()) {
            return Participants::world(&short(what.to_owned()));
        }
        let mut members: Vec<(&[u8], u32)> =
            procs.iter().map(|Proc { namespace, rank }| (namespace, rank)).collect();
        members.sort_unstable();
        members.dedup();
        let mut key = what.as_bytes().to_vec();
        let mut name = format!("{what} of");
        let crosses_jobs = members.iter().any(|(namespace, _)| *namespace != self.job.as_bytes());
        for (namespace, rank) in members {
            key.extend_from_slice(namespace);
            key.push(0);
            key.extend_from_slice(&rank.to_be_bytes());
            if name.len() < NAME_MAX {
                let job = if crosses_jobs { format!("{}:", namespace.escape_ascii()) } else { String::new() };
                let rank = if rank == WILDCARD { "all".to_owned() } else { rank.to_string() };
                name += &format!(" {job}{rank}");
            }
        }
        Participants { name: short(name), members: key, crosses_jobs, on_node: false }
    }
}

fn phase_of(command: &Command<'_>) -> Phase {
    match command {
        // Client libraries ask these in PMI_Init.
        Command::Init { .. }
        | Command::InitAck { .. }
        | Command::FullInit { .. }
        | Command::GetMaxes
        | Command::GetAppnum
        | Command::GetJobId => Phase::Init,
        Command::Put { .. } | Command::PutNodeAttr { .. } => Phase::Put,
        Command::Fence { .. } | Command::Ring { .. } => Phase::Fence,
        Command::Publish { .. } | Command::Unpublish { .. } | Command::Lookup { .. } => Phase::Name,
        Command::Spawn(_) => Phase::Spawn,
        Command::Finalize => Phase::Finalize,
        Command::Connect { .. }
        | Command::Disconnect { .. }
        | Command::PsetDefine { .. }
        | Command::PsetCombine { .. }
        | Command::PsetRetire { .. }
        | Command::PsetPrune
        | Command::Abort { .. } => Phase::Other,
        _ => Phase::Get,
    }
}

fn participants_of(command: &Command<'_>) -> Option<Participants> {
    let group = match command {
        Command::Ring { .. } => return Some(Participants::world("ring")),
        // The same fence in all protocols.
        Command::Fence { group: None } => return Some(Participants::world("fence")),
        Command::Fence { group: Some(group) } => group,
        _ => return None,
    };
    let tag = group.tag;
    let (members, name, on_node) = match group.members {
        Members::World => (b"WORLD".to_vec(), "all".to_owned(), false),
        Members::Node => (b"NODE".to_vec(), "the node".to_owned(), true),
        Members::Ranks(list) => {
            let mut ranks: Vec<u32> = list.iter().collect();
            ranks.sort_unstable();
            ranks.dedup();
            let shown = ranks.iter().take(NAME_MAX / 2).map(u32::to_string).collect::<Vec<_>>();
            (ranks.iter().flat_map(|rank| rank.to_be_bytes()).collect(), shown.join(","), false)
        }
    };
    let members = [members, tag.to_be_bytes().to_vec()].concat();
    Some(Participants {
        name: short(format!("barrier of {name}:{tag}")),
        members,
        crosses_jobs: false,
        on_node,
    })
}

/// Truncates a name, all of whose characters are ASCII.
fn short(mut name: String) -> String {
    if name.len() > NAME_MAX {
        name.truncate(NAME_MAX);
        name.push_str("..");
    }
    name
}

/// Returns the key of a reply of PMI-1 or PMI-2. A thread id directly follows the name of the reply.
fn thread_of(bytes: &[u8]) -> Key {
    let mut fields = bytes.split(|&byte| byte == b';');
    fields.next();
    match fields.next().and_then(|field| field.strip_prefix(b"thrid=")) {
        Some(thread) => Key::Thread(thread[..thread.len().min(THREAD_MAX)].to_vec()),
        None => Key::Order,
    }
}
