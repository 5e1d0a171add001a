//! Times hydrant beside hydra, with the same client binary and in turns, and beside the floor: the bare system
//! calls that no process manager can do without. Then the core alone. Ends in one table.
//!
//! A figure is the median of its runs. The peer is hydra unless a row names another. `of peer` and `of floor` are
//! hydrant's figure divided by theirs.
//!
//! | row | time | floor |
//! |---|---|---|
//! | launch true | of the whole command, from its start to its end | a command that `posix_spawn`s as many processes and reaps them |
//! | exchange | from the first rank's put to the last rank's last get: put, fence, all ranks get all values | the same clients with an epoll loop that answers with prepared bytes and only counts fences |
//! | get | of that the gets, divided by their number | the same |
//! | launch, D daemons | of the whole command, whose ranks join, meet in a fence and leave, over D daemons on this machine: `--bootstrap local`, and hydra's proxies by `-launcher fork`. Not `true`: where some proxies are done before others have begun, hydra 5.0.2 dies of SIGPIPE | the echo server as a command, whose ranks put and meet, with D threads in place of daemons |
//! | exchange, get, D daemons | as above. Not over PMI-2, whose fence hydra 5.0.2 does not finish over several proxies | the echo server with D threads: no messages between daemons, and no switches between their address spaces |
//! | sandbox | of a server's start, the plugin's code compiled or cached; of the exchange and its gets under `hydrant run --sandbox`. And the length of the plugin's file | the same without the sandbox |
//! | launch true, PMIx | as `launch true`; the peer is prterun, the `mpirun` of Open MPI 5, here and in the other rows of PMIx | - |
//! | Init to Finalize; hello | of Open MPI 5: from the first rank's `MPI_Init` to the last rank's return from `MPI_Finalize`; of the whole command | - |
//! | crowded barrier, allreduce | of one of 200 in a row, of twice as many ranks as processors, where each library decides itself whether waiting ranks yield: Open MPI 5 beside `mpirun`, MPICH 5 beside hydra | - |
//! | PMIx exchange, get | commit, fence that collects, all ranks get all values; of that the gets, divided by their number | the same clients with an echo server as above, by TCP |
//! | libpmi2 get | of a `PMI2_KVS_Get`, as above: over our library, through the memory that hydrant shares with its ranks and through the socket; beside it Slurm's library under hydra 4.0.2, in both rows | - |
//! | PMI get, system calls; instructions | of the servers, for one get of the exchange: counts, which repeat on a busy machine. strace and valgrind count; without one of them its rows are left out. Instructions are those of the processes, without the kernel's | the echo server |
//! | core | of one command of 128 ranks: `handle` and `poll`, message decoded and reply encoded; n is the number of keys stored. PMIx: n is the number of ranks | - |
//!
//! The rows of the sandbox are in a build with the feature `sandbox`, and want `hydrant.wasm` where `HYDRANT_WASM` says.
//!
//! Ranks that exceed their processors are a session each under hydrant and hydra, and batch work (`SCHED_BATCH`) under hydrant and
//! the echo server. On a busy machine with `kernel.sched_autogroup_enabled` the ranks of the echo server, which are one session,
//! get a smaller share of processor time.
//!
//! A target is not judged where other work, or the machine that this one runs on, took more than a tenth of a processor
//! during its row. A missed target is printed and is no failure. Exit code 1 when something could not be run, or when a row is
//! more than 3 % slower than the build of `--compare` beyond chance (sign test of at least 7 runs, at 1 %), or takes 10 % more
//! system calls.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};

mod alone;
mod alone_pmix;
mod counts;
mod floor;
mod folder;
mod job;
mod library;
mod machine;
mod native;
mod openmpi;
mod pmi;
mod pmix;
mod rank;
#[cfg(feature = "sandbox")]
mod sandboxed;
mod table;

use folder::Folder;
use machine::{QUIET, Ticks};
use native::{Libraries, Plan, Shape};
use openmpi::OpenMpi;
use pmi::Pmi;
use table::Table;

/// Times hydrant beside hydra and beside the bare system calls.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Numbers of ranks [default: 2,16,64,128,256; over several daemons 64,128]
    #[arg(short, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    n: Vec<u32>,
    /// Numbers of daemons on this machine, for the rows of several
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16], value_parser = clap::value_parser!(u32).range(1..))]
    daemons: Vec<u32>,
    /// Runs of each, of which the median counts
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A look in seconds: 2, 16 and 128 ranks, 3 runs, at most 10,000 keys
    #[arg(long, conflicts_with_all = ["n", "runs", "daemons"])]
    quick: bool,
    /// Only these rows
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Part::ALL)]
    rows: Vec<Part>,
    /// hydrant's binary [default: `hydrant` beside this program]
    #[arg(long)]
    hydrant: Option<PathBuf>,
    /// hydrant's binary of another build, measured in the same turns. Exit code 1 if a row is more than 3 % slower beyond
    /// chance, which takes 7 runs, or has 10 % more system calls. Not in the rows of the core and of the sandbox
    #[arg(long, value_name = "HYDRANT")]
    compare: Option<PathBuf>,
    /// Hydra's mpiexec [default: peers/mpich/bin/mpiexec beside the build profile's folder, where tests/install puts it]
    #[arg(long)]
    hydra: Option<PathBuf>,
    /// Hydra 4.0.2's mpiexec, for the rows of libpmi2; the default is that of Debian
    #[arg(long, default_value = "/usr/bin/mpiexec.hydra")]
    hydra4: PathBuf,
    /// Slurm's libpmi2, for the same rows: a path, or a name that the system finds
    #[arg(long, default_value = "libpmi2.so.0")]
    slurm_libpmi2: OsString,
    /// Open MPI 5's folder, for the rows of PMIx [default: peers/openmpi beside the build profile's folder]
    #[arg(long)]
    openmpi: Option<PathBuf>,
    /// tests/clients/mpi_times.c, built by its mpicc [default: `mpi_times` beside this program]
    #[arg(long)]
    mpi_times: Option<PathBuf>,
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
    Daemons,
    Libpmi2,
    Pmix,
    Crowded,
    Counts,
    Core,
    #[cfg(feature = "sandbox")]
    Sandbox,
}

impl Part {
    const ALL: [Part; 9] = [
        Part::Launch,
        Part::Pmi1,
        Part::Pmi2,
        Part::Daemons,
        Part::Libpmi2,
        Part::Pmix,
        Part::Crowded,
        Part::Counts,
        Part::Core,
    ];
}

/// Numbers of ranks unless others are asked for, of jobs without daemons.
const RANKS: [u32; 5] = [2, 16, 64, 128, 256];

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
        /// Join the job, meet the others and leave, without an exchange
        #[arg(long, conflicts_with = "echo")]
        guest: bool,
        /// How often to get everything
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
    /// Is the echo server, and prints nothing
    #[command(hide = true)]
    Echo {
        /// The number of ranks
        #[arg(long)]
        size: u32,
        /// The number of threads that serve them
        #[arg(long, default_value_t = 1)]
        daemons: u32,
        /// The PMI version to speak
        #[arg(long)]
        pmi: Pmi,
        /// How often the ranks get everything
        #[arg(long)]
        rounds: u32,
        /// Seconds after which silent ranks are an error
        #[arg(long)]
        limit: u64,
    },
    /// Is a rank of a measured job of PMIx clients
    #[command(hide = true)]
    RankPmix {
        /// The number of ranks
        #[arg(long)]
        size: u32,
        /// The server is the echo server
        #[arg(long)]
        echo: bool,
    },
    /// Is a rank of a job of PMIx clients that enters fences in a row
    #[command(hide = true)]
    FencesPmix {
        /// How many
        count: u32,
        /// Length of the value that it commits before each, for ranks of other hosts
        bytes: usize,
    },
    /// Is a rank of a job of PMI-2 clients that exchange values with their neighbours
    #[command(hide = true)]
    Ring {
        /// How often
        count: u32,
    },
    /// Is a rank of a job over a libpmi2
    #[command(hide = true)]
    Libpmi2 {
        /// The library
        library: OsString,
        /// How often to get everything
        passes: u32,
        /// Do without the server's shared memory
        #[arg(long)]
        socket: bool,
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
        Some(Role::Rank { pmi, guest: true, .. }) => rank::guest(*pmi),
        Some(Role::Rank { pmi, echo: false, rounds, .. }) => rank::under_manager(*pmi, *rounds),
        Some(Role::Rank { pmi, echo: true, rounds, .. }) => rank::under_echo(*pmi, *rounds),
        &Some(Role::Echo { size, daemons, pmi, rounds, limit }) => {
            floor::echo(size, daemons, pmi, rounds, Duration::from_secs(limit)).map(drop)
        }
        Some(Role::RankPmix { size, echo: false }) => pmix::under_manager(*size),
        Some(Role::RankPmix { size, echo: true }) => pmix::under_echo(*size),
        Some(Role::FencesPmix { count, bytes }) => pmix::fences(*count, *bytes),
        &Some(Role::Ring { count }) => rank::ring(count),
        Some(Role::Libpmi2 { library, passes, socket }) => library::under_manager(library, *socket, *passes),
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
        arguments.daemons = vec![4];
        arguments.runs = 3;
    }
    let keys: &[u32] = if arguments.quick { &[1_000, 10_000] } else { &[1_000, 10_000, 100_000] };
    if let Some(old) = &arguments.compare {
        ensure!(old.exists(), "--compare {}: the file does not exist", old.display());
    }
    let plan = Plan {
        hydrant: hydrant(&arguments)?,
        old: arguments.compare.clone(),
        hydra: hydra(&arguments)?,
        libraries: libraries(&arguments)?,
        runs: arguments.runs,
        limit: Duration::from_secs(arguments.limit),
        failures: Cell::new(0),
    };
    let of_openmpi = [Part::Pmix, Part::Crowded].iter().any(|part| arguments.rows.contains(part));
    let openmpi = of_openmpi.then(|| open_mpi(&arguments)).transpose()?;
    let mut rows = Vec::new();
    for &part in &arguments.rows {
        for shape in shapes(&arguments, part) {
            eprintln!("bench: {part:?}{shape}");
            let (before, measured) = (Ticks::now()?, rows.len());
            match part {
                Part::Launch => rows.push(plan.launch(shape)),
                Part::Pmi1 => rows.extend(plan.exchange(shape, Pmi::V1)),
                Part::Pmi2 => rows.extend(plan.exchange(shape, Pmi::V2)),
                Part::Daemons => {
                    rows.push(plan.launch(shape));
                    rows.extend(plan.exchange(shape, Pmi::V1));
                }
                Part::Libpmi2 => rows.extend(plan.library_gets(shape)),
                Part::Pmix => {
                    rows.extend(openmpi.iter().flat_map(|openmpi| openmpi::rows(&plan, openmpi, shape)))
                }
                Part::Crowded => {
                    rows.extend(openmpi.iter().flat_map(|openmpi| openmpi::crowded(&plan, openmpi, shape)))
                }
                Part::Counts => rows.extend(counts::rows(&plan, shape)),
                Part::Core => {
                    rows.extend(plan.noted(alone::rows(keys, plan.runs)).into_iter().flatten());
                    rows.extend(plan.noted(alone_pmix::rows(plan.runs)).into_iter().flatten());
                }
                #[cfg(feature = "sandbox")]
                Part::Sandbox => rows.extend(sandboxed::rows(&plan, shape)),
            }
            let others = Some(Ticks::now()?.others_since(&before));
            // Counts are the same on a busy machine.
            let timed = rows[measured..].iter_mut().filter(|_| part != Part::Counts);
            timed.for_each(|row| row.others = others);
        }
    }
    println!("{}", circumstances(arguments.runs));
    print!("{}", Table(&rows));
    let busiest = rows.iter().filter_map(|row| row.others).fold(0.0, f64::max);
    if busiest > QUIET {
        let disturbed = rows.iter().filter(|row| row.disturbed()).count();
        println!(
            "{disturbed} rows were measured beside other work, which took up to {busiest:.1} processors"
        );
    }
    let failures = plan.failures.get();
    ensure!(failures == 0, "{failures} of the measurements failed");
    let slower = rows.iter().filter(|row| row.regressed()).count();
    ensure!(slower == 0, "{slower} rows are SLOWER than those of --compare: see --help");
    Ok(())
}

/// The jobs that a part of the table measures. One of no ranks stands for rows that have no processes and count keys.
fn shapes(arguments: &Arguments, part: Part) -> Vec<Shape> {
    let of = |otherwise: &[u32], daemons: u32| -> Vec<Shape> {
        let ranks = if arguments.n.is_empty() { otherwise } else { &arguments.n };
        ranks.iter().map(|&ranks| Shape { ranks, daemons }).collect()
    };
    match part {
        Part::Core => vec![Shape::NONE],
        #[cfg(feature = "sandbox")]
        Part::Sandbox => [vec![Shape::NONE], of(&RANKS, 0)].concat(),
        Part::Daemons => arguments.daemons.iter().flat_map(|&daemons| of(&[64, 128], daemons)).collect(),
        Part::Pmix => of(&[2, 16, 64], 0),
        Part::Crowded => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
            vec![Shape { ranks: 2 * processors, daemons: 0 }]
        }
        Part::Counts => of(&[16, 128], 0),
        Part::Launch | Part::Pmi1 | Part::Pmi2 | Part::Libpmi2 => of(&RANKS, 0),
    }
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

/// What the rows of libpmi2 are measured with, where they are wanted.
fn libraries(arguments: &Arguments) -> Result<Libraries> {
    let Arguments { hydra4, slurm_libpmi2, .. } = arguments;
    let own = std::env::current_exe()?.with_file_name("libhydrant_pmi2.so");
    let advice = "run tests/bench/run, which sees to it, or leave the row out by --rows";
    if arguments.rows.contains(&Part::Libpmi2) {
        ensure!(own.exists(), "{} is not there: {advice}", own.display());
    }
    if arguments.rows.contains(&Part::Libpmi2) && !arguments.without.contains(&Manager::Hydra) {
        ensure!(hydra4.exists(), "{} is not there: {advice}, or give --hydra4", hydra4.display());
        let loads = library::loads(slurm_libpmi2);
        let shown = Path::new(slurm_libpmi2).display();
        ensure!(loads, "{shown} cannot be loaded: {advice}, or give --slurm-libpmi2");
    }
    Ok(Libraries { own, hydra4: hydra4.clone(), slurm: slurm_libpmi2.clone() })
}

/// Open MPI 5, and the program that it runs.
fn open_mpi(arguments: &Arguments) -> Result<OpenMpi> {
    let own = std::env::current_exe()?;
    let installed = || own.parent()?.parent().map(|target| target.join("peers/openmpi"));
    let mpirun =
        arguments.openmpi.clone().or_else(installed).context("no folder for peers")?.join("bin/mpirun");
    let times = arguments.mpi_times.clone().unwrap_or_else(|| own.with_file_name("mpi_times"));
    let times_mpich = own.with_file_name("mpi_times_mpich");
    for path in [&mpirun, &times, &times_mpich] {
        let advice = "run tests/bench/run, which sees to it, or leave the row out by --rows";
        ensure!(path.exists(), "{} is not there: {advice}", path.display());
    }
    Ok(OpenMpi { mpirun, times, times_mpich, folder: Folder::new("openmpi")? })
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
