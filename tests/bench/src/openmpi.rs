//! Jobs of PMIx clients under hydrant and under prterun, the `mpirun` of Open MPI 5, run in turns.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::floor;
use crate::folder::Folder;
use crate::job::run;
use crate::native::{Build, Columns, Plan, Shape, own};
use crate::rank::Moments;
use crate::table::{Row, Samples, Target};

/// Programs of Open MPI 5, and a folder for its session files.
pub(crate) struct OpenMpi {
    /// Its `mpirun`.
    pub(crate) mpirun: PathBuf,
    /// Program that prints when each rank began `MPI_Init` and left `MPI_Finalize`, or so for collectives.
    pub(crate) times: PathBuf,
    /// The same, built by MPICH 5.
    pub(crate) times_mpich: PathBuf,
    /// Temporary files of the ranks and of prterun.
    pub(crate) folder: Folder,
}

impl OpenMpi {
    /// Returns the command before the program. Both managers get the same settings of Open MPI.
    fn prterun(&self, shape: Shape) -> Command {
        let mut command = Command::new(&self.mpirun);
        command.args(["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]);
        command.args(["-n", &shape.ranks.to_string()]);
        command
    }

    fn environment(&self, mut command: Command) -> Command {
        command.env("OMPI_MCA_mpi_yield_when_idle", "1");
        self.own_choice(command)
    }

    /// The environment in which Open MPI decides itself whether waiting ranks yield.
    fn own_choice(&self, mut command: Command) -> Command {
        command.env("TMPDIR", self.folder.path());
        command
    }
}

/// Runs a command in turns under hydrant, an older hydrant if there is one, and prterun, with the floor in the same turn.
fn turns(
    plan: &Plan,
    openmpi: &OpenMpi,
    shape: Shape,
    mut one: impl FnMut(Command) -> Option<Vec<f64>>,
    floor: impl Fn() -> Option<Vec<f64>>,
) -> Vec<Columns> {
    let mut rows: Vec<Columns> = Vec::new();
    for _ in 0..plan.runs {
        let mut ours =
            |build| plan.hydrant(build, shape).and_then(|command| one(openmpi.environment(command)));
        let (new, old) = (ours(Build::New), ours(Build::Old));
        let theirs = one(openmpi.environment(openmpi.prterun(shape)));
        let figures = [new, old, theirs, floor()];
        let columns: [fn(&mut Columns) -> &mut Samples; 4] =
            [|row| &mut row.hydrant, |row| &mut row.old, |row| &mut row.peer, |row| &mut row.floor];
        for (figures, column) in figures.into_iter().zip(columns) {
            for (at, figure) in figures.into_iter().flatten().enumerate() {
                if rows.len() <= at {
                    rows.push(Columns::default());
                }
                column(&mut rows[at]).push(figure);
            }
        }
    }
    rows
}

/// Starting `true`, `MPI_Init` to `MPI_Finalize`, and the exchange by PMIx.
pub(crate) fn rows(plan: &Plan, openmpi: &OpenMpi, shape: Shape) -> Vec<Row> {
    let none = || None;
    let launched = |mut command: Command| {
        let finished = plan.noted(run(command.arg("/bin/true"), plan.limit))?;
        Some(vec![finished.took.as_secs_f64() * 1e3])
    };
    let launched = turns(plan, openmpi, shape, launched, none);
    let hello = |mut command: Command| {
        let finished = plan.noted(run(command.arg(&openmpi.times), plan.limit))?;
        let whole = plan.noted(span(&finished.stdout))?;
        Some(vec![whole, finished.took.as_secs_f64() * 1e3])
    };
    let hello = turns(plan, openmpi, shape, hello, none);
    let gets = f64::from(shape.ranks) * f64::from(shape.ranks);
    let figures =
        |moments: Moments| vec![moments.exchange() as f64 / 1e6, moments.gets() as f64 / 1e3 / gets];
    let exchange = |mut command: Command| {
        let own = plan.noted(own())?;
        command.arg(own).args(["rank-pmix", "--size", &shape.ranks.to_string()]);
        plan.noted(plan.moments(&mut command)).map(figures)
    };
    let echo = || plan.noted(floor::echo_pmix(shape.ranks, plan.limit)).map(figures);
    let exchange = turns(plan, openmpi, shape, exchange, echo);
    let named = [
        ("launch true, PMIx", "ms", Some(Target::OfPeer(0.4))),
        // Nearly all of the time is Open MPI's own.
        ("Init to Finalize, Open MPI 5", "ms", Some(Target::OfPeer(1.05))),
        ("hello, Open MPI 5", "ms", Some(Target::OfPeer(1.05))),
        // The echo alone takes half of the peer's time.
        ("PMIx exchange", "ms", Some(Target::OfFloor(1.4))),
        ("PMIx get", "us", None),
    ];
    let columns = [launched, hello, exchange].into_iter().flatten();
    columns
        .zip(named)
        .map(|(columns, (what, unit, target))| columns.plain(what, shape, unit, target))
        .collect()
}

/// Collectives that are timed together.
const COLLECTIVES: u32 = 200;

/// Barriers and allreduces of more ranks than processors: Open MPI 5 beside `mpirun`, MPICH 5 beside hydra.
pub(crate) fn crowded(plan: &Plan, openmpi: &OpenMpi, shape: Shape) -> Vec<Row> {
    let time = |mut command: Command, program: &PathBuf, what: &str| {
        let finished = run(command.arg(program).args([what, &COLLECTIVES.to_string()]), plan.limit);
        let whole = finished.and_then(|finished| span(&finished.stdout));
        plan.noted(whole).map(|whole| whole * 1e3 / f64::from(COLLECTIVES))
    };
    let row = |library: &str, what: &str, program: &PathBuf, peer: &dyn Fn() -> Option<Command>| {
        let mut columns = Columns::default();
        for _ in 0..plan.runs {
            for build in Build::BOTH {
                if let Some(command) = plan.hydrant(build, shape).filter(|_| !columns.of(build).failed()) {
                    columns.of(build).push_if(time(openmpi.own_choice(command), program, what));
                }
            }
            if let Some(command) = peer().filter(|_| !columns.peer.failed()) {
                columns.peer.push_if(time(command, program, what));
            }
        }
        columns.plain(&format!("crowded {what}, {library}"), shape, "us", Some(Target::OfPeer(1.5)))
    };
    let mpirun = || Some(openmpi.own_choice(openmpi.prterun(shape)));
    let hydra = || plan.hydra(shape);
    ["barrier", "allreduce"]
        .into_iter()
        .flat_map(|what| {
            [
                row("Open MPI 5", what, &openmpi.times, &mpirun),
                row("MPICH 5", what, &openmpi.times_mpich, &hydra),
            ]
        })
        .collect()
}

/// Milliseconds from the first rank's `MPI_Init` to the last rank's return from `MPI_Finalize`. Each rank prints both in
/// nanoseconds.
fn span(stdout: &str) -> Result<f64> {
    let (mut first, mut last) = (u64::MAX, 0_u64);
    for line in stdout.lines() {
        let (start, end) = line.split_once(' ').with_context(|| format!("{line:?} are not two times"))?;
        first = first.min(start.parse()?);
        last = last.max(end.parse()?);
    }
    Ok(last.checked_sub(first).context("no rank has printed times")? as f64 / 1e6)
}
