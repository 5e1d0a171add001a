//! Errors of host lists, host files, resource managers, mapping and binding.

use std::io;
use std::path::PathBuf;

use crate::limits::{DIMENSIONS_MAX, HOST_NAME_MAX, HOSTS_MAX, RANKS_MAX};
use crate::topology::{Level, Objects};

/// Error of placing a job. The message names the file or variable and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// A host file cannot be read.
    #[error("cannot read host file {}{}: {why}", file.display(), named_by(variable))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The variable that names the file, if no option does.
        variable: Option<&'static str>,
        /// The error of the system.
        why: io::Error,
    },
    /// A line of a host file is invalid.
    #[error("{} line {line}: {why}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The error in the line.
        why: LineError,
    },
    /// A host file names no host.
    #[error("{}{} names no host; write one host a line, for example: node1 slots=4", file.display(), named_by(variable))]
    EmptyFile {
        /// The file.
        file: PathBuf,
        /// The variable that names the file, if no option does.
        variable: Option<&'static str>,
    },
    /// A variable of the resource manager is invalid.
    #[error("{variable} '{value}': {why}; name the hosts with -hosts or -f instead")]
    Variable {
        /// Name of the variable.
        variable: &'static str,
        /// Its value, cut off after 60 characters.
        value: String,
        /// The error in the value.
        why: LineError,
    },
    /// Slurm's list of hosts and its list of counts differ in length.
    #[error(
        "{names} names {hosts} hosts, but {counts} has counts for {counted}; name the hosts with -hosts or -f instead"
    )]
    Counts {
        /// The variable with the names.
        names: &'static str,
        /// Number of names.
        hosts: usize,
        /// The variable with the counts.
        counts: &'static str,
        /// Number of counts.
        counted: usize,
    },
    /// The job has more ranks than the `max_slots` of all hosts allow.
    #[error(
        "{ranks} ranks, but max_slots of the hosts allow {capacity}; name more hosts or start fewer ranks"
    )]
    Full {
        /// Ranks of the job.
        ranks: u64,
        /// The sum of all `max_slots`.
        capacity: u64,
    },
    /// The job wants more hosts than there are.
    #[error("--nodes {wanted}, but {}; name more hosts, or remove the option", number_of_hosts(*.there))]
    FewHosts {
        /// Hosts that the user wants.
        wanted: u32,
        /// Hosts that are there.
        there: usize,
    },
    /// A Cartesian network has fewer places than the job has hosts.
    #[error(
        "--topology has {places} places, but there are {hosts} hosts; name the dimensions of the whole network"
    )]
    SmallNetwork {
        /// Product of the dimensions.
        places: u64,
        /// Number of hosts.
        hosts: u32,
    },
    /// The file of a network has no coordinates for a host.
    #[error("host {host} has no coordinates in {}; add a line: {host} 0,0", file.display())]
    NoPlace {
        /// The host.
        host: String,
        /// The file.
        file: PathBuf,
    },
    /// The job has more than [`RANKS_MAX`] ranks.
    #[error("{0} ranks, but at most {RANKS_MAX} can run on several hosts")]
    Ranks(u64),
    /// A host has a user, and the bootstrap cannot log in as another user.
    #[error("host {host} has user {user}, which {bootstrap} does not support; use --bootstrap ssh")]
    User {
        /// The host.
        host: String,
        /// Its user.
        user: String,
        /// Name of the bootstrap.
        bootstrap: &'static str,
    },
    /// `PMI_process_mapping` is longer than a PMI value may be.
    #[error(
        "the process mapping takes {len} bytes, and PMI allows 1024: start fewer ranks or map them more evenly"
    )]
    MappingTooLong {
        /// Length of the mapping in bytes.
        len: usize,
    },
    /// A processor to bind to is not allowed for this process.
    #[error("cannot bind to processor {cpu}: this process may use {allowed} only")]
    Processor {
        /// Number of the processor.
        cpu: u32,
        /// The allowed processors, as a list of ranges.
        allowed: String,
    },
    /// A program names a host that is none of the job's.
    #[error("-host of program {program} names {host}, and the hosts of the job are {hosts}")]
    NotAmong {
        /// The program, its `appnum`.
        program: u32,
        /// The host.
        host: String,
        /// The first hosts of the job.
        hosts: String,
    },
    /// Programs name the same host in ways that contradict each other.
    #[error("-host: {0}")]
    ProgramHost(#[from] HostError),
    /// A rank map names a host that there is not.
    #[error("the rank map names host {node}, counted from 0, and the number of hosts is {hosts}")]
    RankMap {
        /// Position of the host.
        node: u32,
        /// Number of hosts.
        hosts: usize,
    },
    /// The machine has no objects of this kind.
    #[error("cannot bind to {0}: the kernel describes no such objects here")]
    NoObject(Level),
    /// A rank shall get more objects than there are.
    #[error("cannot bind a rank to {objects}: this process may use {available} of them only")]
    FewObjects {
        /// Objects of one rank.
        objects: Objects,
        /// Number of objects that this process may use.
        available: usize,
    },
    /// A NUMA node to take memory from has none.
    #[error("cannot take memory from NUMA node {node}: the nodes with memory are {known}")]
    NoMemory {
        /// Number of the node.
        node: u32,
        /// The nodes with memory, as a list of ranges.
        known: String,
    },
    /// A set of processors to bind to is empty.
    #[error("cannot bind: empty set of processors")]
    NoProcessor,
}

/// Error in the name or in the file of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Text that names no network.
    #[error(
        "expected complete, hypercube, kautz, cart: and up to {DIMENSIONS_MAX} dimensions, as in cart:4x4x2, or file:PATH"
    )]
    Unknown,
    /// File that cannot be read.
    #[error("cannot read {}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Reason given by the operating system.
        why: String,
    },
    /// Invalid line of a file.
    #[error("{} line {line}: {why}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Number of the line, from 1. The last one for an error of the whole file.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Error in one line of a host file, or in one variable of a resource manager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] HostError),
    /// hydra's `binding=` of a single host.
    #[error("'{0}': binding on a single host is not supported; use -bind-to core or -bind-to user:0+2,1+3")]
    Binding(String),
    /// An unknown word behind the name of a host.
    #[error("unknown word '{0}': expected slots=N, max_slots=N or user=NAME")]
    Word(String),
    /// A word that appears twice.
    #[error("'{0}' is given twice")]
    Twice(String),
    /// `HOST SLOTS` without slots.
    #[error("host '{0}' has no number of slots")]
    NoSlots(String),
    /// A variable that names no host.
    #[error("no host")]
    Nothing,
    /// Bytes that are not UTF-8.
    #[error("not UTF-8 text")]
    NotUtf8,
}

impl From<HostlistError> for LineError {
    fn from(error: HostlistError) -> LineError {
        LineError::Host(error.into())
    }
}

/// Error in a host, or in a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// An invalid host name.
    #[error(
        "invalid host name '{0}': use letters, digits, '.', '-' and '_', no leading '-', at most {HOST_NAME_MAX} bytes"
    )]
    Name(String),
    /// An invalid user name.
    #[error("invalid user name '{0}'")]
    User(String),
    /// An invalid number of slots.
    #[error("invalid number of slots '{0}': give a whole number of at least 1")]
    Slots(String),
    /// The slots of a host that is named several times exceed 32 bits.
    #[error("host {0} has more than {max} slots in all", max = u32::MAX)]
    ManySlots(String),
    /// `max_slots` is smaller than the number of slots.
    #[error("host {host} has {slots} slots, but max_slots is {max_slots}")]
    MaxBelowSlots {
        /// The host.
        host: String,
        /// Its slots in all.
        slots: u32,
        /// Its `max_slots` in all.
        max_slots: u32,
    },
    /// A host is named twice, with different users.
    #[error("host {0} is named twice, with different users")]
    Users(String),
    /// The list is invalid.
    #[error(transparent)]
    List(#[from] HostlistError),
}

/// Error in the short form of a list of host names or counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostlistError {
    /// An unbalanced bracket.
    #[error("unbalanced bracket in '{0}'; write for example n[01-03,7]")]
    Bracket(String),
    /// Text between brackets that is neither a number nor a range.
    #[error("invalid range '{0}' between brackets; write for example n[01-03,7]")]
    Range(String),
    /// A range that counts down.
    #[error("range {0} counts down")]
    Backwards(String),
    /// An empty entry of a list.
    #[error("empty host name; write for example a,b or n[01-03]")]
    Empty,
    /// Numbers between brackets that make names longer than [`HOST_NAME_MAX`].
    #[error("'{0}' makes host names of more than {HOST_NAME_MAX} bytes")]
    Long(String),
    /// More than [`HOSTS_MAX`] names.
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
    /// An invalid count.
    #[error("invalid count '{0}'; write for example 4 or 2(x3)")]
    Count(String),
}

fn number_of_hosts(hosts: usize) -> String {
    match hosts {
        1 => "there is 1 host".to_owned(),
        _ => format!("there are {hosts} hosts"),
    }
}

fn named_by(variable: &Option<&'static str>) -> String {
    variable.map_or_else(String::new, |variable| format!(" (named by {variable})"))
}
