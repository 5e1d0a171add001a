//! Jobs under hydrant and under hydra, run in turns, with the floor in the same turn.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::floor;
use crate::job::run;
use crate::pmi::Pmi;
use crate::rank::Moments;
use crate::table::{Row, Samples, Target};

/// The number of ranks that the targets are stated for.
const TARGET_RANKS: u32 = 128;

/// What is measured, and how often.
pub(crate) struct Plan {
    /// hydrant's binary, where it takes part.
    pub(crate) hydrant: Option<PathBuf>,
    /// Hydra's `mpiexec`, where it takes part.
    pub(crate) hydra: Option<PathBuf>,
    /// Turns, of which the median counts.
    pub(crate) runs: u32,
    /// Longest time of one job.
    pub(crate) limit: Duration,
    /// Jobs that could not be measured so far.
    pub(crate) failures: Cell<u32>,
}

/// The times of those who take part in a turn.
#[derive(Default)]
struct Columns {
    hydrant: Samples,
    hydra: Samples,
    floor: Samples,
}

impl Columns {
    fn row(&self, what: String, ranks: u32, unit: &'static str, target: Target) -> Row {
        Row {
            what,
            n: ranks,
            unit,
            hydrant: self.hydrant.median(),
            hydra: self.hydra.median(),
            floor: self.floor.median(),
            target: (ranks == TARGET_RANKS).then_some(target),
        }
    }
}

impl Plan {
    fn hydrant(&self, ranks: u32) -> Option<Command> {
        let mut command = Command::new(self.hydrant.as_ref()?);
        command.args(["run", "-n", &ranks.to_string()]);
        Some(command)
    }

    fn hydra(&self, ranks: u32) -> Option<Command> {
        let mut command = Command::new(self.hydra.as_ref()?);
        command.args(["-n", &ranks.to_string()]);
        Some(command)
    }

    /// What came of a job, or its error on standard error: one manager's failure is no reason not to measure the other.
    pub(crate) fn noted<T>(&self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                eprintln!("bench: {error:#}");
                self.failures.set(self.failures.get() + 1);
                None
            }
        }
    }

    /// Starting `true` and waiting for it; the floor is a command as well, so that each pays for its own start.
    pub(crate) fn launch(&self, ranks: u32) -> Row {
        let program = Path::new("/bin/true");
        let mut columns = Columns::default();
        let time = |command: &mut Command| {
            let finished = run(command.arg(program), self.limit);
            self.noted(finished).map(|finished| finished.took.as_secs_f64() * 1e3)
        };
        for _ in 0..self.runs {
            if let Some(mut command) = self.hydrant(ranks).filter(|_| !columns.hydrant.failed()) {
                columns.hydrant.push_if(time(&mut command));
            }
            if let Some(mut command) = self.hydra(ranks).filter(|_| !columns.hydra.failed()) {
                columns.hydra.push_if(time(&mut command));
            }
            if let Some(own) = self.noted(own()).filter(|_| !columns.floor.failed()) {
                columns.floor.push_if(time(Command::new(own).args(["spawn", &ranks.to_string()])));
            }
        }
        columns.row("launch true".into(), ranks, "ms", Target::OfFloor(1.1))
    }

    /// The exchange, and its gets by themselves.
    pub(crate) fn exchange(&self, ranks: u32, pmi: Pmi) -> [Row; 2] {
        let (mut exchange, mut get) = (Columns::default(), Columns::default());
        let push = |exchange: &mut Samples, get: &mut Samples, moments: Option<Moments>| {
            let gets = f64::from(ranks) * f64::from(ranks);
            exchange.push_if(moments.map(|moments| moments.exchange() as f64 / 1e6));
            get.push_if(moments.map(|moments| moments.gets() as f64 / 1e3 / gets));
        };
        for _ in 0..self.runs {
            if let Some(command) = self.hydrant(ranks).filter(|_| !get.hydrant.failed()) {
                push(&mut exchange.hydrant, &mut get.hydrant, self.noted(self.job(command, pmi)));
            }
            if let Some(command) = self.hydra(ranks).filter(|_| !get.hydra.failed()) {
                push(&mut exchange.hydra, &mut get.hydra, self.noted(self.job(command, pmi)));
            }
            if !get.floor.failed() {
                let echo = floor::echo(ranks, pmi, self.limit);
                push(&mut exchange.floor, &mut get.floor, self.noted(echo));
            }
        }
        let of_hydra = Target::OfHydra(if pmi == Pmi::V1 { 0.7 } else { 0.35 });
        let name = pmi.name();
        [
            exchange.row(format!("PMI-{name} exchange"), ranks, "ms", of_hydra),
            get.row(format!("PMI-{name} get"), ranks, "us", Target::OfFloor(1.2)),
        ]
    }

    fn job(&self, mut command: Command, pmi: Pmi) -> Result<Moments> {
        command.arg(own()?).args(["rank", "--pmi", pmi.name()]);
        let finished = run(&mut command, self.limit)?;
        let moments: Moments =
            finished.stdout.parse().with_context(|| format!("what {command:?} printed"))?;
        ensure!(moments.errors == 0, "{} values were wrong under {command:?}", moments.errors);
        Ok(moments)
    }
}

/// This program, which is the measured one too.
fn own() -> Result<PathBuf> {
    std::env::current_exe().context("the bench's own path")
}
