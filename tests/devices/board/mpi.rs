//! Real MPI libraries over the board.

use std::path::Path;

use hydrant_tests::Running;
use hydrant_tests::peers::Peer;

use super::manager::Manager;
use super::qemu::{Board, Kind};

/// Starts a rank each, waits for them, and gives what they said.
pub(crate) fn run(board: &Board, program: &Path, size: u32, args: &str) -> String {
    let ranks: Vec<Running> =
        (0..size).map(|rank| board.rank(program, rank, size).words(args).start()).collect();
    let mut said = String::new();
    for rank in ranks {
        let outcome = rank.wait();
        outcome.code(0);
        said += &outcome.stdout;
    }
    said
}

/// One job after the other on one board, opened and forgotten by a host.
fn programs(kind: Kind, sizes: &[u32], peer: Peer, name: &str, args: &str, check: impl Fn(&str, u32)) {
    if !peer.there() {
        return;
    }
    let program = peer.program(name);
    let most = sizes.iter().copied().max().expect("some sizes");
    let Some(board) = Board::start(kind, most as usize, "") else { return };
    programs_at(&board, &program, sizes, name, args, check);
}

/// The same on this board.
fn programs_at(
    board: &Board,
    program: &Path,
    sizes: &[u32],
    name: &str,
    args: &str,
    check: impl Fn(&str, u32),
) {
    let mut manager = Manager::of_node(board.host(0));
    for &size in sizes {
        let job = manager.open(name, size);
        check(&run(board, program, size, args), size);
        manager.all_exited(job, size);
        for rank in 0..size {
            let report = manager.rank(job, rank);
            assert!(report.contains("finalized: true"), "{report}");
        }
        manager.forget(job);
    }
}

#[test]
fn mpich_says_hello() {
    programs(Kind::Lm3s6965evb, &[4, 16], Peer::Mpich5, "mpi_hello", "", |said, size| {
        for rank in 0..size {
            assert!(
                said.contains(&format!("rank {rank} of {size}, program 0, universe -1, MPICH 5.0.2")),
                "{said}"
            );
        }
    });
}

#[test]
fn mpich_reduces() {
    programs(Kind::Lm3s6965evb, &[4, 16], Peer::Mpich5, "mpi_allreduce", "", |said, size| {
        assert_eq!(said, format!("allreduce of {size}: 0 wrong\n"));
    });
}

#[test]
fn slurms_library_exchanges() {
    programs(Kind::Lm3s6965evb, &[16, 16], Peer::SlurmPmi2, "pmi2_kvs", "", |said, size| {
        assert!(said.contains(&format!("pmi2 size={size} ")) && said.contains(" errs=0 "), "{said}");
    });
}

/// More ranks than its network card takes in at once: TCP says again what it drops.
#[test]
fn the_larger_board_serves_more() {
    programs(Kind::Mps2An386, &[4, 64], Peer::SlurmPmi2, "pmi2_kvs", "-k 4", |said, size| {
        assert!(said.contains(&format!("pmi2 size={size} ")) && said.contains(" errs=0 "), "{said}");
    });
}

#[test]
fn tasks_of_embassy_serve_what_the_loop_does() {
    if !Peer::Mpich5.there() {
        return;
    }
    let program = Peer::Mpich5.program("mpi_allreduce");
    let Some(board) = Board::with_tasks(16) else { return };
    programs_at(&board, &program, &[4, 16, 4], "mpi_allreduce", "", |said, size| {
        assert_eq!(said, format!("allreduce of {size}: 0 wrong\n"));
    });
}
