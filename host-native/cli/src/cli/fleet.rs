//! Options of `hydrant up`, `hydrant down` and `hydrant run --on`: those of fleets, and those of `run` that do not apply.

use clap::Args;
use hydrant_placement::{Host, Hosts};
use hydrant_run::plan::{FleetOptions, JobArray, OnFleet, Plan, StdinTarget};

use super::argument::ParsedOption;
use super::error::UsageError;
use super::scanner::Segment;
use crate::value;

/// Name of a fleet that got none.
const NAME_DEFAULT: &str = "default";

/// Options of `hydrant up` alone.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Fleet options")]
pub(super) struct UpArgs {
    /// Name of the fleet: letters, digits, dots, dashes and underscores
    #[arg(long, value_name = "NAME", value_parser = value::fleet_name, default_value = NAME_DEFAULT)]
    name: String,

    /// Stay in the foreground, as a service manager wants it
    ///
    /// SIGTERM ends the fleet and its jobs. Without the option the command returns when the fleet is ready, and the fleet goes on
    /// without the terminal; its later messages go to standard error if that is a file.
    #[arg(long)]
    foreground: bool,

    /// The process that goes on when the command returns
    #[arg(long, hide = true)]
    detached: bool,
}

/// Identifiers of these options in clap.
const FLEET_OPTIONS: [&str; 3] = ["name", "foreground", "detached"];

/// Command line of `hydrant down`.
#[derive(Args, Clone, Debug)]
pub(super) struct DownArgs {
    /// Name of the fleet
    #[arg(value_name = "NAME", value_parser = value::fleet_name, default_value = NAME_DEFAULT)]
    pub(super) name: String,
}

/// Options of `run` that apply neither to a fleet nor to a job in one, by their identifiers in clap, with the reason.
const NOT_IN_FLEETS: [(&str, &str); 12] = [
    ("pmi_port", "ranks inherit their connections"),
    ("get_stack_traces", "the ranks are no children of this command"),
    ("rankmap", "ranks get the slots that are free"),
    ("preload_binary", "daemons that run already get no files"),
    ("preload_libs", "daemons that run already get no files"),
    ("preload_files", "daemons that run already get no files"),
    ("profile", "daemons that run already keep no times"),
    ("dry_run", "the ranks' hosts are not known before the job starts"),
    ("offload", "its daemons serve its jobs"),
    ("offload_file", "its daemons serve its jobs"),
    ("offload_secret", "its daemons serve its jobs"),
    ("usize", "its hosts have the same slots for all jobs"),
];

/// Options of `run` that a fleet has.
pub(super) const OF_UP: [&str; 23] = [
    "n",
    "hosts",
    "hostfile",
    "nodes",
    "elastic",
    "bootstrap",
    "expect",
    "join_secret",
    "join_port",
    "bootstrap_exec",
    "bootstrap_timeout",
    "remote_hydrant",
    "iface",
    "radix",
    "heartbeat",
    "sandbox",
    "spare",
    "name_server",
    "record",
    "limit",
    "report_uri",
    "topology",
    "verbose",
];

/// Those that its jobs have too.
const OF_BOTH: [&str; 2] = ["n", "verbose"];

/// Whether an option of `run` is one of `up` too.
pub(super) fn is_of_up(id: &str) -> bool {
    OF_UP.contains(&id)
}

/// Whether the option belongs to `up` alone.
pub(super) fn is_fleet_option(option: &ParsedOption) -> bool {
    FLEET_OPTIONS.contains(&option.id.as_str())
}

/// Checks the options of a job for a fleet.
pub(super) fn check_on<'a>(options: impl Iterator<Item = &'a ParsedOption>) -> Result<(), UsageError> {
    for option in options {
        check_any(option)?;
        if is_of_up(&option.id) && !OF_BOTH.contains(&option.id.as_str()) {
            let (location, option) = (option.location.clone(), option.spelling.clone());
            return Err(UsageError::OfFleet { location, option });
        }
    }
    Ok(())
}

/// Checks the options of `run` that a fleet is started with.
pub(super) fn check_up<'a>(options: impl Iterator<Item = &'a ParsedOption>) -> Result<(), UsageError> {
    for option in options {
        check_any(option)?;
        if !is_of_up(&option.id) {
            let (location, option) = (option.location.clone(), option.spelling.clone());
            return Err(UsageError::OfJob { location, option });
        }
    }
    Ok(())
}

/// Checks an option of a fleet or of a job in one.
fn check_any(option: &ParsedOption) -> Result<(), UsageError> {
    match NOT_IN_FLEETS.iter().find(|(id, _)| *id == option.id) {
        None => Ok(()),
        Some((_, why)) => {
            let (location, option) = (option.location.clone(), option.spelling.clone());
            Err(UsageError::NotInFleet { location, option, why })
        }
    }
}

/// Checks that the hosts of a job's programs are names only: the fleet has their slots.
pub(super) fn check_hosts(segments: &[Segment], program_hosts: &[(u32, Hosts)]) -> Result<(), UsageError> {
    for (appnum, hosts) in program_hosts {
        let options = &segments[*appnum as usize].options;
        let option = options.iter().find(|option| option.id == "host");
        let other = hosts.iter().find(|host| **host != Host::new(&host.name));
        if let Some((option, host)) = option.zip(other) {
            let (location, option) = (option.location.clone(), option.spelling.clone());
            return Err(UsageError::HostOfFleet { location, option, host: host.name.clone() });
        }
    }
    Ok(())
}

/// Makes a plan without a program that of a fleet.
pub(super) fn plan(mut plan: Plan, args: UpArgs) -> Plan {
    let UpArgs { name, foreground, detached } = args;
    plan.programs[0].command = format!("fleet {name}").into();
    plan.settings.stdin = StdinTarget::None;
    plan.options.timeout = None;
    plan.options.fleet = Some(FleetOptions { name, foreground, detached });
    plan
}

/// The fleet that a job runs in.
pub(super) fn on(name: Option<String>, no_wait: bool, array: Option<JobArray>) -> Option<OnFleet> {
    name.map(|name| OnFleet { name, waits: !no_wait, array })
}
