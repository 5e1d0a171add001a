//! The options, declared once: what is parsed, what help says and what the man page says come from here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Command};
use hydrant_core::Limit;
use hydrant_placement::CpuBinding;

use super::hosts::HostArgs;
use super::value::{self, Assignment, Universe};
use super::{help, offload};
use crate::cluster;
use crate::plan::Plugin;
use crate::probe;
use crate::replay;
use crate::serve;
use crate::universe;

/// Options that hold for the whole job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the whole job, before its first program")]
pub(super) struct JobArgs {
    /// Set a variable in the environment of every rank
    ///
    /// `NAME=VALUE` in one word is understood as well. Given twice for one name, the later one holds.
    #[arg(long, value_name = "NAME VALUE", value_parser = value::assignment(), action = ArgAction::Append)]
    pub(super) genv: Vec<Assignment>,

    /// Of hydrant's own environment, pass on these variables only
    ///
    /// Separated by commas; may be given several times. A variable that is not set is passed over.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(overrides_with_all = ["genvnone", "genvall"])]
    pub(super) genvlist: Vec<OsString>,

    /// Pass on nothing of hydrant's own environment
    ///
    /// What --genv and --env set is passed all the same. Of --genvall, --genvlist and --genvnone the last one holds.
    #[arg(long, overrides_with_all = ["genvlist", "genvall"])]
    pub(super) genvnone: bool,

    /// Pass on hydrant's whole environment (this is the default)
    #[arg(long, overrides_with_all = ["genvlist", "genvnone"])]
    pub(super) genvall: bool,

    /// Start each line of output with the rank that wrote it, as `[3] `
    ///
    /// Lines of the first spawned job start with `[1:3] `, of the second with `[2:3] `.
    #[arg(short = 'l', long)]
    pub(super) prepend_rank: bool,

    /// Write each rank's standard output to a file named by this pattern
    ///
    /// In the pattern %r is the rank, %p the process id, %h the host, %a the number of the program (from 0),
    /// %g the job (0, and from 1 on those that are spawned) and %% a percent sign. An existing file is replaced; ranks whose file names agree share
    /// the file.
    #[arg(long, value_name = "PATTERN", value_parser = value::pattern)]
    pub(super) outfile_pattern: Option<String>,

    /// Write each rank's standard error to a file named by this pattern
    ///
    /// The pattern is written as for --outfile-pattern.
    #[arg(long, value_name = "PATTERN", value_parser = value::pattern)]
    pub(super) errfile_pattern: Option<String>,

    /// Bind ranks to processors: none, core, hwthread or user:CPUS
    ///
    /// `core` gives each rank a core with all its hardware threads, `hwthread` one hardware thread, both round robin.
    /// `user:0+2,1+3` lists processor numbers as the kernel counts them: + joins those of one rank, a comma starts the
    /// next rank's, and the list starts over when there are more ranks.
    #[arg(long, value_name = "HOW", value_parser = value::bind, default_value = "none")]
    pub(super) bind_to: CpuBinding,

    /// What MPI_UNIVERSE_SIZE says: a number of processes, SYSTEM (processors here) or INFINITE (unset)
    #[arg(long, value_name = "N", value_parser = value::universe)]
    pub(super) usize: Option<Universe>,

    /// Read the programs from a file, one to a line
    ///
    /// A line is written as it would be on the command line: options, program, arguments. Quotes and backslash work as in
    /// a shell, # starts a comment, a backslash at the end continues the line. Options of the whole job may stand before
    /// --configfile or on the file's first line; no program may be named beside it.
    #[arg(long, value_name = "FILE")]
    pub(super) configfile: Option<PathBuf>,

    /// Let the other ranks go on when one fails
    ///
    /// Otherwise a rank that exits with an error, dies, or leaves without finalizing ends the job.
    #[arg(long)]
    pub(super) disable_auto_cleanup: bool,

    /// Serve PMI over TCP instead of an inherited socket
    ///
    /// Ranks then find PMI_PORT and PMI_ID in their environment instead of PMI_FD. The address is IP:PORT, port 0 is any
    /// free one. On a loopback address only processes of the same user are let in; any other address lets in whoever can
    /// reach it. On several hosts no address may be given: each has a free port on its loopback interface.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = value::PMI_PORT_DEFAULT)]
    pub(super) pmi_port: Option<SocketAddr>,

    /// Show process sets to unchanged MPI programs
    ///
    /// Ranks load libhydrant_mpi.so before their MPI library, MPICH 5 or another of its ABI or of MPI's standard one. Their
    /// MPI_Session_get_num_psets and the calls beside it then know hydrant's sets, too.
    #[arg(long)]
    pub(super) mpi_psets: bool,

    /// Run the protocol core in a sandbox
    ///
    /// FILE is the core as a WebAssembly plugin; without it, the file that the variable HYDRANT_WASM names, or hydrant.wasm
    /// beside hydrant or in ../lib from there. On several hosts all run this one, which their daemons are sent. The plugin can
    /// neither open files nor connect anywhere, its memory and time are bounded, and what it says is checked. Its compiled
    /// code is kept in the user's cache folder, on each host.
    #[arg(long, value_name = "FILE", value_parser = value::plugin())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) sandbox: Option<Plugin>,

    /// After how many seconds a waiting fence names the ranks it waits for
    ///
    /// A fence is what MPI_Init and PMI barriers wait in. Fractions are understood; 0 is never.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "30")]
    pub(super) fence_warning: Duration,

    /// How many seconds a look-up waits for a name that nobody has published yet
    ///
    /// MPI_Lookup_name fails when they are over. Fractions are understood; 0 is not at all.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0")]
    pub(super) lookup_wait: Duration,

    /// Share published names with the other runs that join the same `hydrant serve`
    ///
    /// PATH is the socket that it says it listens at. Without this option, names are known in this job and in those
    /// that it spawns.
    #[arg(long, value_name = "PATH", value_parser = universe::path())]
    pub(super) universe: Option<PathBuf>,

    /// Which version of PMI-1 is answered: 1.2, or 1.1 for clients that insist on it
    ///
    /// 1.2 offers barriers of groups of ranks. flux's client library wants 1.1.
    #[arg(long, value_name = "1.1|1.2", value_parser = value::pmi1_version, default_value = "1.2")]
    pub(super) pmi1_version: u32,

    /// Write all that the ranks and hydrant say to each other to a file, for 'hydrant replay'
    ///
    /// With every message come its time and what hydrant made of it, so that the file serves as a bug report. It holds
    /// whatever the ranks exchange, keys and values, the arguments of spawned programs: what is secret there is secret in it.
    /// What ranks read by themselves (HYDRANT_KVS) is not in it. On several hosts FILE has what the daemons tell the launcher,
    /// and each daemon writes what its ranks and its neighbours say to FILE.HOST, by the same path on its own host. They are made
    /// for you alone (mode 0600), in place of what is there. Where the disk is full, the recording ends and the job goes on.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,

    /// Change the size of one of the server's tables
    ///
    /// Each is fixed when the job starts and follows from the number of ranks. A request beyond it is refused with an
    /// error that names the limit; what is stored stays. The names are listed below, under "Limits".
    #[arg(long, value_name = "NAME=N", value_parser = value::limit, action = ArgAction::Append)]
    pub(super) limit: Vec<(Limit, u32)>,

    /// Say on standard error what is done
    #[arg(short, long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) hosts: HostArgs,
}

/// Options of one program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of one program, before its name")]
pub(super) struct ProgramArgs {
    /// How many ranks run the program; as many as the hosts have slots, where it is not said, and 1 without hosts
    #[arg(short, long = "np", value_name = "N", value_parser = value::ranks)]
    pub(super) n: Option<u32>,

    /// Set a variable in the environment of this program's ranks
    ///
    /// Holds over --genv. `NAME=VALUE` in one word is understood as well.
    #[arg(long, value_name = "NAME VALUE", value_parser = value::assignment(), action = ArgAction::Append)]
    pub(super) env: Vec<Assignment>,

    /// Of hydrant's own environment, pass on these variables only
    ///
    /// This and the two below hold over --genvlist, --genvnone and --genvall for this program.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(overrides_with_all = ["envnone", "envall"])]
    pub(super) envlist: Vec<OsString>,

    /// Pass on nothing of hydrant's own environment
    #[arg(long, overrides_with_all = ["envlist", "envall"])]
    pub(super) envnone: bool,

    /// Pass on hydrant's whole environment
    #[arg(long, overrides_with_all = ["envlist", "envnone"])]
    pub(super) envall: bool,

    /// Start the program in this directory
    ///
    /// A program named with a relative path is looked up from there.
    #[arg(long, value_name = "DIR")]
    pub(super) wdir: Option<PathBuf>,

    /// Put this program's ranks into a process set of this name
    ///
    /// May be given several times. Programs that stand side by side may share a set. Every rank is in mpi://WORLD,
    /// mpi://SELF, hydrant://node/HOST and hydrant://app/N (the number of its program) anyway.
    #[arg(long, value_name = "NAME", value_parser = value::pset_name, action = ArgAction::Append)]
    pub(super) pset: Vec<String>,
}

/// What stands before the first program.
#[derive(Args, Clone, Debug)]
pub(super) struct FirstArgs {
    #[command(flatten)]
    pub(super) program: ProgramArgs,
    #[command(flatten)]
    pub(super) job: JobArgs,
}

/// `run`, under the name that it is called by.
pub(super) fn run(name: &'static str, called: &str) -> Command {
    job(FirstArgs::augment_args(Command::new(name)), called)
        .about("Start a job and serve it")
        .long_about(help::RUN_ABOUT)
        .override_usage(format!(
            "{called} [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...\n       \
             {called} [OPTIONS] --configfile FILE"
        ))
        .after_long_help(help::run_after(called))
}

/// What commands that start a job have in common, under the name that they are called by.
pub(super) fn job(command: Command, called: &str) -> Command {
    command
        .bin_name(called.to_owned())
        .after_help(format!("'{called} --help' says more, with examples."))
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .next_help_heading(None::<&str>)
        .arg(version_flag())
        .args_override_self(true)
        .max_term_width(help::WIDTH)
}

/// The whole command.
pub(super) fn hydrant() -> Command {
    let probe = probe::Options::augment_args(Command::new("probe"))
        .about("A rank that checks and times the exchange: what to run for a first try")
        .long_about(help::PROBE_ABOUT)
        .after_long_help(help::PROBE_AFTER)
        .max_term_width(help::WIDTH);
    let replay = replay::Options::augment_args(Command::new("replay"))
        .about("Show what a run recorded, and check that the core still says the same")
        .long_about(help::REPLAY_ABOUT)
        .after_long_help(help::REPLAY_AFTER)
        .max_term_width(help::WIDTH);
    let serve = serve::Options::augment_args(Command::new("serve"))
        .about("Serve jobs that somebody else starts, or keep the names that separate runs publish")
        .long_about(help::SERVE_ABOUT)
        .after_long_help(help::SERVE_AFTER)
        .max_term_width(help::WIDTH);
    Command::new("hydrant")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A process manager for parallel (MPI) jobs")
        .long_about(help::ABOUT)
        .after_long_help(help::AFTER)
        .after_help(
            "'hydrant --help' says more, with examples; 'hydrant help run' lists the options of a job.",
        )
        .disable_version_flag(true)
        .arg(version_flag())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .max_term_width(help::WIDTH)
        .subcommand(run("run", "hydrant run"))
        .subcommand(offload::command())
        .subcommand(probe)
        .subcommand(replay)
        .subcommand(serve)
        .subcommand(cluster::ReachOptions::augment_args(Command::new("reach")).hide(true))
        // What follows its record is the launcher's and the daemon's business alone.
        .subcommand(
            Command::new("daemon").about("The daemon of a node, started by hydrant itself").hide(true),
        )
}

/// mpiexec calls it `-info` too.
fn version_flag() -> clap::Arg {
    clap::Arg::new("version")
        .short('V')
        .long("version")
        .visible_alias("info")
        .action(ArgAction::Version)
        .help("Print the version")
}
