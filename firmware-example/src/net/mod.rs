//! The network: smoltcp over the board's Ethernet controller.

mod device;

use core::net::SocketAddrV4;

use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;
use hydrant_core::manage::STALL_MS;
use hydrant_embedded::Net as _;
use smoltcp::iface::{self, Interface, PollResult, SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr};

use crate::board::{self, FRAME, Nic};
use crate::config::Config;
use crate::time;
use device::Device;

const _: () = assert!((board::WATCHDOG_MS as u64) > STALL_MS);

/// Given by the interrupt, taken by the loop: frames wait in the controller.
static FRAMES_WAIT: Signal<CriticalSectionRawMutex, ()> = Signal::new();

/// Time after which a silent peer is given up, both while it owes an acknowledgement and otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest such time that a host may ask for.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The same for a host that is waited for: smoltcp's probes of a closed window are up to a minute apart.
const WAIT_PATIENCE: u64 = 130_000;
/// Interval of keep-alive packets to a silent peer.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// The interface and all sockets.
pub(crate) struct Net {
    iface: Interface,
    device: Device,
    sockets: SocketSet<'static>,
    /// Milliseconds in which the board has waited for a host without end and has done nothing else.
    waited: u64,
}

/// Wakes the loop. Called by the interrupt.
pub(crate) fn wake() {
    FRAMES_WAIT.signal(());
}

fn now() -> Instant {
    Instant::from_millis(time::millis() as i64)
}

impl Net {
    /// Starts the network, with buffers for a frame each way. `seed` differs at each start. Called once.
    // As a part of the caller, its temporaries would stay on the stack.
    #[inline(never)]
    pub(crate) fn start(
        config: &Config,
        [rx, tx]: [&'static mut [u8; FRAME]; 2],
        sockets: &'static mut [SocketStorage<'static>],
        seed: u32,
    ) -> Net {
        let nic = Nic::new();
        let mac = EthernetAddress(nic.mac());
        let mut device = Device { nic, rx, tx };
        let mut settings = iface::Config::new(mac.into());
        settings.random_seed = seed.into();
        let mut iface = Interface::new(settings, &mut device, now());
        iface.update_ip_addrs(|all| {
            // The list has room for one and is empty.
            let _ = all.push(IpCidr::Ipv4(config.address));
        });
        if let Some(gateway) = config.gateway {
            // Room for a default route was left as well.
            let _ = iface.routes_mut().add_default_ipv4_route(gateway);
        }
        device.nic.listen();
        Net { iface, device, sockets: SocketSet::new(sockets), waited: 0 }
    }

    /// Adds a socket over these buffers.
    pub(crate) fn add(&mut self, [receive, transmit]: [&'static mut [u8]; 2]) -> SocketHandle {
        let mut socket = tcp::Socket::new(tcp::SocketBuffer::new(receive), tcp::SocketBuffer::new(transmit));
        socket.set_timeout(Some(PATIENCE));
        socket.set_keep_alive(Some(KEEP_ALIVE));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        self.sockets.add(socket)
    }

    /// Handles received frames and sends pending ones. Returns whether the state of a socket may have changed.
    pub(crate) fn poll(&mut self) -> bool {
        self.iface.poll(now(), &mut self.device, &mut self.sockets) == PollResult::SocketStateChanged
    }

    /// Waits until there is room for bytes, or the connection is lost.
    #[inline(never)]
    fn wait(&mut self, handle: SocketHandle) {
        let since = time::millis();
        self.set_patience(handle, Some(WAIT_PATIENCE));
        let is_full = |socket: &tcp::Socket<'_>| socket.may_send() && !socket.can_send();
        while is_full(self.sockets.get(handle)) {
            board::watchdog_feed();
            self.poll();
        }
        self.set_patience(handle, None);
        self.waited += time::millis() - since;
    }

    /// Sleeps until a frame comes, a millisecond has passed that something was due in, `wake` is reached, or the watchdog
    /// wants a turn of the main loop.
    pub(crate) fn sleep(&mut self, wake: Option<u64>) {
        let due = self.iface.poll_at(now(), &self.sockets).map(|at| at.total_millis() as u64);
        let due = [due, wake].into_iter().flatten().min().unwrap_or(u64::MAX);
        self.device.nic.listen();
        while FRAMES_WAIT.try_take().is_none() && time::millis() < due && !board::watchdog_is_hungry() {
            cortex_m::interrupt::disable();
            if !FRAMES_WAIT.signaled() {
                // Wakes for an interrupt that comes while they are off, too, so none is slept through.
                cortex_m::asm::wfi();
            }
            // SAFETY: they were on before: this is the main loop, and not in a critical section.
            unsafe { cortex_m::interrupt::enable() };
        }
    }
}

impl hydrant_embedded::Net for Net {
    type Handle = SocketHandle;
    type Socket = tcp::Socket<'static>;

    fn socket(&self, handle: SocketHandle) -> &tcp::Socket<'static> {
        self.sockets.get(handle)
    }

    fn socket_mut(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn connect(&mut self, handle: SocketHandle, addr: SocketAddrV4) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.abort();
        // A port that an earlier connection has not had lately.
        let port = 0xC000 | (time::ticks() as u16 ^ time::millis() as u16) & 0x3FFF;
        // It fails for an address such as 0.0.0.0, and the socket stays closed.
        if socket.connect(self.iface.context(), (*addr.ip(), addr.port()), port).is_err() {
            defmt::warn!("cannot connect to an unspecified address");
        }
    }

    fn set_patience(&mut self, handle: SocketHandle, silence: Option<u64>) {
        let patience = silence.map_or(PATIENCE, |silence| Duration::from_millis(silence).max(PATIENCE_MIN));
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.set_timeout(Some(patience));
        socket.set_keep_alive(Some(KEEP_ALIVE.min(patience / 2)));
    }

    fn poll(&mut self) {
        Net::poll(self);
    }

    fn send_all(&mut self, handle: SocketHandle, mut bytes: &[u8], patience: Option<u64>) -> bool {
        let mut since = time::millis();
        while !bytes.is_empty() {
            let Ok(sent) = self.sockets.get_mut::<tcp::Socket<'_>>(handle).send_slice(bytes) else {
                return false;
            };
            bytes = &bytes[sent..];
            if sent > 0 {
                // A host that reads slowly is no hang: the watchdog's time is longer than STALL_MS.
                board::watchdog_feed();
                since = time::millis();
            } else if let Some(patience) = patience {
                if time::millis() >= since + patience {
                    return false;
                }
                self.poll();
            } else {
                self.wait(handle);
            }
        }
        true
    }

    fn is_full(&self) -> bool {
        false
    }

    fn take_waited(&mut self) -> u64 {
        core::mem::take(&mut self.waited)
    }
}
