//! The core as a task of Embassy: `hydrant-embassy` on this machine, over a TAP device in a network of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, Outcome, hydrant_bin, target_dir};

/// Runs a board at 10.9.0.2, and commands of a shell beside it. Whatever is left in the network ends with this shell.
const NETWORK: &str = r#"
ip link set lo up
ip tuntap add tap0 mode tap
ip addr add 10.9.0.1/24 dev tap0
ip link set tap0 up
coproc BOARD { exec "$1" tap0 10.9.0.2; }
read -r said <&"${BOARD[0]}"
offload() { "$HYDRANT" offload --target 10.9.0.2 "$@"; }
eval "$2"
kill "$BOARD_PID"
"#;

/// The example, built once.
fn tap() -> &'static Path {
    static TAP: LazyLock<PathBuf> = LazyLock::new(|| {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/build");
        let mut command = Command::new(build);
        command.arg("tap").env("CARGO_TARGET_DIR", target_dir());
        // What cargo set for this test is not for another cargo.
        command.env_remove("LD_LIBRARY_PATH").env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        let output = command.stdin(Stdio::null()).output().expect("firmware-example/build is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        PathBuf::from(said.lines().last().expect("it names the file"))
    });
    &TAP
}

/// Runs commands beside a board, if all of these are there. `$MPI` is the program of the last peer.
fn beside(peer: Peer, name: &str, commands: &str) -> Option<Outcome> {
    if ![Peer::Tap, peer].into_iter().all(Peer::there) {
        return None;
    }
    let program = peer.program(name);
    let outcome = Job::new("unshare")
        .words("--net --pid --fork --kill-child --mount-proc -- bash -euc")
        .args([NETWORK, "bash"])
        .arg(tap())
        .arg(commands)
        .env("HYDRANT", hydrant_bin())
        .env("MPI", &program)
        // More ranks than processors.
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .run();
    outcome.code(0);
    Some(outcome)
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
    let commands = r#"
        export TMPDIR=$(mktemp -d)
        trap 'rm -r "$TMPDIR"' EXIT
        offload -n 4 "$MPI""#;
    let Some(outcome) = beside(Peer::OpenMpi5, "mpi_hello", commands) else { return };
    for rank in 0..4 {
        let line = format!("rank {rank} of 4, program 0, universe 4, Open MPI 5");
        assert!(outcome.stdout.contains(&line), "{}", outcome.stdout);
    }
}
