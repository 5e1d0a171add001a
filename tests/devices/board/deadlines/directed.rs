//! Sequences that use up tables, fill messages and wake all ranks at once, for a job of any size.

use hydrant_core::server::JobSpec;
use hydrant_core::trace::Exit;
use hydrant_core::wire::pmix::{HEARTBEAT_TAG, WILDCARD, Writer, allocation, kind, write_header};
use hydrant_core::{ConnId, Input, JobId, Rank};
use hydrant_driver::MappedStorage;
use hydrant_tests::pmix::{hello, message};

use super::script::{Board, Script};

const JOB: JobId = JobId(0);
/// The job id, which is the namespace of the captured exchanges of PMIx, too.
const NAME: &str = "hydrant.1";
/// Requests until a table is full, at most.
const MANY: u32 = 400;

/// Protocol of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Pmi1,
    Pmi2,
    Pmix,
}

/// A full job: ranks have joined, and tables of the job are full.
fn open(board: &mut Board<'_>, ranks: u32, protocol: Protocol, cleanup: bool) {
    let spec = JobSpec { cleanup, fence_warning: 1000, lookup_wait: 2000, ..JobSpec::new(JOB, NAME, ranks) };
    board.tell(Input::RegisterJob(spec)).expect("there is room");
    board.tell(Input::RegisterJob(spec)).expect_err("it is registered");
    board.tell(Input::Program { job: JOB, first: Rank(1), count: ranks - 1, appnum: 1 }).expect("they exist");
    let mapping = format!("(vector,(0,{ranks},1))");
    let attr = Input::Attr { job: JOB, key: b"PMI_process_mapping", value: mapping.as_bytes() };
    board.tell(attr).expect("there is room");
    let mut sets = 0;
    while board
        .tell(Input::Pset { job: JOB, name: &format!("set-{sets}"), first: Rank(0), count: ranks })
        .is_ok()
    {
        sets += 1;
    }
    for rank in 0..ranks {
        join(board, rank, rank, protocol);
    }
}

fn join(board: &mut Board<'_>, conn: u32, rank: u32, protocol: Protocol) {
    board.tell(Input::Opened { conn: ConnId(conn), job: JOB, rank: None }).expect("the number is free");
    match protocol {
        Protocol::Pmi1 => {
            board.line(conn, &format!("cmd=initack pmiid={rank}"));
            board.line(conn, "cmd=init pmi_version=1 pmi_subversion=1");
        }
        Protocol::Pmi2 => {
            board.line(conn, "cmd=init pmi_version=2 pmi_subversion=0");
            board.counted(conn, &format!("cmd=fullinit;pmijobid={NAME};pmirank={rank};threaded=TRUE;"));
        }
        Protocol::Pmix => {
            board.say(conn, &hello(NAME, rank));
        }
    }
}

/// Puts until each rank is refused.
fn fill(board: &mut Board<'_>, ranks: u32, protocol: Protocol, value: &str) {
    for rank in 0..ranks {
        for at in 0..MANY {
            let reply = match protocol {
                Protocol::Pmi1 => {
                    board.line(rank, &format!("cmd=put kvsname={NAME} key=k{rank}-{at} value={value}"))
                }
                _ => board.counted(rank, &format!("cmd=kvs-put;key=k{rank}-{at};value={value};")),
            };
            if !String::from_utf8_lossy(&reply).contains("rc=0") {
                break;
            }
        }
    }
}

/// Ends the processes and the job.
fn close(board: &mut Board<'_>, ranks: u32) {
    for rank in 0..ranks {
        // Some have been closed.
        let _ = board.tell(Input::Closed { conn: ConnId(rank) });
        let _ = board.tell(Input::Exited { job: JOB, rank: Rank(rank), exit: Exit::Code(0) });
    }
    board.tell(Input::DeregisterJob { job: JOB }).expect("it is registered");
}

/// All requests of PMI-1 with full tables.
fn pmi1(board: &mut Board<'_>, ranks: u32, value: &str) {
    open(board, ranks, Protocol::Pmi1, true);
    for line in ["get_maxes", "get_universe_size", "get_appnum", "get_my_kvsname", "nosuch key=k"] {
        (0..ranks).for_each(|rank| drop(board.line(rank, &format!("cmd={line}"))));
    }
    fill(board, ranks, Protocol::Pmi1, value);
    for rank in 0..ranks {
        for key in [format!("k{rank}-0"), "missing".to_owned(), "PMI_process_mapping".to_owned()] {
            board.line(rank, &format!("cmd=get kvsname={NAME} key={key}"));
        }
        board.line(rank, &format!("cmd=publish_name service=name-{rank} port={}", "p".repeat(300)));
    }
    for rank in 0..ranks {
        board.line(rank, "cmd=lookup_name service=name-0");
    }
    (0..ranks).for_each(|rank| drop(board.line(rank, &format!("cmd=unpublish_name service=name-{rank}"))));
    (0..ranks).for_each(|rank| drop(board.line(rank, "cmd=barrier_in")));
    (0..ranks).for_each(|rank| drop(board.line(rank, "cmd=barrier_in group=WORLD:3")));
    let spawn = "mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd";
    board.line(0, spawn);
    let several = format!("cmd=get kvsname={NAME} key=k0-0\n").repeat(4);
    board.say(0, several.as_bytes());
    board.say(0, b"cmd=put kvsname=");
    for conn in (0..ranks).map(ConnId) {
        board.tell(Input::Blocked { conn }).expect("it is open");
        board.tell(Input::Writable { conn }).expect("it is open");
    }
    // A client that sends a message without an end.
    join(board, ranks, 0, Protocol::Pmi1);
    let endless = [b"cmd=".as_slice(), &[b'x'; 2300]].concat();
    let stranger = ConnId(ranks + 1);
    board.tell(Input::Opened { conn: stranger, job: JOB, rank: None }).expect("the number is free");
    board.tell(Input::Bytes { conn: stranger, bytes: &endless, full: true }).expect("it is open");
    (0..ranks).for_each(|rank| drop(board.line(rank, "cmd=finalize")));
    close(board, ranks);
}

/// All requests of PMI-2 with full tables.
fn pmi2(board: &mut Board<'_>, ranks: u32, value: &str) {
    open(board, ranks, Protocol::Pmi2, true);
    // All wait for one attribute, and for one name.
    (1..ranks).for_each(|rank| drop(board.counted(rank, "cmd=info-getnodeattr;key=late;wait=TRUE;")));
    board.counted(0, "cmd=info-putnodeattr;key=late;value=here;");
    (1..ranks).for_each(|rank| drop(board.counted(rank, "cmd=name-lookup;name=late;")));
    board.counted(0, "cmd=name-publish;name=late;port=here;");
    (1..ranks).for_each(|rank| drop(board.counted(rank, "cmd=name-lookup;name=never;")));
    board.wait();
    fill(board, ranks, Protocol::Pmi2, value);
    board.counted(0, &format!("cmd=kvs-put;key=long;value={};", ";;".repeat(1024)));
    for rank in 0..ranks {
        for body in [
            format!("kvs-get;key=k{rank}-0;"),
            "kvs-get;key=missing;".to_owned(),
            "info-getjobattr;key=PMI_process_mapping;".to_owned(),
            "info-getnodeattr;key=late;".to_owned(),
            "job-getid;".to_owned(),
            "job-connect;jobid=other;".to_owned(),
            "job-disconnect;jobid=other;".to_owned(),
            "nosuch;".to_owned(),
        ] {
            board.counted(rank, &format!("cmd={body}"));
        }
    }
    sets(board, ranks);
    let ring = |rank: u32| format!("cmd=ring;ring-count=1;ring-left={};ring-right=r{rank};", "l".repeat(100));
    (0..ranks).for_each(|rank| drop(board.counted(rank, &ring(rank))));
    (0..ranks).for_each(|rank| drop(board.counted(rank, "cmd=kvs-fence;")));
    let spawn = "cmd=spawn;ncmds=1;preputcount=0;subcmd=true;maxprocs=1;argc=0;";
    board.counted(0, spawn);
    (0..ranks).for_each(|rank| drop(board.counted(rank, "cmd=finalize;")));
    close(board, ranks);
}

/// A ring with the longest texts that the log has room for. Each byte of them is escaped.
fn ring(board: &mut Board<'_>, ranks: u32) {
    open(board, ranks, Protocol::Pmi2, true);
    for rank in 0..ranks {
        let mut len = 500;
        loop {
            let text = ";;".repeat(len);
            let ring = format!("cmd=ring;ring-count=1;ring-left={text};ring-right={text};");
            let reply = board.counted(rank, &ring);
            let reply = String::from_utf8_lossy(&reply);
            // Ranks wait for the last one. What there is no room for is refused at once.
            if !reply.contains("ring-response") || reply.contains("rc=0;") {
                break;
            }
            len = len * 3 / 4;
        }
    }
    close(board, ranks);
}

/// Requests about process sets of every other rank.
fn sets(board: &mut Board<'_>, ranks: u32) {
    board.counted(0, "cmd=pset-retire;name=app://set-0;");
    board.counted(0, "cmd=pset-retire;name=app://set-1;");
    board.counted(0, "cmd=pset-prune;");
    let list: Vec<String> = (0..ranks).step_by(2).map(|rank| rank.to_string()).collect();
    board.counted(0, &format!("cmd=pset-define;name=even;members={};", list.join(",")));
    let combine = "cmd=pset-combine;name=odd;operation=difference;pset1=mpi://WORLD;pset2=app://even;";
    board.counted(0, combine);
    board.counted(0, "cmd=pset-define;name=full;members=0;");
    for rank in 0..ranks {
        for body in [
            "pset-count;",
            "pset-name;index=3;",
            "pset-next;after=2;",
            "pset-info;name=app://even;",
            "pset-members;name=app://even;from=0;",
        ] {
            board.counted(rank, &format!("cmd={body}"));
        }
    }
}

fn pmix_fence(rank: u32) -> Vec<u8> {
    message(rank + 200, 3, |writer| {
        writer.array(1);
        writer.proc(NAME.as_bytes(), WILDCARD);
        writer.array(1);
        writer.info(b"pmix.collect", kind::BOOL);
        writer.byte(1);
    })
}

fn pmix_get(of: u32, key: &str) -> Vec<u8> {
    message(300, 4, |writer| {
        writer.single();
        writer.string(NAME.as_bytes());
        writer.single();
        writer.uint32(of);
        writer.array(0);
        writer.single();
        writer.string(key.as_bytes());
    })
}

/// Commits a value of `len` bytes for all.
fn pmix_commit(key: &str, len: usize) -> Vec<u8> {
    let mut pack = [0; 2048];
    let mut inner = Writer::new(hydrant_core::wire::pmix::Integers::Flexible, &mut pack);
    inner.key(key.as_bytes(), kind::STRING);
    inner.string(&vec![b'v'; len]);
    let len = inner.finish().expect("it fits");
    message(301, 2, |writer| {
        for scope in [1, 2] {
            writer.single();
            writer.byte(scope);
            writer.single();
            writer.byte(1);
            writer.size(len as u64);
            writer.raw(&pack[..len]);
        }
    })
}

/// Requests of PMIx that concern all ranks at once.
fn pmix(board: &mut Board<'_>, ranks: u32) {
    open(board, ranks, Protocol::Pmix, true);
    (0..ranks).for_each(|rank| drop(board.say(rank, &message(100, 0, |_| {}))));
    // All wait for the value of one rank.
    (1..ranks).for_each(|rank| drop(board.say(rank, &pmix_get(0, "card"))));
    (0..ranks).for_each(|rank| drop(board.say(rank, &pmix_commit("card", 400))));
    (0..ranks).for_each(|rank| drop(board.say(rank, &pmix_fence(rank))));
    for rank in 0..ranks {
        board.say(rank, &pmix_get((rank + 1) % ranks, "card"));
        board.say(rank, &pmix_commit("larger", 900));
        board.say(rank, &message(302, 77, |_| {}));
        board.say(rank, &pmix_keys(7, 1));
        pmix_host(board, rank);
    }
    (0..ranks).for_each(|rank| drop(board.say(rank, &pmix_fence(rank))));
    (0..ranks).for_each(|rank| drop(board.say(rank, &message(303, 5, |_| {}))));
    close(board, ranks);
}

/// Requests that only larger hosts serve: a monitor, whose heartbeat follows, copies of output, and hosts.
fn pmix_host(board: &mut Board<'_>, rank: u32) {
    let monitor = message(305, 19, |writer| {
        writer.single();
        writer.info(b"pmix.monitor.mbeat", 0);
        writer.status(0);
        writer.array(1);
        writer.info(b"pmix.monitor.btime", kind::UINT32);
        writer.uint32(5);
    });
    let pull = message(306, 22, |writer| {
        writer.array(1);
        writer.proc(NAME.as_bytes(), WILDCARD);
        writer.array(0);
        writer.single();
        writer.uint16(2);
        writer.single();
        writer.size(1);
    });
    let stop = message(307, 29, |writer| {
        writer.array(0);
        writer.single();
        writer.size(1);
    });
    let push = message(308, 23, |writer| {
        writer.array(1);
        writer.proc(NAME.as_bytes(), WILDCARD);
        writer.array(0);
        writer.single();
        writer.blob_of(|writer| writer.raw(b"input"));
    });
    let allocate = message(309, 17, |writer| {
        writer.single();
        writer.byte(allocation::EXTEND);
        writer.array(1);
        writer.info(b"pmix.alloc.nlist", kind::STRING);
        writer.string(b"host");
    });
    for request in [&monitor[..], &write_header(HEARTBEAT_TAG, 0), &pull, &stop, &push, &allocate] {
        board.say(rank, request);
    }
}

/// A look-up or a withdrawal of `count` keys.
fn pmix_keys(command: u8, count: u32) -> Vec<u8> {
    message(304, command, |writer| {
        writer.single();
        writer.uint32(0);
        writer.single();
        writer.size(count.into());
        for at in 0..count {
            writer.single();
            writer.string(format!("key-{at}").as_bytes());
        }
        writer.array(0);
    })
}

/// Ways in which a job ends while its ranks wait in a fence.
fn ends(script: &mut Script, ranks: u32) {
    for protocol in [Protocol::Pmi1, Protocol::Pmi2, Protocol::Pmix] {
        for end in 0..5 {
            for cleanup in [true, false] {
                let mut memory = MappedStorage::new(&script.limits);
                let how = ["an abort", "a killed rank", "a lost rank", "the end of the job", "rubbish"][end];
                let name = format!("a fence of {protocol:?} and {how}");
                let mut board = Board::begin(script, &mut memory, &name, ranks);
                ended(&mut board, ranks, protocol, end, cleanup);
            }
        }
    }
}

fn ended(board: &mut Board<'_>, ranks: u32, protocol: Protocol, end: usize, cleanup: bool) {
    open(board, ranks, protocol, cleanup);
    if protocol != Protocol::Pmix {
        fill(board, ranks, protocol, "v");
    }
    for rank in 1..ranks {
        match protocol {
            Protocol::Pmi1 => board.line(rank, "cmd=barrier_in"),
            Protocol::Pmi2 => board.counted(rank, "cmd=kvs-fence;"),
            Protocol::Pmix => board.say(rank, &pmix_fence(rank)),
        };
    }
    match (end, protocol) {
        (0, Protocol::Pmi1) => drop(board.line(0, "cmd=abort exitcode=3")),
        (0, Protocol::Pmi2) => drop(board.counted(0, "cmd=abort;isworld=TRUE;msg=no more;")),
        (0, Protocol::Pmix) => {
            let abort = message(400, 1, |writer| {
                writer.single();
                writer.int32(7);
                writer.single();
                writer.string(b"enough");
                writer.array(0);
            });
            board.say(0, &abort);
        }
        (1, _) => drop(board.tell(Input::Exited { job: JOB, rank: Rank(0), exit: Exit::Signal(9) })),
        // It is late, and then gone.
        (2, _) => {
            board.wait();
            board.tell(Input::Closed { conn: ConnId(0) }).expect("it is open");
            if board.waits() {
                board.wait();
            }
        }
        (3, _) => drop(board.tell(Input::DeregisterJob { job: JOB })),
        _ => {
            board
                .tell(Input::Bytes { conn: ConnId(0), bytes: b"GET / HTTP/1.1\r\n\r\n", full: false })
                .expect("it is open");
        }
    }
    if end != 3 {
        close(board, ranks);
    }
}

/// Messages of captured exchanges of PMIx libraries, each rank's in turn.
fn captured(board: &mut Board<'_>, text: &str) {
    let mut clients: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("== ") {
            if !line.starts_with(&format!("== {NAME} ")) {
                break;
            }
            clients.push(Vec::new());
        } else if let Some(bytes) = lines.next().filter(|_| line.starts_with("C>")) {
            clients.last_mut().expect("a rank comes first").push(hex(bytes.trim()));
        }
    }
    let ranks = clients.len() as u32;
    let spec = JobSpec::new(JOB, NAME, ranks);
    board.tell(Input::RegisterJob(spec)).expect("there is room");
    for conn in (0..ranks).map(ConnId) {
        board.tell(Input::Opened { conn, job: JOB, rank: None }).expect("the number is free");
    }
    let turns = clients.iter().map(Vec::len).max().unwrap_or_default();
    for turn in 0..turns {
        for (conn, messages) in (0..).zip(&clients) {
            if let Some(message) = messages.get(turn) {
                board.say(conn, message);
            }
        }
    }
    close(board, ranks);
}

fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

macro_rules! transcripts {
    ($($file:literal)*) => {
        [$(($file, include_str!(concat!("../../../core/pmix/transcripts/", $file, ".txt")))),*]
    };
}

/// Writes all of them for a job of that size.
pub(super) fn write(script: &mut Script, ranks: u32) {
    let long = "x".repeat(1000);
    let full = [("a full log", long.as_str()), ("a full index", "v")];
    for (name, value) in full {
        let mut memory = MappedStorage::new(&script.limits);
        pmi1(&mut Board::begin(script, &mut memory, &format!("PMI-1, {name}"), ranks), ranks, value);
        let mut memory = MappedStorage::new(&script.limits);
        pmi2(&mut Board::begin(script, &mut memory, &format!("PMI-2, {name}"), ranks), ranks, value);
    }
    let mut memory = MappedStorage::new(&script.limits);
    ring(&mut Board::begin(script, &mut memory, "a ring of long texts", ranks), ranks);
    let mut memory = MappedStorage::new(&script.limits);
    pmix(&mut Board::begin(script, &mut memory, "PMIx", ranks), ranks);
    ends(script, ranks);
}

/// Writes the captured exchanges.
pub(super) fn write_captured(script: &mut Script) {
    for (name, text) in transcripts! {
        "ompi5-n4" "ompi5-n2-format-v3" "ompi5-abort" "ompi5-names" "ompi5-sessions" "ompi5-spawn" "ompi5-ulfm"
        "pmix422-events-query-group-spawn" "pmix610-events-query-group" "pmix610-put-get-publish"
    } {
        let mut memory = MappedStorage::new(&script.limits);
        let mut board = Board::begin(script, &mut memory, &format!("captured {name}"), 0);
        captured(&mut board, text);
    }
}
