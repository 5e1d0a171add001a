//! Requests of clients to the board, and the events that its host receives.

use hydrant_core::limits::{Limit, VALUE_MAX};
use hydrant_core::manage::{Error, Request, VERSION};
use hydrant_core::server::JobSpec;
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Rank};
use hydrant_tests::Running;

use super::manager::{Manager, counters, used};
use super::qemu::Board;
use super::talk::Talk;

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Runs `tests/src/bin/pmi-raw.rs` as every rank; gives what all said.
fn raw(board: &Board, size: u32, steps: &str) -> String {
    let start = |rank| {
        let words = steps.lines().map(str::trim_start).filter(|line| !line.is_empty());
        let words = words.flat_map(|line| line.splitn(2, ' '));
        board.rank(RAW, rank, size).env("PMI_JOBID", "raw").args(words).start()
    };
    let ranks: Vec<Running> = (0..size).map(start).collect();
    ranks.into_iter().map(|rank| rank.wait().code(0).stdout.clone()).collect()
}

/// A board with an open job that its host tells of exits.
fn served(clients: usize, size: u32) -> Option<(Board, Manager, JobId)> {
    let board = Board::small(clients, "")?;
    let mut manager = Manager::of_node(board.host(0));
    let job = manager.open_spec(JobSpec { fence_warning: 50, ..JobSpec::new(JobId(0), "raw", size) });
    Some((board, manager, job))
}

#[test]
fn clients_of_both_protocols_are_served() {
    let Some((board, mut manager, job)) = served(3, 3) else { return };
    let steps = r"ack1
        init1
        send cmd=get_maxes\n
        expect cmd=maxes rc=0 vallen_max=1024
        send cmd=put kvsname=raw key=k%r value=v%r\n
        expect cmd=put_result rc=0
        fence1
        send cmd=get kvsname=raw key=k2\n
        expect cmd=get_result rc=0 value=v2
        send cmd=barrier_in group=0,1,2:7\n
        expect cmd=barrier_out rc=0 tag=7
        send cmd=get kvsname=raw key=PMI_process_mapping\n
        expect cmd=get_result rc=0 value=(vector,(0,1,3))
        only 0
        send cmd=publish_name service=name port=there\n
        expect cmd=publish_result rc=0
        all
        fence1
        send cmd=lookup_name service=name\n
        expect cmd=lookup_result rc=0 port=there
        fence1
        end1
        say done";
    assert_eq!(raw(&board, 3, steps), "done\n".repeat(3));
    manager.forget(job);
    let job = manager.open("raw", 3);
    let steps = r"init2
        frame cmd=job-getid;
        expect cmd=job-getid-response;jobid=raw;rc=0;
        frame cmd=kvs-put;key=k%r;value=v%r;
        expect cmd=kvs-put-response;rc=0;
        fence2
        frame cmd=kvs-get;key=k1;
        expect cmd=kvs-get-response;found=TRUE;value=v1;rc=0;
        only 1
        frame cmd=info-putnodeattr;key=a;value=b;
        expect cmd=info-putnodeattr-response;rc=0;
        all
        frame cmd=info-getnodeattr;key=a;wait=TRUE;
        expect cmd=info-getnodeattr-response;found=TRUE;value=b;rc=0;
        frame cmd=info-getjobattr;key=universeSize;
        expect cmd=info-getjobattr-response;found=FALSE;rc=0;
        frame cmd=ring;ring-count=1;ring-left=l%r;ring-right=r%r;
        only 0
        expect cmd=ring-response;ring-count=0;ring-left=r2;ring-right=l1;rc=0;
        only 1
        expect cmd=ring-response;ring-count=1;ring-left=r0;ring-right=l2;rc=0;
        only 2
        expect cmd=ring-response;ring-count=2;ring-left=r1;ring-right=l0;rc=0;
        only 0
        frame cmd=pset-define;name=app://ends;members=0,2;
        expect cmd=pset-define-response;rc=0;
        all
        fence2
        only 2
        frame cmd=pset-info;name=app://ends;
        expect cmd=pset-info-response;size=2;rc=0;
        all
        frame cmd=pset-info;name=mpi://WORLD;
        expect cmd=pset-info-response;size=3;rc=0;
        fence2
        end2
        say done";
    assert_eq!(raw(&board, 3, steps), "done\n".repeat(3));
    manager.all_exited(job, 3);
    let rank = manager.rank(job, 2);
    assert!(rank.contains("finalized: true") && rank.contains("exit: Some(Code(0))"), "{rank}");
    hydrant_tests::tell(&format!("stack: {} bytes", counters(board.host(1)).stack));
    assert!(board.runs());
}

/// Longer than a socket's buffer, longer than any buffer, and in pieces that end anywhere.
#[test]
fn messages_of_any_length_and_in_any_split() {
    let Some((board, mut manager, _)) = served(2, 2) else { return };
    let mut one = Talk::rank(board.client(0), 0);
    let mut two = Talk::rank2(board.client(1), 1);
    let value = "v".repeat(VALUE_MAX as usize);
    one.ask(&format!("cmd=put kvsname=raw key=long value={value}"), "cmd=put_result rc=0");
    two.ask2("cmd=kvs-get;key=long;", &format!("cmd=kvs-get-response;rc=0;found=TRUE;value={value};"));
    // Each semicolon is said twice.
    let value = ";".repeat(2 * VALUE_MAX as usize);
    two.ask2(&format!("cmd=kvs-put;key=longest;value={value};"), "cmd=kvs-put-response;rc=0;");
    two.ask2("cmd=kvs-get;key=longest;", &format!("cmd=kvs-get-response;rc=0;found=TRUE;value={value};"));
    one.ask("cmd=get kvsname=raw key=longest", &format!("cmd=get_result rc=0 value={}", ";".repeat(1024)));
    // Far more than the buffer in all, so that every message lies at its end once.
    for at in 0..40 {
        for piece in [&b"cmd=get "[..], b"kvsname=raw key=l", b"ong\n"] {
            one.say(piece);
        }
        assert!(one.line().starts_with("cmd=get_result rc=0 value=vvv"), "{at}");
        two.say(b"21    cmd=kvs-g");
        two.say(b"et;key=none;");
        assert!(two.frame().starts_with("cmd=kvs-get-response;rc=0;found=FALSE;"), "{at}");
    }
    // Several at once.
    one.say("cmd=get_universe_size\n".repeat(60).as_bytes());
    for _ in 0..60 {
        assert_eq!(one.line(), "cmd=universe_size rc=0 size=-1");
    }
    one.say(format!("cmd={}", "c".repeat(4000)).as_bytes());
    assert!(one.closed());
    assert!(manager.event("Closed").contains("TooLong"));
    two.ask2("cmd=kvs-get;key=none;", "cmd=kvs-get-response;rc=0;found=FALSE;");
}

// Fault: A host or client connects to a board while it starts
// Outcome: it is accepted
// Guarantee: All sockets listen before the first frame is read
#[test]
fn spawn_and_full_tables_are_refused_by_name() {
    let Some((mut board, mut manager, _)) = served(1, 1) else { return };
    let mut rank = Talk::rank2(board.client(0), 0);
    let spawn = "cmd=spawn;ncmds=1;preputcount=0;subcmd=a.out;maxprocs=1;argc=0;infokeycount=0;";
    let refusal = rank.ask2(spawn, "cmd=spawn-response;");
    assert!(refusal.contains("this host starts no processes"), "{refusal}");
    manager.event("why: Full(SpawnBytes, ");
    let (stored, refusal) = until_refused(&mut rank, |at| format!("cmd=kvs-put;key=key-{at};value=v;"));
    assert!(refusal.contains("limit keys"), "{refusal}");
    manager.event("why: Full(Keys, ");
    assert_eq!(used(board.host(1), Limit::Keys), stored + 1, "its own and the mapping");
    board.await_log("(Keys, ");
    // What is stored stays.
    rank.ask2("cmd=kvs-get;key=key-0;", "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
}

/// Says the requests that `request` makes of 0, 1, 2 and so on, until one is refused. How many were not, and the refusal.
fn until_refused(rank: &mut Talk, request: impl Fn(u32) -> String) -> (u32, String) {
    let mut done = 0;
    loop {
        rank.say2(&request(done));
        let reply = rank.frame();
        if !reply.contains("rc=0;") {
            return (done, reply);
        }
        done += 1;
    }
}

#[test]
fn each_full_table_has_a_name() {
    let Some((board, mut manager, _)) = served(6, 6) else { return };
    let mut told = |limit: Limit, refusal: &str| {
        assert!(refusal.contains(&format!("limit {}", limit.name())), "{refusal}");
        manager.event(&format!("why: Full({limit:?}, "));
    };
    let mut rank = Talk::rank2(board.client(5), 5);
    let (names, refusal) = until_refused(&mut rank, |at| format!("cmd=name-publish;name=n{at};port=p;"));
    assert_eq!(names, 2);
    told(Limit::Names, &refusal);
    let (psets, refusal) =
        until_refused(&mut rank, |at| format!("cmd=pset-define;name=app://s{at};members=5;"));
    assert!(psets > 0);
    told(Limit::Psets, &refusal);
    let value = "v".repeat(VALUE_MAX as usize);
    let (values, refusal) = until_refused(&mut rank, |at| format!("cmd=kvs-put;key=k{at};value={value};"));
    assert!(values > 0);
    told(Limit::KvsBytes, &refusal);
    // Each waits for rank 5, which comes to none of them.
    let mut ranks = [0, 1, 2, 3, 4].map(|rank| Talk::rank(board.client(rank), rank as u32));
    for (at, rank) in ranks.iter_mut().enumerate() {
        rank.say(format!("cmd=barrier_in group={at},5:0\n").as_bytes());
        rank.say(b"cmd=get_appnum\n");
        if at < 4 {
            assert_eq!(rank.line(), "cmd=appnum rc=0 appnum=0");
        } else {
            told(Limit::Groups, &rank.line().replace('_', " "));
        }
    }
}

#[test]
fn the_host_learns_what_happens() {
    let Some((mut board, mut manager, job)) = served(2, 2) else { return };
    let mut one = Talk::rank(board.client(0), 0);
    assert!(manager.event("Joined").contains("rank: Rank(0)"));
    one.say(b"cmd=barrier_in\n");
    assert!(manager.event("StalledFence").contains("missing: \"1\""));
    assert!(manager.rank(job, 0).contains("in_fence: true"));
    let mut two = Talk::rank2(board.client(1), 1);
    two.say2("cmd=kvs-fence;");
    assert!(two.frame().starts_with("cmd=kvs-fence-response;rc=0;"));
    assert_eq!(one.line(), "cmd=barrier_out rc=0");
    board.await_log("fence of 2 complete");
    two.say(b"17    cmd=abort;code=9;");
    let end = manager.event("AbortJob");
    assert!(end.contains("Abort { rank: Rank(1)"), "{end}");
    manager.exited(job, 1, Exit::Code(9));
    assert!(manager.rank(job, 1).contains("exit: Some(Code(9))"));
    let absent = Input::Exited { job, rank: Rank(2), exit: Exit::Code(0) };
    assert_eq!(manager.input(absent), Err(Fault::NoSuchRank));
    manager.forget(job);
    assert!(one.closed() && two.closed());
    assert_eq!(manager.input(Input::DeregisterJob { job }), Err(Fault::NoSuchJob));
}

#[test]
fn requests_out_of_order_are_refused() {
    let Some((mut board, mut manager, job)) = served(1, 1) else { return };
    let second = Input::RegisterJob(JobSpec::new(JobId(1), "second", 1));
    assert_eq!(manager.input(second), Err(Fault::Full(Limit::Jobs, 1)));
    let mut other = Manager::silent(board.host(1));
    assert_eq!(other.refused(&Request::Hello { version: 77 }), Error::Version { spoken: VERSION });
    assert_eq!(other.refused(&Request::Board), Error::Handshake);
    other.greet();
    assert_eq!(other.refused(&Request::Hello { version: VERSION }), Error::Handshake);
    other.say_bytes(&[4, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(other.refused(&Request::Board), Error::Malformed, "the answer to what came before");
    assert!(other.closed());
    manager.forget(job);
    let large = Input::RegisterJob(JobSpec::new(job, "large", 1000));
    assert_eq!(manager.input(large), Err(Fault::Full(Limit::Ranks, 16)));
    drop(manager);
    board.await_log("the node has ended: Closed");
    assert!(board.runs());
}

/// Jobs go with the host that opened them.
#[test]
fn a_host_that_goes_takes_its_job_along() {
    let Some((mut board, manager, _)) = served(2, 2) else { return };
    let rank = Talk::rank(board.client(0), 0);
    drop(manager);
    assert!(rank.closed());
    board.await_log("the node has ended: Closed");
    let mut manager = Manager::of_node(board.host(1));
    manager.open("next", 2);
    let mut ranks = [0, 1].map(|rank| Talk::rank(board.client(rank), rank as u32));
    ranks[0].say(b"cmd=barrier_in\n");
    ranks[1].ask("cmd=barrier_in", "cmd=barrier_out rc=0");
    assert_eq!(ranks[0].line(), "cmd=barrier_out rc=0");
    ranks.into_iter().for_each(Talk::leave);
    assert!(board.runs());
}

/// Without a host, by the command line alone; each job is followed by another.
#[test]
fn a_board_can_stand_alone() {
    let Some(mut board) = Board::small(3, "size=3 jobid=alone nonsense address=10.0.2.77/24") else { return };
    board.await_log("job 0 opened: alone with 3 ranks");
    for _ in 0..3 {
        let steps = "ack1\ninit1\nfence1\nsend cmd=get_my_kvsname\\n\nexpect kvsname=alone\nend1\nsay done";
        assert_eq!(raw(&board, 3, steps), "done\n".repeat(3));
        board.await_log("job 0 opened: alone");
    }
    // Who comes when all are there is the next job's, and waits for it.
    let mut ranks = [0, 1, 2].map(|rank| Talk::rank(board.client(rank), rank as u32));
    let mut early = Talk::connect(board.client(0));
    early.say(b"cmd=initack pmiid=0\n");
    for _ in 0..10 {
        ranks[2].ask("cmd=get_appnum", "cmd=appnum rc=0");
    }
    ranks.into_iter().for_each(Talk::leave);
    board.await_log("job 0 opened: alone");
    assert!(early.line().starts_with("cmd=initack rc=0"));
    drop(early);
    board.await_log("job 0 opened: alone");
    // A client that goes without finalize was lost, and its job has to end.
    let mut others = [0, 1].map(|rank| Talk::rank(board.client(rank), rank as u32));
    drop(Talk::rank(board.client(2), 2));
    board.await_log("has to end: NoFinalize { rank: 2, exit: Lost }");
    assert!(others[0].line().is_empty() && others[1].line().is_empty());
    board.await_log("job 0 opened: alone");
}

/// A thousand jobs on one board: nothing is used up, and nothing grows.
#[test]
fn a_thousand_jobs() {
    let Some(board) = Board::small(2, "") else { return };
    let mut manager = Manager::of_node(board.host(0));
    let mut before = None;
    for at in 0..1000 {
        let job = manager.open("many", 2);
        let mut one = Talk::rank(board.client(0), 0);
        let mut two = Talk::rank2(board.client(1), 1);
        one.ask(&format!("cmd=put kvsname=many key=k value={at}"), "cmd=put_result rc=0");
        one.say(b"cmd=barrier_in\n");
        two.ask2("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;");
        one.line();
        two.ask2("cmd=kvs-get;key=k;", &format!("cmd=kvs-get-response;rc=0;found=TRUE;value={at};"));
        one.leave();
        two.ask2("cmd=finalize;", "cmd=finalize-response;rc=0;");
        drop(two);
        manager.all_exited(job, 2);
        manager.forget(job);
        if at % 100 == 0 {
            let used = Limit::ALL.map(|limit| used(board.host(1), limit));
            assert_eq!(*before.get_or_insert(used), used, "job {at}");
        }
    }
    let report = counters(board.host(1));
    assert_eq!((report.jobs, report.accepted, report.closed), (1000, 2000, 0));
}
