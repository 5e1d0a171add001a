//! The core by itself: nanoseconds from a client's bytes to the reply's, without a system call.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hydrant_core::server::JobSpec;
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Server, Time};
use hydrant_driver::MappedStorage;

use crate::pmi::Pmi;
use crate::rank::{key, value};
use crate::table::{Row, Samples, Target};

const RANKS: u32 = 128;
const JOB: JobId = JobId(0);
const NAME: &str = "kvs_12345_0_123456789_vm";
/// Commands timed together, so that the clock's own cost does not count.
const BATCH: u32 = 1000;

/// Commands that are timed.
const OPERATIONS: [&str; 3] = ["put", "get", "fence"];

/// A server with a job of [`RANKS`] ranks, which have all joined.
struct Core<'s> {
    server: Server<'s>,
    pmi: Pmi,
    output: Box<[u8]>,
}

/// One timed batch: who says what.
type Batch = Vec<(ConnId, Vec<u8>)>;

impl Core<'_> {
    /// Hands in a message and takes all replies that are due; returns how many.
    fn turn(&mut self, conn: ConnId, bytes: &[u8]) -> Result<u32> {
        self.server.handle(Time(0), Input::Bytes { conn, bytes, full: false })?;
        let mut replies = 0;
        while let Some(output) = self.server.poll(&mut self.output)? {
            if let Output::Bytes { bytes, .. } = output {
                black_box(bytes);
                replies += 1;
            }
        }
        Ok(replies)
    }

    /// A message whose answer must hold `expected`.
    fn ask(&mut self, conn: ConnId, bytes: &[u8], expected: &str) -> Result<()> {
        self.server.handle(Time(0), Input::Bytes { conn, bytes, full: false })?;
        let mut answered = false;
        while let Some(output) = self.server.poll(&mut self.output)? {
            if let Output::Bytes { bytes, .. } = output {
                answered |= bytes.windows(expected.len()).any(|window| window == expected.as_bytes());
            }
        }
        ensure!(answered, "the core did not answer {:?} with {expected:?}", bytes.escape_ascii().to_string());
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        let universe = None;
        let spec = JobSpec { universe_size: universe, ..JobSpec::new(JOB, NAME, RANKS) };
        self.server.handle(Time(0), Input::RegisterJob(spec))?;
        for rank in 0..RANKS {
            let conn = ConnId(rank);
            self.server.handle(Time(0), Input::Opened { conn, job: JOB, rank: Some(Rank(rank)) })?;
            let hello = format!("cmd=init pmi_version={} pmi_subversion=0\n", self.pmi.name());
            self.ask(conn, hello.as_bytes(), "rc=0")?;
            if self.pmi == Pmi::V2 {
                self.ask(conn, &self.pmi.message(&format!("cmd=fullinit;pmirank={rank};")), "rc=0")?;
            }
        }
        Ok(())
    }

    fn put(&self, number: u32) -> (ConnId, Vec<u8>) {
        let (key, value) = (key(number), value(number));
        let body = match self.pmi {
            Pmi::V1 => format!("cmd=put kvsname={NAME} key={key} value={value}"),
            Pmi::V2 => format!("cmd=kvs-put;key={key};value={value};"),
        };
        (ConnId(number % RANKS), self.pmi.message(&body))
    }

    fn get(&self, rank: u32, number: u32) -> (ConnId, Vec<u8>) {
        let key = key(number);
        let body = match self.pmi {
            Pmi::V1 => format!("cmd=get kvsname={NAME} key={key}"),
            Pmi::V2 => format!("cmd=kvs-get;jobid={NAME};key={key};"),
        };
        (ConnId(rank), self.pmi.message(&body))
    }

    fn fence(&self, rank: u32) -> (ConnId, Vec<u8>) {
        (ConnId(rank), self.pmi.message(self.pmi.fence()))
    }

    /// Nanoseconds a command; every command of a batch must have been answered by its end.
    fn time(&mut self, batch: &Batch) -> Result<f64> {
        let mut replies = 0;
        let start = Instant::now();
        for (conn, bytes) in batch {
            replies += self.turn(*conn, bytes)?;
        }
        let took: Duration = start.elapsed();
        ensure!(replies as usize == batch.len(), "{replies} replies to {} commands", batch.len());
        Ok(took.as_nanos() as f64 / f64::from(replies))
    }

    /// One sample of each of [`OPERATIONS`] with `keys` keys stored.
    fn sample(&mut self, keys: u32) -> Result<[f64; 3]> {
        for key in 0..keys {
            let (conn, message) = self.put(key);
            self.ask(conn, &message, "rc=0")?;
        }
        let (conn, message) = self.get(0, keys / 2);
        self.ask(conn, &message, &value(keys / 2))?;

        // Keys in an order that no cache foresees: steps of a prime, all over the store.
        let key = |i: u32| (u64::from(i) * 7919 * 31 % u64::from(keys)) as u32;
        // Messages are made just before they are handed in: a host has just read them, and they are in a cache.
        let gets: Batch = (0..BATCH).map(|i| self.get(i % RANKS, key(i))).collect();
        let get = self.time(&gets)?;
        let fences: Batch = (0..BATCH / 100).flat_map(|_| 0..RANKS).map(|rank| self.fence(rank)).collect();
        let fence = self.time(&fences)?;
        let puts: Batch = (keys..keys + keys / 10).map(|key| self.put(key)).collect();
        let put = self.time(&puts)?;
        Ok([put, get, fence])
    }
}

/// Limits for so many keys.
fn limits(keys: u32) -> Limits {
    // Half of the room is set aside in equal shares for the ranks, and the keys are spread equally.
    let room = keys + keys / 10 + 1024;
    Limits { jobs: 1, ranks: RANKS, conns: RANKS, keys: room, kvs_bytes: room * 256, ..Limits::NONE }
}

/// Nanoseconds a command of each of [`OPERATIONS`].
fn sample(pmi: Pmi, keys: u32) -> Result<[f64; 3]> {
    let limits = limits(keys);
    let mut memory = MappedStorage::new(&limits);
    let server = Server::new(limits, memory.lend(), 1)?;
    let mut core = Core { server, pmi, output: vec![0; limits.output_max()].into() };
    core.join()?;
    core.sample(keys)
}

/// A row for each command, protocol and number of keys, and one for the growth between the smallest and the largest.
pub(crate) fn rows(counts: &[u32], runs: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for pmi in [Pmi::V1, Pmi::V2] {
        let mut medians = Vec::new();
        for &keys in counts {
            let mut samples = [(); 3].map(|()| Samples::default());
            for _ in 0..runs {
                let sample = sample(pmi, keys).with_context(|| format!("the core with {keys} keys"))?;
                for (samples, sample) in samples.iter_mut().zip(sample) {
                    samples.push(sample);
                }
            }
            medians.push(samples.map(|samples| samples.median()));
        }
        for (i, operation) in OPERATIONS.iter().enumerate() {
            let what = format!("core, PMI-{} {operation}", pmi.name());
            rows.extend(counts.iter().zip(&medians).map(|(&keys, medians)| Row {
                what: what.clone(),
                n: keys,
                unit: "ns",
                hydrant: medians[i],
                ..Row::default()
            }));
            if let [first, .., last] = medians.as_slice()
                && let (Some(few), Some(many)) = (first[i], last[i])
            {
                rows.push(Row {
                    what: what + ", growth",
                    n: counts[counts.len() - 1] / counts[0],
                    unit: "times",
                    hydrant: Some(many / few),
                    target: Some(Target::AtMost(FLAT)),
                    ..Row::default()
                });
            }
        }
    }
    Ok(rows)
}

/// What counts as flat: a hundred times the keys do not fit the cache, and a command may pay for that with a few
/// misses, but with nothing that grows.
pub(crate) const FLAT: f64 = 2.0;
