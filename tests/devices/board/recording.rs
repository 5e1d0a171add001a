//! Recordings of nodes that boards serve, replayed natively.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use hydrant_core::manage::{OpenNode, Request, STALL_MS};
use hydrant_core::server::JobSpec;
use hydrant_core::server::remote::{NodeReport, NodeRequest, encode_node_record};
use hydrant_core::{Input, JobId, Limits};
use hydrant_record::{Reader, Record, Writer};
use hydrant_tests::offload::Target;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job};
use hydrant_tests::{hydrant_bin, target_dir};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::Signal;

use super::fleet::{self, LARGE, SMALL};
use super::manager::Manager;
use super::qemu::{Board, Kind, secret_file};
use super::spawn::{STACK_MAX, stack};

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// A recorded node with jobs of MPICH, refusals, rubbish, a long message and a death.
// Fault: A recorded board is idle
// Outcome: nothing is sent
// Guarantee: Silence is recorded once after an input. A recording has at most 1 GiB
#[test]
fn jobs_on_the_board_replay_natively() {
    let Some(board) = Board::small(8, "") else { return };
    let ports: Vec<String> = (0..8).map(|at| board.client(at).port().to_string()).collect();
    let target = Target { address: board.host(0).to_string(), ports: ports.join(","), raw: RAW };
    let folder = Folder::new("recorded-board");
    let file = folder.path("run.rec");
    if Peer::Mpich5.there() {
        let sum = target.offload(&format!("-n 8 --record {file}")).arg(Peer::Mpich5.program("mpi_allreduce"));
        sum.run().code(0).says("allreduce of 8: 0 wrong\n", 1);
        replays(&file);
    }
    let steps = format!(
        "ack1
        init1
        only 0
        send cmd=put kvsname=other key=k value=v\\n
        expect cmd=put_result rc=3
        send cmd=put kvsname=%j key=k value={}\\n
        expect cmd=put_result rc=0
        all
        fence1
        only 0
        forever
        all
        send rubbish\\n
        eof
        exit 3",
        "x".repeat(1000)
    );
    target.raw(&format!("-n 2 --record {file}"), &steps).run().code(3);
    replays(&file);
}

fn replays(file: &str) {
    let outcome = Job::new(hydrant_bin()).args(["replay", "--quiet", file]).run();
    outcome.code(0).says("all the same", 1);
    let mut records = Reader::new(File::open(file).expect("it was written")).expect("it is a recording");
    let (mut was_silent, mut count) = (false, 0);
    while let Some(entry) = records.next_record().expect("a record") {
        let silent = entry.record == Record::Silence;
        assert!(!(was_silent && silent), "two records of silence without an input between them");
        (was_silent, count) = (silent, count + 1);
    }
    assert!(count > 50, "{count} records");
}

/// Boards of the first hosts of a run, and a folder for recordings.
pub(super) struct Recorded {
    pub(super) folder: Folder,
    pub(super) boards: Vec<String>,
}

impl Recorded {
    pub(super) fn new(boards: &[&Board]) -> Recorded {
        let boards = boards.iter().map(|board| board.host(0).to_string()).collect();
        Recorded { folder: Folder::new("recorded-boards"), boards }
    }

    /// A run over `hosts` hosts with four slots each.
    pub(super) fn run(&self, hosts: u32, options: &str) -> Job {
        let options = format!("{options} --record {}", self.folder.path("run.rec"));
        fleet::run(&self.folder, hosts, &self.boards, &options)
    }

    /// The recordings of all nodes replay on a server here. Those of boards have `text` at least so often.
    pub(super) fn replay(&self, hosts: usize, text: &str, times: usize) {
        for host in 0..=hosts {
            let end = if host == 0 { String::new() } else { format!(".n{host}") };
            let file = self.folder.path(&format!("run.rec{end}"));
            let replay = Job::new(hydrant_bin()).arg("replay").arg(&file).run();
            replay.code(0).says("all the same", 1);
            let found = replay.stdout.matches(text).count();
            assert!(
                found >= times || !(1..=self.boards.len()).contains(&host),
                "{file}: {found} of {text}: {replay}"
            );
        }
    }
}

/// The small board, which has fewer connections than the run has by default, and a large one.
#[test]
fn nodes_on_boards_have_recordings_that_replay() {
    let Some(small) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let Some(large) = Board::of_node(Kind::Mps2An386, false) else { return };
    let both = Recorded::new(&[&small, &large]);
    let run = |options: &str| both.run(3, &format!("{SMALL} {options}"));
    run("-n 12").arg(hydrant_bin()).arg("probe").run().code(0).quiet().says("exchanged 144 cards", 1);
    both.replay(3, "> cmd=finalize", 4);
    if Peer::Mpich4.there() {
        let sum = run("-n 12").arg(Peer::Mpich4.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 12: 0 wrong\n", 1);
        both.replay(3, "> cmd=finalize", 4);
    }
    if Peer::Mpich5.there() {
        let alone = Recorded::new(&[&large]);
        let sum = alone.run(4, &format!("{LARGE} -n 16")).arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 16: 0 wrong\n", 1);
        alone.replay(4, "> cmd=finalize", 4);
        let alone = Recorded::new(&[&small]);
        let spawn = alone.run(2, &format!("{SMALL} -usize 8 -n 4")).arg(Peer::Mpich5.program("mpi_spawn"));
        spawn.words("world 3").run().code(0).says(" of 4 done", 4);
        alone.replay(2, "! start spawn", 1);
    }
    let stack = stack(&small);
    assert!(stack < STACK_MAX, "{stack} bytes of stack");
    assert!(small.runs() && large.runs());
}

/// Two boards that exchange messages directly, and pieces of recordings in frames.
#[test]
fn linked_boards_with_a_secret_have_recordings_that_replay() {
    let start = || Board::of_node_with(Kind::Mps2An386, "pmix,nodes,links", true);
    let (Some(one), Some(two)) = (start(), start()) else { return };
    let mut recorded = Recorded::new(&[&one, &two]);
    for (board, address) in [&one, &two].into_iter().zip(&mut recorded.boards) {
        *address += &format!(" 10.0.2.2:{}", board.host(0).port());
    }
    let secret = format!("{LARGE} -v --offload-secret {}", secret_file().display());
    let probe = recorded.run(2, &format!("{secret} -n 8")).arg(hydrant_bin()).arg("probe").run();
    probe.code(0).says("exchanged 64 cards", 1).warns("boards exchange messages directly\n");
    recorded.replay(2, "> cmd=finalize", 4);
    assert!(one.runs() && two.runs());
}

/// Lines from a board.
struct Lines {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Lines {
    /// Reads the next line. Returns none if it has not come after longer than the board waits for connections other than that
    /// of a recorded node.
    fn next(&mut self) -> Option<String> {
        self.stream.set_read_timeout(Some(Duration::from_millis(STALL_MS + 1000))).expect("it is not 0");
        let mut bytes = [0; 2048];
        loop {
            if let Some(end) = self.held.iter().position(|&byte| byte == b'\n') {
                return Some(self.held.drain(..=end).map(char::from).collect());
            }
            match self.stream.read(&mut bytes) {
                Ok(len) if len > 0 => self.held.extend_from_slice(&bytes[..len]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return None,
                other => panic!("the board has given up the client: {other:?}"),
            }
        }
    }
}

/// Reads the reports of a node up to the first for which `is_last` holds. Adds the pieces of its recording.
fn read_reports(host: &mut Manager, recorded: &mut Vec<u8>, is_last: impl Fn(&NodeReport<'_>) -> bool) {
    host.node_reports(|report| {
        if let NodeReport::Recorded(piece) = report {
            recorded.extend_from_slice(piece);
        }
        is_last(report)
    });
}

/// A client asks until all buffers on the way to the host are full.
// Fault: The host of a recorded node at firmware is stopped
// Outcome: clients wait; no record is missing
// Guarantee: The board sends each record before it goes on, and extends the deadlines of clients
#[test]
fn a_recorded_board_takes_no_input_while_its_host_does_not_read() {
    let Some(mut board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let mut host = Manager::connect(board.host(0));
    // It does not grow then.
    set_socket_recv_buffer_size(&host.stream, 4096).expect("it is a socket");
    let limits = Limits { conns: 8, names: 2, spawns: 2, ..fleet::LIMITS };
    let (seed, link) = (7, None);
    let node = OpenNode { node: 0, nodes: 1, radix: 2, limits, seed: None, link, record: Some(seed) };
    host.done(&Request::Node(node));
    let job = JobId(0);
    let mut buf = [0; 256];
    let register = NodeRequest::Input(Input::RegisterJob(JobSpec::new(job, "held", 1)));
    for request in [register, NodeRequest::Serve { job }] {
        host.say_bytes(encode_node_record(&request, &mut buf).expect("it is short"));
    }
    let (port, mut recorded) = (Cell::new(0), Vec::new());
    read_reports(&mut host, &mut recorded, |report| match *report {
        NodeReport::Serving { port: of_job, .. } => {
            port.set(of_job);
            true
        }
        _ => false,
    });
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.get())).expect("the port is forwarded");
    let mut client = Lines { stream, held: Vec::new() };
    let put = format!("cmd=put kvsname=held key=k value={}\n", "v".repeat(1000));
    let init = "cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n";
    client.stream.write_all(format!("{init}{put}").as_bytes()).expect("the board reads");
    while !client.next().expect("the board answers").starts_with("cmd=put_result rc=0") {}
    // The small board has room for no more.
    let (some, mut asked, mut answered) = (8, 0, 0);
    let mut goes_on = true;
    while goes_on {
        let gets = "cmd=get kvsname=held key=k\n".repeat(some);
        client.stream.write_all(gets.as_bytes()).expect("the board reads");
        asked += some;
        assert!(asked < 100_000, "the board does not wait for its host");
        while goes_on && answered < asked {
            goes_on = client.next().is_some();
            answered += usize::from(goes_on);
        }
    }
    // It reads faster.
    set_socket_recv_buffer_size(&host.stream, 1 << 20).expect("it is a socket");
    host.say_bytes(encode_node_record(&NodeRequest::Sync { number: 7 }, &mut buf).expect("it is short"));
    read_reports(&mut host, &mut recorded, |report| *report == NodeReport::Synced { number: 7 });
    for _ in answered..asked {
        let line = client.next().expect("the board goes on");
        assert!(line.starts_with("cmd=get_result rc=0 value=vvv"), "{line}");
    }
    host.say_bytes(encode_node_record(&NodeRequest::Sync { number: 8 }, &mut buf).expect("it is short"));
    read_reports(&mut host, &mut recorded, |report| *report == NodeReport::Synced { number: 8 });
    drop(host);
    board.await_log("the node has ended: Closed");
    let path = target_dir().join(format!("held-{}.rec", std::process::id()));
    let mut writer = Writer::new(File::create(&path).expect("there is room")).expect("there is room");
    writer.write(&Record::Begin { program: "test", limits, seed }).expect("there is room");
    let mut rest = &recorded[..];
    while !rest.is_empty() {
        let (record, behind) = postcard::take_from_bytes::<Record<'_>>(rest).expect("the pieces are records");
        writer.write(&record).expect("there is room");
        rest = behind;
    }
    writer.finish().expect("there is room");
    let replay = Job::new(hydrant_bin()).arg("replay").arg(&path).run();
    replay.code(0).says("all the same", 1).says("< cmd=get_result rc=0", asked);
    fs::remove_file(&path).expect("it is there");
    assert!(board.runs());
}

/// The recording of a board that is killed has what came before.
#[test]
fn the_recording_of_a_board_that_is_killed_replays() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let recorded = Recorded::new(&[&board]);
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\nsay up\nforever";
    let job = recorded.run(2, &format!("{SMALL} -n 8")).arg(RAW).steps(steps).start();
    job.await_stdout("up\n", 8);
    board.signal(Signal::KILL);
    job.wait().code(1).warns(&format!("host n1 (node 1): board {} is lost: ", board.host(0)));
    recorded.replay(2, "cmd=kvs-fence", 4);
}
