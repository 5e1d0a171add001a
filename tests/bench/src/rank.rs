//! Process of a measured job, and the times that it reports.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::str::FromStr;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use hydrant_reactor::process::schedule_as_batch;
use rustix::time::{ClockId, clock_gettime};

use crate::pmi::{Client, Pmi};

/// Length of every exchanged value in bytes.
pub(crate) const VALUE_LEN: usize = 64;

/// Digits of a number in keys and values.
pub(crate) const DIGITS: usize = 6;

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) type Nanos = u64;

pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at boot: neither part is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The moments of one rank, and of a whole job once [merged](Moments::merge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moments {
    /// Before the put: of a job, the first rank's.
    pub(crate) start: Nanos,
    /// Behind the put: of a job, the last rank's.
    pub(crate) put: Nanos,
    /// Behind the fence: of a job, the first rank's.
    pub(crate) fence: Nanos,
    /// Behind the last get: of a job, the last rank's.
    pub(crate) end: Nanos,
    /// Values that were wrong.
    pub(crate) errors: u64,
}

impl Moments {
    /// Both together.
    pub(crate) fn merge(self, other: Moments) -> Moments {
        Moments {
            start: self.start.min(other.start),
            put: self.put.max(other.put),
            fence: self.fence.min(other.fence),
            end: self.end.max(other.end),
            errors: self.errors + other.errors,
        }
    }

    /// The exchange: from the first put to the last get's answer.
    pub(crate) fn exchange(&self) -> Nanos {
        self.end - self.start
    }

    /// The gets: from the moment that they could begin. Where the fence is no barrier, that is when the last rank
    /// had put.
    pub(crate) fn gets(&self) -> Nanos {
        self.end - self.fence.max(self.put)
    }
}

impl Display for Moments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}:{}:{}", self.start, self.put, self.fence, self.end, self.errors)
    }
}

impl FromStr for Moments {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Moments> {
        let numbers = text.trim().split(':').map(u64::from_str).collect::<Result<Vec<_>, _>>();
        match numbers.as_deref() {
            Ok(&[start, put, fence, end, errors]) => Ok(Moments { start, put, fence, end, errors }),
            _ => bail!("{text:?} is not what a rank reports"),
        }
    }
}

/// The key that a rank puts.
pub(crate) fn key(rank: u32) -> String {
    format!("b-{rank:0DIGITS$}")
}

/// The value that a rank puts: it tells whose it is, and PMI reserves none of its characters.
pub(crate) fn value(rank: u32) -> String {
    format!("{rank:0DIGITS$}:{:A>1$}", "", VALUE_LEN - DIGITS - 1)
}

/// Writes a number at the front of `to`, as [`key`] and [`value`] do.
pub(crate) fn write_digits(to: &mut [u8], mut number: u32) {
    for digit in to[..DIGITS].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The rank's connection, as its process manager left it.
fn server() -> Result<File> {
    let fd: RawFd = number("PMI_FD")?;
    ensure!(fd >= 0, "PMI_FD is {fd}");
    // SAFETY: the process manager opened this descriptor for us to own; nothing else in this process uses it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Reads a number from the environment.
pub(crate) fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    variable: &str,
) -> Result<T> {
    let text =
        std::env::var(variable).with_context(|| format!("{variable}: not started by a process manager"))?;
    text.parse().with_context(|| format!("{variable} is {text:?}"))
}

/// Runs as a rank of a job that so often puts a value, enters a fence and gets the values of both neighbours, which it names. It
/// prints the time before the first put and the one behind the last get.
pub(crate) fn ring(count: u32) -> Result<()> {
    let (rank, size): (u32, u32) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    let mut client = Client::new(server()?, Pmi::V2);
    client.init(rank)?;
    client.sync()?;
    let start = now();
    for at in 0..count {
        client.put(&format!("r-{at}-{rank}"), &value(rank))?;
        client.fence()?;
        for other in [(rank + 1) % size, (rank + size - 1) % size] {
            let message = client.get_message_from(&format!("r-{at}-{other}"), other);
            ensure!(client.get(&message)? == Some(value(other).as_bytes()), "the value of rank {other}");
        }
    }
    let end = now();
    client.sync()?;
    print_line(format_args!("{start} {end}"))?;
    client.finalize()
}

/// One request and the value that it should bring. Only the digits change from get to get, in place: what the client
/// does and touches itself should not hide what it waits for.
struct Gets {
    message: Vec<u8>,
    expected: Vec<u8>,
    /// Where the key's digits stand in the message.
    at: usize,
}

impl Gets {
    fn new(client: &Client) -> Result<Gets> {
        let message = client.get_message(&key(0));
        let at = message.windows(DIGITS).position(|window| window == [b'0'; DIGITS]).context("no key")?;
        Ok(Gets { message, expected: value(0).into(), at })
    }

    /// Gets the values of all ranks, starting with the next rank's so that not all ask for the same, and counts what is wrong.
    fn run(&mut self, client: &mut Client, rank: u32, size: u32) -> Result<u64> {
        let mut errors = 0;
        for other in (rank + 1..size).chain(0..=rank) {
            write_digits(&mut self.message[self.at..], other);
            write_digits(&mut self.expected, other);
            errors += u64::from(client.get(&self.message)? != Some(&self.expected));
        }
        Ok(errors)
    }
}

/// Put, fence, and `rounds` gets of all values.
fn exchange(client: &mut Client, rank: u32, size: u32, rounds: u32) -> Result<Moments> {
    let (key, mine, mut gets) = (key(rank), value(rank), Gets::new(client)?);
    client.sync()?;
    let start = now();
    client.put(&key, &mine)?;
    let put = now();
    client.fence()?;
    let fence = now();
    let errors = (0..rounds).map(|_| gets.run(client, rank, size)).sum::<Result<u64>>()?;
    Ok(Moments { start, put, fence, end: now(), errors })
}

/// A rank of a job that a process manager started. Rank 0 prints the job's moments, which it collects through the
/// key-value space.
pub(crate) fn under_manager(pmi: Pmi, rounds: u32) -> Result<()> {
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    let mut client = Client::new(server()?, pmi);
    client.init(rank)?;
    let mine = exchange(&mut client, rank, size, rounds)?;
    client.put(&format!("t-{rank}"), &mine.to_string())?;
    client.fence()?;
    if rank == 0 {
        let mut all = mine;
        for other in 1..size {
            let key = format!("t-{other}");
            let message = client.get_message(&key);
            let text = client.get(&message)?.with_context(|| format!("{key} is missing"))?;
            all = all.merge(std::str::from_utf8(text)?.parse()?);
        }
        println!("{all}");
    }
    client.finalize()
}

/// A rank that joins its job, meets the others and leaves.
pub(crate) fn guest(pmi: Pmi) -> Result<()> {
    let mut client = Client::new(server()?, pmi);
    client.init(number("PMI_RANK")?)?;
    client.fence()?;
    client.finalize()
}

/// A rank of the echo server's: the same exchange, whose answers hold nothing. Every rank prints its own moments, and
/// leaves when all are done, so that no rank's exit takes time from the others.
pub(crate) fn under_echo(pmi: Pmi, rounds: u32) -> Result<()> {
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    schedule_like_hydrants(size)?;
    let mut client = Client::new(server()?, pmi);
    let mine = Moments { errors: 0, ..exchange(&mut client, rank, size, rounds)? };
    client.fence()?;
    print_line(mine)
}

/// Has ranks of the echo server that exceed their processors scheduled as hydrant has its own.
pub(crate) fn schedule_like_hydrants(size: u32) -> Result<()> {
    if size as usize > available_parallelism()?.get() {
        schedule_as_batch();
    }
    Ok(())
}

/// Prints a line with one write, so that lines of different ranks do not mix.
pub(crate) fn print_line(line: impl Display) -> Result<()> {
    Ok(std::io::stdout().write_all(format!("{line}\n").as_bytes())?)
}
