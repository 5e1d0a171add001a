//! Tests against boards that send invalid reports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use hydrant_core::manage::{OpenNode, PREFIX, RECORD_MAX, Report, VERSION, Welcome, encode};
use hydrant_core::server::JobSpec;
use hydrant_core::server::remote::{NODE_PREFIX, NodeReport, encode_node_record};
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Input, JobId, Limits, Malformed, Output, Rank, Time};
use hydrant_driver::Event;

use crate::{NodeBoard, NodeEvent};

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

fn welcome(limits: Limits) -> Report<'static> {
    Report::Welcome(Welcome {
        version: VERSION,
        board: "liar",
        nodes: limits,
        sockets: 1,
        free_sockets: 1,
        message_max: 1,
        links: None,
        calls: None,
    })
}

/// Opens a node with a job of two ranks on a board that sends this report. Returns whether the host got an event.
fn heard_of_node(report: NodeReport<'static>) -> Result<Option<NodeEvent>, String> {
    let limits = Limits { links: 3, ..Limits::for_ranks(2) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let board = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        answer(&mut stream, &[welcome(limits)]);
        answer(&mut stream, &[Report::Done]);
        // The job is known once its registration is answered. The reply to the second one comes after the report.
        let mut buffer = vec![0; 4096];
        for number in [0, 2] {
            for _ in 0..2 {
                stream.read_exact(&mut buffer[..NODE_PREFIX]).unwrap();
                let len = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
                stream.read_exact(&mut buffer[..len]).unwrap();
            }
            if number == 2 {
                stream.write_all(encode_node_record(&report, &mut buffer).unwrap()).unwrap();
            }
            let synced = NodeReport::Synced { number };
            stream.write_all(encode_node_record(&synced, &mut buffer).unwrap()).unwrap();
        }
        stream
    });
    let open = OpenNode { node: 1, nodes: 4, radix: 2, limits, seed: None, link: None, record: None };
    let mut host = NodeBoard::connect(&target, None, Duration::from_secs(30), open).unwrap();
    host.handle(&Input::RegisterJob(JobSpec::new(JOB, "job", 2))).unwrap();
    let attr = Input::Attr { job: JOB, key: b"key", value: b"value" };
    let said = host.handle(&attr).map_err(|why| why.to_string());
    let said = said.and_then(|()| host.event().map_err(|why| why.to_string()));
    drop(board.join().unwrap());
    said
}

// Fault: A board of one host sends reports about ranks that a job does not have, or messages for nodes that are no
// neighbours
// Outcome: the board counts as lost
// Guarantee: The host checks each report against its own tables
#[test]
fn a_board_of_a_node_speaks_of_its_ranks_and_neighbours() {
    let conn = ConnId(0);
    let joined = |job, rank| NodeReport::Output(Output::Joined { conn, job, rank });
    let peer = |node| NodeReport::Output(Output::Peer { node, bytes: b"message" });
    let closed = |rank| NodeReport::Closed { job: JOB, rank: Some(rank), why: Closing::JobOver };
    // Of four nodes in a binary tree, nodes 1 and 3 are below node 0, and node 2 is below node 1.
    for (report, valid, is_event) in [
        (joined(JOB, Rank(1)), true, true),
        (joined(JobId(5), Rank(1)), true, false),
        (joined(JOB, Rank(2)), false, false),
        (closed(Rank(0)), true, true),
        (closed(Rank(2)), false, false),
        // The host has asked for none.
        (NodeReport::Rank { job: JOB, rank: Rank(0), now: Time(0), status: None }, false, false),
        (NodeReport::Recorded(&[]), false, false),
        (peer(0), true, true),
        (peer(2), true, true),
        (peer(3), false, false),
        (peer(1), false, false),
        (peer(9), false, false),
        (NodeReport::Output(Output::Bytes { conn, bytes: b"reply" }), false, false),
    ] {
        match heard_of_node(report) {
            Ok(event) => assert_eq!((valid, is_event), (true, event.is_some()), "{report:?}"),
            Err(why) => {
                assert!(!valid && why.contains(" is lost: malformed management record"), "{report:?}: {why}")
            }
        }
    }
}

#[test]
fn a_message_that_is_too_long_names_the_boards_limit() {
    let why = Closing::Malformed(Malformed::TooLong);
    let event = heard_of_node(NodeReport::Closed { job: JOB, rank: Some(Rank(1)), why });
    let Ok(Some(NodeEvent::Server(Event::Closed { why, .. }))) = event else { panic!("{event:?}") };
    // As the welcome of these tests says.
    assert_eq!(why.to_string(), "a message over 1 bytes, the longest that this board reads");
}
