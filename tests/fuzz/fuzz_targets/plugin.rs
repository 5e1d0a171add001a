//! Records of a hostile plugin into the decoder and the validator of its runner.
#![no_main]

use hydrant_abi::turn::{DEADLINE, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_abi::{CallError, MemorySpan, StartResult};
use hydrant_core::server::{Consumed, Input, JobSpec, Output};
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, JobId, Rank, Time, UpcallId};
use hydrant_fuzz::{FuzzInput, LIMITS};
use hydrant_validator::Validator;
use libfuzzer_sys::fuzz_target;

/// Ranks of each job.
const RANKS: u32 = 4;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let mut validator = Validator::new(LIMITS);
    let mut jobs = [false; LIMITS.jobs as usize];
    let mut now = 0;
    while !input.is_empty() {
        let (choice, number) = (input.byte(), u32::from(input.byte()));
        let given = given(choice, number, &mut input);
        now += u64::from(choice);
        let bytes = input.string();
        let Some((head, rest)) = TurnHead::read(bytes) else { continue };
        if head.error != 0 {
            let _ = postcard::from_bytes::<CallError>(rest).map(|error| error.to_string());
            continue;
        }
        let Some((result, mut rest)) = InputResult::read(rest) else { continue };
        let consumed = Consumed { bytes: result.bytes, again: result.again != 0 };
        let poll_at = (head.flags & DEADLINE != 0).then_some(Time(head.poll_at));
        if validator.check_input(Time(now), &given, consumed, poll_at).is_err() {
            return;
        }
        match given {
            Input::RegisterJob(spec) => jobs[spec.job.index()] = true,
            Input::DeregisterJob { job } => jobs[job.index()] = false,
            _ => {}
        }
        for _ in 0..head.outputs {
            let Some((part, behind)) = Part::read(rest) else { return };
            let Some((bytes, behind)) = behind.split_at_checked(part.len as usize) else { return };
            rest = behind;
            let output = match part.conn {
                RECORD => postcard::from_bytes(bytes),
                conn => Ok(Output::Bytes { conn: ConnId(conn), bytes }),
            };
            let Ok(output) = output else { return };
            if validator.check_output(&output).is_err() {
                return;
            }
            check(&output, &jobs);
        }
        if head.flags & MORE != 0 {
            continue;
        }
        if validator.check_silence().is_err() {
            return;
        }
    }
    // The other records of a plugin.
    let _ = (result::<StartResult>(data), result::<MemorySpan>(data));
});

/// Decodes the result of a call.
fn result<'a, T: serde::Deserialize<'a>>(record: &'a [u8]) -> Option<T> {
    let decoded: Result<(Result<T, CallError>, _), _> = postcard::take_from_bytes(record);
    match decoded.ok()?.0 {
        Ok(result) => Some(result),
        Err(error) => {
            let _ = error.to_string();
            None
        }
    }
}

/// Returns an input of the host that the plugin was given.
fn given<'a>(choice: u8, number: u32, input: &mut FuzzInput<'a>) -> Input<'a> {
    let job = JobId(number % LIMITS.jobs);
    let (conn, rank) = (ConnId(number % LIMITS.conns), Rank(number % RANKS));
    match choice & 15 {
        0 | 1 => Input::RegisterJob(JobSpec::new(job, "job", RANKS)),
        2 => Input::DeregisterJob { job },
        3 | 4 => Input::Opened { conn, job, rank: None },
        5 => Input::OpenedQuery { conn, job },
        6 => Input::Closed { conn },
        7 => Input::MapRanks { job, first: rank, count: 2, node: 1 },
        8 => Input::Node { node: 0, nodes: 3, radix: 2 },
        9 => Input::PeerBlocked { node: number },
        10 => Input::PeerWritable { node: number },
        11 => Input::UpcallComplete { upcall: UpcallId(number), rc: 0, text: b"" },
        12 => Input::Exited { job, rank, exit: Exit::Code(0) },
        13 => Input::Timeout,
        _ => Input::Bytes { conn, bytes: input.string(), full: false },
    }
}

/// Checks that a valid output names what exists, because the host uses the numbers as indices.
fn check(output: &Output<'_>, jobs: &[bool]) {
    let of = |job: JobId, rank: Rank| {
        assert!(jobs.get(job.index()) == Some(&true), "an output of a job that is not registered");
        assert!(rank.0 < RANKS, "an output of a rank that does not exist");
    };
    match *output {
        Output::Bytes { conn, bytes } => {
            assert!(conn.0 < LIMITS.conns && !bytes.is_empty(), "bytes for no connection");
        }
        Output::Close { conn, .. } => assert!(conn.0 < LIMITS.conns, "no connection is closed"),
        Output::Joined { conn, job, rank } => {
            assert!(conn.0 < LIMITS.conns, "no connection has joined");
            of(job, rank);
        }
        Output::Spawn { spawn: upcall, job, rank, .. } | Output::Upcall { upcall, job, rank, .. } => {
            assert!(upcall.0 < LIMITS.spawns, "an upcall without a slot");
            of(job, rank);
        }
        Output::KillRank { job, rank, .. }
        | Output::RemoveFiles { job, rank, .. }
        | Output::Log { job, rank, .. } => of(job, rank),
        Output::AbortJob { job, cause, .. } => of(job, cause.rank()),
        Output::StalledFence { job, arrived, size, .. } => {
            assert!(arrived <= size, "more ranks than the fence has");
            of(job, Rank(0));
        }
        Output::Connected { job, other, .. } => {
            of(job, Rank(0));
            of(other, Rank(0));
        }
        Output::Peer { node, bytes } => {
            assert!(node < 3 && bytes.len() <= LIMITS.output_room(), "a message for no neighbour");
        }
    }
}
