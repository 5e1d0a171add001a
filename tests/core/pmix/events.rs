//! Events between PMIx clients, and about ranks that die.

use hydrant_core::limits::{EVENT_CODES_MAX, Limits};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::storage::OwnedStorage;
use hydrant_core::wire::pmix::{Integers, Reader, kind, status};
use hydrant_core::{ConnId, Exit, JobId, Rank, Server, Time};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::Host;
use hydrant_tests::pmix::{hello, message};

const KILLED: i32 = -402;
const CODE: i32 = -3456;
/// Ranges of notices.
const JOB: u8 = 3;
const SESSION: u8 = 4;
const CUSTOM: u8 = 6;
const ITSELF: u8 = 7;

/// Event that a client got.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    code: i32,
    source: (String, u32),
    /// Value of the INFO `number`.
    number: Option<u32>,
}

fn event(code: i32, source: (&str, u32), number: impl Into<Option<u32>>) -> Event {
    Event { code, source: (source.0.to_owned(), source.1), number: number.into() }
}

pub(super) fn limits() -> Limits {
    Limits::for_ranks(4)
}

/// Two jobs, `one` of three ranks and `two` of one, all of which are connected as ranks 0 to 3.
fn jobs(host: &mut Host<'_>) {
    for (job, name, size, conn) in [(JobId(0), "one", 3, 0), (JobId(1), "two", 1, 3)] {
        let spec = JobSpec { cleanup: false, ..JobSpec::new(job, name, size) };
        host.tell(Input::RegisterJob(spec)).expect("the job is valid");
        (0..size).for_each(|rank| join(host, job, (name, rank), conn + rank));
    }
}

fn join(host: &mut Host<'_>, job: JobId, (name, rank): (&str, u32), conn: u32) {
    host.tell(Input::Opened { conn: ConnId(conn), job, rank: None }).expect("the number is free");
    let reply = host.ask(conn, &hello(name, rank));
    assert_eq!(reply[..4], [0; 4], "the handshake is accepted");
}

fn register(host: &mut Host<'_>, conn: u32, codes: &[i32]) -> i32 {
    let request = message(7, 13, |writer| {
        writer.array(codes.len() as u32);
        codes.iter().for_each(|&code| writer.int32(code));
        writer.array(0);
    });
    host.arrive(conn, &request).expect("the connection is open");
    // Events may follow the reply.
    let mut replies = host.take(conn);
    let reply = replies.remove(0);
    host.replies.insert(ConnId(conn), replies);
    result(&reply)
}

fn deregister(host: &mut Host<'_>, conn: u32, codes: &[i32]) {
    let request = message(8, 14, |writer| codes.iter().for_each(|&code| writer.status(code)));
    host.arrive(conn, &request).expect("the connection is open");
    assert_eq!(host.take(conn), [[0_u8; 0]; 0], "the request has no reply");
}

/// Sends an event with a number, and with a list of ranks of `one` that get it.
fn notify(host: &mut Host<'_>, conn: u32, range: u8, number: u32, listed: &[u32]) -> i32 {
    notify_of(host, conn, (CODE, false), range, number, listed)
}

/// Sends an event with this code, which is not kept for clients that register later if it is `only_now`.
fn notify_of(
    host: &mut Host<'_>,
    conn: u32,
    (code, only_now): (i32, bool),
    range: u8,
    number: u32,
    listed: &[u32],
) -> i32 {
    let request = message(9, 12, |writer| {
        writer.status(code);
        writer.single();
        writer.byte(range);
        writer.array(3);
        writer.info(b"pmix.evnocache", kind::BOOL);
        writer.byte(only_now.into());
        writer.info(b"number", kind::UINT32);
        writer.uint32(number);
        writer.info(b"pmix.evrange", kind::DATA_ARRAY);
        writer.data_type(kind::PROC);
        writer.size(listed.len() as u64);
        listed.iter().for_each(|&rank| writer.proc(b"one", rank));
    });
    result(&host.ask(conn, &request))
}

pub(super) fn result(reply: &[u8]) -> i32 {
    let mut reader = Reader::new(Integers::Flexible, &reply[16..]);
    reader.single().and_then(|()| reader.int32()).expect("a reply has a status")
}

fn events(host: &mut Host<'_>, conn: u32) -> Vec<Event> {
    host.take(conn).iter().map(|message| decode(message)).collect()
}

fn decode(message: &[u8]) -> Event {
    assert_eq!(message[..8], [0; 8], "an event has the tag 0");
    let mut reader = Reader::new(Integers::Flexible, &message[16..]);
    let mut read = || {
        reader.single()?;
        assert_eq!(reader.byte()?, 12);
        reader.single()?;
        let code = reader.int32()?;
        reader.single()?;
        let source = reader.proc()?;
        let infos = reader.infos()?;
        let number = infos.find(b"number").and_then(|info| info.as_u32());
        let affected = infos.find(b"pmix.evproc");
        assert!(affected.is_none_or(|info| info.contains(source.namespace, source.rank)));
        let namespace = String::from_utf8_lossy(source.namespace).into_owned();
        Some(Event { code, source: (namespace, source.rank), number })
    };
    read().expect("an event can be decoded")
}

pub(super) fn exits(host: &mut Host<'_>, job: JobId, rank: u32, conn: u32, exit: Exit) {
    host.tell(Input::Closed { conn: ConnId(conn) }).expect("the connection is open");
    host.tell(Input::Exited { job, rank: Rank(rank), exit }).expect("the rank lives");
}

pub(super) fn with_jobs(test: impl FnOnce(&mut Host<'_>)) {
    let mut memory = MappedStorage::try_new(&limits()).expect("there is memory");
    let mut host = Host::new(limits(), &mut memory).expect("the memory suffices");
    jobs(&mut host);
    test(&mut host);
}

/// Publishes a value under a name of this number.
fn publish(host: &mut Host<'_>, number: u32) -> i32 {
    let request = message(3, 6, |writer| {
        writer.single();
        writer.uint32(0);
        writer.array(1);
        writer.info(format!("name {number}").as_bytes(), kind::UINT32);
        writer.uint32(1);
    });
    result(&host.ask(0, &request))
}

/// No notice takes room in the table of names that published data need.
fn assert_names_are_free(host: &mut Host<'_>) {
    for number in 0..limits().names {
        assert_eq!(publish(host, number), status::SUCCESS, "{number}");
    }
}

// Serves: Requests | register for events, deregister (13, 14) | served: see [Events](#events)
#[test]
fn the_codes_of_a_client_are_bounded() {
    with_jobs(|host| {
        let codes: Vec<i32> = (0..EVENT_CODES_MAX as i32).map(|at| CODE - at).collect();
        for _ in 0..2 {
            assert_eq!(register(host, 0, &codes), status::SUCCESS, "a code counts once");
        }
        assert_eq!(register(host, 0, &[-1, CODE]), status::OUT_OF_RESOURCE);
        deregister(host, 0, &codes[1..]);
        assert_eq!(register(host, 0, &[-1]), status::SUCCESS);
        assert_eq!(notify(host, 1, JOB, 5, &[]), status::SUCCESS);
        assert_eq!(events(host, 0), [event(CODE, ("one", 1), 5)]);
        deregister(host, 0, &[CODE]);
        assert_eq!(notify(host, 1, JOB, 6, &[]), status::SUCCESS);
        assert_eq!(events(host, 0), []);
    });
}

// Serves: Requests | send an event (12) | served: see [Events](#events)
#[test]
fn a_notice_reaches_its_range_and_not_its_sender() {
    with_jobs(|host| {
        for conn in 0..4 {
            assert_eq!(register(host, conn, if conn == 2 { &[] } else { &[CODE] }), status::SUCCESS);
        }
        let mut reach = |range, listed: &[u32]| {
            assert_eq!(notify(host, 0, range, 1, listed), status::SUCCESS);
            [0, 1, 2, 3].map(|conn| events(host, conn).len())
        };
        assert_eq!(reach(JOB, &[]), [0, 1, 1, 0]);
        assert_eq!(reach(SESSION, &[]), [0, 1, 1, 0], "the jobs are not connected");
        assert_eq!(reach(CUSTOM, &[0, 2]), [0, 0, 1, 0]);
        assert_eq!(reach(ITSELF, &[]), [0; 4]);
        let connect = Input::Connected { job: JobId(0), other: JobId(1), connected: true };
        host.tell(connect).expect("both jobs run");
        assert_eq!(notify(host, 0, SESSION, 1, &[]), status::SUCCESS);
        assert_eq!(events(host, 3), [event(CODE, ("one", 0), 1)]);
        assert_eq!(notify(host, 0, JOB, 2, &[]), status::SUCCESS);
        assert_eq!(events(host, 3), []);
    });
}

/// As the servers of libpmix keep events.
#[test]
fn a_rank_that_starts_later_gets_the_notices_from_before() {
    let mut memory = MappedStorage::try_new(&limits()).expect("there is memory");
    let mut host = Host::new(limits(), &mut memory).expect("the memory suffices");
    host.tell(Input::RegisterJob(JobSpec::new(JobId(0), "one", 4))).expect("the job is valid");
    for rank in 0..2 {
        join(&mut host, JobId(0), ("one", rank), rank);
    }
    register(&mut host, 1, &[CODE]);
    for (number, range) in [(1, JOB), (2, CUSTOM), (3, SESSION)] {
        assert_eq!(notify(&mut host, 0, range, number, &[1, 3]), status::SUCCESS);
        assert_eq!(events(&mut host, 1), [event(CODE, ("one", 0), number)]);
    }
    for (rank, numbers) in [(2, &[1, 3][..]), (3, &[1, 2, 3])] {
        join(&mut host, JobId(0), ("one", rank), rank);
        register(&mut host, rank, &[CODE]);
        let expected: Vec<_> = numbers.iter().map(|&number| event(CODE, ("one", 0), number)).collect();
        assert_eq!(events(&mut host, rank), expected);
        register(&mut host, rank, &[CODE - 1]);
    }
    assert!((1..4).all(|rank| events(&mut host, rank).is_empty()), "each event comes once");
    assert_names_are_free(&mut host);
}

/// As the servers of libpmix send what they keep for each registration.
#[test]
fn a_client_that_registers_later_gets_the_notices_from_before() {
    with_jobs(|host| {
        register(host, 1, &[CODE]);
        register(host, 2, &[CODE - 1]);
        for (number, range) in [(1, JOB), (2, CUSTOM), (3, SESSION)] {
            assert_eq!(notify(host, 0, range, number, &[1, 2]), status::SUCCESS);
            assert_eq!(events(host, 1), [event(CODE, ("one", 0), number)]);
        }
        assert_eq!(notify_of(host, 0, (CODE - 1, false), JOB, 4, &[]), status::SUCCESS);
        assert_eq!(events(host, 2), [event(CODE - 1, ("one", 0), 4)], "it has got a later one");
        let [first, second, third] = [1, 2, 3].map(|number| event(CODE, ("one", 0), number));
        register(host, 2, &[CODE]);
        assert_eq!(events(host, 2), [first, second, third]);
        register(host, 2, &[CODE, CODE - 1]);
        assert_eq!(events(host, 2), [], "each registration gets each event once");
        register(host, 1, &[]);
        let fourth = event(CODE - 1, ("one", 0), 4);
        let [first, _, third] = [1, 2, 3].map(|number| event(CODE, ("one", 0), number));
        assert_eq!(events(host, 1), [first, third, fourth], "the second went to all that it names");
        register(host, 3, &[]);
        assert_eq!(events(host, 3), [], "its job is not connected");
        assert_names_are_free(host);
    });
}

#[test]
fn an_event_that_is_not_to_be_cached_is_not_kept() {
    with_jobs(|host| {
        register(host, 1, &[CODE]);
        for (number, only_now) in [(1, true), (2, false)] {
            assert_eq!(notify_of(host, 0, (CODE, only_now), JOB, number, &[]), status::SUCCESS);
            assert_eq!(events(host, 1), [event(CODE, ("one", 0), number)]);
        }
        register(host, 2, &[CODE]);
        assert_eq!(events(host, 2), [event(CODE, ("one", 0), 2)]);
    });
}

/// Notices that are there for clients that register later refuse nothing: the oldest give way to newer ones and to published data.
#[test]
fn kept_notices_give_way() {
    with_jobs(|host| {
        register(host, 1, &[CODE]);
        let share = limits().names / 4;
        for number in 0..2 * share {
            assert_eq!(notify(host, 0, JOB, number, &[]), status::SUCCESS);
            assert_eq!(events(host, 1), [event(CODE, ("one", 0), number)]);
        }
        let names = limits().names - share;
        for number in 0..names + 1 {
            assert_eq!(publish(host, number), status::SUCCESS, "{number}");
        }
        assert_eq!(notify(host, 0, JOB, 2 * share, &[]), status::SUCCESS, "the table has names and notices");
        assert_eq!(events(host, 1), [event(CODE, ("one", 0), 2 * share)]);
        register(host, 2, &[CODE]);
        let got: Vec<_> = events(host, 2).into_iter().filter_map(|event| event.number).collect();
        assert_eq!(got, (share + 2..2 * share + 1).collect::<Vec<_>>());
        for number in names + 1..limits().names {
            assert_eq!(publish(host, number), status::SUCCESS, "{number}");
        }
        assert_ne!(publish(host, limits().names), status::SUCCESS);
    });
}

/// The client that does not read costs a share of the names, and the others get every event at once.
#[test]
fn a_client_that_does_not_read_loses_the_oldest_notices() {
    with_jobs(|host| {
        for conn in 1..3 {
            register(host, conn, &[CODE]);
        }
        host.tell(Input::Blocked { conn: ConnId(1) }).expect("the connection is open");
        for number in 0..40 {
            assert_eq!(notify(host, 0, JOB, number, &[]), status::SUCCESS);
            assert_eq!(events(host, 2), [event(CODE, ("one", 0), number)]);
        }
        host.tell(Input::Writable { conn: ConnId(1) }).expect("the connection is open");
        let kept = limits().names / 4;
        let got: Vec<_> = events(host, 1).into_iter().filter_map(|event| event.number).collect();
        assert_eq!(got, (40 - kept..40).collect::<Vec<_>>());
        // All have got them.
        assert_names_are_free(host);
    });
}

#[test]
fn deaths_are_reported_also_to_those_who_register_later() {
    with_jobs(|host| {
        register(host, 0, &[KILLED]);
        exits(host, JobId(0), 1, 1, Exit::Signal(9));
        assert_eq!(events(host, 0), [event(KILLED, ("one", 1), None)]);
        assert_eq!(events(host, 2), []);
        register(host, 2, &[-200, KILLED]);
        assert_eq!(events(host, 2), [event(KILLED, ("one", 1), None)]);
        exits(host, JobId(0), 0, 0, Exit::Code(0));
        assert_eq!(events(host, 2), [event(-200, ("one", 0), None)], "it has not finalized");
        assert_eq!(events(host, 3), []);
    });
}

#[test]
fn deaths_of_each_code_are_reported_to_those_who_register_for_it_later() {
    with_jobs(|host| {
        exits(host, JobId(0), 0, 0, Exit::Code(0));
        exits(host, JobId(0), 1, 1, Exit::Signal(9));
        register(host, 2, &[KILLED]);
        assert_eq!(events(host, 2), [event(KILLED, ("one", 1), None)]);
        register(host, 2, &[-200]);
        let [ended, killed] = [event(-200, ("one", 0), None), event(KILLED, ("one", 1), None)];
        assert_eq!(events(host, 2), [ended, killed], "a kill is an end without finalize too");
        register(host, 2, &[-200, KILLED]);
        assert_eq!(events(host, 2), []);
    });
}

/// libpmix watches the leader of a group that it joins for the end without finalize.
#[test]
fn a_process_that_a_signal_killed_has_not_finalized() {
    with_jobs(|host| {
        register(host, 0, &[-200]);
        register(host, 2, &[-200, KILLED]);
        exits(host, JobId(0), 1, 1, Exit::Signal(9));
        assert_eq!(events(host, 0), [event(-200, ("one", 1), None)]);
        assert_eq!(events(host, 2), [event(KILLED, ("one", 1), None)]);
    });
}

#[test]
fn events_of_a_job_end_with_it() {
    with_jobs(|host| {
        let connect = Input::Connected { job: JobId(0), other: JobId(1), connected: true };
        host.tell(connect).expect("both jobs run");
        register(host, 0, &[KILLED, CODE]);
        register(host, 1, &[KILLED, CODE]);
        host.tell(Input::Blocked { conn: ConnId(0) }).expect("the connection is open");
        assert_eq!(notify(host, 3, SESSION, 1, &[]), status::SUCCESS);
        assert_eq!(events(host, 1), [event(CODE, ("two", 0), 1)]);
        exits(host, JobId(1), 0, 3, Exit::Signal(9));
        assert_eq!(events(host, 1), [event(KILLED, ("two", 0), None)]);
        host.tell(Input::DeregisterJob { job: JobId(1) }).expect("it is over");
        host.tell(Input::Writable { conn: ConnId(0) }).expect("the connection is open");
        assert_eq!(events(host, 0), []);
        assert_eq!(notify(host, 1, JOB, 2, &[]), status::SUCCESS);
        assert_eq!(events(host, 0), [event(CODE, ("one", 1), 2)]);
    });
}

#[test]
fn a_restored_server_sends_the_same_events() {
    with_jobs(|host| {
        register(host, 0, &[KILLED, CODE]);
        host.tell(Input::Blocked { conn: ConnId(0) }).expect("the connection is open");
        assert_eq!(notify(host, 2, JOB, 1, &[]), status::SUCCESS);
        exits(host, JobId(0), 1, 1, Exit::Signal(9));
        assert_eq!(notify(host, 2, JOB, 2, &[]), status::SUCCESS);
        let snapshot = host.snapshot(host.server.snapshot_len());
        let mut storage = OwnedStorage::new(&limits());
        let mut restored = Server::restore(&snapshot, storage.lend()).expect("the snapshot is valid");
        host.tell(Input::Writable { conn: ConnId(0) }).expect("the connection is open");
        let expected = events(host, 0);
        let all =
            [1.into(), None, 2.into()].map(|number| (if number.is_some() { CODE } else { KILLED }, number));
        let numbers: Vec<_> = expected.iter().map(|event| (event.code, event.number)).collect();
        assert_eq!(numbers, all);
        restored.handle(Time(0), Input::Writable { conn: ConnId(0) }).expect("the connection is open");
        let mut buf = vec![0; limits().output_max()];
        let mut got = Vec::new();
        while let Some(output) = restored.poll(&mut buf).expect("the buffer suffices") {
            if let hydrant_core::Output::Bytes { bytes, .. } = output {
                got.push(decode(bytes));
            }
        }
        assert_eq!(got, expected);
    });
}
