//! Published data of PMIx clients: look-ups that wait for several keys, ranges and persistence.

use hydrant_core::server::{Input, Server};
use hydrant_core::storage::OwnedStorage;
use hydrant_core::wire::Persistence;
use hydrant_core::wire::pmix::{
    Integers, Party, Published, Reader, Writer, kind, status, translate_lookup, translate_publish,
    translate_unpublish,
};
use hydrant_core::{ConnId, Exit, JobId, Limit, Time};
use hydrant_tests::host::{Host, counted};
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
const SESSION_RANGE: u8 = 4;
const GLOBAL: u8 = 5;
const CUSTOM: u8 = 6;
const ITSELF: u8 = 7;

/// Publishes a text of the key's name.
fn publish(host: &mut Host<'_>, conn: u32, key: &str, persistence: u8, range: u8) -> i32 {
    publish_for(host, conn, key, (persistence, range), None)
}

/// Publishes it as user 7 for a list of users, which is that of user ids or of group ids.
fn publish_for(
    host: &mut Host<'_>,
    conn: u32,
    key: &str,
    (persistence, range): (u8, u8),
    list: Option<(&[u8], &[u32])>,
) -> i32 {
    let request = message(5, 6, |writer| {
        writer.single();
        writer.uint32(7);
        writer.array(3 + u32::from(list.is_some()));
        writer.info(b"pmix.persist", kind::PERSIST);
        writer.byte(persistence);
        writer.info(b"pmix.range", kind::DATA_RANGE);
        writer.byte(range);
        if let Some((of, ids)) = list {
            writer.info(b"pmix.aperms", kind::DATA_ARRAY);
            writer.data_type(kind::INFO);
            writer.size(1);
            writer.info(of, kind::DATA_ARRAY);
            writer.data_type(kind::UINT32);
            writer.size(ids.len() as u64);
            ids.iter().for_each(|&id| writer.uint32(id));
        }
        writer.info(key.as_bytes(), kind::STRING);
        writer.string(key.as_bytes());
    });
    result(&host.ask(conn, &request))
}

/// Withdraws a key, or all data of the process.
fn withdraw(host: &mut Host<'_>, conn: u32, key: Option<&str>) -> i32 {
    let request = message(7, 8, |writer| {
        writer.single();
        writer.uint32(7);
        writer.single();
        writer.size(key.iter().count() as u64);
        if let Some(key) = key {
            writer.single();
            writer.string(key.as_bytes());
        }
        writer.array(0);
    });
    result(&host.ask(conn, &request))
}

/// Looks up keys, and waits for them for some seconds if `wait` is not 0.
fn ask(host: &mut Host<'_>, conn: u32, keys: &[&str], wait: u32) {
    ask_in(host, conn, keys, wait, SESSION_RANGE);
}

/// Looks up keys in a range.
fn ask_in(host: &mut Host<'_>, conn: u32, keys: &[&str], wait: u32, range: u8) {
    let request = message(6, 7, |writer| {
        writer.single();
        writer.uint32(0);
        writer.single();
        writer.size(keys.len() as u64);
        for key in keys {
            writer.single();
            writer.string(key.as_bytes());
        }
        writer.array(if wait > 0 { 3 } else { 1 });
        writer.info(b"pmix.range", kind::DATA_RANGE);
        writer.byte(range);
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
        for (range, others, strangers) in [
            (NODE, true, true),
            (JOB, true, false),
            (ITSELF, false, false),
            (MANAGER, false, false),
            (CUSTOM, false, false),
        ] {
            ask(host, 3, &["key"], 1);
            assert_eq!(publish(host, 0, "key", SESSION, range), status::SUCCESS);
            let read = |may| if may { names(["key"]) } else { missing.clone() };
            assert_eq!(looks_up(host, 0, &["key"]), read(![MANAGER, CUSTOM].contains(&range)));
            assert_eq!(looks_up(host, 1, &["key"]), read(others));
            assert_eq!(looks_up(host, 1, &["key", "other"]), read(others));
            host.now = host.now.after(1000);
            host.tell(Input::Timeout).expect("it is always valid");
            assert_eq!(found(host, 3), Some(read(strangers)), "range {range}");
            assert_eq!(withdraw(host, 0, None), status::SUCCESS);
        }
        assert_eq!(host.server.used(Limit::Names), 0);
    });
}

#[test]
fn users_are_listed_who_find_data() {
    with_jobs(|host| {
        let lists: [(&str, u8, &[u32], bool); 4] = [
            ("custom", CUSTOM, &[8, 7], true),
            ("others", CUSTOM, &[8], false),
            ("all", GLOBAL, &[7], true),
            ("none", GLOBAL, &[9, 8], false),
        ];
        for (key, range, users, is_found) in lists {
            let list = Some((&b"pmix.auids"[..], users));
            assert_eq!(publish_for(host, 0, key, (SESSION, range), list), status::SUCCESS);
            for conn in [0, 3] {
                let wanted = if is_found { names([key]) } else { Err(status::NOT_FOUND) };
                assert_eq!(looks_up(host, conn, &[key]), wanted);
            }
        }
        // Requests name no group of the client.
        let list = Some((&b"pmix.agids"[..], &[7][..]));
        assert_eq!(publish_for(host, 0, "group", (SESSION, CUSTOM), list), status::NOT_SUPPORTED);
        assert_eq!(publish_for(host, 0, "group", (SESSION, GLOBAL), list), status::NOT_SUPPORTED);
    });
}

#[test]
fn a_key_is_published_once_in_each_range() {
    with_jobs(|host| {
        // Who publishes in which range, and whether that is the first time there.
        let all = [
            (0, ITSELF, true),
            (0, ITSELF, false),
            (1, ITSELF, true),
            (0, JOB, true),
            (1, JOB, false),
            (3, JOB, true),
            (1, NODE, true),
            (3, NODE, false),
            (3, GLOBAL, true),
            (0, SESSION_RANGE, false),
            (0, MANAGER, true),
            (0, MANAGER, false),
            (3, MANAGER, true),
        ];
        for (conn, range, is_first) in all {
            let wanted = if is_first { status::SUCCESS } else { status::DUPLICATE_KEY };
            assert_eq!(publish(host, conn, "key", SESSION, range), wanted, "{conn} {range}");
        }
        assert_eq!(host.server.used(Limit::Names), 8);
        // Each finds those for the fewest first, and withdraws its own first.
        let publisher = |host: &mut Host<'_>, conn: u32| {
            ask(host, conn, &["key"], 0);
            let replies = host.take(conn);
            let mut reader = Reader::new(Integers::Flexible, replies.first()?.get(16..)?);
            reader.single().and_then(|()| reader.int32()).filter(|&result| result == status::SUCCESS)?;
            reader.array()?;
            let proc = reader.proc()?;
            Some((String::from_utf8_lossy(proc.namespace).into_owned(), proc.rank))
        };
        let one = |rank| Some(("one".to_owned(), rank));
        let two = Some(("two".to_owned(), 0));
        assert_eq!([0, 1, 2, 3].map(|conn| publisher(host, conn)), [one(0), one(1), one(0), two.clone()]);
        assert_eq!(withdraw(host, 0, Some("key")), status::SUCCESS, "for the launcher");
        assert_eq!(withdraw(host, 0, Some("key")), status::SUCCESS, "for itself");
        assert_eq!(withdraw(host, 2, Some("key")), status::SUCCESS, "for the job, by another one");
        assert_eq!(withdraw(host, 3, Some("key")), status::SUCCESS, "for the launcher");
        assert_eq!(withdraw(host, 3, Some("key")), status::SUCCESS, "for the job");
        assert_eq!([0, 1, 2, 3].map(|conn| publisher(host, conn)), [one(1), one(1), one(1), one(1)]);
        assert_eq!(withdraw(host, 0, Some("key")), status::SUCCESS, "on the host");
        assert_eq!([0, 1, 2, 3].map(|conn| publisher(host, conn)), [two.clone(), one(1), two.clone(), two]);
        assert_eq!(withdraw(host, 0, Some("key")), status::SUCCESS);
        assert_eq!(withdraw(host, 0, Some("key")), status::NOT_FOUND);
        assert_eq!(withdraw(host, 1, None), status::SUCCESS);
        assert_eq!(host.server.used(Limit::Names), 0);
    });
}

#[test]
fn a_look_up_has_a_range() {
    with_jobs(|host| {
        let missing = Err(status::NOT_FOUND);
        assert_eq!(publish(host, 0, "key", SESSION, GLOBAL), status::SUCCESS);
        let ranges = [
            (NODE, [true; 3]),
            (JOB, [true, true, false]),
            (ITSELF, [true, false, false]),
            (CUSTOM, [false; 3]),
            (MANAGER, [false; 3]),
        ];
        for (range, wanted) in ranges {
            for (conn, finds) in [0, 1, 3].into_iter().zip(wanted) {
                for keys in [&["key"][..], &["key", "other"]] {
                    ask_in(host, conn, keys, 0, range);
                    let wanted = if finds { names(["key"]) } else { missing.clone() };
                    assert_eq!(found(host, conn), Some(wanted), "{conn} {range}");
                }
            }
        }
        // Look-ups that wait for one key in different ranges, alone and with others.
        ask_in(host, 1, &["late"], 9, JOB);
        ask_in(host, 2, &["late", "key"], 9, JOB);
        ask_in(host, 3, &["late", "key"], 9, JOB);
        let snapshot = host.snapshot(host.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        assert!(Server::restore(&snapshot, storage.lend()).is_ok());
        assert_eq!(publish(host, 0, "late", SESSION, GLOBAL), status::SUCCESS);
        assert_eq!(found(host, 1), Some(names(["late"])));
        assert_eq!(found(host, 2).map(|found| found.map(|keys| keys.len())), Some(Ok(2)));
        assert_eq!(host.server.used(Limit::Names), 4, "both, and what the other job waits for");
        ask_in(host, 1, &["late"], 1, ITSELF);
        assert_eq!(publish(host, 0, "late", SESSION, JOB), status::SUCCESS);
        assert_eq!((found(host, 1), found(host, 3)), (None, None));
        host.now = host.now.after(9000);
        host.tell(Input::Timeout).expect("it is always valid");
        assert_eq!((found(host, 1), found(host, 3)), (Some(missing.clone()), Some(missing)));
        assert_eq!(host.server.used(Limit::Names), 3);
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
        // The end of the job is kept for tools.
        assert_eq!(host.server.used(Limit::Names), 2 + 1);
        let snapshot = host.snapshot(host.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        assert!(Server::restore(&snapshot, storage.lend()).is_ok());
        // Rank 3 is of another job, and may withdraw them.
        assert_eq!(looks_up(host, 3, &all), names(["session", "indefinite"]));
        assert_eq!(withdraw(host, 3, Some("indefinite")), status::SUCCESS);
        assert_eq!(looks_up(host, 3, &all), names(["session"]));
    });
}

/// What a name service is asked for a process, by a connection that is not the process's alone.
#[test]
fn a_name_service_heeds_ranges() {
    const OTHER: u8 = 3;
    let process = |name: &'static str, rank, host| Party { namespace: name.as_bytes(), rank, host };
    let (one, two, far) = (process("one", 0, 7), process("one", 1, 7), process("two", 0, 8));
    with_jobs(|service| {
        for conn in 0..4 {
            service.tell(Input::Closed { conn: ConnId(conn) }).expect("the connection is open");
            let (job, rank) = if conn < 3 { (0, conn) } else { (1, 0) };
            let opened = Input::Opened { conn: ConnId(conn), job: JobId(job), rank: None };
            service.tell(opened).expect("the number is free");
            service.ask(conn, b"cmd=init pmi_version=2 pmi_subversion=0\n");
            service.ask(conn, &counted(&format!("cmd=fullinit;pmirank={rank};")));
        }
        let send = |body: &[u8]| [format!("{:<6}", body.len()).as_bytes(), body].concat();
        let rc = |reply: &[u8]| {
            let text = String::from_utf8_lossy(reply).into_owned();
            text.split(';').find_map(|field| field.strip_prefix("rc=")?.parse::<i32>().ok())
        };
        let publish = |service: &mut Host<'_>, party, range| {
            let mut bytes = [0; 64];
            let mut writer = Writer::new(Integers::Flexible, &mut bytes);
            writer.info(b"key", kind::STRING);
            writer.string(b"value");
            let len = writer.finish().expect("it fits");
            let info = Reader::new(Integers::Flexible, &bytes[..len]).info().expect("it is an INFO");
            let mut body = [0; 256];
            let terms = (range, Persistence::Job);
            let len = translate_publish([info].into_iter(), party, terms, &mut body).expect("it fits");
            rc(&service.ask(0, &send(&body[..len])))
        };
        let look = |service: &mut Host<'_>, conn, party, range, wait| {
            let mut body = [0; 256];
            let len = translate_lookup(&mut [&b"key"[..]].into_iter(), (party, range), wait, &mut body)
                .expect("it fits");
            service.arrive(conn, &send(&body[..len])).expect("the connection is open");
        };
        // The range in which the data were published that a look-up finds.
        let found = |service: &mut Host<'_>, conn| {
            let replies = service.take(conn);
            let reply = replies.first()?;
            let at = reply.windows(6).position(|part| part == b";port=").map(|at| at + 6);
            Some(at.and_then(|at| Published::read(&reply[at..])).map_or(0, |data| data.range))
        };
        let finds = |service: &mut Host<'_>, party, range| {
            look(service, 1, party, range, 0);
            found(service, 1).expect("it is answered at once")
        };
        // Those that wait for themselves, for the job, and for all.
        look(service, 2, two, ITSELF, 5000);
        look(service, OTHER.into(), far, SESSION_RANGE, 5000);
        let snapshot = service.snapshot(service.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        assert!(Server::restore(&snapshot, storage.lend()).is_ok());
        for (party, range, is_first) in [
            (one, ITSELF, true),
            (one, ITSELF, false),
            (one, JOB, true),
            (two, JOB, false),
            (far, JOB, true),
            (two, NODE, true),
            (one, NODE, false),
            (far, MANAGER, true),
        ] {
            assert_eq!(publish(service, party, range), Some(if is_first { 0 } else { 14 }), "{range}");
        }
        assert_eq!((found(service, 2), found(service, OTHER.into())), (Some(NODE), Some(JOB)));
        let all = |service: &mut Host<'_>| [one, two, far].map(|party| finds(service, party, GLOBAL));
        assert_eq!(all(service), [ITSELF, JOB, JOB]);
        assert_eq!([ITSELF, JOB, NODE, CUSTOM].map(|range| finds(service, two, range)), [NODE, JOB, JOB, 0]);
        assert_eq!(finds(service, far, NODE), JOB);
        assert_eq!(finds(service, process("three", 0, 7), GLOBAL), NODE);
        assert_eq!(finds(service, process("three", 0, 9), GLOBAL), 0);
        let withdraw = |service: &mut Host<'_>, party| {
            let mut body = [0; 256];
            let mut keys = [&b"key"[..], b"none"].into_iter();
            let len = translate_unpublish(&mut keys, party, &mut body).expect("it fits");
            rc(&service.ask(3, &send(&body[..len])))
        };
        assert_eq!(
            [two, two, one, two].map(|party| withdraw(service, party)),
            [Some(0), Some(0), Some(0), Some(14)]
        );
        assert_eq!(all(service), [0, 0, JOB]);
        assert_eq!(publish(service, two, GLOBAL), Some(0));
        assert_eq!(all(service), [GLOBAL, GLOBAL, JOB]);
        let withdraw_all = |service: &mut Host<'_>, party| {
            let mut body = [0; 256];
            let len = translate_unpublish(&mut [].into_iter(), party, &mut body).expect("it fits");
            rc(&service.ask(3, &send(&body[..len])))
        };
        assert_eq!((withdraw_all(service, one), all(service)), (Some(0), [GLOBAL, GLOBAL, JOB]));
        assert_eq!((withdraw_all(service, two), all(service)), (Some(0), [0, 0, JOB]));
        assert_eq!((publish(service, two, GLOBAL), all(service)), (Some(0), [GLOBAL, GLOBAL, JOB]));
        // A request that names nobody, and one that names no process.
        let raw = |service: &mut Host<'_>, end: &str| {
            rc(&service.ask(1, &counted(&format!("cmd=name-lookup;name=\u{2}key;{end}"))))
        };
        assert_eq!((raw(service, ""), raw(service, "for=4.7.0;")), (Some(0), Some(3)));
    });
}

/// A name service that is asked for data under several keys publishes all of them, or none.
#[test]
fn a_name_service_publishes_several_keys_or_none() {
    with_jobs(|service| {
        service.tell(Input::Closed { conn: ConnId(0) }).expect("the connection is open");
        let opened = Input::Opened { conn: ConnId(0), job: JobId(0), rank: None };
        service.tell(opened).expect("the number is free");
        service.ask(0, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        service.ask(0, &counted("cmd=fullinit;pmirank=0;"));
        let mut asks = |body: &[u8]| {
            let reply = service.ask(0, &[format!("{:<6}", body.len()).as_bytes(), body].concat());
            let text = String::from_utf8_lossy(&reply).into_owned();
            let rc = text.split(';').find_map(|field| field.strip_prefix("rc=")?.parse::<i32>().ok());
            (rc.expect("a reply has a code"), service.server.used(Limit::Names))
        };
        let mut publish = |rank, range, keys: &[&str]| {
            let encoded: Vec<Vec<u8>> = keys
                .iter()
                .map(|key| {
                    let mut bytes = [0; 64];
                    let mut writer = Writer::new(Integers::Flexible, &mut bytes);
                    writer.info(key.as_bytes(), kind::STRING);
                    writer.string(b"\x01\x02\x03\x04;");
                    let len = writer.finish().expect("it fits");
                    bytes[..len].to_vec()
                })
                .collect();
            let infos =
                encoded.iter().map(|info| Reader::new(Integers::Flexible, info).info().expect("an INFO"));
            let mut body = [0; 512];
            let party = Party { namespace: b"one", rank, host: 1 };
            let len = translate_publish(infos, party, (range, Persistence::Job), &mut body).expect("it fits");
            asks(&body[..len])
        };
        assert_eq!(publish(0, ITSELF, &["a", "b"]), (0, 2));
        assert_eq!(publish(1, ITSELF, &["c", "b", "a"]), (0, 5), "those of another process");
        // The connection and the range are the same. What rank 0 has published under this key stays.
        assert_eq!(publish(1, ITSELF, &["d", "e", "a"]), (14, 5));
        assert_eq!(publish(0, ITSELF, &["c", "c"]), (14, 5));
        assert_eq!(publish(2, GLOBAL, &["a", "d"]), (0, 7));
        assert_eq!(publish(0, ITSELF, &["a"]).0, 14);
        // Names and data do not match.
        assert_eq!(asks(b"cmd=name-publish;name=\x02x\x01\x02y;port=p;"), (3, 7));
    });
}
