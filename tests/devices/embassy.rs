//! The core as a task of Embassy: `hydrant-embassy` on this machine, over a TAP device in a network of its own.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hydrant_tests::Outcome;
use hydrant_tests::peers::Peer;
use hydrant_tests::tap;

/// The example, built once.
fn example() -> &'static Path {
    static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| tap::firmware("tap", &[]));
    &EXAMPLE
}

fn beside(peer: Peer, name: &str, commands: &str) -> Option<Outcome> {
    tap::beside(&[example()], peer, name, commands)
}

#[test]
fn mpich_says_hello() {
    let Some(outcome) = beside(Peer::Mpich5, "mpi_hello", r#"offload -n 4 "$MPI""#) else { return };
    for rank in 0..4 {
        let line = format!("rank {rank} of 4, program 0, universe -1, MPICH 5");
        assert!(outcome.stdout.contains(&line), "{}", outcome.stdout);
    }
}

/// One job after the other uses each socket again: 40 connections over 20 sockets.
#[test]
fn mpich_reduces_in_job_after_job() {
    let commands = r#"for size in 16 4 16 4; do offload -n $size "$MPI"; done"#;
    let Some(outcome) = beside(Peer::Mpich5, "mpi_allreduce", commands) else { return };
    let sizes = [16, 4, 16, 4].map(|size| format!("allreduce of {size}: 0 wrong\n"));
    assert_eq!(outcome.stdout, sizes.concat());
}

/// Two ranks are in a fence that a third one never enters.
#[test]
fn a_rank_that_dies_ends_its_job_and_the_board_serves_the_next() {
    let commands = r#"
        code=0
        offload -n 3 sh -c '[ "$PMI_ID" != 2 ] || kill -KILL $$; exec "$MPI"' || code=$?
        echo "code $code"
        offload -n 4 "$MPI""#;
    let Some(outcome) = beside(Peer::Mpich5, "mpi_allreduce", commands) else { return };
    assert_eq!(outcome.stdout, "code 137\nallreduce of 4: 0 wrong\n", "{}", outcome.stderr);
}

/// Records wait in the board until the host has read the last ones.
#[test]
fn a_recording_replays() {
    let commands = r#"
        file=$(mktemp)
        trap 'rm -f "$file"' EXIT
        offload --record "$file" -n 8 "$MPI"
        "$HYDRANT" replay --quiet "$file""#;
    let Some(outcome) = beside(Peer::Mpich5, "mpi_allreduce", commands) else { return };
    let said = &outcome.stdout;
    assert!(said.starts_with("allreduce of 8: 0 wrong\n") && said.ends_with("all the same\n"), "{said}");
}

#[test]
fn open_mpi_says_hello() {
    tap::open_mpi_says_hello(beside);
}
