//! Tools: a job of one rank at the head, which no process was started for.

use super::*;
use crate::ids::UpcallId;
use crate::limits::{QUERIES_ATTR, TOOL_ATTR};
use crate::wire::pmix::{Command, HostCall};

/// Number of the tool's job.
const TOOL: JobId = JobId(1);
/// The tool's connection.
const CONN: ConnId = ConnId(9);

/// A job of two ranks on two nodes, and the job of a tool at the head, whose connection is open.
fn cluster() -> Cluster {
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    for node in 0..3 {
        all.tell(node, Input::RegisterJob(JobSpec::new(TOOL, "tool.1", 1)));
        all.tell(node, Input::Attr { job: TOOL, key: TOOL_ATTR.as_bytes(), value: b"tool.1" });
    }
    for (key, value) in [(QUERIES_ATTR, "TRUE"), ("text:pmix.srv.nspace", "server")] {
        all.tell(0, Input::Attr { job: TOOL, key: key.as_bytes(), value: value.as_bytes() });
    }
    all.tell(0, Input::Opened { conn: CONN, job: TOOL, rank: None });
    all
}

fn hello(kind: u8, name: Option<(&str, u32)>) -> Vec<u8> {
    let mut body = b"native\0\0\0\0\0".to_vec();
    body.push(kind);
    if kind != 0 {
        body.extend([0; 8]);
    }
    if let Some((namespace, rank)) = name {
        body.extend(namespace.as_bytes());
        body.push(0);
        body.extend(rank.to_be_bytes());
    }
    body.extend(b"6.1.0\0v61\0\x01hash\0");
    let mut hello = vec![0xff; 8];
    hello.extend((body.len() as u32).to_le_bytes());
    hello.extend([0; 4]);
    hello.extend(body);
    hello
}

impl Cluster {
    fn tool_sends(&mut self, bytes: &[u8]) {
        self.tell(0, Input::Bytes { conn: CONN, bytes, full: false });
    }

    fn tool_gets(&mut self) -> Option<Vec<u8>> {
        self.replies.get_mut(&CONN.0)?.pop_front()
    }

    fn tool_asks(&mut self, tag: u32, write: impl Fn(&mut Writer<'_>)) {
        let mut body = vec![0; pmix::MESSAGE_MAX as usize];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        write(&mut writer);
        let len = writer.finish().expect("it fits");
        let mut message = pmix::write_header(tag, len as u32).to_vec();
        message.extend(&body[..len]);
        self.tool_sends(&message);
    }
}

/// Namespace at a place of a reply.
fn namespace(reply: &[u8], at: usize) -> &[u8] {
    let name = &reply[at..at + 256];
    &name[..name.iter().position(|&byte| byte == 0).expect("it ends")]
}

fn register(writer: &mut Writer<'_>) {
    command(writer, 13);
    writer.array(1);
    writer.int32(-777);
    writer.array(0);
}

fn notify(writer: &mut Writer<'_>) {
    command(writer, 12);
    writer.single();
    writer.int32(-777);
    writer.single();
    // To the session.
    writer.byte(4);
    writer.array(0);
}

#[test]
fn tools_get_names_and_those_who_have_one_keep_it() {
    for (kind, name, named) in [
        (3, None, true),
        (6, None, true),
        (4, Some(("pquery.host.7", 0)), false),
        (7, Some(("launcher", 0)), false),
        (10, Some(("scheduler", 0)), false),
        (5, Some(("toolqry.host.7", 0)), false),
        (8, Some(("prun.host.7", 0)), false),
    ] {
        let mut all = cluster();
        all.tool_sends(&hello(kind, name));
        let own = name.map_or("tool.1", |(own, _)| own);
        assert_eq!(all.servers[0].jobs[1].name, own);
        let mut snapshot = vec![0; all.servers[0].snapshot_len()];
        all.servers[0].snapshot(&mut snapshot).expect("it has room");
        Server::restore(&snapshot, storage(&LIMITS)).expect("it is sound");
        let reply = all.tool_gets().expect("it is answered");
        assert_eq!(reply[..4], [0; 4]);
        let server = if named { 4 + 260 } else { 4 };
        if named {
            assert_eq!(namespace(&reply, 4), b"tool.1");
        }
        assert_eq!(namespace(&reply, server), b"server");
        assert_eq!(reply[server + 256..], [0; 8], "rank of the server, and success");
    }
}

#[test]
fn ranks_are_no_tools_and_tools_are_no_ranks() {
    for bytes in [
        hello(4, Some(("job.0", 0))),
        hello(4, Some(("other", 1))),
        hello(0, Some(("tool.1", 0))),
        hello(5, Some(("job.0", 0))),
        hello(5, Some(("other", 1))),
        hello(9, Some(("tool.1", 0))),
        hello(11, None),
    ] {
        let mut all = cluster();
        all.tool_sends(&bytes);
        let reply = all.tool_gets().expect("it is answered");
        assert_eq!(reply, (status::BAD_PARAM).to_be_bytes(), "{bytes:?}");
    }
    let mut all = cluster();
    let node = all.node(0);
    let conn = ConnId(10);
    all.tell(node, Input::Opened { conn, job: JobId(0), rank: None });
    all.tell(node, Input::Bytes { conn, bytes: &hello(3, None), full: false });
    let reply = all.replies.get_mut(&conn.0).and_then(VecDeque::pop_front);
    assert_eq!(reply, Some(status::BAD_PARAM.to_be_bytes().to_vec()));
}

/// A rank that uses the functions of tools, as a debugger's daemon does.
#[test]
fn a_rank_may_use_the_functions_of_tools() {
    let mut all = cluster();
    let node = all.node(1);
    all.asks(0, 1, 5, |writer| command(writer, 5));
    assert_eq!(all.gets(0, 1, 5, status::SUCCESS), []);
    let conn = ConnId(10);
    all.tell(node, Input::Opened { conn, job: JobId(0), rank: None });
    all.tell(node, Input::Bytes { conn, bytes: &hello(5, Some(("job.0", 1))), full: false });
    let reply = all.replies.get_mut(&conn.0).and_then(VecDeque::pop_front).expect("it is answered");
    assert_eq!((reply.len(), namespace(&reply, 4)), (4 + 260 + 4, &b"hydrant"[..]));
}

#[test]
fn events_of_tools_and_ranks_reach_each_other() {
    let mut all = cluster();
    all.tool_sends(&hello(3, None));
    assert!(all.tool_gets().is_some());
    all.asks(0, 1, 1, register);
    assert_eq!(all.gets(0, 1, 1, status::SUCCESS), []);
    all.tool_asks(2, register);
    assert!(all.tool_gets().is_some());
    all.tool_asks(3, notify);
    assert!(all.tool_gets().is_some(), "the reply");
    all.settle();
    let conn = all.conn(0, 1);
    let event = all.replies.get_mut(&conn).and_then(VecDeque::pop_front).expect("the event of the tool");
    assert!(contains(&event, "tool.1"));
    all.asks(0, 0, 4, notify);
    all.settle();
    let event = all.tool_gets().expect("the event of the rank");
    assert!(contains(&event, "job.0"));
}

/// A job of two ranks starts and ends on all nodes. Rank 0 exits with a code.
fn a_job_ends(all: &mut Cluster, name: &str, code: u8) {
    a_job_of_ends(all, "", name, code);
}

/// The same of a job with a spawner.
fn a_job_of_ends(all: &mut Cluster, spawner: &str, name: &str, code: u8) {
    let job = JobId(2);
    for node in 0..3 {
        all.tell(node, Input::RegisterJob(JobSpec { spawner, ..JobSpec::new(job, name, 2) }));
        all.tell(node, Input::MapRanks { job, first: Rank(0), count: 2, node: 0 });
    }
    for (rank, code) in [(Rank(0), code), (Rank(1), 0)] {
        all.tell(0, Input::Exited { job, rank, exit: Exit::Code(code) });
    }
    (0..3).for_each(|node| all.tell(node, Input::DeregisterJob { job }));
    all.settle();
}

fn register_for_ends(writer: &mut Writer<'_>) {
    command(writer, 13);
    writer.array(1);
    writer.int32(pmix::event::JOB_END);
    writer.array(0);
}

/// Tools get the ends of jobs that were over before they registered, as far as there is room for these.
#[test]
fn tools_learn_of_jobs_that_ended_before() {
    let mut all = cluster();
    a_job_ends(&mut all, "a", 3);
    assert!(!all.servers[1].names.state().iter().any(|name| !name.is_free()), "tools are at the head");
    all.asks(0, 0, 4, register_for_ends);
    assert_eq!(all.gets(0, 0, 4, status::SUCCESS), []);
    all.tool_sends(&hello(3, None));
    assert!(all.tool_gets().is_some());
    all.tool_asks(1, register);
    all.asks(0, 1, 5, notify);
    all.settle();
    assert_eq!(core::iter::from_fn(|| all.tool_gets()).count(), 2, "the reply, and the notice of a rank");
    let snapshot = {
        let mut snapshot = vec![0; all.servers[0].snapshot_len()];
        all.servers[0].snapshot(&mut snapshot).expect("it has room");
        snapshot
    };
    all.servers[0] = Server::restore(&snapshot, storage(&LIMITS)).expect("it is sound");
    all.tool_asks(2, register_for_ends);
    assert!(all.tool_gets().is_some(), "the reply");
    let end = all.tool_gets().expect("the end of the job");
    assert!(contains(&end, "a\0") && contains(&end, "pmix.exit.code"), "{end:?}");
    // The second registration, and another notice, bring nothing that the tool has got.
    all.tool_asks(3, register_for_ends);
    assert!(all.tool_gets().is_some());
    assert_eq!(all.tool_gets(), None);
    a_job_ends(&mut all, "b", 0);
    assert!(all.tool_gets().is_some_and(|end| contains(&end, "b\0")));
    assert_eq!(all.tool_gets(), None);
    let conn = all.conn(0, 0);
    assert!(all.replies.get_mut(&conn).is_none_or(|replies| replies.is_empty()), "ranks get those of theirs");
    // Another tool gets both, in the order of their ends, as far as notices leave room for them.
    let share = LIMITS.names / 4;
    for more in 0..2 * share {
        a_job_ends(&mut all, &format!("c{more}"), 0);
    }
    assert_eq!(core::iter::from_fn(|| all.tool_gets()).count() as u32, 2 * share);
    all.tell(0, Input::Closed { conn: CONN });
    all.tell(0, Input::Opened { conn: CONN, job: TOOL, rank: None });
    all.tool_sends(&hello(3, None));
    assert!(all.tool_gets().is_some());
    all.tool_asks(2, register_for_ends);
    let ends: Vec<_> = core::iter::from_fn(|| all.tool_gets()).skip(1).collect();
    assert_eq!(ends.len() as u32, share);
    for (end, more) in ends.iter().zip(share..) {
        assert!(contains(end, &format!("c{more}\0")), "{more}");
    }
    // What is alive takes their places.
    all.tool_asks(3, register);
    assert!(all.tool_gets().is_some());
    for _ in 0..share {
        all.asks(0, 1, 6, notify);
        all.settle();
    }
    assert_eq!(core::iter::from_fn(|| all.tool_gets()).count() as u32, share);
}

/// The daemons of a debugger, at the same server, learn of the end of the job that they debug, also if the debugger names itself.
#[test]
fn ranks_learn_of_the_ends_of_jobs_of_a_tool() {
    let (daemons, conn) = (JobId(3), ConnId(10));
    for of_tool in [hello(3, None), hello(4, Some(("host:71", 0)))] {
        let mut all = cluster();
        all.tool_sends(&of_tool);
        assert!(all.tool_gets().is_some());
        all.tell(0, Input::RegisterJob(JobSpec { spawner: "tool.1", ..JobSpec::new(daemons, "daemons", 1) }));
        all.tell(0, Input::MapRanks { job: daemons, first: Rank(0), count: 1, node: 0 });
        all.tell(0, Input::Opened { conn, job: daemons, rank: None });
        let mut body = vec![0; pmix::MESSAGE_MAX as usize];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        register_for_ends(&mut writer);
        let len = writer.finish().expect("it fits");
        let request = [&pmix::write_header(4, len as u32), &body[..len]].concat();
        for bytes in [hello(5, Some(("daemons", 0))), request] {
            all.tell(0, Input::Bytes { conn, bytes: &bytes, full: false });
            assert!(all.replies.get_mut(&conn.0).and_then(VecDeque::pop_front).is_some());
        }
        a_job_of_ends(&mut all, "tool.1", "debugged", 0);
        let end = all.replies.get_mut(&conn.0).and_then(VecDeque::pop_front).expect("the end of the job");
        assert!(contains(&end, "debugged\0"), "{end:?}");
    }
}

#[test]
fn the_host_controls_and_starts_jobs_for_tools() {
    let mut all = cluster();
    all.tool_sends(&hello(3, None));
    assert!(all.tool_gets().is_some());
    all.tool_asks(7, |writer| {
        command(writer, 18);
        procs(writer, &[("job.0", WILDCARD)]);
        writer.array(1);
        writer.info(b"pmix.jctrl.kill", pmix::kind::BOOL);
        writer.byte(1);
    });
    let request = all.requests.pop().expect("the host is asked");
    let Some(HostCall::Command { command: asked, .. }) = HostCall::read(&request) else {
        panic!("it is a command")
    };
    let Command::JobControl { targets, orders } = asked else { panic!("{asked:?}") };
    assert!(targets.is_whole(b"job.0") && orders.is_set(b"pmix.jctrl.kill"));
    all.tell(0, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: b"\x02\x00" });
    assert!(all.tool_gets().is_some_and(|reply| reply.ends_with(b"\x02\x00")));
    all.tool_asks(8, |writer| {
        command(writer, 9);
        writer.array(0);
        writer.array(0);
    });
    let request = all.requests.pop().expect("the host is asked");
    let asked = HostCall::read(&request);
    assert!(matches!(asked, Some(HostCall::Command { command: Command::Spawn { .. }, .. })), "{asked:?}");
    all.tell(0, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: b"\x02\x03" });
    assert!(all.tool_gets().is_some_and(|reply| reply.ends_with(b"\x02\x03")));
}

/// A tool asks for the sets of all jobs, or of one.
#[test]
fn tools_see_the_sets_of_all_jobs() {
    let mut all = cluster();
    let job = JobId(0);
    (0..3).for_each(|node| all.tell(node, Input::Define { job, name: "left", members: b"1", other: None }));
    all.tool_sends(&hello(3, None));
    assert!(all.tool_gets().is_some());
    for (named, is_found) in [(None, true), (Some("job.0"), true), (Some("tool.1"), false), (Some(""), false)]
    {
        all.tool_asks(7, |writer| {
            command(writer, 15);
            writer.array(1);
            writer.count(2);
            writer.string(b"pmix.qry.pmems");
            writer.string(b"pmix.qry.psetnum");
            writer.size(1 + u64::from(named.is_some()));
            writer.info(b"pmix.pset.nm", pmix::kind::STRING);
            writer.string(b"left");
            if let Some(name) = named {
                writer.info(b"pmix.nspace", pmix::kind::STRING);
                writer.string(name.as_bytes());
            }
        });
        let number = u32::from(is_found);
        let Some(request) = all.requests.pop() else {
            assert_eq!(named, Some("tool.1"), "its own sets");
            assert!(all.tool_gets().is_some());
            continue;
        };
        let Some(HostCall::Query(query)) = HostCall::read(&request) else { panic!("it is a query") };
        let members = query.answered.find(b"pmix.qry.pmems");
        assert_eq!(members.is_some_and(|members| members.contains(b"job.0", 1)), is_found);
        let count = query.answered.find(b"pmix.qry.psetnum").and_then(|info| info.as_u32());
        assert_eq!(count.unwrap_or(0), number);
        all.tell(0, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: b"\x02\x00" });
        assert!(all.tool_gets().is_some());
    }
    all.tool_asks(8, |writer| {
        command(writer, 13);
        writer.array(1);
        writer.int32(pmix::event::SET_DEFINED);
        writer.array(0);
    });
    assert!(all.tool_gets().is_some(), "the reply");
    let there = all.tool_gets().expect("the set that is there");
    assert!(there.windows(4).any(|bytes| bytes == b"left"));
    for node in 0..3 {
        all.tell(node, Input::Define { job, name: "hydrant://app/1", members: b"1", other: None });
        let request = b"cmd=pset-define;name=right;members=1;";
        all.tell(node, Input::PsetRequest { job, rank: Rank(1), request });
    }
    let change = all.tool_gets().expect("a set of a program");
    assert!(contains(&change, "app://right\0") && contains(&change, "job.0\0"), "{}", change.escape_ascii());
    assert_eq!(all.tool_gets(), None, "a set of the host is none of a program");
}

/// More ranks of a node wait than the host has places for requests. Those are taken by others first.
#[test]
fn the_host_learns_of_all_ranks_that_wait_for_a_debugger() {
    let mut all = queries::cluster_of(2, 8);
    for rank in 0..LIMITS.spawns {
        all.asks(0, rank, 3, |writer| {
            command(writer, 18);
            procs(writer, &[("job.0", WILDCARD)]);
            writer.array(0);
        });
    }
    let asked = std::mem::take(&mut all.requests).len() as u32;
    assert_eq!(asked, LIMITS.spawns);
    // The second report of a rank adds nothing.
    for rank in (0..8).chain([7]) {
        all.asks(0, rank, 4, |writer| {
            command(writer, 12);
            writer.single();
            writer.int32(pmix::event::READY_FOR_DEBUG);
            writer.single();
            writer.byte(6);
            writer.array(0);
        });
    }
    for rank in LIMITS.spawns..8 {
        assert!(all.gets(0, rank, 4, status::SUCCESS).is_empty());
    }
    assert!(all.requests.is_empty());
    let mut snapshot = vec![0; all.servers[1].snapshot_len()];
    all.servers[1].snapshot(&mut snapshot).expect("it has room");
    all.servers[1] = Server::restore(&snapshot, storage(&LIMITS)).expect("it is sound");
    for told in 0..8 + asked {
        let upcall = UpcallId(told % LIMITS.spawns);
        all.tell(1, Input::UpcallComplete { upcall, rc: 0, text: b"" });
    }
    let waits = |request: &Vec<u8>| matches!(HostCall::read(request), Some(HostCall::Waits { .. }));
    assert!(all.requests.iter().all(waits));
    assert_eq!(all.requests.len(), 8);
    assert_eq!(all.servers[1].used(Limit::Spawns), 0);
}
