//! PMIx in the core by itself: nanoseconds from the bytes of a request to its reply, without a system call.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hydrant_core::limits::Limits;
use hydrant_core::server::JobSpec;
use hydrant_core::{ConnId, Input, JobId, Output, Server, Time};
use hydrant_driver::MappedStorage;

use crate::pmix::Requests;
use crate::rank::value;
use crate::table::{Row, Samples, Target};

const JOB: JobId = JobId(0);
const NAME: &str = "kvs_12345_0_123456789_vm";
/// Sizes of the jobs.
const RANKS: [u32; 3] = [16, 128, 1024];
/// Requests of a kind that are timed together, at least.
const BATCH: u32 = 2048;
const OPERATIONS: [&str; 3] = ["commit", "get", "fence"];

/// Connection and request.
type Batch = Vec<(ConnId, Vec<u8>)>;

fn turn(server: &mut Server<'_>, output: &mut [u8], conn: ConnId, bytes: &[u8]) -> Result<u32> {
    server.handle(Time(0), Input::Bytes { conn, bytes, full: false })?;
    let mut replies = 0;
    while let Some(output) = server.poll(output)? {
        if let Output::Bytes { bytes, .. } = output {
            black_box(bytes);
            replies += 1;
        }
    }
    Ok(replies)
}

/// One sample of each of [`OPERATIONS`], in nanoseconds a request.
fn sample(ranks: u32) -> Result<[f64; 3]> {
    let limits = Limits { commit_bytes: 1024, ..Limits::for_ranks(ranks) };
    let mut memory = MappedStorage::new(&limits);
    let mut server = Server::new(limits, memory.lend(), 1)?;
    let mut output = vec![0; limits.output_max()];
    server.handle(Time(0), Input::RegisterJob(JobSpec::new(JOB, NAME, ranks)))?;
    let mut requests = Requests::new(NAME);
    for rank in 0..ranks {
        let conn = ConnId(rank);
        server.handle(Time(0), Input::Opened { conn, job: JOB, rank: None })?;
        let joined = turn(&mut server, &mut output, conn, &requests.hello(rank))?;
        ensure!(joined == 1, "rank {rank} got {joined} replies to its handshake");
        turn(&mut server, &mut output, conn, requests.job_info())?;
    }
    let turns = BATCH.div_ceil(ranks);
    let all = || (0..turns).flat_map(|_| 0..ranks);
    let commits: Batch =
        all().map(|rank| (ConnId(rank), requests.commit(&[&value(rank)]).to_vec())).collect();
    let gets: Batch =
        all().map(|rank| (ConnId(rank), requests.get(rank * 7919 % ranks, 0).to_vec())).collect();
    let fences: Batch = all().map(|rank| (ConnId(rank), requests.fence().to_vec())).collect();
    let mut time = |batch: &Batch| -> Result<f64> {
        let mut replies = 0;
        let start = Instant::now();
        for (conn, bytes) in batch {
            replies += turn(&mut server, &mut output, *conn, bytes)?;
        }
        let took = start.elapsed();
        ensure!(replies as usize == batch.len(), "{replies} replies to {} requests", batch.len());
        Ok(took.as_nanos() as f64 / f64::from(replies))
    };
    Ok([time(&commits)?, time(&gets)?, time(&fences)?])
}

/// A row for each request and number of ranks, and one for the growth between the smallest and the largest.
pub(crate) fn rows(runs: u32) -> Result<Vec<Row>> {
    let mut medians = Vec::new();
    for ranks in RANKS {
        let mut samples = [(); 3].map(|()| Samples::default());
        for _ in 0..runs {
            let sample = sample(ranks).with_context(|| format!("the core with {ranks} PMIx ranks"))?;
            for (samples, sample) in samples.iter_mut().zip(sample) {
                samples.push(sample);
            }
        }
        medians.push(samples.map(|samples| samples.median()));
    }
    let mut rows = Vec::new();
    for (at, operation) in OPERATIONS.iter().enumerate() {
        let what = format!("core, PMIx {operation}");
        rows.extend(RANKS.iter().zip(&medians).map(|(&ranks, medians)| Row {
            what: what.clone(),
            n: ranks,
            unit: "ns",
            hydrant: medians[at],
            target: Some(Target::AtMost(500.0)),
            ..Row::default()
        }));
        if let (Some(few), Some(many)) = (medians[0][at], medians[RANKS.len() - 1][at]) {
            rows.push(Row {
                what: what + ", growth",
                n: RANKS[RANKS.len() - 1] / RANKS[0],
                unit: "times",
                hydrant: Some(many / few),
                target: Some(Target::AtMost(crate::alone::FLAT)),
                ..Row::default()
            });
        }
    }
    Ok(rows)
}
