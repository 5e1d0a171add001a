//! The `hydrant` command. Called `mpiexec` or `mpirun`, it is `hydrant run`.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use hydrant::cli::{self, Action};
use hydrant::{RunError, cluster, probe, replay, serve};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect(), std::env::vars_os().collect()) {
        Ok(Action::Run(mut plan)) if plan.options.cluster.dry_run => {
            hydrant::dry_run(&mut plan).map_or_else(failed, |text| print(&text))
        }
        Ok(Action::Run(mut plan)) => hydrant::run(&mut plan).map_or_else(failed, ExitCode::from),
        Ok(Action::Probe(options)) => probe::main(&options),
        Ok(Action::Replay(options)) => replay::main(&options),
        Ok(Action::Serve(options)) => match serve::serve(&options) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "hydrant serve: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Action::Daemon) => said("hydrant daemon", hydrant::daemon()),
        Ok(Action::Reach(options)) => said("hydrant reach", cluster::reach(&options)),
        Ok(Action::Print(text)) => print(&text),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", error.to_string().trim_end());
            ExitCode::from(cli::EXIT_USAGE)
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough, `| head`, is no error.
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "hydrant: cannot write to standard output: {why}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// How a command of that name went, and what it has to say where it went wrong.
fn said<E: Display>(name: &str, result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn failed(error: RunError) -> ExitCode {
    // Where even standard error is closed, the exit code has to say it.
    let _ = writeln!(std::io::stderr(), "hydrant: {error}");
    ExitCode::from(error.exit_code())
}
