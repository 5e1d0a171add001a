//! Recordings written, truncated, damaged and replayed.

use hydrant_core::limits::{Limit, Limits};
use hydrant_core::server::{Consumed, Input, JobSpec, Output, Record};
use hydrant_core::trace::{Cause, Closing, Exit, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{Backend, ConnId, Fault, JobId, Malformed, Rank, Refusal, Server, Time, UpcallId};

use super::*;
use crate::checker::result_record;
use hydrant_driver::MappedStorage;

const LIMITS: Limits = Limits { jobs: 1, ranks: 1, conns: 2, keys: 8, kvs_bytes: 1024, ..Limits::NONE };
const SEED: u32 = 7;
const BEGIN: Record<'static> = Record::Begin { program: "hydrant 0.1.0", limits: LIMITS, seed: SEED };

fn written(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    bytes
}

/// Reads to the end. Returns the number of records and the error that follows them.
fn read(bytes: &[u8]) -> (usize, Option<RecordError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut count = 0;
    loop {
        match reader.next_record() {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, None),
            Err(error) => return (count, Some(error)),
        }
    }
}

/// Inputs of a rank that connects, sends requests and disconnects.
fn steps() -> Vec<Input<'static>> {
    let (conn, job) = (ConnId(0), JobId(0));
    let bytes = |bytes| Input::Bytes { conn, bytes, full: false };
    vec![
        Input::RegisterJob(JobSpec::new(job, "kvs_0", 1)),
        Input::Opened { conn, job, rank: Some(Rank(0)) },
        bytes(b"cmd=init pmi_version=1 pmi_subv"),
        bytes(b"cmd=init pmi_version=1 pmi_subversion=1\n"),
        bytes(b"cmd=put kvsname=kvs_0 key=a value=b\ncmd=get kvsname=kvs_0 key=a\n"),
        bytes(b"cmd=get kvsname=kvs_0 key=a\n"),
        Input::Opened { conn, job, rank: Some(Rank(0)) },
        bytes(b"cmd=finalize\n"),
        Input::Closed { conn },
    ]
}

/// Returns a recording of these inputs.
fn recorded() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.write(&BEGIN).unwrap();
    let mut slabs = MappedStorage::new(&LIMITS);
    let mut server = Server::new(LIMITS, slabs.lend(), SEED).unwrap();
    let mut buf = vec![0; LIMITS.output_max()];
    for (at, input) in steps().into_iter().enumerate() {
        let now = Time(at as u64);
        writer.write(&Record::Input { now, input }).unwrap();
        let made = Backend::handle(&mut server, now, input);
        writer.write(&result_record(&made, server.poll_at(), &mut String::new())).unwrap();
        while let Some(output) = server.poll(&mut buf).unwrap() {
            writer.write(&Record::Output(output)).unwrap();
        }
        writer.write(&Record::Silence).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn played(bytes: &[u8]) -> (u64, u64, Option<Difference>) {
    let mut reader = Reader::new(bytes).unwrap();
    let mut slabs = MappedStorage::new(&LIMITS);
    let mut server = Server::new(LIMITS, slabs.lend(), reader.begin().seed).unwrap();
    let mut checker = Checker::new(&mut server);
    let mut difference = None;
    while let Some(entry) = reader.next_record().unwrap() {
        if let Err(found) = checker.replay(&entry) {
            difference = Some(found);
            break;
        }
    }
    (checker.inputs(), checker.outputs(), difference)
}

#[test]
fn a_written_recording_can_be_read() {
    let bytes = recorded();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.begin(), Begin { program: "hydrant 0.1.0".to_owned(), limits: LIMITS, seed: SEED });
    let mut inputs = Vec::new();
    let mut refusals = 0;
    while let Some(Entry { record, .. }) = reader.next_record().unwrap() {
        match record {
            Record::Input { now, .. } => inputs.push(now.0),
            Record::Refused(fault) => {
                assert_eq!(fault, Fault::ConnInUse);
                refusals += 1;
            }
            _ => {}
        }
    }
    assert_eq!((inputs, refusals), ((0..steps().len() as u64).collect(), 1));
}

#[test]
fn the_same_server_has_no_difference() {
    let (inputs, outputs, difference) = played(&recorded());
    // Joined, and a reply to init, put, get, get and finalize.
    assert_eq!((inputs, outputs, difference), (steps().len() as u64, 6, None));
}

#[test]
fn a_changed_output_is_found_at_its_offset() {
    let mut records = Vec::new();
    let bytes = recorded();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut other = vec![BEGIN];
    let mut offset = 0;
    let mut copies: Vec<Vec<u8>> = Vec::new();
    while let Some(entry) = reader.next_record().unwrap() {
        if !matches!(entry.record, Record::End { .. }) {
            let bent = matches!(entry.record, Record::Output(Output::Bytes { bytes, .. }) if bytes.starts_with(b"cmd=get_result"));
            if bent && offset == 0 {
                offset = entry.offset;
            }
            copies.push(postcard::to_extend(&entry.record, Vec::new()).unwrap());
            records.push(bent);
        }
    }
    for (copy, bent) in copies.iter().zip(&records) {
        let record: Record<'_> = postcard::from_bytes(copy).unwrap();
        other.push(match record {
            Record::Output(Output::Bytes { conn, .. }) if *bent => {
                Record::Output(Output::Bytes { conn, bytes: b"cmd=get_result rc=0 value=B\n" })
            }
            record => record,
        });
    }
    let (_, _, difference) = played(&written(&other));
    let difference = difference.expect("an output was changed");
    assert_eq!((difference.input, difference.offset), (5, offset));
    assert_eq!(difference.recorded, r"cmd=get_result rc=0 value=B\n");
    assert_eq!(difference.replayed, r"cmd=get_result rc=0 value=b\n");
}

/// A missing output, an additional output, another deadline and another result.
#[test]
fn missing_and_additional_records_are_differences() {
    let job = Record::Input { now: Time(0), input: Input::RegisterJob(JobSpec::new(JobId(0), "k", 1)) };
    let took = Record::Took { consumed: Consumed::default(), wake: None };
    let late = Record::Took { consumed: Consumed::default(), wake: Some(Time(3)) };
    let joined = Record::Output(Output::Joined { conn: ConnId(0), job: JobId(0), rank: Rank(0) });
    assert_eq!(played(&written(&[BEGIN, job, took, Record::Silence])), (1, 0, None));
    for wrong in [late, joined, Record::Refused(Fault::JobInUse), Record::Broke { why: "trap" }] {
        let records = match wrong {
            Record::Output(_) => [BEGIN, job, took, wrong],
            _ => [BEGIN, job, wrong, Record::Silence],
        };
        let (inputs, outputs, difference) = played(&written(&records));
        assert_eq!((inputs, outputs, difference.is_some()), (1, 0, true), "{wrong:?}");
    }
}

#[test]
fn a_truncated_recording_is_detected_at_every_length() {
    let bytes = recorded();
    let (whole, error) = read(&bytes);
    assert!(error.is_none(), "{error:?}");
    for len in 0..bytes.len() {
        let (count, error) = read(&bytes[..len]);
        match error {
            Some(RecordError::Truncated { offset, .. }) => assert_eq!(offset, len as u64),
            other => panic!("cut at {len}: {other:?}"),
        }
        assert!(count < whole, "cut at {len}");
    }
}

#[test]
fn a_damaged_byte_is_detected_everywhere() {
    let bytes = recorded();
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut bent = bytes.clone();
            bent[at] ^= bit;
            let (_, error) = read(&bent);
            match (at, error) {
                (0..8, Some(RecordError::NotARecording)) | (8..10, Some(RecordError::Version(_))) => {}
                (10.., Some(RecordError::Damaged { offset, .. })) => assert!(offset <= at as u64),
                // A length that reaches beyond the end.
                (10.., Some(RecordError::Truncated { offset, .. })) => {
                    assert_eq!(offset, bytes.len() as u64)
                }
                (_, other) => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

/// Valid frames in an invalid order.
#[test]
fn a_recording_has_one_beginning_and_one_end() {
    let problem = |bytes: &[u8]| match read(bytes).1 {
        Some(RecordError::Damaged { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(&written(&[Record::Silence])), "no begin record");
    assert_eq!(problem(&written(&[BEGIN, BEGIN])), "second begin record");
    let mut behind = written(&[BEGIN]);
    behind.push(0);
    assert_eq!(problem(&behind), "data after the end record");
    let tick = Record::Input { now: Time(0), input: Input::Timeout };
    let tick_len = written(&[BEGIN, tick]).len() - written(&[BEGIN]).len();
    let mut missing = written(&[BEGIN, tick]);
    let at = written(&[BEGIN]).len() - (FRAME + 3);
    missing.drain(at..at + tick_len);
    assert_eq!(problem(&missing), "records missing before the end record");
    let mut long = MAGIC.to_vec();
    long.extend(VERSION.to_le_bytes());
    long.extend([0xff; 8]);
    assert_eq!(problem(&long), "record too long");
}

/// The bytes of every kind of record. If they change, earlier recordings cannot be read: increase [`VERSION`] and update the
/// snapshot.
#[test]
fn the_format_is_that_of_its_version() {
    let (conn, job, rank, now) = (ConnId(1), JobId(2), Rank(3), Time(300));
    let inputs = [
        Input::Node { node: 1, nodes: 2, radix: 32 },
        Input::MapRanks { job, first: rank, count: 1, node: 1 },
        Input::Preput { job, key: b"a", value: b"b" },
        Input::Define { job, name: "p", members: b"0-3", other: Some(JobId(0)) },
        Input::Connected { job, other: JobId(0), connected: true },
        Input::StalledFence { job },
        Input::Peer { node: 1, bytes: &[1, 2, 7, 0, 1] },
        Input::PeerBlocked { node: 1 },
        Input::PeerWritable { node: 1 },
        Input::RegisterJob(JobSpec::new(job, "k", 4)),
        Input::Program { job, first: rank, count: 1, appnum: 5 },
        Input::Attr { job, key: b"a", value: b"b" },
        Input::Pset { job, name: "p", first: rank, count: 1 },
        Input::SpawnComplete { spawn: UpcallId(6), started: false, full: Some(Limit::Psets), codes: &[2] },
        Input::UpcallComplete { upcall: UpcallId(6), rc: -1, text: b"t" },
        Input::Opened { conn, job, rank: Some(rank) },
        Input::OpenedQuery { conn, job },
        Input::Bytes { conn, bytes: b"cmd", full: true },
        Input::Blocked { conn },
        Input::Writable { conn },
        Input::Closed { conn },
        Input::Exited { job, rank, exit: Exit::Signal(9) },
        Input::Timeout,
        Input::DeregisterJob { job },
        Input::Verified { conn },
        Input::PsetRequest { job, rank, request: b"r" },
        Input::NodeLost { epoch: 1, node: 2 },
        Input::NodeJoined { epoch: 2, node: 3 },
    ];
    let outputs = [
        Output::Peer { node: 1, bytes: &[0, 2, 7, 0, 3, 1, b'a', 1, b'b'] },
        Output::Bytes { conn, bytes: b"cmd" },
        Output::Close { conn, why: Closing::Malformed(Malformed::Structure) },
        Output::Close { conn, why: Closing::Replaced },
        Output::Joined { conn, job, rank },
        Output::Spawn { spawn: UpcallId(6), job, rank, protocol: Protocol::V2, request: b"r" },
        Output::Upcall { upcall: UpcallId(6), job, rank, protocol: Protocol::V1, request: b"r" },
        Output::KillRank { job, rank, code: Some(-1), message: "m" },
        Output::AbortJob { job, cause: Cause::Absent { rank, exit: Exit::Lost }, message: "m" },
        Output::StalledFence { job, arrived: 1, size: 2, missing: "0" },
        Output::RemoveFiles { job, rank, paths: b"p" },
        Output::Log { job, rank, stream: Stream::Stderr, text: b"t" },
        Output::Connected { job, other: JobId(1), connected: false },
    ];
    let others = [
        BEGIN,
        Record::Took { consumed: Consumed { bytes: 300, again: true }, wake: Some(now) },
        Record::Refused(Fault::Full(Limit::Jobs, 1)),
        Record::Refused(Fault::Refused(Refusal::Unsupported)),
        Record::Broke { why: "w" },
        Record::Silence,
        Record::End { inputs: 1, outputs: 300 },
    ];
    let records = inputs.into_iter().map(|input| Record::Input { now, input });
    let records = records.chain(outputs.into_iter().map(Record::Output)).chain(others);
    let lines: Vec<String> = records
        .map(|record| {
            let bytes = postcard::to_extend(&record, Vec::new()).unwrap();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(postcard::from_bytes::<Record<'_>>(&bytes), Ok(record));
            format!("{hex} {}", describe(&record))
        })
        .collect();
    insta::assert_snapshot!(format!("version {VERSION}\n{}", lines.join("\n")));
}
