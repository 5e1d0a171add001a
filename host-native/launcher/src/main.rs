//! The `hydrant` command. Called `mpiexec` or `mpirun`, it is `hydrant run`.

use std::io::Write;
use std::process::ExitCode;

use hydrant::cli::{self, Action};
use hydrant::probe;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect(), std::env::vars_os().collect()) {
        Ok(Action::Run(_plan)) => ExitCode::FAILURE,
        Ok(Action::Probe(options)) => probe::main(&options),
        Ok(Action::Print(text)) => {
            // A reader that has seen enough, `| head`, is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", error.to_string().trim_end());
            ExitCode::from(cli::EXIT_USAGE)
        }
    }
}
