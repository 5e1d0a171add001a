//! Boards that break the rules of calls.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use hydrant_core::manage::{PREFIX, RECORD_MAX, Report, VERSION, Welcome, decode, encode};
use hydrant_core::server::JobSpec;
use hydrant_core::server::call::Callee;
use hydrant_core::{ConnId, Fault, JobId, Rank, Server};
use hydrant_driver::MappedStorage;

use super::*;

const SEED: u32 = 7;
const JOB: JobId = JobId(0);
const CONN: ConnId = ConnId(0);
const INIT: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=1\n";

/// Call of [`exchange`] that has the client's bytes.
const BYTES: usize = 4;

/// What a board does with its return of a call: the return itself, and the bytes behind it.
type Lie = fn(Return, &[u8]) -> Vec<u8>;

fn limits() -> Limits {
    Limits { links: 3, ..Limits::for_ranks(2) }
}

fn record(returned: Return, outputs: &[u8]) -> Vec<u8> {
    let mut record = postcard::to_extend(&returned, Vec::new()).unwrap();
    record.extend_from_slice(outputs);
    record
}

fn outputs(all: &[Output<'_>]) -> Vec<u8> {
    all.iter().fold(Vec::new(), |bytes, output| postcard::to_extend(output, bytes).unwrap())
}

fn read(stream: &mut TcpStream, prefix: usize) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len[..prefix]).ok()?;
    let mut record = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut record).ok()?;
    Some(record)
}

fn send(stream: &mut TcpStream, record: &[u8]) {
    let len = record.len() as u32;
    // The host may have closed the connection.
    let _ = stream.write_all(&[&len.to_le_bytes(), record].concat());
}

/// Starts a board that lies in its return of call number `at`, and ends with the connection of its host.
fn board(at: usize, lie: Option<Lie>) -> (String, JoinHandle<()>) {
    board_that_takes(BYTES_MAX as u32, at, lie)
}

/// The same, with the maximum length of a client's bytes in a call that the board states.
fn board_that_takes(bytes: u32, at: usize, lie: Option<Lie>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let board = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let welcome = Welcome {
            version: VERSION,
            board: "liar",
            sockets: 1,
            free_sockets: 1,
            message_max: 1,
            nodes: limits(),
            links: None,
            calls: Some(bytes),
        };
        for report in [Report::Welcome(welcome), Report::Done] {
            read(&mut stream, PREFIX).unwrap();
            stream.write_all(encode(&report, &mut [0; PREFIX + RECORD_MAX]).unwrap()).unwrap();
        }
        let mut storage = MappedStorage::new(&limits());
        let mut server = Server::new_zeroed(limits(), storage.lend(), SEED).unwrap();
        let (mut callee, mut buf) = (Callee::default(), vec![0; return_max(&limits())]);
        let mut scratch = vec![0; limits().output_room()];
        for number in 0.. {
            let Some(call) = read(&mut stream, NODE_PREFIX) else { return };
            let call = decode(&call).unwrap();
            let returned = callee.carry_out(&mut server, &call, &mut buf, &mut scratch).unwrap();
            let honest = &returned[NODE_PREFIX..];
            match lie.filter(|_| number == at) {
                Some(lie) => {
                    let (returned, outputs) = take::<Return>(honest).unwrap();
                    send(&mut stream, &lie(returned, outputs));
                }
                // The host waits in vain.
                None if number == at => drop(read(&mut stream, NODE_PREFIX)),
                None => send(&mut stream, honest),
            }
        }
    });
    (target, board)
}

fn connect(target: &str, heartbeat: Duration) -> BoardBackend {
    let limits = limits();
    let open = OpenNode { node: 1, nodes: 3, radix: 2, limits, seed: None, link: None, record: None };
    BoardBackend::connect(target, None, heartbeat, open, SEED).unwrap()
}

/// A client's handshake. Returns the replies.
fn exchange(server: &mut BoardBackend) -> Result<Vec<String>, BackendError> {
    let now = Time(0);
    server.handle(now, Input::Node { node: 1, nodes: 3, radix: 2 })?;
    server.handle(now, Input::RegisterJob(JobSpec::new(JOB, "job", 2)))?;
    server.handle(now, Input::MapRanks { job: JOB, first: Rank(0), count: 2, node: 1 })?;
    server.handle(now, Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) })?;
    let mut replies = Vec::new();
    let mut buf = vec![0; limits().output_room()];
    server.handle(now, Input::Bytes { conn: CONN, bytes: INIT, full: false })?;
    while let Some(output) = server.poll(&mut buf)? {
        if let Output::Bytes { bytes, .. } = output {
            replies.push(String::from_utf8(bytes.to_vec()).unwrap());
        }
    }
    Ok(replies)
}

#[test]
fn a_board_answers_as_a_server_in_this_process() {
    let (target, board) = board(usize::MAX, None);
    let mut server = connect(&target, Duration::from_secs(30));
    let replies = exchange(&mut server).unwrap();
    assert_eq!(replies, ["cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"]);
    let unknown = Input::DeregisterJob { job: JobId(5) };
    let refused = server.handle(Time(0), unknown).unwrap_err();
    assert_eq!(refused.fault(), Some(Fault::NoSuchJob));
    let put = b"cmd=put kvsname=job key=a value=b\n";
    server.handle(Time(0), Input::Bytes { conn: CONN, bytes: put, full: false }).unwrap();
    drop(server);
    board.join().unwrap();
}

/// With fewer bytes in a call, the host would close the connection of a client whose messages every server takes.
#[test]
fn what_a_board_takes_in_a_call_has_bounds() {
    for (stated, taken) in [
        (0, BYTES_MIN),
        (BYTES_MIN as u32 - 1, BYTES_MIN),
        (2304, 2304),
        (BYTES_MAX as u32, BYTES_MAX),
        (u32::MAX, BYTES_MAX),
    ] {
        let (target, board) = board_that_takes(stated, usize::MAX, None);
        let mut server = connect(&target, Duration::from_secs(30));
        assert_eq!(server.bytes_max(), taken, "{stated}");
        exchange(&mut server).unwrap();
        // So many bytes fit into a call.
        let bytes = vec![b' '; taken];
        let input = Input::Bytes { conn: CONN, bytes: &bytes, full: true };
        assert_eq!(server.handle(Time(0), input).unwrap(), Consumed { bytes: taken as u32, again: false });
        drop(server);
        board.join().unwrap();
    }
}

// Fault: A board with `--spare native` sends replies for other connections, none, or malformed records
// Outcome: the spare takes its place
// Guarantee: What a board returns is validated as what a plugin returns
#[test]
fn a_board_that_lies_is_caught() {
    let lies: [(&str, Lie); 9] = [
        ("connection 5 is not open", |returned, _| {
            let other = Output::Bytes { conn: ConnId(5), bytes: b"reply" };
            record(Return { outputs: 1, offered: 1, more: false, ..returned }, &outputs(&[other]))
        }),
        ("of 40 bytes consumed", |returned, behind| {
            let result = Ok(Consumed { bytes: 41, again: false });
            record(Return { result, ..returned }, behind)
        }),
        ("a complete message of connection 0 is not consumed", |returned, behind| {
            record(Return { result: Ok(Consumed::default()), ..returned }, behind)
        }),
        ("has no reply", |returned, _| {
            record(Return { outputs: 0, offered: 0, more: false, ..returned }, &[])
        }),
        ("malformed management record", |returned, _| {
            record(Return { outputs: 7, offered: 7, more: false, ..returned }, &[])
        }),
        // Outputs of a call that asks for none are offered, so that the spare has them in the order of its inputs.
        ("malformed management record", |returned, _| {
            let joined = Output::Joined { conn: CONN, job: JOB, rank: Rank(0) };
            record(Return { outputs: 1, offered: 0, more: false, ..returned }, &outputs(&[joined]))
        }),
        ("malformed management record", |returned, _| {
            let joined = Output::Joined { conn: CONN, job: JOB, rank: Rank(0) };
            record(Return { outputs: 1, offered: 1, more: false, ..returned }, &outputs(&[joined]))
        }),
        ("malformed management record", |_, _| vec![0xff; 9]),
        ("record longer than", |_, _| vec![0; return_max(&limits()) + 1]),
    ];
    for (said, lie) in lies {
        let (target, board) = board(BYTES, Some(lie));
        let mut server = connect(&target, Duration::from_secs(30));
        let why = exchange(&mut server).unwrap_err().to_string();
        assert!(why.starts_with(&format!("board {target}: ")) && why.contains(said), "{why}");
        let later = server.handle(Time(0), Input::Timeout).unwrap_err().to_string();
        assert!(later.contains("an earlier call failed"), "{later}");
        drop(server);
        board.join().unwrap();
    }
}

#[test]
fn a_board_that_does_not_answer_has_failed() {
    let (target, board) = board(BYTES, None);
    let mut server = connect(&target, Duration::from_millis(400));
    let why = exchange(&mut server).unwrap_err().to_string();
    assert!(why.starts_with(&format!("board {target}: no response within 0.")), "{why}");
    drop(server);
    board.join().unwrap();
}
