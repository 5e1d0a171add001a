//! Tests of the management server with a service that keeps a list of its calls.

use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::server::*;
use super::*;
use crate::fault::Fault;
use crate::limits::{Limit, Limits};

const CONFIG: Config<'static> = Config {
    name: "test",
    nodes: Limits { ranks: 8, ..Limits::NONE },
    message_max: 1000,
    links: Some(1),
    calls: None,
    request_timeout: 100,
};

const NODE: OpenNode =
    OpenNode { node: 2, nodes: 3, radix: 2, limits: Limits::NONE, seed: None, link: None, record: None };

/// Service that keeps its calls.
#[derive(Default)]
struct Fake(Vec<String>);

impl Service for Fake {
    fn board_report(&self) -> BoardReport {
        BoardReport { sockets: 8, free_sockets: 7, ..BoardReport::default() }
    }

    fn usage(&self, _: Limit) -> (u32, u32) {
        (1, 4)
    }

    fn begin_link(&mut self, link: &OpenLink) -> Result<(), Error> {
        if link.token != [7; 16] {
            return Err(Error::NoLink);
        }
        self.0.push(format!("link {} to {}", link.from, link.to));
        Ok(())
    }

    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error> {
        if node.nodes > 3 {
            return Err(Error::NoTrees);
        }
        self.0.push(format!("node {} of {}", node.node, node.nodes));
        Ok(())
    }
}

/// Server with a fake service, and the results of its requests.
struct Bench<'m> {
    server: ManagementServer<'m>,
    service: Fake,
    now: u64,
}

fn with_server(test: impl FnOnce(Bench<'_>)) {
    let mut hosts = [HostSlot::EMPTY; 3];
    let server = ManagementServer::new(CONFIG, &mut hosts);
    test(Bench { server, service: Fake::default(), now: 0 });
}

impl Bench<'_> {
    /// Connects a host and completes its handshake.
    fn greet(&mut self, host: usize) {
        self.server.connected(host, self.now);
        assert!(self.ask(host, &Request::Hello { version: VERSION }).starts_with("Welcome"));
    }

    /// Sends a request. Returns the report as text.
    fn ask(&mut self, host: usize, request: &Request) -> String {
        let (reply, next) = self.request(host, request);
        assert_eq!(next, Next::Receive, "{request:?}");
        reply
    }

    fn request(&mut self, host: usize, request: &Request) -> (String, Next) {
        let mut buf = [0; PREFIX + RECORD_MAX];
        let bytes = encode(request, &mut buf).expect("the request is short").to_vec();
        self.receive(host, &bytes)
    }

    fn receive(&mut self, host: usize, bytes: &[u8]) -> (String, Next) {
        let mut buf = [0; PREFIX + RECORD_MAX];
        let received = self.server.receive(&mut self.service, (host, self.now), bytes, &mut buf);
        let received = received.expect("the request is complete");
        assert_eq!(received.consumed, bytes.len());
        let (record, len) = next(received.reply).expect("a valid record").expect("a whole record");
        assert_eq!(len, received.reply.len());
        let report: Report<'_> = decode(record).expect("a report");
        assert_eq!(matches!(report, Report::Refused(_)), received.refused.is_some());
        (format!("{report:?}"), received.next)
    }

    fn refused(&mut self, host: usize, request: &Request, error: Error) {
        assert_eq!(self.ask(host, request), format!("{:?}", Report::Refused(error)));
    }
}

#[test]
fn a_handshake_comes_first_and_once() {
    with_server(|mut bench| {
        bench.server.connected(0, 0);
        bench.refused(0, &Request::Board, Error::Handshake);
        bench.refused(0, &Request::Node(NODE), Error::Handshake);
        bench.refused(0, &Request::Hello { version: 77 }, Error::Version { spoken: VERSION });
        assert!(!bench.server.is_greeted(0));
        bench.greet(0);
        assert!(bench.server.is_greeted(0));
        bench.refused(0, &Request::Hello { version: VERSION }, Error::Handshake);
        assert!(bench.ask(0, &Request::Board).contains("free_sockets: 7"));
        assert!(bench.ask(0, &Request::Usage { limit: Limit::Ranks }).contains("used: 1, size: 4"));
    });
}

#[test]
fn malformed_and_long_records_close_the_connection() {
    with_server(|mut bench| {
        for bytes in [&[1, 0, 0xff][..], &[1, 2, 3, 4]] {
            bench.greet(0);
            let garbled = format!("{:?}", Report::Refused(Error::Malformed));
            assert_eq!(bench.receive(0, bytes), (garbled, Next::Close));
        }
        let mut buf = [0; PREFIX + RECORD_MAX];
        for incomplete in [&[][..], &[1], &[1, 0]] {
            assert_eq!(bench.server.receive(&mut bench.service, (0, 0), incomplete, &mut buf), None);
        }
    });
}

#[test]
fn a_host_gets_a_node() {
    with_server(|mut bench| {
        bench.greet(0);
        bench.greet(1);
        bench.refused(1, &Request::Node(OpenNode { nodes: 9, ..NODE }), Error::NoTrees);
        let limits = Limits { ranks: 9, ..Limits::NONE };
        let many = Fault::Full(Limit::Ranks, 8);
        bench.refused(1, &Request::Node(OpenNode { limits, ..NODE }), Error::Fault(many));
        assert_eq!(bench.request(1, &Request::Node(NODE)), (String::from("Done"), Next::Node));
        assert_eq!(bench.service.0, ["node 2 of 3"]);
        assert!(!bench.server.is_greeted(1) && bench.server.free_host() == Some(1));
    });
}

#[test]
fn a_board_that_knows_the_token_gets_a_link() {
    with_server(|mut bench| {
        let open = OpenLink { token: [7; 16], to: 1, from: 2 };
        bench.greet(0);
        bench.refused(0, &Request::Link(OpenLink { token: [8; 16], ..open }), Error::NoLink);
        assert_eq!(bench.service.0, vec![""; 0]);
        assert_eq!(bench.request(0, &Request::Link(open)), (String::from("Done"), Next::Node));
        assert_eq!(bench.service.0, ["link 2 to 1"]);
        assert_eq!(bench.server.free_host(), Some(0));
    });
}

#[test]
fn hosts_have_a_deadline_for_each_request() {
    with_server(|mut bench| {
        bench.server.connected(1, 50);
        assert_eq!((bench.server.poll_at(), bench.server.expired(149)), (Some(150), None));
        assert_eq!(bench.server.expired(150), Some(1));
        bench.now = 140;
        assert!(bench.ask(1, &Request::Hello { version: VERSION }).starts_with("Welcome"));
        assert_eq!((bench.server.poll_at(), bench.server.expired(239)), (Some(240), None));
        assert_eq!(bench.server.expired(240), Some(1));
        bench.now = 239;
        bench.ask(1, &Request::Board);
        assert_eq!((bench.server.poll_at(), bench.server.expired(240)), (Some(339), None));
        bench.server.disconnected(1);
        assert_eq!((bench.server.poll_at(), bench.server.free_host()), (None, Some(0)));
        bench.greet(1);
        assert_eq!(bench.server.oldest_silent(), None);
        bench.server.connected(0, 600);
        bench.server.connected(2, 500);
        assert_eq!((bench.server.free_host(), bench.server.oldest_silent()), (None, Some(2)));
    });
}
