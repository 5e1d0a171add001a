//! Jobs under hydrant and under hydra, run in turns, with the floor in the same turn.

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

    /// Starting `true` and waiting for it; the floor is a command as well, so that each pays for its own start.
    pub(crate) fn launch(&self, ranks: u32) -> Result<Row> {
        let program = Path::new("/bin/true");
        let [mut hydrant, mut hydra, mut floor] = [(); 3].map(|()| Samples::default());
        let time =
            |command: &mut Command| Ok::<_, anyhow::Error>(run(command, self.limit)?.took.as_secs_f64());
        for _ in 0..self.runs {
            if let Some(mut command) = self.hydrant(ranks) {
                hydrant.push(time(command.arg(program))? * 1e3);
            }
            if let Some(mut command) = self.hydra(ranks) {
                hydra.push(time(command.arg(program))? * 1e3);
            }
            let mut bare = Command::new(std::env::current_exe()?);
            floor.push(time(bare.args(["spawn", &ranks.to_string()]).arg(program))? * 1e3);
        }
        Ok(Row {
            what: "launch true".into(),
            n: ranks,
            unit: "ms",
            hydrant: hydrant.median(),
            hydra: hydra.median(),
            floor: floor.median(),
            target: (ranks == TARGET_RANKS).then_some(Target::OfFloor(1.1)),
        })
    }

    /// The exchange, and its gets by themselves beside the echo server.
    pub(crate) fn exchange(&self, ranks: u32, pmi: Pmi) -> Result<[Row; 2]> {
        let [mut hydrant, mut hydra, mut floor] = [(); 3].map(|()| [(); 2].map(|()| Samples::default()));
        let gets = f64::from(ranks) * f64::from(ranks);
        let push = |samples: &mut [Samples; 2], moments: Moments| {
            samples[0].push(moments.exchange() as f64 / 1e6);
            samples[1].push(moments.gets() as f64 / 1e3 / gets);
        };
        for _ in 0..self.runs {
            if let Some(command) = self.hydrant(ranks) {
                push(&mut hydrant, self.job(command, pmi)?);
            }
            if let Some(command) = self.hydra(ranks) {
                push(&mut hydra, self.job(command, pmi)?);
            }
            push(&mut floor, floor::echo(ranks, pmi, self.limit)?);
        }
        let at_target = |target| (ranks == TARGET_RANKS).then_some(target);
        let of_hydra = if pmi == Pmi::V1 { 0.7 } else { 0.35 };
        let name = pmi.name();
        let exchange = Row {
            what: format!("PMI-{name} exchange"),
            n: ranks,
            unit: "ms",
            hydrant: hydrant[0].median(),
            hydra: hydra[0].median(),
            floor: floor[0].median(),
            target: at_target(Target::OfHydra(of_hydra)),
        };
        let get = Row {
            what: format!("PMI-{name} get"),
            unit: "us",
            hydrant: hydrant[1].median(),
            hydra: hydra[1].median(),
            floor: floor[1].median(),
            target: at_target(Target::OfFloor(1.2)),
            ..exchange.clone()
        };
        Ok([exchange, get])
    }

    fn job(&self, mut command: Command, pmi: Pmi) -> Result<Moments> {
        command.arg(std::env::current_exe()?).args(["rank", "--pmi", pmi.name()]);
        let finished = run(&mut command, self.limit)?;
        let moments: Moments =
            finished.stdout.parse().with_context(|| format!("what {command:?} printed"))?;
        ensure!(moments.errors == 0, "{} values were wrong under {command:?}", moments.errors);
        Ok(moments)
    }
}
