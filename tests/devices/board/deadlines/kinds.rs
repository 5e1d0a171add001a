//! Kinds of inputs: names for the table of deadlines. New inputs and commands do not compile until they have one.

use hydrant_core::Input;
use hydrant_core::wire::pmix::{self, Hello, Integers};
use hydrant_core::wire::{Framing, Op, decode, next_frame};

/// Defines a function that names a value, and the list of all names.
macro_rules! names {
    ($all:ident, $function:ident($type:ty): $($($pattern:pat_param)|+ => $name:literal,)+) => {
        const $all: &[&str] = &[$($name),+];

        fn $function(of: &$type) -> &'static str {
            match of {
                $($($pattern)|+ => $name,)+
            }
        }
    };
}

/// Longest message that a board takes.
const LONG: usize = 2304;
/// Name of inputs that no board gets: it is alone, starts no processes and has no other server's names.
const NONE: &str = "";

names! {
    INPUTS, input(Input<'_>):
    Input::RegisterJob(_) => "`RegisterJob`",
    Input::Program { .. } => "`Program`",
    Input::Attr { .. } => "`Attr`",
    Input::Pset { .. } => "`Pset`",
    Input::Opened { .. } => "`Opened`",
    Input::Blocked { .. } => "`Blocked`",
    Input::Writable { .. } => "`Writable`",
    Input::Closed { .. } => "`Closed`",
    Input::Exited { .. } => "`Exited`",
    Input::Timeout => "`Timeout`",
    Input::DeregisterJob { .. } => "`DeregisterJob`",
    Input::Bytes { .. }
        | Input::Node { .. }
        | Input::MapRanks { .. }
        | Input::Preput { .. }
        | Input::Define { .. }
        | Input::Connected { .. }
        | Input::StalledFence { .. }
        | Input::Peer { .. }
        | Input::PeerBlocked { .. }
        | Input::PeerWritable { .. }
        | Input::SpawnComplete { .. }
        | Input::UpcallComplete { .. }
        | Input::OpenedQuery { .. }
        | Input::Verified { .. }
        | Input::PsetRequest { .. }
        | Input::NodeLost { .. }
        | Input::NodeJoined { .. } => "",
}

names! {
    COMMANDS, command(Op):
    Op::Init => "init",
    Op::InitAck => "initack",
    Op::FullInit => "fullinit",
    Op::GetMaxes => "get maxes",
    Op::GetUniverseSize => "get universe size",
    Op::GetAppnum => "get program number",
    Op::GetJobId => "get job id",
    Op::Put => "put",
    Op::Get => "get",
    Op::Fence => "fence",
    Op::PutNodeAttr => "put node attribute",
    Op::GetNodeAttr => "get node attribute",
    Op::GetJobAttr => "get job attribute",
    Op::Publish => "publish",
    Op::Unpublish => "unpublish",
    Op::Lookup => "look-up",
    Op::Spawn => "spawn (refused)",
    Op::Connect => "connect",
    Op::Disconnect => "disconnect",
    Op::Ring => "ring",
    Op::PsetCount => "count sets",
    Op::PsetName => "name of a set",
    Op::PsetInfo => "size of a set",
    Op::PsetMembers => "members of a set",
    Op::PsetDefine => "define a set",
    Op::PsetNext => "next set",
    Op::PsetRetire => "retire a set",
    Op::PsetPrune => "prune sets",
    Op::PsetCombine => "combine sets",
    Op::Abort => "abort",
    Op::Finalize => "finalize",
    Op::Unknown => "unknown command",
}

names! {
    REQUESTS, request(pmix::Command<'_>):
    pmix::Command::JobInfo => "PMIx job info",
    pmix::Command::Abort { .. } => "PMIx abort",
    pmix::Command::Commit(_) => "PMIx commit",
    pmix::Command::Fence { .. } => "PMIx fence",
    pmix::Command::Get { .. }
    | pmix::Command::Refresh(_)
    | pmix::Command::ResolvePeers { .. }
    | pmix::Command::ResolveNodes(_) => "PMIx get",
    pmix::Command::Finalize => "PMIx finalize",
    pmix::Command::Publish(..) => "PMIx publish",
    pmix::Command::Lookup(..) => "PMIx look-up",
    pmix::Command::Unpublish(..) => "PMIx unpublish",
    pmix::Command::Spawn { .. } => "PMIx spawn (refused)",
    pmix::Command::Connect(..) => "PMIx connect",
    pmix::Command::Disconnect(..) => "PMIx disconnect",
    pmix::Command::Notify { .. } => "PMIx notify",
    pmix::Command::RegisterEvents(_) => "PMIx register events",
    pmix::Command::DeregisterEvents(_) => "PMIx deregister events",
    pmix::Command::Log(..) => "PMIx log",
    pmix::Command::Monitor { .. } => "PMIx monitor",
    pmix::Command::Heartbeat => "PMIx heartbeat",
    pmix::Command::Query(_) => "PMIx query",
    pmix::Command::JobControl { .. } => "PMIx job control",
    pmix::Command::Allocate { .. } => "PMIx allocation (refused)",
    pmix::Command::PullOutput { .. } => "PMIx pull output (refused)",
    pmix::Command::PushInput { .. } => "PMIx push input (refused)",
    pmix::Command::StopOutput { .. } => "PMIx stop output (refused)",
    pmix::Command::GroupConstruct { .. } => "PMIx construct group",
    pmix::Command::GroupDestruct { .. } => "PMIx destruct group",
    pmix::Command::Unsupported => "PMIx unknown command",
}

const HANDSHAKE: &str = "PMIx handshake";
const PART: &str = "part of a message";
const SEVERAL: &str = "several messages at once";
const INVALID: &str = "bytes that are no message";

/// All names, in the order of the table.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    let bytes = [PART, SEVERAL, INVALID];
    let pmix = [HANDSHAKE].into_iter().chain(REQUESTS.iter().copied());
    let named = INPUTS.iter().copied().filter(|&name| name != NONE).chain(bytes);
    named.chain(COMMANDS.iter().copied()).chain(pmix)
}

/// Encoding of a connection's PMIx messages, from its handshake.
pub(super) fn integers(bytes: &[u8]) -> Option<Integers> {
    match pmix::next_frame(bytes) {
        Ok(Some(pmix::Frame::Hello { body, .. })) => Hello::decode(body).map(|hello| hello.integers),
        _ => None,
    }
}

/// Returns the name of an input. `consumed`: how much of its bytes the server has consumed. `integers`: the encoding of its
/// connection, if that speaks PMIx. None for an input that no board gets, such as one that is longer than its buffers.
pub(super) fn kind(input: &Input<'_>, consumed: usize, integers: Option<Integers>) -> Option<&'static str> {
    let Input::Bytes { bytes, full, .. } = *input else {
        return Some(self::input(input)).filter(|&name| name != NONE);
    };
    if bytes.len() > LONG {
        return None;
    }
    let (name, len) = match integers {
        _ if full && consumed == 0 => (INVALID, 0),
        Some(integers) => pmix_message(bytes, integers),
        None => message(bytes),
    };
    Some(if len > 0 && consumed > len { SEVERAL } else { name })
}

/// The first message of PMI, and its length.
fn message(bytes: &[u8]) -> (&'static str, usize) {
    let framing = if matches!(bytes.first(), Some(b'c' | b'm')) { Framing::Line } else { Framing::Counted };
    let frame = match next_frame(bytes, framing) {
        Ok(Some(frame)) => frame,
        Ok(None) => return (PART, 0),
        Err(_) => return (INVALID, 0),
    };
    let name = match decode(&frame) {
        Ok(message) => command(&message.op),
        Err(_) => INVALID,
    };
    (name, frame.len as usize)
}

/// The first message of PMIx, and its length.
fn pmix_message(bytes: &[u8], integers: Integers) -> (&'static str, usize) {
    match pmix::next_frame(bytes) {
        Ok(Some(pmix::Frame::Hello { len, .. })) => (HANDSHAKE, len as usize),
        Ok(Some(pmix::Frame::Message { len, body, .. })) => {
            let name = match pmix::decode(integers, body) {
                Ok(Ok(message)) => request(&message),
                Ok(Err(_)) => "PMIx unknown command",
                Err(_) => INVALID,
            };
            (name, len as usize)
        }
        Ok(None) => (PART, 0),
        Err(_) => (INVALID, 0),
    }
}
