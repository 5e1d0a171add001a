//! Tests of the service that hosts manage.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use hydrant_core::server::JobSpec;
use hydrant_core::{Fault, JobId, Limits, OwnedOutput, Rank};

use super::*;
use crate::options::JobOptions;

fn loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Runs `body` with a server for two jobs whose first PMI port is `port`.
pub(super) fn with_managed(port: u16, body: impl FnOnce(&mut Managed<'_, '_>)) {
    with_managed_at(loopback(port), body);
}

fn with_managed_at(pmi_port: SocketAddr, body: impl FnOnce(&mut Managed<'_, '_>)) {
    let job = JobOptions { pmi_port, ..JobOptions::default() };
    let options = Options { job, ..Options::new(crate::JobSource::Managed { addr: loopback(0) }) };
    let limits = Limits { jobs: 2, ..Limits::for_ranks(4) };
    let mut storage = MappedStorage::new(&limits);
    let server = RecordedServer::new(Server::new(limits, storage.lend(), 1).unwrap(), 1, None);
    let reactor = Reactor::new(Token::Signals).unwrap();
    let endpoint = Endpoint::new(&[], &limits, server, reactor).unwrap();
    let (nodes, lone) = (Nodes::default(), Vec::new());
    body(&mut Managed { options: &options, endpoint, nodes, lone, opening: None });
}

/// Number and port of a registered job, or the fault that its host gets.
fn open(managed: &mut Managed<'_, '_>, name: &str) -> Result<(JobId, u16), Fault> {
    let job = managed.endpoint.free_id();
    let port = managed.register(JobSpec::new(job, name, 2), None).expect("the server goes on");
    port.map(|port| (job, port))
}

/// Connects as rank 1 and starts PMI-1.
fn connect(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(loopback(port)).unwrap();
    stream.write_all(b"cmd=initack pmiid=1\n").unwrap();
    stream
}

#[test]
fn ranks_join_once_the_host_accepts_clients() {
    with_managed(0, |managed| {
        let (job, port) = open(managed, "kvs_0").unwrap();
        let _stream = connect(port);
        let conns = managed.usage(Limit::Conns).1;
        let mut tokens = Vec::new();
        managed.endpoint.turn(None, &mut tokens).unwrap();
        assert_eq!((tokens.as_slice(), managed.usage(Limit::Conns)), (&[Token::Listener(0)][..], (0, conns)));
        managed.endpoint.pause(job, false).unwrap();
        let joined = (0..100).find_map(|_| {
            managed.endpoint.turn(None, &mut tokens).unwrap();
            managed.endpoint.next_event()
        });
        let joined = joined.expect("the rank joins");
        assert!(
            matches!(joined, JobEvent::Output(OwnedOutput::Joined { job: JobId(0), rank: Rank(1), .. })),
            "{joined:?}"
        );
        assert_eq!(managed.usage(Limit::Conns), (1, conns));
    });
}

#[test]
fn each_job_has_a_port_until_it_is_closed() {
    with_managed(0, |managed| {
        let (first, port) = open(managed, "kvs_0").unwrap();
        let (second, other) = open(managed, "kvs_1").unwrap();
        assert_eq!((first, second), (JobId(0), JobId(1)));
        assert_ne!(port, other);
        managed.close(first).unwrap();
        let [gone, there] = [first, second].map(|job| managed.endpoint.server().job_report(job));
        assert!(gone.is_none() && there.is_some());
        assert!(TcpStream::connect(loopback(port)).is_err());
        assert_eq!(open(managed, "kvs_2").unwrap().0, first);
    });
}

#[test]
fn a_job_beyond_the_limit_is_refused_and_leaves_no_port() {
    with_managed(0, |managed| {
        open(managed, "kvs_0").unwrap();
        open(managed, "kvs_1").unwrap();
        assert_eq!(open(managed, "kvs_2"), Err(Fault::Full(Limit::Jobs, 2)));
        assert_eq!((managed.endpoint.free_id(), managed.board_report().jobs), (JobId(2), 2));
    });
}

#[test]
fn a_port_in_use_is_passed_over() {
    let used = TcpListener::bind(loopback(0)).unwrap();
    let number = used.local_addr().unwrap().port();
    with_managed(number, |managed| {
        let [first, second] = ["kvs_0", "kvs_1"].map(|name| open(managed, name).unwrap().1);
        assert!(number < first && first < second, "{number}, {first}, {second}");
    });
}

#[test]
fn an_address_without_free_ports_is_refused_as_a_used_up_limit() {
    // An address for documentation is none of this machine's.
    with_managed_at("192.0.2.1:4000".parse().unwrap(), |managed| {
        let conns = managed.endpoint.usage(Limit::Conns).1;
        assert_eq!(open(managed, "kvs_0"), Err(Fault::Full(Limit::Conns, conns)));
        assert!(managed.endpoint.server().job_report(JobId(0)).is_none());
    });
}
