//! Descriptions of records for people.

use std::fmt::Write;

use hydrant_core::peer::message::{
    self, Collective, End, ExitReport, GroupKind, Head, Item, JobRef, MemberSet, RankRange, RecordKind,
};
use hydrant_core::server::{Consumed, FenceMode, Input, JobSpec, Output, Record};
use hydrant_core::trace::{Cause, Exit, Stream};
use hydrant_core::{JobId, Rank, Time};

/// Describes a record in one line.
pub fn describe(record: &Record<'_>) -> String {
    match record {
        Record::Begin { program, .. } => format!("begin, by {}", program.escape_debug()),
        Record::Input { now, input } => format!("at {} ms: {}", now.0, of_input(input)),
        Record::Took { consumed, wake } => format!("handled{}", result(consumed, *wake)),
        Record::Refused(fault) => format!("refused: {fault}"),
        Record::Broke { why } => format!("failed: {}", why.escape_debug()),
        Record::Output(output) => of_output(output),
        Record::Silence => "no output".to_owned(),
        Record::End { inputs, outputs } => format!("end, {inputs} inputs and {outputs} outputs"),
    }
}

fn result(consumed: &Consumed, wake: Option<Time>) -> String {
    let mut text = String::new();
    if consumed.bytes > 0 {
        let _ = write!(text, ", {} bytes consumed", consumed.bytes);
    }
    if consumed.again {
        text.push_str(", rest again after the next reply");
    }
    if let Some(Time(at)) = wake {
        let _ = write!(text, ", next timeout at {at} ms");
    }
    text
}

/// Describes an input without its connection and rank.
pub(crate) fn of_input(input: &Input<'_>) -> String {
    match input {
        Input::Node { node, nodes, radix } => {
            format!("node {node} of {nodes}, tree of radix {radix}")
        }
        Input::RegisterJob(spec) => job(spec),
        Input::MapRanks { first, count, node, .. } => format!("on node {node}: {}", ranks(*first, *count)),
        Input::Preput { key, value, .. } => {
            format!("preput {}={}", key.escape_ascii(), value.escape_ascii())
        }
        Input::Define { name, members, other, .. } => {
            let others = other.map(|other| format!(" and all ranks of job {other}")).unwrap_or_default();
            format!("process set {} is ranks {}{others}", name.escape_debug(), members.escape_ascii())
        }
        Input::Connected { other, connected, .. } => {
            format!("{} job {other}", if *connected { "connected to" } else { "disconnected from" })
        }
        Input::StalledFence { .. } => "stalled fence on another node".to_owned(),
        Input::Peer { node, bytes } => format!("from node {node}: {}", of_peer(bytes)),
        Input::PeerBlocked { node } => format!("link to node {node} blocked"),
        Input::PeerWritable { node } => format!("link to node {node} writable"),
        Input::Program { first, count, appnum, .. } => {
            format!("program {appnum}: {}", ranks(*first, *count))
        }
        Input::Attr { key, value, .. } => {
            format!("attribute {}={}", key.escape_ascii(), value.escape_ascii())
        }
        Input::Pset { name, first, count, .. } => {
            format!("process set {} is {}", name.escape_debug(), ranks(*first, *count))
        }
        Input::SpawnComplete { spawn, started: true, .. } => format!("spawn {spawn} started"),
        Input::SpawnComplete { spawn, full, codes, .. } => {
            let limit = full.map_or_else(String::new, |limit| format!(", limit {} reached", limit.name()));
            format!("spawn {spawn} failed{limit}, codes {codes:?}")
        }
        Input::UpcallComplete { upcall, rc, text } => {
            format!("upcall {upcall} complete: rc {rc} {}", text.escape_ascii())
        }
        Input::Opened { rank: Some(_), .. } => "connection opened".to_owned(),
        Input::Opened { job, rank: None, .. } => {
            format!("connection opened to job {job}, rank not known yet")
        }
        Input::OpenedQuery { job, .. } => format!("query connection opened to job {job}"),
        Input::Bytes { bytes, full, .. } => {
            format!("{}{}", bytes.escape_ascii(), if *full { " (buffer full)" } else { "" })
        }
        Input::Blocked { .. } => "connection blocked".to_owned(),
        Input::Writable { .. } => "connection writable".to_owned(),
        Input::Closed { .. } => "connection closed".to_owned(),
        Input::Verified { .. } => "user of the client verified".to_owned(),
        Input::PsetRequest { request, .. } => {
            format!("request about process sets: {}", request.escape_ascii())
        }
        Input::NodeLost { epoch, node } => format!("change {epoch} of membership: node {node} is lost"),
        Input::NodeJoined { epoch, node } => format!("change {epoch} of membership: node {node} has joined"),
        Input::Exited { exit, .. } => exit.to_string(),
        Input::Timeout => "timeout".to_owned(),
        Input::DeregisterJob { .. } => "job deregistered".to_owned(),
    }
}

fn job(spec: &JobSpec<'_>) -> String {
    let default = JobSpec::new(spec.job, spec.name, spec.size);
    let mut text = format!("job {} of {} ranks", spec.name.escape_debug(), spec.size);
    if let Some(universe) = spec.universe_size {
        let _ = write!(text, ", universe size {universe}");
    }
    if let Some(spawn) = spec.spawn {
        let _ = write!(text, ", of spawn {spawn}");
    }
    if !spec.spawner.is_empty() {
        let _ = write!(text, ", spawned by {}", spec.spawner.escape_debug());
    }
    if !spec.cleanup {
        text.push_str(", no cleanup after a failure");
    }
    if spec.pmi1_subversion != default.pmi1_subversion {
        let _ = write!(text, ", PMI 1.{}", spec.pmi1_subversion);
    }
    if spec.remote_names {
        text.push_str(", names on another node");
    }
    match spec.fence {
        FenceMode::Collect => {}
        FenceMode::Lazy => text.push_str(", lazy fences"),
        FenceMode::Auto => text.push_str(", lazy fences if there are many nodes"),
    }
    for (millis, what) in [(spec.lookup_wait, "lookup timeout"), (spec.fence_warning, "fence warning after")]
    {
        if millis > 0 {
            let _ = write!(text, ", {what} {millis} ms");
        }
    }
    text
}

fn ranks(first: Rank, count: u32) -> String {
    match count {
        1 => format!("rank {first}"),
        _ => format!("ranks {first}-{}", u64::from(first.0) + u64::from(count.saturating_sub(1))),
    }
}

/// Describes an output without its connection and rank.
pub(crate) fn of_output(output: &Output<'_>) -> String {
    match output {
        Output::Bytes { bytes, .. } => bytes.escape_ascii().to_string(),
        Output::Close { why, .. } => format!("close connection: {why}"),
        Output::Joined { .. } => "joined".to_owned(),
        Output::Spawn { spawn, protocol, request, .. } => {
            format!("start spawn {spawn} (PMI-{}): {}", protocol.version(), request.escape_ascii())
        }
        Output::Upcall { upcall, protocol, request, .. } => {
            let version = protocol.version();
            format!("upcall {upcall} (PMI-{version}): {}", request.escape_ascii())
        }
        Output::KillRank { code, message, .. } => {
            format!("kill rank{}{}", with_code(*code), with_message(message))
        }
        Output::AbortJob { cause, message, .. } => {
            format!("abort job: {}{}", of_cause(cause), with_message(message))
        }
        Output::RemoveFiles { paths, .. } => {
            format!("remove files after the exit: {}", paths.escape_ascii())
        }
        Output::Log { stream, text, .. } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            format!("text for {stream}: {}", text.escape_ascii())
        }
        Output::Connected { other, connected, .. } => {
            format!("{} job {other}", if *connected { "connected to" } else { "disconnected from" })
        }
        Output::Peer { node, bytes } => format!("to node {node}: {}", of_peer(bytes)),
        Output::StalledFence { arrived, size, missing, .. } => {
            format!(
                "stalled fence: {arrived} of {size} ranks have arrived, missing {}",
                missing.escape_debug()
            )
        }
    }
}

/// Describes a message between nodes in one line.
pub(crate) fn of_peer(bytes: &[u8]) -> String {
    let Some((head, body)) = message::split(bytes) else { return bytes.escape_ascii().to_string() };
    match head {
        Head::Records { job: JobRef { job, .. }, of } => {
            let what = match of {
                RecordKind::Pair => "put in",
                RecordKind::Ring => "ring values of",
                RecordKind::Commit => "data of PMIx ranks of",
                RecordKind::Newest => "newest data of PMIx ranks of",
            };
            format!("{what} job {job}{}", of_records(body))
        }
        Head::Arrive { job: JobRef { job, .. }, at, .. } => {
            let (rest, body) = if is_group(at) { of_lost(body) } else { (records_of(at, body), body) };
            format!("subtree has arrived at {}{rest}", of_meeting(at, job, body))
        }
        Head::Release { job: JobRef { job, .. }, at, .. } => {
            // The outcome of a group precedes its members.
            let members = message::split_outcome(body).map_or(body, |(_, members)| members);
            let (rest, body) = if is_group(at) { of_lost(members) } else { (records_of(at, body), body) };
            format!("all ranks have arrived at {}{rest}", of_meeting(at, job, body))
        }
        Head::End { job: JobRef { job, .. }, at, end } => {
            let what = match end {
                End::Wanted { .. } => "waits for too long at",
                End::Ended => "a time-out ends",
                End::Acknowledged => "knows that a time-out has ended",
            };
            format!("{what} {}", of_meeting(at, job, body))
        }
        Head::Get { job: JobRef { job, .. }, rank } => format!("asks for data of rank {rank} of job {job}"),
        Head::Renew { job: JobRef { job, .. }, rank } => {
            format!("asks for the newest data of rank {rank} of job {job}")
        }
        Head::Fetch { job: JobRef { job, .. } } => format!("asks for pairs of job {job}{}", of_ranks(body)),
        Head::Fetched { job: JobRef { job, .. } } => {
            format!("has sent all pairs of job {job}{}", of_ranks(body))
        }
        Head::Notice { job: JobRef { job, .. }, rank } => {
            format!("event of rank {rank} of job {job}, {} bytes", body.len())
        }
        Head::Echo { number } => format!("echo {number}, which follows all releases before it"),
        Head::Exits => {
            let gone = message::parts::<ExitReport>(body).map_while(|gone| gone);
            let gone = gone.map(|ExitReport { job: JobRef { job, .. }, rank, exit, dead, .. }| {
                format!("rank {rank} of job {job} {exit}{}", if dead { ", failed" } else { "" })
            });
            gone.collect::<Vec<_>>().join(", ")
        }
    }
}

fn is_group(at: Collective) -> bool {
    matches!(at, Collective::Group { .. })
}

/// Lists the records in a message about a collective of a job.
fn records_of(at: Collective, body: &[u8]) -> String {
    if at == Collective::Fence { of_records(body) } else { String::new() }
}

/// Lists the lost members in a message about a group. Returns them, and the rest of the message.
fn of_lost(body: &[u8]) -> (String, &[u8]) {
    let (lost, members) = message::split_lost(body).unwrap_or((&[], body));
    let text = if lost.is_empty() { String::new() } else { format!(", without {}", of_members(lost)) };
    (text, members)
}

/// Lists the records in a message.
fn of_records(body: &[u8]) -> String {
    let mut text = String::new();
    for Item { rank, key, value } in message::parts::<Item<'_>>(body).map_while(|item| item) {
        let _ = write!(text, ", by rank {rank}: {}={}", key.escape_ascii(), value.escape_ascii());
    }
    text
}

/// Lists the ranks in a message about pairs.
fn of_ranks(body: &[u8]) -> String {
    let stretches = message::parts::<RankRange>(body).map_while(|range| range);
    stretches.map(|range| format!(", {}", ranks(Rank(range.first), range.count))).collect()
}

fn of_meeting(at: Collective, job: JobId, body: &[u8]) -> String {
    match at {
        Collective::Fence => format!("the fence of job {job}"),
        Collective::Ring => format!("the ring of job {job}"),
        Collective::Group { kind, tag } => {
            let what = match kind {
                GroupKind::Barrier => "barrier",
                GroupKind::Fence => "PMIx fence",
                GroupKind::Connect => "PMIx connect",
                GroupKind::Disconnect => "PMIx disconnect",
                GroupKind::Construct => "construction of PMIx group",
                GroupKind::Destruct => "destruction of PMIx group",
            };
            format!("{what} {tag} of {}", of_members(body))
        }
    }
}

/// Lists the ranks in sets of members.
fn of_members(sets: &[u8]) -> String {
    let sets = message::parts::<MemberSet<'_>>(sets).map_while(|set| set);
    let sets = sets.map(|set| {
        let ranks: Vec<String> = set.iter().map(|rank| rank.to_string()).collect();
        format!("ranks {} of job {}", ranks.join(","), set.job.job)
    });
    sets.collect::<Vec<_>>().join(" and ")
}

fn of_cause(cause: &Cause) -> String {
    match cause {
        Cause::Abort { rank, code } => format!("rank {rank} aborted{}", with_code(*code)),
        Cause::NoFinalize { rank, exit } => format!("rank {rank} {exit} without finalizing"),
        Cause::Died { rank, exit } => format!("rank {rank} {exit}"),
        Cause::Absent { rank, exit: Exit::Lost } => {
            format!("rank {rank} closed its connection without finalizing while others wait for it")
        }
        Cause::Absent { rank, exit } => format!("rank {rank} {exit} while others wait for it"),
    }
}

fn with_code(code: Option<i32>) -> String {
    code.map_or_else(String::new, |code| format!(" with code {code}"))
}

fn with_message(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(", message {}", message.escape_debug()) }
}
