//! Sockets of smoltcp.

use smoltcp::socket::tcp;

use crate::net::{Socket, State};

impl Socket for tcp::Socket<'_> {
    fn state(&self) -> State {
        // The same, so that it costs nothing.
        match self.state() {
            tcp::State::Closed => State::Closed,
            tcp::State::Listen => State::Listen,
            tcp::State::SynSent => State::SynSent,
            tcp::State::SynReceived => State::SynReceived,
            tcp::State::Established => State::Established,
            tcp::State::FinWait1 => State::FinWait1,
            tcp::State::FinWait2 => State::FinWait2,
            tcp::State::CloseWait => State::CloseWait,
            tcp::State::Closing => State::Closing,
            tcp::State::LastAck => State::LastAck,
            tcp::State::TimeWait => State::TimeWait,
        }
    }

    fn listen_port(&self) -> u16 {
        self.listen_endpoint().port
    }

    fn local_port(&self) -> Option<u16> {
        Some(self.local_endpoint()?.port)
    }

    fn listen(&mut self, port: u16) {
        // It cannot fail: the port is not 0, and the socket is closed.
        let _ = self.listen(port);
    }

    fn close(&mut self) {
        self.close();
    }

    fn abort(&mut self) {
        self.abort();
    }

    fn may_send(&self) -> bool {
        self.may_send()
    }

    fn may_recv(&self) -> bool {
        self.may_recv()
    }

    fn recv<R>(&mut self, take: impl FnOnce(&mut [u8]) -> (usize, R)) -> Option<R> {
        self.recv(take).ok()
    }

    fn peek_slice(&mut self, buf: &mut [u8]) -> Option<usize> {
        self.peek_slice(buf).ok()
    }

    fn recv_slice(&mut self, buf: &mut [u8]) -> usize {
        self.recv_slice(buf).unwrap_or(0)
    }

    fn send_slice(&mut self, bytes: &[u8]) -> Option<usize> {
        self.send_slice(bytes).ok()
    }

    fn recv_queue(&self) -> usize {
        self.recv_queue()
    }

    fn recv_capacity(&self) -> usize {
        self.recv_capacity()
    }

    fn send_queue(&self) -> usize {
        self.send_queue()
    }

    fn send_capacity(&self) -> usize {
        self.send_capacity()
    }
}
