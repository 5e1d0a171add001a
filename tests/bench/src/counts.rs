//! System calls and instructions of the servers for one get: figures that repeat, also on a busy machine.
//!
//! A job whose ranks get everything three times is counted, and one whose ranks get everything once. The difference belongs to
//! the gets.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::folder::Folder;
use crate::job::run;
use crate::native::{Build, Columns, Plan, Shape, own};
use crate::pmi::Pmi;
use crate::table::{Row, Samples};

/// How often the ranks of the longer and of the shorter job get everything.
const ROUNDS: [u32; 2] = [3, 1];

/// System calls of a rank for one get: a write and a read.
const CALLS_OF_RANK: f64 = 2.0;

/// Ratio of the system calls of two builds up to which they count as equal: the waits of two jobs differ by some 5 %, and one
/// more call for each get is 50 %.
const MORE_CALLS: f64 = 1.1;

/// Program that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// System calls.
    Strace,
    /// Instructions of processes.
    Valgrind,
}

impl Counter {
    const BOTH: [Counter; 2] = [Counter::Strace, Counter::Valgrind];

    const fn name(self) -> &'static str {
        match self {
            Counter::Strace => "strace",
            Counter::Valgrind => "valgrind",
        }
    }

    const fn counted(self) -> &'static str {
        match self {
            Counter::Strace => "system calls",
            Counter::Valgrind => "instructions",
        }
    }

    fn is_installed(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(self.name()).exists())
    }

    /// The command under this counter, which writes to `folder`. What the command's own processes execute is not counted, unless
    /// `children` are asked for: hydra serves from one. Ranks are never counted by valgrind.
    fn around(self, command: &Command, folder: &Path, children: bool) -> Command {
        let mut counted = Command::new(self.name());
        match self {
            Counter::Strace => {
                counted.args(["-f", "-c", "-U", "name,calls", "-o"]).arg(folder.join("calls"));
                if !children {
                    counted.args(["-b", "execve"]);
                }
            }
            Counter::Valgrind => {
                let mut file = OsString::from("--log-file=");
                file.push(folder.join("%p"));
                counted.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(file);
                if children {
                    counted.args(["--trace-children=yes", "--trace-children-skip=*/bench"]);
                }
            }
        }
        counted.arg(command.get_program()).args(command.get_args());
        counted
    }

    /// Reads the count from `folder`.
    fn read(self, folder: &Path) -> Result<f64> {
        match self {
            Counter::Strace => total_calls(&fs::read_to_string(folder.join("calls"))?),
            Counter::Valgrind => {
                let logs = fs::read_dir(folder)?.map(|log| Ok(fs::read_to_string(log?.path())?));
                logs.map(|log| log.map(|log| instructions(&log))).sum()
            }
        }
    }
}

/// The sum of strace's table of names and calls.
fn total_calls(table: &str) -> Result<f64> {
    let total = table.lines().find_map(|line| line.strip_prefix("total"));
    Ok(total.context("strace printed no total")?.trim().parse()?)
}

/// The instructions of a process in valgrind's log. None for a process that was killed.
fn instructions(log: &str) -> f64 {
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    collected.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or_default()
}

impl Plan {
    /// Counts a job and returns what all of its gets had.
    fn count(&self, counter: Counter, command: &Command, children: bool) -> Result<f64> {
        let folder = Folder::new("counts")?;
        run(&mut counter.around(command, folder.path(), children), self.limit)?;
        counter.read(folder.path())
    }

    /// The count for one get, from two jobs.
    fn count_get(
        &self,
        counter: Counter,
        shape: Shape,
        children: bool,
        job: impl Fn(u32) -> Result<Command>,
    ) -> Result<f64> {
        let [long, short] = ROUNDS.map(|rounds| self.count(counter, &job(rounds)?, children));
        let gets = f64::from(shape.ranks) * f64::from(shape.ranks) * f64::from(ROUNDS[0] - ROUNDS[1]);
        let each = (long? - short?) / gets;
        Ok(if children && counter == Counter::Strace { each - CALLS_OF_RANK } else { each })
    }

    fn counted(&self, counter: Counter, shape: Shape, pmi: Pmi) -> Row {
        let rank = |mut command: Command, rounds: u32| -> Result<Command> {
            command.arg(own()?).args(["rank", "--pmi", pmi.name(), "--rounds", &rounds.to_string()]);
            Ok(command)
        };
        let mut columns = Columns::default();
        let push = |samples: &mut Samples, each: Result<f64>| samples.push_if(self.noted(each));
        for build in Build::BOTH {
            if self.hydrant(build, shape).is_some() {
                let job = |rounds| rank(self.hydrant(build, shape).context("no hydrant")?, rounds);
                push(columns.of(build), self.count_get(counter, shape, false, job));
            }
        }
        if self.hydra(shape).is_some() {
            let job = |rounds| rank(self.hydra(shape).context("no hydra")?, rounds);
            push(&mut columns.peer, self.count_get(counter, shape, true, job));
        }
        let echo = |rounds: u32| {
            let mut command = Command::new(own()?);
            let (size, limit) = (shape.ranks.to_string(), self.limit.as_secs().to_string());
            command.args(["echo", "--pmi", pmi.name(), "--size", &size, "--limit", &limit]);
            command.args(["--rounds", &rounds.to_string()]);
            Ok(command)
        };
        push(&mut columns.floor, self.count_get(counter, shape, false, echo));
        let row = columns.plain(&format!("PMI-{} get, {}", pmi.name(), counter.counted()), shape, "", None);
        let more_calls = counter == Counter::Strace
            && row.hydrant.zip(row.old).is_some_and(|(new, old)| new > MORE_CALLS * old);
        Row { exceeds_old: more_calls, ..row }
    }
}

/// The rows of jobs with this shape.
pub(crate) fn rows(plan: &Plan, shape: Shape) -> Vec<Row> {
    let (installed, missing): (Vec<_>, Vec<_>) =
        Counter::BOTH.into_iter().partition(|counter| counter.is_installed());
    for counter in missing {
        eprintln!("bench: {} is not installed: no {} are counted", counter.name(), counter.counted());
    }
    let all = [Pmi::V1, Pmi::V2].into_iter().flat_map(|pmi| installed.iter().map(move |&it| (pmi, it)));
    all.map(|(pmi, counter)| plan.counted(counter, shape, pmi)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_strace_is_read() {
        let table = "syscall              calls\n---------------- ---------\nread                    11\n\
                     ---------------- ---------\ntotal                   12\n";
        assert_eq!(total_calls(table).unwrap(), 12.0);
        assert!(total_calls("").is_err());
    }

    #[test]
    fn instructions_are_read_from_a_log() {
        assert_eq!(instructions("==7== \n==7== Collected : 184028\n==7== \n"), 184_028.0);
        assert_eq!(instructions("==7== Process terminating"), 0.0);
    }
}
