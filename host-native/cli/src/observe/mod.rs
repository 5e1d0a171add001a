//! Commands that look at running jobs: `ps`, `status`, `kill`, `attach`, `debug`, `replace`, `grow`, `shrink`.
//!
//! All of them are clients of the status socket of a run ([`hydrant_status`]).

mod attach;
mod debug;
mod options;
mod text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use hydrant_reactor::printable;
use hydrant_run::RunError;
use hydrant_run::find_plugin;
use hydrant_run::plan::Plugin;
use hydrant_run::{json, messages};
use hydrant_status::client::{self, Connection};
use hydrant_status::record::{Job, Rank, Run, Text};
use hydrant_status::{Error, Reply, Request};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

pub use options::{
    AttachOptions, DebugOptions, GrowOptions, KillOptions, PsOptions, ReplaceOptions, ShrinkOptions,
    StatusOptions,
};

/// A command with its options.
#[derive(Debug)]
pub enum Command {
    /// `ps`: list running jobs.
    Ps(PsOptions),
    /// `status`: show the ranks of a job.
    Status(StatusOptions),
    /// `kill`: send a signal to jobs.
    Kill(KillOptions),
    /// `attach`: follow the output of a job.
    Attach(AttachOptions),
    /// `debug`: run a command with the process id of a rank.
    Debug(DebugOptions),
    /// `replace`: put another PMI server in the place of a job's.
    Replace(ReplaceOptions),
    /// `grow`: have hosts join a job.
    Grow(GrowOptions),
    /// `shrink`: have hosts leave a job.
    Shrink(ShrinkOptions),
}

/// Error of one of these commands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    /// The run cannot be asked.
    #[error(transparent)]
    Status(#[from] Error),
    /// The job has no such rank.
    #[error("job {pid} has no rank {rank}")]
    NoRank {
        /// Process id of the run.
        pid: u32,
        /// The rank.
        rank: u32,
    },
    /// The run has no such job.
    #[error("{}", no_job(*.pid, *.ordinal))]
    NoJob {
        /// Process id of the run.
        pid: u32,
        /// Number of the job, 0 for that of the command line.
        ordinal: u32,
    },
    /// The rank has no process.
    #[error("rank {rank} of job {pid} is not running")]
    NotRunning {
        /// Process id of the run.
        pid: u32,
        /// The rank.
        rank: u32,
    },
    /// Another launcher has started the rank.
    #[error("the process id of rank {rank} of job {pid} is not known: another launcher starts its ranks")]
    NoProcess {
        /// Process id of the server.
        pid: u32,
        /// The rank.
        rank: u32,
    },
    /// The rank runs on another host, where the run gives no way to start the command.
    #[error("cannot start a command on {host}, where rank {rank} is process {process}")]
    Elsewhere {
        /// The rank.
        rank: u32,
        /// Its process id there.
        process: u32,
        /// Its host.
        host: String,
        /// The command for that host.
        command: String,
    },
    /// The command cannot be started.
    #[error("cannot run {program}: {why}")]
    Exec {
        /// Its name.
        program: String,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The plugin cannot be found.
    #[error(transparent)]
    Plugin(#[from] RunError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Write(#[from] io::Error),
}

fn no_job(pid: u32, ordinal: u32) -> String {
    match ordinal {
        0 => format!("job {pid} has no ranks now"),
        ordinal => format!("job {pid} has no spawned job {ordinal}, or it has ended"),
    }
}

impl ObserveError {
    fn hint(&self) -> Option<String> {
        match self {
            ObserveError::Status(error) => error.hint().map(str::to_owned),
            ObserveError::Plugin(error) => error.hint(),
            ObserveError::NotRunning { pid, .. }
            | ObserveError::NoRank { pid, .. }
            | ObserveError::NoJob { pid, .. } => Some(format!("'hydrant status {pid}' shows its ranks")),
            ObserveError::Elsewhere { host, command, .. } => Some(format!("run on {host}: {command}")),
            _ => None,
        }
    }
}

/// Runs a command. Prints its errors.
pub fn main(command: &Command) -> ExitCode {
    let result = match command {
        Command::Ps(options) => ps(options),
        Command::Status(options) => status(options),
        Command::Kill(options) => return kill(options),
        Command::Attach(options) => attach::attach(options),
        Command::Debug(options) => debug::debug(options),
        Command::Replace(options) => replace(options),
        Command::Grow(options) => change(&options.job, &Request::Grow(options.hosts.clone())),
        Command::Shrink(ShrinkOptions { job, hosts, force }) => {
            change(job, &Request::Shrink { hosts: hosts.clone(), force: *force })
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // A reader that stops early, such as `head`, is not an error.
        Err(ObserveError::Write(why)) if why.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &ObserveError) -> ExitCode {
    messages::print_error(messages::HYDRANT, error, error.hint());
    ExitCode::FAILURE
}

/// JSON of `ps`.
#[derive(Serialize)]
struct PsDocument {
    runs: Vec<Run>,
    silent: Vec<u32>,
}

/// JSON of `status`.
#[derive(Serialize)]
struct StatusDocument {
    run: Run,
    jobs: Vec<JobWithRanks>,
}

/// A job, its ranks, and those that others wait for.
#[derive(Serialize)]
struct JobWithRanks {
    #[serde(flatten)]
    job: Job,
    late: Vec<u32>,
    rank_states: Vec<Rank>,
}

fn ps(options: &PsOptions) -> Result<u8, ObserveError> {
    let runs = client::runs()?;
    let text = if options.json {
        let silent = runs.iter().filter(|(_, run)| run.is_none()).map(|&(pid, _)| pid).collect();
        let runs = runs.into_iter().filter_map(|(_, run)| run).collect();
        json::document("ps", &PsDocument { runs, silent })
    } else {
        printable(&text::runs(&runs)).into_owned()
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

fn status(options: &StatusOptions) -> Result<u8, ObserveError> {
    let address = client::find(&options.job)?;
    let mut is_first = true;
    loop {
        let text = match Connection::open(&address).and_then(|mut connection| describe(&mut connection)) {
            Ok(status) if options.json && options.watch.is_some() => json::line("status", &status),
            Ok(status) if options.json => json::document("status", &status),
            Ok(status) => printable(&text::status(&status.run, &status.jobs)).into_owned(),
            // The job under watch is over.
            Err(Error::Connect { .. } | Error::Closed { .. }) if !is_first => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        show(&text, options.watch.is_some() && !options.json)?;
        let Some(interval) = options.watch else { return Ok(0) };
        is_first = false;
        sleep(interval);
    }
}

fn describe(connection: &mut Connection) -> Result<StatusDocument, Error> {
    let run = connection.run()?;
    let mut jobs = Vec::new();
    for job in connection.jobs()? {
        let rank_states = connection.ranks(&job)?;
        jobs.push(JobWithRanks { job, late: text::late(&rank_states), rank_states });
    }
    Ok(StatusDocument { run, jobs })
}

/// Prints a text. `repaints` replaces what is on a terminal, and shows as many lines as it has.
fn show(text: &str, repaints: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !repaints || !out.is_terminal() {
        out.write_all(text.as_bytes())?;
        return out.flush();
    }
    let rows = tcgetwinsize(&out).map_or(24, |size| usize::from(size.ws_row)).max(2);
    let lines: Vec<&str> = text.lines().collect();
    let (shown, hidden) = match lines.len().checked_sub(rows - 1) {
        Some(more) if more > 0 => (rows - 2, more + 1),
        _ => (lines.len(), 0),
    };
    // To the upper left corner, and each line without what was there before. Clearing all at once would flicker.
    let mut screen = "\x1b[H".to_owned();
    for line in &lines[..shown] {
        screen += &format!("{line}\x1b[K\n");
    }
    if hidden > 0 {
        screen += &format!("and {hidden} more lines\x1b[K\n");
    }
    write!(out, "{screen}\x1b[J")?;
    out.flush()
}

fn kill(options: &KillOptions) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for job in &options.jobs {
        let signalled = client::find(job)
            .and_then(|address| Connection::open(&address)?.ask(&Request::Signal(options.signal.0)));
        if let Err(error) = signalled {
            code = fail(&error.into());
        }
    }
    code
}

/// Time until all hosts must have replaced their servers.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(90);

fn replace(options: &ReplaceOptions) -> Result<u8, ObserveError> {
    let plugin = options.sandbox.as_ref().map(|file| {
        let plugin = if file.is_empty() { Plugin::Installed } else { Plugin::File(file.into()) };
        Ok::<_, ObserveError>(std::path::absolute(find_plugin(&plugin)?)?)
    });
    let plugin = plugin.transpose()?.map(|path| Text::from(path.as_os_str()));
    let address = client::find(&options.job)?;
    Connection::open(&address)?.ask_for(&Request::Replace(plugin), REPLACE_TIMEOUT)?;
    Ok(0)
}

/// Has hosts join or leave a job, and waits until they have.
fn change(job: &str, request: &Request) -> Result<u8, ObserveError> {
    let address = client::find(job)?;
    let mut connection = Connection::open(&address)?;
    connection.send(request)?;
    // The run limits the time of its daemons (--bootstrap-timeout) and of ranks that are ended (--kill-grace).
    match connection.receive(None)? {
        Reply::Refused(why) => Err(Error::Refused { pid: connection.pid(), why }.into()),
        _ => Ok(0),
    }
}
