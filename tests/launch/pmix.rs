//! PMIx messages that no library sends, and clients that do not read.
//!
//! The ranks are shells that print where the server is. The test takes their parts.

use std::io::{Read, Write};
use std::net::TcpStream;

use hydrant_core::wire::pmix::{HEADER_LEN, Integers, Reader, Writer, kind, status, write_header};
use hydrant_tests::Running;
use hydrant_tests::pmix::{hello, message};
use rustix::process::{Pid, Signal, kill_process};

use crate::shell;

/// A job of shells. Rank 0 ends with its input, and the others with rank 0.
struct Job {
    running: Running,
    address: String,
    namespace: String,
    /// Process of each rank.
    pids: Vec<i32>,
}

impl Job {
    fn start<const SIZE: usize>(options: &str) -> Job {
        let script = "echo $PMI_RANK $$ $PMIX_SERVER_URI41 $PMIX_NAMESPACE
            if [ $PMI_RANK = 0 ]; then read line || :; else sleep 1000; fi";
        let mut running = shell(&format!("-n {SIZE} {options}"), script).hold_input().start();
        let lines = running.lines::<SIZE>();
        let mut pids = vec![0; SIZE];
        let (mut address, mut namespace) = (String::new(), String::new());
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [rank, pid, uri, name] = words[..] else { panic!("{line}") };
            pids[rank.parse::<usize>().expect("a rank")] = pid.parse().expect("a pid");
            uri.split_once("tcp4://").expect("an address").1.clone_into(&mut address);
            name.clone_into(&mut namespace);
        }
        Job { running, address, namespace, pids }
    }

    /// Connects and sends bytes. Returns the reply up to the end of the connection.
    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("the port is open");
        stream.write_all(bytes).expect("the connection is open");
        let mut reply = Vec::new();
        // A reset ends a connection too.
        drop(stream.read_to_end(&mut reply));
        reply
    }

    fn join(&self, rank: u32) -> Client {
        let mut stream = TcpStream::connect(&self.address).expect("the port is open");
        stream.write_all(&hello(&self.namespace, rank)).expect("the connection is open");
        let mut reply = [0; 8];
        stream.read_exact(&mut reply).expect("the handshake is accepted");
        assert_eq!(reply[..4], [0; 4]);
        Client { stream, tag: 100 }
    }

    /// Lets the ranks exit. `clients` have finalized before.
    fn end(mut self, clients: impl IntoIterator<Item = Client>) -> hydrant_tests::Outcome {
        for mut client in clients {
            assert_eq!(client.ask(5, |_| {}), status::SUCCESS, "finalize");
        }
        for &pid in &self.pids[1..] {
            self.kill(pid);
        }
        self.running.end_input();
        self.running.wait()
    }

    fn kill(&self, pid: i32) {
        let pid = Pid::from_raw(pid).expect("a pid is positive");
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

struct Client {
    stream: TcpStream,
    tag: u32,
}

impl Client {
    fn send(&mut self, command: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.tag += 1;
        self.stream.write_all(&message(self.tag, command, write)).expect("the connection is open");
    }

    /// Returns the tag and the body of the next message.
    fn receive(&mut self) -> (u32, Vec<u8>) {
        let mut header = [0; HEADER_LEN];
        self.stream.read_exact(&mut header).expect("a message follows");
        let word =
            |at: usize| u32::from_be_bytes(*header[at..].first_chunk().expect("a header has four words"));
        let mut body = vec![0; word(8) as usize];
        self.stream.read_exact(&mut body).expect("the message is complete");
        (word(4), body)
    }

    /// Sends a request and returns the status of its reply. Events before it are dropped.
    fn ask(&mut self, command: u8, write: impl FnOnce(&mut Writer<'_>)) -> i32 {
        self.send(command, write);
        loop {
            let (tag, body) = self.receive();
            if tag == self.tag {
                return status_of(&body);
            }
        }
    }

    fn get(&mut self, namespace: &str, rank: u32) {
        self.send(4, |writer| {
            writer.single();
            writer.string(namespace.as_bytes());
            writer.single();
            writer.uint32(rank);
            writer.array(0);
            writer.single();
            writer.string(b"key");
        });
    }

    fn commit(&mut self, len: usize) {
        let text = vec![b'x'; len];
        self.send(2, |writer| {
            writer.single();
            writer.byte(1);
            writer.single();
            writer.byte(1);
            writer.blob_of(|writer| {
                writer.key(b"key", kind::STRING);
                writer.string(&text);
            });
        });
    }

    fn notify(&mut self, number: u32, filling: &[u8]) -> i32 {
        self.ask(12, |writer| {
            writer.status(CODE);
            writer.single();
            writer.byte(3);
            writer.array(2);
            writer.info(b"number", kind::UINT32);
            writer.uint32(number);
            writer.info(b"filling", kind::STRING);
            writer.string(filling);
        })
    }

    fn register(&mut self) {
        let registered = self.ask(13, |writer| {
            writer.array(1);
            writer.int32(CODE);
            writer.array(0);
        });
        assert_eq!(registered, status::SUCCESS);
    }
}

/// Code of an event.
const CODE: i32 = -3456;

fn status_of(body: &[u8]) -> i32 {
    let mut reader = Reader::new(Integers::Flexible, body);
    reader.single().and_then(|()| reader.int32()).expect("a reply has a status")
}

/// Returns the INFO `number` of an event.
fn number(body: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(Integers::Flexible, body);
    reader.single()?;
    reader.byte()?;
    reader.single()?;
    reader.int32()?;
    reader.single()?;
    reader.proc()?;
    reader.infos()?.find(b"number")?.as_u32()
}

// Fault: A PMIx handshake longer than 2,048 bytes
// Outcome: the connection is closed
// Guarantee: No more than a handshake's bytes are kept of a client that has not introduced itself
#[test]
fn a_handshake_that_is_too_long_is_cut_off() {
    let job = Job::start::<1>("");
    let mut long = hello(&job.namespace, 0);
    long[8..12].copy_from_slice(&3000_u32.to_le_bytes());
    assert_eq!(job.send(&long), b"");
    let client = job.join(0);
    job.end([client]).code(0);
}

// Fault: A PMIx handshake with another namespace or rank
// Outcome: refused, and reported; the client runs as a job of one rank
// Guarantee: The first refused client of a job is reported, and their tenfold
#[test]
fn handshakes_of_other_jobs_and_ranks_are_refused_and_reported() {
    let job = Job::start::<1>("");
    let refused = status::BAD_PARAM.to_be_bytes();
    for _ in 0..10 {
        assert_eq!(job.send(&hello("another", 0)), refused);
    }
    assert_eq!(job.send(&hello(&job.namespace, 1)), refused);
    let outcome = job.end([]);
    outcome.code(0).warns("refused a PMIx client, which runs as a job of one rank");
    outcome.warns("refused 10 PMIx clients, which run as jobs of one rank\n");
    assert_eq!(outcome.stderr.matches("refused").count(), 2, "{outcome}");
}

// Fault: A process introduces itself as a PMIx rank that has a connection
// Outcome: it is refused and reported
// Guarantee: A PMIx rank keeps its connection until it finalizes or closes it
#[test]
fn a_rank_that_is_taken_stays_with_its_first_process() {
    let job = Job::start::<1>("");
    let mut first = job.join(0);
    assert_eq!(job.send(&hello(&job.namespace, 0)), status::BAD_PARAM.to_be_bytes());
    assert_eq!(
        first.ask(13, |writer| {
            writer.array(0);
            writer.array(0);
        }),
        status::SUCCESS
    );
    job.end([first]).code(0).warns("refused a PMIx client");
}

// Fault: Lengths in a PMIx message exceed it, are negative or contradict each other
// Outcome: the request is refused; a message beyond 64 KiB closes the connection
// Guarantee: Decoding reads no more than the message
#[test]
fn lengths_that_lie_are_refused() {
    let job = Job::start::<1>("");
    let mut client = job.join(0);
    let lies: [&dyn Fn(&mut Writer<'_>); 4] = [
        // A namespace longer than the message.
        &|writer| {
            writer.single();
            writer.count(1 << 30);
            writer.raw(b"x\0");
        },
        // A namespace of negative length.
        &|writer| writer.raw(&[2, 3]),
        // An array of more elements than bytes, and one whose two counts differ.
        &|writer| {
            writer.single();
            writer.size(u64::MAX);
            writer.count(i32::MAX as u32);
        },
        &|writer| {
            writer.single();
            writer.size(2);
            writer.single();
        },
    ];
    for (at, lie) in lies.iter().enumerate() {
        let command = if at < 2 { 4 } else { 3 };
        assert_eq!(client.ask(command, lie), status::UNPACK_FAILURE, "{at}");
    }
    client.stream.write_all(&write_header(1, 1 << 20)).expect("the connection is open");
    let mut rest = Vec::new();
    drop(client.stream.read_to_end(&mut rest));
    assert_eq!(rest, b"", "a message beyond the limit closes the connection");
    let client = job.join(0);
    job.end([client]).code(0).warns("closed the PMI connection of rank 0");
}

// Fault: A PMIx value nests a thousand arrays
// Outcome: the request is refused
// Guarantee: Values nest at most 8 deep
#[test]
fn values_that_nest_too_deep_are_refused() {
    let job = Job::start::<1>("");
    let mut client = job.join(0);
    let refused = client.ask(12, |writer| {
        writer.status(CODE);
        writer.single();
        writer.byte(3);
        writer.array(1);
        writer.info(b"deep", kind::DATA_ARRAY);
        for _ in 0..1000 {
            writer.data_type(kind::DATA_ARRAY);
            writer.size(1);
        }
    });
    assert_eq!(refused, status::UNPACK_FAILURE);
    job.end([client]).code(0);
}

// Fault: A PMIx rank dies while another one waits for its data
// Outcome: the get ends with "not found"
// Guarantee: No get waits for a rank that has exited
#[test]
fn a_get_ends_with_the_rank_that_it_waits_for() {
    let job = Job::start::<2>("-disable-auto-cleanup");
    let mut client = job.join(0);
    client.get(&job.namespace, 1);
    job.kill(job.pids[1]);
    let (_, reply) = client.receive();
    assert_eq!(status_of(&reply), status::NOT_FOUND);
    job.end([client]).code(137);
}

// Fault: PMIx data exceed a limit, and libpmix ignores the refusal
// Outcome: the job ends, and the message names the rank and the limit
// Guarantee: A refused commit ends its job
#[test]
fn a_commit_over_a_limit_ends_the_job() {
    for (options, len, limit) in [
        ("--limit commit-bytes=1000", 1100, "limit commit-bytes (1000) is used up"),
        ("--limit kvs-bytes=2048", 3000, "kvs-bytes"),
        ("", 62_000, "limit commit-bytes (61440) is used up, the most for --limit commit-bytes=N"),
        // Longer than any message.
        ("", 500_000, "limit commit-bytes (61440)"),
    ] {
        let mut job = Job::start::<1>(options);
        let mut client = job.join(0);
        client.commit(len);
        job.running.end_input();
        let outcome = job.running.wait();
        outcome.warns("PMIx data of rank 0: ").warns(limit);
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    }
}

/// Both byte strings have the length of the limit, so that the message is longer than any of PMI.
#[test]
fn a_commit_has_the_length_of_its_limit() {
    // Bytes of a pack around the text.
    const REST: usize = 11;
    for (limit, len) in [("--limit commit-bytes=2000", 2000), ("", 61_440)] {
        let job = Job::start::<1>(limit);
        let mut client = job.join(0);
        let text = vec![b'x'; len - REST];
        let committed = client.ask(2, |writer| {
            for scope in [1, 2] {
                writer.single();
                writer.byte(scope);
                writer.single();
                writer.byte(1);
                writer.blob_of(|writer| {
                    writer.key(b"key", kind::STRING);
                    writer.string(&text);
                });
            }
        });
        assert_eq!(committed, status::SUCCESS);
        client.get(&job.namespace, 0);
        let (_, reply) = client.receive();
        assert_eq!(status_of(&reply), status::SUCCESS);
        assert!(reply.len() > len, "{} bytes", reply.len());
        job.end([client]).code(0);
    }
}

/// The others get every event, and the one that does not read loses the oldest.
// Fault: A PMIx client registers for events and does not read
// Outcome: it loses the oldest events
// Guarantee: No client waits for another one to read
// Also: core `pmix::events::a_client_that_does_not_read_loses_the_oldest_notices`
#[test]
fn a_client_that_does_not_read_its_events_holds_up_no_other() {
    const COUNT: u32 = 20_000;
    let job = Job::start::<3>("-disable-auto-cleanup");
    let [mut sender, mut deaf, mut reader] = [0, 1, 2].map(|rank| job.join(rank));
    deaf.register();
    reader.register();
    let got = std::thread::spawn(move || {
        let mut numbers = Vec::new();
        while numbers.last() != Some(&(COUNT - 1)) {
            numbers.extend(number(&reader.receive().1));
        }
        (reader, numbers)
    });
    for number in 0..COUNT {
        assert_eq!(sender.notify(number, &[b'x'; 900]), status::SUCCESS);
    }
    let (reader, numbers) = got.join().expect("the reader gets the last event");
    assert!(numbers.is_sorted(), "events come in order");
    let mut numbers = Vec::new();
    while numbers.last() != Some(&(COUNT - 1)) {
        numbers.extend(number(&deaf.receive().1));
    }
    assert!(numbers.is_sorted() && numbers.len() < COUNT as usize, "{} events", numbers.len());
    job.end([sender, deaf, reader]).code(137);
}
