//! Client connections: sockets, bytes that wait on either side, and which rank each belongs to.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;

use hydrant_core::server::Inbox;
use hydrant_core::wire::pmix::{Frame, Hello, Kind, next_frame};
use hydrant_core::{JobId, Rank};
use hydrant_reactor::{NO_SIGPIPE, Sent};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Speaks;

/// Most bytes of one read from a client that has not introduced itself. The introduction is shorter.
pub(crate) const INTRODUCTION_READ: usize = 4096;

/// All connections, by number.
#[derive(Debug)]
pub(crate) struct Conns {
    all: Vec<Conn>,
    /// Numbers below the length of `all` that are not open.
    free: BTreeSet<u32>,
    /// Upper bound of open connections.
    limit: u32,
    by_rank: HashMap<(JobId, Rank), u32>,
    /// Connections without a rank when they were opened, with that time, the oldest first. Some are
    /// closed or have become a rank's since.
    incoming: VecDeque<(u32, u64)>,
    /// Connections with requests that the backend has deferred.
    pub(crate) deferred: Vec<u32>,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    transport: Transport,
    opened: u64,
    job: JobId,
    rank: Option<Rank>,
    /// The client has not introduced itself: by a handshake, or by its first request if it only queries.
    incoming: bool,
    /// The connection is for queries and never belongs to a rank.
    queries: bool,
    /// The client speaks PMIx, or is closed.
    speaks: Speaks,
    /// Job id of the ranks that the port is for, if the owner of the driver takes tools of PMIx that connect there.
    ranks_of: Option<Box<str>>,
    /// Received bytes that the backend has not consumed. Has no memory unless a request came in pieces.
    held: Vec<u8>,
    /// A reply that the socket did not take, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// So many bytes of replies are not sent: the client has had the answer to its introduction.
    hidden: usize,
    /// A whole request waits in `held` until a reply has been taken.
    waiting: bool,
    /// The connection is not read while the inbox is full. Others are closed then.
    may_pause: bool,
    /// It is not read now.
    is_paused: bool,
    /// The client has closed the connection. Its requests are still handled, and replies to it are dropped.
    closed_by_peer: bool,
}

/// What carries the bytes of a connection.
#[derive(Debug, Default)]
enum Transport {
    /// Nothing: the connection is not open.
    #[default]
    Closed,
    Socket(OwnedFd),
    /// The owner of the driver. It takes no replies while it is blocked.
    External {
        blocked: bool,
    },
}

/// Result of a read from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes are at the front of the inbox's space.
    Bytes(usize),
    /// No bytes are available.
    Nothing,
    /// The client closed its end.
    End,
    /// The inbox is full.
    Overrun,
}

impl Conns {
    pub(crate) fn new(limit: u32) -> Conns {
        Conns {
            all: Vec::new(),
            free: BTreeSet::new(),
            limit,
            by_rank: HashMap::new(),
            incoming: VecDeque::new(),
            deferred: Vec::new(),
        }
    }

    /// Adds the socket of a client that sends its rank in the handshake. Returns none at the limit.
    pub(crate) fn open_client(&mut self, fd: OwnedFd, job: JobId, speaks: Speaks, now: u64) -> Option<u32> {
        let id = self.insert(fd, job, now)?;
        self.all[id as usize].speaks = speaks;
        self.await_introduction(id, now);
        Some(id)
    }

    /// Adds a socket for queries, which belongs to no rank. Returns none at the limit.
    pub(crate) fn open_query(&mut self, fd: OwnedFd, job: JobId, now: u64) -> Option<u32> {
        let id = self.insert(fd, job, now)?;
        self.all[id as usize].queries = true;
        self.await_introduction(id, now);
        Some(id)
    }

    /// Adds a connection whose bytes the owner of the driver carries. Its number is below the limit and not open.
    pub(crate) fn open_external(&mut self, id: u32, job: JobId) {
        let known = self.all.len() as u32;
        if id >= known {
            self.free.extend(known..id);
            self.all.resize_with(id as usize + 1, Conn::default);
        }
        self.free.remove(&id);
        self.all[id as usize] =
            Conn { transport: Transport::External { blocked: false }, job, ..Conn::default() };
    }

    fn await_introduction(&mut self, id: u32, now: u64) {
        self.all[id as usize].incoming = true;
        self.incoming.push_back((id, now));
    }

    /// Returns the number of the next connection. None at the limit.
    pub(crate) fn next_id(&self) -> Option<u32> {
        let next = self.free.first().copied().unwrap_or(self.all.len() as u32);
        self.has_room().then_some(next)
    }

    /// Adds a socket whose rank follows. Returns none at the limit.
    pub(crate) fn insert(&mut self, fd: OwnedFd, job: JobId, now: u64) -> Option<u32> {
        let id = match self.free.pop_first() {
            Some(id) => id,
            None if self.all.len() < self.limit as usize => {
                self.all.push(Conn::default());
                self.all.len() as u32 - 1
            }
            None => return None,
        };
        self.all[id as usize] =
            Conn { transport: Transport::Socket(fd), opened: now, job, ..Conn::default() };
        Some(id)
    }

    /// The connection belongs to a rank from now on.
    pub(crate) fn assign(&mut self, id: u32, job: JobId, rank: Rank) {
        let conn = &mut self.all[id as usize];
        (conn.rank, conn.incoming, conn.ranks_of) = (Some(rank), false, None);
        self.by_rank.insert((job, rank), id);
    }

    /// Closes a connection, and its socket.
    pub(crate) fn close(&mut self, id: u32) {
        drop(self.remove(id));
    }

    /// Removes a connection. Returns its socket, if it has one.
    pub(crate) fn remove(&mut self, id: u32) -> Option<OwnedFd> {
        let conn = std::mem::take(&mut self.all[id as usize]);
        self.free.insert(id);
        // The rank may have opened another one.
        if let Some(rank) = conn.rank
            && self.by_rank.get(&(conn.job, rank)) == Some(&id)
        {
            self.by_rank.remove(&(conn.job, rank));
        }
        if let Transport::Socket(fd) = conn.transport { Some(fd) } else { None }
    }

    /// An open connection.
    pub(crate) fn get(&self, id: u32) -> Option<&Conn> {
        self.all.get(id as usize).filter(|conn| conn.is_open())
    }

    /// An open connection.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Conn> {
        self.all.get_mut(id as usize).filter(|conn| conn.is_open())
    }

    /// Returns whether a connection is open and the owner of the driver carries its bytes.
    pub(crate) fn is_external(&self, id: u32) -> bool {
        self.get(id).is_some_and(|conn| conn.socket().is_none())
    }

    /// The latest open connection of a rank.
    pub(crate) fn of_rank(&self, job: JobId, rank: Rank) -> Option<u32> {
        self.by_rank.get(&(job, rank)).copied()
    }

    /// The connections of a job that are sockets.
    pub(crate) fn of_job(&self, job: JobId) -> Vec<u32> {
        let of_job = |&id: &u32| self.get(id).is_some_and(|conn| conn.job == job && conn.socket().is_some());
        (0..self.all.len() as u32).filter(of_job).collect()
    }

    /// Returns whether another connection can be opened.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.all.len() < self.limit as usize
    }

    /// The oldest connection whose client has not introduced itself, and the time when it was opened.
    pub(crate) fn oldest_incoming(&mut self) -> Option<(u32, u64)> {
        while let Some(&(id, opened)) = self.incoming.front() {
            let conn = &self.all[id as usize];
            if conn.incoming && conn.opened == opened {
                return Some((id, opened));
            }
            self.incoming.pop_front();
        }
        None
    }

    /// The connections to a job without a handshake.
    pub(crate) fn incoming(&self, job: JobId) -> Vec<u32> {
        let open = |&(id, _): &(u32, u64)| {
            let conn = &self.all[id as usize];
            (conn.incoming && !conn.queries && conn.job == job).then_some(id)
        };
        self.incoming.iter().filter_map(open).collect()
    }
}

impl Conn {
    fn is_open(&self) -> bool {
        !matches!(self.transport, Transport::Closed)
    }

    /// The socket, unless the owner of the driver carries the bytes.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        if let Transport::Socket(fd) = &self.transport { Some(fd) } else { None }
    }

    /// Notes whether the owner of the driver takes replies to an external connection.
    pub(crate) fn set_blocked(&mut self, now: bool) {
        if let Transport::External { blocked } = &mut self.transport {
            *blocked = now;
        }
    }

    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// Notes that bytes of a request have arrived.
    pub(crate) fn received_request(&mut self) {
        self.incoming &= !self.queries;
    }

    pub(crate) fn rank(&self) -> Option<Rank> {
        self.rank
    }

    /// Returns whether a reply waits for the socket, or for the owner of the driver. No requests are read meanwhile.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty() || matches!(self.transport, Transport::External { blocked: true })
    }

    /// Has the client handed over if it turns out to be a tool, and no rank of that job.
    pub(crate) fn hand_over_tool(&mut self, jobid: &str) {
        self.ranks_of = Some(jobid.into());
    }

    /// Returns whether a client that has sent these bytes is a tool to be handed over.
    pub(crate) fn is_tool(&self, bytes: &[u8]) -> bool {
        let Some(jobid) = &self.ranks_of else { return false };
        let Ok(Some(Frame::Hello { body, .. })) = next_frame(bytes) else { return false };
        Hello::decode(body).is_some_and(|hello| match hello.kind {
            Kind::Client => false,
            // libpmix calls each tool in the environment of a rank so, also one that names itself.
            Kind::ClientTool => hello.namespace != jobid.as_bytes(),
            Kind::Tool | Kind::NamedTool => true,
        })
    }

    /// Has the connection wait while the inbox is full.
    pub(crate) fn let_pause(&mut self) {
        self.may_pause = true;
    }

    /// Pauses the connection if the inbox, which has this much room, is full, and goes on otherwise. Returns whether that is a
    /// change.
    pub(crate) fn pause_if_full(&mut self, room: usize) -> bool {
        let is_full = self.may_pause && self.waiting && self.held.len() >= room;
        std::mem::replace(&mut self.is_paused, is_full) != is_full
    }

    /// Returns whether the connection is not read because the inbox is full.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns the number of bytes that the backend has not consumed.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns whether deferred requests are pending.
    pub(crate) fn is_deferred(&self) -> bool {
        self.waiting
    }

    /// The inbox, in a buffer that is at least as long as the bytes that it holds.
    pub(crate) fn inbox<'b>(&self, buffer: &'b mut [u8]) -> Inbox<&'b mut [u8]> {
        let held = self.held.len();
        buffer[..held].copy_from_slice(&self.held);
        Inbox::continued(buffer, held, self.waiting)
    }

    /// Reads once to the space of the inbox.
    pub(crate) fn receive(&self, inbox: &mut Inbox<&mut [u8]>) -> Received {
        let space = inbox.space();
        if space.is_empty() {
            return if self.may_pause && self.waiting { Received::Nothing } else { Received::Overrun };
        }
        let room = if self.incoming { space.len().min(INTRODUCTION_READ) } else { space.len() };
        let Some(socket) = self.socket() else { return Received::Nothing };
        loop {
            return match recv(socket, &mut space[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => Received::End,
                Ok((new, _)) => Received::Bytes(new),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                // No error is temporary.
                Err(_) => Received::End,
            };
        }
    }

    /// Returns what a client may speak if its first byte, in the inbox after a read, is that of another protocol.
    pub(crate) fn refused(&self, inbox: &mut Inbox<&mut [u8]>) -> Option<Speaks> {
        let first = inbox.held().first().copied().unwrap_or_else(|| inbox.space()[0]);
        (self.incoming && !self.speaks.admits(first)).then_some(self.speaks)
    }

    /// Keeps the bytes that the backend did not consume.
    pub(crate) fn keep(&mut self, inbox: &Inbox<&mut [u8]>) {
        self.held.clear();
        if inbox.held().is_empty() {
            // Most requests come whole, and most connections never need this memory again.
            self.held = Vec::new();
        }
        self.held.extend_from_slice(inbox.held());
        self.waiting = inbox.is_waiting();
    }

    /// Has so many bytes of replies dropped.
    pub(crate) fn hide(&mut self, len: usize) {
        self.hidden = len;
    }

    /// Sends a reply and buffers the bytes that the socket does not accept.
    pub(crate) fn send(&mut self, reply: &[u8]) -> Sent {
        let hidden = self.hidden.min(reply.len());
        self.hidden -= hidden;
        let reply = &reply[hidden..];
        let sent = self.write(reply);
        if sent == reply.len() {
            return Sent::All;
        }
        self.unsent.extend_from_slice(&reply[sent..]);
        self.sent = 0;
        Sent::Blocked
    }

    /// Buffers a message behind what the socket has not taken, if that is at most `max` bytes long.
    pub(crate) fn queue(&mut self, message: &[u8], max: usize) -> bool {
        let fits = !self.unsent.is_empty() && self.unsent.len() - self.sent <= max;
        if fits {
            self.unsent.extend_from_slice(message);
        }
        fits
    }

    /// Sends the buffered bytes of a reply.
    pub(crate) fn flush(&mut self) -> Sent {
        let unsent = std::mem::take(&mut self.unsent);
        self.sent += self.write(&unsent[self.sent..]);
        if self.sent == unsent.len() {
            self.sent = 0;
            return Sent::All;
        }
        self.unsent = unsent;
        Sent::Blocked
    }

    /// Writes the bytes that the socket accepts. All bytes count as accepted if the client has closed the connection.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let Transport::Socket(socket) = &self.transport else { return bytes.len() };
        while at < bytes.len() && !self.closed_by_peer {
            match send(socket, &bytes[at..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return at,
                Err(_) => self.closed_by_peer = true,
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const JOB: JobId = JobId(2);

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn the_answer_to_an_introduction_that_the_client_has_had_is_not_sent() {
        let (ours, theirs) = pair();
        let mut conn = Conn { transport: Transport::Socket(ours), ..Conn::default() };
        conn.hide(5);
        for reply in ["hel", "lo wor", "ld"] {
            assert_eq!(conn.send(reply.as_bytes()), Sent::All);
        }
        let mut got = [0; 16];
        let (len, _) = recv(&theirs, &mut got[..], RecvFlags::DONTWAIT).unwrap();
        assert_eq!(&got[..len], b" world");
    }

    #[test]
    fn a_full_socket_keeps_the_rest_of_one_reply() {
        let (ours, theirs) = pair();
        let mut conns = Conns::new(1);
        let id = conns.insert(ours, JOB, 0).unwrap();
        conns.assign(id, JOB, Rank(0));
        let conn = conns.get_mut(id).unwrap();
        let reply = [b'r'; 2560];
        let mut replies = 1;
        while conn.send(&reply) == Sent::All {
            replies += 1;
        }
        assert!(conn.is_blocked());
        let mut read = 0;
        let mut buffer = vec![0; 1 << 20];
        while read < replies * reply.len() {
            read += recv(&theirs, &mut buffer[..], RecvFlags::empty()).unwrap().0;
            conn.flush();
        }
        assert!(!conn.is_blocked());
        drop(theirs);
        // Replies to a client that has closed the connection are dropped, and its requests are still read.
        assert_eq!(conn.send(&reply), Sent::All);
        assert_eq!(conn.receive(&mut conn.inbox(&mut buffer)), Received::End);
    }

    #[test]
    fn held_bytes_come_first() {
        let (ours, theirs) = pair();
        let mut conns = Conns::new(1);
        let id = conns.open_client(ours, JOB, Speaks::Any, 0).unwrap();
        let conn = conns.get_mut(id).unwrap();
        let mut buffer = [0; 8];
        let mut inbox = conn.inbox(&mut buffer);
        assert_eq!(conn.receive(&mut inbox), Received::Nothing);
        let mut held = *b"cmd=";
        conn.keep(&Inbox::continued(&mut held[..], 4, true));
        assert!(conn.is_deferred());
        send(&theirs, b"initack", SendFlags::empty()).unwrap();
        let mut inbox = conn.inbox(&mut buffer);
        assert_eq!(inbox.held(), b"cmd=");
        assert_eq!(conn.receive(&mut inbox), Received::Bytes(4));
        assert_eq!(&buffer, b"cmd=init");
        conn.keep(&Inbox::continued(&mut buffer[..], 8, true));
        let mut buffer = [0; 8];
        assert_eq!(conn.receive(&mut conn.inbox(&mut buffer)), Received::Overrun);
    }

    #[test]
    fn numbers_are_used_again_and_the_oldest_incoming_connection_is_known() {
        let mut conns = Conns::new(2);
        let a = conns.open_client(pair().0, JOB, Speaks::Any, 5).unwrap();
        let b = conns.open_client(pair().0, JOB, Speaks::Any, 6).unwrap();
        assert!(!conns.has_room() && conns.open_client(pair().0, JOB, Speaks::Any, 7).is_none());
        conns.assign(a, JOB, Rank(1));
        assert_eq!((conns.of_rank(JOB, Rank(1)), conns.oldest_incoming()), (Some(a), Some((b, 6))));
        conns.close(b);
        assert_eq!(conns.oldest_incoming(), None);
        assert_eq!(conns.open_client(pair().0, JOB, Speaks::Any, 8), Some(b));
        assert_eq!((conns.oldest_incoming(), conns.incoming(JOB)), (Some((b, 8)), vec![b]));
        assert_eq!((conns.incoming(JobId(0)), conns.of_job(JobId(0))), (Vec::new(), Vec::new()));
        assert_eq!(conns.of_job(JOB), [a, b]);
        conns.close(a);
        assert_eq!((conns.of_rank(JOB, Rank(1)), conns.of_job(JOB)), (None, vec![b]));
    }

    #[test]
    fn a_second_connection_of_a_rank_outlives_the_first() {
        let mut conns = Conns::new(3);
        let a = conns.insert(pair().0, JOB, 0).unwrap();
        conns.assign(a, JOB, Rank(0));
        let b = conns.insert(pair().0, JOB, 0).unwrap();
        conns.assign(b, JOB, Rank(0));
        conns.close(a);
        assert_eq!(conns.of_rank(JOB, Rank(0)), Some(b));
    }

    #[test]
    fn a_connection_for_queries_is_introduced_by_its_first_request() {
        let mut conns = Conns::new(3);
        let query = conns.open_query(pair().0, JOB, 5).unwrap();
        assert_eq!((conns.oldest_incoming(), conns.incoming(JOB)), (Some((query, 5)), Vec::new()));
        conns.get_mut(query).unwrap().received_request();
        assert_eq!(conns.oldest_incoming(), None);
    }
}
