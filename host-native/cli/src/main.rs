//! The `hydrant` command. Called `mpiexec` or `mpirun`, it is `hydrant run`.

#[cfg(any(target_env = "musl", test))]
mod allocator;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use hydrant::cli::{self, Action, CliError};
use hydrant::{observe, probe, reach, replay};
use hydrant_doctor::{Level, Machine, Question};
use hydrant_reactor::printable;
use hydrant_reactor::signals::ignore_file_size_signal;
use hydrant_run::plan::Plan;
use hydrant_run::{RunError, json, messages};

/// Prefix of the messages of `hydrant join`.
const JOIN: &str = "hydrant join";
/// Prefix of the messages of servers.
const SERVE: &str = "hydrant serve";

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: allocator::BySize<dlmalloc::GlobalDlmalloc, std::alloc::System> =
    allocator::BySize { small: dlmalloc::GlobalDlmalloc, large: std::alloc::System };

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect(), || std::env::vars_os().collect()) {
        Ok(Action::Run(mut plan)) if plan.options.cluster.dry_run => {
            let planned = hydrant::dry_run(&mut plan);
            planned.map_or_else(
                |error| run_error(&plan, error),
                |text| match &plan.options.json {
                    Some(path) => written(path, &text),
                    // JSON of a dry run is escaped already.
                    None => print(&printable(&text)),
                },
            )
        }
        Ok(Action::Run(mut plan)) => {
            if !plan.notes.is_empty() && std::io::stderr().is_terminal() {
                messages::print(messages::HYDRANT, plan.notes.join("; "));
            }
            let code = match plan.options.on.clone() {
                Some(on) => hydrant_run::run_on(&mut plan, &on),
                None => hydrant_run::run(&mut plan),
            };
            code.map_or_else(|error| run_error(&plan, error), ExitCode::from)
        }
        Ok(Action::Up(mut plan)) => {
            hydrant_run::up(&mut plan).map_or_else(|error| run_error(&plan, error), ExitCode::from)
        }
        Ok(Action::Down(name)) => hydrant_run::down(&name)
            .map_or_else(|error| fail(messages::HYDRANT, &error, error.hint()), |()| ExitCode::SUCCESS),
        Ok(Action::Probe(options)) => probe::main(&options),
        Ok(Action::Replay(options)) => {
            ignore_file_size_signal();
            replay::main(&options)
        }
        Ok(Action::Serve(options)) => hydrant_serve::serve(&options)
            .map_or_else(|error| fail(SERVE, &error, error.hint()), ExitCode::from),
        Ok(Action::NameServer(options)) => hydrant_names::serve(&options)
            .map_or_else(|error| fail(SERVE, &error, error.hint()), |()| ExitCode::SUCCESS),
        Ok(Action::Doctor(question)) => doctor(&question),
        Ok(Action::Daemon) => hydrant_run::daemon()
            .map_or_else(|error| fail(messages::DAEMON, &error, error.hint()), |()| ExitCode::SUCCESS),
        Ok(Action::Join(options)) => hydrant_run::join_run(&options).map_or_else(
            |error| {
                messages::print_error(JOIN, &error, error.hint());
                ExitCode::from(error.exit_code())
            },
            ExitCode::from,
        ),
        Ok(Action::Reach(options)) => reach::reach(&options)
            .map_or_else(|error| fail("hydrant reach", &error, error.hint()), |()| ExitCode::SUCCESS),
        Ok(Action::Observe(command)) => observe::main(&command),
        Ok(Action::Print(text)) => print(&text),
        Err(CliError::NoCommand(help)) => {
            let _ = write!(std::io::stderr(), "{help}");
            ExitCode::from(cli::EXIT_USAGE)
        }
        Err(error) => {
            messages::print(messages::HYDRANT, &error);
            if let CliError::Usage { error, json: Some(path), .. } = &error {
                written(path, &json::refusal(cli::EXIT_USAGE, error.to_string(), error.hint()));
            }
            ExitCode::from(cli::EXIT_USAGE)
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that stops early, such as `head`, is not an error.
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            messages::print(messages::HYDRANT, format_args!("cannot write to standard output: {why}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints the findings about this machine.
fn doctor(question: &Question) -> ExitCode {
    let findings = hydrant_doctor::examine(&Machine::current(), question);
    let printed = print(&printable(&hydrant_doctor::render(&findings)));
    match findings.iter().any(|finding| finding.level == Level::Problem) {
        true => ExitCode::FAILURE,
        false => printed,
    }
}

/// Prints the error of a command, and its remedy.
fn fail(prefix: &str, error: impl Display, hint: Option<String>) -> ExitCode {
    messages::print_error(prefix, error, hint);
    ExitCode::FAILURE
}

/// Writes JSON to the file that the user named.
fn written(path: &Path, text: &str) -> ExitCode {
    ignore_file_size_signal();
    match json::write(path, text) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            messages::print(messages::HYDRANT, format_args!("cannot write {}: {why}", path.display()));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints the error of a run, and writes it as JSON if the user wants that.
fn run_error(plan: &Plan, error: RunError) -> ExitCode {
    messages::print_error(messages::HYDRANT, &error, error.hint());
    if let Some(path) = &plan.options.json
        && !matches!(error, RunError::ResultFile { .. })
    {
        written(path, &json::result(error.exit_code(), Some(&error), &[], &[]));
    }
    ExitCode::from(error.exit_code())
}
