//! Boards with a secret: the handshake of the firmware with the library that hosts use, and jobs.

use std::fs;

use hydrant_core::manage::{Error, Request};
use hydrant_tests::offload::Target;
use hydrant_tests::{Folder, Job, hydrant_bin};
use snow::{Builder, HandshakeState};

use super::manager::Manager;
use super::qemu::{Board, secret_file};
use noise::{Forged, MAGIC, MESSAGE, OVERHEAD, Transport};

/// The module of the firmware, on this machine.
#[allow(unreachable_pub)]
#[path = "../../../firmware-example/embedded/src/noise.rs"]
mod noise;

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
/// What a handshake and a job may use of the small board's stack. It has more by a few hundred bytes.
const STACK_MAX: u32 = 8900;
const SECRET: &str = "0123456789abcdef";

/// A host's side of a handshake, and its first message.
pub(super) fn host(secret: &str) -> (HandshakeState, [u8; MESSAGE]) {
    let params = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s".parse().expect("snow has the pattern");
    let secret = noise::secret(secret.as_bytes());
    let builder = Builder::new(params).psk(0, &secret).and_then(|builder| builder.prologue(&MAGIC));
    let mut host = builder.and_then(Builder::build_initiator).expect("nothing is missing");
    let mut first = [0; MESSAGE];
    host.write_message(&[], &mut first).expect("there is room");
    (host, first)
}

fn answer(secret: &str, first: &[u8; MESSAGE], ephemeral: u8) -> Result<(Transport, [u8; MESSAGE]), Forged> {
    noise::answer(&noise::secret(secret.as_bytes()), first, || [ephemeral; 32])
}

/// A frame of a host.
fn frame(host: &mut snow::TransportState, plain: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; plain.len() + 16];
    let len = host.write_message(plain, &mut sealed).expect("there is room");
    [&(len as u16).to_le_bytes()[..], &sealed[..len]].concat()
}

#[test]
fn records_pass_between_the_firmware_and_the_library_of_hosts() {
    let (mut host, first) = host(SECRET);
    let (mut board, second) = answer(" 0123456789abcdef\n", &first, 5).expect("it has the secret");
    host.read_message(&second, &mut []).expect("the board has the secret");
    let mut host = host.into_transport_mode().expect("the handshake is complete");
    for len in [0, 1, 64, 514] {
        let plain = vec![b'r'; len];
        let mut bytes = frame(&mut host, &plain);
        let whole = bytes.len();
        for cut in 0..whole {
            assert_eq!(board.open(&mut bytes[..cut]), Ok(None), "{cut} of {whole} bytes");
        }
        assert_eq!(board.open(&mut bytes), Ok(Some((&plain[..], whole))));
        let mut buf = vec![0; len + OVERHEAD];
        buf[2..2 + len].copy_from_slice(&plain);
        let sealed = board.seal(&mut buf, len).expect("there is room");
        let mut opened = vec![0; len + 16];
        assert_eq!(host.read_message(&sealed[2..], &mut opened), Ok(len));
        assert!(opened.starts_with(&plain));
    }
}

/// A board that links itself to another begins the handshake.
#[test]
fn the_firmware_begins_the_handshake_as_hosts_do() {
    for (theirs, fits) in [(SECRET, true), ("another secret of a host", false)] {
        let ours = noise::secret(SECRET.as_bytes());
        let (mut board, first) = noise::begin(&ours, [5; 32]).expect("there is room");
        let params = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s".parse().expect("snow has the pattern");
        let secret = noise::secret(theirs.as_bytes());
        let builder = Builder::new(params).psk(0, &secret).and_then(|builder| builder.prologue(&MAGIC));
        let mut host = builder.and_then(Builder::build_responder).expect("nothing is missing");
        assert_eq!(host.read_message(&first, &mut []).is_ok(), fits);
        if !fits {
            continue;
        }
        let mut second = [0; MESSAGE];
        host.write_message(&[], &mut second).expect("there is room");
        let mut changed = second;
        changed[40] ^= 1;
        assert!(noise::begin(&ours, [5; 32]).is_ok_and(|(mut board, _)| board.complete(&changed).is_err()));
        let mut board = board.complete(&second).expect("the host has the secret");
        let mut host = host.into_transport_mode().expect("the handshake is complete");
        let mut bytes = frame(&mut host, b"record");
        let whole = bytes.len();
        assert_eq!(board.open(&mut bytes), Ok(Some((&b"record"[..], whole))));
        let mut buf = *b"  record                ";
        let sealed = board.seal(&mut buf, 6).expect("there is room");
        let mut opened = [0; 6 + 16];
        assert_eq!(host.read_message(&sealed[2..], &mut opened), Ok(6));
    }
}

#[test]
fn another_secret_and_changed_frames_are_refused() {
    let (_, first) = host("another secret of a host");
    assert!(answer(SECRET, &first, 5).is_err());
    let (mut host, first) = host(SECRET);
    let (mut board, second) = answer(SECRET, &first, 5).expect("it has the secret");
    host.read_message(&second, &mut []).expect("the board has the secret");
    let mut host = host.into_transport_mode().expect("the handshake is complete");
    let bytes = frame(&mut host, b"record");
    // A host that repeats what it has seen: the board's next key differs, and so does everything after it.
    let (mut again, _) = answer(SECRET, &first, 6).expect("the message is a host's");
    assert_eq!(again.open(&mut bytes.clone()), Err(Forged));
    for at in 2..bytes.len() {
        let (mut board, _) = answer(SECRET, &first, 5).expect("it has the secret");
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert_eq!(board.open(&mut changed), Err(Forged), "byte {at}");
    }
    assert_eq!(board.open(&mut [3, 0, 1, 2, 3]), Err(Forged), "shorter than a tag");
    assert_eq!(board.seal(&mut [0; OVERHEAD], 1), Err(Forged), "no room");
}

// Fault: A host without the secret, or with another one, connects to firmware with one; a frame is changed or
// replayed
// Outcome: closed, and logged; other hosts are served
// Guarantee: No request of such a host is decoded
// Also: devices `board::secret::another_secret_and_changed_frames_are_refused`
#[test]
fn a_board_with_a_secret_serves_the_hosts_that_have_it() {
    let Some(mut board) = Board::with_secret(3) else { return };
    let ports = [0, 1, 2].map(|at| board.client(at).port().to_string()).join(",");
    let target = Target { address: board.host(0).to_string(), ports, raw: RAW };
    let steps = "ack1\ninit1\nfence1\nend1";
    let secret = format!("--secret-file {}", secret_file().display());
    let job = format!("-v --summary {secret} -n 3");
    // Twice: the next connection has a handshake of its own.
    for _ in 0..2 {
        let outcome = target.raw(&job, steps).run();
        outcome.code(0).warns("rank 0 has joined").warns("3 finalized, 3 ended");
        let stack = outcome.stderr.split(" bytes of stack").next().and_then(|text| text.rsplit(' ').next());
        let stack: u32 = stack.and_then(|stack| stack.parse().ok()).expect("the summary has it");
        assert!(stack < STACK_MAX, "{stack} bytes of stack");
    }
    let folder = Folder::new("secret");
    let other = folder.path("other");
    fs::copy(secret_file(), &other).expect("there is room");
    fs::write(&other, "another secret of a host").expect("there is room");
    target.raw(&format!("--secret-file {other} -n 3"), steps).run().code(1).warns("refuses the handshake");
    board.await_log("does not have the secret, and is given up");
    target.raw("-n 3", steps).run().code(1).warns("refuses the handshake").warns("set --secret-file FILE");
    board.await_log("does not have the secret, and is given up");
    let file = folder.path("rec");
    target.raw(&format!("{secret} --record {file} -n 3"), steps).run().code(0);
    Job::new(hydrant_bin()).args(["replay", "--quiet", &file]).run().code(0).says("all the same", 1);
    target.raw(&job, steps).run().code(0);
    assert!(board.runs());
}

/// What it accepts and says is what it was built with.
#[test]
fn a_board_without_a_secret_says_so() {
    let Some(mut board) = Board::small(0, "") else { return };
    assert!(board.log_text().contains("no secret: every host is accepted"));
    let mut manager = Manager::connect(board.host(0));
    assert_eq!(manager.refused(&Request::Hello { version: 0 }), Error::Handshake);
    assert!(board.runs());
}
