//! States, exits and waits of ranks, from the types of the PMI server.

use hydrant_core::peer::message::GroupKind;
use hydrant_core::server::RankReport;
use hydrant_core::server::Wait as CoreWait;
use hydrant_core::trace::Exit;

use crate::record::{Rank, State, TEXT_MAX, Text, Wait};

impl From<&RankReport> for State {
    /// State of a rank whose process runs.
    fn from(report: &RankReport) -> State {
        match (report.finalized, report.initialized) {
            (true, _) => State::Finalized,
            (false, true) => State::Initialized,
            (false, false) => State::Started,
        }
    }
}

impl Rank {
    /// Sets the state of a rank whose process has ended.
    pub fn set_exit(&mut self, exit: Exit) {
        (self.state, self.exit_code, self.signal) = match exit {
            Exit::Code(code) => (State::Exited, Some(code), None),
            Exit::Signal(signal) => (State::Killed, None, Some(signal)),
            Exit::Lost => (State::Lost, None, None),
        };
    }
}

impl Wait {
    /// Describes a wait at the time `now`, in milliseconds of the server's clock.
    pub fn new(wait: &CoreWait<'_>, now: u64) -> Wait {
        let text = |bytes: &[u8]| Text::cut(bytes, TEXT_MAX);
        match *wait {
            CoreWait::Fence { number, since } => {
                Wait::Fence { number, since_ms: now.saturating_sub(since.0) }
            }
            CoreWait::Group { kind, since } => {
                Wait::Group { kind: group_kind(kind).to_owned(), since_ms: now.saturating_sub(since.0) }
            }
            CoreWait::Ring => Wait::Ring,
            CoreWait::Data { job, rank } => Wait::Data { job: job.to_owned(), rank: rank.0 },
            CoreWait::Pair(key) => Wait::Pair(text(key)),
            CoreWait::NodeAttr(key) => Wait::NodeAttribute(text(key)),
            CoreWait::Name(name) => Wait::Name(text(name)),
            CoreWait::Spawn => Wait::Spawn,
            _ => Wait::Request,
        }
    }
}

fn group_kind(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Barrier => "group barrier",
        GroupKind::Fence => "group fence",
        GroupKind::Connect => "connect",
        GroupKind::Disconnect => "disconnect",
        GroupKind::Construct => "group construction",
        GroupKind::Destruct => "group destruction",
    }
}
