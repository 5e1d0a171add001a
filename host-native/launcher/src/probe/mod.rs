//! A rank program built in.
use std::process::ExitCode;

/// What a probe does.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keys that each rank puts in each round
    #[arg(long, value_name = "K", default_value_t = 4)]
    pub keys: u32,
}

/// Runs it.
pub fn main(_options: &Options) -> ExitCode {
    ExitCode::FAILURE
}
