//! Memory that the core needs, and each limit when it is used up.

use hydrant_core::limits::{KEY_MAX, VALUE_MAX};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::storage::Layout;
use hydrant_core::{ConnId, Fault, JobId, Limit, Limits, Rank};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, JOB, counted};
use hydrant_tests::message::Message;
use hydrant_tests::tell;

const INIT: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";
const FENCE: &str = "cmd=kvs-fence;";

/// A small job's limits.
const SMALL: Limits =
    Limits { jobs: 1, ranks: 2, conns: 2, keys: 16, kvs_bytes: 2048, groups: 1, ..Limits::NONE };

/// Asks in PMI-2 and takes the reply apart.
fn ask(host: &mut Host<'_>, conn: u32, body: &str) -> Message {
    let reply = host.ask(conn, &counted(body));
    Message::parse(&reply).unwrap_or_else(|e| panic!("{e}: {}", reply.escape_ascii()))
}

#[track_caller]
fn done(host: &mut Host<'_>, conn: u32, body: &str) -> Message {
    let reply = ask(host, conn, body);
    assert_eq!(reply.text("rc"), "0", "{body}: {reply}");
    reply
}

/// The client is told that this limit is used up.
#[track_caller]
fn names(reply: &Message, limit: Limit) {
    let why = reply.text(if reply.counted { "errmsg" } else { "msg" }).replace('_', " ");
    assert_ne!(reply.text("rc"), "0", "{reply}");
    let named = why.contains(&format!("limit {}", limit.name()));
    assert!(named && why.contains(&format!("--limit {}=", limit.name())), "{} in {reply}", limit.name());
}

/// Opens the job and lets every rank join.
fn joined<'s>(limits: Limits, memory: &'s mut MappedStorage, size: u32) -> Host<'s> {
    let mut host = Host::new(limits, memory).expect("the memory is as large as the limits say");
    host.job("kvs", size).expect("the limits have room for the job");
    for rank in 0..size {
        host.open(rank, Some(rank)).expect("the limits have room for each rank");
        host.ask(rank, INIT);
        let reply = done(&mut host, rank, &format!("cmd=fullinit;pmirank={rank};"));
        assert_eq!((reply.text("rank"), reply.text("size")), (rank.to_string(), size.to_string()));
    }
    host
}

/// Every rank arrives in the fence; all are let go by the last.
fn fence(host: &mut Host<'_>, size: u32) {
    for rank in 0..size {
        host.arrive(rank, &counted(FENCE)).expect("the connection is open");
        assert_eq!(host.replies.is_empty(), rank + 1 < size, "rank {rank} of {size}");
    }
    for rank in 0..size {
        let replies = host.take(rank);
        let reply = Message::parse(&replies.concat()).expect("one whole reply each");
        assert_eq!((reply.name(), reply.text("rc").as_str()), ("kvs-fence-response", "0"));
    }
}

#[test]
fn eight_ranks_with_64_keys_fit_24_kib() {
    const RANKS: u32 = 8;
    const KEYS: u32 = 64;
    // A business card of MPICH or Intel MPI is a key of at most 20 bytes and a value of at most 100; the job's
    // mapping takes one key more.
    let limits = Limits {
        jobs: 1,
        ranks: RANKS,
        conns: RANKS,
        keys: KEYS + 1,
        kvs_bytes: 12 * 1024,
        groups: 1,
        ..Limits::NONE
    };
    let bytes = Layout::of(&limits).bytes();
    tell(&format!("slabs of {RANKS} ranks with {KEYS} keys: {bytes} bytes"));
    assert!(bytes <= 24 * 1024, "{bytes} bytes");

    let mut memory = MappedStorage::new(&limits);
    let mut host = joined(limits, &mut memory, RANKS);
    let value = |rank: u32, key: u32| format!("{rank}:{key}:{}", "x".repeat(95));
    for rank in 0..RANKS {
        for key in 0..KEYS / RANKS {
            let value = value(rank, key);
            done(&mut host, rank, &format!("cmd=kvs-put;key=P{rank}-businesscard-{key};value={value};"));
        }
    }
    fence(&mut host, RANKS);
    for rank in 0..RANKS {
        for other in 0..RANKS {
            for key in 0..KEYS / RANKS {
                let reply = done(&mut host, rank, &format!("cmd=kvs-get;key=P{other}-businesscard-{key};"));
                assert_eq!(reply.text("value"), value(other, key));
            }
        }
    }
    assert!(host.events.is_empty(), "{:?}", host.events);
}

#[test]
fn a_hundred_thousand_ranks_work() {
    const RANKS: u32 = 131_072;
    let limits = Limits {
        jobs: 1,
        ranks: RANKS,
        conns: RANKS,
        // Half of each is shared out evenly, half goes to who comes first.
        keys: RANKS + 1,
        kvs_bytes: RANKS * 64,
        groups: 1,
        ..Limits::NONE
    };
    let bytes = Layout::of(&limits).bytes();
    tell(&format!(
        "slabs of {RANKS} ranks with a key each: {bytes} bytes, {} a rank",
        bytes / RANKS as usize
    ));
    let mut memory = MappedStorage::new(&limits);
    let mut host = joined(limits, &mut memory, RANKS);
    for rank in 0..RANKS {
        done(&mut host, rank, &format!("cmd=kvs-put;key=card-{rank};value=at-{rank};"));
    }
    fence(&mut host, RANKS);
    for rank in 0..RANKS {
        let other = (rank + RANKS / 2 + 1) % RANKS;
        let reply = done(&mut host, rank, &format!("cmd=kvs-get;key=card-{other};"));
        assert_eq!(reply.text("value"), format!("at-{other}"));
    }
    for rank in 0..RANKS {
        done(&mut host, rank, "cmd=finalize;");
    }
    assert!(host.events.is_empty(), "{:?}", host.events);
}

#[test]
fn the_hosts_own_limits_are_refused_by_name_and_change_nothing() {
    let mut memory = MappedStorage::new(&SMALL);
    let mut host = joined(SMALL, &mut memory, 1);
    let before = host.snapshot(1 << 16);
    let spec = |host: &mut Host<'_>, job: u32, size| {
        let spec = JobSpec::new(JobId(job), "other", size);
        host.tell(Input::RegisterJob(spec)).expect_err("there is no room")
    };
    assert_eq!(spec(&mut host, 1, 1), Fault::Full(Limit::Jobs, 1));
    assert_eq!(host.open(2, None), Err(Fault::Full(Limit::Conns, 2)));
    assert_eq!(host.snapshot(1 << 16), before);

    let two = Limits { jobs: 2, ..SMALL };
    let mut memory = MappedStorage::new(&two);
    let mut host = joined(two, &mut memory, 1);
    let before = host.snapshot(1 << 16);
    assert_eq!(spec(&mut host, 1, 2), Fault::Full(Limit::Ranks, 2));
    assert_eq!(host.snapshot(1 << 16), before);
    for (limit, size) in [(Limit::Jobs, 1), (Limit::Conns, 2), (Limit::Ranks, 2)] {
        assert!(Fault::Full(limit, size).to_string().contains(limit.name()));
    }
}

/// Puts until the table is full; gives how many fitted.
fn fill(host: &mut Host<'_>, limit: Limit, value: &str) -> u32 {
    for count in 0..1000 {
        let body = format!("cmd=kvs-put;key=key-{count};value={value}{count};");
        // The reply before a refused request and the one after it leave the same connection's turn.
        let before = host.snapshot(1 << 16);
        let reply = ask(host, 0, &body);
        if reply.text("rc") == "0" {
            continue;
        }
        names(&reply, limit);
        assert!(count > 0, "{reply}");
        assert_eq!(host.snapshot(1 << 16), before, "{reply}");
        let missing = done(host, 0, &format!("cmd=kvs-get;key=key-{count};"));
        assert_eq!(missing.text("found"), "FALSE");
        return count;
    }
    panic!("never full");
}

fn kept(host: &mut Host<'_>, count: u32, value: &str) {
    for at in 0..count {
        let reply = done(host, 0, &format!("cmd=kvs-get;key=key-{at};"));
        assert_eq!(reply.text("value"), format!("{value}{at}"));
    }
}

#[test]
fn keys_and_bytes_run_out_by_name_and_lose_nothing() {
    for (limit, limits, value) in [
        (Limit::Keys, Limits { keys: 16, kvs_bytes: 1 << 14, ..SMALL }, "v"),
        (Limit::KvsBytes, Limits { keys: 256, kvs_bytes: 2048, ..SMALL }, "a value of some length "),
    ] {
        let mut memory = MappedStorage::new(&limits);
        let mut host = joined(limits, &mut memory, 2);
        let count = fill(&mut host, limit, value);
        kept(&mut host, count, value);
        // Node attributes live in the same tables.
        let before = host.snapshot(1 << 16);
        let body = format!("cmd=info-putnodeattr;key=new;value={};", value.repeat(40));
        names(&ask(&mut host, 0, &body), limit);
        assert_eq!(host.snapshot(1 << 16), before);
        // A waiting get takes room too, if the attribute has no value.
        names(
            &ask(
                &mut host,
                0,
                "cmd=info-getnodeattr;key=0123456789012345678901234567890123456789;wait=TRUE;",
            ),
            limit,
        );
        // The other rank's share is still there.
        let body = format!("cmd=kvs-put;key=mine;value={value};");
        done(&mut host, 1, &body);
        assert_eq!(done(&mut host, 0, "cmd=kvs-get;key=mine;").text("value"), value);
        assert!(host.events.is_empty(), "{:?}", host.events);
    }
}

#[test]
fn groups_run_out_by_name() {
    let mut memory = MappedStorage::new(&SMALL);
    let mut host = Host::new(SMALL, &mut memory).expect("the memory is as large as the limits say");
    host.job("kvs", 2).expect("the limits have room for the job");
    for rank in 0..2 {
        host.open(rank, Some(rank)).expect("the limits have room for each rank");
        host.ask(rank, b"cmd=init pmi_version=1 pmi_subversion=1\n");
    }
    host.arrive(0, b"cmd=barrier_in group=0,1:1\n").expect("the connection is open");
    assert_eq!(host.take(0), [] as [Vec<u8>; 0]);
    host.ask(1, b"cmd=get_appnum\n");
    let before = host.snapshot(1 << 16);
    let reply = host.ask(1, b"cmd=barrier_in group=0,1:2\n");
    names(&Message::parse(&reply).expect("a whole reply"), Limit::Groups);
    assert_eq!(host.snapshot(1 << 16), before);
    host.arrive(1, b"cmd=barrier_in group=0,1:1\n").expect("the connection is open");
    for rank in 0..2 {
        assert_eq!(host.take(rank), [b"cmd=barrier_out rc=0 tag=1\n".to_vec()], "rank {rank}");
    }
    // The first is over, so there is room for another.
    assert_eq!(host.ask(1, b"cmd=barrier_in group=1:3\n"), b"cmd=barrier_out rc=0 tag=3\n");
}

#[test]
fn too_long_keys_and_values_are_refused_and_change_nothing() {
    let limits = Limits { kvs_bytes: 1 << 14, ..SMALL };
    let mut memory = MappedStorage::new(&limits);
    let mut host = joined(limits, &mut memory, 2);
    let (key, value) = ("k".repeat(KEY_MAX as usize), "v".repeat(VALUE_MAX as usize));
    done(&mut host, 0, &format!("cmd=kvs-put;key={key};value={value};"));
    let before = host.snapshot(1 << 16);
    for (key, value, why) in [
        (format!("{key}k"), String::new(), "key is longer than 64 bytes"),
        ("k".to_owned(), format!("{value}v"), "value is longer than 1024 bytes"),
        (String::new(), "v".to_owned(), "key is empty"),
    ] {
        let reply = ask(&mut host, 0, &format!("cmd=kvs-put;key={key};value={value};"));
        assert!(reply.text("rc") != "0" && reply.text("errmsg").contains(why), "{reply}");
        assert_eq!(host.snapshot(1 << 16), before);
    }
    assert_eq!(done(&mut host, 1, &format!("cmd=kvs-get;key={key};")).text("value"), value);
}

/// Replies that a connection is owed are bounded: what comes beyond waits in the host's buffer, and is not lost.
#[test]
fn requests_beyond_what_may_be_owed_wait() {
    let mut memory = MappedStorage::new(&SMALL);
    let mut host = joined(SMALL, &mut memory, 2);
    let waiting = hydrant_core::limits::PENDING_MAX as u32;
    let asks: Vec<Vec<u8>> = (0..waiting + 3)
        .map(|at| counted(&format!("cmd=info-getnodeattr;thrid={at};key=later;wait=TRUE;")))
        .collect();
    let bytes = asks.concat();
    let consumed = host.tell(Input::Bytes { conn: ConnId(0), bytes: &bytes, full: false });
    let consumed = consumed.expect("the connection is open");
    assert!(consumed.again, "{consumed:?}");
    assert_eq!(consumed.bytes as usize, asks[..waiting as usize].concat().len());
    done(&mut host, 1, "cmd=info-putnodeattr;key=later;value=now;");
    host.arrive(0, &bytes[consumed.bytes as usize..]).expect("the connection is open");
    let replies: Vec<String> = host
        .take(0)
        .iter()
        .map(|reply| Message::parse(reply).expect("a whole reply").text("thrid"))
        .collect();
    let all: Vec<String> = (0..waiting + 3).map(|at| at.to_string()).collect();
    assert_eq!(replies, all);
}

/// From nothing upward, every size of every table either serves or refuses by name; nothing in between.
#[test]
fn every_size_serves_or_refuses() {
    for keys in 0..12 {
        for kvs_bytes in (0..400).step_by(4) {
            let limits = Limits { keys, kvs_bytes, ..SMALL };
            let mut memory = MappedStorage::new(&limits);
            let mut host = Host::new(limits, &mut memory).expect("the memory is as large as the limits say");
            match host.job("kvs", 2) {
                Ok(()) => {}
                Err(Fault::Full(limit @ (Limit::Keys | Limit::KvsBytes), _)) => {
                    // The mapping is some 60 bytes, and half of everything is set aside for the ranks.
                    assert!(keys < 1 || kvs_bytes < 128, "{limit:?} at {limits:?}");
                    continue;
                }
                Err(other) => panic!("{other} at {limits:?}"),
            }
            host.open(0, Some(0)).expect("the limits have room for each rank");
            host.ask(0, INIT);
            done(&mut host, 0, "cmd=fullinit;pmirank=0;");
            let mut stored = 0;
            for at in 0..20 {
                let reply = ask(&mut host, 0, &format!("cmd=kvs-put;key=key-{at};value=v{at};"));
                if reply.text("rc") == "0" {
                    assert_eq!(stored, at, "{limits:?}: what is full stays full");
                    stored += 1;
                } else {
                    assert!(reply.text("errmsg").contains("limit k"), "{reply}");
                }
            }
            assert!(stored < keys.max(1), "{limits:?}");
            kept(&mut host, stored, "v");
        }
    }
}

#[test]
fn slabs_that_are_too_short_are_refused() {
    let small = Limits { ranks: 1, conns: 1, ..SMALL };
    for larger in [
        Limits { jobs: 2, ..small },
        Limits { ranks: 2, ..small },
        Limits { conns: 2, ..small },
        Limits { keys: 1000, ..small },
        Limits { kvs_bytes: 4096, ..small },
        Limits { groups: 2, ..small },
    ] {
        let mut memory = MappedStorage::new(&small);
        let fault = Host::new(larger, &mut memory).err();
        let short = matches!(fault, Some(Fault::InsufficientStorage { needed, given, .. }) if needed > given);
        assert!(short, "{larger:?}: {fault:?}");
    }
    let mut memory = MappedStorage::new(&small);
    let mut host = Host::new(small, &mut memory).expect("the memory is as large as the limits say");
    host.job("kvs", 1).expect("the limits have room for the job");
    let early = Input::Exited { job: JOB, rank: Rank(1), exit: hydrant_core::trace::Exit::Code(0) };
    assert_eq!(host.tell(early), Err(Fault::NoSuchRank));
}
