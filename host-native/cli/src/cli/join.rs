//! Command line of `hydrant join`.

use std::ffi::OsString;
use std::net::Ipv6Addr;

use hydrant_board::manage::Secret;
use hydrant_overlay::{Applicant, Application, BOOTSTRAP_TIMEOUT_DEFAULT, SLOTS_MAX};
use hydrant_run::JoinOptions;

use super::environment::{self, Environment, EnvironmentOptions};
use crate::value::{self, Timeout, timeout};

/// Variables with the number of this process among those that another system has started, from 0: Kubernetes, Slurm, PMIx, PMI,
/// Open MPI, Flux, PALS and PBS.
const INDEX_VARIABLES: [&str; 9] = [
    "JOB_COMPLETION_INDEX",
    "SLURM_PROCID",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_ID",
    "OMPI_COMM_WORLD_RANK",
    "FLUX_TASK_RANK",
    "PALS_RANKID",
    "PBS_NODENUM",
];

/// Options of `hydrant join`.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinArgs {
    /// Where the run waits for hosts: a name or an address, and a port
    ///
    /// 'hydrant run --bootstrap join' prints it. The run may start later: see --bootstrap-timeout.
    #[arg(value_name = "HOST:PORT", value_parser = address)]
    pub address: String,

    /// File with the secret of the run, or of this host
    ///
    /// It has at least 16 bytes, and other users must not be able to read it.
    #[arg(long, value_name = "FILE", value_parser = value::secret_file())]
    pub secret_file: Secret,

    /// Slots of this host; default: one for each processor that this process may use
    #[arg(short = 'n', long, value_name = "N", value_parser = value::within(1..=SLOTS_MAX))]
    pub slots: Option<u32>,

    /// Number of this host among those of the run, from 0
    ///
    /// Ranks are mapped to hosts in this order. Without it, the first of these variables that is set has the number:
    /// JOB_COMPLETION_INDEX, SLURM_PROCID, PMIX_RANK, PMI_RANK, PMI_ID, OMPI_COMM_WORLD_RANK, FLUX_TASK_RANK, PALS_RANKID,
    /// PBS_NODENUM. Hosts without a number get those that are left, in the order in which they come.
    #[arg(long, value_name = "I", value_parser = value::within(0..=INDEX_MAX))]
    pub index: Option<u32>,

    /// Name of this host in the run; default: the name of the machine
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Time in seconds for the run to answer, which may not have been started yet
    #[arg(long, value_name = "SECONDS", value_parser = timeout, default_value_t = Timeout(BOOTSTRAP_TIMEOUT_DEFAULT))]
    pub bootstrap_timeout: Timeout,

    /// Program to run here, with its arguments, in the environment and the working directory of this command
    ///
    /// 'hydrant run' then has no program.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Largest index. Runs have fewer hosts.
const INDEX_MAX: u32 = u32::MAX - 1;

impl JoinArgs {
    /// The options without their syntax. `environment` is that of this process.
    pub(super) fn into_options(self, environment: &Environment) -> JoinOptions {
        let of_variable = |name: &&str| {
            environment::variable(environment, name)?
                .to_str()?
                .parse()
                .ok()
                .filter(|&index| index <= INDEX_MAX)
        };
        let index = self.index.or_else(|| INDEX_VARIABLES.iter().find_map(of_variable));
        let here = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let slots = self.slots.unwrap_or_else(|| processors().min(SLOTS_MAX as usize) as u32);
        let none = EnvironmentOptions { all: false, none: false, list: &[], assigned: &[] };
        JoinOptions {
            applicant: Applicant {
                address: self.address,
                secret: self.secret_file.to_bytes(),
                index,
                application: Application {
                    name: self.name.unwrap_or_else(here),
                    slots,
                    program: Some(self.program).filter(|words| !words.is_empty()),
                },
                timeout: self.bootstrap_timeout.0.as_millis().try_into().unwrap_or(u64::MAX),
            },
            environment: environment::build(environment, none, none),
        }
    }
}

/// A name or an address, and a port.
fn address(text: &str) -> Result<String, String> {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ip) => ip.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(':'),
    };
    let parts = text.rsplit_once(':');
    match parts.filter(|(host, port)| is_host(host) && port.parse().is_ok_and(|port: u16| port > 0)) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("expected a name or an address, and a port: head:4200, 192.0.2.7:4200 or [2001:db8::7]:4200"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        for right in ["x:1", "192.0.2.7:4200", "head.example:65535", "[::1]:4200"] {
            assert_eq!(address(right).as_deref(), Ok(right));
        }
        for wrong in ["", "x", ":1", "x:", "x:0", "x:65536", "::1:4200", "[x]:1", "[::1]"] {
            assert!(address(wrong).unwrap_err().contains("head:4200"), "{wrong}");
        }
    }
}
