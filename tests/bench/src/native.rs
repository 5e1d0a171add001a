//! Jobs under hydrant and under hydra, run in turns, with the floor in the same turn.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
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

/// Gets of one rank's that are timed together at least where they come from memory: less than that would time how
/// processes are woken.
const LOCAL_GETS: u32 = 20_000;

/// What gets through a libpmi2 are measured with.
pub(crate) struct Libraries {
    /// Our libpmi2.
    pub(crate) own: PathBuf,
    /// The `mpiexec` of hydra 4.0.2, under which Slurm's library works.
    pub(crate) hydra4: PathBuf,
    /// Slurm's libpmi2.
    pub(crate) slurm: OsString,
}

/// What is measured, and how often.
pub(crate) struct Plan {
    /// hydrant's binary, where it takes part.
    pub(crate) hydrant: Option<PathBuf>,
    /// Binary of another build that it is compared with.
    pub(crate) old: Option<PathBuf>,
    /// Hydra's `mpiexec`, where it takes part.
    pub(crate) hydra: Option<PathBuf>,
    /// What the rows of libpmi2 are measured with.
    pub(crate) libraries: Libraries,
    /// Turns, of which the median counts.
    pub(crate) runs: u32,
    /// Longest time of one job.
    pub(crate) limit: Duration,
    /// Jobs that could not be measured so far.
    pub(crate) failures: Cell<u32>,
}

/// Build of hydrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The measured one.
    New,
    /// The one that it is compared with.
    Old,
}

impl Build {
    pub(crate) const BOTH: [Build; 2] = [Build::New, Build::Old];
}

/// A job's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Processes.
    pub(crate) ranks: u32,
    /// Daemons that they are divided among, hydra's proxies; 0 where the command itself starts and serves them.
    pub(crate) daemons: u32,
}

impl Shape {
    /// No job at all.
    pub(crate) const NONE: Shape = Shape { ranks: 0, daemons: 0 };

    /// How a row calls it.
    fn measured(self, what: &str) -> String {
        match self.daemons {
            0 => what.into(),
            daemons => format!("{what}, {daemons} daemons"),
        }
    }

    /// The options that both commands take. With as many names as daemons each is a host of its own, which lies here.
    fn options(self, launcher: [&str; 2]) -> Vec<String> {
        let Shape { ranks, daemons } = self;
        let mut options = vec!["-n".into(), ranks.to_string()];
        if daemons > 0 {
            let hosts: Vec<String> = (0..daemons).map(|host| format!("host{host}")).collect();
            let ppn = ranks.div_ceil(daemons).to_string();
            options.extend(launcher.map(String::from));
            options.extend(["-hosts".into(), hosts.join(","), "-ppn".into(), ppn]);
        }
        options
    }

    /// Whether there are no daemons.
    fn alone(self) -> bool {
        self.daemons == 0
    }
}

impl std::fmt::Display for Shape {
    /// Behind the name of what is measured.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Shape { ranks: 0, .. } => Ok(()),
            Shape { ranks, daemons: 0 } => write!(f, ", {ranks} ranks"),
            Shape { ranks, daemons } => write!(f, ", {ranks} ranks over {daemons} daemons"),
        }
    }
}

/// The times of those who take part in a turn.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) hydrant: Samples,
    /// Another build of hydrant.
    pub(crate) old: Samples,
    /// hydra, or prterun.
    pub(crate) peer: Samples,
    /// The bare system calls.
    pub(crate) floor: Samples,
}

impl Columns {
    pub(crate) fn of(&mut self, build: Build) -> &mut Samples {
        match build {
            Build::New => &mut self.hydrant,
            Build::Old => &mut self.old,
        }
    }

    fn row(&self, what: &str, shape: Shape, unit: &'static str, target: Target) -> Row {
        Row {
            what: shape.measured(what),
            n: shape.ranks,
            unit,
            hydrant: self.hydrant.median(),
            old: self.old.median(),
            exceeds_old: self.hydrant.exceed(&self.old),
            peer: self.peer.median(),
            floor: self.floor.median(),
            target: (shape.ranks == TARGET_RANKS && shape.alone()).then_some(target),
            others: None,
        }
    }

    /// A row whose target is the same for all sizes.
    pub(crate) fn plain(&self, what: &str, shape: Shape, unit: &'static str, target: Option<Target>) -> Row {
        Row { target, ..self.row(what, shape, unit, Target::AtMost(0.0)) }
    }
}

impl Plan {
    pub(crate) fn hydrant(&self, build: Build, shape: Shape) -> Option<Command> {
        let binary = match build {
            Build::New => &self.hydrant,
            Build::Old => &self.old,
        };
        let mut command = Command::new(binary.as_ref()?);
        command.arg("run").args(shape.options(["-bootstrap", "local"]));
        Some(command)
    }

    pub(crate) fn hydra(&self, shape: Shape) -> Option<Command> {
        let mut command = Command::new(self.hydra.as_ref()?);
        command.args(shape.options(["-launcher", "fork"]));
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

    /// Starting `true`, over several daemons ranks that meet, and waiting for it; the floor is a command as well, so that
    /// each pays for its own start.
    pub(crate) fn launch(&self, shape: Shape) -> Row {
        let mut columns = Columns::default();
        let time = |command: Result<Command>| {
            let finished = command.and_then(|mut command| run(&mut command, self.limit));
            self.noted(finished).map(|finished| finished.took.as_secs_f64() * 1e3)
        };
        let of_ranks = |mut command: Command| {
            match shape.alone() {
                true => command.arg("/bin/true"),
                false => command.arg(own()?).args(["rank", "--pmi", "1", "--guest"]),
            };
            Ok(command)
        };
        for _ in 0..self.runs {
            for build in Build::BOTH {
                if let Some(command) = self.hydrant(build, shape).filter(|_| !columns.of(build).failed()) {
                    columns.of(build).push_if(time(of_ranks(command)));
                }
            }
            if let Some(command) = self.hydra(shape).filter(|_| !columns.peer.failed()) {
                columns.peer.push_if(time(of_ranks(command)));
            }
            if !columns.floor.failed() {
                columns.floor.push_if(time(self.floor_of_launch(shape)));
            }
        }
        columns.row(if shape.alone() { "launch true" } else { "launch" }, shape, "ms", Target::OfFloor(1.1))
    }

    fn floor_of_launch(&self, Shape { ranks, daemons }: Shape) -> Result<Command> {
        let mut command = Command::new(own()?);
        match daemons {
            0 => command.args(["spawn", &ranks.to_string(), "/bin/true"]),
            _ => {
                command.args(["echo", "--pmi", "1", "--rounds", "0", "--size", &ranks.to_string()]);
                command.args(["--daemons", &daemons.to_string()]);
                command.args(["--limit", &self.limit.as_secs().to_string()])
            }
        };
        Ok(command)
    }

    /// The exchange, and its gets by themselves.
    pub(crate) fn exchange(&self, shape: Shape, pmi: Pmi) -> [Row; 2] {
        let (mut exchange, mut get) = (Columns::default(), Columns::default());
        let push = |exchange: &mut Samples, get: &mut Samples, moments: Option<Moments>| {
            let gets = f64::from(shape.ranks) * f64::from(shape.ranks);
            exchange.push_if(moments.map(|moments| moments.exchange() as f64 / 1e6));
            get.push_if(moments.map(|moments| moments.gets() as f64 / 1e3 / gets));
        };
        for _ in 0..self.runs {
            for build in Build::BOTH {
                if let Some(command) = self.hydrant(build, shape).filter(|_| !get.of(build).failed()) {
                    push(exchange.of(build), get.of(build), self.noted(self.job(command, pmi)));
                }
            }
            if let Some(command) = self.hydra(shape).filter(|_| !get.peer.failed()) {
                push(&mut exchange.peer, &mut get.peer, self.noted(self.job(command, pmi)));
            }
            if !get.floor.failed() {
                let echo = floor::echo(shape.ranks, shape.daemons, pmi, 1, self.limit);
                push(&mut exchange.floor, &mut get.floor, self.noted(echo));
            }
        }
        let of_peer = Target::OfPeer(if pmi == Pmi::V1 { 0.7 } else { 0.35 });
        let name = pmi.name();
        [
            exchange.row(&format!("PMI-{name} exchange"), shape, "ms", of_peer),
            get.row(&format!("PMI-{name} get"), shape, "us", Target::OfFloor(1.2)),
        ]
    }

    /// Gets by `PMI2_KVS_Get` of one program: over our library, from memory and by messages, and over Slurm's.
    pub(crate) fn library_gets(&self, shape: Shape) -> [Row; 2] {
        let (mut memory, mut socket) = (Columns::default(), Columns::default());
        let ranks = shape.ranks;
        let Libraries { own, hydra4, slurm } = &self.libraries;
        let time = |command: Command, library: &OsStr, passes: u32, options: &[&str]| {
            let gets = f64::from(ranks) * f64::from(ranks) * f64::from(passes);
            let moments = self.noted(self.library_job(command, library, passes, options));
            moments.map(|moments| moments.gets() as f64 / 1e3 / gets)
        };
        for _ in 0..self.runs {
            for build in Build::BOTH {
                if let Some(command) = self.hydrant(build, shape).filter(|_| !memory.of(build).failed()) {
                    let passes = LOCAL_GETS.div_ceil(ranks);
                    memory.of(build).push_if(time(command, own.as_os_str(), passes, &[]));
                }
                if let Some(command) = self.hydrant(build, shape).filter(|_| !socket.of(build).failed()) {
                    socket.of(build).push_if(time(command, own.as_os_str(), 1, &["--socket"]));
                }
            }
            if self.hydra.is_some() && !memory.peer.failed() {
                let mut command = Command::new(hydra4);
                command.args(["-n", &ranks.to_string()]);
                let slurms = time(command, slurm, 1, &[]);
                memory.peer.push_if(slurms);
                socket.peer.push_if(slurms);
            }
        }
        let row = |columns: Columns, how: &str, target| {
            columns.row(&format!("libpmi2 get, {how}"), shape, "us", target)
        };
        [row(memory, "memory", Target::OfPeer(0.02)), row(socket, "socket", Target::OfPeer(1.0))]
    }

    fn library_job(
        &self,
        mut command: Command,
        library: &OsStr,
        passes: u32,
        options: &[&str],
    ) -> Result<Moments> {
        command.arg(own()?).arg("libpmi2").arg(library).arg(passes.to_string()).args(options);
        self.moments(&mut command)
    }

    pub(crate) fn job(&self, mut command: Command, pmi: Pmi) -> Result<Moments> {
        command.arg(own()?).args(["rank", "--pmi", pmi.name()]);
        self.moments(&mut command)
    }

    /// Runs a job and reads what it measured.
    pub(crate) fn moments(&self, command: &mut Command) -> Result<Moments> {
        let finished = run(command, self.limit)?;
        let moments: Moments =
            finished.stdout.parse().with_context(|| format!("what {command:?} printed"))?;
        ensure!(moments.errors == 0, "{} values were wrong under {command:?}", moments.errors);
        Ok(moments)
    }
}

/// This program, which is the measured one too.
pub(crate) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("the bench's own path")
}
