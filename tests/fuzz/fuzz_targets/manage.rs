//! Bytes of several hosts into a management server.
#![no_main]

use hydrant_core::Limit;
use hydrant_core::manage::server::{Config, HostSlot, ManagementServer, Next, Service};
use hydrant_core::manage::{self, BoardReport, Error, OpenLink, OpenNode, PREFIX, RECORD_MAX, Report};
use hydrant_fuzz::{FuzzInput, LIMITS};
use libfuzzer_sys::fuzz_target;

/// Connections of hosts.
const HOSTS: usize = 3;
/// Bytes that a connection may hold.
const BUFFER: usize = PREFIX + RECORD_MAX;
const CONFIG: Config<'static> =
    Config { name: "fuzz", nodes: LIMITS, message_max: 1024, links: None, calls: None, request_timeout: 100 };

fuzz_target!(|data: &[u8]| manage(FuzzInput(data)));

fn manage(mut input: FuzzInput<'_>) {
    let mut board = Board { is_busy: input.byte() & 1 != 0, begun: 0 };
    let mut slots = [HostSlot::EMPTY; HOSTS];
    let server = ManagementServer::new(CONFIG, &mut slots);
    let mut hosts = Hosts { server, held: [const { None }; HOSTS], now: 0 };
    while !input.is_empty() {
        hosts.step(&mut input, &mut board);
    }
}

/// The management server and the bytes of its hosts that are not consumed.
struct Hosts<'m> {
    server: ManagementServer<'m>,
    held: [Option<Vec<u8>>; HOSTS],
    now: u64,
}

impl Hosts<'_> {
    fn step(&mut self, input: &mut FuzzInput<'_>, board: &mut Board) {
        let choice = input.byte();
        let host = usize::from(choice & 15) % HOSTS;
        match choice >> 4 {
            0 => self.disconnect(host),
            1 => self.now += u64::from(input.short()),
            _ => self.receive(host, input.string(), board),
        }
        while let Some(host) = self.server.expired(self.now) {
            self.disconnect(host);
        }
        assert!(self.server.poll_at().is_none_or(|at| at > self.now), "a deadline that has passed");
        let free = self.held.iter().position(Option::is_none);
        assert_eq!(self.server.free_host(), free, "hosts that are not connected have free numbers");
    }

    fn disconnect(&mut self, host: usize) {
        if self.held[host].take().is_some() {
            self.server.disconnected(host);
        }
    }

    fn receive(&mut self, host: usize, bytes: &[u8], board: &mut Board) {
        if self.held[host].is_none() {
            self.server.connected(host, self.now);
        }
        let held = self.held[host].get_or_insert_default();
        held.extend(bytes);
        held.truncate(BUFFER);
        let mut reply = [0; BUFFER];
        while let Some(held) = &mut self.held[host] {
            let (greeted, begun) = (self.server.is_greeted(host), board.begun);
            let Some(received) = self.server.receive(board, (host, self.now), held, &mut reply) else {
                assert!(held.len() < BUFFER, "a full buffer without a record");
                return;
            };
            assert!((1..=held.len()).contains(&received.consumed), "consumed bytes that were not there");
            let (record, len) =
                manage::next(received.reply).expect("a reply is a record").expect("and complete");
            assert_eq!(len, received.reply.len());
            let report = manage::decode::<Report<'_>>(record).expect("a reply is a report");
            assert_eq!(matches!(report, Report::Refused(_)), received.refused.is_some());
            held.drain(..received.consumed);
            let is_node = received.next == Next::Node;
            assert_eq!(board.begun - begun, u32::from(is_node), "a node begins with its reply");
            assert!(greeted || !is_node, "a node before the handshake");
            match received.next {
                Next::Receive => {}
                Next::Close => self.disconnect(host),
                // The connection is no longer that of a host.
                Next::Node => self.held[host] = None,
            }
        }
    }
}

/// A board that serves nodes, or is busy.
struct Board {
    is_busy: bool,
    /// Number of nodes so far.
    begun: u32,
}

impl Service for Board {
    fn board_report(&self) -> BoardReport {
        BoardReport::default()
    }

    fn usage(&self, limit: Limit) -> (u32, u32) {
        (0, LIMITS.of(limit))
    }

    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error> {
        assert_eq!(node.limits.exceeding(LIMITS).next(), None, "limits above those of the board");
        if self.is_busy {
            return Err(Error::Busy);
        }
        self.begun += 1;
        Ok(())
    }

    fn begin_link(&mut self, _: &OpenLink) -> Result<(), Error> {
        Err(Error::NoLink)
    }
}
