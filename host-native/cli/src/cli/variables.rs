//! Variables of hydra, Intel MPI and Open MPI that name the hosts and the program that starts daemons there. Operators of
//! Kubernetes set them in the pod of the launcher.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use hydrant_placement::{Bootstrap, HostSource};

use super::argument::escaped;
use super::environment::{self, Environment};
use super::error::UsageError;
use crate::quoting;
use crate::value;

/// Variables with a host file. Of those that are set, the first is used.
pub(super) const HOST_FILES: [&str; 4] = [
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "PRTE_MCA_prte_default_hostfile",
    "OMPI_MCA_orte_default_hostfile",
];

/// Variables with a method that starts daemons, as `--bootstrap`. Methods that hydrant does not have are ignored: a resource
/// manager chooses, and otherwise ssh is used.
const LAUNCHERS: [&str; 3] = ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"];

/// Variables with a program that starts a process on a host: ssh, or one that is called as `rsh HOST COMMAND`.
const AGENTS: [&str; 7] = [
    "HYDRA_LAUNCHER_EXEC",
    "HYDRA_BOOTSTRAP_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_rsh_agent",
    "OMPI_MCA_plm_ssh_agent",
    "OMPI_MCA_plm_rsh_agent",
];

/// Variables with further arguments of that program. MPICH documents the first, and reads the second in some versions.
const AGENT_ARGS: [&str; 7] = [
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "HYDRA_LAUNCH_EXTRA_ARGS",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    "PRTE_MCA_plm_ssh_args",
    "PRTE_MCA_plm_rsh_args",
    "OMPI_MCA_plm_ssh_args",
    "OMPI_MCA_plm_rsh_args",
];

/// How daemons are started where no option says otherwise.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) bootstrap: Option<Bootstrap>,
    /// Program instead of `ssh` or `srun` in `PATH`.
    pub(super) program: Option<PathBuf>,
    /// Further arguments of the program.
    pub(super) args: Vec<OsString>,
}

/// The first of these variables that is set and not empty.
fn first<'e>(environment: &'e Environment, names: &[&'static str]) -> Option<(&'static str, &'e OsStr)> {
    let set = |&name: &&'static str| Some((name, environment::variable(environment, name)?));
    names.iter().filter_map(set).find(|(_, value)| !value.is_empty())
}

/// Returns the hosts where no option names any.
pub(super) fn hosts(environment: &Environment) -> HostSource {
    match first(environment, &HOST_FILES) {
        Some((variable, file)) => HostSource::Variable(variable, file.into()),
        None => HostSource::Allocation,
    }
}

/// Reads the variables for the start of daemons.
///
/// # Errors
/// A value has an unclosed quote.
pub(super) fn agent(environment: &Environment) -> Result<Agent, UsageError> {
    let launcher = match first(environment, &LAUNCHERS) {
        // The agent is called as rsh is.
        Some((_, value)) if value == "rsh" => Some(rsh("rsh".into(), Vec::new(), &[])),
        // Other launchers have no hosts that join.
        Some((_, value)) => {
            value::bootstrap(&value.to_string_lossy()).ok().filter(|bootstrap| *bootstrap != Bootstrap::Join)
        }
        None => None,
    };
    let of_job = hydrant_placement::Environment {
        hostname: String::new(),
        variables: &|name| environment::variable(environment, name).map(OsStr::to_owned),
    };
    if launcher.is_none() && Bootstrap::for_environment(&of_job) != Bootstrap::Ssh {
        // The program and the arguments are those of ssh.
        return Ok(Agent::default());
    }
    let args = match first(environment, &AGENT_ARGS) {
        Some((variable, value)) => split(variable, value)?,
        None => Vec::new(),
    };
    let Some((variable, value)) = first(environment, &AGENTS) else {
        return Ok(match launcher {
            Some(Bootstrap::Exec(_)) => {
                Agent { bootstrap: Some(rsh("rsh".into(), Vec::new(), &args)), ..Agent::default() }
            }
            bootstrap => Agent { bootstrap, program: None, args },
        });
    };
    // Open MPI takes a list: "ssh : rsh".
    let mut words = split(variable, value)?.into_iter().take_while(|word| word != ":");
    let Some(program) = words.next() else { return Ok(Agent { bootstrap: launcher, program: None, args }) };
    let own: Vec<OsString> = words.collect();
    let is_ssh = Path::new(&program).file_name() == Some(OsStr::new("ssh"));
    Ok(match launcher {
        Some(bootstrap @ (Bootstrap::Srun | Bootstrap::Qrsh | Bootstrap::Local)) => {
            Agent { bootstrap: Some(bootstrap), program: Some(program.into()), args: [own, args].concat() }
        }
        _ if is_ssh => Agent {
            bootstrap: Some(Bootstrap::Ssh),
            program: Some(program.into()),
            args: [own, args].concat(),
        },
        _ => Agent { bootstrap: Some(rsh(program, own, &args)), ..Agent::default() },
    })
}

/// The bootstrap by a program that is called as `rsh HOST COMMAND`, where a shell on the host runs the command.
fn rsh(program: OsString, own: Vec<OsString>, args: &[OsString]) -> Bootstrap {
    let words = std::iter::once(program).chain(own).chain(args.iter().cloned());
    Bootstrap::Exec(words.chain(["{host}".into(), "exec {args}".into()]).collect())
}

fn split(variable: &'static str, value: &OsStr) -> Result<Vec<OsString>, UsageError> {
    let lines = quoting::split(value.as_encoded_bytes());
    let lines = lines.map_err(|_| invalid(variable, value, "words quoted as in a shell"))?;
    Ok(lines.into_iter().flatten().map(|word| word.text).collect())
}

fn invalid(variable: &'static str, value: &OsStr, expected: &'static str) -> UsageError {
    UsageError::InvalidVariable { variable, value: escaped(value), expected }
}
