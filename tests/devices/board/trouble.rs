//! Failures that cost only their own connection or job, and their lines in the board's log.

use hydrant_core::JobId;
use hydrant_core::trace::Exit;
use rustix::process::Signal;

use super::manager::{Manager, counters};
use super::qemu::Board;
use super::talk::Talk;

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// A job of three, in which the clients must be in good health to get through a fence.
fn healthy(board: &Board, manager: &mut Manager) {
    let job = manager.open("healthy", 3);
    let mut ranks = [0, 1, 2].map(|rank| Talk::rank(board.client(rank), rank as u32));
    for rank in &mut ranks {
        rank.say(b"cmd=barrier_in\n");
    }
    for rank in &mut ranks {
        assert_eq!(rank.line(), "cmd=barrier_out rc=0");
    }
    ranks.into_iter().for_each(Talk::leave);
    manager.all_exited(job, 3);
    manager.forget(job);
}

fn open(board: &Board, size: u32) -> (Manager, JobId) {
    let mut manager = Manager::of_node(board.host(0));
    let job = manager.open("trouble", size);
    (manager, job)
}

#[test]
fn a_client_is_killed_in_the_middle() {
    let Some(mut board) = Board::small(3, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let mut others = [0, 1].map(|rank| Talk::rank(board.client(rank), rank as u32));
    let killed = board.rank(RAW, 2, 3).args(["ack1", "init1", "say", "in", "forever"]).start();
    killed.await_stdout("in\n", 1);
    killed.signal(Signal::KILL);
    killed.wait().signaled(Signal::KILL);
    board.await_log("conn 2 closed");
    // The exit is unknown until the host reports it.
    others[0].ask("cmd=get_appnum", "cmd=appnum rc=0");
    manager.exited(job, 2, Exit::Signal(9));
    board.await_log("has to end: NoFinalize { rank: 2, exit: Signal(9) }");
    assert!(manager.event("AbortJob").contains("Signal(9)"));
    manager.forget(job);
    healthy(&board, &mut manager);
}

#[test]
fn a_connection_is_cut() {
    let Some(mut board) = Board::small(3, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let mut ranks = [0, 1, 2].map(|rank| Talk::rank(board.client(rank), rank as u32));
    // In the middle of a message, after which it only listens.
    ranks[1].say(b"cmd=put kvsname=trouble ke");
    ranks[1].shutdown();
    assert!(ranks[1].line().is_empty());
    board.await_log("conn 1 closed");
    manager.exited(job, 1, Exit::Lost);
    assert!(manager.event("AbortJob").contains("NoFinalize { rank: Rank(1), exit: Lost }"));
    manager.forget(job);
    drop(ranks);
    healthy(&board, &mut manager);
}

#[test]
fn rubbish_costs_its_own_connection() {
    let Some(mut board) = Board::small(3, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let endless = format!("cmd={}", "x".repeat(9000));
    for (rubbish, why) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "NoCommand"),
        (b"cmd=get_maxes\n", "Handshake"),
        // A handshake of PMIx that is longer than any.
        (&[0xff; 1024], "TooLong"),
        (endless.as_bytes(), "TooLong"),
        (b"cmd=initack pmiid=7\n", "Refused"),
    ] {
        let mut stranger = Talk::connect(board.client(0));
        stranger.say(rubbish);
        board.await_log(why);
        assert!(manager.event("Closed").contains(why));
        assert!(stranger.closed(), "{why}");
    }
    manager.forget(job);
    healthy(&board, &mut manager);
    assert!(board.runs());
}

/// Twenty sockets for sixteen ranks: a client that connects when all are taken waits or is refused. It harms no other client.
#[test]
fn more_clients_than_sockets() {
    let Some(board) = Board::small(24, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let sockets = counters(board.host(1)).sockets;
    assert!((17..24).contains(&sockets), "{sockets}");
    let mut ranks = [0, 1, 2].map(|rank| Talk::rank(board.client(rank), rank as u32));
    let silent: Vec<Talk> = (3..24).map(|at| Talk::connect(board.client(at))).collect();
    for rank in &mut ranks {
        rank.say(b"cmd=barrier_in\n");
    }
    for rank in &mut ranks {
        assert_eq!(rank.line(), "cmd=barrier_out rc=0");
    }
    // As soon as they are gone there is room again.
    drop(silent);
    manager.forget(job);
    drop(ranks);
    healthy(&board, &mut manager);
}

/// Clients whose connections the board has closed keep their side open: the close handshakes do not complete.
#[test]
fn closing_connections_leave_room_for_the_next_job() {
    let Some(board) = Board::small(20, "") else { return };
    let (mut manager, job) = open(&board, 16);
    let sockets = counters(board.host(1)).sockets;
    let connect = || [(); 16].iter().zip(0..).map(|((), rank)| Talk::rank(board.client(rank as usize), rank));
    let ranks: Vec<Talk> = connect().collect();
    assert_eq!(counters(board.host(1)).free_sockets, sockets - 16);
    manager.forget(job);
    assert_eq!(counters(board.host(1)).free_sockets, sockets - 16, "they are closing");
    let job = manager.open("next", 16);
    assert_eq!(counters(board.host(1)).free_sockets, sockets);
    let next: Vec<Talk> = connect().collect();
    manager.forget(job);
    assert!(ranks.into_iter().chain(next).all(Talk::closed));
}

/// The same within one job.
// Fault: Clients of a board keep connections open that the board has closed
// Outcome: ranks join
// Guarantee: At least four sockets accept clients. The oldest closing connections are aborted
#[test]
fn closing_connections_leave_room_for_ranks() {
    let Some(mut board) = Board::small(24, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let closed: Vec<Talk> = (3..24)
        .map(|at| {
            let mut stranger = Talk::connect(board.client(at));
            stranger.say(b"rubbish\n");
            board.await_log("NoCommand");
            stranger
        })
        .collect();
    manager.forget(job);
    healthy(&board, &mut manager);
    assert!(closed.into_iter().all(Talk::closed));
}

/// They go, too, when they keep their sockets and say nothing.
#[test]
fn strangers_do_not_keep_the_ranks_out() {
    let Some(mut board) = Board::small(24, "") else { return };
    let (mut manager, job) = open(&board, 3);
    let silent: Vec<Talk> = (3..24).map(|at| Talk::connect(board.client(at))).collect();
    board.await_log("conn 19 opened");
    board.await_log("did not complete its handshake, and is given up");
    manager.forget(job);
    healthy(&board, &mut manager);
    drop(silent);
}

/// Two can be connected to the management port; who does not say what for is given up.
#[test]
fn strangers_do_not_keep_the_hosts_out() {
    let Some(mut board) = Board::small(0, "") else { return };
    let silent = [0, 1].map(|at| Manager::silent(board.host(at)));
    for _ in &silent {
        board.await_log("asks for nothing, and is given up");
    }
    Manager::connect(board.host(2));
    for mut stranger in silent {
        assert!(stranger.closed());
    }
}
