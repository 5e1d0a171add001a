//! The `hydrant` command. Called `mpiexec` or `mpirun`, it is `hydrant run`.

use std::io::Write;
use std::process::ExitCode;

use hydrant::cli::{self, Action};
use hydrant::{probe, universe};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect(), std::env::vars_os().collect()) {
        Ok(Action::Run(plan)) => match hydrant::run(&plan) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                // Where even standard error is closed, the exit code has to say it.
                let _ = writeln!(std::io::stderr(), "hydrant: {error}");
                ExitCode::from(error.exit_code())
            }
        },
        Ok(Action::Probe(options)) => probe::main(&options),
        Ok(Action::Serve(options)) => match universe::serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "hydrant serve: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Action::Print(text)) => {
            // A reader that has seen enough, `| head`, is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", error.to_string().trim_end());
            ExitCode::from(cli::EXIT_USAGE)
        }
    }
}
