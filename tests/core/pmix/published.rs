//! Published data of PMIx clients: look-ups that wait for several keys, ranges and persistence.

use hydrant_core::server::{Input, Server};
use hydrant_core::storage::OwnedStorage;
use hydrant_core::wire::pmix::{Integers, Reader, kind, status};
use hydrant_core::{ConnId, Exit, JobId, Limit, Time};
use hydrant_tests::host::Host;
use hydrant_tests::pmix::message;

use super::events::{exits, limits, result, with_jobs};

/// Persistence of data.
const INDEFINITE: u8 = 0;
const FIRST_READ: u8 = 1;
const PROCESS: u8 = 2;
const APPLICATION: u8 = 3;
const SESSION: u8 = 4;
/// Ranges.
const MANAGER: u8 = 1;
const NODE: u8 = 2;
const JOB: u8 = 3;
const GLOBAL: u8 = 5;
const CUSTOM: u8 = 6;
const ITSELF: u8 = 7;

/// Publishes a text of the key's name.
fn publish(host: &mut Host<'_>, conn: u32, key: &str, persistence: u8, range: u8) -> i32 {
    let request = message(5, 6, |writer| {
        writer.single();
        writer.uint32(0);
        writer.array(3);
        writer.info(b"pmix.persist", kind::PERSIST);
        writer.byte(persistence);
        writer.info(b"pmix.range", kind::DATA_RANGE);
        writer.byte(range);
        writer.info(key.as_bytes(), kind::STRING);
        writer.string(key.as_bytes());
    });
    result(&host.ask(conn, &request))
}

/// Looks up keys, and waits for them for some seconds if `wait` is not 0.
fn ask(host: &mut Host<'_>, conn: u32, keys: &[&str], wait: u32) {
    let request = message(6, 7, |writer| {
        writer.single();
        writer.uint32(0);
        writer.single();
        writer.size(keys.len() as u64);
        for key in keys {
            writer.single();
            writer.string(key.as_bytes());
        }
        writer.array(if wait > 0 { 2 } else { 0 });
        if wait > 0 {
            writer.info(b"pmix.wait", kind::BOOL);
            writer.byte(1);
            writer.info(b"pmix.timeout", kind::UINT32);
            writer.uint32(wait);
        }
    });
    host.arrive(conn, &request).expect("the connection is open");
}

/// Returns the keys in the reply to a look-up, or its status. `None` without a reply.
fn found(host: &mut Host<'_>, conn: u32) -> Option<Result<Vec<String>, i32>> {
    let replies = host.take(conn);
    let reply = replies.first()?;
    assert_eq!((replies.len(), result(reply) == status::SUCCESS || reply.len() < 24), (1, true));
    if result(reply) != status::SUCCESS {
        return Some(Err(result(reply)));
    }
    let mut reader = Reader::new(Integers::Flexible, &reply[16..]);
    reader.single().and_then(|()| reader.int32()).expect("a status");
    let count = reader.array().expect("an array");
    let mut key = || {
        let publisher = reader.proc()?;
        assert!([&b"one"[..], b"two"].contains(&publisher.namespace));
        let key = String::from_utf8_lossy(reader.key()?).into_owned();
        assert_eq!((reader.data_type()?, reader.string()??), (kind::STRING, key.as_bytes()));
        Some(key)
    };
    Some(Ok((0..count).map(|_| key().expect("data")).collect()))
}

fn looks_up(host: &mut Host<'_>, conn: u32, keys: &[&str]) -> Result<Vec<String>, i32> {
    ask(host, conn, keys, 0);
    found(host, conn).expect("a look-up that does not wait is answered")
}

fn names<const N: usize>(names: [&str; N]) -> Result<Vec<String>, i32> {
    Ok(names.map(str::to_owned).to_vec())
}

#[test]
fn a_look_up_waits_for_all_of_its_keys() {
    with_jobs(|host| {
        assert_eq!(publish(host, 0, "b", FIRST_READ, GLOBAL), status::SUCCESS);
        ask(host, 1, &["a", "b", "c", "a"], 5);
        ask(host, 2, &["a", "c"], 5);
        assert_eq!(found(host, 1), None);
        // What is waited for can still be read, withdrawn, and published again.
        assert_eq!(looks_up(host, 3, &["b"]), names(["b"]));
        assert_eq!(publish(host, 0, "a", SESSION, GLOBAL), status::SUCCESS);
        assert_eq!(publish(host, 0, "c", FIRST_READ, GLOBAL), status::SUCCESS);
        assert_eq!(found(host, 1), None);
        assert_eq!(found(host, 2), Some(names(["a", "c"])));
        let snapshot = host.snapshot(host.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        let restored = Server::restore(&snapshot, storage.lend()).expect("the snapshot is valid");
        assert_eq!(restored.poll_at(), host.server.poll_at());
        assert_eq!(publish(host, 3, "b", SESSION, GLOBAL), status::SUCCESS);
        assert_eq!(found(host, 1), None, "the other look-up has taken c");
        assert_eq!(publish(host, 3, "c", SESSION, GLOBAL), status::SUCCESS);
        let mut all = found(host, 1).expect("all keys are there").expect("it succeeds");
        all.sort();
        assert_eq!(all, ["a", "b", "c"]);
    });
}

#[test]
fn a_look_up_of_several_keys_times_out() {
    with_jobs(|host| {
        assert_eq!(publish(host, 0, "b", SESSION, GLOBAL), status::SUCCESS);
        ask(host, 1, &["a", "b"], 2);
        ask(host, 2, &["c", "d"], 3);
        ask(host, 3, &["c", "d"], 9);
        for (now, first, second) in [(1999, None, None), (2000, Some(names(["b"])), None)] {
            host.now = Time(now);
            host.tell(Input::Timeout).expect("it is always valid");
            assert_eq!((found(host, 1), found(host, 2)), (first, second));
        }
        host.now = Time(3000);
        host.tell(Input::Timeout).expect("it is always valid");
        assert_eq!(found(host, 2), Some(Err(status::NOT_FOUND)));
        assert_eq!(host.server.used(Limit::Names), 3, "b, and what the last look-up waits for");
        host.tell(Input::Closed { conn: ConnId(3) }).expect("the connection is open");
        assert_eq!(host.server.used(Limit::Names), 1);
    });
}

#[test]
fn data_are_found_in_their_range() {
    with_jobs(|host| {
        let missing = Err(status::NOT_FOUND);
        // Rank 3 is of another job.
        for (range, others, strangers) in
            [(NODE, true, true), (JOB, true, false), (ITSELF, false, false), (MANAGER, false, false)]
        {
            ask(host, 3, &["key"], 1);
            assert_eq!(publish(host, 0, "key", SESSION, range), status::SUCCESS);
            let read = |may| if may { names(["key"]) } else { missing.clone() };
            assert_eq!(looks_up(host, 0, &["key"]), names(["key"]));
            assert_eq!(looks_up(host, 1, &["key"]), read(others));
            assert_eq!(looks_up(host, 1, &["key", "other"]), read(others));
            host.now = host.now.after(1000);
            host.tell(Input::Timeout).expect("it is always valid");
            assert_eq!(found(host, 3), Some(read(strangers)), "range {range}");
            let withdraw = message(7, 8, |writer| {
                writer.single();
                writer.uint32(0);
                writer.single();
                writer.size(0);
                writer.array(0);
            });
            assert_eq!(result(&host.ask(0, &withdraw)), status::SUCCESS);
        }
        assert_eq!(publish(host, 0, "key", SESSION, CUSTOM), status::NOT_SUPPORTED);
        assert_eq!(host.server.used(Limit::Names), 0);
    });
}

#[test]
fn data_of_a_process_end_with_it() {
    with_jobs(|host| {
        assert_eq!(publish(host, 1, "short", PROCESS, GLOBAL), status::SUCCESS);
        assert_eq!(publish(host, 1, "long", SESSION, GLOBAL), status::SUCCESS);
        assert_eq!(publish(host, 0, "other", PROCESS, GLOBAL), status::SUCCESS);
        ask(host, 3, &["short", "later"], 9);
        exits(host, JobId(0), 1, 1, Exit::Code(0));
        assert_eq!(looks_up(host, 2, &["short", "long"]), names(["long"]));
        assert_eq!(looks_up(host, 2, &["other"]), names(["other"]));
        assert_eq!(publish(host, 0, "later", SESSION, GLOBAL), status::SUCCESS);
        assert_eq!(found(host, 3), None);
        assert_eq!(publish(host, 0, "short", FIRST_READ, GLOBAL), status::SUCCESS);
        let mut all = found(host, 3).expect("all keys are there").expect("it succeeds");
        all.sort();
        assert_eq!(all, ["later", "short"]);
        assert_eq!(looks_up(host, 2, &["short"]), Err(status::NOT_FOUND));
    });
}

#[test]
fn data_outlast_the_job_of_their_publisher() {
    with_jobs(|host| {
        let all = ["application", "first", "session", "indefinite", "own"];
        let persistences = [APPLICATION, FIRST_READ, SESSION, INDEFINITE, SESSION];
        for (key, persistence) in all.into_iter().zip(persistences) {
            let range = if key == "own" { JOB } else { GLOBAL };
            assert_eq!(publish(host, 1, key, persistence, range), status::SUCCESS);
        }
        for rank in 0..3 {
            exits(host, JobId(0), rank, rank, Exit::Code(0));
        }
        host.tell(Input::DeregisterJob { job: JobId(0) }).expect("the job is there");
        assert_eq!(host.server.used(Limit::Names), 2);
        let snapshot = host.snapshot(host.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        assert!(Server::restore(&snapshot, storage.lend()).is_ok());
        // Rank 3 is of another job, and may withdraw them.
        assert_eq!(looks_up(host, 3, &all), names(["session", "indefinite"]));
        let withdraw = message(7, 8, |writer| {
            writer.single();
            writer.uint32(0);
            writer.single();
            writer.size(1);
            writer.single();
            writer.string(b"indefinite");
            writer.array(0);
        });
        assert_eq!(result(&host.ask(3, &withdraw)), status::SUCCESS);
        assert_eq!(looks_up(host, 3, &all), names(["session"]));
    });
}
