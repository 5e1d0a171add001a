//! `hydrant debug`: a command with the process id of a rank.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use hydrant_placement::{Bootstrap, shell_quote};
use hydrant_status::client::{self, Connection};
use hydrant_status::record::{Job, Rank};
use hydrant_status::{Access, Error, Reply, Request};

use super::{DebugOptions, ObserveError};

/// Replaces this process by the command, or by one that runs it on the host of the rank. Returns only if that fails.
pub(super) fn debug(options: &DebugOptions) -> Result<u8, ObserveError> {
    let mut connection = Connection::open(&client::find(&options.job)?)?;
    let pid = connection.pid();
    let run = connection.run()?;
    let jobs = connection.jobs()?;
    if run.address.is_some() {
        return Err(ObserveError::NoProcess { pid, rank: options.rank });
    }
    let (rank, ordinal) = (options.rank, options.spawned);
    let job = jobs.iter().find(|job| job.ordinal == ordinal);
    let job = job.ok_or(ObserveError::NoJob { pid, ordinal })?;
    let ranks = connection.ranks(job)?;
    let rank = ranks.get(rank as usize).ok_or(ObserveError::NoRank { pid, rank })?;
    let process = running(rank).ok_or(ObserveError::NotRunning { pid, rank: options.rank })?;
    let words = fill(&options.command, process);
    let words = match rank.host.as_ref() {
        Some(host) if run.bootstrap != Bootstrap::Local.name() && *host != run.host => {
            elsewhere(&mut connection, job, rank.rank, &words)?.ok_or_else(|| {
                let command = shell_quote(&words).to_string_lossy().into_owned();
                ObserveError::Elsewhere { rank: rank.rank, process, host: host.clone(), command }
            })?
        }
        _ => words,
    };
    let (program, arguments) = words.split_first().expect("the command has a default");
    let why = Command::new(program).args(arguments).exec();
    Err(ObserveError::Exec { program: program.to_string_lossy().into_owned(), why })
}

/// The command that runs `words` on the host of a rank, as the run starts its daemons. None if there is no way.
fn elsewhere(
    connection: &mut Connection,
    job: &Job,
    rank: u32,
    words: &[OsString],
) -> Result<Option<Vec<OsString>>, ObserveError> {
    let access = match connection.ask(&Request::Access { job: job.number, rank })? {
        Reply::Access(access) => access,
        _ => return Err(Error::Reply { pid: connection.pid() }.into()),
    };
    Ok(access.and_then(|Access { host, bootstrap, program, args, slurm_job }| {
        let program = program.map(|program| OsString::from_vec(program.0));
        let has_terminal = std::io::stdin().is_terminal();
        let program = program.as_deref().map(Path::new);
        let args: Vec<OsString> = args.into_iter().map(|word| OsString::from_vec(word.0)).collect();
        bootstrap.interactive_command((program, &args), &host, slurm_job.as_deref(), has_terminal, words)
    }))
}

fn running(rank: &Rank) -> Option<u32> {
    rank.pid.filter(|_| rank.state.is_running())
}

/// Replaces each `{}` by the process id.
fn fill(words: &[OsString], process: u32) -> Vec<OsString> {
    words.iter().map(|word| replace(word, b"{}", process.to_string().as_bytes())).collect()
}

fn replace(word: &OsStr, mark: &[u8], by: &[u8]) -> OsString {
    let (mut rest, mut out) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(mark.len()).position(|window| window == mark) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by);
        rest = &rest[at + mark.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_stands_for_braces() {
        let words = ["gdb", "-p", "{}", "--eval={},{}", "{"].map(OsString::from);
        assert_eq!(fill(&words, 7), ["gdb", "-p", "7", "--eval=7,7", "{"]);
    }
}
