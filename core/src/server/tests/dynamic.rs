//! Tests of spawn, names, connections, rings, attributes, aborts and process sets.

use super::*;
use crate::UpcallId;
use crate::limits::{DEBUGGED_ATTR, VERBOSE_ATTR};
use crate::wire;

const MANY: Limits = Limits { jobs: 3, ranks: 8, conns: 10, kvs_bytes: 8192, keys: 64, ..SMALL };

/// Registers two jobs of two ranks, on connections 0, 1 and 2, 3.
pub(super) fn two_jobs(lookup_wait: u64) -> Host {
    let mut host = Host::with_limits(MANY);
    for (job, name) in [(JobId(0), "kvs_0"), (JobId(1), "kvs_1")] {
        host.job(JobSpec { job, name, lookup_wait, ..spec(2) });
        for rank in 0..2 {
            let conn = job.0 * 2 + rank;
            host.tell(Input::Opened { conn: ConnId(conn), job, rank: Some(Rank(rank)) });
            host.join_v2(conn, "");
        }
    }
    host
}

impl Host {
    /// Sends a request and expects this reply.
    fn expects(&mut self, conn: u32, command: &str, reply: &str) {
        self.asks(conn, &format!("cmd={command}"));
        let name = command.split(';').next().unwrap_or_default();
        let (from, text) = self.replies.pop_front().unwrap();
        assert_eq!(from, ConnId(conn));
        let body = text.split_once("cmd=").unwrap().1;
        assert!(body.starts_with(&format!("{name}-response;rc={reply}")), "{command}: {body}");
    }
}

#[test]
fn names_are_for_every_job_and_go_with_their_own() {
    let mut host = two_jobs(0);
    host.expects(0, "name-lookup;name=svc;", "14;errmsg=nobody");
    host.expects(0, "name-publish;name=svc;port=tag#0$x;", "0;");
    host.expects(2, "name-publish;name=svc;port=other;", "14;errmsg=the name is published already;");
    host.expects(2, "name-lookup;name=svc;", "0;port=tag#0$x;value=tag#0$x;");
    host.expects(3, "name-unpublish;name=svc;", "0;");
    host.expects(3, "name-unpublish;name=svc;", "14;errmsg=nobody");
    host.expects(0, "name-publish;name=svc;port=again;", "0;");
    host.tell(Input::DeregisterJob { job: JobId(0) });
    host.expects(2, "name-lookup;name=svc;", "14;");
}

#[test]
fn a_lookup_waits_until_the_name_is_published_or_its_time_is_up() {
    let mut host = two_jobs(500);
    host.now = Time(100);
    host.asks(0, "cmd=name-lookup;name=svc;");
    host.asks(2, "cmd=name-lookup;name=none;");
    assert_eq!(host.server.poll_at(), Some(Time(600)));
    host.silent();
    host.asks(3, "cmd=name-publish;name=svc;port=here;");
    host.replies.make_contiguous().sort_by_key(|(conn, _)| conn.0);
    host.gets(0, "cmd=name-lookup-response;rc=0;port=here;value=here;");
    host.replies.clear();
    host.now = Time(600);
    host.tell(Input::Timeout);
    host.gets(2, "cmd=name-lookup-response;rc=14;errmsg=nobody has published that name;");
    // Dropped look-ups leave no slots in use.
    host.expects(2, "name-publish;name=other;port=x;", "0;");
}

// Shows: pmi2.h, Messages | `kvscopy` | whether the client has to copy the other job's space | done: `FALSE`, the
// server reads it
#[test]
fn a_key_value_space_opens_by_connecting() {
    let mut host = two_jobs(0);
    host.expects(2, "kvs-put;key=k;value=v;", "0;");
    host.expects(0, "kvs-get;jobid=kvs_1;key=k;", "3;errmsg=no such key-value space");
    host.expects(0, "job-connect;jobid=kvs_9;", "3;errmsg=no such job;");
    host.expects(0, "job-disconnect;jobid=kvs_1;", "3;errmsg=not connected");
    host.expects(0, "job-connect;jobid=kvs_0;", "0;kvscopy=FALSE;");
    host.expects(0, "job-connect;jobid=kvs_1;", "0;kvscopy=FALSE;");
    host.expects(0, "job-connect;jobid=kvs_1;", "0;kvscopy=FALSE;");
    host.expects(1, "kvs-get;jobid=kvs_1;key=k;", "0;found=TRUE;value=v;");
    host.expects(3, "kvs-get;jobid=kvs_0;key=k;", "0;found=FALSE;");
    host.expects(3, "job-disconnect;jobid=kvs_0;", "0;kvscopy=FALSE;");
    host.expects(0, "kvs-get;jobid=kvs_1;key=k;", "3;");
    host.expects(0, "job-disconnect;jobid=kvs_0;", "3;errmsg=not connected");
    // The host learns of what it has not carried out itself.
    let told = |job, other, connected| {
        format!("{:?}", Output::Connected { job: JobId(job), other: JobId(other), connected })
    };
    assert_eq!(host.events, [told(0, 1, true), told(0, 1, true), told(1, 0, false)]);
    host.tell(Input::Connected { job: JobId(0), other: JobId(1), connected: true });
    assert_eq!(host.events.len(), 3);
}

#[test]
fn what_was_got_stays_so_when_jobs_part() {
    let mut host = two_jobs(0);
    host.expects(2, "kvs-put;key=k;value=v;", "0;");
    host.expects(0, "job-connect;jobid=kvs_1;", "0;");
    host.tell(Input::Blocked { conn: ConnId(0) });
    host.asks(0, "cmd=kvs-get;jobid=kvs_1;key=k;");
    assert!(host.replies.is_empty());
    host.expects(3, "job-disconnect;jobid=kvs_0;", "0;");
    host.tell(Input::Writable { conn: ConnId(0) });
    host.gets(0, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
    host.expects(0, "kvs-get;jobid=kvs_1;key=k;", "3;");
}

// Shows: pmi2.h, Job | `PMIX_Ring` | collective; a process may return before all have called | free: returns when all
// have called
#[test]
fn a_ring_hands_texts_to_neighbours_and_counts_from_below() {
    let mut host = Host::v2(3);
    for _ in 0..2 {
        host.asks(1, "cmd=ring;ring-count=2;ring-left=l1;ring-right=r1;");
        host.asks(0, "cmd=ring;ring-count=1;ring-left=l0;ring-right=r0;");
        host.silent();
        host.asks(2, "cmd=ring;ring-count=1;ring-left=l2;ring-right=r2;");
        host.replies.make_contiguous().sort_by_key(|(conn, _)| conn.0);
        host.gets(0, "cmd=ring-response;rc=0;ring-count=0;ring-left=r2;ring-right=l1;");
        host.gets(1, "cmd=ring-response;rc=0;ring-count=1;ring-left=r0;ring-right=l2;");
        host.gets(2, "cmd=ring-response;rc=0;ring-count=3;ring-left=r1;ring-right=l0;");
    }
    let mut alone = Host::v2(1);
    alone.asks(0, "cmd=ring;ring-count=1;ring-left=me;ring-right=me;");
    alone.gets(0, "cmd=ring-response;rc=0;ring-count=0;ring-left=me;ring-right=me;");
}

#[test]
fn attributes_are_true_or_not_found() {
    let mut host = Host::v2(3);
    for (attr, reply) in [
        ("universeSize", "0;found=TRUE;value=9;"),
        ("hasNameServ", "0;found=TRUE;value=1;"),
        ("physTopology", "0;found=TRUE;value=complete;"),
        ("isHeterogeneous", "0;found=TRUE;value=0;"),
        ("PMI_dead_processes", "0;found=TRUE;value=;"),
        ("physTopologyLevels", "0;found=FALSE;"),
        ("cartDims", "0;found=FALSE;"),
        ("no-such-attribute", "0;found=FALSE;"),
    ] {
        host.expects(0, &format!("info-getjobattr;key={attr};"), reply);
    }
    for (attr, reply) in [
        ("localRanksCount", "0;found=TRUE;value=3;"),
        ("localRanks", "0;found=TRUE;value=0,1,2;"),
        ("cartCoords", "0;found=FALSE;"),
        ("memPoolType", "0;found=FALSE;"),
    ] {
        host.expects(0, &format!("info-getnodeattr;key={attr};"), reply);
    }
}

#[test]
fn the_host_sets_attributes_of_the_job_and_of_the_node() {
    let mut host = Host::with_limits(SMALL);
    host.job(spec(1));
    let longest = "n".repeat(crate::limits::KEY_MAX as usize);
    for (key, value) in [("physTopology", "hierarchical"), ("node:cartCoords", "1,0"), ("site", "north")] {
        host.tell(Input::Attr { job: JOB, key: key.as_bytes(), value: value.as_bytes() });
    }
    host.tell(Input::Attr { job: JOB, key: format!("node:{longest}").as_bytes(), value: b"long" });
    for key in ["node:", &format!("node:{longest}n")] {
        let refused = Input::Attr { job: JOB, key: key.as_bytes(), value: b"v" };
        assert_eq!(host.server.handle(Time(0), refused), Err(Fault::BadAttribute), "{key}");
    }
    host.open(0, Some(0));
    host.join_v2(0, "pmirank=0;");
    host.expects(0, "info-getjobattr;key=physTopology;", "0;found=TRUE;value=hierarchical;");
    host.expects(0, "info-getjobattr;key=site;", "0;found=TRUE;value=north;");
    host.expects(0, "info-getjobattr;key=cartCoords;", "0;found=FALSE;");
    host.expects(0, "info-getjobattr;key=node:cartCoords;", "0;found=FALSE;");
    host.expects(0, "info-getnodeattr;key=cartCoords;wait=TRUE;", "0;found=TRUE;value=1,0;");
    host.expects(0, &format!("info-getnodeattr;key={longest};"), "0;found=TRUE;value=long;");
    host.expects(0, "info-getnodeattr;key=site;", "0;found=FALSE;");
}

/// The host prints a message as it is: nothing of it may act on a terminal.
#[test]
fn an_abort_message_is_whole_and_printable() {
    let long = "é".repeat(crate::limits::ABORT_TEXT_MAX / 2);
    for (text, shown) in [
        ("m".repeat(1024), "m".repeat(1024)),
        (format!("{long}x"), long),
        ("café: one\ntwo;;\x1b[31m".into(), "café: one\ntwo;\\x1b[31m".into()),
    ] {
        for world in [true, false] {
            let mut host = Host::with_limits(Limits { kvs_bytes: 1 << 16, ..SMALL });
            host.job(spec(1));
            host.open(0, Some(0));
            host.join_v2(0, "pmirank=0;");
            let request = format!("cmd=abort;isworld={};msg={text};", if world { "TRUE" } else { "FALSE" });
            let request = format!("{:6}{request}", request.len());
            // The output stays pending.
            let input = Input::Bytes { conn: ConnId(0), bytes: request.as_bytes(), full: false };
            host.server.handle(host.now, input).unwrap();
            let mut other = restored_as(&host);
            for server in [&mut host.server, &mut other] {
                let mut buf = [0; OUTPUT_MAX];
                let said = match server.poll(&mut buf).unwrap() {
                    Some(Output::AbortJob { message, .. } | Output::KillRank { message, .. }) => message,
                    other => panic!("{other:?}"),
                };
                assert_eq!(said, shown);
            }
        }
    }
    let mut board = Host::v2(1);
    board.asks(0, &format!("cmd=abort;isworld=TRUE;msg={};", "m".repeat(1024)));
    assert!(board.events[0].contains(&format!("\"{}\"", "m".repeat(200))), "a board has less room");
}

fn restored_as(host: &Host) -> Server<'static> {
    let snapshot = host.snapshot();
    Server::restore(&snapshot, storage(&host.server.limits)).unwrap()
}

#[test]
fn a_rank_may_abort_alone() {
    let mut host = Host::v2(3);
    host.asks(0, "cmd=kvs-fence;");
    host.asks(2, "cmd=abort;isworld=FALSE;msg=leaving;exitcode=4;");
    let killed = Output::KillRank { job: JOB, rank: Rank(2), code: Some(4), message: "leaving" };
    assert_eq!(host.events.pop(), Some(format!("{killed:?}")));
    host.exits(2, Exit::Signal(15));
    host.silent();
    for _ in 0..2 {
        host.asks(1, "cmd=kvs-fence;");
        assert_eq!(host.replies.len(), 2, "the fence counts the living");
        host.replies.clear();
        host.asks(0, "cmd=kvs-fence;");
        host.silent();
    }
    host.asks(1, "cmd=kvs-fence;");
    host.replies.clear();
    host.expects(0, "info-getjobattr;key=PMI_dead_processes;", "0;found=TRUE;value=2;");
}

const SPAWN: &str = "cmd=spawn;ncmds=2;preputcount=1;ppkey0=PARENT;ppval0=port;\
    subcmd=./a;maxprocs=2;argc=1;argv0=;infokeycount=0;subcmd=./b;maxprocs=1;argc=0;infokeycount=0;";

fn spawned(spawn: Option<UpcallId>) -> JobSpec<'static> {
    JobSpec { job: JobId(2), name: "kvs_child", spawn, ..spec(3) }
}

#[test]
fn a_spawn_is_told_to_the_host_and_answered_by_it() {
    let mut host = two_jobs(0);
    host.asks(1, SPAWN);
    let event = host.events.pop().unwrap();
    assert!(
        event.starts_with("Spawn { spawn: UpcallId(0), job: JobId(0), rank: Rank(1), protocol: V2"),
        "{event}"
    );
    let request = SPAWN.as_bytes();
    let spawn = wire::decode_spawn(wire::Protocol::V2, request).unwrap();
    assert_eq!(spawn.programs().map(|program| program.maxprocs()).collect::<Vec<_>>(), [2, 1]);
    host.silent();
    host.job(spawned(Some(UpcallId(0))));
    host.tell(Input::Attr { job: JobId(2), key: DEBUGGED_ATTR.as_bytes(), value: b"TRUE" });
    host.tell(Input::Attr { job: JobId(2), key: VERBOSE_ATTR.as_bytes(), value: b"1" });
    host.tell(Input::SpawnComplete { spawn: UpcallId(0), started: true, full: None, codes: &[0, 0] });
    host.gets(1, "cmd=spawn-response;rc=0;jobid=kvs_child;errcodes=0,0;");
    host.tell(Input::Opened { conn: ConnId(4), job: JobId(2), rank: Some(Rank(0)) });
    host.says(4, "cmd=init pmi_version=2 pmi_subversion=0\n");
    host.replies.clear();
    host.expects(
        4,
        "fullinit;pmirank=0;",
        "0;pmi-version=2;pmi-subversion=0;rank=0;size=3;appnum=0;\
        debugged=TRUE;pmiverbose=FALSE;spawner-jobid=kvs_0;",
    );
    host.expects(4, "kvs-get;key=PARENT;", "0;found=TRUE;value=port;");
}

#[test]
fn a_spawn_that_fails_is_an_error_with_codes() {
    let mut host = two_jobs(0);
    host.asks(0, SPAWN);
    host.events.clear();
    host.tell(Input::SpawnComplete { spawn: UpcallId(0), started: false, full: None, codes: &[2, 125] });
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(
        reply.contains("cmd=spawn-response;rc=14;errmsg=") && reply.ends_with(";errcodes=2,125;"),
        "{reply}"
    );
    let again = host.server.handle(
        host.now,
        Input::SpawnComplete { spawn: UpcallId(0), started: false, full: None, codes: &[2, 125] },
    );
    assert_eq!(again, Err(Fault::NoSuchUpcall));
}

/// A PMI-1 reply has a code for each process, and the buffer for outputs has room for about 2,000 codes.
// Fault: A PMI-1 spawn of more processes than its reply has room for error codes
// Outcome: an error reply names the limit
// Guarantee: Nothing starts. Codes of a failed spawn that do not fit are left out
#[test]
fn a_spawn_whose_codes_exceed_a_reply_is_refused_with_the_limit() {
    let mut host = Host::with_limits(Limits { spawn_bytes: 4096, ..SMALL });
    host.job(spec(1));
    host.open(0, Some(0));
    host.says(0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    host.replies.clear();
    let spawn = |count: u32| {
        format!(
            "mcmd=spawn\nnprocs={count}\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n"
        )
    };
    host.says(0, &spawn(2145));
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.starts_with("cmd=spawn_result rc=2 msg=limit_spawn-bytes_(4096)_is_used_up"), "{reply}");
    host.says(0, &spawn(2144));
    assert!(host.events.pop().unwrap().starts_with("Spawn { spawn: UpcallId(0)"));
    // Codes of three digits do not fit. The reply names the reason of the host without them.
    let full = Some(Limit::Ranks);
    host.tell(Input::SpawnComplete { spawn: UpcallId(0), started: false, full, codes: &[125] });
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.starts_with("cmd=spawn_result rc=2 msg=limit_ranks_(4)_is_used_up"), "{reply}");
    assert!(!reply.contains("errcodes"), "{reply}");
}

#[test]
fn spawns_have_limits_and_are_dropped_with_who_asked() {
    let mut host = two_jobs(0);
    host.asks(0, SPAWN);
    host.asks(1, SPAWN);
    host.events.clear();
    host.expects(2, &SPAWN["cmd=".len()..], "2;errmsg=limit spawns (2) is used up");
    let long = SPAWN.replace("port", &"x".repeat(500));
    host.tell(Input::Closed { conn: ConnId(0) });
    let before = host.snapshot();
    let late = Input::RegisterJob(spawned(Some(UpcallId(7))));
    assert_eq!(host.server.handle(host.now, late), Err(Fault::NoSuchUpcall));
    assert_eq!(host.snapshot(), before);
    host.tell(Input::SpawnComplete { spawn: UpcallId(0), started: false, full: None, codes: &[1, 1] });
    host.silent();
    host.expects(2, &long["cmd=".len()..], "2;errmsg=limit spawn-bytes (512)");
    host.asks(2, SPAWN);
    assert!(host.events.pop().unwrap().starts_with("Spawn { spawn: UpcallId(0), job: JobId(1)"));
}

#[test]
fn process_sets_are_counted_by_those_who_are_in_them() {
    let mut host = Host::with_limits(MANY);
    host.job(JobSpec { cleanup: false, ..spec(3) });
    host.tell(Input::Pset { job: JOB, name: "app://ocean", first: Rank(0), count: 2 });
    for rank in 0..3 {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    host.expects(0, "pset-count;", "0;count=3;");
    host.expects(2, "pset-count;", "0;count=2;");
    host.expects(0, "pset-name;index=0;", "0;name=mpi://WORLD;");
    host.expects(0, "pset-name;index=2;", "0;name=app://ocean;");
    host.expects(2, "pset-name;index=2;", "3;errmsg=no such process set");
    host.expects(0, "pset-info;name=mpi://world;", "0;size=3;");
    host.expects(0, "pset-info;name=mpi://SELF;", "0;size=1;");
    host.expects(2, "pset-info;name=app://ocean;", "3;");
    host.expects(2, "pset-define;name=mine;members=1-2;", "0;");
    host.expects(1, "pset-define;name=mine;members=2,1;", "0;");
    host.expects(1, "pset-define;name=mine;members=0-2;", "14;errmsg=a process set of that name");
    host.expects(1, "pset-define;name=mpi://x;members=0;", "3;");
    host.expects(1, "pset-define;name=x;members=3;", "3;");
    host.expects(1, "pset-name;index=3;", "0;name=app://mine;");
    host.expects(1, "pset-members;name=mine;", "0;members=1-2;");
    host.expects(1, "pset-members;name=mine;from=2;", "0;members=2;");
    host.exits(2, Exit::Signal(9));
    host.expects(1, "pset-count;", "0;count=4;");
    host.expects(1, "pset-info;name=mine;", "14;errmsg=a member of the process set has died;");
    host.expects(1, "pset-info;name=mpi://WORLD;", "14;");
    host.expects(1, "pset-info;name=app://ocean;", "0;size=2;");
}

/// Programs without MPI end with code 0 and have not failed. Of others the exit is all that the server learns.
#[test]
fn a_member_that_fails_before_it_joins_is_dead() {
    for (cleanup, exit, dead) in [
        (false, Exit::Code(7), true),
        (true, Exit::Code(7), true),
        (false, Exit::Code(0), false),
        (true, Exit::Code(0), false),
    ] {
        let mut host = Host::with_limits(MANY);
        host.job(JobSpec { cleanup, ..spec(2) });
        host.exits(1, exit);
        assert!(host.events.is_empty(), "{:?}", host.events);
        host.open(0, Some(0));
        host.says(0, "cmd=init pmi_version=2 pmi_subversion=0\n");
        host.asks(0, "cmd=fullinit;pmirank=0;");
        host.replies.clear();
        host.expects(0, "pset-info;name=mpi://WORLD;", if dead { "14;" } else { "0;size=2;" });
        let listed = if dead && !cleanup { "0;found=TRUE;value=1;" } else { "0;found=TRUE;value=;" };
        host.expects(0, "info-getjobattr;key=PMI_dead_processes;", listed);
    }
}

/// Defines a set of all ranks of two jobs.
fn both<'a>(name: &'a str, members: &'a [u8]) -> Input<'a> {
    Input::Define { job: JobId(0), name, members, other: Some(JobId(1)) }
}

// Shows: MPI Sessions, Process sets | sets of several jobs | free | done: `hydrant://job/NAME/with-parent` of a
// spawned job and its parent, set operations, retire and prune, the end of a job, PMIx events. A group of them
// without an MPI library; in front of one an error
// Also: hydrant-core `a_process_set_ends_with_the_first_of_its_jobs`,
// `changes_of_a_process_set_are_reported_to_the_jobs_of_its_ranks`, libraries
// `mpi::alone::sets_hold_ranks_of_parent_and_child`, `mpi::beside::sets_hold_ranks_of_parent_and_child`
#[test]
fn a_process_set_holds_ranks_of_two_jobs() {
    let mut host = two_jobs(0);
    host.tell(both("hydrant://both", b"0-1"));
    for conn in 0..4 {
        host.expects(conn, "pset-count;", "0;count=3;");
        host.expects(conn, "pset-name;index=2;", "0;name=hydrant://both;");
        host.expects(conn, "pset-info;name=hydrant://both;", "0;size=4;");
        host.expects(conn, "pset-info;name=mpi://WORLD;", "0;size=2;");
        // The order of members is the same for all of them. Ranks of another job have its id.
        let (first, second) = if conn < 2 { ("", "jobid=kvs_1;") } else { ("jobid=kvs_0;", "") };
        let members = "pset-members;name=hydrant://both;";
        host.expects(conn, members, &format!("0;members=0-1;{first}next=2;"));
        host.expects(conn, &format!("{members}from=2;"), &format!("0;members=0-1;{second}"));
        host.expects(conn, &format!("{members}from=3;"), &format!("0;members=1;{second}"));
    }
    host.expects(
        0,
        "pset-combine;name=theirs;operation=difference;pset1=hydrant://both;pset2=mpi://WORLD;",
        "0;",
    );
    host.expects(0, "pset-info;name=theirs;", "3;errmsg=no such process set");
    host.expects(3, "pset-members;name=theirs;", "0;members=0-1;");
    host.expects(3, "pset-combine;name=few;operation=union;pset1=mpi://SELF;pset2=theirs;", "0;");
    host.expects(2, "pset-members;name=few;", "0;members=0-1;");
    for (request, refusal) in [
        ("name=x;operation=union;pset1=mpi://WORLD;pset2=theirs;", "3;errmsg=no such process set"),
        ("name=x;operation=difference;pset1=mpi://SELF;pset2=mpi://WORLD;", "3;"),
        (
            "name=theirs;operation=union;pset1=hydrant://both;pset2=mpi://WORLD;",
            "14;errmsg=a process set of that name",
        ),
        ("name=x;operation=sum;pset1=mpi://SELF;pset2=mpi://WORLD;", "3;"),
    ] {
        host.expects(0, &format!("pset-combine;{request}"), refusal);
    }
}

#[test]
fn a_process_set_ends_with_the_first_of_its_jobs() {
    let mut host = two_jobs(0);
    host.tell(both("both", b"1"));
    host.expects(1, "pset-define;name=own;members=0-1;", "0;");
    host.expects(1, "pset-next;", "0;name=app://both;serial=1;");
    let end = Input::Define { job: JobId(0), name: "end", members: b"0", other: Some(JobId(7)) };
    assert_eq!(host.server.handle(Time(0), end), Err(Fault::NoSuchJob));
    // The replies to rank 1 are pending while the other job ends.
    host.tell(Input::Blocked { conn: ConnId(1) });
    for request in ["cmd=pset-name;index=2;", "cmd=pset-next;", "cmd=pset-members;name=both;"] {
        host.asks(1, request);
    }
    for rank in 0..2 {
        host.expects(2 + rank, "finalize;", "0;");
        host.tell(Input::Exited { job: JobId(1), rank: Rank(rank), exit: Exit::Code(0) });
    }
    host.tell(Input::DeregisterJob { job: JobId(1) });
    host.tell(Input::Writable { conn: ConnId(1) });
    for command in ["pset-name", "pset-next", "pset-members"] {
        let (_, text) = host.replies.pop_front().unwrap();
        assert!(text.contains(&format!("cmd={command}-response;rc=3;errmsg=no such process set")), "{text}");
    }
    host.expects(1, "pset-info;name=both;", "3;errmsg=no such process set");
    host.expects(1, "pset-retire;name=both;", "3;errmsg=no such process set");
    host.expects(1, "pset-count;", "0;count=3;");
    host.expects(1, "pset-next;after=1;", "0;name=app://own;serial=2;");
    host.expects(1, "pset-define;name=both;members=0;", "0;");
}

// Fault: A process set is removed while a reply about it is pending
// Outcome: the reply is a refusal
// Guarantee: No reply names another set than the request
#[test]
fn a_removed_process_set_is_in_no_reply() {
    let mut host = Host::with_limits(MANY);
    host.job(spec(3));
    for rank in 0..3 {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    host.expects(2, "pset-define;name=mine;members=1-2;", "0;");
    host.expects(1, "pset-next;", "0;name=app://mine;serial=1;");
    host.expects(1, "pset-next;after=1;", "3;errmsg=no such process set");
    // The replies to rank 1 are pending while rank 2 removes the set and defines another one in its place.
    host.tell(Input::Blocked { conn: ConnId(1) });
    for request in ["cmd=pset-name;index=2;", "cmd=pset-next;", "cmd=pset-members;name=mine;"] {
        host.asks(1, request);
    }
    host.expects(0, "pset-retire;name=mine;", "3;errmsg=no such process set");
    host.expects(2, "pset-retire;name=mine;", "0;");
    host.expects(0, "pset-prune;", "0;");
    host.expects(2, "pset-info;name=mine;", "0;size=2;");
    host.expects(2, "pset-prune;", "0;");
    host.expects(2, "pset-define;name=other;members=1-2;", "0;");
    host.tell(Input::Writable { conn: ConnId(1) });
    for command in ["pset-name", "pset-next", "pset-members"] {
        let (_, text) = host.replies.pop_front().unwrap();
        assert!(text.contains(&format!("cmd={command}-response;rc=3;errmsg=no such process set")), "{text}");
    }
    host.expects(1, "pset-next;after=1;", "0;name=app://other;serial=3;");
}

/// Registers a job of `size` ranks that continues without dead ranks, after PMI-2's handshake.
fn surviving(size: u32) -> Host {
    let mut host = Host::with_limits(MANY);
    host.job(JobSpec { cleanup: false, ..spec(size) });
    for rank in 0..size {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    host
}

const RING: &str = "cmd=ring;ring-count=1;ring-left=l;ring-right=r;";

#[test]
fn a_ring_neither_counts_the_dead_nor_waits_for_them() {
    let mut host = surviving(3);
    host.asks(0, RING);
    host.exits(0, Exit::Signal(9));
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.contains("cmd=ring-response;rc=3;"), "{reply}");
    host.asks(1, RING);
    host.silent();
    host.asks(2, RING);
    assert_eq!(host.replies.len(), 2);
    host.replies.clear();
    host.asks(1, RING);
    host.silent();
    host.exits(2, Exit::Signal(9));
    host.gets(1, "cmd=ring-response;rc=0;ring-count=0;ring-left=r;ring-right=l;");
}

#[test]
fn what_a_process_said_before_its_end_counts_no_more() {
    let mut host = surviving(3);
    host.exits(0, Exit::Signal(9));
    host.expects(0, "kvs-fence;", "3;errmsg=");
    host.expects(0, "ring;ring-count=1;ring-left=l;ring-right=r;", "3;errmsg=");
    host.asks(0, "cmd=abort;isworld=FALSE;");
    host.asks(1, "cmd=kvs-fence;");
    host.silent();
    host.asks(2, "cmd=kvs-fence;");
    assert_eq!(host.replies.len(), 2);
}

#[test]
fn no_rank_waits_for_one_that_aborted_alone() {
    let mut host = Host::v2(4);
    host.asks(3, "cmd=abort;isworld=FALSE;msg=leaving;");
    host.exits(3, Exit::Signal(15));
    host.events.clear();
    host.asks(0, "cmd=kvs-fence;");
    host.silent();
    host.exits(1, Exit::Signal(11));
    let event = host.events.pop().unwrap();
    assert!(event.contains("NoFinalize") && event.ends_with("message: \"\" }"), "{event}");
}

#[test]
fn a_ring_that_waits_for_a_process_that_is_gone_ends_its_job() {
    let mut host = Host::v2(2);
    host.expects(1, "finalize;", "0;");
    host.asks(0, RING);
    host.exits(1, Exit::Code(0));
    assert!(host.events.pop().unwrap().contains("Absent { rank: Rank(1)"));
}

#[test]
fn a_ring_is_refused_whole() {
    let mut host = Host::with_limits(Limits { kvs_bytes: 256, ..MANY });
    host.job(spec(2));
    host.open(0, Some(0));
    host.join_v2(0, "");
    let text = "x".repeat(100);
    let before = host.snapshot();
    host.expects(
        0,
        &format!("ring;ring-count=1;ring-left=l{text};ring-right=r{text};"),
        "2;errmsg=limit kvs-bytes",
    );
    host.expects(0, &format!("ring;ring-count=1;ring-left=l;ring-right={};", "x".repeat(1025)), "7;");
    assert_eq!(host.snapshot(), before);
}

#[test]
fn a_spawned_job_gets_its_spawner_after_the_spawners_end() {
    let mut host = two_jobs(0);
    host.asks(0, SPAWN);
    host.tell(Input::DeregisterJob { job: JobId(0) });
    host.job(JobSpec { name: "kvs_next", ..spec(1) });
    host.events.clear();
    host.job(spawned(Some(UpcallId(0))));
    host.tell(Input::Opened { conn: ConnId(4), job: JobId(2), rank: Some(Rank(0)) });
    host.says(4, "cmd=init pmi_version=2 pmi_subversion=0\n");
    host.replies.clear();
    host.asks(4, "cmd=fullinit;");
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.ends_with("spawner-jobid=kvs_0;"), "{reply}");
}

#[test]
fn attributes_are_not_in_another_jobs_space() {
    let mut host = Host::with_limits(MANY);
    host.job(spec(1));
    host.job(JobSpec { job: JobId(1), name: "kvs_2", ..spec(1) });
    host.open(0, Some(0));
    host.says(0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    host.replies.clear();
    host.tell(Input::Opened { conn: ConnId(1), job: JobId(1), rank: Some(Rank(0)) });
    host.join_v2(1, "");
    host.replies.clear();
    host.expects(1, &format!("job-connect;jobid={};", spec(1).name), "0;");
    host.says(0, "cmd=get kvsname=kvs_2 key=universeSize\n");
    host.gets_line(0, "cmd=get_result rc=1 msg=key_not_found value=unknown\n");
    host.says(0, "cmd=get key=universeSize\n");
    host.gets_line(0, "cmd=get_result rc=0 value=9\n");
}
