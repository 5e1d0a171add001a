//! Sockets of embassy-net as [`hydrant_embedded`] sees them: each method polls a future of embassy-net once.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use embassy_net::IpEndpoint;
use embassy_net::tcp::{self, TcpSocket};
use hydrant_embedded::{Socket, State};

use crate::millis;

/// Milliseconds until a socket is used again whose reset cannot be sent.
const RESET_MS: u64 = 1000;

/// A socket, and bytes that it has received. embassy-net wakes a task for bytes only while its own buffer is empty, so the
/// beginning of a message lies here.
pub struct Buffered {
    pub(crate) tcp: TcpSocket<'static>,
    inbox: &'static mut [u8],
    len: usize,
    listens_to: u16,
    aborted: u64,
}

/// Polls a future once, without a waker: [`Buffered::register`] has the task woken.
fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl Buffered {
    pub(crate) fn new(tcp: TcpSocket<'static>, inbox: &'static mut [u8]) -> Buffered {
        Buffered { tcp, inbox, len: 0, listens_to: 0, aborted: 0 }
    }

    /// Begins to connect a closed socket. A failure shows in its state.
    pub(crate) fn connect(&mut self, to: IpEndpoint) {
        self.len = 0;
        let _ = once(self.tcp.connect(to));
    }

    /// Takes over what has been received.
    pub(crate) fn fill(&mut self) {
        while self.len < self.inbox.len() && self.tcp.can_recv() {
            let Some(Ok(read)) = once(self.tcp.read(&mut self.inbox[self.len..])) else { return };
            self.len += read;
        }
    }

    /// Has the task woken when the socket changes. Returns whether it has changed.
    pub(crate) fn register(&mut self, cx: &mut Context<'_>) -> bool {
        let has_room = self.len < self.inbox.len();
        if has_room && pin!(self.tcp.wait_read_ready()).poll(cx).is_ready() {
            return true;
        }
        // Bytes, an end or a reset that are to be sent.
        let is_sent = pin!(self.tcp.flush()).poll(cx).is_ready();
        if is_sent && !has_room {
            // A write of nothing waits for the end of the connection.
            let _ = pin!(self.tcp.write(&[])).poll(cx);
        }
        false
    }
}

impl Socket for Buffered {
    fn state(&self) -> State {
        // While bytes wait in embassy-net's buffer, the connection is not over.
        let is_read = self.tcp.recv_queue() == 0;
        match self.tcp.state() {
            // embassy-net would not send the reset of a socket that listens again.
            tcp::State::Closed
                if self.tcp.remote_endpoint().is_some() && millis() < self.aborted + RESET_MS =>
            {
                State::Closing
            }
            tcp::State::Closed => State::Closed,
            tcp::State::Listen => State::Listen,
            tcp::State::SynSent => State::SynSent,
            tcp::State::SynReceived => State::SynReceived,
            tcp::State::Established => State::Established,
            tcp::State::FinWait1 => State::FinWait1,
            tcp::State::FinWait2 => State::FinWait2,
            tcp::State::CloseWait if is_read => State::CloseWait,
            tcp::State::CloseWait => State::Established,
            tcp::State::Closing => State::Closing,
            tcp::State::LastAck => State::LastAck,
            tcp::State::TimeWait => State::TimeWait,
        }
    }

    fn listen_port(&self) -> u16 {
        self.listens_to
    }

    fn local_port(&self) -> Option<u16> {
        Some(self.tcp.local_endpoint()?.port)
    }

    fn listen(&mut self, port: u16) {
        (self.len, self.listens_to) = (0, port);
        let _ = once(self.tcp.accept(port));
    }

    fn close(&mut self) {
        self.tcp.close();
    }

    fn abort(&mut self) {
        (self.len, self.aborted) = (0, millis());
        self.tcp.abort();
    }

    fn may_send(&self) -> bool {
        self.tcp.may_send()
    }

    fn may_recv(&self) -> bool {
        self.len > 0 || self.tcp.may_recv()
    }

    fn recv<R>(&mut self, take: impl FnOnce(&mut [u8]) -> (usize, R)) -> Option<R> {
        if !self.may_recv() {
            return None;
        }
        let (taken, result) = take(&mut self.inbox[..self.len]);
        self.inbox.copy_within(taken..self.len, 0);
        self.len -= taken;
        self.fill();
        Some(result)
    }

    fn peek_slice(&mut self, buf: &mut [u8]) -> Option<usize> {
        let len = buf.len().min(self.len);
        buf[..len].copy_from_slice(&self.inbox[..len]);
        self.may_recv().then_some(len)
    }

    fn recv_slice(&mut self, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() && self.len > 0 {
            let rest = &mut buf[done..];
            done += self
                .recv(|bytes| {
                    let len = rest.len().min(bytes.len());
                    rest[..len].copy_from_slice(&bytes[..len]);
                    (len, len)
                })
                .unwrap_or(0);
        }
        done
    }

    fn send_slice(&mut self, bytes: &[u8]) -> Option<usize> {
        match once(self.tcp.write(bytes)) {
            None => Some(0),
            Some(sent) => sent.ok(),
        }
    }

    fn recv_queue(&self) -> usize {
        self.len
    }

    fn recv_capacity(&self) -> usize {
        self.inbox.len()
    }

    fn send_queue(&self) -> usize {
        self.tcp.send_queue()
    }

    fn send_capacity(&self) -> usize {
        self.tcp.send_capacity()
    }
}
