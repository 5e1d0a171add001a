//! The command line: from words to a [`Plan`], or to what is printed instead.
//!
//! `run` and mpiexec's name go through `words`, which turns mpiexec's grammar into clap's; everything else is
//! clap's own. The options are declared once, in `args`, for parsing, help and man page.

mod args;
mod configfile;
mod elsewhere;
mod environment;
mod error;
mod help;
mod hosts;
#[cfg(test)]
mod man;
mod offload;
#[cfg(test)]
mod tests;
pub(crate) mod value;
mod words;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches};
use thiserror::Error;

pub use error::{At, UsageError};
pub(crate) use hosts::{bootstrap, seconds};

use crate::cluster;
use crate::plan::{Options, Plan, Program};
use crate::probe;
use crate::replay;
use crate::serve;
use args::{FirstArgs, JobArgs, ProgramArgs};
use environment::Environment;
use value::Universe;
use words::{Given, Grammar, Segment, Stop, Word};

/// What the command line asks for.
#[derive(Debug)]
pub enum Action {
    /// Launch this job and serve it.
    Run(Box<Plan>),
    /// Be a rank of the built-in probe.
    Probe(probe::Options),
    /// Serve a job of somebody else's, or keep the names of several runs.
    Serve(Box<serve::Options>),
    /// Show and check what a run recorded.
    Replay(replay::Options),
    /// Be the daemon of a node, as its standard input says.
    Daemon,
    /// Start daemons on these hosts and say who answers.
    Reach(cluster::ReachOptions),
    /// Print this text, help or version, on standard output.
    Print(String),
}

/// A command line that cannot be carried out; what [`EXIT_USAGE`] is for.
#[derive(Debug, Error)]
pub enum CliError {
    /// Of `run`, or of the command under mpiexec's name.
    #[error("{called}: {error}\nTry '{called} --help' for the options.")]
    Run {
        /// The command as it was called.
        called: String,
        /// What is wrong.
        #[source]
        error: UsageError,
    },
    /// Of anything else.
    #[error("{0}")]
    Other(clap::Error),
}

/// The exit code for a command line that cannot be carried out.
pub const EXIT_USAGE: u8 = 2;

/// Reads the words of a command line, the first of which is the name that the command was called by, given the
/// environment that it was started in.
///
/// Called `mpiexec` or `mpirun`, whatever stands behind a dot in that name, the words are those of `hydrant run`.
/// Reads no file but the one named by `--configfile`.
pub fn parse(words: Vec<OsString>, environment: Vec<(OsString, OsString)>) -> Result<Action, CliError> {
    let called =
        words.first().and_then(|first| Path::new(first).file_name()).unwrap_or(OsStr::new("hydrant"));
    let stem = called.to_string_lossy().split('.').next().unwrap_or_default().to_owned();
    if matches!(stem.as_str(), "mpiexec" | "mpirun") {
        return parse_run(&stem, words.into_iter().skip(1), &environment);
    }
    if words.get(1).is_some_and(|verb| verb == "run") {
        return parse_run("hydrant run", words.into_iter().skip(2), &environment);
    }
    if words.get(1).is_some_and(|verb| verb == "offload") {
        return parse_job("hydrant offload", offload::command(), words.into_iter().skip(2), &environment);
    }
    match args::hydrant().try_get_matches_from(words) {
        Ok(matches) => match matches.subcommand() {
            Some(("serve", matches)) => serve_options(matches)
                .map(|options| Action::Serve(Box::new(options)))
                .map_err(CliError::Other),
            Some(("daemon", _)) => Ok(Action::Daemon),
            Some(("reach", matches)) => {
                cluster::ReachOptions::from_arg_matches(matches).map(Action::Reach).map_err(CliError::Other)
            }
            Some(("replay", matches)) => {
                replay::Options::from_arg_matches(matches).map(Action::Replay).map_err(CliError::Other)
            }
            Some(("probe", matches)) => {
                probe::Options::from_arg_matches(matches).map(Action::Probe).map_err(CliError::Other)
            }
            _ => unreachable!("clap wants one of the subcommands, and run and offload are read above"),
        },
        Err(error) if error.exit_code() == 0 => Ok(Action::Print(error.to_string())),
        Err(error) => Err(CliError::Other(error)),
    }
}

fn serve_options(matches: &clap::ArgMatches) -> Result<serve::Options, clap::Error> {
    let options = serve::Options::from_arg_matches(matches)?;
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    match options.check(given) {
        Ok(()) => Ok(options),
        Err(why) => {
            let mut command = args::hydrant();
            command.build();
            let serve = command.find_subcommand_mut("serve").expect("it is one of the commands");
            Err(serve.error(clap::error::ErrorKind::ArgumentConflict, why))
        }
    }
}

/// The whole command as clap sees it, for the man page.
pub fn command() -> Command {
    args::hydrant()
}

fn parse_run(
    called: &str,
    words: impl Iterator<Item = OsString>,
    environment: &Environment,
) -> Result<Action, CliError> {
    parse_job(called, args::run("run", called), words, environment)
}

fn parse_job(
    called: &str,
    command: Command,
    words: impl Iterator<Item = OsString>,
    environment: &Environment,
) -> Result<Action, CliError> {
    let offloads = command.get_name() == "offload";
    let words: Vec<Word> =
        words.enumerate().map(|(at, text)| Word { text, at: At::Argument(at + 1) }).collect();
    let mut grammar = Grammar::new(command);
    let planned = expand(&grammar, called, &words).and_then(|segments| plan(segments, environment, offloads));
    match planned {
        Ok(plan) => Ok(Action::Run(Box::new(plan))),
        Err(Stop::Help { long: true }) => Ok(Action::Print(grammar.command().render_long_help().to_string())),
        Err(Stop::Help { long: false }) => Ok(Action::Print(grammar.command().render_help().to_string())),
        Err(Stop::Version) => Ok(Action::Print(args::hydrant().render_version())),
        Err(Stop::Wrong(error)) => Err(CliError::Run { called: called.to_owned(), error }),
    }
}

/// The segments of the command line, or of the file that stands for them; each names a program, and only the first
/// has options of the job.
fn expand(grammar: &Grammar, called: &str, words: &[Word]) -> Result<Vec<Segment>, Stop> {
    let mut segments = grammar.segments(words, &At::Argument(words.len() + 1))?;
    let mut files = segments[0].options.iter().filter(|given| given.id == "configfile");
    if let Some(file) = files.next_back().map(|given| Path::new(given.value()).to_owned()) {
        segments = from_file(grammar, segments, &file)?;
    } else if segments.len() == 1 && segments[0].command.is_empty() {
        return Err(UsageError::Nothing { called: called.to_owned() }.into());
    }
    for (index, segment) in segments.iter().enumerate() {
        if segment.command.first().is_none_or(|program| program.is_empty()) {
            return Err(UsageError::NoProgram { at: segment.at.clone() }.into());
        }
        if let Some(given) = segment.options.iter().find(|given| given.of_job && index > 0) {
            let instead = given.id.strip_prefix('g').filter(|_| given.id.starts_with("genv"));
            return Err(UsageError::Misplaced {
                at: given.at.clone(),
                option: given.spelled.clone(),
                instead: instead
                    .map_or_else(String::new, |local| format!("; for one program there is -{local}")),
            }
            .into());
        }
    }
    Ok(segments)
}

/// The segments that a file holds, with the command line's options of the job before the first.
fn from_file(grammar: &Grammar, line: Vec<Segment>, file: &Path) -> Result<Vec<Segment>, Stop> {
    let beside = |at: &At, word: &str| UsageError::BesideFile { at: at.clone(), word: word.to_owned() };
    if let Some(given) = line[0].options.iter().find(|given| !given.of_job) {
        return Err(beside(&given.at, &given.spelled).into());
    }
    if let Some(command) = line[0].command.first() {
        return Err(beside(&line[0].at, &error::shown(command)).into());
    }
    if line.len() > 1 {
        return Err(beside(&line[0].at, ":").into());
    }
    let mut segments = Vec::new();
    for words in configfile::read(file)? {
        let end = words.last().map_or(At::Argument(0), |word| word.at.clone());
        segments.extend(grammar.segments(&words, &end)?);
    }
    if let Some(given) =
        segments.iter().flat_map(|segment| &segment.options).find(|given| given.id == "configfile")
    {
        return Err(UsageError::Nested { at: given.at.clone() }.into());
    }
    let mut options = line.into_iter().next().map(|first| first.options).unwrap_or_default();
    options.append(&mut segments[0].options);
    segments[0].options = options;
    Ok(segments)
}

fn plan(mut segments: Vec<Segment>, environment: &Environment, offloads: bool) -> Result<Plan, Stop> {
    let all = std::mem::take(&mut segments[0].options);
    let (boards, runs): (Vec<_>, Vec<_>) = all.into_iter().partition(offload::is_own);
    segments[0].options = runs;
    let board = match offloads {
        true => Some(offload::plan(read(&boards)?, &segments[0].options)?),
        false => None,
    };
    let segments = &segments[..];
    let (first, others) = segments.split_first().expect("a command line has at least one segment");
    let FirstArgs { program, job } = read(&first.options)?;
    let mut fill = Vec::from_iter(program.n.is_none().then_some(0));
    let mut programs = vec![finish(first, program, &job, environment)];
    for (appnum, segment) in (1..).zip(others) {
        let program: ProgramArgs = read(&segment.options)?;
        fill.extend(program.n.is_none().then_some(appnum));
        programs.push(finish(segment, program, &job, environment));
    }
    let mut ranks = 0u32;
    for (segment, program) in segments.iter().zip(&programs) {
        ranks = ranks
            .checked_add(program.ranks)
            .ok_or_else(|| UsageError::TooManyRanks { at: segment.at.clone() })?;
    }
    check_psets(segments, &programs)?;
    let mut options = Options { offload: board, ..of_job(job, &first.options)? };
    options.cluster.placement.fill = fill;
    Ok(Plan { programs, options })
}

/// A process set is a run of ranks: a name may stand at several programs only where they are neighbours.
fn check_psets(segments: &[Segment], programs: &[Program]) -> Result<(), UsageError> {
    for (index, program) in programs.iter().enumerate().skip(2) {
        let is_new = |name: &&String| !programs[index - 1].psets.contains(name);
        let known = |name: &&String| programs[..index - 1].iter().any(|before| before.psets.contains(name));
        if let Some(name) = program.psets.iter().filter(is_new).find(known) {
            let options = segments[index].options.iter();
            let given = options.rev().find(|given| given.id == "pset" && given.value() == name.as_str());
            let given = given.expect("a program is in the sets that its options name");
            let (at, option) = (given.at.clone(), given.spelled.clone());
            return Err(UsageError::ScatteredPset { at, option, name: error::shown(OsStr::new(name)) });
        }
    }
    Ok(())
}

fn of_job(job: JobArgs, given: &[Given]) -> Result<Options, UsageError> {
    let universe = job.usize.and_then(|universe| match universe {
        Universe::Size(size) => Some(size),
        Universe::System => {
            std::thread::available_parallelism().ok().and_then(|here| here.get().try_into().ok())
        }
        Universe::Infinite => None,
    });
    Ok(Options {
        prepend_rank: job.prepend_rank,
        universe,
        outfile_pattern: job.outfile_pattern,
        errfile_pattern: job.errfile_pattern,
        bind: job.bind_to,
        cleanup: !job.disable_auto_cleanup,
        verbose: job.verbose,
        pmi_port: job.pmi_port,
        mpi_psets: job.mpi_psets,
        sandbox: job.sandbox,
        fence_warning: job.fence_warning,
        lookup_wait: job.lookup_wait,
        name_service: job.universe,
        pmi1_subversion: job.pmi1_version,
        record: job.record,
        limits: job.limit,
        cluster: hosts::cluster(job.hosts, given)?,
        offload: None,
    })
}

fn finish(segment: &Segment, program: ProgramArgs, job: &JobArgs, environment: &Environment) -> Program {
    let (command, args) = segment.command.split_first().expect("expand has seen a program in each segment");
    Program {
        ranks: program.n.unwrap_or(1),
        command: command.clone(),
        args: args.to_vec(),
        env: environment::build(environment, job, &program),
        wdir: program.wdir,
        path: None,
        psets: program.pset,
    }
}

/// Has clap read options that are spelled its way.
fn read<A: Args + FromArgMatches>(options: &[Given]) -> Result<A, UsageError> {
    let command = A::augment_args(Command::new("run").no_binary_name(true).args_override_self(true));
    command
        .try_get_matches_from(options.iter().map(|given| &given.normal))
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| value_error(options, &error))
}

/// Finds the option that clap complains about: the last with that name and value.
fn value_error(options: &[Given], error: &clap::Error) -> UsageError {
    use clap::error::ContextKind;
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (arg, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let name = arg.split(' ').next().unwrap_or_default();
    let culprit = options.iter().rev().find(|given| {
        let normal = given.normal.to_string_lossy();
        normal.split('=').next() == Some(name) && (value.is_empty() || normal.ends_with(&value))
    });
    let why = match std::error::Error::source(error) {
        Some(why) => why.to_string(),
        None if value.is_empty() => "nothing stands behind it; leave it out, or give a value".to_owned(),
        None => error.kind().as_str().unwrap_or("it cannot be read").to_owned(),
    };
    let given = culprit.or(options.last()).expect("clap complains about options that were given");
    UsageError::Value {
        at: given.at.clone(),
        option: given.spelled.clone(),
        value: error::shown(given.value()),
        why,
    }
}
