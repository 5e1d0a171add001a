//! Options of `hydrant doctor`.

use std::ffi::OsString;
use std::path::PathBuf;

use hydrant_doctor::Question;
use hydrant_placement::{HostSource, Hosts};

use super::environment::Environment;
use super::variables;

/// Options of `hydrant doctor`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct DoctorArgs {
    /// Hosts of the job: a:4,b:4 or n[01-16]:4; default: those of the resource manager, or this machine
    #[arg(short = 'H', long, value_name = "HOST[:SLOTS],...", value_parser = Hosts::parse, visible_alias = "host")]
    #[arg(conflicts_with = "hostfile")]
    hosts: Option<Hosts>,

    /// File with the hosts of the job, one per line
    #[arg(short = 'f', long, value_name = "FILE", visible_alias = "machinefile")]
    hostfile: Option<PathBuf>,

    /// Program of the ranks, whose MPI library is named
    #[arg(value_name = "PROGRAM")]
    program: Option<OsString>,
}

impl DoctorArgs {
    /// The options without their syntax.
    pub(super) fn into_question(self, environment: &Environment) -> Question {
        let hosts = match (self.hosts, self.hostfile) {
            (Some(hosts), _) => HostSource::List(hosts),
            (None, Some(file)) => HostSource::File(file),
            (None, None) => variables::hosts(environment),
        };
        Question { hosts, program: self.program }
    }
}
