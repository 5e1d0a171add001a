//! Tests of the management server with a service that keeps a list of its calls.

use core::net::{IpAddr, Ipv4Addr};
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::server::*;
use super::*;
use crate::fault::Fault;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::trace::Exit;

const CONFIG: Config<'static> = Config {
    name: "test",
    limits: Limits { jobs: 2, ranks: 4, ..Limits::NONE },
    pmi_port: 4000,
    message_max: 1000,
    records: true,
    links: Some(1),
    calls: None,
    exclusive: false,
    nodes: Some(Limits { ranks: 8, ..Limits::NONE }),
    drop_orphans: true,
    handshake_timeout: 100,
    keep_timeout: Some(1000),
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

/// Service with two jobs.
#[derive(Default)]
struct Fake {
    calls: Vec<String>,
    open: [bool; 2],
    /// Whether all ranks of all jobs have exited.
    over: bool,
    /// Rank whose connection closed after finalize.
    left: Option<Rank>,
    /// Connected clients of each job.
    connected: u32,
}

impl Fake {
    fn call(&mut self, call: String) -> Result<(), Failure<&'static str>> {
        if call.contains("disk failure") {
            return Err(Failure::Fatal("disk failure"));
        }
        self.calls.push(call);
        Ok(())
    }
}

impl Service for Fake {
    type Error = &'static str;

    fn open(&mut self, open: &OpenJob<'_>) -> Result<(JobId, u16), Failure<&'static str>> {
        self.call(format!("open {}", open.name))?;
        let free = self.open.iter().position(|open| !open).ok_or(Fault::Full(Limit::Jobs, 2))?;
        self.open[free] = true;
        Ok((JobId(free as u32), 4000 + free as u16))
    }

    fn set_program(&mut self, job: JobId, _: Rank, _: u32, appnum: u32) -> Result<(), Failure<&'static str>> {
        self.call(format!("program {appnum} of {job}"))
    }

    fn set_attr(&mut self, job: JobId, key: &[u8], _: &[u8]) -> Result<(), Failure<&'static str>> {
        self.call(format!("attr {} of {job}", key.escape_ascii()))
    }

    fn define_pset(&mut self, job: JobId, name: &str, _: Rank, _: u32) -> Result<(), Failure<&'static str>> {
        self.call(format!("pset {name} of {job}"))
    }

    fn accept_clients(&mut self, job: JobId) -> Result<(), Failure<&'static str>> {
        self.call(format!("accept {job}"))
    }

    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Failure<&'static str>> {
        if rank.0 >= 4 {
            return Err(Fault::NoSuchRank.into());
        }
        self.call(format!("exited {job} {rank} {exit}"))
    }

    fn forget(&mut self, job: JobId) -> Result<(), Failure<&'static str>> {
        self.open[job.index()] = false;
        self.call(format!("forget {job}"))
    }

    fn derive_exits(&mut self, job: JobId) {
        self.calls.push(format!("derive exits of {job}"));
    }

    fn job_report(&self, job: JobId) -> Option<JobReport> {
        let phase = if self.over { JobPhase::Over } else { JobPhase::Opened };
        let report = JobReport {
            phase,
            size: 2,
            connected: self.connected,
            initialized: 0,
            in_fence: 0,
            finalized: 0,
            exited: 0,
        };
        self.open[job.index()].then_some(report)
    }

    fn rank_report(&self, _: JobId, rank: Rank) -> Option<RankReport> {
        let left = self.left == Some(rank);
        let report = RankReport {
            conn: (!left).then_some(ConnId(rank.0)),
            initialized: true,
            finalized: left,
            in_fence: false,
            exit: None,
        };
        (rank.0 < 4).then_some(report)
    }

    fn board_report(&self) -> BoardReport {
        BoardReport { sockets: 8, free_sockets: 7, ..BoardReport::default() }
    }

    fn used(&self, _: Limit) -> u32 {
        1
    }

    fn begin_link(&mut self, _: usize, link: &OpenLink) -> Result<(), Failure<&'static str>> {
        if link.token != [7; 16] {
            return Err(Error::NoLink.into());
        }
        self.call(format!("link {} to {}", link.from, link.to))
    }

    fn begin_node(&mut self, _: usize, node: &OpenNode) -> Result<(), Failure<&'static str>> {
        if node.nodes > 3 {
            return Err(Error::NoNodes.into());
        }
        self.call(format!("node {} of {}", node.node, node.nodes))
    }

    fn begin_recording(&mut self, host: usize) -> Result<(), Failure<&'static str>> {
        self.call(format!("record to {host}"))
    }
}

/// Server with a fake service, and the results of its requests.
struct Bench<'m> {
    server: ManagementServer<'m>,
    service: Fake,
}

fn with_server(config: Config<'_>, test: impl FnOnce(Bench<'_>)) {
    let mut hosts = [HostSlot::EMPTY; 3];
    let mut jobs = [JobSlot::EMPTY; 2];
    let server = ManagementServer::new(config, &mut hosts, &mut jobs);
    test(Bench { server, service: Fake::default() });
}

impl Bench<'_> {
    /// Connects a host and completes its handshake.
    fn greet(&mut self, host: usize) {
        self.server.connected(host, HERE, 0);
        assert!(self.ask(host, &Request::Hello { version: VERSION }).starts_with("Welcome"));
    }

    /// Sends a request. Returns the report as text.
    fn ask(&mut self, host: usize, request: &Request<'_>) -> String {
        let mut buf = [0; PREFIX + RECORD_MAX];
        let bytes = encode(request, &mut buf).expect("the request is short").to_vec();
        let (reply, next) = self.receive(host, &bytes);
        assert_ne!(next, Next::Close, "{request:?}");
        reply
    }

    fn receive(&mut self, host: usize, bytes: &[u8]) -> (String, Next) {
        let mut buf = [0; PREFIX + RECORD_MAX];
        let received = self.server.receive(&mut self.service, host, bytes, &mut buf);
        let received = received.expect("the service does not fail").expect("the request is complete");
        assert_eq!(received.consumed, bytes.len());
        let (record, len) = next(received.reply).expect("a valid record").expect("a whole record");
        assert_eq!(len, received.reply.len());
        let report: Report<'_> = decode(record).expect("a report");
        assert_eq!(matches!(report, Report::Refused(_)), received.refused.is_some());
        (format!("{report:?}"), received.next)
    }

    fn refused(&mut self, host: usize, request: &Request<'_>, error: Error) {
        assert_eq!(self.ask(host, request), format!("{:?}", Report::Refused(error)));
    }

    fn done(&mut self, host: usize, request: &Request<'_>) {
        assert_eq!(self.ask(host, request), "Done", "{request:?}");
    }

    /// Opens a job and returns its number.
    fn open(&mut self, host: usize, open: OpenJob<'_>) -> JobId {
        let opened = self.ask(host, &Request::Open(open));
        let ids = [JobId(0), JobId(1)];
        let id = ids
            .into_iter()
            .find(|id| opened == format!("{:?}", Report::Opened { job: *id, port: 4000 + id.0 as u16 }));
        id.unwrap_or_else(|| panic!("{opened}"))
    }

    fn calls(&mut self) -> Vec<String> {
        core::mem::take(&mut self.service.calls)
    }
}

#[test]
fn a_job_is_opened_described_served_and_forgotten() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        let job = bench.open(0, OpenJob::new("one", 2));
        let (first, count) = (Rank(0), 2);
        let program = Request::Program { job, first, count, appnum: 5 };
        let pset = Request::Pset { job, name: "all", first, count };
        bench.done(0, &program);
        bench.done(0, &Request::Attr { job, key: b"key", value: b"value" });
        bench.done(0, &pset);
        assert!(bench.ask(0, &Request::Job { job }).contains("phase: Opened"));
        bench.done(0, &Request::Serve { job });
        assert!(bench.ask(0, &Request::Job { job }).contains("phase: Served"));
        for late in [program, pset, Request::Serve { job }] {
            bench.refused(0, &late, Error::Order);
        }
        bench.done(0, &Request::Exited { job, rank: Rank(1), exit: Exit::Code(3) });
        bench.refused(
            0,
            &Request::Exited { job, rank: Rank(4), exit: Exit::Code(3) },
            Error::Fault(Fault::NoSuchRank),
        );
        bench.done(0, &Request::Forget { job });
        bench.refused(0, &Request::Forget { job }, Error::Fault(Fault::NoSuchJob));
        let expected = [
            "open one",
            "program 5 of 0",
            "attr key of 0",
            "pset all of 0",
            "accept 0",
            "exited 0 1 exited with code 3",
            "forget 0",
        ];
        assert_eq!(bench.calls(), expected);
    });
}

#[test]
fn a_handshake_comes_first_and_once() {
    with_server(CONFIG, |mut bench| {
        bench.server.connected(0, HERE, 0);
        bench.refused(0, &Request::Board, Error::Handshake);
        bench.refused(0, &Request::Hello { version: 77 }, Error::Version { spoken: VERSION });
        assert!(!bench.server.is_greeted(0));
        bench.greet(0);
        assert!(bench.server.is_greeted(0));
        bench.refused(0, &Request::Hello { version: VERSION }, Error::Handshake);
    });
}

#[test]
fn malformed_and_long_records_close_the_connection() {
    with_server(CONFIG, |mut bench| {
        for bytes in [&[1, 0, 0xff][..], &[1, 2, 3, 4]] {
            bench.greet(0);
            let garbled = format!("{:?}", Report::Refused(Error::Malformed));
            assert_eq!(bench.receive(0, bytes), (garbled, Next::Close));
        }
        let mut buf = [0; PREFIX + RECORD_MAX];
        for incomplete in [&[][..], &[1], &[1, 0]] {
            let received = bench.server.receive(&mut bench.service, 0, incomplete, &mut buf);
            assert_eq!(received, Ok(None));
        }
    });
}

#[test]
fn a_host_changes_its_own_jobs_and_those_without_a_host() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        bench.greet(1);
        let job = bench.open(0, OpenJob { keep: true, ..OpenJob::new("one", 2) });
        assert_eq!(bench.server.event_recipient(job), Some(0));
        bench.refused(1, &Request::Forget { job }, Error::Fault(Fault::NoSuchJob));
        assert!(bench.ask(1, &Request::Job { job }).starts_with("Job("));
        bench.server.disconnected(&mut bench.service, 0, 0).expect("the service does not fail");
        assert_eq!(bench.server.event_recipient(job), None);
        bench.done(1, &Request::Forget { job });
    });
}

// Fault: A host queries or ends the job of another host
// Outcome: it is refused: no such job
// Guarantee: A job is visible and changeable only from the address that opened it
#[test]
fn a_job_is_of_the_address_that_opened_it() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        bench.server.connected(1, ELSEWHERE, 0);
        bench.ask(1, &Request::Hello { version: VERSION });
        let job = bench.open(0, OpenJob { keep: true, ..OpenJob::new("one", 2) });
        let requests = [
            Request::Job { job },
            Request::Rank { job, rank: Rank(0) },
            Request::Serve { job },
            Request::Exited { job, rank: Rank(0), exit: Exit::Code(3) },
            Request::Forget { job },
        ];
        for host_is_gone in [false, true] {
            if host_is_gone {
                bench.server.disconnected(&mut bench.service, 0, 0).expect("the service does not fail");
            }
            for request in &requests {
                bench.refused(1, request, Error::Fault(Fault::NoSuchJob));
            }
        }
        bench.greet(2);
        assert!(bench.ask(2, &requests[0]).starts_with("Job("), "the host may connect again");
        bench.done(2, &requests[4]);
        let own = bench.server.open(&mut bench.service, &OpenJob::new("own", 2)).expect("there is room");
        bench.done(1, &Request::Forget { job: own });
    });
}

// Fault: A host asks that its job is kept, and does not return
// Outcome: dropped after `--keep-timeout` (one hour)
// Guarantee: A job without host and ranks keeps no place
#[test]
fn a_kept_job_without_host_and_clients_is_dropped_in_time() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        let kept = bench.open(0, OpenJob { keep: true, ..OpenJob::new("kept", 2) });
        assert_eq!(bench.server.poll_at(), None);
        bench.server.disconnected(&mut bench.service, 0, 500).expect("the service does not fail");
        assert_eq!(bench.server.poll_at(), Some(1500));
        assert_eq!(bench.server.drop_abandoned(&mut bench.service, 1499), Ok(None));
        bench.service.connected = 1;
        assert_eq!(bench.server.drop_abandoned(&mut bench.service, 1500), Ok(None));
        assert_eq!(bench.server.poll_at(), Some(2500), "a client is connected");
        bench.service.connected = 0;
        assert_eq!(bench.server.drop_abandoned(&mut bench.service, 2500), Ok(Some(kept)));
        assert_eq!(bench.server.drop_abandoned(&mut bench.service, 2500), Ok(None));
        assert!(bench.server.poll_at().is_none() && !bench.service.open[kept.index()]);
    });
}

#[test]
fn an_exclusive_server_has_one_manager() {
    with_server(Config { exclusive: true, ..CONFIG }, |mut bench| {
        bench.greet(0);
        bench.greet(1);
        assert_eq!(bench.server.manager(), None);
        let job = bench.open(0, OpenJob { keep: true, ..OpenJob::new("one", 2) });
        assert_eq!(bench.server.manager(), Some(0));
        bench.refused(1, &Request::Open(OpenJob::new("two", 2)), Error::Busy);
        assert!(bench.ask(1, &Request::Usage { limit: Limit::Ranks }).contains("size: 4"));
        bench.server.disconnected(&mut bench.service, 0, 0).expect("the service does not fail");
        bench.done(1, &Request::Serve { job });
        assert_eq!(bench.server.event_recipient(job), Some(1), "events follow the manager");
    });
}

#[test]
fn jobs_are_dropped_or_kept_with_their_connection() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        let dropped = bench.open(0, OpenJob::new("dropped", 2));
        let kept = bench.open(0, OpenJob { keep: true, ..OpenJob::new("kept", 2) });
        bench.service.left = Some(Rank(1));
        bench.calls();
        bench.server.rank_left(&mut bench.service, kept, Rank(0), true).expect("the service does not fail");
        assert_eq!(bench.calls(), vec![""; 0], "the host reports exits");
        bench.server.disconnected(&mut bench.service, 0, 0).expect("the service does not fail");
        let expected = ["forget 0", "derive exits of 1", "exited 1 1 exited with code 0"];
        assert_eq!(bench.calls(), expected);
        assert!(bench.server.running_jobs() == 1 && dropped != kept);
        bench.server.rank_left(&mut bench.service, kept, Rank(0), false).expect("the service does not fail");
        assert_eq!(bench.calls(), ["exited 1 0 was lost"]);
    });
}

#[test]
fn a_job_is_over_once_and_orphans_are_dropped() {
    for drop_orphans in [true, false] {
        with_server(Config { drop_orphans, ..CONFIG }, |mut bench| {
            bench.greet(0);
            bench.greet(1);
            let open = OpenJob { keep: true, ..OpenJob::new("kept", 2) };
            let orphan = bench.open(0, open);
            let job = bench.open(1, open);
            bench.server.disconnected(&mut bench.service, 0, 0).expect("the service does not fail");
            assert_eq!(bench.server.poll_over(&mut bench.service), Ok(None));
            bench.service.over = true;
            if !drop_orphans {
                assert_eq!(bench.server.poll_over(&mut bench.service), Ok(Some((orphan, None))));
            }
            assert_eq!(bench.server.poll_over(&mut bench.service), Ok(Some((job, Some(1)))));
            assert_eq!(bench.server.poll_over(&mut bench.service), Ok(None));
            assert!(bench.server.is_over(job));
            assert_eq!(bench.service.open[orphan.index()], !drop_orphans);
        });
    }
}

#[test]
fn one_host_that_manages_nothing_records() {
    with_server(CONFIG, |mut bench| {
        (0..3).for_each(|host| bench.greet(host));
        bench.open(0, OpenJob::new("one", 2));
        bench.refused(0, &Request::Record, Error::Order);
        let mut buf = [0; PREFIX + RECORD_MAX];
        let record = encode(&Request::Record, &mut buf).expect("the request is short").to_vec();
        assert_eq!(bench.receive(1, &record), (String::from("Done"), Next::Record));
        assert!(bench.server.is_recording(1));
        bench.refused(2, &Request::Record, Error::Busy);
        let received = bench.server.receive(&mut bench.service, 1, &record, &mut buf);
        assert_eq!(received, Ok(None), "a recording host sends no requests");
        bench.server.disconnected(&mut bench.service, 1, 0).expect("the service does not fail");
        assert_eq!(bench.receive(2, &record).1, Next::Record);
    });
}

#[test]
fn a_host_that_manages_nothing_gets_a_node() {
    with_server(CONFIG, |mut bench| {
        let limits = Limits::NONE;
        let open = OpenNode { node: 2, nodes: 3, radix: 2, limits, seed: None, link: None, record: None };
        bench.greet(0);
        bench.greet(1);
        bench.open(0, OpenJob::new("one", 2));
        bench.refused(0, &Request::Node(open), Error::Order);
        bench.refused(1, &Request::Node(OpenNode { nodes: 9, ..open }), Error::NoNodes);
        let limits = Limits { ranks: 9, ..Limits::NONE };
        let many = Fault::Full(Limit::Ranks, 8);
        bench.refused(1, &Request::Node(OpenNode { limits, ..open }), Error::Fault(many));
        let mut buf = [0; PREFIX + RECORD_MAX];
        let record = encode(&Request::Node(open), &mut buf).expect("the request is short").to_vec();
        assert_eq!(bench.receive(1, &record), (String::from("Done"), Next::Node));
        assert_eq!(bench.calls().last().map(String::as_str), Some("node 2 of 3"));
        assert!(!bench.server.is_greeted(1) && bench.server.free_host() == Some(1));
        assert_eq!(bench.server.running_jobs(), 1);
    });
}

#[test]
fn a_board_that_knows_the_token_gets_a_link() {
    with_server(CONFIG, |mut bench| {
        let open = OpenLink { token: [7; 16], to: 1, from: 2 };
        bench.greet(0);
        bench.greet(1);
        bench.open(0, OpenJob::new("one", 2));
        bench.refused(0, &Request::Link(open), Error::Order);
        bench.refused(1, &Request::Link(OpenLink { token: [8; 16], ..open }), Error::NoLink);
        let mut buf = [0; PREFIX + RECORD_MAX];
        let record = encode(&Request::Link(open), &mut buf).expect("the request is short").to_vec();
        assert_eq!(bench.receive(1, &record), (String::from("Done"), Next::Node));
        assert_eq!(bench.calls().last().map(String::as_str), Some("link 2 to 1"));
        assert_eq!(bench.server.free_host(), Some(1));
    });
}

#[test]
fn hosts_have_deadlines_for_handshake_and_reading() {
    with_server(CONFIG, |mut bench| {
        bench.server.connected(1, HERE, 50);
        assert_eq!(bench.server.poll_at(), Some(150));
        assert_eq!(bench.server.expired(149), None);
        assert_eq!(bench.server.expired(150), Some((1, Expired::Handshake)));
        bench.greet(1);
        assert_eq!(bench.server.poll_at(), None);
        bench.server.set_blocked(1, true, 200);
        bench.server.set_blocked(1, true, 300);
        assert_eq!(bench.server.poll_at(), Some(200 + STALL_MS), "the first time counts");
        assert_eq!(bench.server.expired(200 + STALL_MS), Some((1, Expired::Stalled)));
        bench.server.set_blocked(1, false, 400);
        assert_eq!(bench.server.poll_at(), None);
        assert_eq!(bench.server.free_host(), Some(0));
        assert_eq!(bench.server.oldest_silent(), None);
        bench.server.connected(0, HERE, 600);
        bench.server.connected(2, HERE, 500);
        assert_eq!((bench.server.free_host(), bench.server.oldest_silent()), (None, Some(2)));
    });
}

#[test]
fn fatal_errors_reach_the_embedding_program() {
    with_server(CONFIG, |mut bench| {
        bench.greet(0);
        let mut buf = [0; 64];
        let request = Request::Open(OpenJob::new("disk failure", 2));
        let bytes = encode(&request, &mut buf).expect("the request is short").to_vec();
        let mut buf = [0; PREFIX + RECORD_MAX];
        let received = bench.server.receive(&mut bench.service, 0, &bytes, &mut buf);
        assert_eq!(received, Err("disk failure"));
        assert_eq!(bench.server.open(&mut bench.service, &OpenJob::new("own", 1)), Ok(JobId(0)));
        assert_eq!(bench.server.serve(&mut bench.service, JobId(0)), Ok(()));
        assert_eq!(bench.server.serve(&mut bench.service, JobId(0)), Err(Error::Order.into()));
    });
}
