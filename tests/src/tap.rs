//! A network of its own with a board at a TAP device.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::peers::Peer;
use crate::{Job, Outcome, hydrant_bin, target_dir};

/// Address of the board.
pub const ADDRESS: &str = "10.9.0.2";

/// Runs commands of a shell beside a board, whose command gets a device and its address and says a line when it serves. Whatever is
/// left in the network ends with this shell.
const NETWORK: &str = r#"
address=$1
commands=$2
shift 2
ip link set lo up
ip tuntap add tap0 mode tap
ip addr add 10.9.0.1/24 dev tap0
ip link set tap0 up
coproc BOARD { exec "$@" tap0 "$address"; }
read -r said <&"${BOARD[0]}"
offload() { "$HYDRANT" offload --target "$address" "$@"; }
eval "$commands"
kill "$BOARD_PID"
"#;

/// Builds firmware with `firmware-example/build`. Returns its file.
pub fn firmware(board: &str, settings: &[(&str, &OsStr)]) -> PathBuf {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/build");
    let mut command = Command::new(build);
    command.arg(board).env("CARGO_TARGET_DIR", target_dir()).envs(settings.iter().copied());
    // What cargo set for this test is not for another cargo.
    command.env_remove("LD_LIBRARY_PATH").env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    let output = command.stdin(Stdio::null()).output().expect("firmware-example/build is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    PathBuf::from(said.lines().last().expect("it names the file"))
}

/// Runs commands beside a board at [`ADDRESS`], if the peer is there. `offload` is `hydrant offload` to the board, and `$MPI` the
/// program of that name of the peer.
pub fn beside<S: AsRef<OsStr>>(board: &[S], peer: Peer, name: &str, commands: &str) -> Option<Outcome> {
    if ![Peer::Tap, peer].into_iter().all(Peer::there) {
        return None;
    }
    let outcome = Job::new("unshare")
        .words("--net --pid --fork --kill-child --mount-proc -- bash -euc")
        .args([NETWORK, "bash", ADDRESS, commands])
        .args(board)
        .env("HYDRANT", hydrant_bin())
        .env("MPI", peer.program(name))
        // More ranks than processors.
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .run();
    outcome.code(0);
    Some(outcome)
}

/// Has Open MPI say hello beside a board. `beside` runs commands there, as [`beside`] does.
///
/// # Panics
/// A rank has said something else.
pub fn open_mpi_says_hello(beside: impl FnOnce(Peer, &str, &str) -> Option<Outcome>) {
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
