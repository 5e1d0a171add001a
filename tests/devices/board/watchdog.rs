//! A board whose main loop hangs: its host names it, and its watchdog starts it anew. The firmware is the same as in all tests.

use hydrant_tests::offload::Target;

use super::manager::Manager;
use super::qemu::{Board, Kind};

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// `cpsie i`: the loop may be asleep, for which interrupts are off.
const INTERRUPTS_ON: [u8; 2] = [0x62, 0xB6];
/// `cpsid i`, after which only what cannot be masked interrupts.
const INTERRUPTS_OFF: [u8; 2] = [0x72, 0xB6];
/// `b .`, an endless loop.
const LOOP: [u8; 2] = [0xFE, 0xE7];

/// Has the processor run these instructions, from the end of the stack that is never reached.
fn execute(board: &Board, instructions: &[u8]) {
    let mut gdb = board.debug();
    while !gdb.may_jump() {
        gdb.detach();
        gdb = board.debug();
    }
    let address = board.symbol("__euninit") + 8;
    gdb.write(address, instructions);
    gdb.jump(address);
    gdb.detach();
}

fn hangs(kind: Kind, instructions: &[u8], logs: bool) {
    let Some(mut board) = Board::start(kind, 2, "") else { return };
    let ports = [0, 1].map(|at| board.client(at).port().to_string()).join(",");
    let target = Target { address: board.host(0).to_string(), ports, raw: RAW };
    target.frozen(|| execute(&board, instructions));
    if logs {
        board.await_log("the main loop has not turned for 7000 ms: reset");
    }
    board.await_log("serves up to");
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
}

// Fault: The main loop of a board hangs, with or without interrupts
// Outcome: the host names the board after `--heartbeat`; the board starts anew after 14 s
// Guarantee: The loop alone feeds the watchdog
// Also: devices `board::watchdog::a_board_that_hangs_with_interrupts_off_starts_anew`,
// `board::watchdog::the_other_board_that_hangs_with_interrupts_off_starts_anew`,
// `board::watchdog::an_idle_board_is_not_reset`
#[test]
fn a_board_whose_loop_hangs_is_named_and_starts_anew() {
    hangs(Kind::Lm3s6965evb, &[INTERRUPTS_ON, LOOP].concat(), true);
}

/// The watchdog's interrupt does not come either. Its second timeout resets the board all the same.
#[test]
fn a_board_that_hangs_with_interrupts_off_starts_anew() {
    hangs(Kind::Lm3s6965evb, &[INTERRUPTS_OFF, LOOP].concat(), false);
}

/// The watchdog of this board has the interrupt that cannot be masked.
#[test]
fn the_other_board_that_hangs_with_interrupts_off_starts_anew() {
    hangs(Kind::Mps2An386, &[INTERRUPTS_OFF, LOOP].concat(), true);
}

/// It sleeps until ten seconds are over, unless it wakes for its watchdog.
#[test]
fn an_idle_board_is_not_reset() {
    let Some(mut board) = Board::small(0, "") else { return };
    let mut silent = Manager::silent(board.host(0));
    board.await_log("asks for nothing, and is given up");
    assert!(silent.closed());
    assert_eq!(board.log_text().matches("serves up to").count(), 1);
}
