//! Tests against boards that send invalid reports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use hydrant_core::manage::{PREFIX, RECORD_MAX, Report, VERSION, Welcome, encode};
use hydrant_core::server::JobSpec;
use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{ConnId, Input, JobId, Limits, Rank};

use super::Board;

const JOB: JobId = JobId(0);

/// Receives a request and sends these reports.
fn answer(stream: &mut TcpStream, reports: &[Report<'_>]) {
    let mut buffer = [0; PREFIX + RECORD_MAX];
    stream.read_exact(&mut buffer[..PREFIX]).unwrap();
    let len = usize::from(u16::from_le_bytes([buffer[0], buffer[1]]));
    stream.read_exact(&mut buffer[..len]).unwrap();
    for report in reports {
        stream.write_all(encode(report, &mut buffer).unwrap()).unwrap();
    }
}

/// Opens a job of two ranks on a board that sends this event. Returns whether the host got an event.
fn heard(event: Report<'static>) -> Result<bool, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let board = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let welcome = Welcome {
            version: VERSION,
            board: "liar",
            limits: Limits::NONE,
            pmi_port: 1,
            sockets: 1,
            free_sockets: 1,
            message_max: 1,
            records: false,
        };
        answer(&mut stream, &[Report::Welcome(welcome)]);
        // The event is sent before `Opened`, so that it has arrived when the job is known.
        answer(&mut stream, &[event, Report::Opened { job: JOB, port: 1 }]);
        stream
    });
    let mut host = Board::connect(&target, None, Duration::from_secs(30)).unwrap();
    host.handle(&Input::RegisterJob(JobSpec::new(JOB, "job", 2))).unwrap();
    let stream = board.join().unwrap();
    let said = host.event().map(|event| event.is_some()).map_err(|why| why.to_string());
    drop(stream);
    said
}

#[test]
fn a_board_speaks_of_ranks_that_there_are() {
    let conn = ConnId(0);
    let end = |rank| {
        let cause = Cause::Died { rank, exit: Exit::Lost };
        Report::End { job: JOB, cause, message: "" }
    };
    let kill = |rank| Report::Kill { job: JOB, rank, code: None, message: "" };
    for (event, there) in [
        (Report::Joined { job: JOB, rank: Rank(1), conn }, true),
        (Report::Joined { job: JOB, rank: Rank(2), conn }, false),
        (end(Rank(1)), true),
        (end(Rank(2)), false),
        (kill(Rank(0)), true),
        (kill(Rank(u32::MAX)), false),
    ] {
        match heard(event) {
            Ok(said) => assert!(said && there, "{event:?}"),
            Err(why) => {
                assert!(!there && why.contains(" is lost: malformed management record"), "{event:?}: {why}")
            }
        }
    }
}
