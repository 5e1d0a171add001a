//! The `hydrant` command on one machine. Needs nothing but the command and a shell.

/// Job arrays.
mod array;
/// Processors, memory and GPUs of ranks.
mod binding;
/// Arguments, messages and exit codes of the command itself.
mod command;
/// PMI requests beyond put, get and fence: groups, rings, attributes, spawns, names, process sets.
mod dynamic;
/// Ranks that fail, abort or are not there, and the exit code.
mod failures;
/// Files that the user names, and names in messages.
mod files;
/// Fleets: jobs that share hosts.
mod fleet;
/// Input, output, files, descriptors and environment of ranks.
mod io;
/// Processes that ranks leave behind: their output arrives, and they end with the job.
mod left_behind;
/// The name service: `hydrant serve --universe`, and jobs that join it.
mod names;
/// Commands that look at running jobs.
mod observe;
/// PMIx messages that no library sends.
mod pmix;
/// The TCP port of `--pmi-port`.
mod port;
/// `hydrant probe`.
mod probe;
/// `hydrant run --profile`.
mod profile;
/// Pseudo-terminals for the output of ranks.
mod pty;
/// Processes of ranks: how they start, what they inherit, and how they end.
mod ranks;
/// `hydrant run --record` and `hydrant replay`.
mod record;
/// Jobs of separate runs that connect to each other.
mod runs;
/// `hydrant serve --size`.
mod serve;
/// Put, get and fence, and malformed requests.
mod service;
/// Signals, terminals, and the shell's job control.
mod signals;
/// Many jobs and spawns in a row, and what they leave.
mod soak;
/// Spawned jobs.
mod spawn;
/// `hydrant replay --summary`, `--trace` and `--html`.
mod timeline;
/// Topology file, which MPICH asks for.
mod topology;

use hydrant_tests::Job;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Shell functions for PMI-1: `ask LINE` sends a request and reads the reply, `init` joins.
const ASK: &str = r#"ask() { printf '%s\n' "$1" >&$PMI_FD; read -r reply <&$PMI_FD; }
    init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }
    "#;

/// A job of raw clients: `steps` are separated by line ends, a step from its text by the first blank.
fn raw(options: &str, steps: &str) -> Job {
    Job::hydrant(options).arg(RAW).steps(steps)
}

/// A shell script as a job's only program. bash runs it if the script writes to PMI, whose descriptor has more digits than dash
/// takes.
fn shell(options: &str, script: &str) -> Job {
    let shell = if script.contains("&$PMI_FD") { "bash" } else { "sh" };
    Job::hydrant(options).args([shell, "-c"]).arg(script)
}
