//! Tests of query connections.

use super::*;

fn query(host: &mut Host, conn: u32, fields: &str) {
    host.tell(Input::OpenedQuery { conn: ConnId(conn), job: JOB });
    host.join_v2(conn, fields);
}

fn set(name: &str, first: u32, count: u32) -> Input<'_> {
    Input::Pset { job: JOB, name, first: Rank(first), count }
}

#[test]
fn it_asks_for_a_rank_and_is_not_its_connection() {
    let mut host = Host::v2(2);
    host.tell(set("odd", 1, 1));
    query(&mut host, 4, "pmirank=1;pmijobid=kvs_1;");
    host.asks(4, "cmd=pset-count;");
    host.gets(4, "cmd=pset-count-response;rc=0;count=3;");
    host.asks(4, "cmd=pset-define;name=new;members=0-1;");
    host.gets(4, "cmd=pset-define-response;rc=0;");
    host.asks(0, "cmd=pset-name;index=2;");
    host.gets(0, "cmd=pset-name-response;rc=0;name=app://new;");
    host.asks(1, "cmd=kvs-put;key=k;value=v;");
    host.gets(1, "cmd=kvs-put-response;rc=0;");
    host.asks(4, "cmd=kvs-get;key=k;");
    host.gets(4, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
    host.asks(4, "cmd=job-getid;");
    host.gets(4, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
    host.asks(4, "cmd=info-getjobattr;key=universeSize;");
    host.gets(4, "cmd=info-getjobattr-response;rc=0;found=TRUE;value=9;");
    // The query connection is opened and closed while the rank waits in a fence.
    host.asks(1, "cmd=kvs-fence;");
    host.asks(4, "cmd=finalize;");
    host.gets(4, "cmd=finalize-response;rc=0;");
    host.tell(Input::Closed { conn: ConnId(4) });
    query(&mut host, 4, "pmirank=1;");
    host.asks(0, "cmd=kvs-fence;");
    let fenced: Vec<u32> = host.replies.drain(..).map(|(conn, _)| conn.0).collect();
    assert_eq!(fenced.len(), 2, "{fenced:?}");
    assert!(fenced.contains(&1), "the rank's own connection gets its reply: {fenced:?}");
    assert!(host.events.is_empty(), "{:?}", host.events);
}

#[test]
fn it_counts_for_nothing_in_the_rank_s_life() {
    // A rank that never initializes may query and disconnect.
    let mut host = Host::with_limits(SMALL);
    host.job(spec(2));
    query(&mut host, 0, "pmirank=0;");
    host.tell(Input::Exited { job: JOB, rank: Rank(0), exit: Exit::Code(0) });
    assert!(host.events.is_empty(), "it has not been initialized: {:?}", host.events);
    let mut host = Host::with_limits(SMALL);
    host.job(spec(2));
    // A connected rank must still finalize on its own connection.
    host.open(1, Some(1));
    host.join_v2(1, "pmirank=1;");
    query(&mut host, 2, "pmirank=1;");
    host.asks(2, "cmd=finalize;");
    host.gets(2, "cmd=finalize-response;rc=0;");
    host.tell(Input::Exited { job: JOB, rank: Rank(1), exit: Exit::Code(0) });
    assert!(host.events.pop().is_some_and(|event| event.contains("NoFinalize")));
}

#[test]
fn what_is_no_query_is_refused() {
    let mut host = Host::v2(2);
    query(&mut host, 4, "pmirank=0;");
    for command in [
        "kvs-put;key=k;value=v;",
        "kvs-fence;",
        "info-putnodeattr;key=k;value=v;",
        "info-getnodeattr;key=k;wait=TRUE;",
        "name-publish;name=n;port=p;",
        "name-unpublish;name=n;",
        "name-lookup;name=n;",
        "job-connect;jobid=kvs_1;",
        "job-disconnect;jobid=kvs_1;",
        "ring;ring-count=1;ring-left=l;ring-right=r;",
        "spawn;ncmds=1;preputcount=0;subcmd=x;maxprocs=1;argc=0;infokeycount=0;",
    ] {
        let before = format!("{:?}", host.server.ranks);
        host.asks(4, &format!("cmd={command}"));
        let (_, reply) = host.replies.pop_front().unwrap();
        assert!(reply.contains(";rc=14;errmsg=command not supported;"), "{command} {reply}");
        assert_eq!(format!("{:?}", host.server.ranks), before, "{command}");
    }
    host.asks(4, "cmd=abort;isworld=TRUE;exitcode=3;message=x;");
    assert_eq!(host.events.pop().as_deref(), Some("Close { conn: ConnId(4), why: Refused }"));
    assert!(host.events.is_empty(), "the job goes on");
}

#[test]
fn it_says_who_asks_in_pmi_2() {
    let mut host = Host::new(2);
    for first in ["cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=initack pmiid=1\n"] {
        host.tell(Input::OpenedQuery { conn: ConnId(4), job: JOB });
        host.says(4, first);
        host.replies.pop_front();
        assert_eq!(host.events.pop().as_deref(), Some("Close { conn: ConnId(4), why: Refused }"));
        host.tell(Input::Closed { conn: ConnId(4) });
    }
    for fields in ["pmirank=2;", "pmirank=0;pmijobid=kvs_7;"] {
        host.tell(Input::OpenedQuery { conn: ConnId(4), job: JOB });
        host.says(4, "cmd=init pmi_version=2 pmi_subversion=0\n");
        host.asks(4, "cmd=pset-count;");
        let (_, reply) = host.replies.pop_back().unwrap();
        assert!(reply.contains("rc=1;"), "before it has said who it is: {reply}");
        host.asks(4, &format!("cmd=fullinit;{fields}"));
        let (_, reply) = host.replies.pop_back().unwrap();
        assert!(!reply.contains("rc=0;"), "{fields} {reply}");
        assert_eq!(host.events.pop().as_deref(), Some("Close { conn: ConnId(4), why: Refused }"));
        host.tell(Input::Closed { conn: ConnId(4) });
        host.replies.clear();
    }
    let unknown = Input::OpenedQuery { conn: ConnId(4), job: JobId(7) };
    assert_eq!(host.server.handle(Time(0), unknown), Err(Fault::NoSuchJob));
    let taken = Input::OpenedQuery { conn: ConnId(0), job: JOB };
    assert_eq!(host.server.handle(Time(0), taken), Err(Fault::ConnInUse));
}
