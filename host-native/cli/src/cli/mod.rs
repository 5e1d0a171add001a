//! Command line: parsing of arguments into an [`Action`].
//!
//! Options are declared with clap in `args`, `hosts` and `offload`. `run`, `offload` and the name `mpiexec` use mpiexec's
//! syntax: `scanner` rewrites it for clap. All other commands use clap's parser.

mod args;
mod argument;
mod binding;
mod boards;
mod commands;
mod completions;
mod configfile;
mod conflict;
mod doctor;
mod environment;
mod error;
mod fleet;
mod foreign;
mod help;
mod hosts;
mod join;
mod man;
mod mapping;
mod offload;
mod scanner;
mod serve;
mod similar;
#[cfg(test)]
mod tests;
mod variables;
mod version;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use hydrant_doctor::Question;
use hydrant_placement::HostSource;
use hydrant_run::JoinOptions;
use hydrant_run::plan::{LinePrefix, Offload, Options, Plan, Prefix, Program, RunSettings, StdinTarget};
use thiserror::Error;

pub use argument::Location;
pub use error::UsageError;

use crate::observe;
use crate::probe;
use crate::reach;
use crate::replay;
use crate::value::{Timeout, pset_name};
use args::{FirstArgs, JobArgs, ProgramArgs};
use argument::{Argument, ParsedOption, escaped};
use environment::{Environment, EnvironmentOptions};
use scanner::{EarlyExit, Scanner, Segment};
use serve::{ServeArgs, Server};

/// Request of a command line.
#[derive(Debug)]
pub enum Action {
    /// `run`, `offload`: start a job and serve it.
    Run(Box<Plan>),
    /// `probe`: take part in a job as one of its ranks.
    Probe(probe::Options),
    /// `serve --size`, `serve --manage`: serve ranks that another system starts.
    Serve(Box<hydrant_serve::Options>),
    /// `serve`, `serve --name-server`: run a name server.
    NameServer(hydrant_names::Options),
    /// `replay`: show and check a recording.
    Replay(replay::Options),
    /// `doctor`: check this machine.
    Doctor(Box<Question>),
    /// `daemon`: run the daemon of a node. Its settings arrive on standard input.
    Daemon,
    /// `up`: start a fleet.
    Up(Box<Plan>),
    /// `down`: end the fleet of this name.
    Down(String),
    /// `join`: make this machine a host of a run.
    Join(Box<JoinOptions>),
    /// `reach`: start daemons on hosts and report which of them connect.
    Reach(reach::Options),
    /// `ps`, `status`, `kill`, `attach`, `debug`, `replace`, `grow`, `shrink`: look at running jobs.
    Observe(Box<observe::Command>),
    /// `--help`, `--version`, `completions`, `man`: print this text on standard output.
    Print(String),
}

/// Invalid command line.
#[derive(Debug, Error)]
pub enum CliError {
    /// Error in the command line of a job.
    #[error("{error}{}\nFor more information, try '{called} --help'.", hint_line(error.hint()))]
    Usage {
        /// The command as it was called.
        called: String,
        /// The error.
        #[source]
        error: Box<UsageError>,
        /// File of `--json`, as far as the command line can be understood.
        json: Option<PathBuf>,
    },
    /// Error in the command line of another command.
    #[error("{}", clap_message(.0))]
    Clap(clap::Error),
    /// Missing command. The text is the short help.
    #[error("{0}")]
    NoCommand(String),
}

/// Exit code for an invalid command line.
pub const EXIT_USAGE: u8 = 2;

fn hint_line(hint: Option<String>) -> String {
    hint.map_or_else(String::new, |hint| format!("\nhint: {hint}"))
}

/// Clap's message in the form of the other messages: without `error:` and blank lines, and with `hint:` for `tip:`.
fn clap_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.strip_prefix("error: ").unwrap_or(&text).lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty());
    let lines = lines.map(|line| match line.strip_prefix("  tip: ") {
        Some(tip) => format!("hint: {tip}"),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Parses a command line. `arguments` starts with the name of the program. `environment` reads that of this process, if the command
/// depends on it.
///
/// With the program name `mpiexec` or `mpirun`, with or without an extension, the arguments are those of `hydrant run`.
/// The only file read is the one given with `--configfile`.
///
/// # Errors
/// The command line is invalid.
pub fn parse(
    arguments: Vec<OsString>,
    environment: impl FnOnce() -> Vec<(OsString, OsString)>,
) -> Result<Action, CliError> {
    let called =
        arguments.first().and_then(|first| Path::new(first).file_name()).unwrap_or(OsStr::new("hydrant"));
    let stem = called.to_string_lossy().split('.').next().unwrap_or_default().to_owned();
    let is_mpiexec = matches!(stem.as_str(), "mpiexec" | "mpirun" | "hydrant-mpiexec");
    // Every run on several hosts starts daemons. The options of all other commands need not be built for one.
    if !is_mpiexec && arguments.len() == 2 && arguments[1] == "daemon" {
        return Ok(Action::Daemon);
    }
    let environment = environment();
    if is_mpiexec {
        let command = commands::run("run", &stem);
        return parse_job(&stem, command, arguments.into_iter().skip(1), &environment);
    }
    let of_command = |skipped| arguments.iter().skip(skipped).cloned();
    match arguments.get(1).and_then(|command| command.to_str()) {
        Some(first) if commands::is_job(first) => {
            parse_job("hydrant", commands::run("run", "hydrant"), of_command(1), &environment)
        }
        Some("run") => {
            let called = "hydrant run";
            parse_job(called, commands::run("run", called), of_command(2), &environment)
        }
        Some("up") => parse_job("hydrant up", commands::up(), of_command(2), &environment),
        Some("offload") => parse_job("hydrant offload", commands::offload(), of_command(2), &environment),
        Some("doctor" | "grow" | "shrink") => {
            parse_other(arguments.into_iter().map(with_two_dashes).collect(), &environment)
        }
        _ => parse_other(arguments, &environment),
    }
}

/// A long option with one dash, as in mpiexec, gets its second.
fn with_two_dashes(argument: OsString) -> OsString {
    match argument.as_encoded_bytes() {
        [b'-', second, _, ..] if *second != b'-' => OsString::from_iter([OsStr::new("-"), &argument]),
        _ => argument,
    }
}

/// Parses the commands that have clap's syntax.
fn parse_other(arguments: Vec<OsString>, environment: &Environment) -> Result<Action, CliError> {
    let matches = match commands::hydrant().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) if error.exit_code() == 0 => return Ok(Action::Print(error.to_string())),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(CliError::NoCommand(error.to_string()));
        }
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => {
            let odd = (0..).zip(&arguments).find(|(_, argument)| argument.to_str().is_none());
            let (number, argument) = odd.expect("clap has found one");
            let why = format!("argument {number}: '{}' is not UTF-8\n", escaped(argument));
            return Err(CliError::Clap(commands::hydrant().error(ErrorKind::InvalidUtf8, why)));
        }
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
            let of_help = arguments.get(1).is_some_and(|command| command == "help");
            return Err(CliError::Clap(unknown_command(error, of_help)));
        }
        Err(error) => {
            return Err(CliError::Clap(with_job_hint(with_value_hint(error, &arguments), &arguments)));
        }
    };
    let (command, matches) = matches.subcommand().expect("clap requires a subcommand");
    let action = match command {
        "serve" => served(matches),
        "daemon" => Ok(Action::Daemon),
        "join" => join::JoinArgs::from_arg_matches(matches)
            .map(|options| Action::Join(Box::new(options.into_options(environment)))),
        "down" => fleet::DownArgs::from_arg_matches(matches).map(|args| Action::Down(args.name)),
        "reach" => reach::Options::from_arg_matches(matches).map(Action::Reach),
        "replay" => replay::Options::from_arg_matches(matches).map(Action::Replay),
        "probe" => probe::Options::from_arg_matches(matches).map(Action::Probe),
        "ps" => observed(observe::PsOptions::from_arg_matches(matches), observe::Command::Ps),
        "status" => observed(observe::StatusOptions::from_arg_matches(matches), observe::Command::Status),
        "kill" => observed(observe::KillOptions::from_arg_matches(matches), observe::Command::Kill),
        "attach" => observed(observe::AttachOptions::from_arg_matches(matches), observe::Command::Attach),
        "debug" => observed(observe::DebugOptions::from_arg_matches(matches), observe::Command::Debug),
        "replace" => observed(observe::ReplaceOptions::from_arg_matches(matches), observe::Command::Replace),
        "grow" => observed(observe::GrowOptions::from_arg_matches(matches), observe::Command::Grow),
        "shrink" => observed(observe::ShrinkOptions::from_arg_matches(matches), observe::Command::Shrink),
        "completions" => completions::CompletionsArgs::from_arg_matches(matches)
            .map(|options| Action::Print(completions::script(options.shell, commands::hydrant()))),
        "doctor" => doctor::DoctorArgs::from_arg_matches(matches)
            .map(|options| Action::Doctor(Box::new(options.into_question(environment)))),
        "man" => man_page(matches).map(Action::Print),
        _ => unreachable!("run, offload and up are parsed elsewhere, and clap refuses other names"),
    };
    action.map_err(CliError::Clap)
}

fn observed<T>(
    options: Result<T, clap::Error>,
    command: fn(T) -> observe::Command,
) -> Result<Action, clap::Error> {
    options.map(|options| Action::Observe(Box::new(command(options))))
}

/// Replaces clap's suggestions for an unknown command, which may be the name of a program, but not behind `help`.
fn unknown_command(mut error: clap::Error, of_help: bool) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand).cloned() {
        let hydrant = commands::hydrant();
        let names = hydrant.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        let hint = match similar::nearest(&name, names.chain(["help"])) {
            Some(near) => format!("a similar command exists: '{near}'"),
            None if of_help => "'hydrant help' lists the commands".to_owned(),
            None if name == "version" => "write 'hydrant --version'".to_owned(),
            None => format!("to start a program write 'hydrant run {name}'"),
        };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// Adds a hint to the error of an argument that is left over because it follows an option with a value after `=` only.
fn with_value_hint(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let is_excess = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => !argument.starts_with('-'),
        _ => false,
    };
    if error.kind() != ErrorKind::UnknownArgument || !is_excess {
        return error;
    }
    let hydrant = commands::hydrant();
    let command = arguments.get(1).and_then(|name| hydrant.find_subcommand(name));
    let long = |option: &OsString| {
        let name = option.to_str()?.strip_prefix("--")?;
        let mut options = command?.get_arguments().filter(|arg| arg.is_require_equals_set());
        options.any(|arg| arg.get_long() == Some(name)).then(|| name.to_owned())
    };
    let detached = arguments.windows(2).find_map(|pair| Some((long(&pair[0])?, &pair[1])));
    if let Some((name, value)) = detached.filter(|(_, value)| !value.as_encoded_bytes().starts_with(b"-")) {
        let hint = format!("--{name} takes its value after '=': --{name}={}", escaped(value));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// Adds a hint to the error of a command for running jobs: how to find them, and how to write a signal.
fn with_job_hint(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let command = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let of_jobs = ["status", "kill", "attach", "debug", "replace", "grow", "shrink"].contains(&command);
    let lacks_job = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|name| name.starts_with("<JOB>")),
        _ => false,
    };
    let signal = arguments.get(2).and_then(|word| word.to_str()?.strip_prefix('-'));
    let hint = match (error.kind(), signal) {
        (ErrorKind::MissingRequiredArgument, _) if of_jobs && lacks_job => {
            "'hydrant ps' lists running jobs by their PIDs".to_owned()
        }
        (ErrorKind::UnknownArgument, Some(signal)) if command == "kill" && !signal.starts_with('-') => {
            format!("write --signal {signal}")
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    error
}

fn served(matches: &ArgMatches) -> Result<Action, clap::Error> {
    let options = ServeArgs::from_arg_matches(matches)?;
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    match options.check(given) {
        Ok(()) => Ok(match options.into_server() {
            Server::Ranks(options) => Action::Serve(options),
            Server::Names(options) => Action::NameServer(options),
        }),
        Err(why) => {
            let mut command = commands::hydrant();
            command.build();
            let serve = command.find_subcommand_mut("serve").expect("hydrant has this subcommand");
            Err(serve.error(ErrorKind::ArgumentConflict, why))
        }
    }
}

fn man_page(matches: &ArgMatches) -> Result<String, clap::Error> {
    let options = man::ManArgs::from_arg_matches(matches)?;
    man::of(options.command.as_deref(), commands::hydrant())
        .map_err(|why| commands::hydrant().error(ErrorKind::InvalidValue, why))
}

/// Command in mpiexec's syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobCommand {
    Run,
    Offload,
    Up,
}

/// Parses a command line in mpiexec's syntax.
fn parse_job(
    called: &str,
    command: Command,
    arguments: impl Iterator<Item = OsString>,
    environment: &Environment,
) -> Result<Action, CliError> {
    let of = match command.get_name() {
        "offload" => JobCommand::Offload,
        "up" => JobCommand::Up,
        _ => JobCommand::Run,
    };
    let arguments: Vec<Argument> = (1..)
        .zip(arguments)
        .map(|(number, text)| Argument { text, location: Location::Argument(number) })
        .collect();
    let program_options = ProgramArgs::augment_args(Command::new("program"));
    let mut scanner = Scanner::new(command, program_options, environment);
    let planned = scan(&scanner, called, &arguments, of)
        .and_then(|segments| plan(segments, scanner.command(), environment, of).map_err(EarlyExit::from));
    match planned {
        Ok(plan) if of == JobCommand::Up => Ok(Action::Up(Box::new(plan))),
        Ok(plan) => Ok(Action::Run(Box::new(plan))),
        Err(EarlyExit::Help { long: true }) => {
            Ok(Action::Print(scanner.command().render_long_help().to_string()))
        }
        Err(EarlyExit::Help { long: false }) => {
            Ok(Action::Print(scanner.command().render_help().to_string()))
        }
        Err(EarlyExit::Version { long: true }) => {
            Ok(Action::Print(commands::hydrant().render_long_version()))
        }
        Err(EarlyExit::Version { long: false }) => Ok(Action::Print(commands::hydrant().render_version())),
        Err(EarlyExit::Usage(error)) => {
            let json = scanner.json(&arguments);
            Err(CliError::Usage { called: called.to_owned(), error: Box::new(error), json })
        }
    }
}

/// Scans the command line, or the configuration file that it names. Each segment of the result has a program, and
/// only the first has job options: those of later programs apply to the whole job, as in hydra, and may not differ from earlier
/// ones.
fn scan(
    scanner: &Scanner<'_>,
    called: &str,
    arguments: &[Argument],
    of: JobCommand,
) -> Result<Vec<Segment>, EarlyExit> {
    let mut segments = scanner.segments(arguments, &Location::Argument(arguments.len() + 1))?;
    if of == JobCommand::Up {
        let program = segments.iter().find(|segment| !segment.command.is_empty());
        return match program.or(segments.get(1)) {
            Some(segment) => Err(UsageError::ProgramOfFleet { location: segment.location.clone() }.into()),
            None => Ok(segments),
        };
    }
    let mut files = segments[0].options.iter().filter(|option| option.id == "configfile");
    if let Some(file) = files.next_back().map(|option| Path::new(option.value()).to_owned()) {
        segments = scan_file(scanner, segments, &file)?;
    }
    let is_alone = segments.len() == 1;
    let lacks_program = |segment: &&Segment| segment.command.first().is_none_or(|program| program.is_empty());
    if is_alone && hosts::may_bring_program(&segments[0]) {
        return Ok(segments);
    }
    if let Some(segment) = segments.iter().find(lacks_program) {
        // The program may have been taken for the value of the last option.
        let last =
            segment.options.last().filter(|last| segment.command.is_empty() && !last.value().is_empty());
        last.map_or(Ok(()), |last| typed::<FirstArgs>(std::slice::from_ref(last)).map(|_| ()))?;
        let is_number = |value: &OsStr| value.to_str().is_some_and(|text| text.parse::<f64>().is_ok());
        let taken = last.filter(|last| !is_number(last.value()));
        let taken = taken.map(|last| (last.spelling.clone(), escaped(last.value())));
        return Err(match is_alone && matches!(segment.location, Location::Argument(_)) {
            true => UsageError::Empty { called: called.to_owned(), taken }.into(),
            false => UsageError::MissingProgram { location: segment.location.clone(), taken }.into(),
        });
    }
    let (first, others) = segments.split_first_mut().expect("a command line has at least one segment");
    for segment in others {
        first.notes.append(&mut segment.notes);
        let earlier = first.options.len();
        let of_job: Vec<ParsedOption> =
            segment.options.extract_if(.., |option| option.is_job_option).collect();
        for (at, option) in of_job.iter().enumerate() {
            if option.id == "configfile" {
                let (location, option) = (option.location.clone(), option.spelling.clone());
                return Err(UsageError::Misplaced { location, option }.into());
            }
            let subject = option.subject();
            // The last one of a program is used.
            if of_job[at + 1..].iter().any(|later| later.subject() == subject) {
                continue;
            }
            let same = first.options[..earlier].iter().rfind(|earlier| earlier.subject() == subject);
            match same.map(|same| (same, same.canonical == option.canonical)) {
                Some((_, true)) => continue,
                Some((same, false)) => {
                    let (location, other) = (option.location.clone(), same.shown());
                    return Err(UsageError::Differs { location, option: option.shown(), other }.into());
                }
                None => {}
            }
            first.notes.push(format!("{} applies to the whole job", option.spelling));
            first.options.push(option.clone());
        }
    }
    Ok(segments)
}

/// Scans a configuration file. Job options of the command line precede those of its first line.
fn scan_file(scanner: &Scanner<'_>, line: Vec<Segment>, file: &Path) -> Result<Vec<Segment>, EarlyExit> {
    let excess = |location: &Location, argument: &str| {
        let (location, argument) = (location.clone(), argument.to_owned());
        EarlyExit::from(UsageError::WithConfigFile { location, argument })
    };
    if let Some(option) = line[0].options.iter().find(|option| !option.is_job_option) {
        return Err(excess(&option.location, &option.spelling));
    }
    if let Some(command) = line[0].command.first() {
        return Err(excess(&line[0].location, &escaped(command)));
    }
    if line.len() > 1 {
        return Err(excess(&line[0].location, ":"));
    }
    let mut segments = Vec::new();
    for arguments in configfile::read(file)? {
        let end = arguments.last().map_or(Location::Argument(0), |last| last.location.clone());
        segments.extend(scanner.segments(&arguments, &end)?);
    }
    let mut options = segments.iter().flat_map(|segment| &segment.options);
    if let Some(option) = options.find(|option| option.id == "configfile") {
        return Err(UsageError::NestedConfigFile { location: option.location.clone() }.into());
    }
    let mut first = line.into_iter().next().expect("a command line has at least one segment");
    first.options.append(&mut segments[0].options);
    first.notes.append(&mut segments[0].notes);
    (segments[0].options, segments[0].notes) = (first.options, first.notes);
    Ok(segments)
}

/// Converts scanned segments into a plan. `command` has the options of the first one.
fn plan(
    mut segments: Vec<Segment>,
    command: &mut Command,
    environment: &Environment,
    of: JobCommand,
) -> Result<Plan, UsageError> {
    let all = std::mem::take(&mut segments[0].options);
    let matches = matches(command, &all)?;
    let notes = std::mem::take(&mut segments[0].notes);
    let is_own = |option: &ParsedOption| match of {
        JobCommand::Run => false,
        JobCommand::Offload => offload::is_board_option(option),
        JobCommand::Up => fleet::is_fleet_option(option),
    };
    let (own_options, run_options): (Vec<_>, Vec<_>) = all.into_iter().partition(is_own);
    segments[0].options = run_options;
    let others = || segments.iter().flat_map(|segment| &segment.options);
    let board = match of {
        JobCommand::Offload => Some(offload::plan(from_matches(&matches, &own_options)?, others())?),
        JobCommand::Run | JobCommand::Up => None,
    };
    let fleet = match of {
        JobCommand::Up => {
            fleet::check_up(others())?;
            Some(from_matches(&matches, &own_options)?)
        }
        JobCommand::Run | JobCommand::Offload => None,
    };
    if others().any(|option| option.id == "on") {
        fleet::check_on(others())?;
    }
    let segments = &segments[..];
    let (first, others) = segments.split_first().expect("a command line has at least one segment");
    let FirstArgs { program, job } = from_matches(&matches, &first.options)?;
    let mut fill = Vec::from_iter(program.n.is_none().then_some(0));
    let mut program_hosts = Vec::from_iter(program.host.clone().map(|hosts| (0, hosts)));
    let mut programs = vec![plan_program(first, program, &job, environment)];
    for (appnum, segment) in (1..).zip(others) {
        let program: ProgramArgs = typed(&segment.options)?;
        program_hosts.extend(program.host.clone().map(|hosts| (appnum, hosts)));
        fill.extend(program.n.is_none().then_some(appnum));
        programs.push(plan_program(segment, program, &job, environment));
    }
    let mut ranks = 0u32;
    for (segment, program) in segments.iter().zip(&programs) {
        ranks = ranks
            .checked_add(program.ranks)
            .ok_or_else(|| UsageError::TooManyRanks { location: segment.location.clone() })?;
    }
    check_psets(segments, &programs)?;
    let all_name_hosts = program_hosts.len() == programs.len();
    let is_filled = !fill.is_empty();
    let (settings, mut options) = plan_options(job, &first.options, environment, all_name_hosts, board)?;
    if options.on.is_some() {
        fleet::check_hosts(segments, &program_hosts)?;
    }
    if let Some(join) = &mut options.cluster.join {
        join.with_programs = first.command.is_empty() && fleet.is_none();
        hosts::check_join(join, segments, is_filled)?;
    }
    let placement = &mut options.cluster.placement;
    placement.fill = fill;
    match (programs.len(), program_hosts.pop(), &placement.hosts) {
        (1, Some((appnum, hosts)), _) if options.on.is_some() => {
            placement.program_hosts = vec![(appnum, hosts)];
        }
        // The hosts of the only program are those of the job.
        (1, Some((_, hosts)), HostSource::Allocation) => placement.hosts = HostSource::List(hosts),
        (_, last, _) => {
            program_hosts.extend(last);
            placement.program_hosts = program_hosts;
        }
    }
    if !placement.program_hosts.is_empty() {
        let all: Vec<ParsedOption> = segments.iter().flat_map(|segment| &segment.options).cloned().collect();
        for (other, why) in [
            ("rankmap", "the rank map names the host of each rank"),
            ("nodes", "-host names the hosts of a program"),
        ] {
            conflict::conflict(&all, "host", other, why)?;
        }
    }
    let plan = Plan { programs, settings, options, notes };
    Ok(match fleet {
        Some(args) => fleet::plan(plan, args),
        None => plan,
    })
}

/// Checks that programs with a common process set are adjacent. A set is a contiguous range of ranks.
fn check_psets(segments: &[Segment], programs: &[Program]) -> Result<(), UsageError> {
    for (index, program) in programs.iter().enumerate().skip(2) {
        let is_new = |name: &&String| !programs[index - 1].psets.contains(name);
        let is_used = |name: &&String| programs[..index - 1].iter().any(|before| before.psets.contains(name));
        if let Some(name) = program.psets.iter().filter(is_new).find(is_used) {
            let mut options = segments[index].options.iter().rev();
            let names =
                |value: &OsStr| value.to_str().is_some_and(|text| pset_name(text).as_ref() == Ok(name));
            let option = options.find(|option| option.id == "pset" && names(option.value()));
            let option = option.expect("each set of a program comes from one of its options");
            let (location, name) = (option.location.clone(), escaped(OsStr::new(name)));
            return Err(UsageError::ScatteredPset { location, option: option.spelling.clone(), name });
        }
    }
    Ok(())
}

fn plan_options(
    job: JobArgs,
    options: &[ParsedOption],
    environment: &Environment,
    all_name_hosts: bool,
    board: Option<Offload>,
) -> Result<(RunSettings, Options), UsageError> {
    let bind = binding::binding(&job, options)?;
    conflict::not_alone(options, "no_wait", &["on"], "--on NAME")?;
    conflict::not_alone(options, "array", &["on"], "--on NAME (a fleet that 'hydrant up' starts)")?;
    if matches!(job.stdin, StdinTarget::All | StdinTarget::Rank(_)) {
        conflict::conflict(options, "array", "stdin", "the tasks of an array have an empty standard input")?;
    }
    conflict::not_alone(options, "spare", &["sandbox", "offload", "offload_file"], "--sandbox or --offload")?;
    let settings = RunSettings {
        stdin: job.stdin,
        bind,
        gpus_per_rank: job.gpus_per_rank,
        memory_alloc_kinds: job.memory_alloc_kinds,
        mem_pool: job.mem_pool,
        shared_memory: job.shared_memory,
        attributes: job.job_attr.into_iter().chain(job.node_attr).collect(),
        cleanup: !job.disable_auto_cleanup,
        drain: job.drain,
        kill_grace: job.kill_grace,
        verbose: job.verbose,
        mpi_psets: job.mpi_psets,
        fence_warning: job.fence_warning,
        fence: job.fence,
        lookup_wait: job.lookup_wait,
        pmi1_subversion: job.pmi1_version,
        merge_stderr: job.merge_stderr_to_stdout,
    };
    let options = Options {
        prefix: Prefix {
            lines: match job.prepend_pattern {
                Some(pattern) => LinePrefix::Pattern(pattern),
                None if job.prepend_rank => LinePrefix::Rank,
                // MPICH's variable for scripts.
                None if environment::variable(environment, "MPIEXEC_PREFIX_DEFAULT").is_some() => {
                    LinePrefix::Mpiexec
                }
                None => LinePrefix::None,
            },
            timestamps: job.prepend_timestamp,
        },
        universe_size: job.usize.unwrap_or_default(),
        pty: job.pty,
        outfile_pattern: job.outfile_pattern,
        errfile_pattern: job.errfile_pattern,
        copy_output: job.copy_output,
        topology: job.topology,
        exit_code_of: job.exit_code,
        exit_report: job.exit_report,
        json: job.json,
        report_uri: job.report_uri,
        timeout: time_limit(job.timeout, environment)?,
        stack_traces: job.get_stack_traces,
        pmi_port: job.pmi_port,
        sandbox: job.sandbox,
        spare: job.spare,
        name_server: job.name_server,
        record: job.record,
        profile: job.profile,
        limits: job.limit,
        cluster: hosts::cluster(job.hosts, options, environment, all_name_hosts)?,
        offload: board,
        on: fleet::on(job.on, job.no_wait, job.array),
        fleet: None,
    };
    Ok((settings, options))
}

/// Returns the time limit of the command line or of MPICH's variable, where a number that is not positive is none.
fn time_limit(given: Option<Timeout>, environment: &Environment) -> Result<Option<Duration>, UsageError> {
    const VARIABLE: &str = "MPIEXEC_TIMEOUT";
    let variable = environment::variable(environment, VARIABLE);
    let (None, Some(value)) = (&given, variable) else { return Ok(given.map(|Timeout(limit)| limit)) };
    match value.to_str().and_then(|text| text.trim().parse::<i64>().ok()) {
        Some(seconds) => {
            Ok(u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs))
        }
        None => Err(UsageError::InvalidVariable {
            variable: VARIABLE,
            value: escaped(value),
            expected: "a whole number of seconds",
        }),
    }
}

fn plan_program(
    segment: &Segment,
    program: ProgramArgs,
    job: &JobArgs,
    environment: &Environment,
) -> Program {
    // Hosts that join may bring the program, which runs in the environment of its host.
    let of_hosts = segment.command.is_empty();
    let (command, args) =
        segment.command.split_first().map(|(command, args)| (command.clone(), args)).unwrap_or_default();
    let job_environment = EnvironmentOptions {
        all: job.genvall,
        none: job.genvnone || of_hosts && !job.genvall,
        list: &job.genvlist,
        assigned: &job.genv,
    };
    let program_environment = EnvironmentOptions {
        all: program.envall,
        none: program.envnone,
        list: &program.envlist,
        assigned: &program.env,
    };
    Program {
        ranks: program.n.unwrap_or(1),
        command,
        args: args.to_vec(),
        env: environment::build(environment, job_environment, program_environment),
        wdir: program.wdir,
        path: program.path,
        psets: program.pset,
    }
}

/// Parses scanned options with clap.
fn typed<A: Args + FromArgMatches>(options: &[ParsedOption]) -> Result<A, UsageError> {
    let mut command = A::augment_args(Command::new("run").no_binary_name(true).args_override_self(true));
    from_matches(&matches(&mut command, options)?, options)
}

/// Parses scanned options with the clap command that has them.
fn matches(command: &mut Command, options: &[ParsedOption]) -> Result<ArgMatches, UsageError> {
    let matches = command.try_get_matches_from_mut(options.iter().map(|option| &option.canonical));
    matches.map_err(|error| match error.kind() {
        ErrorKind::InvalidUtf8 => encoding_error(command, options),
        _ => value_error(options, &error),
    })
}

fn from_matches<A: FromArgMatches>(matches: &ArgMatches, options: &[ParsedOption]) -> Result<A, UsageError> {
    A::from_arg_matches(matches).map_err(|error| value_error(options, &error))
}

/// The error for an option whose value is not UTF-8, which clap does not name: the first that is refused when it is alone.
fn encoding_error(command: &mut Command, options: &[ParsedOption]) -> UsageError {
    let is_refused = |option: &&ParsedOption| {
        let alone = command.try_get_matches_from_mut([&option.canonical]);
        alone.is_err_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    let mut odd = options.iter().filter(|option| option.canonical.to_str().is_none());
    let option = odd.find(is_refused).or(options.last()).expect("clap reports errors of given options only");
    UsageError::InvalidValue {
        location: option.location.clone(),
        option: option.spelling.clone(),
        value: escaped(option.value()),
        expected: "the value is not UTF-8".to_owned(),
    }
}

/// Converts clap's error. The location is that of the last option with the name and value in the error.
fn value_error(options: &[ParsedOption], error: &clap::Error) -> UsageError {
    use clap::error::{ContextKind, ContextValue};
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (arg, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    // `--timeout <SECONDS>`, or `--pmi-port[=<ADDR:PORT>]` if the value may be missing.
    let name = arg.split([' ', '[']).next().unwrap_or_default();
    let invalid = options.iter().rev().find(|option| {
        let canonical = option.canonical.to_string_lossy();
        canonical.split('=').next() == Some(name) && (value.is_empty() || canonical.ends_with(&value))
    });
    let expected = match (std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (Some(why), _) => why.to_string(),
        (None, Some(ContextValue::Strings(valid))) if !valid.is_empty() => {
            format!("expected {}", valid.join(" or "))
        }
        _ if value.is_empty() => "the value is empty".to_owned(),
        _ => error.kind().as_str().unwrap_or("cannot be parsed").to_owned(),
    };
    let option = invalid.or(options.last()).expect("clap reports errors of given options only");
    UsageError::InvalidValue {
        location: option.location.clone(),
        option: option.spelling.clone(),
        value: escaped(option.value()),
        expected,
    }
}
