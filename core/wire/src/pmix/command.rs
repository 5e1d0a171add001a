//! Requests of clients.

use super::info::{Info, Infos};
use super::reader::{Proc, Reader};
use super::{Integers, WILDCARD, removal};
use crate::Malformed;

/// Number of [`Command::JobInfo`].
pub const JOB_INFO: u8 = 0;
/// Number of [`Command::Commit`].
pub(super) const COMMIT: u8 = 2;

/// Request of a client. Arrays have been validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Data about the job and the rank (REQ).
    JobInfo,
    /// End of the job, or of some processes (ABORT).
    Abort {
        /// Requested exit code.
        code: i32,
        /// Message for the user.
        message: &'a [u8],
        /// Processes to end. None stands for all.
        procs: Procs<'a>,
    },
    /// All data that the process has put (COMMIT).
    Commit(Commit<'a>),
    /// Fence of processes (FENCENB).
    Fence {
        /// Processes that take part. None stands for all of the job.
        procs: Procs<'a>,
        /// Options.
        infos: Infos<'a>,
    },
    /// Data of a process (GETNB).
    Get {
        /// The process, or all of its job.
        proc: Proc<'a>,
        /// Options.
        infos: Infos<'a>,
        /// Key that is looked for. `None` stands for all.
        key: Option<&'a [u8]>,
    },
    /// Newest data of a process, for the client's copy (REFRESH_CACHE).
    Refresh(Proc<'a>),
    /// End of use (FINALIZE).
    Finalize,
    /// Publication of data (PUBLISHNB), with the user id of the client.
    Publish(u32, Infos<'a>),
    /// Look-up of published data (LOOKUPNB).
    Lookup(Keys<'a>, Infos<'a>),
    /// End of a publication (UNPUBLISHNB).
    Unpublish(Keys<'a>, Infos<'a>),
    /// Start of processes (SPAWNNB).
    Spawn {
        /// Options of the job.
        infos: Infos<'a>,
        /// Its programs.
        apps: Apps<'a>,
    },
    /// Connection of jobs (CONNECTNB).
    Connect(Procs<'a>, Infos<'a>),
    /// Disconnection of jobs (DISCONNECTNB).
    Disconnect(Procs<'a>, Infos<'a>),
    /// Event for other processes (NOTIFY).
    Notify {
        /// Code of the event.
        event: i32,
        /// Which processes get it.
        range: u8,
        /// Its data.
        infos: Infos<'a>,
    },
    /// Registration for events (REGEVENTS).
    RegisterEvents(Codes<'a>),
    /// End of a registration (DEREGEVENTS), which has no reply.
    DeregisterEvents(PackedCodes<'a>),
    /// Questions about the job (QUERY).
    Query(Queries<'a>),
    /// Texts for the user (LOG), and directives.
    Log(Infos<'a>, Infos<'a>),
    /// Order to watch this process, or to report what processes and hosts use (MONITOR).
    Monitor {
        /// What is monitored.
        monitor: Info<'a>,
        /// Code of the event that reports it, or 0 for that of the library.
        code: i32,
        /// Options.
        infos: Infos<'a>,
    },
    /// Sign of life: a message without a body, whose tag is [`HEARTBEAT_TAG`](super::HEARTBEAT_TAG). It has no reply.
    Heartbeat,
    /// Orders about processes, such as a signal, or files to remove after their end (JOB_CONTROL).
    JobControl {
        /// The processes. None stands for all of the sender's job.
        targets: Procs<'a>,
        /// The orders.
        orders: Infos<'a>,
    },
    /// Hosts for the run, or back from it (ALLOC).
    Allocate {
        /// What is asked for ([`allocation`](super::allocation)).
        directive: u8,
        /// Which hosts.
        infos: Infos<'a>,
    },
    /// Copies of the output of processes, from now on (IOF_PULL).
    PullOutput {
        /// The processes.
        sources: Procs<'a>,
        /// Bit set of the streams ([`channel`](super::channel)).
        channels: u32,
        /// Number that the copies have.
        handler: u64,
    },
    /// No more copies with that number (IOF_DEREG).
    StopOutput {
        /// The number.
        handler: u64,
    },
    /// Bytes for the standard input of processes (IOF_PUSH).
    PushInput {
        /// The processes.
        targets: Procs<'a>,
        /// The bytes. None are the end of the input.
        bytes: &'a [u8],
    },
    /// Group of processes (GROUP_CONSTRUCT).
    GroupConstruct {
        /// Its name.
        name: &'a [u8],
        /// Its members.
        procs: Procs<'a>,
        /// Options.
        infos: Infos<'a>,
    },
    /// End of a group (GROUP_DESTRUCT).
    GroupDestruct {
        /// Its name.
        name: &'a [u8],
        /// The rest of the request, which depends on the version of the client.
        rest: &'a [u8],
    },
    /// Processes on a host (RESOLVE_PEERS).
    ResolvePeers {
        /// Name of the host. None stands for the client's own.
        host: Option<&'a [u8]>,
        /// Namespace of the processes. None stands for all.
        namespace: Option<&'a [u8]>,
    },
    /// Hosts of the processes of a namespace, or of all (RESOLVE_NODE).
    ResolveNodes(Option<&'a [u8]>),
    /// A command that the server does not implement.
    Unsupported,
}

/// Why a request cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Changes of a process's data since its last commit, or all data, by scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit<'a> {
    /// For processes on the same node.
    pub local: Changes<'a>,
    /// For processes on other nodes.
    pub remote: Changes<'a>,
}

/// Changes of data of one scope: encoded KVAL packs. libpmix 6 and before puts all data again in each commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// Keys that are removed first. Their values are not used.
    pub removed: &'a [u8],
    /// Keys with their new values.
    pub put: &'a [u8],
}

macro_rules! array {
    ($(#[$doc:meta])* $name:ident, $item:ty, $read:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            len: u32,
            elements: Reader<'a>,
        }

        impl<'a> $name<'a> {
            /// Returns the number of elements.
            pub const fn len(&self) -> u32 {
                self.len
            }

            /// Returns whether there are none.
            pub const fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Returns the elements.
            pub fn iter(&self) -> impl Iterator<Item = $item> + Clone + use<'a> {
                let mut reader = self.elements;
                (0..self.len).map_while(move |_| reader.$read())
            }

            fn read(reader: &mut Reader<'a>, len: u32) -> Option<$name<'a>> {
                let elements = *reader;
                (0..len).try_for_each(|_| reader.$read().map(drop))?;
                Some($name { len, elements })
            }
        }
    };
}

array! {
    /// Array of PROCs.
    Procs, Proc<'a>, proc
}
array! {
    /// Array of event codes.
    Codes, i32, int32
}
array! {
    /// Event codes, each in a pack of its own.
    PackedCodes, i32, packed_int32
}
array! {
    /// Array of keys, each in a pack of its own.
    Keys, &'a [u8], packed_key
}
array! {
    /// Array of programs to start.
    Apps, App<'a>, app
}

/// Program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct App<'a> {
    /// The command.
    pub command: &'a [u8],
    /// Arguments, with the name of the program in front.
    pub args: Strings<'a>,
    /// Variables to add to the environment, as `NAME=VALUE`.
    pub env: Strings<'a>,
    /// Working directory, or nothing.
    pub cwd: Option<&'a [u8]>,
    /// Number of processes.
    pub processes: u32,
    /// Options of the program.
    pub infos: Infos<'a>,
}

array! {
    /// Array of questions.
    Queries, Query<'a>, query
}

/// Question about the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The keys that are asked for.
    pub keys: Strings<'a>,
    /// Qualifiers of all keys.
    pub qualifiers: Infos<'a>,
}

array! {
    /// Array of strings.
    Strings, &'a [u8], text
}

impl<'a> Reader<'a> {
    fn packed_int32(&mut self) -> Option<i32> {
        self.single()?;
        self.int32()
    }

    /// Reads event codes up to the end.
    fn packed_codes(&mut self) -> Option<PackedCodes<'a>> {
        let mut ahead = *self;
        let mut len = 0;
        while !ahead.is_at_end() {
            ahead.packed_int32()?;
            len += 1;
        }
        PackedCodes::read(self, len)
    }

    fn packed_key(&mut self) -> Option<&'a [u8]> {
        self.single()?;
        self.key()
    }

    /// Reads an array of PROCs.
    pub fn procs(&mut self) -> Option<Procs<'a>> {
        let len = self.array()?;
        Procs::read(self, len)
    }

    fn keys(&mut self) -> Option<Keys<'a>> {
        self.single()?;
        let len = u32::try_from(self.size()?).ok()?;
        Keys::read(self, len)
    }

    pub(super) fn queries(&mut self) -> Option<Queries<'a>> {
        let len = self.array()?;
        Queries::read(self, len)
    }

    fn query(&mut self) -> Option<Query<'a>> {
        let count = self.count()?;
        let keys = Strings::read(self, count)?;
        Some(Query { keys, qualifiers: self.inner_infos()? })
    }

    fn app(&mut self) -> Option<App<'a>> {
        let command = self.string()?.unwrap_or_default();
        let count = self.natural()?;
        let args = Strings::read(self, count)?;
        let count = self.count()?;
        let env = Strings::read(self, count)?;
        let cwd = self.string()?;
        let processes = self.natural()?;
        Some(App { command, args, env, cwd, processes, infos: self.inner_infos()? })
    }
}

/// Returns the number of a request's command.
pub fn number(integers: Integers, body: &[u8]) -> Option<u8> {
    let mut reader = Reader::new(integers, body);
    reader.single()?;
    reader.byte()
}

/// Decodes a request.
///
/// # Errors
/// [`Malformed::Structure`] without a command, [`Unreadable`] if the rest does not suit the command.
pub fn decode(integers: Integers, body: &[u8]) -> Result<Result<Command<'_>, Unreadable>, Malformed> {
    if body.is_empty() {
        return Ok(Ok(Command::Heartbeat));
    }
    let mut reader = Reader::new(integers, body);
    let number = reader.single().and_then(|()| reader.byte()).ok_or(Malformed::Structure)?;
    Ok(arguments(number, &mut reader).ok_or(Unreadable))
}

fn arguments<'a>(number: u8, reader: &mut Reader<'a>) -> Option<Command<'a>> {
    Some(match number {
        JOB_INFO => Command::JobInfo,
        1 => {
            reader.single()?;
            let code = reader.int32()?;
            reader.single()?;
            let message = reader.string()?.unwrap_or_default();
            Command::Abort { code, message, procs: reader.procs()? }
        }
        COMMIT => Command::Commit(commit(reader)?),
        3 => Command::Fence { procs: reader.procs()?, infos: reader.infos()? },
        4 => get(reader)?,
        5 => Command::Finalize,
        6 => {
            let user = user(reader)?;
            Command::Publish(user, reader.infos()?)
        }
        7 | 8 => {
            user(reader)?;
            let (keys, infos) = (reader.keys()?, reader.infos()?);
            if number == 7 { Command::Lookup(keys, infos) } else { Command::Unpublish(keys, infos) }
        }
        9 => {
            let infos = reader.infos()?;
            let len = reader.array()?;
            Command::Spawn { infos, apps: Apps::read(reader, len)? }
        }
        10 => Command::Connect(reader.procs()?, reader.infos()?),
        11 => Command::Disconnect(reader.procs()?, reader.infos()?),
        12 => {
            reader.single()?;
            let event = reader.int32()?;
            reader.single()?;
            let range = reader.byte()?;
            Command::Notify { event, range, infos: reader.infos()? }
        }
        13 => {
            let len = reader.array()?;
            let codes = Codes::read(reader, len)?;
            reader.infos()?;
            Command::RegisterEvents(codes)
        }
        14 => Command::DeregisterEvents(reader.packed_codes()?),
        16 => {
            reader.single()?;
            reader.unsigned(8)?;
            Command::Log(reader.infos()?, reader.infos()?)
        }
        15 => Command::Query(reader.queries()?),
        17 => {
            reader.single()?;
            Command::Allocate { directive: reader.byte()?, infos: reader.infos()? }
        }
        18 => Command::JobControl { targets: reader.procs()?, orders: reader.infos()? },
        22 => {
            let sources = reader.procs()?;
            reader.infos()?;
            reader.single()?;
            let channels = reader.unsigned(2)?;
            reader.single()?;
            Command::PullOutput { sources, channels: channels as u32, handler: reader.size()? }
        }
        23 => {
            let targets = reader.procs()?;
            reader.infos()?;
            reader.single()?;
            Command::PushInput { targets, bytes: reader.blob()? }
        }
        29 => {
            reader.infos()?;
            reader.single()?;
            Command::StopOutput { handler: reader.size()? }
        }
        19 => {
            reader.single()?;
            let monitor = reader.info()?;
            reader.single()?;
            Command::Monitor { monitor, code: reader.int32()?, infos: reader.infos()? }
        }
        24 => {
            reader.single()?;
            let name = reader.key()?;
            Command::GroupConstruct { name, procs: reader.procs()?, infos: reader.infos()? }
        }
        28 => {
            reader.single()?;
            Command::GroupDestruct { name: reader.key()?, rest: reader.rest() }
        }
        33 => Command::Refresh(process(reader)?),
        37 => Command::ResolvePeers { host: optional(reader)?, namespace: optional(reader)? },
        38 => Command::ResolveNodes(optional(reader)?),
        _ => Command::Unsupported,
    })
}

/// Reads a namespace and a rank, each in a pack of its own.
fn process<'a>(reader: &mut Reader<'a>) -> Option<Proc<'a>> {
    reader.single()?;
    let namespace = reader.namespace()?;
    reader.single()?;
    Some(Proc { namespace, rank: reader.uint32()? })
}

/// Reads a text in a pack of its own, which may be empty or none.
fn optional<'a>(reader: &mut Reader<'a>) -> Option<Option<&'a [u8]>> {
    reader.single()?;
    Some(reader.string()?.filter(|text| !text.is_empty()))
}

fn get<'a>(reader: &mut Reader<'a>) -> Option<Command<'a>> {
    let proc = process(reader)?;
    let infos = reader.infos()?;
    let key = if reader.is_at_end() {
        None
    } else {
        reader.single()?;
        reader.string()?
    };
    Some(Command::Get { proc, infos, key })
}

/// Reads the user id of a request about published data.
fn user(reader: &mut Reader<'_>) -> Option<u32> {
    reader.single()?;
    reader.uint32()
}

fn commit<'a>(reader: &mut Reader<'a>) -> Option<Commit<'a>> {
    let mut commit = Commit::default();
    while !reader.is_at_end() {
        reader.single()?;
        let scope = reader.byte()?;
        reader.single()?;
        reader.byte()?;
        let data = reader.blob()?;
        match scope {
            1 => commit.local.put = data,
            2 => commit.remote.put = data,
            3 => (commit.local.put, commit.remote.put) = (data, data),
            removal::LOCAL => commit.local.removed = data,
            removal::REMOTE => commit.remote.removed = data,
            removal::GLOBAL => (commit.local.removed, commit.remote.removed) = (data, data),
            _ => return None,
        }
    }
    Some(commit)
}

impl Commit<'_> {
    /// Returns whether data contain a key for which `wanted` holds. Data that cannot be decoded may contain any.
    pub fn contains(integers: Integers, data: &[u8], mut wanted: impl FnMut(&[u8]) -> bool) -> bool {
        packs(integers, data).any(|pack| pack.key.is_none_or(&mut wanted))
    }
}

impl<'a> Changes<'a> {
    /// Returns whether nothing changes.
    pub const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.put.is_empty()
    }

    /// Returns the keys that are removed.
    pub fn removed_keys(self, integers: Integers) -> impl Iterator<Item = &'a [u8]> {
        packs(integers, self.removed).filter_map(|pack| pack.key)
    }

    /// Passes data after these changes to `then`, in pieces: the packs of `known` whose keys do not change, then the new packs.
    /// Returns `None`, before the end, if that takes more than so many `comparisons` of packs.
    ///
    /// The bytes of `known` from the first pack that cannot be decoded on are last. They are replaced by new ones of this kind.
    #[inline(never)]
    pub fn apply_to(
        self,
        integers: Integers,
        known: &[u8],
        mut comparisons: u32,
        then: &mut dyn FnMut(&[u8]),
    ) -> Option<()> {
        let (mut removed, mut put) = (0, 0);
        let mut rest = None;
        for pack in packs(integers, known) {
            if pack.key.is_none() {
                rest = Some(pack.bytes);
            } else if !finds(integers, self.removed, &mut removed, pack, true, &mut comparisons)?
                && !finds(integers, self.put, &mut put, pack, false, &mut comparisons)?
            {
                then(pack.bytes);
            }
        }
        then(self.put);
        if let Some(rest) = rest
            && !packs(integers, self.put).any(|pack| pack.key.is_none())
        {
            then(rest);
        }
        Some(())
    }
}

/// Returns whether `data` have a pack that removes another one, or replaces it. Data that change again mostly come in the same
/// order, so a search begins at `from`, behind the pack that was found last. Returns `None` if no comparisons are left.
#[inline(never)]
fn finds(
    integers: Integers,
    data: &[u8],
    from: &mut usize,
    older: Pack<'_>,
    removes: bool,
    comparisons: &mut u32,
) -> Option<bool> {
    let (front, behind) = data.split_at_checked(*from)?;
    for (mut at, part) in [(*from, behind), (0, front)] {
        for pack in packs(integers, part) {
            *comparisons = comparisons.checked_sub(1)?;
            at += pack.bytes.len();
            if pack.replaces(older) || removes && pack.key == older.key {
                *from = at;
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Key of values with qualifiers: an array of the key, the value and the qualifiers.
const QUALIFIED: &[u8] = b"pmix.qual.val";

/// Pack of committed data.
#[derive(Clone, Copy)]
struct Pack<'a> {
    /// Key, or `None` for bytes that cannot be decoded.
    key: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl Pack<'_> {
    /// Returns whether this pack takes the place of an older one. All values with qualifiers have one key, so those of other
    /// qualifiers stay.
    fn replaces(&self, older: Pack<'_>) -> bool {
        self.key == older.key && (self.key != Some(QUALIFIED) || self.bytes == older.bytes)
    }
}

/// Returns the packs of data. The last one has all bytes from the first that cannot be decoded on.
fn packs<'a>(integers: Integers, mut data: &'a [u8]) -> impl Iterator<Item = Pack<'a>> + Clone {
    core::iter::from_fn(move || next_pack(integers, &mut data))
}

#[inline(never)]
fn next_pack<'a>(integers: Integers, rest: &mut &'a [u8]) -> Option<Pack<'a>> {
    let start = *rest;
    if start.is_empty() {
        return None;
    }
    let mut reader = Reader::new(integers, start);
    let key = reader.key_value().map(|pair| pair.key);
    *rest = if key.is_some() { reader.rest() } else { &[] };
    Some(Pack { key, bytes: &start[..start.len() - rest.len()] })
}

impl<'a> Queries<'a> {
    /// Returns the encoded questions. They are the last element of their message.
    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.elements.rest()
    }

    /// Returns each key with the qualifiers of its question.
    pub fn asked(&self) -> impl Iterator<Item = (&'a [u8], Infos<'a>)> + Clone + use<'a> {
        self.iter().flat_map(|query| query.keys.iter().map(move |key| (key, query.qualifiers)))
    }
}

impl Procs<'_> {
    /// Returns whether the processes are those of one namespace, all of them, by the wildcard.
    pub fn is_whole(&self, namespace: &[u8]) -> bool {
        let is_whole = |proc: Proc<'_>| proc.namespace == namespace && proc.rank == WILDCARD;
        self.is_empty() || self.iter().all(is_whole)
    }
}
