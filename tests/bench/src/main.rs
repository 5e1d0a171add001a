//! Times hydrant beside hydra, with the same client binary and in turns, and beside the floor: the bare system
//! calls that no process manager can do without. Then the core alone. Ends in one table.
//!
//! A figure is the median of its runs. `of hydra` and `of floor` are hydrant's figure divided by theirs.
//!
//! | row | time | floor |
//! |---|---|---|
//! | launch true | of the whole command, from its start to its end | a command that `posix_spawn`s as many processes and reaps them |
//! | exchange | from the first rank's put to the last rank's last get: put, fence, everybody gets everything | the same clients with an epoll loop that answers with prepared bytes and only counts fences |
//! | get | of that the gets, divided by their number | the same |
//! | core | of one command of 128 ranks: `handle` and `poll`, message decoded and reply encoded; n is the number of keys stored | - |
//!
//! A missed target is printed and is no failure. Exit code 1 when something could not be run.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};

mod alone;
mod floor;
mod job;
mod native;
mod pmi;
mod rank;
mod table;

use native::Plan;
use pmi::Pmi;
use table::Table;

/// Times hydrant beside hydra and beside the bare system calls.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Numbers of ranks
    #[arg(short, value_delimiter = ',', default_values_t = [2, 16, 64, 128, 256])]
    n: Vec<u32>,
    /// Runs of each, of which the median counts
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A look in seconds: 2, 16 and 128 ranks, 3 runs, at most 10,000 keys
    #[arg(long, conflicts_with_all = ["n", "runs"])]
    quick: bool,
    /// Only these rows
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Launch, Part::Pmi1, Part::Pmi2, Part::Core])]
    rows: Vec<Part>,
    /// hydrant's binary [default: `hydrant` beside this program]
    #[arg(long)]
    hydrant: Option<PathBuf>,
    /// Hydra's mpiexec [default: peers/mpich/bin/mpiexec beside the build profile's folder, where tests/install puts it]
    #[arg(long)]
    hydra: Option<PathBuf>,
    /// Leave a process manager out
    #[arg(long, value_delimiter = ',', value_enum)]
    without: Vec<Manager>,
    /// Seconds after which a job is ended and counts as failed
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Launch,
    Pmi1,
    Pmi2,
    Core,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Manager {
    Hydrant,
    Hydra,
}

/// What the program does when it is started by itself or by a process manager that it times.
#[derive(Debug, Subcommand)]
enum Role {
    /// Is a rank of a measured job
    #[command(hide = true)]
    Rank {
        /// The PMI version to speak
        #[arg(long)]
        pmi: Pmi,
        /// The server is the echo server
        #[arg(long)]
        echo: bool,
    },
    /// Starts a program so many times and reaps it
    #[command(hide = true)]
    Spawn {
        /// How many
        count: u32,
        /// What
        program: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.role {
        Some(Role::Rank { pmi, echo: false }) => rank::under_manager(*pmi),
        Some(Role::Rank { pmi, echo: true }) => rank::under_echo(*pmi),
        Some(Role::Spawn { count, program }) => floor::spawn_loop(*count, program),
        None => measure(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures every row and prints the table, also when a job could not be measured.
fn measure(mut arguments: Arguments) -> Result<()> {
    if arguments.quick {
        arguments.n = vec![2, 16, 128];
        arguments.runs = 3;
    }
    let keys: &[u32] = if arguments.quick { &[1_000, 10_000] } else { &[1_000, 10_000, 100_000] };
    ensure!(arguments.n.iter().all(|&n| n > 0), "-n: a job has at least one rank");
    let plan = Plan {
        hydrant: hydrant(&arguments)?,
        hydra: hydra(&arguments)?,
        runs: arguments.runs,
        limit: Duration::from_secs(arguments.limit),
        failures: Cell::new(0),
    };
    let mut rows = Vec::new();
    for part in &arguments.rows {
        // The core has no processes: its rows count keys.
        let sizes = if *part == Part::Core { &[0][..] } else { &arguments.n };
        for &n in sizes {
            eprintln!("bench: {part:?}{}", if n > 0 { format!(", {n} ranks") } else { String::new() });
            match part {
                Part::Launch => rows.push(plan.launch(n)),
                Part::Pmi1 => rows.extend(plan.exchange(n, Pmi::V1)),
                Part::Pmi2 => rows.extend(plan.exchange(n, Pmi::V2)),
                Part::Core => rows.extend(plan.noted(alone::rows(keys, plan.runs)).into_iter().flatten()),
            }
        }
    }
    println!("{}", circumstances(arguments.runs));
    print!("{}", Table(&rows));
    let failures = plan.failures.get();
    ensure!(failures == 0, "{failures} of the measurements failed");
    Ok(())
}

/// What a reader needs to know to compare two tables.
fn circumstances(runs: u32) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("medians of {runs} runs on {cores} cores (load average at the end: {load})")
}

fn hydrant(arguments: &Arguments) -> Result<Option<PathBuf>> {
    if arguments.without.contains(&Manager::Hydrant) {
        return Ok(None);
    }
    let beside = || Ok::<_, anyhow::Error>(std::env::current_exe()?.with_file_name("hydrant"));
    let path = arguments.hydrant.clone().map_or_else(beside, Ok)?;
    ensure!(
        path.exists(),
        "{} is not there: run tests/bench/run, which builds it, or give --hydrant",
        path.display()
    );
    Ok(Some(path))
}

fn hydra(arguments: &Arguments) -> Result<Option<PathBuf>> {
    if arguments.without.contains(&Manager::Hydra) {
        return Ok(None);
    }
    let own = std::env::current_exe()?;
    let installed = || own.parent()?.parent().map(|target| target.join("peers/mpich/bin/mpiexec"));
    let path = arguments.hydra.clone().or_else(installed).context("no folder for peers")?;
    let advice = "run tests/bench/run, which installs it, or give --hydra or --without hydra";
    let version = Command::new(&path).arg("--version").output();
    let version = version.with_context(|| format!("{} does not run: {advice}", path.display()))?;
    let text = String::from_utf8_lossy(&version.stdout);
    ensure!(text.contains("HYDRA"), "{} is not hydra's mpiexec: {advice}", path.display());
    Ok(Some(path))
}
