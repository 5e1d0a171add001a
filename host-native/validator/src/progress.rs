//! Progress of a server with the requests of one connection.

use hydrant_core::limits::PENDING_MAX;
use hydrant_core::server::Consumed;
use hydrant_core::wire::pmix::{self, Hello};
use hydrant_core::wire::{self, Command, Framing, Integers, Message};

/// First byte of a PMIx handshake.
const PMIX_HELLO: u8 = 0xff;

/// Requests of one connection that a server has consumed, and replies that it owes.
///
/// The bytes themselves show where a message ends: a line begins with a letter, and a counted message with a digit or a
/// space. If the server reads a message in another way, it cannot decode it and closes the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Whether the connection speaks PMIx. Its first byte says so.
    pmix: Option<bool>,
    integers: Integers,
    /// The reply to the handshake may have to wait for another node.
    is_echoed: bool,
    /// Consumed requests without a reply.
    owed: u32,
    /// Requests with an immediate reply, less all replies. Positive if a request was due for a reply that is missing.
    overdue: i64,
}

/// Reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The request has no reply.
    Never,
    /// The reply follows at once.
    AtOnce,
    /// The reply may have to wait for other ranks or for the host.
    Later,
}

impl Progress {
    /// Returns the progress of a connection that owes only replies that may wait. `pmix` is the encoding of integers of a PMIx
    /// client, once the protocol is known.
    pub(crate) fn resumed(pmix: Option<Option<Integers>>, owed: u32) -> Progress {
        let integers = pmix.flatten().unwrap_or_default();
        let pmix = pmix.map(|integers| integers.is_some());
        Progress { pmix, integers, owed, ..Progress::default() }
    }

    /// Returns this progress at a head that asks the root for an echo before it answers a handshake.
    pub(crate) fn of_head(self, is_leaf: bool) -> Progress {
        Progress { is_echoed: is_leaf, ..self }
    }

    /// Records the requests in `bytes`. Returns whether a server may leave those that it has not consumed. `own` is the job id
    /// if the host knows jobs of other runs. With `lazy` fences a get may wait for other nodes.
    ///
    /// A server leaves an incomplete message. It leaves a complete message only if so many replies are pending that it has
    /// no place for another, and returns [`Consumed::again`] then. Bytes that cannot become a message are consumed, because
    /// the server closes the connection.
    pub(crate) fn consume(
        &mut self,
        bytes: &[u8],
        consumed: Consumed,
        own: Option<&str>,
        lazy: bool,
    ) -> bool {
        let Some(&first) = bytes.first() else { return true };
        self.pmix.get_or_insert(first == PMIX_HELLO);
        let (mut done, rest) = bytes.split_at(bytes.len().min(consumed.bytes as usize));
        while !done.is_empty()
            && let Ok(Some((len, due))) = self.next(done, own, lazy)
        {
            self.record(due);
            done = &done[len..];
        }
        if rest.is_empty() {
            return !consumed.again;
        }
        match self.next(rest, own, lazy) {
            Ok(None) => !consumed.again,
            // An event for a PMIx client takes one place.
            Ok(Some(_)) => {
                let places = PENDING_MAX - usize::from(self.pmix == Some(true));
                consumed.again && self.owed as usize >= places
            }
            Err(()) => false,
        }
    }

    #[inline]
    fn record(&mut self, due: Due) {
        self.owed = self.owed.saturating_add(u32::from(due != Due::Never));
        self.overdue += i64::from(due == Due::AtOnce);
    }

    /// Records a reply, or an event for a PMIx client, whose tag is 0.
    #[inline]
    pub(crate) fn reply(&mut self, bytes: &[u8]) {
        if self.pmix != Some(true) || bytes.get(4..8) != Some(&[0; 4]) {
            self.owed = self.owed.saturating_sub(1);
        }
        // Replies to requests that had to wait count as well. They are forgotten when nothing is owed.
        self.overdue = if self.owed == 0 { 0 } else { self.overdue - 1 };
    }

    /// Returns whether the connection speaks PMIx.
    #[inline]
    pub(crate) fn is_pmix(&self) -> bool {
        self.pmix == Some(true)
    }

    /// Returns whether a request has no reply that has one at once.
    #[inline]
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue > 0
    }

    /// Returns the length of the first message and when its reply is due. None if the message is incomplete.
    #[inline]
    fn next(&mut self, bytes: &[u8], own: Option<&str>, lazy: bool) -> Result<Option<(usize, Due)>, ()> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        if self.pmix == Some(true) {
            return self.next_pmix(bytes);
        }
        let counted = first == b' ' || first.is_ascii_digit();
        let framing = if counted { Framing::Counted } else { Framing::Line };
        let Some(frame) = wire::next_frame(bytes, framing).map_err(drop)? else { return Ok(None) };
        let due = match wire::decode(&frame) {
            Ok(Message { command: Ok(Command::FullInit { .. }), .. }) if self.is_echoed => Due::Later,
            Ok(Message { command: Ok(command), .. }) => due(&command, own, lazy),
            Ok(Message { command: Err(_), .. }) => Due::AtOnce,
            // The server closes the connection.
            Err(_) => Due::Never,
        };
        Ok(Some((frame.len as usize, due)))
    }

    fn next_pmix(&mut self, bytes: &[u8]) -> Result<Option<(usize, Due)>, ()> {
        Ok(match pmix::next_frame(bytes).map_err(drop)? {
            Some(pmix::Frame::Hello { len, body }) => {
                self.integers = Hello::decode(body).map(|hello| hello.integers).unwrap_or_default();
                Some((len as usize, Due::AtOnce))
            }
            Some(pmix::Frame::Message { len, body, .. }) => {
                let due = match pmix::decode(self.integers, body) {
                    Ok(Ok(command)) => due_pmix(&command),
                    Ok(Err(_)) => Due::AtOnce,
                    Err(_) => Due::Never,
                };
                Some((len as usize, due))
            }
            None => None,
        })
    }
}

/// Returns when the reply to a command is due.
fn due(command: &Command<'_>, own: Option<&str>, lazy: bool) -> Due {
    match command {
        // The host asks the other run.
        Command::Get { kvs: Some(kvs), .. } if own.is_some_and(|own| *kvs != *own.as_bytes()) => Due::Later,
        Command::Get { .. } if lazy => Due::Later,
        Command::Abort { .. } => Due::Never,
        Command::Fence { .. }
        | Command::Ring { .. }
        | Command::GetNodeAttr { wait: true, .. }
        | Command::Spawn(_)
        // These can need the name service, or the head of several nodes.
        | Command::Publish { .. }
        | Command::Unpublish { .. }
        | Command::Lookup { .. }
        | Command::PsetDefine { .. }
        | Command::PsetCombine { .. }
        | Command::PsetRetire { .. }
        | Command::PsetPrune
        | Command::Connect { .. }
        | Command::Disconnect { .. } => Due::Later,
        _ => Due::AtOnce,
    }
}

/// Returns when the reply to a command of PMIx is due.
fn due_pmix(command: &pmix::Command<'_>) -> Due {
    use pmix::Command;
    use pmix::event::DEBUGGER_RELEASE;
    match command {
        Command::DeregisterEvents(_) | Command::Heartbeat => Due::Never,
        // An abort of the job has no reply, and one of the rank alone has one. Only the server knows the job's name.
        Command::Abort { .. } => Due::Later,
        // The host is told.
        Command::Notify { event: DEBUGGER_RELEASE, .. } => Due::Later,
        Command::JobInfo
        | Command::Commit(_)
        | Command::Finalize
        | Command::RegisterEvents(_)
        | Command::Notify { .. }
        | Command::Unsupported => Due::AtOnce,
        // Among them queries, texts and job control, which the host may have to answer.
        _ => Due::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consume(progress: &mut Progress, bytes: &[u8], consumed: usize, again: bool) -> bool {
        progress.consume(bytes, Consumed { bytes: consumed as u32, again }, None, false)
    }

    #[test]
    fn an_incomplete_message_may_be_left_and_a_complete_one_may_not() {
        for (bytes, whole) in [
            (&b"cmd=get_maxes\ncmd=get_m"[..], 14),
            (b"    14cmd=job-getid;    14cmd=job-", 20),
            (b"mcmd=spawn\nendcmd\nmcmd=spawn\n", 18),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0", 16),
        ] {
            let shown = bytes.escape_ascii().to_string();
            assert!(consume(&mut Progress::default(), bytes, whole, false), "{shown}");
            assert!(!consume(&mut Progress::default(), bytes, 0, false), "{shown}");
            assert!(!consume(&mut Progress::default(), bytes, whole, true), "{shown}: nothing is deferred");
            assert!(!consume(&mut Progress::default(), bytes, 0, true), "{shown}: no reply is owed");
            assert!(consume(&mut Progress::default(), &bytes[..whole - 1], 0, false), "{shown}");
        }
        assert!(!consume(&mut Progress::default(), b"cmd=get_maxes\n", 3, false), "half a message");
        assert!(!consume(&mut Progress::default(), b"rubbish", 0, false));
        assert!(consume(&mut Progress::default(), b"rubbish", 7, false));
    }

    #[test]
    fn a_message_is_deferred_only_if_all_places_for_replies_are_taken() {
        let mut progress = Progress::default();
        let fence = b"    14cmd=kvs-fence;";
        let four = fence.repeat(PENDING_MAX);
        let five = fence.repeat(PENDING_MAX + 1);
        assert!(!consume(&mut progress.clone(), &five, 3 * fence.len(), true));
        assert!(consume(&mut progress, &five, four.len(), true));
        assert!(consume(&mut progress.clone(), fence, 0, true));
        progress.reply(b"reply");
        assert!(!consume(&mut progress, fence, 0, true));
        assert!(consume(&mut progress, fence, fence.len(), false));
    }

    #[test]
    fn requests_of_a_rank_alone_have_replies_at_once() {
        for (request, overdue) in [
            (&b"    14cmd=kvs-fence;"[..], false),
            (b"    14cmd=job-getid;", true),
            (b"    23cmd=nonsense;thrid=abcd;", true),
            (b"    21cmd=abort;isworld=TRUE;", false),
            (b"cmd=init pmi_version=1 pmi_subversion=1\n", true),
            (b"cmd=barrier_in\n", false),
        ] {
            let mut progress = Progress::default();
            let len = request.len();
            assert!(consume(&mut progress, request, len, false), "{}", request.escape_ascii());
            assert_eq!(progress.is_overdue(), overdue, "{}", request.escape_ascii());
            progress.reply(b"reply");
            assert!(!progress.is_overdue());
        }
    }

    #[test]
    fn the_reply_to_a_fence_does_not_stand_for_one_that_is_due_later() {
        let mut progress = Progress::default();
        let (fence, get) = (b"    14cmd=kvs-fence;", b"    14cmd=job-getid;");
        assert!(consume(&mut progress, fence, 20, false));
        progress.reply(b"reply");
        assert!(consume(&mut progress, get, 20, false));
        assert!(progress.is_overdue());
    }

    #[test]
    fn a_get_of_a_job_of_another_run_may_wait() {
        let is_overdue = |get: &[u8], own| {
            let mut progress = Progress::default();
            let consumed = Consumed { bytes: get.len() as u32, again: false };
            assert!(progress.consume(get, consumed, own, false), "{}", get.escape_ascii());
            progress.is_overdue()
        };
        let get = b"cmd=get kvsname=kvs_2 key=k\n";
        assert!(!is_overdue(get, Some("kvs_1")));
        assert!(is_overdue(get, Some("kvs_2")), "its own job");
        assert!(is_overdue(get, None), "the host knows no other runs");
    }

    #[test]
    fn a_handshake_at_a_head_below_the_root_may_wait() {
        let hello = b"cmd=init pmi_version=2 pmi_subversion=0\n    23cmd=fullinit;pmirank=0;";
        for is_leaf in [false, true] {
            let mut progress = Progress::default().of_head(is_leaf);
            assert!(consume(&mut progress, hello, hello.len(), false));
            progress.reply(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
            assert_eq!(progress.is_overdue(), !is_leaf);
            progress.reply(b"    27cmd=fullinit-response;rc=0;");
            let get = b"    18cmd=kvs-get;key=k;";
            assert!(consume(&mut progress, get, get.len(), false));
            assert!(progress.is_overdue(), "the get has a reply at once");
        }
    }
}
