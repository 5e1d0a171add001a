//! Firmware for boards that can be bought: the image of the W5500-EVB-Pico in an emulator of its chip, rp2040js, with a model of
//! its Ethernet controller. `tests/run boards` runs these tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Outcome, tap, target_dir};

/// Builds of one board have one name, and are used one after the other.
static IMAGE: Mutex<()> = Mutex::new(());

/// Runs commands beside the board, whose image has the secret of that file if there is one.
fn beside(secret: Option<&str>, peer: Peer, name: &str, commands: &str) -> Option<Outcome> {
    let emulator = target_dir().join("peers/rp2040js/node_modules/rp2040js");
    assert!(emulator.exists(), "no {}: use tests/run boards", emulator.display());
    let _image = IMAGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let address = format!("{}/24", tap::ADDRESS);
    let secret = secret.unwrap_or_default();
    let settings: [(&str, &OsStr); 2] =
        [("HYDRANT_ADDRESS", address.as_ref()), ("HYDRANT_SECRET_FILE", secret.as_ref())];
    let image: PathBuf = tap::firmware("w5500-evb-pico", &settings);
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards/rp2040");
    tap::beside(&[run, emulator, image], peer, name, commands)
}

#[test]
fn an_rp2040_serves_mpich_in_job_after_job() {
    let commands = r#"for size in 4 16 4; do offload -n $size "$MPI"; done"#;
    let Some(outcome) = beside(None, Peer::Mpich5, "mpi_allreduce", commands) else { return };
    let sizes = [4, 16, 4].map(|size| format!("allreduce of {size}: 0 wrong\n"));
    assert_eq!(outcome.stdout, sizes.concat());
}

#[test]
fn an_rp2040_serves_open_mpi() {
    tap::open_mpi_says_hello(|peer, name, commands| beside(None, peer, name, commands));
}

/// The host without the secret is refused, and the next one is served.
#[test]
fn an_rp2040_with_a_secret_serves_hosts_that_have_it() {
    let folder = Folder::new("boards-secret");
    let secret = folder.file("secret", "a secret of this test alone");
    let other = folder.file("other", "what another board may have");
    let commands = format!(
        r#"chmod 600 {secret} {other}
        code=0
        offload --secret-file {other} -n 4 "$MPI" || code=$?
        echo "code $code"
        offload --secret-file {secret} -n 4 "$MPI""#
    );
    let Some(outcome) = beside(Some(&secret), Peer::Mpich5, "mpi_allreduce", &commands) else { return };
    assert_eq!(outcome.stdout, "code 1\nallreduce of 4: 0 wrong\n", "{}", outcome.stderr);
}
