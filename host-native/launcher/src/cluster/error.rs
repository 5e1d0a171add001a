//! Why ranks have no place.

use std::io;
use std::path::PathBuf;

use super::hostlist::HostlistError;
use super::hosts::HostError;

/// Why it cannot be said which rank runs where: what is wrong, in which file or variable, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file with hosts cannot be read.
    #[error("cannot read the hosts in {}{}: {why}", file.display(), from(variable))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The variable that names it, where no option does.
        variable: Option<&'static str>,
        /// The system's reason.
        why: io::Error,
    },
    /// A line of such a file.
    #[error("{} line {line}: {why}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// A file with hosts that names none.
    #[error("{}{} names no host; write one to a line, for example: node1 slots=4", file.display(), from(variable))]
    EmptyFile {
        /// The file.
        file: PathBuf,
        /// The variable that names it, where no option does.
        variable: Option<&'static str>,
    },
    /// A variable that the batch system sets.
    #[error("{variable} '{value}': {why}; name the hosts yourself with -hosts or -f")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value, the middle of a long one left out.
        value: String,
        /// What is wrong with it.
        why: LineError,
    },
    /// Slurm names more or fewer hosts than it counts tasks for.
    #[error(
        "{names} names {hosts} hosts, but {counts} has counts for {counted}; name the hosts yourself with -hosts or -f"
    )]
    Counts {
        /// The variable with the names.
        names: &'static str,
        /// How many there are.
        hosts: usize,
        /// The variable with the counts.
        counts: &'static str,
        /// How many there are.
        counted: usize,
    },
    /// More ranks than all hosts take.
    #[error(
        "{ranks} ranks, but the hosts take {room} at most by their max_slots; name more hosts or start fewer ranks"
    )]
    Full {
        /// Ranks of the job.
        ranks: u64,
        /// The sum of all `max_slots`.
        room: u64,
    },
    /// More ranks than are placed on several hosts.
    #[error("{0} ranks, but at most {max} can run on several hosts", max = super::placement::RANKS_MAX)]
    Ranks(u64),
    /// Who logs in is ssh's to say.
    #[error(
        "host {host} has a user, {user}, which only --bootstrap ssh can be told; this job is started by {bootstrap}"
    )]
    User {
        /// The host.
        host: String,
        /// Its user.
        user: String,
        /// What the job is started by.
        bootstrap: &'static str,
    },
}

/// What is wrong with a line of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The host itself.
    #[error(transparent)]
    Host(#[from] HostError),
    /// hydra's binding of one host's ranks.
    #[error(
        "'{0}': ranks are bound alike on all hosts; leave it out and write -bind-to core or -bind-to user:0+2,1+3"
    )]
    Binding(String),
    /// A word that says nothing here.
    #[error("'{0}' is none of slots=N, max_slots=N, user=NAME")]
    Word(String),
    /// The same said twice.
    #[error("'{0}' is said twice")]
    Twice(String),
    /// No user.
    #[error("'{0}' is no user's name")]
    User(String),
    /// `HOST SLOTS` without slots.
    #[error("the number of slots of '{0}' is missing")]
    NoSlots(String),
    /// A variable that names no host.
    #[error("it names no host")]
    Nothing,
    /// Bytes that are no text.
    #[error("it is no UTF-8 text")]
    NoText,
}

impl From<HostlistError> for LineError {
    fn from(error: HostlistError) -> LineError {
        LineError::Host(error.into())
    }
}

fn from(variable: &Option<&'static str>) -> String {
    variable.map_or_else(String::new, |variable| format!(" (named by {variable})"))
}
