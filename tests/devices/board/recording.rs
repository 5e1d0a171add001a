//! Recordings of a board, replayed natively.

use std::fs::File;
use std::io::{BufWriter, Cursor, Read};
use std::thread;

use hydrant_core::manage::{Error, OpenJob, Request};
use hydrant_record::{Record, Writer};
use hydrant_tests::Job;
use hydrant_tests::peers::Peer;
use hydrant_tests::{hydrant_bin, target_dir};

use super::manager::Manager;
use super::mpi;
use super::qemu::Board;
use super::talk::Talk;

/// Takes down all that the board sends, in the form of `hydrant run --record`.
fn keep(mut from: impl Read, to: File) -> (u64, bool) {
    let mut writer = Writer::new(BufWriter::new(to)).expect("there is room");
    let (mut records, mut whole, mut silent) = (0, false, false);
    let mut length = [0; 2];
    while from.read_exact(&mut length).is_ok() {
        let mut record = vec![0; usize::from(u16::from_le_bytes(length))];
        from.read_exact(&mut record).expect("a whole record");
        let record: Record<'_> = postcard::from_bytes(&record).expect("a record");
        whole = matches!(record, Record::End { .. });
        let was_silent = std::mem::replace(&mut silent, record == Record::Silence);
        assert!(!(was_silent && silent), "two records of silence without an input between them");
        if whole {
            writer.finish().expect("there is room");
        } else {
            writer.write(&record).expect("there is room");
        }
        records += 1;
    }
    (records, whole)
}

#[test]
fn jobs_on_the_board_replay_natively() {
    let Some(board) = Board::small(8, "") else { return };
    let mut tape = Manager::connect(board.host(1));
    tape.done(&Request::Record);
    let path = target_dir().join(format!("board-{}.rec", std::process::id()));
    let file = File::create(&path).expect("there is room");
    // What came right behind the answer has been read with it.
    let from =
        Cursor::new(std::mem::take(&mut tape.held)).chain(tape.stream.try_clone().expect("a descriptor"));
    let keeper = thread::spawn(move || keep(from, file));

    let mut manager = Manager::connect(board.host(0));
    if Peer::Mpich5.there() {
        let program = Peer::Mpich5.program("mpi_allreduce");
        let job = manager.open(&OpenJob { exits_reported: false, ..OpenJob::new("recorded", 8) });
        assert_eq!(mpi::run(&board, &program, 8, ""), "allreduce of 8: 0 wrong\n");
        manager.event("Over");
        manager.forget(job);
    }
    // Refusals, rubbish, a long message and a death.
    let job = manager.open(&OpenJob { exits_reported: false, ..OpenJob::new("second", 2) });
    let mut one = Talk::rank(board.client(0), 0);
    one.ask(&format!("cmd=put kvsname=second key=k value={}", "x".repeat(1000)), "cmd=put_result rc=0");
    one.ask("cmd=put kvsname=other key=k value=v", "cmd=put_result rc=3");
    let mut stranger = Talk::connect(board.client(1));
    stranger.say(b"rubbish\n");
    assert!(stranger.closed());
    drop(Talk::rank2(board.client(1), 1));
    assert!(manager.event("End").contains("Lost"));
    manager.forget(job);

    tape.stream.shutdown(std::net::Shutdown::Write).expect("the connection is open");
    let (records, whole) = keeper.join().expect("the recording is good");
    assert!(whole && records > 100, "{records} records, whole: {whole}");
    let outcome = Job::new(hydrant_bin()).words("replay --quiet").arg(&path).run();
    outcome.code(0).says("all the same", 1);
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_recording_begins_between_jobs() {
    let Some(board) = Board::small(1, "") else { return };
    let mut manager = Manager::connect(board.host(0));
    let job = manager.open(&OpenJob::new("first", 1));
    let mut tape = Manager::connect(board.host(1));
    assert_eq!(tape.refused(&Request::Record), Error::Order);
    manager.forget(job);
    tape.done(&Request::Record);
}
