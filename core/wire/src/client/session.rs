//! PMI-2 requests of several threads over one connection, distinguished by `thrid`.

use super::{Client, Error, Received, State};
use crate::frame::{Framing, next_reply};
use crate::limits::PENDING_MAX;
use crate::{Command, EncodeError, Op, Protocol, Reply, Text, v2};

/// Maximum number of outstanding requests: the maximum number of pending replies of a connection.
pub const SESSION_MAX: usize = PENDING_MAX;

/// Maximum number of outstanding requests that wait for other ranks. One is left for a request that completes them.
const WAITING_MAX: usize = SESSION_MAX - 1;

/// Identifies a request of a [`Session`] until its [release](Session::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u8);

impl Ticket {
    /// Returns a number below [`SESSION_MAX`], as an index for the caller's arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn thrid(self) -> [u8; 1] {
        [b'0' + self.0]
    }
}

/// A reply and the request that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<'a> {
    /// The completed request.
    pub ticket: Ticket,
    /// The reply and its length.
    pub received: Received<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Slot {
    #[default]
    Free,
    UnderWay(Asked),
    /// The reply has been received. The ticket has not been released.
    Completed,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    op: Op,
    waits: bool,
}

/// Whether the server repeats `thrid`. hydrant and hydra do. Slurm does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    /// No reply has been received. One request at a time is allowed.
    Unknown,
    /// It does. Requests of all kinds may be outstanding.
    Thrid,
    /// It does not. Replies are matched by command, so one request of each command at a time is allowed.
    NoThrid,
}

/// PMI-2 connection with several outstanding requests.
///
/// Order of calls: [`Session::request`] as often as it does not return [`Error::Busy`], [`Session::receive`] until
/// each request has its reply, and [`Session::release`] for each reply that was taken. The last request is
/// [`Command::Finalize`] or [`Command::Abort`].
#[derive(Clone, Debug)]
pub struct Session {
    slots: [Slot; SESSION_MAX],
    threads: Threads,
    /// Whether the server reads escaped values.
    escapes: bool,
    /// Whether [`Command::Finalize`] was sent, so that no further request is allowed.
    closing: bool,
    over: bool,
}

impl Session {
    /// Creates a session from a client after its handshake.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] before the end of the handshake, or if the protocol is PMI-1.
    pub fn new(client: &Client) -> Result<Session, Error> {
        match (client.protocol, client.state) {
            (Protocol::V2, State::Ready) if !client.is_waiting() => {
                let slots = [Slot::Free; SESSION_MAX];
                Ok(Session { slots, threads: Threads::Unknown, escapes: false, closing: false, over: false })
            }
            _ => Err(Error::OutOfOrder),
        }
    }

    /// Returns whether values may hold NUL.
    pub fn escapes_values(&self) -> bool {
        self.escapes
    }

    /// Allows values with NUL, which are escaped. The caller has found the job attribute
    /// [`ESCAPES_ATTR`](crate::limits::ESCAPES_ATTR).
    pub fn escape_values(&mut self) {
        self.escapes = true;
    }

    /// Returns whether a request is outstanding.
    pub fn is_waiting(&self) -> bool {
        self.under_way().next().is_some()
    }

    fn under_way(&self) -> impl Iterator<Item = (Ticket, Asked)> {
        (0_u8..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            Slot::UnderWay(asked) => Some((Ticket(index), *asked)),
            _ => None,
        })
    }

    /// Writes a request. Returns no ticket for [`Command::Abort`], which has no reply.
    ///
    /// # Errors
    /// [`Error::Busy`] if a reply must come first: the session is full, or this request and all but one of the others
    /// may wait for other ranks, or the server does not repeat `thrid`. [`Error::OutOfOrder`], [`Error::Over`], and
    /// [`Error::Encode`] if the buffer is too short, the protocol does not have the command, or a value with NUL comes
    /// before [`Session::escape_values`].
    pub fn request<'b>(
        &mut self,
        command: &Command<'_>,
        buf: &'b mut [u8],
    ) -> Result<(Option<Ticket>, &'b [u8]), Error> {
        let op = command.op();
        if self.over || self.closing {
            return Err(Error::Over);
        }
        if matches!(op, Op::Init | Op::InitAck | Op::FullInit) {
            return Err(Error::OutOfOrder);
        }
        if op == Op::Abort {
            let bytes = v2::encode(command, None, buf)?;
            self.over = true;
            return Ok((None, bytes));
        }
        if !self.escapes && command.holds_nul() {
            return Err(EncodeError::Unprintable.into());
        }
        let asked = Asked { op, waits: waits(command) };
        let ticket = self.room(asked).ok_or(Error::Busy)?;
        let thrid = ticket.thrid();
        let thrid = (self.threads != Threads::NoThrid).then_some(Text::plain(&thrid));
        let bytes = v2::encode(command, thrid, buf)?;
        self.set(ticket, Slot::UnderWay(asked));
        self.closing = op == Op::Finalize;
        Ok((Some(ticket), bytes))
    }

    fn set(&mut self, ticket: Ticket, to: Slot) {
        if let Some(slot) = self.slots.get_mut(ticket.index()) {
            *slot = to;
        }
    }

    /// Releases the ticket of a request whose reply was taken, for use by another request. Does nothing before the
    /// reply was received.
    pub fn release(&mut self, ticket: Ticket) {
        if let Some(Slot::Completed) = self.slots.get(ticket.index()) {
            self.set(ticket, Slot::Free);
        }
    }

    /// Returns a free ticket if this request is allowed now.
    fn room(&self, new: Asked) -> Option<Ticket> {
        let held_up = match self.threads {
            Threads::Unknown => self.is_waiting(),
            Threads::Thrid => false,
            Threads::NoThrid => self.under_way().any(|(_, asked)| asked.op == new.op),
        };
        if held_up || (new.waits && self.under_way().filter(|(_, asked)| asked.waits).count() >= WAITING_MAX)
        {
            return None;
        }
        let mut slots = (0_u8..).zip(&self.slots);
        slots.find(|(_, slot)| matches!(slot, Slot::Free)).map(|(index, _)| Ticket(index))
    }

    /// Reads a reply. `bytes` are all bytes that the caller has received and not removed. Returns `None` if the reply
    /// is incomplete. A refusal is a reply.
    ///
    /// # Errors
    /// [`Error::Malformed`] and [`Error::Unasked`] end the session. [`Error::Over`] after that, [`Error::OutOfOrder`]
    /// if no request is outstanding.
    pub fn receive<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Completed<'a>>, Error> {
        if !self.is_waiting() {
            return Err(if self.over { Error::Over } else { Error::OutOfOrder });
        }
        let completed = self.read(bytes);
        if completed.is_err() {
            self.slots = [Slot::Free; SESSION_MAX];
            self.over = true;
        }
        completed
    }

    fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Completed<'a>>, Error> {
        let Some(frame) = next_reply(bytes, Framing::Counted).map_err(Error::Malformed)? else {
            return Ok(None);
        };
        let answer = v2::decode_reply(&frame).map_err(Error::Malformed)?;
        let unasked = Error::Unasked(answer.reply.op());
        let (ticket, asked) = self.owner(&answer.reply, answer.thrid).ok_or(unasked)?;
        self.set(ticket, Slot::Completed);
        if self.threads == Threads::Unknown {
            self.threads = if answer.thrid.is_some() { Threads::Thrid } else { Threads::NoThrid };
        }
        let reply = match answer.reply {
            // A server that does not know the command sends a generic reply name.
            Reply::Refused(Op::Unknown, failure) => Reply::Refused(asked.op, failure),
            reply => reply,
        };
        self.over |= asked.op == Op::Finalize;
        Ok(Some(Completed { ticket, received: Received { reply, consumed: frame.len } }))
    }

    /// Returns the request of a reply: that of its `thrid`, or the only one that it can answer.
    fn owner(&self, reply: &Reply<'_>, thrid: Option<Text<'_>>) -> Option<(Ticket, Asked)> {
        let unknown = reply.op() == Op::Unknown && matches!(reply, Reply::Refused(..));
        let mut owners = self.under_way().filter(|(ticket, asked)| {
            let named = thrid.is_none_or(|thrid| thrid == ticket.thrid()[..]);
            named && (unknown || asked.op == reply.op())
        });
        let owner = owners.next();
        owner.filter(|_| owners.next().is_none())
    }
}

/// Returns whether the reply may depend on other ranks, or on other threads of this rank.
fn waits(command: &Command<'_>) -> bool {
    match command {
        Command::GetNodeAttr { wait, .. } => *wait,
        Command::Fence { .. } | Command::Ring { .. } | Command::Lookup { .. } | Command::Spawn(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Start;
    use std::string::String;
    use std::vec::Vec;

    fn session() -> Session {
        let mut client = Client::new(Protocol::V2, Start::Fd { rank: 0, size: 2 });
        let replies = [
            "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
            // hydra 5.0.2 omits the other fields.
            "    63cmd=fullinit-response;rc=0;rank=0;size=2;appnum=0;pmiverbose=0;",
        ];
        assert!(matches!(Session::new(&client), Err(Error::OutOfOrder)));
        for reply in replies {
            client.handshake_to(Some("7.0".into()), &mut [0; 64]).unwrap();
            client.receive(reply.as_bytes()).unwrap().unwrap();
        }
        Session::new(&client).unwrap()
    }

    fn ask(session: &mut Session, command: Command<'_>) -> Result<(usize, String), Error> {
        let mut buf = [0; 128];
        let (ticket, bytes) = session.request(&command, &mut buf)?;
        let text = std::str::from_utf8(bytes).unwrap()[6..].into();
        Ok((ticket.map_or(SESSION_MAX, Ticket::index), text))
    }

    fn tell<'a>(session: &mut Session, message: &'a [u8]) -> Result<(usize, Reply<'a>), Error> {
        for end in 0..message.len() {
            assert!(matches!(session.receive(&message[..end]), Ok(None)));
        }
        let Completed { ticket, received } = session.receive(message)?.unwrap();
        assert_eq!(received.consumed as usize, message.len());
        session.release(ticket);
        Ok((ticket.index(), received.reply))
    }

    fn message(body: &str) -> Vec<u8> {
        std::format!("{:>6}{body}", body.len()).into_bytes()
    }

    fn wait(key: &str) -> Command<'_> {
        Command::GetNodeAttr { key: key.into(), wait: true }
    }

    /// Creates a session with a server that is known to repeat `thrid`, or not to.
    fn known(told: bool) -> Session {
        let mut session = session();
        assert_eq!(ask(&mut session, Command::GetJobId).unwrap(), (0, "cmd=job-getid;thrid=0;".into()));
        assert_eq!(ask(&mut session, Command::Fence { group: None }), Err(Error::Busy));
        let reply = if told { "thrid=0;rc=0;jobid=7.0;" } else { "rc=0;jobid=7.0;" };
        let reply = message(&std::format!("cmd=job-getid-response;{reply}"));
        assert_eq!(tell(&mut session, &reply), Ok((0, Reply::JobId("7.0".into()))));
        session
    }

    #[test]
    fn threads_are_told_apart() {
        let mut session = known(true);
        for (i, key) in ["a", "b", "c"].iter().enumerate() {
            let wanted = std::format!("cmd=info-getnodeattr;thrid={i};key={key};wait=TRUE;");
            assert_eq!(ask(&mut session, wait(key)), Ok((i, wanted)));
        }
        // One slot is reserved for a request that completes the others.
        assert_eq!(ask(&mut session, wait("d")), Err(Error::Busy));
        assert_eq!(ask(&mut session, Command::Fence { group: None }), Err(Error::Busy));
        let put = Command::PutNodeAttr { key: "b".into(), value: "x".into() };
        assert_eq!(ask(&mut session, put).unwrap().0, 3);
        assert_eq!(ask(&mut session, put), Err(Error::Busy));
        let reply = message("cmd=info-getnodeattr-response;thrid=1;rc=0;found=TRUE;value=x;");
        assert_eq!(tell(&mut session, &reply), Ok((1, Reply::Found(Op::GetNodeAttr, "x".into()))));
        assert_eq!(ask(&mut session, wait("d")).unwrap().0, 1);
        let refused = message("cmd=unknown-response;thrid=3;rc=14;errmsg=no;");
        assert!(matches!(tell(&mut session, &refused), Ok((3, Reply::Refused(Op::PutNodeAttr, _)))));
    }

    #[test]
    fn values_with_nul_need_a_server_that_reads_escapes() {
        let mut session = known(true);
        let put = |value| Command::Put { kvs: None, key: "k".into(), value };
        assert_eq!(ask(&mut session, put("a\0".into())), Err(Error::Encode(EncodeError::Unprintable)));
        session.escape_values();
        let wanted = "cmd=kvs-put;thrid=0;key=k;escaped-value=a\x01\x01;";
        assert_eq!(ask(&mut session, put("a\0".into())), Ok((0, wanted.into())));
        assert_eq!(ask(&mut session, put("a".into())).unwrap().1, "cmd=kvs-put;thrid=1;key=k;value=a;");
    }

    #[test]
    fn a_place_is_kept_until_its_reply_was_taken() {
        let mut session = known(true);
        ask(&mut session, wait("a")).unwrap();
        let found = message("cmd=info-getnodeattr-response;thrid=0;rc=0;found=TRUE;value=x;");
        let ticket = session.receive(&found).unwrap().unwrap().ticket;
        assert!(!session.is_waiting());
        assert_eq!(ask(&mut session, wait("b")).unwrap().0, 1);
        session.release(ticket);
        assert_eq!(ask(&mut session, wait("c")).unwrap().0, 0);
        // The reply has not been received yet.
        session.release(ticket);
        assert_eq!(ask(&mut session, wait("d")).unwrap().0, 2);
    }

    #[test]
    fn without_thrid_each_command_is_asked_once_at_a_time() {
        let mut session = known(false);
        let wanted = "cmd=info-getnodeattr;key=a;wait=TRUE;";
        assert_eq!(ask(&mut session, wait("a")), Ok((0, wanted.into())));
        let plain = Command::GetNodeAttr { key: "b".into(), wait: false };
        assert_eq!(ask(&mut session, plain), Err(Error::Busy));
        assert_eq!(ask(&mut session, Command::Fence { group: None }), Ok((1, "cmd=kvs-fence;".into())));
        assert_eq!(
            tell(&mut session, &message("cmd=kvs-fence-response;rc=0;")),
            Ok((1, Reply::Fence { tag: None }))
        );
        let missing = message("cmd=info-getnodeattr-response;rc=0;found=FALSE;");
        assert_eq!(tell(&mut session, &missing), Ok((0, Reply::Missing(Op::GetNodeAttr))));
    }

    #[test]
    fn what_was_not_asked_ends_the_session() {
        for wrong in [
            "cmd=info-getnodeattr-response;thrid=2;rc=0;found=FALSE;",
            "cmd=info-getnodeattr-response;thrid=9;rc=0;found=FALSE;",
            "cmd=info-getnodeattr-response;rc=0;found=FALSE;",
            "cmd=kvs-fence-response;thrid=0;rc=0;",
            "cmd=nonsense;",
        ] {
            let mut session = known(true);
            ask(&mut session, wait("a")).unwrap();
            ask(&mut session, wait("b")).unwrap();
            assert!(tell(&mut session, &message(wrong)).is_err(), "{wrong}");
            assert_eq!(session.receive(b""), Err(Error::Over));
            assert_eq!(ask(&mut session, Command::GetJobId), Err(Error::Over));
        }
    }

    #[test]
    fn nothing_follows_an_end() {
        let mut session = known(true);
        assert_eq!(session.receive(b""), Err(Error::OutOfOrder));
        assert_eq!(ask(&mut session, Command::FullInit { rank: None, jobid: None, threaded: false }), {
            Err(Error::OutOfOrder)
        });
        ask(&mut session, wait("a")).unwrap();
        assert_eq!(ask(&mut session, Command::Finalize).unwrap().0, 1);
        assert_eq!(ask(&mut session, Command::GetJobId), Err(Error::Over));
        let reply = message("cmd=finalize-response;thrid=1;rc=0;");
        assert_eq!(tell(&mut session, &reply), Ok((1, Reply::Done(Op::Finalize))));

        let mut session = known(true);
        let abort = Command::Abort { code: Some(3), world: true, message: "why".into() };
        let text = "cmd=abort;exitcode=3;isworld=TRUE;msg=why;message=why;";
        assert_eq!(ask(&mut session, abort), Ok((SESSION_MAX, text.into())));
        assert_eq!(session.receive(b""), Err(Error::Over));
    }

    use proptest::prelude::*;

    proptest! {
        /// Any order of requests, replies and releases: each reply goes to the ticket of its request, no ticket is in
        /// use twice, and requests that wait for others always leave room for one that does not.
        #[test]
        fn replies_find_their_askers(told: bool, steps in prop::collection::vec((0..3, 0..8_usize), 0..80)) {
            let mut session = known(told);
            let mut under_way: Vec<(Ticket, Op)> = Vec::new();
            let mut completed: Vec<Ticket> = Vec::new();
            for (step, which) in steps {
                if step == 0 {
                    let commands = [
                        wait("a"),
                        Command::Fence { group: None },
                        Command::GetJobId,
                        Command::Put { kvs: None, key: "k".into(), value: "v".into() },
                    ];
                    let command = commands[which % 4];
                    match session.request(&command, &mut [0; 128]) {
                        Ok((ticket, _)) => {
                            let ticket = ticket.unwrap();
                            prop_assert!(!under_way.iter().any(|(other, _)| *other == ticket));
                            prop_assert!(!completed.contains(&ticket));
                            under_way.push((ticket, command.op()));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Error::Busy);
                            let quick = under_way.iter().filter(|(_, op)| matches!(op, Op::GetJobId | Op::Put));
                            let full = quick.count() + completed.len() > 0;
                            let same = under_way.iter().any(|(_, op)| *op == command.op());
                            prop_assert!(full || waits(&command) || (!told && same));
                        }
                    }
                } else if step == 1 && !under_way.is_empty() {
                    let (ticket, op) = under_way.swap_remove(which % under_way.len());
                    let (name, rest) = match op {
                        Op::GetNodeAttr => ("info-getnodeattr", "found=FALSE;"),
                        Op::Fence => ("kvs-fence", ""),
                        Op::GetJobId => ("job-getid", "jobid=7.0;"),
                        _ => ("kvs-put", ""),
                    };
                    let thrid = if told { std::format!("thrid={};", ticket.index()) } else { String::new() };
                    let reply = message(&std::format!("cmd={name}-response;{thrid}rc=0;{rest}"));
                    prop_assert_eq!(session.receive(&reply).unwrap().unwrap().ticket, ticket);
                    completed.push(ticket);
                } else if step == 2 && !completed.is_empty() {
                    session.release(completed.swap_remove(which % completed.len()));
                }
                prop_assert_eq!(session.is_waiting(), !under_way.is_empty());
            }
        }

        #[test]
        fn no_bytes_confuse_it(bytes in prop::collection::vec(any::<u8>(), 0..64), framed: bool) {
            let mut session = known(true);
            ask(&mut session, wait("a")).unwrap();
            let mut all = Vec::from(&b"    60cmd=info-getnodeattr-response;"[..]);
            all.extend(&bytes);
            // Either result is valid.
            let heard = session.receive(if framed { &all } else { &bytes }).is_ok();
            prop_assert_eq!(heard, session.request(&Command::GetJobId, &mut [0; 64]).is_ok());
        }
    }
}
