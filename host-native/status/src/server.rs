//! Server of the status socket, as a part of an event loop.

use std::os::fd::OwnedFd;

use hydrant_reactor::local::{Accepted, LocalListener};
use hydrant_reactor::{Interest, Key, KeyRange, Listener, NO_SIGPIPE, Poller, random_u32};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Signal, geteuid, getpid, kill_process};

use crate::Error;
use crate::address::Address;
use crate::protocol::{REQUEST_MAX, Reply, Request, decode, encode, message_len};

/// Most clients at a time.
pub(crate) const CLIENTS_MAX: usize = 8;
/// Most clients at a time that get output.
pub(crate) const ATTACHED_MAX: usize = 4;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Milliseconds after which a client without a request is closed.
const IDLE_TIMEOUT: u64 = 10_000;
/// Milliseconds after which a client whose request has no reply is closed. Hosts may have to compile a plugin before.
const REPLY_TIMEOUT: u64 = 120_000;
/// Bytes of output that may be pending for a client. More are lost.
const OUTPUT_MAX: usize = 256 * 1024;

/// Most descriptors of a server: the listening socket and its clients.
pub const FILES: u64 = 1 + CLIENTS_MAX as u64;
/// Signals that a run acts on as a whole.
const SIGNALS: [Signal; 9] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::KILL,
];

/// Kind of the listening socket's key.
const LISTENER: u16 = 0;
/// Kind of the clients' keys.
const CLIENT: u16 = 1;

/// Number of a client, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(u64);

/// Status socket of this process.
///
/// The owner passes ready keys to [`ready`](StatusServer::ready) and answers each request that it returns by
/// [`reply`](StatusServer::reply), [`attach`](StatusServer::attach) or [`take_signal`](StatusServer::take_signal), at
/// once or later. No call waits. At most 8 clients of this user are served, each with one request under way.
#[derive(Debug)]
pub struct StatusServer {
    listener: Listener<LocalListener>,
    address: Address,
    keys: KeyRange,
    clients: [Option<Client>; CLIENTS_MAX],
    /// Number of the latest client.
    latest: u64,
}

#[derive(Debug)]
struct Client {
    id: ClientId,
    fd: OwnedFd,
    key: Key,
    /// Part of a request.
    request: Vec<u8>,
    /// A request waits for its reply.
    waits: bool,
    /// It waits until hosts have joined or left, which takes as long as the owner allows.
    awaits_hosts: bool,
    /// Bytes to send, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    attached: bool,
    /// Bytes of output that were lost since the last notice.
    lost: u64,
    /// Time of the latest request.
    active: u64,
    interest: Interest,
}

/// Whether a client stays connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    Open,
    Closed,
}

impl StatusServer {
    /// Listens. The poller reports keys of the range `keys`, all of which are the server's.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(keys: KeyRange, poller: &Poller) -> Result<StatusServer, Error> {
        let address = Address::new(geteuid().as_raw(), std::process::id(), random_u32()?);
        let socket = LocalListener::open(address.name(), BACKLOG).map_err(Error::Listen)?;
        let listener = Listener::new(socket, keys.key(LISTENER, 0), poller)?;
        Ok(StatusServer { listener, address, keys, clients: Default::default(), latest: 0 })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Handles a ready key, at the time `now` in milliseconds. Returns a request.
    pub fn ready(&mut self, key: Key, poller: &Poller, now: u64) -> Option<(ClientId, Request)> {
        match self.keys.decode(key)? {
            (LISTENER, _) => {
                self.accept(poller, now);
                None
            }
            (_, index) => self.client_ready(index as usize, poller, now),
        }
    }

    /// Sends the reply to the request of a client, which may have gone.
    pub fn reply(&mut self, client: ClientId, reply: &Reply, poller: &Poller) {
        self.with(client, poller, |client| {
            (client.waits, client.awaits_hosts) = (false, false);
            client.out.extend(encode(reply));
        });
    }

    /// Sends all output to a client from now on, unless four clients get it already.
    pub fn attach(&mut self, client: ClientId, poller: &Poller) {
        if self.clients.iter().flatten().filter(|client| client.attached).count() >= ATTACHED_MAX {
            let why = format!("{ATTACHED_MAX} processes follow its output already");
            return self.reply(client, &Reply::Refused(why), poller);
        }
        self.with(client, poller, |client| {
            client.attached = true;
            client.waits = false;
            client.out.extend(encode(&Reply::Done));
        });
    }

    /// Carries out [`Request::Signal`] of a client: sends the signal to this process.
    pub fn take_signal(&mut self, client: ClientId, number: i32, poller: &Poller) {
        let Some(signal) = SIGNALS.into_iter().find(|signal| signal.as_raw() == number) else {
            let names = "HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and KILL";
            return self.reply(client, &Reply::Refused(format!("a job takes {names} only")), poller);
        };
        // The reply is written before the signal can end this process.
        self.reply(client, &Reply::Done, poller);
        let sent = kill_process(getpid(), signal);
        debug_assert!(sent.is_ok(), "a process may signal itself: {sent:?}");
    }

    /// Returns whether a client gets output.
    pub fn is_attached(&self) -> bool {
        self.clients.iter().flatten().any(|client| client.attached)
    }

    /// Sends output, or another notice, to the clients that are attached. A client that does not read loses it.
    pub fn send(&mut self, reply: &Reply, poller: &Poller) {
        let message = encode(reply);
        for slot in &mut self.clients {
            let Some(client) = slot.as_mut().filter(|client| client.attached) else { continue };
            if client.pending() + message.len() > OUTPUT_MAX {
                client.lost += message.len() as u64;
                continue;
            }
            client.report_lost();
            client.out.extend(&message);
            if client.flush(poller) == ClientState::Closed {
                *slot = None;
            }
        }
    }

    /// Time of the next [`handle_timeout`](StatusServer::handle_timeout) in milliseconds.
    pub fn poll_at(&self) -> Option<u64> {
        self.clients.iter().flatten().filter_map(Client::deadline).chain(self.listener.deadline()).min()
    }

    /// Closes clients that were silent for 10 s, and those that have waited for a reply for 2 minutes, except for hosts.
    pub fn handle_timeout(&mut self, poller: &Poller, now: u64) {
        for slot in &mut self.clients {
            if slot.as_ref().and_then(Client::deadline).is_some_and(|at| at <= now) {
                *slot = None;
            }
        }
        // The socket was watched before.
        let _ = self.listener.resume(poller, now);
    }

    /// Accepts one connection. More may be pending; the socket stays readable then.
    fn accept(&mut self, poller: &Poller, now: u64) {
        let stream = match self.listener.socket().accept() {
            Ok(Accepted::Own(stream)) => stream,
            Ok(Accepted::Foreign | Accepted::None) => return,
            Err(_) => return self.listener.pause(poller, now),
        };
        let Some(at) = self.place() else { return };
        let key = self.keys.key(CLIENT, at as u32);
        if poller.add(&stream, key, Interest::Read).is_err() {
            return;
        }
        self.latest += 1;
        let client = Client {
            id: ClientId(self.latest),
            fd: stream.into(),
            key,
            request: Vec::new(),
            waits: false,
            awaits_hosts: false,
            out: Vec::new(),
            sent: 0,
            attached: false,
            lost: 0,
            active: now,
            interest: Interest::Read,
        };
        self.clients[at] = Some(client);
    }

    /// A free place, or that of the client that was silent for longest. Attached clients keep theirs, and are fewer than
    /// places. So do those that wait for hosts, unless there are no others.
    fn place(&self) -> Option<usize> {
        if let Some(free) = self.clients.iter().position(Option::is_none) {
            return Some(free);
        }
        let at_rest = |(at, client): (usize, &Option<Client>)| {
            let client = client.as_ref().filter(|client| !client.attached)?;
            Some((client.awaits_hosts, client.active, client.id.0, at))
        };
        self.clients.iter().enumerate().filter_map(at_rest).min().map(|(.., at)| at)
    }

    fn client_ready(&mut self, at: usize, poller: &Poller, now: u64) -> Option<(ClientId, Request)> {
        let slot = self.clients.get_mut(at)?;
        let client = slot.as_mut()?;
        let received = match client.flush(poller) {
            ClientState::Open => client.receive(),
            ClientState::Closed => Err(Errno::PIPE),
        };
        match received {
            Ok(None) => None,
            Ok(Some(request)) => {
                (client.waits, client.active) = (true, now);
                client.awaits_hosts = matches!(request, Request::Grow(_) | Request::Shrink { .. });
                client.watch(poller);
                Some((client.id, request))
            }
            Err(_) => {
                *slot = None;
                None
            }
        }
    }

    /// Changes a client that is still there, and sends to it.
    fn with(&mut self, id: ClientId, poller: &Poller, change: impl FnOnce(&mut Client)) {
        let slot = self.clients.iter_mut().find(|slot| slot.as_ref().is_some_and(|client| client.id == id));
        if let Some(slot) = slot
            && let Some(client) = slot
        {
            change(client);
            if client.flush(poller) == ClientState::Closed {
                *slot = None;
            }
        }
    }
}

impl Client {
    /// Time at which the client is closed. None while it gets output or waits for hosts.
    fn deadline(&self) -> Option<u64> {
        let timeout = if self.waits { REPLY_TIMEOUT } else { IDLE_TIMEOUT };
        (!self.attached && !self.awaits_hosts).then_some(self.active + timeout)
    }

    fn pending(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Adds a notice about lost output.
    fn report_lost(&mut self) {
        if self.lost > 0 {
            self.out.extend(encode(&Reply::Lost(std::mem::take(&mut self.lost))));
        }
    }

    /// Sends what the socket takes.
    fn flush(&mut self, poller: &Poller) -> ClientState {
        while self.pending() > 0 {
            match send(&self.fd, &self.out[self.sent..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return ClientState::Closed,
            }
        }
        if self.pending() == 0 {
            (self.out, self.sent) = (Vec::new(), 0);
            if self.lost > 0 {
                self.report_lost();
                return self.flush(poller);
            }
        } else if self.sent > OUTPUT_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        self.watch(poller);
        ClientState::Open
    }

    /// Has the poller report what the client waits for next.
    fn watch(&mut self, poller: &Poller) {
        let interest = match (self.pending() > 0, self.attached, self.waits) {
            (true, true, _) => Interest::ReadWrite,
            (true, false, _) => Interest::Write,
            (false, _, true) => Interest::Hangup,
            (false, _, false) => Interest::Read,
        };
        if interest != self.interest && poller.modify(&self.fd, self.key, interest).is_ok() {
            self.interest = interest;
        }
    }

    /// Reads a part of a request. Returns the request when it is complete.
    ///
    /// # Errors
    /// The client has closed the connection, or sent bytes that are no request or that it may not send now.
    fn receive(&mut self) -> Result<Option<Request>, Errno> {
        let busy = self.waits || self.pending() > 0;
        loop {
            let len = message_len(&self.request).unwrap_or(4);
            if len > REQUEST_MAX + 4 {
                return Err(Errno::BADMSG);
            }
            if self.request.len() >= 4 && self.request.len() == len {
                let request = decode(&self.request).ok_or(Errno::BADMSG)?;
                self.request.clear();
                return Ok(Some(request));
            }
            let mut bytes = [0; REQUEST_MAX + 4];
            // A client with a reply under way is read for its end only.
            let flags = if busy { RecvFlags::DONTWAIT | RecvFlags::PEEK } else { RecvFlags::DONTWAIT };
            match recv(&self.fd, &mut bytes[..len - self.request.len()], flags) {
                Ok((_, 0)) => return Err(Errno::PIPE),
                Ok(_) if self.attached => return Err(Errno::BADMSG),
                Ok(_) if busy => return Ok(None),
                Ok((_, len)) => self.request.extend(&bytes[..len]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests;
