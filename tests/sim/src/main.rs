//! The long run of the simulator, and its measurements.

use std::error::Error;
use std::fmt::Debug;
use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use hydrant_overlay::RADIX_DEFAULT;
use hydrant_sim::{Scenario, chart, cluster, compare, exchange, memory, startup, tables, world};

/// Simulates the daemons of jobs on many nodes, each the real core, under a virtual clock.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Seeds {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Print each scenario or plan and its summary
    #[arg(long)]
    show: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenarios and check all invariants. The first violation is reported with its seed
    Run(Seeds),
    /// Run whole clusters, with head, daemons and processes, and check all invariants. The first violation is reported with
    /// its seed
    Cluster(Seeds),
    /// Run scenarios and whole clusters twice, the second time with servers that are restored from snapshots at random
    /// moments. All outputs must be the same. The first difference is reported with its seed
    Succeed(Seeds),
    /// Print the cost of a fence and the gets after it as a table, with collecting and with lazy fences
    Exchange {
        /// Maximum number of children of a node
        #[arg(long, default_value_t = RADIX_DEFAULT)]
        radix: u32,
        /// Maximum number of daemons. Those of more than 256 are calculated by models
        #[arg(long, default_value_t = 100_000)]
        nodes: u32,
        /// Write the table to this folder, in scaling.md
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
    },
    /// Print the memory of a server's tables, and where they end, as tables
    Memory {
        /// Write the tables to this folder, in scaling.md
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
    },
    /// Print the time until daemons run on many hosts as a table, from measured costs of one start
    Start,
    /// Print the cost of fences as a table
    Measure {
        /// Maximum number of children of a node
        #[arg(long, default_value_t = RADIX_DEFAULT)]
        radix: u32,
        /// Maximum number of nodes
        #[arg(long, default_value_t = 10_000)]
        nodes: u32,
        /// Gigabytes of memory that the simulation of one fence may take
        #[arg(long, value_name = "GB", default_value_t = 1)]
        memory: u64,
        /// Write tables and pictures to this folder, in scaling.md and as scaling.svg and fences.svg
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(seeds) => play("run", seeds, |seed| world::run(&Scenario::new(seed)), Scenario::new),
        Command::Cluster(seeds) => play("cluster", seeds, cluster::run, cluster::Plan::new),
        Command::Succeed(seeds) => {
            let run = |seed| (world::run_succeeded(&Scenario::new(seed)), cluster::run_succeeded(seed));
            let plan = |seed| (Scenario::new(seed), cluster::Plan::new(seed));
            play("succeed", seeds, run, plan)
        }
        Command::Exchange { radix, nodes, write } => finish(Page::open(write).and_then(|page| {
            let table = tables::exchanges(&exchange::rows(nodes, radix));
            show(page, &[("exchanges", table)])
        })),
        Command::Memory { write } => finish(Page::open(write).and_then(|page| show(page, &memory::tables()))),
        Command::Start => {
            println!("{}", startup::table());
            ExitCode::SUCCESS
        }
        Command::Measure { radix, nodes, memory, write } => finish(report(radix, nodes, memory, write)),
    }
}

fn finish(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays seeds until one violates an invariant.
fn play<S: Debug, P: Debug>(
    command: &str,
    seeds: Seeds,
    run: impl Fn(u64) -> S + RefUnwindSafe,
    plan: impl Fn(u64) -> P,
) -> ExitCode {
    let Seeds { seed: first, count, show } = seeds;
    for (done, seed) in (1u64..).zip(first..first + count) {
        if show {
            println!("{:#?}", plan(seed));
        }
        match catch_unwind(|| run(seed)) {
            Ok(summary) if show => println!("seed {seed}: {summary:?}"),
            Ok(_) if done.is_multiple_of(1000) => println!("{done} scenarios, all invariants hold"),
            Ok(_) => {}
            Err(_) => {
                eprintln!(
                    "sim: seed {seed} violates an invariant; repeat it with: sim {command} --seed {seed} --count 1 --show"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{count} scenarios from seed {first} on: all invariants hold");
    ExitCode::SUCCESS
}

fn report(radix: u32, nodes: u32, memory: u64, write: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    let page = Page::open(write)?;
    let memory = memory << 30;
    let points = compare::points(nodes, radix, memory);
    let rows = compare::rows(nodes, radix, memory);
    if let Some(Page { dir, .. }) = &page {
        chart::draw(&points, &dir.join("scaling.svg"))?;
        chart::draw_compared(&rows, &dir.join("fences.svg"))?;
    }
    let parts = [("times", tables::times(&points)), ("widths", tables::widths(&compare::widths(memory)))];
    show(page, &parts)
}

/// The page of the tables, in the folder of the documentation.
struct Page {
    dir: PathBuf,
    text: String,
}

impl Page {
    /// Reads the page, if there is a folder. Counting takes minutes, and an error is known before.
    fn open(dir: Option<PathBuf>) -> Result<Option<Page>, Box<dyn Error>> {
        let read = |dir: PathBuf| match fs::read_to_string(dir.join("scaling.md")) {
            Ok(text) => Ok(Page { dir, text }),
            Err(why) => Err(format!("{}: {why}", dir.join("scaling.md").display())),
        };
        Ok(dir.map(read).transpose()?)
    }
}

/// Prints tables, and writes them to the page.
fn show(page: Option<Page>, parts: &[(&str, String)]) -> Result<(), Box<dyn Error>> {
    for (_, table) in parts {
        println!("{table}");
    }
    if let Some(Page { dir, mut text }) = page {
        for (name, table) in parts {
            text = tables::replaced(&text, name, table).ok_or(format!("scaling.md has no table {name}"))?;
        }
        fs::write(dir.join("scaling.md"), text)?;
    }
    Ok(())
}
