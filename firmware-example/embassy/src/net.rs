//! The sockets of a board, and bytes that wait for room in one.

use core::future::{Future, poll_fn};
use core::net::SocketAddrV4;
use core::pin::pin;
use core::task::Poll;

use embassy_net::{IpAddress, IpEndpoint};
use embassy_time::{Duration, Instant, Timer};
use hydrant_embedded::{Board, Sizes, Socket as _};

use crate::millis;
use crate::socket::Buffered;

/// Time after which a silent peer is given up, both while it owes an acknowledgement and otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest such time that a host may ask for.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The same for a host that is waited for: probes of a closed window are up to a minute apart.
const WAIT_PATIENCE: u64 = 130_000;
/// Interval of keep-alive packets to a silent peer.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// Sockets of a board.
pub struct Net {
    sockets: &'static mut [Buffered],
    /// Bytes that wait for room.
    buf: &'static mut [u8],
    waiting: Option<Waiting>,
    waited: u64,
}

/// Bytes at the beginning of the buffer that wait for room in a socket.
struct Waiting {
    handle: usize,
    len: usize,
    /// When the other side has read last, and when the wait began.
    since: u64,
    began: u64,
    patience: Option<u64>,
}

/// Most bytes that may wait: an input and what it says, recorded in pieces and encrypted.
pub const fn waiting<B: Board>() -> usize {
    let mut longest = B::REQUESTS;
    if longest < B::LONG {
        longest = B::LONG;
    }
    if longest < 2 * B::REPLY {
        longest = 2 * B::REPLY;
    }
    longest + longest / 4 + 512
}

impl Net {
    /// With a buffer of [`waiting`] bytes. The sockets are closed.
    #[doc(hidden)]
    pub fn new(sockets: &'static mut [Buffered], buf: &'static mut [u8]) -> Net {
        let mut net = Net { sockets, buf, waiting: None, waited: 0 };
        for handle in 0..net.sockets.len() {
            hydrant_embedded::Net::set_patience(&mut net, handle, None);
            net.sockets[handle].tcp.set_nagle_enabled(false);
        }
        net
    }

    /// Takes over what has been received, and sends what waits.
    pub(crate) fn refresh(&mut self) {
        self.sockets.iter_mut().for_each(Buffered::fill);
        let Some(waiting) = &mut self.waiting else { return };
        let (handle, now) = (waiting.handle, millis());
        let socket = &mut self.sockets[handle];
        let sent = socket.send_slice(&self.buf[..waiting.len]);
        let is_late = waiting.patience.is_some_and(|patience| now >= waiting.since + patience);
        match sent {
            Some(sent @ 1..) => {
                self.buf.copy_within(sent..waiting.len, 0);
                waiting.len -= sent;
                waiting.since = now;
            }
            Some(0) if is_late => {
                socket.abort();
                waiting.len = 0;
            }
            Some(_) => {}
            None => waiting.len = 0,
        }
        if waiting.len == 0 {
            let is_endless = waiting.patience.is_none();
            if is_endless {
                self.waited += now - waiting.began;
                hydrant_embedded::Net::set_patience(self, handle, None);
            }
            self.waiting = None;
        }
    }

    /// Waits until a socket changes or it is as late as that.
    pub(crate) async fn changed(&mut self, until: Option<u64>) {
        let waiting = self.waiting.as_ref();
        let late = waiting.and_then(|waiting| Some(waiting.since + waiting.patience?));
        let until = [until, late].into_iter().flatten().min().map_or(Instant::MAX, Instant::from_millis);
        let mut timer = pin!(Timer::at(until));
        let mut is_first = true;
        poll_fn(|cx| {
            // Whatever has woken the task may be a socket.
            if !core::mem::take(&mut is_first) || timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut changed = false;
            for socket in self.sockets.iter_mut() {
                // Each one registers, also behind one that has changed.
                changed |= socket.register(cx);
            }
            if changed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl hydrant_embedded::Net for Net {
    type Handle = usize;
    type Socket = Buffered;

    fn socket(&self, handle: usize) -> &Buffered {
        &self.sockets[handle]
    }

    fn socket_mut(&mut self, handle: usize) -> &mut Buffered {
        &mut self.sockets[handle]
    }

    fn connect(&mut self, handle: usize, addr: SocketAddrV4) {
        let socket = &mut self.sockets[handle];
        socket.abort();
        socket.connect(IpEndpoint::new(IpAddress::Ipv4(*addr.ip()), addr.port()));
    }

    fn set_patience(&mut self, handle: usize, silence: Option<u64>) {
        let patience = silence.map_or(PATIENCE, |silence| Duration::from_millis(silence).max(PATIENCE_MIN));
        let socket = &mut self.sockets[handle].tcp;
        socket.set_timeout(Some(patience));
        socket.set_keep_alive(Some(KEEP_ALIVE.min(patience / 2)));
    }

    fn poll(&mut self) {
        // The stack's runner does that.
    }

    fn send_all(&mut self, handle: usize, bytes: &[u8], patience: Option<u64>) -> bool {
        let sent = match &self.waiting {
            Some(waiting) if waiting.handle == handle => 0,
            _ => match self.sockets[handle].send_slice(bytes) {
                Some(sent) => sent,
                None => return false,
            },
        };
        let rest = &bytes[sent..];
        if rest.is_empty() {
            return true;
        }
        let now = millis();
        if self.waiting.is_none() && patience.is_none() {
            self.set_patience(handle, Some(WAIT_PATIENCE));
        }
        let waiting =
            self.waiting.get_or_insert(Waiting { handle, len: 0, since: now, began: now, patience });
        let room = self.buf.get_mut(waiting.len..waiting.len + rest.len());
        let Some(room) = room.filter(|_| waiting.handle == handle) else { return false };
        room.copy_from_slice(rest);
        waiting.len += rest.len();
        true
    }

    fn is_full(&self) -> bool {
        self.waiting.is_some()
    }

    fn take_waited(&mut self) -> u64 {
        core::mem::take(&mut self.waited)
    }
}
