//! Sockets as a network stack of a board is to have them.

use core::net::SocketAddrV4;

/// State of a [`Socket`] as RFC 9293 has it. A closed socket may [listen](Socket::listen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)]
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// TCP socket. No method waits.
pub trait Socket {
    /// Returns its state.
    fn state(&self) -> State;

    /// Returns the port that it listens to, or has listened to last.
    fn listen_port(&self) -> u16;

    /// Returns the local port of its connection.
    fn local_port(&self) -> Option<u16>;

    /// Has a closed socket listen to a port, which is not 0.
    fn listen(&mut self, port: u16);

    /// Closes the connection after what is queued has been sent.
    fn close(&mut self);

    /// Resets the connection. The socket is closed at once, or before the next [`turn`](crate::turn).
    fn abort(&mut self);

    /// Returns whether bytes can be queued, or could if there were room.
    fn may_send(&self) -> bool;

    /// Returns whether there are, or may come, bytes to receive.
    fn may_recv(&self) -> bool;

    /// Passes the first received bytes that lie in one piece, perhaps none, and drops as many of them as the function returns
    /// first. Returns None if none are there or may come.
    fn recv<R>(&mut self, take: impl FnOnce(&mut [u8]) -> (usize, R)) -> Option<R>;

    /// Copies the first received bytes and keeps them. Returns how many were copied, or None as [`recv`](Socket::recv) does.
    fn peek_slice(&mut self, buf: &mut [u8]) -> Option<usize>;

    /// Copies the first received bytes and drops them. Returns how many they are, 0 if none may come.
    fn recv_slice(&mut self, buf: &mut [u8]) -> usize;

    /// Queues the first of these bytes. Returns how many, or None if the connection is over.
    fn send_slice(&mut self, bytes: &[u8]) -> Option<usize>;

    /// Returns how many received bytes are there.
    fn recv_queue(&self) -> usize;

    /// Returns for how many received bytes there is room.
    fn recv_capacity(&self) -> usize;

    /// Returns how many queued bytes have not been acknowledged.
    fn send_queue(&self) -> usize;

    /// Returns for how many queued bytes there is room.
    fn send_capacity(&self) -> usize;
}

/// Network of a board: its sockets.
pub trait Net {
    /// Name of a socket.
    type Handle: Copy + PartialEq;
    /// The sockets.
    type Socket: Socket;

    /// Returns a socket.
    fn socket(&self, handle: Self::Handle) -> &Self::Socket;

    /// Returns a socket.
    fn socket_mut(&mut self, handle: Self::Handle) -> &mut Self::Socket;

    /// Begins to connect a socket. A failure shows in its state.
    fn connect(&mut self, handle: Self::Handle, addr: SocketAddrV4);

    /// Gives a peer up that has acknowledged nothing for so many milliseconds. `None` for the usual time.
    fn set_patience(&mut self, handle: Self::Handle, silence: Option<u64>);

    /// Sends what is pending and receives what has come, unless that happens by itself between turns.
    fn poll(&mut self);

    /// Sends all of these bytes, or keeps what there is no room for and [is full](Net::is_full) meanwhile. The other side is
    /// given up when it has read nothing for that many milliseconds. Returns false then, or if the connection is lost.
    fn send_all(&mut self, handle: Self::Handle, bytes: &[u8], patience: Option<u64>) -> bool;

    /// Returns whether no inputs are to be handled, because bytes of [`Net::send_all`] wait.
    fn is_full(&self) -> bool;

    /// Returns for how many milliseconds [`Net::send_all`] has waited without end, since the last call.
    fn take_waited(&mut self) -> u64;
}
