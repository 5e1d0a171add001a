//! Tests of names that the host resolves, and of look-ups with timeouts.

use super::*;
use crate::UpcallId;
use crate::limits::{JOBID_MAX, KEY_MAX, MESSAGE_TEXT_MAX, PORT_MAX, VALUE_MAX};
use crate::wire::{Command, Persistence, Protocol, decode_upcall};

/// Registers two ranks, 0 with PMI-2 and 1 with PMI-1, whose host carries out requests about names.
fn remote(limits: Limits) -> Host {
    let mut host = Host::with_limits(limits);
    host.job(JobSpec { remote_names: true, ..spec(2) });
    for rank in 0..2 {
        host.open(rank, Some(rank));
    }
    host.join_v2(0, "");
    host.says(1, "cmd=init pmi_version=1 pmi_subversion=1\n");
    host.replies.clear();
    host
}

impl Host {
    fn named(&mut self, upcall: u32, rc: i32, text: &[u8]) {
        self.tell(Input::UpcallComplete { upcall: UpcallId(upcall), rc, text });
    }
}

#[test]
fn the_host_is_asked_in_the_words_of_the_client() {
    let mut host = remote(SMALL);
    let counted = "cmd=name-publish;name=a;;b;port=p#1;";
    host.asks(0, counted);
    host.says(1, "cmd=lookup_name service=a;b\n");
    let asked = |id, rank, protocol, request: &str| {
        let (upcall, rank, request) = (UpcallId(id), Rank(rank), request.as_bytes());
        format!("{:?}", Output::Upcall { upcall, job: JOB, rank, protocol, request })
    };
    assert_eq!(host.events.remove(0), asked(0, 0, Protocol::V2, counted));
    assert_eq!(host.events.remove(0), asked(1, 1, Protocol::V1, "cmd=lookup_name service=a;b"));
    host.silent();
    let published = decode_upcall(Protocol::V2, counted.as_bytes()).unwrap();
    assert_eq!(
        published,
        Command::Publish { name: "a;b".into(), port: "p#1".into(), persistence: Persistence::Job }
    );
    assert_eq!(decode_upcall(Protocol::V2, b"cmd=kvs-fence;"), None);
    // Completion may be in any order.
    host.named(1, 0, b"p#1");
    host.gets_line(1, "cmd=lookup_result rc=0 info=ok port=p#1\n");
    host.named(0, 0, b"");
    host.gets(0, "cmd=name-publish-response;rc=0;");
    host.asks(0, "cmd=name-lookup;name=a;;b;");
    host.named(0, 0, b"x;y");
    host.gets(0, "cmd=name-lookup-response;rc=0;port=x;;y;value=x;;y;");
    // This server's own name service is not used.
    host.events.clear();
    host.job_of_its_own();
    host.asks(2, "cmd=name-lookup;name=a;;b;");
    host.gets(2, "cmd=name-lookup-response;rc=14;errmsg=nobody has published that name;");
}

impl Host {
    /// Registers a job of one rank, on connection 2, that uses the server's own name service.
    fn job_of_its_own(&mut self) {
        let limits = Limits { jobs: 2, ..SMALL };
        *self = Host { replies: VecDeque::new(), ..Host::with_limits(limits) };
        self.job(JobSpec { job: JobId(1), name: "other", ..spec(1) });
        self.tell(Input::Opened { conn: ConnId(2), job: JobId(1), rank: Some(Rank(0)) });
        self.join_v2(2, "");
    }
}

#[test]
fn the_host_is_asked_for_values_of_jobs_that_are_not_connected_here() {
    let mut host = remote(Limits { jobs: 2, spawn_bytes: 2048, ..SMALL });
    host.job(JobSpec { job: JobId(1), name: "other", ..spec(1) });
    let asked = |protocol, rank, request: &str| {
        let (upcall, request) = (UpcallId(0), request.as_bytes());
        format!("{:?}", Output::Upcall { upcall, job: JOB, rank: Rank(rank), protocol, request })
    };
    for jobid in ["elsewhere", "other"] {
        let get = format!("cmd=kvs-get;jobid={jobid};key=k;");
        for (rc, text, reply) in [
            (0, "v;1", "rc=0;found=TRUE;value=v;;1;"),
            (4, "", "rc=0;found=FALSE;"),
            (3, "not connected", "rc=3;errmsg=not connected;"),
        ] {
            host.asks(0, &get);
            assert_eq!(host.events.remove(0), asked(Protocol::V2, 0, &get));
            host.silent();
            host.named(0, rc, text.as_bytes());
            host.gets(0, &format!("cmd=kvs-get-response;{reply}"));
        }
    }
    host.says(1, "cmd=get kvsname=elsewhere key=k\n");
    assert_eq!(host.events.remove(0), asked(Protocol::V1, 1, "cmd=get kvsname=elsewhere key=k"));
    host.named(0, 0, b"v 1");
    host.gets_line(1, "cmd=get_result rc=0 value=v 1\n");
    // Jobs of this server that are connected here are read here.
    host.tell(Input::Connected { job: JOB, other: JobId(1), connected: true });
    host.asks(0, "cmd=kvs-get;jobid=other;key=k;");
    host.gets(0, "cmd=kvs-get-response;rc=0;found=FALSE;");
    for command in ["job-connect", "job-disconnect"] {
        let request = format!("cmd={command};jobid=other;");
        host.asks(0, &request);
        assert_eq!(host.events.remove(0), asked(Protocol::V2, 0, &request));
        host.named(0, 0, b"");
        host.gets(0, &format!("cmd={command}-response;rc=0;kvscopy=FALSE;"));
    }
    assert!(host.events.is_empty(), "{:?}", host.events);
}

#[test]
fn requests_about_other_jobs_are_checked_before_the_host_is_asked() {
    let mut host = remote(SMALL);
    let (jobid, key) = ("j".repeat(JOBID_MAX + 1), "k".repeat(KEY_MAX as usize + 1));
    host.asks(0, &format!("cmd=kvs-get;jobid={jobid};key=k;"));
    host.gets(0, "cmd=kvs-get-response;rc=3;errmsg=no such key-value space, or not connected to its job;");
    host.asks(0, &format!("cmd=kvs-get;jobid=j;key={key};"));
    host.gets(0, "cmd=kvs-get-response;rc=5;errmsg=the key is longer than 64 bytes;");
    host.asks(0, &format!("cmd=job-connect;jobid={jobid};"));
    host.gets(0, "cmd=job-connect-response;rc=3;errmsg=no such job;");
    assert!(host.events.is_empty(), "{:?}", host.events);
    for (len, reply) in [(VALUE_MAX, "rc=0;found=TRUE;"), (VALUE_MAX + 1, "rc=7;errmsg=the value is longer")]
    {
        let mut host = remote(Limits { spawn_bytes: 2048, ..SMALL });
        host.asks(0, "cmd=kvs-get;jobid=j;key=k;");
        host.named(0, 0, &std::vec![b'v'; len as usize]);
        let (_, said) = host.replies.pop_front().unwrap();
        assert!(said.contains(reply), "{len}: {said}");
    }
}

#[test]
fn reasons_reach_both_protocols_and_are_cut() {
    let mut host = remote(SMALL);
    host.asks(0, "cmd=name-unpublish;name=a;");
    host.says(1, "cmd=publish_name service=a port=p\n");
    host.events.clear();
    host.named(0, 14, b"nobody has published that name");
    host.gets(0, "cmd=name-unpublish-response;rc=14;errmsg=nobody has published that name;");
    host.named(1, 14, b"no name service at /x");
    host.gets_line(1, "cmd=publish_result rc=14 info=failed msg=no_name_service_at_/x\n");
    host.asks(0, "cmd=name-unpublish;name=a;");
    host.named(0, 14, &[b'x'; 400]);
    let reason = "x".repeat(MESSAGE_TEXT_MAX);
    host.gets(0, &format!("cmd=name-unpublish-response;rc=14;errmsg={reason};"));
}

#[test]
fn a_port_that_cannot_be_kept_is_a_refusal() {
    for (spawn_bytes, len, reply) in [
        (512, 512, "rc=0;port="),
        (512, 513, "rc=2;errmsg=limit spawn-bytes (512) is used up"),
        (2048, PORT_MAX, "rc=0;port="),
        (2048, PORT_MAX + 1, "rc=8;errmsg=a name has 1 to"),
    ] {
        let mut host = remote(Limits { spawn_bytes, ..SMALL });
        let empty = host.snapshot();
        host.asks(0, "cmd=name-lookup;name=a;");
        host.events.clear();
        host.named(0, 0, &std::vec![b'p'; len]);
        let (_, said) = host.replies.pop_front().unwrap();
        assert!(said.contains(reply), "{len}: {said}");
        assert_eq!(host.snapshot().len(), empty.len(), "the slot is free again");
    }
}

#[test]
fn an_unrequested_result_is_the_hosts_fault() {
    let mut host = remote(SMALL);
    host.asks(0, "cmd=spawn;ncmds=1;preputcount=0;subcmd=a;maxprocs=1;argc=0;infokeycount=0;");
    host.says(1, "cmd=lookup_name service=a\n");
    host.events.clear();
    let before = host.snapshot();
    for input in [
        Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: b"" },
        Input::UpcallComplete { upcall: UpcallId(2), rc: 0, text: b"" },
        Input::SpawnComplete { spawn: UpcallId(1), started: false, full: None, codes: &[] },
        Input::RegisterJob(JobSpec { job: JobId(0), name: "x", spawn: Some(UpcallId(1)), ..spec(1) }),
    ] {
        assert!(host.server.handle(host.now, input).is_err(), "{input:?}");
        assert_eq!(host.snapshot(), before);
    }
    host.named(1, 0, b"p");
    let again = Input::UpcallComplete { upcall: UpcallId(1), rc: 0, text: b"p" };
    assert_eq!(host.server.handle(host.now, again), Err(Fault::NoSuchUpcall));
}

#[test]
fn a_request_goes_with_its_connection() {
    let mut host = remote(SMALL);
    host.asks(0, "cmd=name-lookup;name=a;");
    host.says(1, "cmd=lookup_name service=a\n");
    host.events.clear();
    host.asks(0, "cmd=name-lookup;name=b;");
    let (_, said) = host.replies.pop_front().unwrap();
    assert!(said.contains("rc=2;errmsg=limit spawns (2) is used up"), "{said}");
    host.tell(Input::Closed { conn: ConnId(0) });
    // The host still carries out the upcall. Its completion frees the slot.
    host.named(0, 0, b"late");
    host.silent();
    assert_eq!(
        host.server.handle(host.now, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: b"" }),
        Err(Fault::NoSuchUpcall)
    );
    let mut none = remote(Limits { spawns: 0, ..SMALL });
    none.says(1, "cmd=lookup_name service=a\n");
    let (_, said) = none.replies.pop_front().unwrap();
    assert!(said.contains("rc=2 info=failed msg=limit_spawns_(0)_is_used_up"), "{said}");
}

#[test]
fn a_lookup_says_itself_how_long_it_waits() {
    let mut host = Host::with_limits(SMALL);
    host.job(JobSpec { lookup_wait: 500, ..spec(2) });
    for rank in 0..2 {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    let none = "cmd=name-lookup-response;rc=14;errmsg=nobody has published that name;";
    host.asks(0, "cmd=name-lookup;name=a;wait=0;");
    host.gets(0, none);
    host.asks(0, "cmd=name-lookup;name=a;wait=70;");
    host.asks(1, "cmd=name-lookup;name=a;");
    host.silent();
    assert_eq!(host.server.poll_at(), Some(Time(70)));
    host.now = Time(70);
    host.tell(Input::Timeout);
    host.gets(0, none);
    host.silent();
    assert_eq!(host.server.poll_at(), Some(Time(500)));
}

// Fault: A client of PMI publishes, withdraws or looks for a name that the server gives to notices or monitors
// Outcome: the request is refused
// Guarantee: Clients of PMI neither forge nor see what PMIx keeps among the names
#[cfg(feature = "pmix")]
#[test]
fn names_of_the_server_are_not_for_clients() {
    let mut host = Host::v2(1);
    for first in ["\x01", "\x03"] {
        for (command, rest) in [("publish", "port=p;"), ("unpublish", ""), ("lookup", "")] {
            host.asks(0, &format!("cmd=name-{command};name={first}five;{rest}"));
            let (_, reply) = host.replies.pop_front().unwrap();
            assert!(reply.contains("errmsg=a field has a value"), "{first:?}: {reply}");
        }
    }
    if cfg!(feature = "cluster") {
        host.asks(0, "cmd=name-publish;name=\x02a\x01\x03five;port=p\x03q;");
        let (_, reply) = host.replies.pop_front().unwrap();
        assert!(reply.contains("errmsg=a field has a value"), "{reply}");
    }
    assert_eq!(host.server.used(Limit::Names), 0);
}
