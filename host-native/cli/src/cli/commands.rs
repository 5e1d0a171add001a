//! Commands of the `hydrant` binary, built from their options.

use clap::{ArgAction, ArgGroup, Args, Command};

use super::args::FirstArgs;
use super::completions::CompletionsArgs;
use super::doctor::DoctorArgs;
use super::fleet::{self, DownArgs, UpArgs};
use super::help;
use super::join::JoinArgs;
use super::man::ManArgs;
use super::offload::{self, OffloadArgs};
use super::serve::ServeArgs;
use super::version;
use crate::{observe, probe, reach, replay};

/// The whole command.
pub(super) fn hydrant() -> Command {
    Command::new("hydrant")
        .version(version::SHORT)
        .long_version(version::long())
        .about("Process manager for parallel (MPI) jobs")
        .long_about(help::ABOUT)
        .after_long_help(help::AFTER)
        .after_help("See 'hydrant --help' for examples and 'hydrant help run' for the options of a job.")
        .disable_version_flag(true)
        .arg(version_flag())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .max_term_width(help::WIDTH)
        .subcommand(run("run", "hydrant run"))
        .subcommand(offload())
        .subcommand(probe())
        .subcommand(replay())
        .subcommand(serve())
        .subcommand(join())
        .subcommand(up())
        .subcommand(down())
        .subcommands(observers())
        .subcommand(doctor())
        .subcommand(completions())
        .subcommand(man())
        .subcommand(reach::Options::augment_args(Command::new("reach")).hide(true))
        // Started by the launcher only. Its settings arrive on standard input.
        .subcommand(Command::new("daemon").about("Daemon of one node, started by hydrant itself").hide(true))
}

/// Returns whether the first argument begins a job: an option that `hydrant` itself does not have, or a program with a
/// slash.
pub(super) fn is_job(first: &str) -> bool {
    let own = ["-h", "--help", "-V", "--version", "--info", "-info"];
    first.contains('/') || first.len() > 1 && first.starts_with('-') && !own.contains(&first)
}

/// `run`, under the name that the user called it by.
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

/// `offload`, with the options of `run` that do not apply hidden.
pub(super) fn offload() -> Command {
    // Its --secret-file is the board's.
    let command = FirstArgs::augment_args(Command::new("offload"));
    let command = command.mut_arg("join_secret", |arg| arg.long("join-secret"));
    let command = OffloadArgs::augment_args(hide(command, offload::is_not_offloadable));
    job(command, "hydrant offload")
        .about("Start a job here and let a board serve it")
        .long_about(help::OFFLOAD_ABOUT)
        .override_usage(
            "hydrant offload --target HOST[:PORT] [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...",
        )
        .after_long_help(help::OFFLOAD_AFTER)
}

/// `up`, with the options of `run` that are those of jobs hidden.
pub(super) fn up() -> Command {
    let command = hide(FirstArgs::augment_args(Command::new("up")), |id| !fleet::is_of_up(id));
    let command = UpArgs::augment_args(command);
    job(command, "hydrant up")
        .about("Start a fleet: hosts with daemons that stay, for jobs of this user")
        .long_about(help::UP_ABOUT)
        .override_usage("hydrant up [--name NAME] [OPTIONS]")
        .after_long_help(help::UP_AFTER)
}

/// Hides options from help, all in one pass: `Command::mut_arg` moves all options that follow.
fn hide(command: Command, is_hidden: impl Fn(&str) -> bool) -> Command {
    command.mut_args(|arg| {
        let hidden = arg.is_hide_set() || is_hidden(arg.get_id().as_str());
        arg.hide(hidden)
    })
}

fn down() -> Command {
    let command = DownArgs::augment_args(Command::new("down"));
    described(command, "End a fleet and its jobs", help::DOWN_ABOUT, help::DOWN_AFTER)
}

/// Adds the texts of a command that starts no job.
fn described(
    command: Command,
    about: &'static str,
    long_about: &'static str,
    after: &'static str,
) -> Command {
    command.about(about).long_about(long_about).after_long_help(after).max_term_width(help::WIDTH)
}

fn probe() -> Command {
    let command = probe::Options::augment_args(Command::new("probe"));
    described(
        command,
        "Rank program that checks and times the PMI exchange",
        help::PROBE_ABOUT,
        help::PROBE_AFTER,
    )
}

fn replay() -> Command {
    let command = replay::Options::augment_args(Command::new("replay"));
    described(
        command,
        "Show a recording and check it against this build",
        help::REPLAY_ABOUT,
        help::REPLAY_AFTER,
    )
    .group(ArgGroup::new("timeline").args(["summary", "trace", "html"]).multiple(true))
}

fn serve() -> Command {
    let command = ServeArgs::augment_args(Command::new("serve"));
    described(
        command,
        "Serve jobs that other launchers start, or run a name server",
        help::SERVE_ABOUT,
        help::SERVE_AFTER,
    )
}

fn join() -> Command {
    let command = JoinArgs::augment_args(Command::new("join"));
    described(
        command,
        "Make this machine a host of a run that waits for it",
        help::JOIN_ABOUT,
        help::JOIN_AFTER,
    )
}

/// Commands that look at running jobs.
fn observers() -> [Command; 8] {
    let ps = observe::PsOptions::augment_args(Command::new("ps"));
    let status = observe::StatusOptions::augment_args(Command::new("status"));
    let kill = observe::KillOptions::augment_args(Command::new("kill"));
    let attach = observe::AttachOptions::augment_args(Command::new("attach"));
    let debug = observe::DebugOptions::augment_args(Command::new("debug"));
    let grow = observe::GrowOptions::augment_args(Command::new("grow"));
    let shrink = observe::ShrinkOptions::augment_args(Command::new("shrink"));
    let replace = observe::ReplaceOptions::augment_args(Command::new("replace"));
    [
        (ps, "List running jobs of this user", help::PS_ABOUT, help::PS_AFTER),
        (status, "Show what the ranks of a running job do", help::STATUS_ABOUT, help::STATUS_AFTER),
        (kill, "Send a signal to running jobs", help::KILL_ABOUT, help::KILL_AFTER),
        (attach, "Follow the output of a running job", help::ATTACH_ABOUT, help::ATTACH_AFTER),
        (debug, "Run a debugger on a rank of a running job", help::DEBUG_ABOUT, help::DEBUG_AFTER),
        (replace, "Replace the PMI server of a running job", help::REPLACE_ABOUT, help::REPLACE_AFTER),
        (grow, "Have hosts join a running job", help::GROW_ABOUT, help::GROW_AFTER),
        (shrink, "Have hosts leave a running job", help::SHRINK_ABOUT, help::SHRINK_AFTER),
    ]
    .map(|(command, about, long_about, after)| described(command, about, long_about, after))
}

fn doctor() -> Command {
    let command = DoctorArgs::augment_args(Command::new("doctor"));
    described(command, "Look for what keeps jobs from running here", help::DOCTOR_ABOUT, help::DOCTOR_AFTER)
}

fn completions() -> Command {
    let command = CompletionsArgs::augment_args(Command::new("completions"));
    described(
        command,
        "Print a script that completes hydrant's options in a shell",
        help::COMPLETIONS_ABOUT,
        help::COMPLETIONS_AFTER,
    )
}

fn man() -> Command {
    let command = ManArgs::augment_args(Command::new("man"));
    described(command, "Print a manual page", help::MAN_ABOUT, help::MAN_AFTER)
}

/// Settings that `run` and `offload` share.
fn job(command: Command, called: &str) -> Command {
    command
        .bin_name(called.to_owned())
        .after_help(format!("See '{called} --help' for details and examples."))
        .version(version::SHORT)
        .long_version(version::long())
        .disable_version_flag(true)
        .next_help_heading(None::<&str>)
        .arg(version_flag())
        .no_binary_name(true)
        .args_override_self(true)
        .max_term_width(help::WIDTH)
}

/// `--version`, with mpiexec's spelling `-info`.
fn version_flag() -> clap::Arg {
    clap::Arg::new("version")
        .short('V')
        .long("version")
        .visible_alias("info")
        .action(ArgAction::Version)
        .help("Print the version; as --version, also features, protocols and formats")
}
