//! A rank program built in: joins by PMI, exchanges values, checks every one, and shows how long each step took.

mod card;
mod link;
mod report;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hydrant_core::limits::VALUE_MAX;
use hydrant_core::wire::Protocol;

use crate::cli::value;
use card::Card;
use link::{Link, LinkError, Server};
use report::{Row, Times};

/// What a probe does.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which PMI to speak: 1, which every process manager serves, or 2
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = protocol)]
    pub pmi: Protocol,

    /// Values that each rank puts in each round
    #[arg(long, value_name = "K", default_value = "1", value_parser = value::within(1..=1_000_000))]
    pub keys: u32,

    /// Bytes of a value; PMI allows 1024
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = value::within(1..=VALUE_MAX))]
    pub bytes: u32,

    /// Rounds of put, fence and get, each with keys of its own
    #[arg(long, value_name = "R", default_value = "1", value_parser = value::within(1..=1_000_000))]
    pub rounds: u32,
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "1" => Ok(Protocol::V1),
        "2" => Ok(Protocol::V2),
        _ => Err("there are PMI 1 and PMI 2".to_owned()),
    }
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("rank {owner} has put {key}, but after the fence it cannot be found")]
    Missing { key: String, owner: u32 },
    #[error("{key} of rank {owner} is wrong from byte {at} on: got '{got}' where '{put}' was put")]
    Wrong { key: String, owner: u32, at: usize, got: String, put: String },
    #[error("{key} of rank {owner} cannot be read: '{got}'")]
    Unreadable { key: String, owner: u32, got: String },
}

/// Runs a probe: 0 when all was right, else 1 with an error that names the rank and the key. Tells the process
/// manager, so that the other ranks do not wait.
pub fn main(options: &Options) -> ExitCode {
    let begun = Instant::now();
    let server = match Server::from_environment(std::env::var_os) {
        Ok(Some(server)) => server,
        Ok(None) => {
            print(
                "1 rank on 1 host, without a process manager: nothing to exchange. \
                 To start 4 of them: hydrant run -n 4 hydrant probe\n",
            );
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("hydrant probe: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut link = match Link::join(&server, options.pmi) {
        Ok(link) => link,
        Err(error) => {
            eprintln!("hydrant probe: cannot join the job: {error}");
            return ExitCode::FAILURE;
        }
    };
    match Probe::new(&mut link, options).run(begun) {
        Ok(Some(table)) => print(&table),
        Ok(None) => {}
        Err(error) => {
            eprintln!("hydrant probe: rank {}: {error}", link.rank());
            link.abort(1, &error.to_string());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A reader that has gone away is no failure of the exchange.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// One rank's part.
struct Probe<'l> {
    link: &'l mut Link,
    options: Options,
    me: u32,
    size: u32,
}

impl<'l> Probe<'l> {
    fn new(link: &'l mut Link, options: &Options) -> Probe<'l> {
        let (me, size) = (link.rank(), link.size());
        Probe { link, options: options.clone(), me, size }
    }

    /// The whole exchange; rank 0 gets the table of it.
    fn run(mut self, begun: Instant) -> Result<Option<String>, ProbeError> {
        let mut times = Times { init: begun.elapsed(), ..Times::default() };
        let mut cards = Vec::new();
        for round in 0..self.options.rounds {
            times.put += timed(|| self.put(round))?.0;
            times.fence += timed(|| Ok(self.link.fence()?))?.0;
            let (took, seen) = timed(|| self.get(round))?;
            times.get += took;
            cards = seen;
        }
        self.link.put(&format!("probe-time-{}", self.me), &times.to_string())?;
        self.link.fence()?;
        let table = if self.me == 0 { Some(self.table(&cards)?) } else { None };
        self.link.finalize()?;
        Ok(table)
    }

    /// Puts this rank's card and its values.
    fn put(&mut self, round: u32) -> Result<(), ProbeError> {
        self.link.put(&card::card_key(round, self.me), &Card::mine().to_string())?;
        for number in 0..self.options.keys {
            let value = card::value(round, self.me, number, self.options.bytes);
            self.link.put(&card::value_key(round, self.me, number), &value)?;
        }
        Ok(())
    }

    /// Gets what every rank has put, this one included, and checks it.
    fn get(&mut self, round: u32) -> Result<Vec<Card>, ProbeError> {
        let mut cards = Vec::new();
        // Each rank begins with itself, so that they do not all ask for the same at once.
        for owner in (self.me..self.size).chain(0..self.me) {
            cards.push((owner, self.fetch(card::card_key(round, owner), owner, Card::parse)?));
            for number in 0..self.options.keys {
                let key = card::value_key(round, owner, number);
                let got = self.link.get(&key)?;
                let expected = card::value(round, owner, number, self.options.bytes);
                check(key, owner, got, &expected)?;
            }
        }
        cards.sort_by_key(|(owner, _)| *owner);
        Ok(cards.into_iter().map(|(_, card)| card).collect())
    }

    fn fetch<T>(&mut self, key: String, owner: u32, parse: fn(&str) -> Option<T>) -> Result<T, ProbeError> {
        match self.link.get(&key)? {
            None => Err(ProbeError::Missing { key, owner }),
            Some(got) => parse(&got).ok_or(ProbeError::Unreadable { key, owner, got }),
        }
    }

    fn table(&mut self, cards: &[Card]) -> Result<String, ProbeError> {
        let mut rows = Vec::new();
        for (rank, card) in (0..self.size).zip(cards) {
            let times = self.fetch(format!("probe-time-{rank}"), rank, Times::parse)?;
            rows.push(Row { rank, card: card.clone(), times });
        }
        Ok(report::table(&rows, &self.options))
    }
}

fn timed<T>(step: impl FnOnce() -> Result<T, ProbeError>) -> Result<(Duration, T), ProbeError> {
    let begun = Instant::now();
    let result = step()?;
    Ok((begun.elapsed(), result))
}

/// Compares what came back with what was put.
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
