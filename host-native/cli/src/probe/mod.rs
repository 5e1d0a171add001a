//! Built-in rank program: joins a job by PMI or PMIx, exchanges values, checks every one, and reports the time of each step.

mod card;
mod client;
mod pmix;
mod report;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hydrant_client::Environment;
use hydrant_core::limits::VALUE_MAX;
use hydrant_core::wire::Protocol;
use hydrant_run::messages;

use crate::value;
use card::Card;
use client::{Client, JoinError, RequestError};
use pmix::{PmixClient, PmixError};
use report::{Row, Times};

/// Prefix of the messages of `hydrant probe`.
const PREFIX: &str = "hydrant probe";

/// Options of `hydrant probe`.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// PMI version: 1, which every process manager supports, or 2
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = protocol)]
    pub pmi: Protocol,

    /// Exchange by PMIx in the place of PMI
    #[arg(long, conflicts_with = "pmi")]
    pub pmix: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Number of values that each rank puts in each round
    #[arg(long, value_name = "K", default_value = "1", value_parser = value::within(1..=1_000_000))]
    pub keys: u32,

    /// Bytes per value, at most 1024
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = value::within(1..=VALUE_MAX))]
    pub bytes: u32,

    /// Number of rounds of put, fence and get, each with new keys
    #[arg(long, value_name = "R", default_value = "1", value_parser = value::within(1..=1_000_000))]
    pub rounds: u32,
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "1" => Ok(Protocol::V1),
        "2" => Ok(Protocol::V2),
        _ => Err("expected 1 or 2".to_owned()),
    }
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Pmix(#[from] PmixError),
    #[error("rank {owner} has put {key}, but it is missing after the fence")]
    Missing { key: String, owner: u32 },
    #[error("{key} of rank {owner} differs from byte {at} on: got '{got}', put '{put}'")]
    Wrong { key: String, owner: u32, at: usize, got: String, put: String },
    #[error("{key} of rank {owner} has an invalid value: '{got}'")]
    Invalid { key: String, owner: u32, got: String },
}

/// Requests of a rank that has joined its job.
trait Exchange {
    /// This process's rank.
    fn rank(&self) -> u32;

    /// The job's number of ranks.
    fn size(&self) -> u32;

    /// Puts a pair, which other ranks can get after the next fence.
    fn put(&mut self, key: &str, value: &str) -> Result<(), ProbeError>;

    /// Returns the value of a key that a rank has put.
    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, ProbeError>;

    /// Waits until every rank has called this.
    fn fence(&mut self) -> Result<(), ProbeError>;

    /// Leaves the job.
    fn finalize(&mut self) -> Result<(), ProbeError>;

    /// Requests the end of the job. Errors are ignored: the exit status of this process reports the failure too.
    fn abort(&mut self, code: i32, message: &str);
}

/// Joins the job. Returns `None` without a process manager.
fn join(options: &Options) -> Result<Option<Box<dyn Exchange>>, JoinError> {
    let Environment { server, jobid, .. } = client::environment()?;
    if options.pmix && (server.is_some() || pmix::is_served()) {
        return Ok(Some(Box::new(PmixClient::join()?)));
    }
    let Some(server) = server else { return Ok(None) };
    Ok(Some(Box::new(Client::join(&server, options.pmi, jobid.as_deref())?)))
}

/// Runs a probe. Exits with 0 if every value is correct. Otherwise prints an error that names rank and key, requests the
/// end of the job, so that the other ranks do not wait, and exits with 1.
pub fn main(options: &Options) -> ExitCode {
    let begun = Instant::now();
    let mut client = match join(options) {
        Ok(Some(client)) => client,
        Ok(None) => {
            print(
                "1 rank on 1 host, without a process manager: nothing to exchange. \
                 To start 4 ranks: hydrant run -n 4 hydrant probe\n",
            );
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            messages::print(PREFIX, format_args!("cannot join the job: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match Probe::new(&mut *client, options).run(begun) {
        Ok(Some(table)) => print(&table),
        Ok(None) => {}
        Err(error) => {
            messages::print(PREFIX, format_args!("rank {}: {error}", client.rank()));
            client.abort(1, &error.to_string());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints to standard output. A closed pipe is not an error of the exchange.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// One rank's part in the exchange.
struct Probe<'c> {
    client: &'c mut dyn Exchange,
    options: Options,
    me: u32,
    size: u32,
}

impl<'c> Probe<'c> {
    fn new(client: &'c mut dyn Exchange, options: &Options) -> Probe<'c> {
        let (me, size) = (client.rank(), client.size());
        Probe { client, options: options.clone(), me, size }
    }

    /// Runs all rounds. Rank 0 returns the table.
    fn run(mut self, begun: Instant) -> Result<Option<String>, ProbeError> {
        let mut times = Times { init: begun.elapsed(), ..Times::default() };
        let mut cards = Vec::new();
        for round in 0..self.options.rounds {
            times.put += timed(|| self.put(round))?.0;
            times.fence += timed(|| self.client.fence())?.0;
            let (took, seen) = timed(|| self.get(round))?;
            times.get += took;
            cards = seen;
        }
        self.client.put(&format!("probe-time-{}", self.me), &times.to_string())?;
        self.client.fence()?;
        let table = if self.me == 0 { Some(self.table(&cards)?) } else { None };
        self.client.finalize()?;
        Ok(table)
    }

    /// Puts this rank's card and its values.
    fn put(&mut self, round: u32) -> Result<(), ProbeError> {
        self.client.put(&card::card_key(round, self.me), &Card::of_this_process().to_string())?;
        for number in 0..self.options.keys {
            let value = card::value(round, self.me, number, self.options.bytes);
            self.client.put(&card::value_key(round, self.me, number), &value)?;
        }
        Ok(())
    }

    /// Gets the card and the values of every rank, including this one, and checks them.
    fn get(&mut self, round: u32) -> Result<Vec<Card>, ProbeError> {
        let mut cards = Vec::new();
        // Each rank begins with itself, so that the ranks request different keys at the same time.
        for owner in (self.me..self.size).chain(0..self.me) {
            cards.push((owner, self.fetch(card::card_key(round, owner), owner, Card::parse)?));
            for number in 0..self.options.keys {
                let key = card::value_key(round, owner, number);
                let got = self.client.get(owner, &key)?;
                let expected = card::value(round, owner, number, self.options.bytes);
                check(key, owner, got, &expected)?;
            }
        }
        cards.sort_by_key(|(owner, _)| *owner);
        Ok(cards.into_iter().map(|(_, card)| card).collect())
    }

    fn fetch<T>(&mut self, key: String, owner: u32, parse: fn(&str) -> Option<T>) -> Result<T, ProbeError> {
        match self.client.get(owner, &key)? {
            None => Err(ProbeError::Missing { key, owner }),
            Some(got) => parse(&got).ok_or(ProbeError::Invalid { key, owner, got }),
        }
    }

    fn table(&mut self, cards: &[Card]) -> Result<String, ProbeError> {
        let mut rows = Vec::new();
        for (rank, card) in (0..self.size).zip(cards) {
            let times = self.fetch(format!("probe-time-{rank}"), rank, Times::parse)?;
            rows.push(Row { rank, card: card.clone(), times });
        }
        Ok(match self.options.json {
            true => report::document(&rows, &self.options),
            false => report::table(&rows, &self.options),
        })
    }
}

fn timed<T>(step: impl FnOnce() -> Result<T, ProbeError>) -> Result<(Duration, T), ProbeError> {
    let begun = Instant::now();
    let result = step()?;
    Ok((begun.elapsed(), result))
}

/// Compares the received value with the expected one.
fn check(key: String, owner: u32, got: Option<String>, put: &str) -> Result<(), ProbeError> {
    let Some(got) = got else { return Err(ProbeError::Missing { key, owner }) };
    if got == put {
        return Ok(());
    }
    let same = got.bytes().zip(put.bytes()).take_while(|(a, b)| a == b).count();
    let excerpt = |text: &str| {
        String::from_utf8_lossy(text.as_bytes().get(same..).unwrap_or_default()).chars().take(24).collect()
    };
    Err(ProbeError::Wrong { key, owner, at: same, got: excerpt(&got), put: excerpt(put) })
}
