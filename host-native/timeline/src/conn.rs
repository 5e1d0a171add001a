//! Connection of a client: its requests and replies as spans.

use std::collections::VecDeque;

use crate::model::{Message, Phase, Span};
use crate::requests::{Decoder, Key, Participants};

/// Requests of one phase that begin within this many milliseconds of the reply before belong to the same span.
const GAP_MAX: u64 = 20;
/// Most requests of one connection that wait for a reply. The oldest ones are forgotten.
const PENDING_MAX: usize = 64;

/// Connection of a client.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Index of the job.
    pub(crate) job: usize,
    /// Rank, from the host or from the handshake.
    pub(crate) rank: Option<u32>,
    /// Time at which it was opened.
    pub(crate) opened: u64,
    /// Time of its first request.
    pub(crate) first: Option<u64>,
    pub(crate) scan: Scan,
    pub(crate) decoder: Decoder,
    pending: VecDeque<Pending>,
    /// Spans that are not yet part of a track. Times are those of the recording.
    pub(crate) spans: Vec<Span>,
    /// Requests of each span that wait for a reply.
    waiting: Vec<u32>,
}

/// Keys by which MPI libraries ask for the topology of the machine: MPICH, and Open MPI.
const TOPOLOGY: [&[u8]; 2] = [b"PMI_hwloc_xmlfile", b"pmix.hwlocxml2"];

/// Scan of the machine by a rank that asked for its topology in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scan {
    /// The rank has not asked.
    #[default]
    None,
    /// It has asked.
    Asked,
    /// It got nothing at this time.
    Begun(u64),
    /// It got the topology, or sent the next request after this time.
    Over(Option<u64>),
}

impl Scan {
    /// Returns the milliseconds until the next request.
    pub(crate) fn time(self) -> Option<u64> {
        if let Scan::Over(time) = self { time } else { None }
    }

    fn request(&mut self, now: u64, bytes: &[u8]) {
        *self = match *self {
            Scan::None if TOPOLOGY.iter().any(|key| bytes.windows(key.len()).any(|part| part == *key)) => {
                Scan::Asked
            }
            Scan::Begun(at) => Scan::Over(Some(now.saturating_sub(at))),
            other => other,
        };
    }

    fn reply(&mut self, now: u64, found: bool) {
        if *self == Scan::Asked {
            *self = if found { Scan::Over(None) } else { Scan::Begun(now) };
        }
    }
}

/// Request that waits for its reply.
#[derive(Debug)]
struct Pending {
    key: Key,
    span: usize,
}

/// Limits of what a connection may add to.
#[derive(Debug)]
pub(crate) struct Room {
    /// Spans that may be added.
    pub(crate) spans: usize,
    /// Bytes of messages that may be added, or none for a timeline without messages.
    pub(crate) text: Option<usize>,
    /// Spans that were left out.
    pub(crate) spans_lost: u64,
    /// Messages that were left out.
    pub(crate) messages_lost: u64,
}

/// Memory of a message beside its text.
const MESSAGE_COST: usize = size_of::<Message>();

impl Room {
    fn message(&mut self, span: &mut Span, at: u64, reply: bool, mut text: String) {
        let Some(left) = &mut self.text else { return };
        if text.len() > crate::TEXT_MAX {
            let more = text.len() - crate::TEXT_MAX;
            // The text is ASCII.
            text.truncate(crate::TEXT_MAX);
            text += &format!(".. and {more} more");
        }
        let cost = text.len() + MESSAGE_COST;
        if cost > *left {
            self.messages_lost += 1;
            return;
        }
        *left -= cost;
        span.messages.push(Message { at: at as i64, reply, text });
    }
}

impl Conn {
    pub(crate) fn new(job: usize, name: String, rank: Option<u32>, opened: u64) -> Conn {
        Conn {
            job,
            rank,
            opened,
            first: None,
            scan: Scan::None,
            decoder: Decoder::new(name),
            pending: VecDeque::new(),
            spans: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes the requests in bytes that the server consumed. `arrive` returns the number of a collective.
    pub(crate) fn requests(
        &mut self,
        now: u64,
        sequence: u64,
        mut bytes: &[u8],
        room: &mut Room,
        mut arrive: impl FnMut(usize, Option<u32>, Participants) -> Option<usize>,
    ) {
        while !bytes.is_empty() {
            let (len, request, text) = self.decoder.request(bytes);
            self.scan.request(now, &bytes[..len]);
            bytes = &bytes[len..];
            self.first.get_or_insert(now);
            let participants = request.participants.filter(|_| room.spans > 0);
            let collective = participants.and_then(|participants| arrive(self.job, self.rank, participants));
            let Some(at) = self.span(now, sequence, request.phase, collective, room) else {
                room.spans_lost += 1;
                continue;
            };
            let span = &mut self.spans[at];
            span.requests = span.requests.saturating_add(1);
            room.message(span, now, false, text);
            if !request.replied {
                if self.waiting[at] == 0 {
                    span.end = Some(now as i64);
                }
                continue;
            }
            span.end = None;
            self.waiting[at] += 1;
            if self.pending.len() == PENDING_MAX {
                self.forget();
            }
            self.pending.push_back(Pending { key: request.key, span: at });
        }
    }

    /// Returns the span of a request: the last one if the request continues it.
    fn span(
        &mut self,
        now: u64,
        sequence: u64,
        phase: Phase,
        collective: Option<usize>,
        room: &mut Room,
    ) -> Option<usize> {
        let last = self.spans.last().filter(|last| {
            let near = last.end.is_none_or(|end| now.saturating_sub(end as u64) <= GAP_MAX);
            // A fence is a span of its own, and so is a request that may wait for other ranks.
            let joins = matches!(phase, Phase::Init | Phase::Put | Phase::Get | Phase::Other);
            near && joins && last.phase == phase
        });
        if last.is_some() {
            return Some(self.spans.len() - 1);
        }
        room.spans = room.spans.checked_sub(1)?;
        let (start, messages) = (now as i64, Vec::new());
        self.spans.push(Span { phase, start, end: None, sequence, requests: 0, collective, messages });
        self.waiting.push(0);
        Some(self.spans.len() - 1)
    }

    /// Takes a message from the server.
    pub(crate) fn reply(&mut self, now: u64, bytes: &[u8], room: &mut Room) {
        let (key, text) = self.decoder.reply(bytes);
        self.scan.reply(now, self.decoder.is_found(bytes));
        // Events of PMIx have tag 0 and answer nothing.
        let event = key == Key::Tag(0);
        let at = self.pending.iter().position(|pending| pending.key == key);
        let at = at.or_else(|| (key == Key::Order && !self.pending.is_empty()).then_some(0));
        let answered = at.filter(|_| !event).and_then(|at| self.pending.remove(at));
        let Some(span) = answered.map(|pending| pending.span).or_else(|| self.spans.len().checked_sub(1))
        else {
            return;
        };
        let answers = at.is_some() && !event;
        if let Some(draft) = self.spans.get_mut(span) {
            room.message(draft, now, true, text);
            if answers {
                self.waiting[span] = self.waiting[span].saturating_sub(1);
                if self.waiting[span] == 0 {
                    draft.end = Some(now as i64);
                }
            }
        }
    }

    /// Forgets the oldest request.
    fn forget(&mut self) {
        if let Some(pending) = self.pending.pop_front() {
            self.waiting[pending.span] = self.waiting[pending.span].saturating_sub(1);
        }
    }
}
