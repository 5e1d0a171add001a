//! Tests of ranks that others wait for in vain.

use super::*;
use crate::limits::CUT_OFF_DELAY;

/// Job of `size` ranks with open connections, none of which has initialized.
fn opened(size: u32) -> Host {
    let mut host = Host::with_limits(SMALL);
    host.job(spec(size));
    (0..size).for_each(|rank| host.open(rank, Some(rank)));
    host
}

/// Initializes a rank on the connection with its number.
fn init(host: &mut Host, rank: u32) {
    host.says(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
    host.replies.clear();
}

fn absent(rank: u32, exit: Exit) -> String {
    format!(
        "{:?}",
        Output::AbortJob { job: JOB, cause: Cause::Absent { rank: Rank(rank), exit }, message: "" }
    )
}

/// Lets time pass, with the timeouts that are due.
fn wait(host: &mut Host, millis: u64) {
    let end = host.now.after(millis);
    while let Some(due) = host.server.poll_at().filter(|&due| due <= end) {
        host.now = due;
        host.tell(Input::Timeout);
    }
    host.now = end;
}

#[test]
fn an_exit_without_init_ends_the_job_of_a_rank_that_has_initialized() {
    for code in [0, 3] {
        let exit = Exit::Code(code);
        let mut host = opened(3);
        init(&mut host, 1);
        host.exits(0, exit);
        assert_eq!(host.events, [absent(0, exit)]);
        let mut host = opened(3);
        host.exits(2, exit);
        host.silent();
        init(&mut host, 0);
        assert_eq!(host.events, [absent(2, exit)], "the rank exits before the other one initializes");
    }
}

#[test]
fn an_exit_without_init_concerns_initialized_ranks_only() {
    let mut host = opened(3);
    (0..3).for_each(|rank| host.exits(rank, Exit::Code(1)));
    assert!(host.events.is_empty(), "no rank has initialized: {:?}", host.events);
    let mut host = opened(2);
    init(&mut host, 0);
    host.says(0, "cmd=finalize\n");
    host.exits(1, Exit::Code(0));
    assert!(host.events.is_empty(), "the other rank has finalized: {:?}", host.events);
    let mut host = Host::with_limits(SMALL);
    host.job(JobSpec { cleanup: false, ..spec(2) });
    host.open(0, Some(0));
    init(&mut host, 0);
    host.exits(1, Exit::Code(0));
    assert!(host.events.is_empty(), "the job continues: {:?}", host.events);
}

#[test]
fn ranks_that_are_late_to_initialize_are_named_once() {
    let mut host = opened(4);
    wait(&mut host, 5000);
    host.silent();
    init(&mut host, 1);
    init(&mut host, 3);
    wait(&mut host, 999);
    assert!(host.events.is_empty(), "{:?}", host.events);
    wait(&mut host, 1);
    let stalled = Output::StalledFence { job: JOB, arrived: 2, size: 4, missing: "0,2" };
    assert_eq!(host.events, [format!("{stalled:?}")]);
    wait(&mut host, 5000);
    assert_eq!((host.events.len(), host.server.poll_at()), (1, None));
}

#[test]
fn ranks_that_have_finalized_wait_for_none() {
    let mut host = opened(2);
    init(&mut host, 0);
    host.says(0, "cmd=finalize\n");
    wait(&mut host, 5000);
    assert!(host.events.is_empty(), "{:?}", host.events);
}

#[test]
fn a_fence_is_reported_instead_of_ranks_that_are_late_to_initialize() {
    let mut host = opened(2);
    init(&mut host, 0);
    wait(&mut host, 500);
    host.says(0, "cmd=barrier_in\n");
    wait(&mut host, 700);
    assert!(host.events.is_empty(), "{:?}", host.events);
    wait(&mut host, 300);
    assert_eq!(host.events.len(), 1, "{:?}", host.events);
}

#[test]
fn a_rank_that_is_cut_off_is_lost_once_another_waits_for_it() {
    for waits in
        ["cmd=kvs-fence;", "cmd=kvs-fence;group=0,1:7;", "cmd=ring;ring-count=1;ring-left=a;ring-right=b;"]
    {
        let mut host = Host::v2(2);
        host.tell(Input::Closed { conn: ConnId(1) });
        wait(&mut host, 3 * CUT_OFF_DELAY);
        assert!(host.events.is_empty(), "no rank waits: {:?}", host.events);
        host.asks(0, waits);
        assert_eq!(host.events, [absent(1, Exit::Lost)], "{waits}");
    }
}

#[test]
fn a_closed_connection_of_a_rank_that_exits_is_no_reason() {
    let mut host = Host::v2(3);
    host.asks(0, "cmd=kvs-fence;");
    host.tell(Input::Closed { conn: ConnId(1) });
    wait(&mut host, CUT_OFF_DELAY - 1);
    host.exits(1, Exit::Signal(11));
    let cause = Cause::NoFinalize { rank: Rank(1), exit: Exit::Signal(11) };
    assert_eq!(host.events, [format!("{:?}", Output::AbortJob { job: JOB, cause, message: "" })]);
}

#[test]
fn a_rank_is_cut_off_while_others_wait_for_it() {
    let mut host = Host::v2(3);
    host.asks(0, "cmd=kvs-fence;");
    host.says(1, "GET / HTTP/1.1\r\n");
    host.events.clear();
    host.tell(Input::Closed { conn: ConnId(1) });
    wait(&mut host, CUT_OFF_DELAY);
    assert_eq!(host.events, [absent(1, Exit::Lost)]);
}

#[test]
fn a_job_that_continues_goes_on_without_a_rank_that_is_cut_off() {
    let mut host = Host::with_limits(SMALL);
    host.job(JobSpec { cleanup: false, ..spec(3) });
    for rank in 0..3 {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    host.tell(Input::Closed { conn: ConnId(1) });
    host.asks(0, "cmd=kvs-fence;");
    host.asks(2, "cmd=kvs-fence;");
    host.silent();
    wait(&mut host, CUT_OFF_DELAY);
    assert_eq!(host.replies.len(), 2, "{:?}", host.replies);
    let taken =
        host.server.handle(host.now, Input::Opened { conn: ConnId(1), job: JOB, rank: Some(Rank(1)) });
    assert_eq!(taken, Err(Fault::RankTaken), "it has been excluded");
    host.exits(1, Exit::Code(0));
    host.replies.clear();
    host.asks(0, "cmd=kvs-fence;");
    host.asks(2, "cmd=kvs-fence;");
    assert_eq!((host.replies.len(), host.events.len()), (2, 0));
    let snapshot = host.snapshot();
    assert!(Server::restore(&snapshot, storage(&SMALL)).is_ok());
}

#[test]
fn a_rank_that_connects_again_is_not_cut_off() {
    let mut host = Host::v2(2);
    host.tell(Input::Closed { conn: ConnId(1) });
    wait(&mut host, CUT_OFF_DELAY);
    host.open(1, Some(1));
    host.join_v2(1, "");
    host.asks(0, "cmd=kvs-fence;");
    host.silent();
    host.asks(1, "cmd=kvs-fence;");
    assert_eq!(host.replies.len(), 2);
}
