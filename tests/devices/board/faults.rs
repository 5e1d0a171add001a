//! A board that cannot go on says why, and stops. A debugger brings it there; the firmware is the same as in all tests.

use super::gdb::Gdb;
use super::qemu::{Board, Kind};
use super::talk::Talk;

/// Among the devices, of which no instruction may be fetched.
const DEVICES: u32 = 0x5000_0000;
/// The numbers of r12 and the link register.
const R12: usize = 12;
const LR: usize = 14;

/// A board in the middle of a job, with one of its ranks.
fn serving(kind: Kind) -> Option<(Board, Talk)> {
    let mut board = Board::start(kind, 2, "size=2 jobid=alone")?;
    board.await_log("job 0 opened");
    let mut rank = Talk::rank(board.client(0), 0);
    rank.ask("cmd=put kvsname=alone key=k value=v", "cmd=put_result rc=0");
    Some((board, rank))
}

/// Has the board go on where it cannot, and waits for it to say so and stop.
fn fault(mut board: Board, mut gdb: Gdb, rank: Talk) {
    for register in (0..4).chain([R12, LR]) {
        gdb.set(register, 0x1111_1111 * register as u32);
    }
    gdb.jump(DEVICES);
    gdb.detach();
    // The lowest bit of CFSR is IACCVIOL, an instruction fetch from where it is not allowed.
    board.await_log("hard fault at 0x50000000, called from 0xeeeeeeee: CFSR 0x00000001");
    board.await_log("r0 0x00000000, r1 0x11111111, r2 0x22222222, r3 0x33333333, r12 0xcccccccc, xpsr 0x");
    assert_eq!(board.stopped(), Some(1));
    assert!(rank.closed());
}

#[test]
fn a_hard_fault_is_logged_with_its_registers_and_stops_the_board() {
    for kind in [Kind::Lm3s6965evb, Kind::Mps2An386] {
        let Some((board, rank)) = serving(kind) else { return };
        let gdb = board.debug();
        fault(board, gdb, rank);
    }
}

#[test]
fn a_hard_fault_in_the_middle_of_the_log_is_logged_all_the_same() {
    let Some((board, rank)) = serving(Kind::Lm3s6965evb) else { return };
    let mut gdb = board.debug();
    // A frame has been begun and not ended.
    gdb.break_at(board.symbol("_defmt_release") & !1);
    let _logged = Talk::connect(board.client(1));
    gdb.run_to_break();
    fault(board, gdb, rank);
}

#[test]
fn a_stack_that_reaches_the_tables_stops_the_board() {
    let Some((mut board, rank)) = serving(Kind::Lm3s6965evb) else { return };
    let mut gdb = board.debug();
    gdb.write(board.symbol("__euninit"), &[0; 4]);
    gdb.detach();
    board.await_log("the stack has grown into the tables");
    board.await_log("panic at ");
    assert_eq!(board.stopped(), Some(1));
    assert!(rank.closed());
}

#[test]
fn a_panic_is_logged_and_stops_the_board() {
    let Some(mut board) = Board::doomed("size=1000") else { return };
    board.await_log("the configured job cannot be: Full(Ranks, 16)");
    board.await_log("panic at ");
    assert_eq!(board.stopped(), Some(1));
}
