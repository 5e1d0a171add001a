//! Records in words.

use std::fmt::Write;

use hydrant_core::peer::message::{self, Gone, Head, Item, Meeting, Whose};
use hydrant_core::server::{Consumed, Input, JobSpec, Output, Record};
use hydrant_core::trace::Cause;
use hydrant_core::{Rank, Time};

/// A record in one line, whatever it is.
pub(crate) fn describe(record: &Record<'_>) -> String {
    match record {
        Record::Begin { program, .. } => format!("the beginning, by {}", program.escape_debug()),
        Record::Input { now, input } => format!("at {} ms: {}", now.0, of_input(input)),
        Record::Took { consumed, wake } => format!("took the input{}", taken(consumed, *wake)),
        Record::Refused(fault) => format!("refused the input: {fault}"),
        Record::Broke { why } => format!("failed: {}", why.escape_debug()),
        Record::Output(output) => of_output(output),
        Record::Silence => "nothing to do".to_owned(),
        Record::End { inputs, outputs } => format!("the end, after {inputs} inputs and {outputs} outputs"),
    }
}

fn taken(consumed: &Consumed, wake: Option<Time>) -> String {
    let mut text = String::new();
    if consumed.bytes > 0 {
        let _ = write!(text, ", {} bytes of it", consumed.bytes);
    }
    if consumed.again {
        text.push_str(", the rest once a reply is taken");
    }
    if let Some(Time(at)) = wake {
        let _ = write!(text, "; wakes at {at} ms");
    }
    text
}

/// What the host said, connection and rank left out.
pub(super) fn of_input(input: &Input<'_>) -> String {
    match input {
        Input::Node { node, nodes, radix } => {
            format!("this is node {node} of {nodes}, in a tree of radix {radix}")
        }
        Input::RegisterJob(spec) => job(spec),
        Input::MapRanks { first, count, node, .. } => format!("on node {node}: {}", ranks(*first, *count)),
        Input::Preput { key, value, .. } => {
            format!("pair for the spawned job: {}={}", key.escape_ascii(), value.escape_ascii())
        }
        Input::Define { name, members, .. } => {
            format!("process set {} is ranks {}, by a rank", name.escape_debug(), members.escape_ascii())
        }
        Input::Connected { other, connected, .. } => {
            format!("{} job {other}", if *connected { "connected to" } else { "parted from" })
        }
        Input::StalledFence { .. } => "a fence is late on another node".to_owned(),
        Input::Peer { node, bytes } => format!("from node {node}: {}", of_peer(bytes)),
        Input::PeerBlocked { node } => format!("node {node} takes no more for a while"),
        Input::PeerWritable { node } => format!("node {node} takes messages again"),
        Input::Program { first, count, appnum, .. } => {
            format!("program {appnum} is that of {}", ranks(*first, *count))
        }
        Input::Attr { key, value, .. } => {
            format!("attribute {}={}", key.escape_ascii(), value.escape_ascii())
        }
        Input::Pset { name, first, count, .. } => {
            format!("process set {} is {}", name.escape_debug(), ranks(*first, *count))
        }
        Input::SpawnComplete { spawn, started: true, .. } => format!("spawn {spawn} is started"),
        Input::SpawnComplete { spawn, full, codes, .. } => {
            let limit = full.map_or_else(String::new, |limit| format!(", limit {} is used up", limit.name()));
            format!("spawn {spawn} is not started{limit}, codes {codes:?}")
        }
        Input::UpcallComplete { upcall, rc, text } => {
            format!("answer to name request {upcall}: rc {rc} {}", text.escape_ascii())
        }
        Input::Opened { rank: Some(_), .. } => "connection opened".to_owned(),
        Input::Opened { job, rank: None, .. } => {
            format!("connection opened to job {job}, whose it is will be told")
        }
        Input::OpenedQuery { job, .. } => format!("connection opened for queries to job {job}"),
        Input::Bytes { bytes, full, .. } => {
            format!("{}{}", bytes.escape_ascii(), if *full { " (buffer full)" } else { "" })
        }
        Input::Blocked { .. } => "it takes no more for a while".to_owned(),
        Input::Writable { .. } => "it takes bytes again".to_owned(),
        Input::Closed { .. } => "connection closed".to_owned(),
        Input::Exited { exit, .. } => exit.to_string(),
        Input::Timeout => "time has passed".to_owned(),
        Input::DeregisterJob { .. } => "job over".to_owned(),
    }
}

fn job(spec: &JobSpec<'_>) -> String {
    let usual = JobSpec::new(spec.job, spec.name, spec.size);
    let mut text = format!("job {} of {} ranks", spec.name.escape_debug(), spec.size);
    if let Some(universe) = spec.universe {
        let _ = write!(text, ", universe {universe}");
    }
    if let Some(spawn) = spec.spawn {
        let _ = write!(text, ", of spawn {spawn}");
    }
    if !spec.spawner.is_empty() {
        let _ = write!(text, ", spawned by {}", spec.spawner.escape_debug());
    }
    if !spec.cleanup {
        text.push_str(", survivors go on");
    }
    if spec.pmi1_subversion != usual.pmi1_subversion {
        let _ = write!(text, ", PMI 1.{}", spec.pmi1_subversion);
    }
    if spec.remote_names {
        text.push_str(", names are kept elsewhere");
    }
    for (millis, what) in [(spec.lookup_wait, "look-ups wait"), (spec.fence_warning, "fences are late after")]
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

/// What the core said, connection and rank left out.
pub(super) fn of_output(output: &Output<'_>) -> String {
    match output {
        Output::Bytes { bytes, .. } => bytes.escape_ascii().to_string(),
        Output::Close { why, .. } => format!("close it: {why}"),
        Output::Joined { .. } => "has joined".to_owned(),
        Output::Spawn { spawn, protocol, request, .. } => {
            format!("start spawn {spawn} (PMI-{}): {}", protocol.version(), request.escape_ascii())
        }
        Output::Upcall { upcall, protocol, request, .. } => {
            let version = protocol.version();
            format!("carry out name request {upcall} (PMI-{version}): {}", request.escape_ascii())
        }
        Output::KillRank { code, message, .. } => {
            format!("end this rank{}{}", with_code(*code), with_message(message))
        }
        Output::AbortJob { cause, message, .. } => {
            format!("end the job: {}{}", of_cause(cause), with_message(message))
        }
        Output::Peer { node, bytes } => format!("tell node {node}: {}", of_peer(bytes)),
        Output::StalledFence { arrived, size, missing, .. } => {
            format!(
                "a fence waits: {arrived} of {size} ranks have come, it waits for {}",
                missing.escape_debug()
            )
        }
    }
}

/// What nodes tell each other, in one line.
pub(super) fn of_peer(bytes: &[u8]) -> String {
    let Some((head, body)) = message::split(bytes) else { return bytes.escape_ascii().to_string() };
    match head {
        Head::Records { job: Whose { job, .. }, ring } => {
            let what = if ring { "for the ring of" } else { "put in" };
            let mut text = format!("{what} job {job}");
            for Item { rank, key, value } in message::parts::<Item<'_>>(body).map_while(|item| item) {
                let _ = write!(text, ", by rank {rank}: {}={}", key.escape_ascii(), value.escape_ascii());
            }
            text
        }
        Head::Arrive { job: Whose { job, .. }, at } => {
            format!("all below have come to {} of job {job}", of_meeting(at, body))
        }
        Head::Release { job: Whose { job, .. }, at } => {
            format!("all have come to {} of job {job}", of_meeting(at, body))
        }
        Head::Gone => {
            let gone = message::parts::<Gone>(body).map_while(|gone| gone);
            let gone = gone.map(|Gone { job: Whose { job, .. }, rank, exit, dead }| {
                format!("rank {rank} of job {job} {exit}{}", if dead { ", it failed" } else { "" })
            });
            gone.collect::<Vec<_>>().join(", ")
        }
    }
}

fn of_meeting(at: Meeting, body: &[u8]) -> String {
    match at {
        Meeting::Fence => "the fence".to_owned(),
        Meeting::Ring => "the ring".to_owned(),
        Meeting::Group(tag) => {
            let members: Vec<String> = message::members(body).map(|rank| rank.to_string()).collect();
            format!("barrier {tag} of ranks {}", members.join(","))
        }
    }
}

fn of_cause(cause: &Cause) -> String {
    match cause {
        Cause::Abort { rank, code } => format!("rank {rank} aborts{}", with_code(*code)),
        Cause::NoFinalize { rank, exit } => format!("rank {rank} {exit} without finalizing"),
        Cause::Died { rank, exit } => format!("rank {rank} {exit}"),
        Cause::Absent { rank, exit } => format!("rank {rank} {exit} and others wait for it"),
    }
}

fn with_code(code: Option<i32>) -> String {
    code.map_or_else(String::new, |code| format!(" with code {code}"))
}

fn with_message(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(", saying {}", message.escape_debug()) }
}
