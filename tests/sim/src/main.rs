//! The long run of the simulator, and its measurements.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hydrant_sim::{Scenario, chart, measure, world};

/// Simulates the daemons of jobs on many nodes, each the real core, under a virtual clock.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenarios and check all invariants. The first violation is reported with its seed
    Run {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Number of seeds
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// Print each scenario and its summary
        #[arg(long)]
        show: bool,
    },
    /// Print the cost of fences as a table
    Measure {
        /// Maximum number of children of a node
        #[arg(long, default_value_t = 16)]
        radix: u32,
        /// Maximum number of nodes
        #[arg(long, default_value_t = 1024)]
        nodes: u32,
        /// Write the table and a picture to this folder, as scaling.md and scaling.svg
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run { seed, count, show } => run(seed, count, show),
        Command::Measure { radix, nodes, write } => match report(radix, nodes, write) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("sim: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(first: u64, count: u64, show: bool) -> ExitCode {
    for (done, seed) in (first..first + count).enumerate() {
        let scenario = Scenario::new(seed);
        if show {
            println!("{scenario:#?}");
        }
        match catch_unwind(|| world::run(&scenario)) {
            Ok(summary) if show => println!("seed {seed}: {summary:?}"),
            Ok(_) if (done + 1) % 1000 == 0 => println!("{} scenarios, all invariants hold", done + 1),
            Ok(_) => {}
            Err(_) => {
                eprintln!(
                    "sim: seed {seed} violates an invariant; repeat it with: sim run --seed {seed} --count 1 --show"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{count} scenarios from seed {first} on: all invariants hold");
    ExitCode::SUCCESS
}

fn report(radix: u32, nodes: u32, write: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    // Checked first, because counting takes minutes.
    let page = |dir: PathBuf| match fs::read_to_string(dir.join("scaling.md")) {
        Ok(text) => Ok((dir, text)),
        Err(why) => Err(format!("{}: {why}", dir.join("scaling.md").display())),
    };
    let page = write.map(page).transpose()?;
    let mut costs = Vec::new();
    for (daemons, ranks) in measure::sizes(nodes) {
        eprintln!("{daemons} nodes, {ranks} ranks");
        costs.push(measure::fence(daemons, ranks, radix));
    }
    let table = measure::table(&costs);
    println!("{table}");
    if let Some((dir, text)) = page {
        chart::draw(&costs, &dir.join("scaling.svg"))?;
        // The table is the file's last part.
        let head = text.split("| nodes |").next().unwrap_or_default();
        fs::write(dir.join("scaling.md"), format!("{head}{table}"))?;
    }
    Ok(())
}
