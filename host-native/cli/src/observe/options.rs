//! Options of the commands that look at running jobs.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use hydrant_core::trace::SignalName;
use hydrant_placement::Hosts;

use crate::value;

/// Seconds between two paints by default.
const WATCH_DEFAULT: &str = "2";
/// Shortest time between two paints.
const WATCH_MIN: Duration = Duration::from_millis(100);

/// Options of `hydrant ps`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PsOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `hydrant status`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusOptions {
    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,

    /// Print it again every SECONDS until the job ends, in place on a terminal
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = WATCH_DEFAULT)]
    pub watch: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `hydrant kill`.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct KillOptions {
    /// Signal, by name or number: HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT or KILL
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM")]
    pub signal: SignalNumber,

    /// Jobs: their PIDs as 'hydrant ps' prints them, or unique beginnings of them
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
}

/// Options of `hydrant attach`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachOptions {
    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,
}

/// Options of `hydrant debug`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugOptions {
    /// Rank
    #[arg(short, long, value_name = "R", value_parser = value::within(0..=u32::MAX))]
    pub rank: u32,

    /// Spawned job of this number, 0 for the job of the command line
    #[arg(long, value_name = "N", default_value = "0", value_parser = value::within(0..=u32::MAX))]
    pub spawned: u32,

    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,

    /// Command, in which {} stands for the process id of the rank
    #[arg(value_name = "COMMAND", last = true, default_values = ["gdb", "-p", "{}"])]
    pub command: Vec<OsString>,
}

/// Options of `hydrant replace`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(group(clap::ArgGroup::new("server").required(true).args(["sandbox", "built_in"])))]
pub struct ReplaceOptions {
    /// Server in a plugin: FILE, or the installed hydrant.wasm
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub sandbox: Option<OsString>,

    /// Server that is built into hydrant
    #[arg(long)]
    pub built_in: bool,

    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,
}

/// Options of `hydrant grow`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowOptions {
    /// Hosts: c:4,d:4 or n[01-16]:4, with the number of slots after the colon
    #[arg(long, value_name = "HOST[:SLOTS],...", required = true, value_parser = hosts)]
    pub hosts: String,

    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,
}

/// Options of `hydrant shrink`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ShrinkOptions {
    /// Hosts: c,d or n[01-16]
    #[arg(long, value_name = "HOST,...", required = true, value_parser = hosts)]
    pub hosts: String,

    /// End the ranks of these hosts: SIGTERM, and SIGKILL after the time of --kill-grace
    #[arg(long)]
    pub force: bool,

    /// Job: its PID as 'hydrant ps' prints it, or a unique beginning of it
    #[arg(value_name = "JOB")]
    pub job: String,
}

/// Signal that a user has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalNumber(pub i32);

impl FromStr for SignalNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<SignalNumber, String> {
        // Not all signals have a name there, and a job takes fewer.
        let others = [(18, "SIGCONT"), (20, "SIGTSTP")];
        let name = text.to_ascii_uppercase();
        let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
        let named = (1..32).find(|&number| SignalName(number).to_string() == name);
        let named =
            named.or_else(|| others.into_iter().find(|(_, known)| *known == name).map(|(number, _)| number));
        let number = || text.parse().ok().filter(|number| (1..32).contains(number));
        named
            .or_else(number)
            .map(SignalNumber)
            .ok_or_else(|| "expected a signal such as TERM, USR1 or 9".to_owned())
    }
}

/// A list of hosts, as the run reads it.
fn hosts(text: &str) -> Result<String, String> {
    match Hosts::parse(text) {
        Ok(hosts) if hosts.is_empty() => Err("expected hosts".to_owned()),
        Ok(_) => Ok(text.to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Time between two paints.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = value::seconds(text)?;
    if seconds < WATCH_MIN {
        Err(format!("expected at least {} s", WATCH_MIN.as_secs_f64()))
    } else {
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        let number = |text: &str| text.parse::<SignalNumber>().ok().map(|signal| signal.0);
        assert_eq!(["TERM", "sigusr1", "CONT", "9", "TSTP"].map(number), [15, 10, 18, 9, 20].map(Some));
        assert_eq!(["", "0", "64", "FOO", "-9"].map(number), [None; 5]);
    }
}
