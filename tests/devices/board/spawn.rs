//! Jobs that ranks of boards spawn: the host starts the processes, and the board serves them at another port.

use hydrant_tests::offload::{self, mpich_spawns, open_mpi_spawns, spawn_request as spawn};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, hydrant_bin};

use super::fleet::{self, LARGE, SMALL};
use super::qemu::{Board, Kind};

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
/// Most bytes of stack that the small board may use of those that are left.
pub(super) const STACK_MAX: u32 = 8200;

/// The largest stack usage of a board that serves no node now.
pub(super) fn stack(board: &Board) -> u32 {
    let target = board.host(0).to_string();
    let outcome = Job::new(hydrant_bin()).args(["offload", "--summary", "--target", &target, "true"]).run();
    let stack = outcome.stderr.split(" bytes of stack").next().and_then(|text| text.rsplit(' ').next());
    stack.and_then(|stack| stack.parse().ok()).expect("the summary has it")
}

/// A run on this host alone, with that board and these limits.
fn alone(board: &Board, limits: &str, options: &str) -> Job {
    let job = Job::new(hydrant_bin()).args(["run", "--offload", &board.host(0).to_string()]);
    job.words(limits).words(options)
}

/// A script in `folder` that runs these steps.
fn script(folder: &Folder, name: &str, steps: &str) -> String {
    offload::script(folder, RAW, name, steps)
}

#[test]
fn mpich_spawns_over_a_small_board() {
    let peer = Peer::Mpich5;
    if !peer.there() {
        return;
    }
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    mpich_spawns(|options| alone(&board, SMALL, options));
    // The ranks of one host have a board, and those of the other have none.
    let folder = Folder::new("spawn-hosts");
    let both = fleet::run(&folder, 2, &[board.host(0).to_string()], &format!("{SMALL} -n 4"));
    let both = both.arg(peer.program("mpi_spawn")).words("world 3").run();
    both.code(0).quiet().says("child 2 of 3\n", 1).says(" of 4 done", 4);
    let stack = stack(&board);
    assert!(stack < STACK_MAX, "{stack} bytes of stack");
    assert!(board.runs());
}

#[test]
fn mpich_spawns_job_after_job_over_a_large_board() {
    let peer = Peer::Mpich5;
    if !peer.there() {
        return;
    }
    let Some(board) = Board::of_node(Kind::Mps2An386, false) else { return };
    let run = |options: &str| alone(&board, LARGE, options).arg(peer.program("mpi_spawn"));
    run("-n 2").words("again 5").run().code(0).quiet().says("child 0 of 1\n", 5).says(" of 2 done", 2);
    run("-n 2").words("self 2").run().code(0).quiet().says("child 1 of 2\n", 2).says(" of 2 done", 2);
    run("-n 1").words("nested 3").run().code(0).quiet().says("child 0 of 1\n", 4).says(" of 1 done", 1);
    assert!(board.runs());
}

/// Open MPI's ranks are PMIx clients. The daemon removes the segments in shared memory of both jobs.
#[test]
fn pmix_clients_spawn_over_boards() {
    let peer = Peer::OpenMpi5;
    if !peer.there() {
        return;
    }
    let Some(board) = Board::of_node(Kind::Mps2An386, false) else { return };
    open_mpi_spawns(alone(&board, LARGE, "-n 2"));
    assert!(board.runs());
}

/// Both jobs use the same keys and ranks, and each finds its own values. The board's tables have room for two jobs, and its eight
/// connections for their ranks, so the second spawned job is served because the first one is over.
// Fault: Ranks of two jobs put the same keys at firmware, and a job's number is used again
// Outcome: each job has its own values
// Guarantee: The port of a connection says which job it is of
#[test]
fn ranks_of_two_jobs_are_told_apart_and_one_job_follows_another() {
    let Some(mut board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("spawn-apart");
    let exchange = |who: &str| {
        format!(
            "frame cmd=kvs-put;key=k%r;value={who}%r;\nexpect rc=0\nfence2\n\
             frame cmd=kvs-get;srcid=1;key=k1;\nexpect rc=0;found=TRUE;value={who}1\n\
             frame cmd=kvs-get;srcid=0;key=k0;\nexpect rc=0;found=TRUE;value={who}0"
        )
    };
    let child = script(&folder, "child", &format!("init2\n{}\nend2\nsay met", exchange("child")));
    let spawn = spawn(&child, 4);
    let steps = format!(
        "init2\nonly 1\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\n{}\nonly 1\ncat\n{spawn}\n\
         expect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done",
        exchange("parent")
    );
    let limits = SMALL.replace("jobs=3", "jobs=2");
    let mut job = alone(&board, &limits, "-stdin 1 -n 4").arg(RAW).steps(&steps).hold_input().start();
    board.await_log("job 1 is over");
    job.await_stdout("met\n", 4);
    job.end_input();
    job.wait().code(0).quiet().says("met\n", 8).says("done\n", 4);
    assert!(board.runs());
}

/// A rank of each job waits at the board, which is asked what for.
#[test]
fn status_shows_what_ranks_of_both_jobs_wait_for() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    offload::status_shows_what_ranks_of_both_jobs_wait_for(RAW, alone(&board, SMALL, "-n 2"));
    assert!(board.runs());
}

#[test]
fn a_spawned_job_that_fails_ends_the_job_that_spawned_it() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("spawn-abort");
    for (ending, code, says) in [
        ("frame cmd=abort;isworld=TRUE;msg=enough;\nforever", 1, "aborted the job: enough\n"),
        ("kill 9", 137, "died by SIGKILL\n"),
        ("hangup\nforever", 1, "closed its PMI connection without finalizing"),
    ] {
        let child = script(&folder, "child", &format!("init2\nfence2\nonly 0\n{ending}\nonly 1\nfence2"));
        let spawn = spawn(&child, 2);
        let steps = format!("init2\nonly 0\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nforever");
        let outcome = alone(&board, SMALL, "-n 2").arg(RAW).steps(&steps).run();
        outcome.code(code).warns("the first job was ended");
        outcome.warns(&format!("rank 0 of spawned job 1 {says}"));
    }
    assert!(board.runs());
}

/// The requesting rank gets an error, and its job goes on.
// Fault: Ranks at firmware spawn more than the board has room for
// Outcome: the spawn is refused; a line names the limit
// Guarantee: Clients are accepted only with a connection for each rank
#[test]
fn what_the_board_has_no_room_for_is_refused_by_the_name_of_the_limit() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("spawn-full");
    let child = script(&folder, "child", "init2\nfence2\nend2\nsay met");
    let alone_job = SMALL.replace("jobs=3", "jobs=1");
    for (limits, count, reply, says) in [
        (SMALL, 15, "limit ranks (16)", "limit ranks (16) is used up\n"),
        // The board has eight connections for clients.
        (SMALL, 7, "errcodes say why", "refuses a job: limit conns (8) is used up\n"),
        (&alone_job, 1, "limit jobs (1)", "limit jobs (1) is used up\n"),
    ] {
        let (refused, granted) = (spawn(&child, count), spawn(&child, 1));
        let mut steps = format!("init2\nonly 0\n{refused}\nrefused {reply}\n");
        let room = limits != alone_job;
        if room {
            steps += &format!("{granted}\nexpect cmd=spawn-response;rc=0\n");
        }
        steps += "all\nfence2\nend2\nsay done";
        let outcome = alone(&board, limits, "-n 2").arg(RAW).steps(&steps).run();
        outcome.code(0).says("met\n", usize::from(room)).says("done\n", 2).warns(says);
    }
    assert!(board.runs());
}
