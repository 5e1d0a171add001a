//! The PMI connections: sockets, what is on its way, and what passes between them and the core.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::{ConnId, Input, JobId, Time};
use hydrant_reactor::{Interest, KeyRange, Poller, Sent};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::border::{AnyBackend, BackendError};
use crate::error::RunError;

/// How long a client may take to say who it is, in milliseconds.
pub(crate) const HANDSHAKE_TIMEOUT: u64 = 10_000;

/// All PMI connections, by their number.
#[derive(Debug)]
pub(crate) struct Conns {
    all: Vec<Conn>,
    free: Vec<u32>,
    /// The most there may be.
    limit: u32,
    keys: KeyRange,
    /// The connection of each process.
    of_process: Vec<Option<u32>>,
    /// Connections that had not said who they are, from the oldest on, with the time they came. Some of them may have
    /// said so since.
    unnamed: VecDeque<(u32, u64)>,
    /// Connections with messages to hand in again.
    again: Vec<u32>,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    fd: Option<OwnedFd>,
    opened: u64,
    /// The job that it came for.
    job: JobId,
    process: Option<u32>,
    /// Bytes that the core has not consumed. Without memory of its own unless a message came in pieces.
    inbox: Vec<u8>,
    /// The rest of a reply that the socket did not take, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// A whole message waits in `inbox` until a reply has been taken.
    again: bool,
    /// The client is gone: what it sent is still heard, what it is told is dropped.
    deaf: bool,
}

/// What a socket had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes stand in the buffer, with those that were waiting.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The client closed its end.
    End,
    /// The client says more than there is room for while nobody takes the replies that it is owed.
    Overrun,
}

/// What is said of a client for [`Received::Overrun`].
pub(crate) const OVERRUN: &str = "it goes on asking while as many replies as may be are under way, and the buffer for \
                                  what it said is full";

impl Conns {
    pub(crate) fn new(limit: u32, keys: KeyRange) -> Conns {
        let (all, free, of_process) = (Vec::new(), Vec::new(), Vec::new());
        Conns { all, free, limit, keys, of_process, unnamed: VecDeque::new(), again: Vec::new() }
    }

    /// There may be processes up to this number.
    pub(crate) fn make_room(&mut self, processes: u32) {
        if self.of_process.len() < processes as usize {
            self.of_process.resize(processes as usize, None);
        }
    }

    /// Takes a socket in; nothing when there are as many as there may be.
    pub(crate) fn open(&mut self, fd: OwnedFd, job: JobId, process: Option<u32>, now: u64) -> Option<u32> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.all.len() < self.limit as usize => {
                self.all.push(Conn::default());
                self.all.len() as u32 - 1
            }
            None => return None,
        };
        self.all[id as usize] = Conn { fd: Some(fd), opened: now, job, ..Conn::default() };
        match process {
            Some(process) => self.name(id, process),
            None => self.unnamed.push_back((id, now)),
        }
        Some(id)
    }

    /// Takes in a socket for queries, which is no process's and need not become one's.
    pub(crate) fn open_aside(&mut self, fd: OwnedFd, job: JobId, now: u64) -> Option<u32> {
        let id = self.open(fd, job, None, now)?;
        // It was the last to come.
        self.unnamed.pop_back();
        Some(id)
    }

    /// The connection has become a process's.
    pub(crate) fn name(&mut self, id: u32, process: u32) {
        self.all[id as usize].process = Some(process);
        self.of_process[process as usize] = Some(id);
    }

    /// The connection is over; its socket closes.
    pub(crate) fn close(&mut self, id: u32) {
        let conn = std::mem::take(&mut self.all[id as usize]);
        if conn.fd.is_some() {
            self.free.push(id);
        }
        // The process may have opened another one.
        if let Some(process) = conn.process
            && self.of_process[process as usize] == Some(id)
        {
            self.of_process[process as usize] = None;
        }
    }

    /// An open connection.
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Conn> {
        self.all.get_mut(id as usize).filter(|conn| conn.fd.is_some())
    }

    pub(crate) fn of_process(&self, process: u32) -> Option<u32> {
        self.of_process[process as usize]
    }

    /// The open connections that came for a job.
    pub(crate) fn of_job(&self, job: JobId) -> Vec<u32> {
        let of_job = |id: &u32| {
            let conn = &self.all[*id as usize];
            conn.fd.is_some() && conn.job == job
        };
        (0..self.all.len() as u32).filter(of_job).collect()
    }

    /// Whether one more can be taken in.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.all.len() < self.limit as usize
    }

    /// The oldest connection that has not said who it is, and when it came.
    pub(crate) fn oldest_unnamed(&mut self) -> Option<(u32, u64)> {
        while let Some(&(id, opened)) = self.unnamed.front() {
            let conn = &self.all[id as usize];
            if conn.fd.is_some() && conn.process.is_none() && conn.opened == opened {
                return Some((id, opened));
            }
            self.unnamed.pop_front();
        }
        None
    }

    /// All connections that came for a job and have not said who they are.
    pub(crate) fn unnamed(&self, job: JobId) -> Vec<u32> {
        let open = |&(id, _): &(u32, u64)| {
            let conn = &self.all[id as usize];
            (conn.fd.is_some() && conn.process.is_none() && conn.job == job).then_some(id)
        };
        self.unnamed.iter().filter_map(open).collect()
    }

    /// A connection can be read or written to: reads once and hands in what came, or writes on. What it had, where it
    /// was read.
    pub(crate) fn ready(
        &mut self,
        id: u32,
        core: &mut AnyBackend<'_>,
        (poller, now): (&Poller, Time),
        buffer: &mut [u8],
    ) -> Result<Received, RunError> {
        match self.get(id) {
            Some(conn) if conn.is_blocked() => {
                self.write_on(id, core, (poller, now))?;
                Ok(Received::Nothing)
            }
            _ => self.read(id, core, now, buffer),
        }
    }

    /// Reads once and hands in what came.
    pub(crate) fn read(
        &mut self,
        id: u32,
        core: &mut AnyBackend<'_>,
        now: Time,
        buffer: &mut [u8],
    ) -> Result<Received, RunError> {
        let conn = self.get(id).filter(|conn| !conn.is_blocked());
        let Some(conn) = conn else { return Ok(Received::Nothing) };
        let received = conn.receive(buffer);
        if let Received::Bytes(len) = received {
            conn.hand_in(core, now, id, &buffer[..len])?;
        }
        Ok(received)
    }

    /// Writes on what the socket did not take; once that is out, the core may say more.
    pub(crate) fn write_on(
        &mut self,
        id: u32,
        core: &mut AnyBackend<'_>,
        (poller, now): (&Poller, Time),
    ) -> Result<(), RunError> {
        let key = self.keys.key(0, id);
        let Some(conn) = self.get(id) else { return Ok(()) };
        if conn.flush() == Sent::All {
            poller.modify(conn.fd(), key, Interest::Read)?;
            core.handle(now, Input::Writable { conn: ConnId(id) })?;
            self.again.push(id);
        }
        Ok(())
    }

    /// Sends a reply of the core's.
    pub(crate) fn deliver(
        &mut self,
        id: ConnId,
        reply: &[u8],
        core: &mut AnyBackend<'_>,
        (poller, now): (&Poller, Time),
    ) -> Result<(), RunError> {
        let key = self.keys.key(0, id.0);
        let Some(conn) = self.get(id.0) else { return Ok(()) };
        if conn.send(reply) == Sent::All {
            if conn.again {
                self.again.push(id.0);
            }
            return Ok(());
        }
        poller.modify(conn.fd(), key, Interest::Write)?;
        core.handle(now, Input::Blocked { conn: id })?;
        Ok(())
    }

    /// Hands in what one connection said and the core left until its replies were taken; whether there was one.
    pub(crate) fn hand_in_again(&mut self, core: &mut AnyBackend<'_>, now: Time) -> Result<bool, RunError> {
        let Some(id) = self.again.pop() else { return Ok(false) };
        if let Some(conn) = self.get(id)
            && let Some(bytes) = conn.take_again()
        {
            conn.hand_in(core, now, id, &bytes)?;
        }
        Ok(true)
    }
}

impl Conn {
    /// The socket.
    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("only open connections are handed out")
    }

    /// The job that it came for.
    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    pub(crate) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether a reply waits for the socket. Nothing is read meanwhile.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Puts what was waiting to the front of `buffer` and reads once behind it.
    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let held = self.inbox.len();
        if held >= buffer.len() {
            return Received::Overrun;
        }
        buffer[..held].copy_from_slice(&self.inbox);
        loop {
            return match recv(self.fd(), &mut buffer[held..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => Received::End,
                Ok((len, _)) => Received::Bytes(held + len),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                // Whatever else it says, nothing more will come.
                Err(_) => Received::End,
            };
        }
    }

    /// Gives the core the bytes of connection `id`, this one, and keeps what it did not consume.
    fn hand_in(
        &mut self,
        core: &mut AnyBackend<'_>,
        now: Time,
        id: u32,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let full = bytes.len() >= MESSAGE_MAX as usize;
        let consumed = core.handle(now, Input::Bytes { conn: ConnId(id), bytes, full })?;
        self.keep(&bytes[consumed.bytes as usize..], consumed.again);
        Ok(())
    }

    fn keep(&mut self, rest: &[u8], again: bool) {
        self.inbox.clear();
        if rest.is_empty() {
            // Most messages come whole, and most connections never need this memory again.
            self.inbox = Vec::new();
        }
        self.inbox.extend_from_slice(rest);
        self.again = again;
    }

    /// What is to be handed in again now that a reply has been taken.
    fn take_again(&mut self) -> Option<Vec<u8>> {
        (!self.is_blocked() && std::mem::take(&mut self.again)).then(|| std::mem::take(&mut self.inbox))
    }

    /// Sends a reply.
    fn send(&mut self, reply: &[u8]) -> Sent {
        let sent = self.write(reply);
        if sent == reply.len() {
            return Sent::All;
        }
        self.unsent.extend_from_slice(&reply[sent..]);
        self.sent = 0;
        Sent::Blocked
    }

    /// Sends on.
    fn flush(&mut self) -> Sent {
        let unsent = std::mem::take(&mut self.unsent);
        self.sent += self.write(&unsent[self.sent..]);
        if self.sent == unsent.len() {
            self.sent = 0;
            return Sent::All;
        }
        self.unsent = unsent;
        Sent::Blocked
    }

    /// Writes as much as the socket takes; all of it where nobody is there to take it.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.deaf {
            match send(self.fd(), &bytes[at..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => at += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return at,
                Err(_) => self.deaf = true,
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
    fn a_full_socket_keeps_the_rest_of_one_reply() {
        let (ours, theirs) = pair();
        let mut conns = Conns::new(1, KeyRange(0));
        conns.make_room(1);
        let id = conns.open(ours, JOB, Some(0), 0).unwrap();
        let conn = conns.get(id).unwrap();
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
        // Nobody is there: replies vanish, and what had been sent before is still read.
        assert_eq!(conn.send(&reply), Sent::All);
        assert_eq!(conn.receive(&mut buffer), Received::End);
    }

    #[test]
    fn leftovers_come_first() {
        let (ours, theirs) = pair();
        let mut conns = Conns::new(1, KeyRange(0));
        let id = conns.open(ours, JOB, None, 0).unwrap();
        let conn = conns.get(id).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(conn.receive(&mut buffer), Received::Nothing);
        send(&theirs, b"cmd=", SendFlags::empty()).unwrap();
        assert_eq!(conn.receive(&mut buffer), Received::Bytes(4));
        conn.keep(b"cmd=", false);
        send(&theirs, b"init", SendFlags::empty()).unwrap();
        assert_eq!(conn.receive(&mut buffer), Received::Bytes(8));
        assert_eq!(&buffer[..8], b"cmd=init");
    }

    #[test]
    fn what_fills_the_buffer_and_is_left_there_is_no_end() {
        let (ours, theirs) = pair();
        let mut conns = Conns::new(1, KeyRange(0));
        let id = conns.open(ours, JOB, None, 0).unwrap();
        let conn = conns.get(id).unwrap();
        let mut buffer = [0; 8];
        send(&theirs, b"cmd=initack", SendFlags::empty()).unwrap();
        assert_eq!(conn.receive(&mut buffer), Received::Bytes(8));
        conn.keep(&buffer, true);
        assert_eq!(conn.receive(&mut buffer), Received::Overrun);
        conn.keep(b"", false);
        assert_eq!(conn.receive(&mut buffer), Received::Bytes(3));
    }

    #[test]
    fn numbers_are_used_again_and_the_oldest_stranger_is_known() {
        let mut conns = Conns::new(2, KeyRange(0));
        conns.make_room(2);
        let a = conns.open(pair().0, JOB, None, 5).unwrap();
        let b = conns.open(pair().0, JOB, None, 6).unwrap();
        assert!(!conns.has_room() && conns.open(pair().0, JOB, None, 7).is_none());
        conns.name(a, 1);
        assert_eq!((conns.of_process(1), conns.oldest_unnamed()), (Some(a), Some((b, 6))));
        conns.close(b);
        assert_eq!(conns.oldest_unnamed(), None);
        assert_eq!(conns.open(pair().0, JOB, None, 8), Some(b));
        assert_eq!((conns.oldest_unnamed(), conns.unnamed(JOB)), (Some((b, 8)), vec![b]));
        assert_eq!((conns.unnamed(JobId(0)), conns.of_job(JobId(0))), (Vec::new(), Vec::new()));
        assert_eq!(conns.of_job(JOB), [a, b]);
        conns.close(a);
        assert_eq!((conns.of_process(1), conns.of_job(JOB)), (None, vec![b]));
    }
}
